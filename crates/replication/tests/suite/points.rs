//! What is written, what is durable, and what is told before.

use crate::set::*;
use kauri_replication::codec::{Kind, Message};
use kauri_replication::consensus::Acknowledge::{Durable, Written};
use kauri_replication::{Log, Role};

#[test]
fn an_acknowledgement_waits_for_what_it_promises() {
    for acknowledge in [Written, Durable] {
        let mut follower = member(config(2, acknowledge), disk(3, 2, &[]));
        let mut append = Message::new(Kind::Append, 2);
        append.entries = entries(&[2]);
        follower.step(envelope(1, 2, append)).unwrap();
        let before = of_kind(&follower.advance().messages, Kind::Appended).len();
        assert_eq!(before, usize::from(acknowledge == Written));
        let writes = follower.log().begin_sync();
        follower.log_for_sync().end_sync(writes);
        let sent = follower.advance().messages;
        let after = of_kind(&sent, Kind::Appended).len();
        assert_eq!(after, usize::from(acknowledge == Durable));
        assert_eq!(sent[0].durable, 1, "the leader is told in both cases");
    }
}

#[test]
fn a_term_and_a_vote_are_durable_before_they_are_told() {
    for acknowledge in [Written, Durable] {
        for kind in [Kind::Vote, Kind::Append] {
            let mut of = member(config(2, acknowledge), disk(3, 2, &[]));
            of.step(envelope(1, 2, Message::new(kind, 5))).unwrap();
            assert!(of.advance().messages.is_empty());
            assert_eq!(of.log().durable_state().term, 2);
            of.log_for_sync().sync();
            assert_eq!(of.advance().messages.len(), 1);
            assert_eq!(of.log().durable_state().term, 5);
        }
    }
}

#[test]
fn the_durable_point_follows_the_written_one() {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    let index = set.propose(1);
    // No sync ends anywhere.
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
    assert_eq!((set.get(1).written_commit(), set.get(1).durable_commit()), (index, index - 1));
    assert_eq!(set.get(2).written_commit(), index);
    set.get(1).log_for_sync().sync();
    set.get(1).advance();
    assert_eq!(set.get(1).durable_commit(), index - 1, "one of three is no majority");
    set.get(2).log_for_sync().sync();
    set.deliver();
    assert_eq!(set.get(1).durable_commit(), index);
    set.tick(4);
    assert_eq!(set.get(3).durable_commit(), index, "heartbeats tell of it");
}

#[test]
fn a_read_waits_until_a_majority_knows_the_leader() {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    set.get(1).read(42).unwrap();
    let output = set.get(1).advance();
    assert!(output.reads.is_empty() && output.messages.len() == 2);
    for envelope in output.messages.into_iter().take(1) {
        let to = envelope.to;
        set.get(to).step(envelope).unwrap();
        for answer in run(set.get(to)) {
            set.get(1).step(answer).unwrap();
        }
    }
    assert_eq!(set.get(1).advance().reads, [(42, 1)]);
    // A leader that has been replaced answers nothing.
    set.isolate(1);
    set.get(1).read(43).unwrap();
    set.tick(8 * ELECTION_TICKS);
    assert_ne!(set.leader(), Some(1));
    set.cut.clear();
    set.tick(2 * ELECTION_TICKS);
    assert!(set.get(1).advance().reads.is_empty());
}

#[test]
fn a_leader_that_has_committed_nothing_is_not_ready_for_reads() {
    let mut set = Set::of(Written, 1, &[&[1], &[], &[]]);
    set.stand(1);
    let mut fresh = member(config(1, Written), disk(1, 1, &[1]));
    while fresh.role() != Role::Leader {
        fresh.tick();
        if fresh.role() != Role::Leader {
            fresh.advance();
        }
    }
    assert!(fresh.read(1).is_err());
    run(&mut fresh);
    assert!(fresh.read(2).is_ok());
}

#[test]
fn a_member_that_lost_power_is_marked_until_it_has_what_a_leader_had() {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    set.propose(1);
    set.deliver();
    set.isolate(2);
    set.restart(2, config(2, Written), true);
    set.tick(2);
    assert!(set.get(2).is_marked());
    // The mark outlives the process.
    set.restart(2, config(2, Written), false);
    assert!(set.get(2).is_marked());
    set.cut.clear();
    set.tick(4);
    assert!(!set.get(2).is_marked() && !set.get(2).log().hard_state().lost_power);
    assert_eq!(last(set.get(2)), 2);
}

#[test]
fn members_that_lost_power_elect_only_with_all_others() {
    let mut set = Set::of(Written, 1, &[&[1], &[1], &[1, 1]]);
    set.restart(1, config(1, Written), true);
    set.restart(2, config(2, Written), true);
    set.isolate(3);
    set.tick(12 * ELECTION_TICKS);
    assert_eq!(set.leader(), None, "3 may have what they lost");
    set.cut.clear();
    set.tick(12 * ELECTION_TICKS);
    assert_eq!(set.leader(), Some(3));
    assert!(set.members.values().all(|of| !of.is_marked()));
}

#[test]
fn members_that_acknowledge_when_durable_are_never_marked() {
    let mut set = Set::of(Durable, 1, &[&[1], &[1], &[1, 1]]);
    set.restart(1, config(1, Durable), true);
    set.restart(2, config(2, Durable), true);
    set.isolate(3);
    set.tick(12 * ELECTION_TICKS);
    assert!(set.leader().is_some());
}
