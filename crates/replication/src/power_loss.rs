//! Elections after a power loss.
//!
//! A member acknowledges entries when they are written. A power loss takes written entries that are not durable, and
//! such a member may no longer vouch for what it has acknowledged. It is *marked* from its start on, durably, until its
//! log has all that a leader had at some time after this start.
//!
//! The rule: an election is won by a majority of all voters that consists of members without the mark, or by all
//! voters. A voter tells with its answer whether it was marked when it decided; the candidate's own vote is marked if
//! the candidate is.
//!
//! Why this suffices. Let `e` be an entry of term `t` that each of a quorum has acknowledged at some time. The leader
//! of a later term, elected without marked votes, has a voter in common with this quorum. The voter acknowledged `e`
//! before it voted, since a vote raises its durable term. If it lost `e` between the two, it was marked, and the mark
//! was taken away by a leader of a term from `t` on: by the leader of `t` itself, which had `e` before anyone else, or,
//! by induction, by a leader that has `e`. So the voter has `e`, and it votes only for a log with `e`. In an election by
//! all voters one voter with `e` is enough. Entries are lost only if every member of a quorum is marked at one time.

use crate::codec::{Kind, Message};
use crate::entry::Membership;
use crate::quorum::is_unanimous;
use std::collections::BTreeMap;

/// The votes for this member in one election, or in the question before it.
#[derive(Default)]
pub(crate) struct Ballot {
    /// The kind of the answers, and their term.
    of: Option<(Kind, u64)>,
    /// Who agreed; with the answer, if it has been held back.
    agreed: BTreeMap<u64, Option<Message>>,
}

impl Ballot {
    /// The answers that raft-rs may count now that `from` has agreed.
    pub(crate) fn agree(
        &mut self,
        membership: &Membership,
        own: (u64, bool),
        from: (u64, bool),
        answer: Message,
    ) -> Vec<(u64, Message)> {
        let of = Some((answer.kind, answer.term));
        if self.of != of {
            *self = Ballot { of, agreed: BTreeMap::new() };
        }
        let (own, own_is_marked) = own;
        let (from, from_is_marked) = from;
        let mut counts = Vec::new();
        if own_is_marked || from_is_marked {
            // A member may answer twice; an answer without the mark stays.
            self.agreed.entry(from).or_insert(Some(answer));
        } else {
            self.agreed.insert(from, None);
            counts.push((from, answer));
        }
        if is_unanimous(membership, |id| id == own || self.agreed.contains_key(&id)) {
            let held = self.agreed.iter_mut().filter_map(|(&id, held)| Some((id, held.take()?)));
            counts.extend(held);
        }
        counts
    }
}

/// What a marked member needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mark {
    /// Whether the member is marked.
    pub(crate) is_set: bool,
    /// A leader's term, and its last index at some time after this member's start.
    needs: Option<(u64, u64)>,
}

impl Mark {
    pub(crate) fn new(is_set: bool) -> Mark {
        Mark { is_set, needs: None }
    }

    /// A leader has sent this after it heard of this member's start.
    pub(crate) fn hears(&mut self, term: u64, last: u64) {
        if self.is_set && self.needs.is_none_or(|(of, _)| of != term) {
            self.needs = Some((term, last));
        }
    }

    /// The log is the leader's of `term` up to `index`. Whether this takes the mark away.
    pub(crate) fn has(&mut self, term: u64, index: u64) -> bool {
        let ends = self.is_set && self.needs.is_some_and(|(of, last)| of == term && last <= index);
        if ends {
            *self = Mark::new(false);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(term: u64) -> Message {
        Message::new(Kind::Voted, term)
    }

    /// Who is counted after each of these answers to member 1.
    fn counted(own_is_marked: bool, answers: &[(u64, bool)]) -> Vec<Vec<u64>> {
        let (mut ballot, membership) = (Ballot::default(), Membership::of([1, 2, 3]));
        let mut counted = Vec::new();
        for &from in answers {
            let counts = ballot.agree(&membership, (1, own_is_marked), from, answer(5));
            counted.push(counts.into_iter().map(|(id, _)| id).collect());
        }
        counted
    }

    #[test]
    fn votes_of_marked_members_count_when_all_have_voted() {
        assert_eq!(counted(false, &[(2, false), (3, false)]), [vec![2], vec![3]]);
        assert_eq!(counted(false, &[(2, true), (2, true)]), [vec![], vec![]]);
        assert_eq!(counted(false, &[(2, true), (3, false)]), [vec![], vec![3, 2]]);
        assert_eq!(counted(false, &[(2, true), (3, true)]), [vec![], vec![2, 3]]);
        assert_eq!(counted(true, &[(2, false), (3, false)]), [vec![], vec![2, 3]]);
    }

    #[test]
    fn votes_of_another_term_do_not_count() {
        let (mut ballot, membership) = (Ballot::default(), Membership::of([1, 2, 3]));
        assert!(ballot.agree(&membership, (1, true), (2, false), answer(5)).is_empty());
        assert!(ballot.agree(&membership, (1, true), (3, false), answer(6)).is_empty());
        assert_eq!(ballot.agree(&membership, (1, true), (2, false), answer(6)).len(), 2);
    }

    #[test]
    fn the_mark_stays_until_the_log_has_what_one_leader_had() {
        let mut mark = Mark::new(true);
        assert!(!mark.has(3, 100));
        mark.hears(3, 10);
        mark.hears(3, 7);
        assert!(!mark.has(3, 9) && !mark.has(2, 10));
        mark.hears(4, 12);
        assert!(!mark.has(3, 11) && mark.is_set);
        assert!(mark.has(4, 12) && !mark.is_set);
        assert!(!mark.has(4, 12));
    }
}
