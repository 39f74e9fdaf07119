//! Members come and go.

use crate::set::*;
use kauri_replication::consensus::Acknowledge::{Durable, Written};
use kauri_replication::{Change, Log, ProposeError, Role};

fn set_of_three_and_a_spare() -> Set {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    let spare = member(config(4, Written), disk(3, 1, &[]));
    set.members.insert(4, spare);
    set.stand(1);
    set
}

#[test]
fn a_learner_follows_and_becomes_a_voter() {
    let mut set = set_of_three_and_a_spare();
    set.get(1).change(&[Change::Learner(4)]).unwrap();
    set.tick(6);
    set.propose(1);
    set.tick(6);
    assert_eq!(last(set.get(4)), last(set.get(1)));
    assert!(set.get(4).membership().learners.contains(&4));
    set.tick(10 * ELECTION_TICKS);
    assert_eq!(set.leader(), Some(1), "a learner does not stand");
    set.get(1).change(&[Change::Voter(4)]).unwrap();
    set.tick(6);
    assert!(set.members.values().all(|of| of.membership().voters.len() == 4));
    assert!(set.get(4).log().durable_state().membership.voters.contains(&4));
}

#[test]
fn several_changes_go_through_a_joint_membership() {
    let mut set = set_of_three_and_a_spare();
    set.get(1).change(&[Change::Voter(4), Change::Removed(3)]).unwrap();
    assert_eq!(set.get(1).change(&[Change::Removed(2)]), Err(ProposeError::ChangePending));
    set.deliver();
    assert!(set.get(1).membership().is_joint());
    assert_eq!(set.get(1).change(&[Change::Removed(2)]), Err(ProposeError::ChangePending));
    set.tick(6 * ELECTION_TICKS);
    let voters: Vec<u64> = set.get(1).membership().voters.iter().copied().collect();
    assert_eq!((voters, set.get(1).membership().is_joint()), (vec![1, 2, 4], false));
}

#[test]
fn changes_that_cannot_be_are_refused() {
    let mut set = set_of_three_and_a_spare();
    let cases: [(&[Change], ProposeError); 5] = [
        (&[], ProposeError::InvalidChange),
        (&[Change::Voter(0)], ProposeError::InvalidChange),
        (&[Change::Removed(1)], ProposeError::HandOverFirst),
        (&[Change::Learner(1)], ProposeError::HandOverFirst),
        (&[Change::Voter(9); 9], ProposeError::InvalidChange),
    ];
    for (changes, error) in cases {
        assert_eq!(set.get(1).change(changes), Err(error), "{changes:?}");
    }
    assert_eq!(set.get(2).change(&[Change::Voter(4)]), Err(ProposeError::NotLeader));
}

#[test]
fn a_change_that_is_in_force_is_durable() {
    let mut set = set_of_three_and_a_spare();
    set.get(1).change(&[Change::Learner(4)]).unwrap();
    // No sync ends but the one that the change makes.
    let mut under_way = set.get(1).advance().messages;
    for _ in 0..4 {
        let mut next = Vec::new();
        for envelope in under_way {
            let to = envelope.to;
            set.get(to).step(envelope).unwrap();
            next.extend(set.get(to).advance().messages);
        }
        under_way = next;
    }
    for id in 1..=3 {
        let of = set.get(id);
        assert!(of.membership().learners.contains(&4), "{id}");
        assert_eq!(&of.log().durable_state().membership, of.membership());
        assert_eq!((of.log().durable_state().membership_index, of.log().durable_last()), (2, 2));
    }
}

/// raft-rs looks for the progress of a leader that the membership lacks, and panics.
#[test]
fn a_leader_that_a_change_of_its_predecessor_removes_steps_down() {
    for acknowledge in [Written, Durable] {
        let mut set = Set::of(acknowledge, 1, &[&[], &[], &[]]);
        set.stand(1);
        set.cut.extend([(2, 1), (3, 1)]);
        set.get(1).change(&[Change::Removed(2)]).unwrap();
        set.deliver();
        assert_eq!(set.get(1).written_commit(), 1);
        set.cut.clear();
        set.isolate(1);
        // 2 has the entry that removes it, and no election has noticed.
        set.tick(2 * ELECTION_TICKS);
        set.stand(2);
        set.tick(20 * ELECTION_TICKS);
        assert!(!set.get(2).membership().contains(2) || set.get(2).role() != Role::Leader);
        set.cut.clear();
        set.tick(20 * ELECTION_TICKS);
        let leader = set.leader().unwrap();
        assert_ne!(leader, 2);
        assert!(!set.get(leader).membership().contains(2));
    }
}

#[test]
fn a_member_with_a_change_that_it_has_not_applied_does_not_stand() {
    // raft-rs 0.7.0 looks through all such entries at once: #530.
    let mut set = Set::of(Durable, 1, &[&[], &[], &[]]);
    set.stand(1);
    for _ in 0..3 {
        set.propose(1);
    }
    set.get(1).change(&[Change::Learner(9)]).unwrap();
    let mut follower = set.members.remove(&2).unwrap();
    set.deliver();
    set.under_way.clear();
    // It gets all entries and the commit point, and applies none.
    let mut next: Vec<_> = {
        set.get(1).tick();
        (0..3).for_each(|_| set.get(1).tick());
        set.get(1).advance().messages
    };
    for _ in 0..6 {
        let mut answers = Vec::new();
        for envelope in next.into_iter().filter(|envelope| envelope.to == 2) {
            follower.step(envelope).unwrap();
            follower.log_for_sync().sync();
            answers.extend(follower.advance().messages);
        }
        for answer in answers {
            set.get(1).step(answer).unwrap();
        }
        next = set.get(1).advance().messages;
    }
    assert_eq!(follower.written_commit(), last(set.get(1)));
    for _ in 0..6 * ELECTION_TICKS {
        follower.tick();
        assert_eq!(follower.role(), Role::Follower);
    }
    follower.applied(last(set.get(1)));
    for _ in 0..6 * ELECTION_TICKS {
        follower.tick();
    }
    assert_eq!(follower.role(), Role::Candidate);
}
