//! Statements of numbered writes and frames, with several threads that commit.

use kauri_base::clock::SystemClock;
use kauri_base::{CollectionId, RecordId};
use kauri_bson::doc;
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_member::statements::encoding::Executed;
use kauri_member::{SetCommitter, Statements};
use kauri_storage::{
    Committer, LogPosition, NumberedWrite, OpKind, StorageEngine, StorageError, WriteUnit,
};
use kauri_storage_log::{Options, PmLog};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const DOCS: CollectionId = CollectionId(5);

struct Leader {
    engine: Arc<PmLog>,
    statements: Arc<Statements>,
    committer: SetCommitter,
}

fn leader() -> Leader {
    leader_within(0)
}

/// With a log of so many bytes at most; 0: without a limit.
fn leader_within(bytes_max: u64) -> Leader {
    let options =
        Options { segment_bytes: 1 << 20, read_threads: 0, bytes_max, ..Options::default() };
    let disk = Emulator::new(EmulatorConfig::persistent_memory());
    let engine = Arc::new(PmLog::open(Arc::new(disk), options).unwrap());
    let mut unit = WriteUnit::new();
    unit.push(DOCS, RecordId(0), OpKind::CreateStore);
    engine.commit(&mut unit).unwrap();
    let log = engine.replicated_log().unwrap();
    log.begin_frames(LogPosition { term: 1, index: 1 }).unwrap();
    log.lead().unwrap();
    let statements = Arc::<Statements>::default();
    let clock = Arc::new(SystemClock::new());
    let committer = SetCommitter::new(engine.clone(), statements.clone(), clock);
    Leader { engine, statements, committer }
}

fn unit(session: u8, number: i64, result: Vec<u8>) -> WriteUnit<'static> {
    let mut unit = WriteUnit::new();
    unit.insert(DOCS, doc! { "_id" => number }.into_vec());
    let statements = vec![(0, result)];
    let write = NumberedWrite { session: [session; 16], number, statements };
    unit.numbered = Some(Box::new(write));
    unit
}

#[test]
fn a_frame_has_the_statements_of_its_units_and_no_others() {
    const THREADS: u8 = 3;
    const WRITES: i64 = 3_000;
    let leader = leader();
    let log = leader.engine.replicated_log().unwrap();
    let (running, turns) = (AtomicUsize::new(usize::from(THREADS)), AtomicUsize::new(0));
    let (mut all, mut frames, mut wrong) = (BTreeSet::new(), 0, Vec::new());
    std::thread::scope(|scope| {
        for session in 0..THREADS {
            let (leader, running, turns) = (&leader, &running, &turns);
            scope.spawn(move || {
                for number in 0..WRITES {
                    let commit = || leader.committer.commit(&mut unit(session, number, Vec::new()));
                    // A frame now and then, however the threads run.
                    let before = turns.load(Ordering::Acquire);
                    while number % 300 == 299 && turns.load(Ordering::Acquire) == before {
                        std::thread::yield_now();
                    }
                    while let Err(error) = commit() {
                        assert_eq!(error, StorageError::WriteConflict, "a frame has no room");
                    }
                }
                running.fetch_sub(1, Ordering::AcqRel);
            });
        }
        let mut index = 2;
        let mut is_last = false;
        while !is_last {
            is_last = running.load(Ordering::Acquire) == 0;
            let position = LogPosition { term: 1, index };
            let mut data = Vec::new();
            let closed = leader.statements.close(|noted, _| {
                data = noted.to_vec();
                log.close_frame(position, 1, noted)
            });
            let frame = closed.unwrap().0;
            let executed = Executed::decode(&data).unwrap();
            let units = frame.seq.0 - frame.first.0;
            // Told of at the end, since the threads wait for frames.
            if executed.len() as u64 != units {
                wrong.push((index, executed.len(), units));
            }
            all.extend(executed.iter().map(|executed| (executed.session, executed.number)));
            frames += u64::from(units > 0);
            turns.fetch_add(1, Ordering::AcqRel);
            log.commit_frames(index);
            log.purge_frames(index).unwrap();
            index += 1;
        }
    });
    assert_eq!(wrong, [], "frames with statements and units");
    assert_eq!(all.len() as i64, i64::from(THREADS) * WRITES);
    assert!(frames > 5, "{frames} frames");
}

#[test]
fn a_unit_waits_for_a_frame_with_room() {
    let leader = leader();
    let log = leader.engine.replicated_log().unwrap();
    let result = vec![7; log.frame_data_bytes_max() / 3];
    let commit = |number| leader.committer.commit(&mut unit(1, number, result.clone())).map(drop);
    commit(1).unwrap();
    assert_eq!(commit(2).unwrap_err(), StorageError::WriteConflict);
    let position = LogPosition { term: 1, index: 2 };
    leader.statements.close(|noted, _| log.close_frame(position, 1, noted)).unwrap();
    commit(2).unwrap();
    assert_eq!(commit(2).unwrap_err(), StorageError::Executed);
    assert_eq!(commit(1).unwrap_err(), StorageError::OldNumber(2));
    let failed = leader.statements.close(|_, _| Err::<(), _>(()));
    assert_eq!(failed, Err(()));
    leader.statements.close(|noted, _| (!noted.is_empty()).then_some(()).ok_or(())).unwrap();
}

/// What a unit has replaced in a full log is freed only with the next frame.
#[test]
fn a_unit_that_waits_for_room_does_not_keep_frames_from_being_closed() {
    const WRITES: i64 = 400;
    /// Units of a frame, at most.
    const UNITS: u64 = 15;
    let leader = leader_within(8 << 20);
    let log = leader.engine.replicated_log().unwrap();
    let closed = AtomicU64::new(leader.engine.visible().0);
    let units = || leader.engine.visible().0 - closed.load(Ordering::Acquire);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut first = WriteUnit::new();
            first.insert(DOCS, vec![7; 100_000]);
            let mut seen = leader.committer.commit(&mut first)?.seq;
            for _ in 0..WRITES {
                while units() >= UNITS {
                    std::thread::yield_now();
                }
                let mut unit = WriteUnit::new();
                unit.update(DOCS, RecordId(1), seen, vec![7; 100_000]);
                seen = leader.committer.commit(&mut unit)?.seq;
            }
            Ok::<_, StorageError>(())
        });
        let mut index = 2;
        let mut turns = 0;
        while !writer.is_finished() {
            turns += 1;
            // When the writer does not get on it waits for room.
            if units() < UNITS && turns < 10_000 {
                std::thread::yield_now();
                continue;
            }
            turns = 0;
            let position = LogPosition { term: 1, index };
            let close = |noted: &[u8], _: &[u8]| log.close_frame(position, 1, noted);
            let frame = leader.statements.close(close).unwrap().0;
            closed.store(frame.seq.0, Ordering::Release);
            log.commit_frames(index);
            log.purge_frames(index).unwrap();
            index += 1;
        }
        assert_eq!(writer.join().unwrap(), Ok(()));
    });
}

#[test]
fn units_at_the_same_time_do_not_fill_a_frame_beyond_its_room() {
    const THREADS: u8 = 4;
    const WRITES: i64 = 60;
    let leader = leader();
    let log = leader.engine.replicated_log().unwrap();
    let most = log.frame_data_bytes_max() / 2;
    let running = AtomicUsize::new(usize::from(THREADS));
    let mut largest = 0;
    std::thread::scope(|scope| {
        for session in 0..THREADS {
            let (leader, running) = (&leader, &running);
            scope.spawn(move || {
                for number in 0..WRITES {
                    let result = vec![7; most / 3 - 100];
                    let mut unit = unit(session, number, result);
                    // A commit that takes a while.
                    unit.insert(DOCS, vec![7; 200_000]);
                    let commit = |unit: &mut _| leader.committer.commit(unit).map(drop);
                    while commit(&mut unit) == Err(StorageError::WriteConflict) {
                        std::thread::yield_now();
                    }
                }
                running.fetch_sub(1, Ordering::AcqRel);
            });
        }
        let mut index = 2;
        let mut is_last = false;
        while !is_last {
            is_last = running.load(Ordering::Acquire) == 0;
            let position = LogPosition { term: 1, index };
            let mut bytes = 0;
            let closed = leader.statements.close(|noted, _| {
                bytes = noted.len();
                log.close_frame(position, 1, noted)
            });
            closed.unwrap();
            largest = bytes.max(largest);
            log.commit_frames(index);
            log.purge_frames(index).unwrap();
            index += 1;
        }
    });
    assert!(largest > 0 && largest <= most, "{largest} of {most} bytes");
}
