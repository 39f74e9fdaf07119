//! What a follower appends, refuses and commits, and what a leader commits.

use crate::set::*;
use kauri_replication::codec::{Kind, Message};
use kauri_replication::consensus::Acknowledge::{Durable, Written};
use kauri_replication::{Log, Role};

/// What the leader of term 4 sends: the entry before, the new entries' terms, its commit point.
type Sent = ((u64, u64), &'static [u64], u64);

/// The answer, the log and the commit point after it.
fn appended(log: &[u64], commit: u64, sent: Sent) -> (Result<u64, (u64, u64)>, Vec<u64>, u64) {
    let mut of = disk(3, 3, log);
    let state = kauri_replication::HardState { commit, ..of.hard_state().clone() };
    of.set_hard_state(state);
    let mut follower = member(config(2, Durable), of);
    let ((index, log_term), new, leader_commit) = sent;
    let mut append = Message::new(Kind::Append, 4);
    (append.index, append.log_term, append.commit) = (index, log_term, leader_commit);
    append.entries = entries(new);
    append.entries.iter_mut().for_each(|entry| entry.index += index);
    follower.step(envelope(1, 2, append)).unwrap();
    let answers = of_kind(&run(&mut follower), Kind::Appended);
    assert_eq!(answers.len(), 1);
    let answer = match answers[0].reject {
        true => Err((answers[0].hint, answers[0].log_term)),
        false => Ok(answers[0].index),
    };
    (answer, terms(follower.log()), follower.written_commit())
}

#[test]
fn a_follower_appends_what_follows_its_log_and_replaces_what_differs() {
    let cases: [(&[u64], u64, Sent, Result<u64, (u64, u64)>, &[u64], u64); 14] = [
        // Log, commit point, message; answer, log, commit point.
        (&[], 0, ((0, 0), &[], 0), Ok(0), &[], 0),
        (&[], 0, ((0, 0), &[1, 4], 1), Ok(2), &[1, 4], 1),
        (&[1, 2, 3], 1, ((3, 3), &[], 3), Ok(3), &[1, 2, 3], 3),
        (&[1, 2, 3], 1, ((3, 3), &[4], 3), Ok(4), &[1, 2, 3, 4], 3),
        // The commit point goes no further than what is known to match.
        (&[1, 2, 3], 1, ((2, 2), &[], 3), Ok(2), &[1, 2, 3], 2),
        (&[1, 2, 3], 1, ((3, 3), &[4], 9), Ok(4), &[1, 2, 3, 4], 4),
        // The commit point stays.
        (&[1, 2, 3], 2, ((3, 3), &[], 1), Ok(3), &[1, 2, 3], 2),
        // Entries that are there already shorten nothing.
        (&[1, 2, 3], 1, ((1, 1), &[2], 1), Ok(2), &[1, 2, 3], 1),
        (&[1, 2, 3], 1, ((1, 1), &[2, 3, 4], 1), Ok(4), &[1, 2, 3, 4], 1),
        // Others replace the rest.
        (&[1, 2, 3], 1, ((1, 1), &[4], 1), Ok(2), &[1, 4], 1),
        (&[1, 2, 3, 3], 1, ((2, 2), &[4, 4, 4], 3), Ok(5), &[1, 2, 4, 4, 4], 3),
        // The entry before is missing, or another: the answer says where the logs may match.
        (&[1, 2, 3], 1, ((4, 4), &[4], 1), Err((3, 3)), &[1, 2, 3], 1),
        (&[1, 2, 3], 1, ((3, 2), &[4], 1), Err((2, 2)), &[1, 2, 3], 1),
        (&[1, 3, 3, 3, 3], 1, ((5, 2), &[4], 1), Err((1, 1)), &[1, 3, 3, 3, 3], 1),
    ];
    for (log, commit, sent, answer, after, point) in cases {
        let got = appended(log, commit, sent);
        assert_eq!(got, (answer, after.to_vec(), point), "{log:?}, committed {commit}: {sent:?}");
    }
}

#[test]
fn a_follower_whose_log_differs_gets_the_leaders() {
    // The seven logs of figure 7 of the Raft paper, beside the leader of term 8.
    let leader: &[u64] = &[1, 1, 1, 4, 4, 5, 5, 6, 6, 6];
    let followers: [&[u64]; 6] = [
        &[1, 1, 1, 4, 4, 5, 5, 6, 6],
        &[1, 1, 1, 4],
        &[1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
        &[1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
        &[1, 1, 1, 4, 4, 4, 4],
        &[1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
    ];
    for acknowledge in [Written, Durable] {
        for follower in followers {
            let mut set = Set::of(acknowledge, 7, &[leader, follower, &[]]);
            set.stand(1);
            assert_eq!(set.leader(), Some(1), "the empty log votes for it");
            set.propose(1);
            set.deliver();
            let logs = set.logs();
            assert_eq!(logs[0], [leader, &[8, 8]].concat());
            assert!(logs[1] == logs[0] && logs[2] == logs[0], "{follower:?}: {logs:?}");
        }
    }
}

#[test]
fn a_leader_commits_what_a_majority_has_of_its_own_term() {
    // Log of the leader of term 2 before its election, where the others answer from; committed.
    let cases: [(&[u64], &[u64], u64); 7] = [
        (&[], &[1, 0], 1),
        (&[], &[0, 0], 0),
        (&[1], &[1, 0], 0),
        (&[1], &[2, 0], 2),
        (&[1, 1], &[2, 2, 0, 0], 0),
        (&[1, 1], &[3, 2, 0, 0], 0),
        (&[1, 1], &[3, 3, 0, 0], 3),
    ];
    for (log, answers, committed) in cases {
        let voters = answers.len() as u64 + 1;
        let mut leader = member(config(1, Durable), disk(voters, 1, log));
        while leader.role() == Role::Follower {
            leader.tick();
        }
        for kind in [Kind::PreVoted, Kind::Voted] {
            run(&mut leader);
            for from in 2..=voters {
                // An answer after the last one that counts is of no interest.
                let _ = leader.step(envelope(from, 1, Message::new(kind, 2)));
            }
        }
        run(&mut leader);
        assert_eq!((leader.role(), leader.term()), (Role::Leader, 2));
        for (&index, from) in answers.iter().zip(2..) {
            let mut answer = Message::new(Kind::Appended, 2);
            answer.index = index;
            leader.step(envelope(from, 1, answer)).unwrap();
        }
        run(&mut leader);
        assert_eq!(leader.written_commit(), committed, "{log:?} {answers:?}");
    }
}

#[test]
fn followers_apply_what_the_leader_has_committed() {
    for acknowledge in [Written, Durable] {
        let mut set = Set::of(acknowledge, 1, &[&[], &[], &[], &[], &[]]);
        set.stand(1);
        set.isolate(4);
        set.isolate(5);
        let index = set.propose(1);
        set.deliver();
        set.tick(4);
        assert_eq!(set.get(1).durable_commit(), index);
        assert_eq!((set.get(2).written_commit(), set.get(4).written_commit()), (index, 1));
        set.isolate(3);
        let index = set.propose(1);
        set.deliver();
        assert_eq!(set.get(1).written_commit(), index - 1, "two of five are no majority");
        set.cut.clear();
        set.tick(6);
        let points: Vec<u64> = set.members.values().map(|of| of.written_commit()).collect();
        assert_eq!(points, [index; 5]);
    }
}
