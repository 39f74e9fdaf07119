//! Who votes for whom, and who leads.

use crate::set::*;
use kauri_replication::codec::{Kind, Message};
use kauri_replication::consensus::Acknowledge::{Durable, Written};
use kauri_replication::entry::CONFIG_BYTES_MAX;
use kauri_replication::{Frame, HardState, Log, ProposeError, Role};

/// Whether a member with this log and state votes for 1 in term 3.
fn votes(log: &[u64], (term, vote): (u64, u64), (last, log_term): (u64, u64)) -> Option<bool> {
    let mut of = disk(3, term, log);
    of.set_hard_state(HardState { vote, ..of.hard_state().clone() });
    let mut voter = member(config(2, Durable), of);
    let mut asks = Message::new(Kind::Vote, 3);
    (asks.index, asks.log_term) = (last, log_term);
    voter.step(envelope(1, 2, asks)).unwrap();
    let answers = of_kind(&run(&mut voter), Kind::Voted);
    let agrees = answers.first().map(|answer| !answer.reject);
    let durable = voter.log().durable_state();
    assert_eq!(agrees == Some(true), (durable.term, durable.vote) == (3, 1));
    agrees
}

#[test]
fn a_member_votes_once_a_term_for_a_log_that_is_not_older() {
    let cases: [(&[u64], (u64, u64), (u64, u64), Option<bool>); 13] = [
        // Log, term and vote; the candidate's last index and its term; the vote.
        (&[], (1, 0), (0, 0), Some(true)),
        (&[1], (1, 0), (1, 1), Some(true)),
        (&[1], (1, 0), (2, 1), Some(true)),
        (&[1, 1], (1, 0), (1, 1), Some(false)),
        (&[1, 1], (1, 0), (1, 2), Some(true)),
        (&[1, 2], (2, 0), (9, 1), Some(false)),
        (&[1, 2], (2, 0), (2, 2), Some(true)),
        (&[1, 2], (2, 3), (2, 2), Some(true)),
        (&[1, 2], (3, 3), (2, 2), Some(false)),
        (&[1, 2], (3, 1), (2, 2), Some(true)),
        (&[1, 2], (3, 0), (2, 2), Some(true)),
        (&[1, 2], (3, 2), (2, 2), Some(false)),
        (&[1, 2], (4, 0), (2, 2), None),
    ];
    for (log, state, candidate, vote) in cases {
        let got = votes(log, state, candidate);
        assert_eq!(got, vote, "{log:?} {state:?} {candidate:?}");
    }
}

#[test]
fn a_majority_elects() {
    // Members that are down, of how many; whether 1 leads.
    let cases: [(usize, &[u64], bool); 7] = [
        (1, &[], true),
        (3, &[], true),
        (3, &[2], true),
        (3, &[2, 3], false),
        (4, &[2, 3], false),
        (4, &[2], true),
        (5, &[2, 3], true),
    ];
    for (count, down, leads) in cases {
        let mut set = Set::of(Written, 1, &vec![&[][..]; count]);
        down.iter().for_each(|&id| set.isolate(id));
        set.stand(1);
        assert_eq!(set.leader() == Some(1), leads, "{count} {down:?}");
        assert!(set.members.values().filter(|of| of.role() == Role::Leader).count() <= 1);
    }
}

#[test]
fn a_log_with_newer_terms_wins() {
    let mut set = Set::of(Durable, 4, &[&[1, 1, 1, 1, 1], &[1, 4], &[1, 4]]);
    set.stand(1);
    assert_eq!(set.leader(), None);
    set.stand(2);
    assert_eq!(set.leader(), Some(2));
    assert_eq!(set.logs(), [vec![1, 4, 5], vec![1, 4, 5], vec![1, 4, 5]]);
}

#[test]
fn a_member_of_term_0_starts_in_term_1() {
    let set = Set::of(Durable, 0, &[&[], &[], &[]]);
    assert!(set.members.values().all(|of| of.term() == 1));
}

#[test]
fn a_member_that_was_cut_off_does_not_disturb_the_leader() {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    let term = set.get(1).term();
    set.isolate(3);
    set.tick(10 * ELECTION_TICKS);
    assert_eq!(set.get(3).term(), term, "it asks first, and nobody answers");
    set.cut.clear();
    set.tick(4 * ELECTION_TICKS);
    assert_eq!((set.leader(), set.get(1).term()), (Some(1), term));
}

#[test]
fn a_leader_without_a_majority_steps_down() {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    set.isolate(1);
    set.tick(2 * ELECTION_TICKS);
    assert_ne!(set.get(1).role(), Role::Leader);
    set.tick(6 * ELECTION_TICKS);
    let leader = set.leader().unwrap();
    assert_ne!(leader, 1);
    set.cut.clear();
    set.tick(2 * ELECTION_TICKS);
    assert_eq!((set.leader(), set.get(1).leader()), (Some(leader), Some(leader)));
}

#[test]
fn another_election_timeout_counts_at_once() {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    let (long, term) = (10 * ELECTION_TICKS, set.get(1).term());
    for id in 1..=3 {
        set.get(id).set_timing(long, 3 * ELECTION_TICKS);
    }
    set.tick(4 * long);
    assert_eq!((set.leader(), set.get(1).term()), (Some(1), term), "heartbeats are in time");
    set.isolate(1);
    set.tick(long - 3 * ELECTION_TICKS);
    assert_eq!((set.get(2).term(), set.get(3).term()), (term, term), "nobody stands yet");
    assert_eq!(set.get(2).role(), Role::Follower);
    set.tick(4 * long);
    assert_ne!(set.leader(), Some(1));
    for id in 1..=3 {
        set.get(id).set_timing(ELECTION_TICKS, 3);
    }
    let term = set.get(2).term();
    let leader = set.leader().unwrap();
    set.cut.clear();
    set.isolate(leader);
    set.tick(8 * ELECTION_TICKS);
    assert_ne!(set.leader(), Some(leader));
    assert!((1..=3).any(|id| set.get(id).term() > term));
}

#[test]
fn another_interval_of_heartbeats_counts_at_once() {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    set.tick(ELECTION_TICKS);
    let beats_in = |set: &mut Set, ticks: usize| {
        let mut beats = 0;
        for _ in 0..ticks {
            let leader = set.get(1);
            leader.tick();
            beats += of_kind(&run(leader), Kind::Heartbeat).len();
            set.deliver();
        }
        beats / 2
    };
    // raft-rs adds one in each election timeout.
    set.get(1).set_timing(8 * ELECTION_TICKS, 20);
    assert!((2..=3).contains(&beats_in(&mut set, 40)));
    set.get(1).set_timing(8 * ELECTION_TICKS, 5);
    assert!((8..=9).contains(&beats_in(&mut set, 40)));
}

#[test]
fn a_follower_forwards_nothing() {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    let frame = Frame { first: 1, units: 1, bytes: 1 };
    assert_eq!(set.get(2).propose(frame), Err(ProposeError::NotLeader));
    assert_eq!(set.get(2).read(1), Err(ProposeError::NotLeader));
    assert_eq!(set.get(2).hand_over(3), Err(ProposeError::NotLeader));
    assert!(run(set.get(2)).is_empty());
}

#[test]
fn a_new_leader_goes_on_with_the_units() {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    let frame = |first, units| Frame { first, units, bytes: 1 };
    assert_eq!(set.get(1).propose(frame(1, 0)), Err(ProposeError::Invalid));
    let long = vec![0; CONFIG_BYTES_MAX + 1];
    assert_eq!(set.get(1).propose_config(&long), Err(ProposeError::Invalid));
    assert!(set.get(1).propose_config(b"config").is_ok());
    assert!(set.get(1).propose(frame(1, 3)).is_ok());
    assert!(set.get(1).propose(frame(4, 2)).is_ok());
    set.deliver();
    set.isolate(1);
    set.stand(2);
    set.tick(3 * ELECTION_TICKS);
    let leader = set.members.iter().find(|(id, of)| **id != 1 && of.role() == Role::Leader);
    assert_eq!(leader.unwrap().1.next_unit(), 6);
}

#[test]
fn the_leadership_is_handed_over() {
    let mut set = Set::of(Durable, 1, &[&[], &[], &[]]);
    set.stand(1);
    let term = set.get(1).term();
    assert_eq!(set.get(1).hand_over(1), Err(ProposeError::InvalidChange));
    assert_eq!(set.get(1).hand_over(9), Err(ProposeError::InvalidChange));
    set.get(1).hand_over(3).unwrap();
    let frame = Frame { first: 1, units: 1, bytes: 1 };
    assert_eq!(set.get(1).propose(frame), Err(ProposeError::NotReady));
    set.deliver();
    assert_eq!((set.leader(), set.get(3).term()), (Some(3), term + 1));
}

#[test]
fn an_arbiter_leads_only_until_another_can() {
    let priorities: std::collections::BTreeMap<u64, u32> = [(3, 0)].into();
    let logs: [&[u64]; 3] = [&[1], &[1], &[1, 2]];
    let mut set = Set::new((1..=3).zip(logs).map(|(id, log)| {
        let config =
            kauri_replication::Config { priorities: priorities.clone(), ..config(id, Durable) };
        member(config, disk(3, 2, log))
    }));
    // The primary, which had sent its last entry to the arbiter, is lost.
    set.isolate(1);
    set.stand(2);
    assert_eq!(set.leader(), None, "the arbiter has more");
    set.stand(3);
    assert_eq!(set.leader(), Some(3));
    set.tick(3 * ELECTION_TICKS);
    assert_eq!(set.leader(), Some(2));
    assert_eq!(set.get(2).log().term(2), Some(2), "with the arbiter's entry");
}
