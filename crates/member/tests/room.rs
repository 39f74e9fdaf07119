//! A member whose disk is full: what it tells of itself, and that another one leads.

use kauri_base::clock::SystemClock;
use kauri_base::{CollectionId, OpTime, RecordId, Timestamp};
use kauri_bson::{Value, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_member::view::Place;
use kauri_member::{Member, Progress, Request, SetCommitter, Statements};
use kauri_storage::{
    Committer, LogPosition, NumberedWrite, OpKind, StorageEngine, StorageError, WriteUnit,
};
use kauri_storage_log::{Options, PmLog};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;

const DOCS: CollectionId = CollectionId(5);
const SEGMENT: u32 = 1 << 20;

/// An insert; of a session if there is a number.
fn insert(number: Option<i64>) -> WriteUnit<'static> {
    let mut unit = WriteUnit::new();
    let text = Value::Binary { subtype: 0, bytes: vec![7; 100_000].into() };
    unit.insert(DOCS, doc! { "text" => text }.into_vec());
    unit.numbered = number.map(|number| {
        let statements = vec![(0, Vec::new())];
        Box::new(NumberedWrite { session: [1; 16], number, statements })
    });
    unit
}

#[test]
fn a_numbered_write_without_room_is_tried_again_while_the_leadership_goes() {
    let bytes_max = 8 * u64::from(SEGMENT);
    let options =
        Options { segment_bytes: SEGMENT, read_threads: 0, bytes_max, ..Options::default() };
    let disk = Emulator::new(EmulatorConfig::persistent_memory());
    let engine = Arc::new(PmLog::open(Arc::new(disk), options).unwrap());
    let mut unit = WriteUnit::new();
    unit.push(DOCS, RecordId(0), OpKind::CreateStore);
    engine.commit(&mut unit).unwrap();
    let log = engine.replicated_log().unwrap();
    log.begin_frames(LogPosition { term: 1, index: 1 }).unwrap();
    log.lead().unwrap();
    let (told, goes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (told_, goes_) = (told.clone(), goes.clone());
    let clock = Arc::new(SystemClock::new());
    let committer = SetCommitter::new(engine.clone(), Arc::<Statements>::default(), clock)
        .handing_over(move |_| {
            told_.fetch_add(1, Ordering::Relaxed);
            goes_.load(Ordering::Relaxed)
        });
    let commit = |number| committer.commit(&mut insert(number)).map(drop);
    let refused = (0..200).find_map(|_| commit(None).err());
    assert_eq!(refused, Some(StorageError::OutOfDiskSpace));
    assert_eq!(commit(Some(1)), Err(StorageError::WriteConflict));
    goes.store(false, Ordering::Relaxed);
    assert_eq!(commit(Some(1)), Err(StorageError::OutOfDiskSpace));
    assert_eq!(told.load(Ordering::Relaxed), 3);
}

#[test]
fn the_driver_is_asked_once_in_a_while() {
    let member = Member::new("rs0");
    let requests = || {
        let arrived = member.take_arrived(Waker::noop(), false).map(|arrived| arrived.requests);
        arrived.into_iter().flatten().map(|(request, _)| request).collect::<Vec<_>>()
    };
    // Under way, then given up, then tried again.
    for (now_ms, is_under_way, asks) in
        [(0, true, true), (1_999, true, false), (2_001, false, false), (10_001, true, true)]
    {
        assert_eq!(member.lacks_room(now_ms), is_under_way, "{now_ms}");
        assert_eq!(requests(), vec![Request::HandOver; usize::from(asks)], "{now_ms}");
    }
    // No other member can lead: the write fails at once.
    member.cannot_hand_over();
    assert!(!member.lacks_room(10_002));
    assert_eq!(requests(), []);
}

#[test]
fn a_failure_is_told_until_more_is_durable() {
    let member = Member::new("rs0");
    let durable_at = |increment| {
        let timestamp = Timestamp { seconds: 5, increment };
        let durable = Place { optime: OpTime { term: 1, timestamp }, wall_ms: 0 };
        member.set_progress(Progress { durable, ..Progress::default() });
    };
    assert_eq!(member.failure(), None);
    durable_at(1);
    member.note_failure("no space");
    durable_at(1);
    assert_eq!((member.failure().as_deref(), member.failures()), (Some("no space"), 1));
    durable_at(2);
    assert_eq!((member.failure(), member.failures()), (None, 1));
}
