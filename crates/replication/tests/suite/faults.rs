//! What raft-rs 0.7.0 does wrong or trusts its peers with, and what becomes of it here.

use crate::set::*;
use kauri_replication::codec::{Kind, Message};
use kauri_replication::consensus::Acknowledge::{Durable, Written};
use kauri_replication::{HardState, Log, Refused, Role};

fn leader_of_three() -> Set {
    let mut set = Set::of(Written, 1, &[&[], &[], &[]]);
    set.stand(1);
    assert_eq!((set.leader(), set.get(1).term()), (Some(1), 2));
    set
}

/// raft-rs panics: "to_commit is out of range".
#[test]
fn a_commit_point_beyond_the_log_is_refused() {
    let mut set = leader_of_three();
    let mut beats = Message::new(Kind::Heartbeat, 2);
    beats.commit = 9;
    assert_eq!(set.get(2).step(envelope(1, 2, beats)), Err(Refused::OutOfRange));
    assert_eq!(set.get(2).written_commit(), 1);
}

/// raft-rs commits the index, and panics.
#[test]
fn an_answer_about_entries_that_do_not_exist_is_refused() {
    let mut set = leader_of_three();
    let mut answer = Message::new(Kind::Appended, 2);
    answer.index = 9;
    assert_eq!(set.get(1).step(envelope(2, 1, answer.clone())), Err(Refused::OutOfRange));
    (answer.index, answer.reject, answer.hint) = (1, true, 9);
    assert_eq!(set.get(1).step(envelope(2, 1, answer)), Err(Refused::OutOfRange));
}

/// raft-rs takes 0 for the term of an entry that it lacks, finds that it matches, and panics.
#[test]
fn entries_after_a_hole_are_refused() {
    let mut set = leader_of_three();
    let mut append = Message::new(Kind::Append, 2);
    (append.index, append.entries) = (5, entries(&[2]));
    append.entries[0].index = 6;
    assert_eq!(set.get(2).step(envelope(1, 2, append)), Err(Refused::Impossible));
}

/// raft-rs answers that it has the entries, and the logs differ for ever.
#[test]
fn entries_in_the_place_of_committed_ones_are_refused() {
    let mut follower = leader_of_three().members.remove(&2).unwrap();
    assert_eq!(follower.written_commit(), 1);
    let mut append = Message::new(Kind::Append, 5);
    append.entries = entries(&[4]);
    assert_eq!(follower.step(envelope(3, 2, append.clone())), Err(Refused::Diverged));
    (append.index, append.log_term) = (1, 4);
    append.entries.clear();
    assert_eq!(follower.step(envelope(3, 2, append)), Err(Refused::Diverged));
    assert_eq!(terms(follower.log()), [2]);
}

/// raft-rs follows whoever wrote last.
#[test]
fn a_second_leader_of_a_term_is_refused() {
    let mut set = leader_of_three();
    let beats = || Message::new(Kind::Heartbeat, 2);
    assert_eq!(set.get(2).step(envelope(3, 2, beats())), Err(Refused::SecondLeader));
    assert_eq!(set.get(1).step(envelope(3, 1, beats())), Err(Refused::SecondLeader));
    assert_eq!((set.get(2).leader(), set.leader()), (Some(1), Some(1)));
}

#[test]
fn messages_of_others_are_refused() {
    let mut set = leader_of_three();
    let beats = || envelope(1, 2, Message::new(Kind::Heartbeat, 2));
    let mut cases = vec![
        (Refused::OtherSet, beats()),
        (Refused::Misaddressed, beats()),
        (Refused::Misaddressed, beats()),
        (Refused::Impossible, beats()),
        (Refused::Impossible, beats()),
        (Refused::Impossible, beats()),
        (Refused::OutOfRange, beats()),
        (Refused::NotAMember, envelope(9, 2, Message::new(Kind::Appended, 2))),
        (Refused::Stale, envelope(3, 2, Message::new(Kind::TakeOver, 2))),
    ];
    cases[0].1.set = 8;
    cases[1].1.to = 3;
    cases[2].1.from = 2;
    cases[3].1.from_boot = 0;
    cases[4].1.to_boot = 7;
    cases[5].1.term = 0;
    cases[6].1.term = 1;
    for (refused, envelope) in cases {
        let text = format!("{envelope:?}");
        let got = set.get(2).step(envelope);
        // Nobody else leads in a term that has a leader.
        let wanted = if refused == Refused::Stale { Refused::SecondLeader } else { refused };
        assert_eq!(got, Err(wanted), "{text}");
    }
}

/// raft-rs' leader never lowers what it thinks a member has, and ignores the member's refusals for ever.
#[test]
fn a_member_whose_log_became_shorter_gets_the_entries_again() {
    let mut set = leader_of_three();
    for _ in 0..3 {
        set.propose(1);
    }
    // All have written the entries, none of them is durable on 2.
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
    assert_eq!((set.get(1).written_commit(), last(set.get(2))), (4, 4));
    let heartbeats = {
        (0..3).for_each(|_| set.get(1).tick());
        set.get(1).advance().messages
    };
    set.restart(2, config(2, Written), true);
    assert_eq!(last(set.get(2)), 1);
    for envelope in heartbeats.into_iter().filter(|envelope| envelope.to == 2) {
        assert_eq!(set.get(2).step(envelope), Err(Refused::Stale));
    }
    set.tick(6);
    assert_eq!((last(set.get(2)), set.get(2).is_marked()), (4, false));
    assert_eq!(set.get(1).term(), 2, "without an election");
}

/// raft-rs does not start: "hs.commit is out of range".
#[test]
fn a_member_starts_whose_commit_point_was_kept_and_whose_entries_were_not() {
    let mut of = disk(3, 2, &[1, 2]);
    of.set_hard_state(HardState { commit: 7, ..of.hard_state().clone() });
    assert_eq!(member(config(1, Written), of).written_commit(), 2);
}

/// raft-rs panics when the only voter stands while entries are not persisted: it leads at once.
#[test]
fn the_only_voter_stands_when_its_log_is_durable() {
    let mut of = disk(1, 1, &[]);
    of.sync();
    let mut only = member(config(1, Durable), of);
    let mut append = Message::new(Kind::Append, 2);
    append.entries = entries(&[1]);
    only.step(envelope(2, 1, append)).unwrap();
    only.advance();
    for _ in 0..6 * ELECTION_TICKS {
        only.tick();
        only.advance();
        assert_eq!(only.role(), Role::Follower);
    }
    run(&mut only);
    for _ in 0..6 * ELECTION_TICKS {
        only.tick();
        run(&mut only);
    }
    assert_eq!(only.role(), Role::Leader);
}

/// raft-rs' only voter leads, and sends to learners, before its term is durable.
#[test]
fn the_only_voter_has_its_term_durable_before_a_learner_hears_of_it() {
    let mut of = disk(1, 1, &[]);
    let state = of.hard_state().clone();
    let mut membership = state.membership.clone();
    membership.learners.insert(2);
    of.set_hard_state(HardState { membership, ..state });
    let mut only = member(config(1, Written), of);
    while only.role() != Role::Leader {
        only.tick();
    }
    let sent = only.advance().messages;
    assert!(sent.iter().any(|envelope| envelope.to == 2 && envelope.term == 2));
    assert_eq!((only.log().durable_state().term, only.log().durable_state().vote), (2, 1));
}

/// raft-rs panics when a vote that was not asked for makes a leader whose entries are not persisted.
#[test]
fn a_vote_that_was_not_asked_for_does_not_count() {
    let mut of = member(config(1, Durable), disk(3, 2, &[]));
    let mut append = Message::new(Kind::Append, 2);
    append.entries = entries(&[2]);
    of.step(envelope(2, 1, append)).unwrap();
    of.step(envelope(2, 1, Message::new(Kind::TakeOver, 2))).unwrap();
    for _ in 0..4 * ELECTION_TICKS {
        of.tick();
        of.advance();
    }
    assert_eq!(of.role(), Role::Candidate);
    of.step(envelope(3, 1, Message::new(Kind::PreVoted, 3))).unwrap();
    of.step(envelope(3, 1, Message::new(Kind::Voted, 3))).unwrap();
    assert_ne!(of.role(), Role::Leader);
    run(&mut of);
    of.step(envelope(3, 1, Message::new(Kind::Voted, 3))).unwrap();
    assert_eq!(of.role(), Role::Leader);
}

/// A late refusal takes raft-rs' next index below what the member has (#557): the entries are sent twice.
#[test]
fn a_late_refusal_does_no_harm() {
    let mut set = leader_of_three();
    set.propose(1);
    set.deliver();
    set.isolate(3);
    set.stand(2);
    for index in [0, 1, 2] {
        let mut refuses = Message::new(Kind::Appended, 2);
        (refuses.index, refuses.reject, refuses.hint) = (index, true, 0);
        for from in [2, 3] {
            set.get(1).step(envelope(from, 1, refuses.clone())).unwrap();
        }
        set.propose(1);
        set.deliver();
    }
    set.cut.clear();
    set.tick(4 * ELECTION_TICKS);
    let logs = set.logs();
    assert!(logs[0] == logs[1] && logs[1] == logs[2], "{logs:?}");
}

/// raft-rs' members refuse their votes to candidates of lower priority though these have newer logs.
#[test]
fn priorities_do_not_keep_a_set_without_a_leader() {
    let priorities: std::collections::BTreeMap<u64, u32> = [(1, 9)].into();
    let logs: [&[u64]; 2] = [&[1, 1, 1, 1], &[1, 2]];
    let mut set = Set::new((1..=2).zip(logs).map(|(id, log)| {
        let config =
            kauri_replication::Config { priorities: priorities.clone(), ..config(id, Durable) };
        member(config, disk(3, 2, log))
    }));
    set.tick(20 * ELECTION_TICKS);
    assert_eq!(set.leader(), Some(1), "2 led, and handed over");
    assert_eq!(set.logs()[0], set.logs()[1]);
    assert_eq!(&set.logs()[0][..2], [1, 2]);
}

/// Each would tell the other without end that it has started since.
#[test]
fn two_members_that_know_old_starts_of_each_other_find_together() {
    let mut set = Set::of(Durable, 1, &[&[1], &[1]]);
    for id in [1, 2] {
        set.restart(id, config(id, Durable), false);
    }
    // What the members have sent before arrives late.
    for (from, to) in [(1, 2), (2, 1)] {
        set.get(to).step(envelope(from, to, Message::new(Kind::HeartbeatSeen, 1))).unwrap();
    }
    for _ in 0..20 * ELECTION_TICKS {
        set.get(1).tick();
        set.get(2).tick();
        let sent: Vec<_> = [1, 2].iter().flat_map(|id| run(set.get(*id))).collect();
        assert!(sent.len() < 10, "{sent:?}");
        for envelope in sent {
            // Messages of one tick; what they cause comes with the next one.
            let _ = set.get(envelope.to).step(envelope);
        }
    }
    assert!(set.leader().is_some());
}
