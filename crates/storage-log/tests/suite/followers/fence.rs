//! A member that follows accepts no units of its own, from the moment that it is told.

use super::{BASE, Member, table};
use crate::common::{self, emulator, status};
use kauri_base::{CollectionId, CommitSeq};
use kauri_conformance::inspect::Reader;
use kauri_conformance::table::{TableIndex, doc};
use kauri_storage::{Direction, StorageEngine, StorageError, WriteUnit};

const ID: CollectionId = CollectionId(10);

fn leader() -> Member {
    // A log that grows.
    let emulator = emulator();
    let engine = common::open(&emulator, common::options());
    engine.replicated_log().expect("a log").begin_frames(BASE).expect("begin");
    let member = Member { emulator, engine };
    member.lead();
    let mut unit = WriteUnit::new();
    table(&member.engine, ID).create_in(&mut unit);
    member.engine.commit(&mut unit).expect("creating");
    member
}

#[test]
fn no_unit_is_committed_after_a_member_has_begun_to_follow() {
    let member = leader();
    let mut committed = 0;
    for round in 0..60i64 {
        let before = status(&member.engine, "log.lastCommit");
        let (last, counts) = std::thread::scope(|scope| {
            let write = |thread: i64| {
                let table = table(&member.engine, ID);
                for n in 0i64.. {
                    let u = (round * 4 + thread) << 20 | n;
                    match table.try_insert(&doc(thread, u, "x")) {
                        Ok(_) => {}
                        Err(StorageError::NotPrimary) => return n,
                        Err(StorageError::OutOfDiskSpace) => panic!("it is full"),
                        Err(error) => panic!("{error}"),
                    }
                }
                0
            };
            let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || write(thread))).collect();
            while status(&member.engine, "log.lastCommit") < before + round % 40 {
                std::thread::yield_now();
            }
            member.log().follow();
            let last = status(&member.engine, "log.lastCommit");
            let counts = threads.into_iter().map(|thread| thread.join().expect("a thread"));
            (last, counts.sum::<i64>())
        });
        assert_eq!(status(&member.engine, "log.lastCommit"), last, "a unit came later");
        assert_eq!(last, before + counts);
        committed += counts;
        member.lead();
    }
    assert!(committed > 300, "{committed}");
    table(&member.engine, ID).check();
}

#[test]
fn units_without_records_need_no_role() {
    let member = leader();
    let table = table(&member.engine, ID);
    table.insert(&doc(3, 1, "x"));
    member.log().follow();
    let last = status(&member.engine, "log.lastCommit");
    let index = TableIndex::new(77, false, "k");
    let mut unit = WriteUnit::new();
    table.create_index_in(&mut unit, &index);
    let seq = member.engine.commit(&mut unit).expect("an index").seq;
    let mut unit = WriteUnit::new();
    for (id, record) in table.records() {
        table.backfill_in(&mut unit, &index, id, &record);
    }
    member.engine.commit(&mut unit).expect("its entries");
    assert_eq!((seq, status(&member.engine, "log.lastCommit")), (CommitSeq(last as u64), last));
    assert!(table.find(&index, 3).is_some());
    assert_eq!(table.try_insert(&doc(3, 2, "x")), Err(StorageError::NotPrimary));
}

/// It is of what is applied, not of what is appended.
#[test]
fn a_held_snapshot_stays_while_frames_are_applied() {
    let leader = super::copies::written(5, 30);
    let follower = Member::new(emulator());
    let frames: Vec<_> = leader.history.frames.iter().collect();
    for (index, copied) in &frames {
        follower.append(copied).expect("append");
        if **index % 3 > 0 {
            continue;
        }
        let before = follower.state();
        let mut reader = Reader::hold(&*follower.engine);
        follower.log().commit_frames(**index);
        while follower.apply().is_some() {}
        for (id, records) in &before {
            let Some(store) = follower.engine.record_store(*id) else { continue };
            let found = reader.records(&*store, Direction::Forward).expect("reading");
            let found: Vec<_> = found.into_iter().map(|(id, r)| (id, (r.version, r.doc))).collect();
            let expected: Vec<_> = records.clone().into_iter().collect();
            assert!(found == expected, "the snapshot before frame {index} has changed");
        }
    }
}
