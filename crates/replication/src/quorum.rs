//! Majorities.
//!
//! While the membership is joint, a decision takes a majority of the old voters and a majority of the new ones.

use crate::entry::Membership;
use std::collections::BTreeSet;

/// Members in a majority of `members`.
pub fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// Whether these members are a quorum.
pub fn is_quorum(membership: &Membership, has: impl Fn(u64) -> bool) -> bool {
    let decides = |voters: &BTreeSet<u64>| {
        voters.iter().filter(|&&id| has(id)).count() >= majority(voters.len())
    };
    decides(&membership.voters) && (!membership.is_joint() || decides(&membership.outgoing))
}

/// Whether these members are all voters.
pub fn is_unanimous(membership: &Membership, has: impl Fn(u64) -> bool) -> bool {
    membership.voters.iter().chain(&membership.outgoing).all(|&id| has(id))
}

/// The greatest index that a quorum has reached.
pub fn reached(membership: &Membership, index_of: impl Fn(u64) -> u64) -> u64 {
    let reached = |voters: &BTreeSet<u64>| {
        let mut indexes: Vec<u64> = voters.iter().map(|&id| index_of(id)).collect();
        indexes.sort_unstable_by(|one, other| other.cmp(one));
        indexes.get(majority(voters.len()) - 1).copied().unwrap_or(0)
    };
    match membership.is_joint() {
        false => reached(&membership.voters),
        true => reached(&membership.voters).min(reached(&membership.outgoing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexes(of: &[u64]) -> u64 {
        let membership = Membership::of(0..of.len() as u64);
        reached(&membership, |id| of[id as usize])
    }

    #[test]
    fn the_index_of_a_quorum_is_the_median_or_the_one_below() {
        let cases: [(&[u64], u64); 8] = [
            (&[], 0),
            (&[7], 7),
            (&[7, 3], 3),
            (&[1, 5, 9], 5),
            (&[9, 9, 0], 9),
            (&[4, 3, 2, 1], 2),
            (&[0, 0, 8, 8, 8], 8),
            (&[8, 8, 0, 0, 0], 0),
        ];
        for (of, wanted) in cases {
            assert_eq!(indexes(of), wanted, "{of:?}");
        }
    }

    #[test]
    fn a_joint_membership_takes_both_majorities() {
        let joint = Membership {
            voters: [1, 2, 3].into(),
            outgoing: [3, 4, 5].into(),
            ..Membership::default()
        };
        assert!(is_quorum(&joint, |id| [1, 3, 4].contains(&id)));
        assert!(!is_quorum(&joint, |id| [1, 2, 3].contains(&id)));
        assert!(!is_quorum(&joint, |id| [3, 4, 5].contains(&id)));
        assert_eq!(reached(&joint, |id| 10 * id), 20);
        assert!(is_unanimous(&joint, |_| true) && !is_unanimous(&joint, |id| id != 5));
    }
}
