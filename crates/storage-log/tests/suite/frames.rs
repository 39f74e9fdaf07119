//! Frames of the replicated log: each has the units that were committed since the previous one, a restart and a crash
//! find them again, and the cleaner leaves them alone until they are purged.

mod ended;

use crate::common::{self, Fixture, bounded, clean, emulator, kilobyte, open, options, status};
use kauri_base::clock::SeededRandom;
use kauri_base::{CommitSeq, RandomSource, RecordId};
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_storage::{
    AppliedChange, AppliedUnits, Frame, FrameRange, FrameRecord, LogPosition, ReplicatedLog,
    StorageEngine, StorageError, WriteUnit,
};
use kauri_storage_log::format::record::Kind;
use kauri_storage_log::{PmLog, verify};
use std::collections::BTreeMap;
use std::sync::Arc;

fn log(engine: &PmLog) -> &dyn ReplicatedLog {
    engine.replicated_log().expect("a replicated log")
}

/// The log begins, and the member leads.
fn begin(engine: &PmLog, base: LogPosition) {
    log(engine).begin_frames(base).expect("begin");
    log(engine).lead().expect("leading");
}

/// After a start: applies all there is.
fn lead(engine: &PmLog) {
    log(engine).commit_frames(log(engine).frames().last.index);
    while log(engine).apply_frame(&mut Ignored).expect("applying").is_some() {}
    log(engine).lead().expect("leading");
}

struct Ignored;

impl AppliedUnits for Ignored {
    fn applied(&mut self, _: CommitSeq, _: &[AppliedChange]) -> Result<(), StorageError> {
        Ok(())
    }
}

/// What is purged is committed.
fn purge(engine: &PmLog, index: u64) {
    log(engine).commit_frames(index);
    log(engine).purge_frames(index).expect("purge");
}

fn at(term: u64, index: u64) -> LogPosition {
    LogPosition { term, index }
}

fn close(engine: &PmLog, position: LogPosition) -> Frame {
    log(engine).close_frame(position, 7 * position.index, b"data").expect("closing a frame").0
}

fn read(engine: &PmLog, index: u64) -> (Frame, Vec<FrameRecord>) {
    let (frame, records) = log(engine).read_frame(index).expect("reading").expect("a frame");
    assert_eq!(log(engine).read_frame_alone(index), Ok(Some(frame.clone())));
    (frame, records)
}

fn kinds(records: &[FrameRecord]) -> Vec<u8> {
    records.iter().map(|record| record.kind).collect()
}

const PUT: u8 = Kind::Put as u8;
const TOMBSTONE: u8 = Kind::Tombstone as u8;
const COMMIT: u8 = Kind::Commit as u8;

#[test]
fn a_frame_has_what_was_committed_since_the_previous_one() {
    let fixture = Fixture::new(options());
    let Fixture { engine, table, .. } = &fixture;
    table.insert(&doc(0, 0, "before the log"));
    begin(engine, at(3, 10));
    let first = table.insert(&doc(1, 1, "a"));
    table.update(first, &doc(2, 1, "b"));
    let frame = close(engine, at(3, 11));
    table.delete(first);
    let mut unit = WriteUnit::new();
    table.insert_in(&mut unit, &doc(3, 3, "c"));
    table.insert_in(&mut unit, &doc(4, 4, "d"));
    table.commit(&mut unit);
    let second = close(engine, at(5, 12));
    let empty = close(engine, at(5, 13));

    let (found, records) = read(engine, 11);
    assert_eq!(found, frame);
    assert_eq!((found.position, found.time, &found.data[..]), (at(3, 11), 77, &b"data"[..]));
    assert_eq!(kinds(&records), [PUT, PUT]);
    assert_eq!(records[1].payload, doc(2, 1, "b"));
    assert!(records.iter().all(|record| record.alone && record.record == first.0));
    assert_eq!((records[0].seq, records[1].seq.0 + 1), (found.first, found.seq.0));
    let (found, records) = read(engine, 12);
    assert_eq!(found, second);
    assert_eq!(kinds(&records), [TOMBSTONE, PUT, PUT, COMMIT]);
    assert_eq!(found.first.0, frame.seq.0 + 1);
    assert_eq!(read(engine, 13), (empty.clone(), vec![]));
    assert_eq!((empty.first, empty.records, empty.bytes), (empty.seq, 0, 0));
    assert_eq!(log(engine).frames(), FrameRange { purged: at(3, 10), last: at(5, 13) });
    let terms = [9, 10, 11, 12, 13, 14].map(|index| log(engine).term_of(index));
    assert_eq!(terms, [None, Some(3), Some(3), Some(5), Some(5), None]);
    for index in [10, 14] {
        assert_eq!(log(engine).read_frame(index), Ok(None));
        assert_eq!(log(engine).read_frame_alone(index), Ok(None));
    }
}

#[test]
fn positions_are_consecutive_and_terms_never_fall() {
    let engine = open(&emulator(), options());
    let refused = |position| {
        let result = log(&engine).close_frame(position, 0, &[]).map(drop);
        assert_eq!(result, Err(StorageError::OutOfOrder), "{position:?}");
    };
    refused(at(1, 1));
    begin(&engine, at(2, 4));
    assert_eq!(log(&engine).begin_frames(at(2, 4)), Err(StorageError::OutOfOrder));
    [at(2, 4), at(2, 6), at(1, 5), at(1 << 32, 5)].into_iter().for_each(refused);
    close(&engine, at(2, 5));
    [at(2, 5), at(1, 6), at(2, 7)].into_iter().for_each(refused);
    close(&engine, at(4, 6));
    let large = vec![0; common::SEGMENT_BYTES as usize];
    let result = log(&engine).close_frame(at(4, 7), 0, &large).map(drop);
    assert!(matches!(result, Err(StorageError::DocumentTooLarge { .. })), "{result:?}");
    assert_eq!(log(&engine).frames().last, at(4, 6));
}

#[test]
fn a_restart_finds_frames_and_forgets_what_is_in_none() {
    let mut fixture = Fixture::new(options());
    fixture.table.insert(&doc(0, 0, "before the log"));
    begin(&fixture.engine, at(1, 1));
    let id = fixture.table.insert(&doc(1, 1, "a"));
    close(&fixture.engine, at(1, 2));
    for clean in [false, true, false] {
        let first = read(&fixture.engine, log(&fixture.engine).frames().last.index);
        fixture.engine.flush();
        if clean {
            fixture.engine.close().expect("close");
        }
        fixture = fixture.reopen();
        lead(&fixture.engine);
        fixture.table.update(id, &doc(2, 1, "b"));
        let last = log(&fixture.engine).frames().last;
        assert_eq!(read(&fixture.engine, last.index), first);
        let frame = close(&fixture.engine, at(last.term, last.index + 1));
        // What was committed before the restart is in none, and gone.
        let (found, records) = read(&fixture.engine, last.index + 1);
        assert_eq!((found, kinds(&records)), (frame, vec![PUT]));
        assert_eq!(fixture.table.record(id).doc, doc(2, 1, "b"));
        fixture.table.update(id, &doc(3, 1, "c"));
    }
    assert_eq!(log(&fixture.engine).frames(), FrameRange { purged: at(1, 1), last: at(1, 5) });
    fixture.engine.close().expect("close");
    let report = verify(&fixture.emulator, &mut |_, _| {}).expect("the check");
    assert!(report.damage.is_empty() && report.documents > 0, "{:?}", report.damage);
}

#[test]
fn the_cleaner_leaves_frames_until_they_are_purged() {
    let mut fixture = Fixture::new(bounded(40));
    let ids: Vec<RecordId> =
        (0..100).map(|u| fixture.table.insert(&doc(0, u, &kilobyte(u as u64)))).collect();
    begin(&fixture.engine, at(1, 1));
    let mut frames = BTreeMap::new();
    for round in 0..8 {
        for (u, id) in ids.iter().enumerate() {
            fixture.table.update(*id, &doc(round, u as i64, &kilobyte(round as u64)));
        }
        let index = log(&fixture.engine).frames().last.index + 1;
        close(&fixture.engine, at(1, index));
        frames.insert(index, read(&fixture.engine, index));
        fixture.engine.sync().expect("sync");
        log(&fixture.engine).commit_frames(index);
        clean(&fixture.engine);
    }
    let free = status(&fixture.engine, "segmentsFree");
    for _ in 0..2 {
        for (index, frame) in &frames {
            assert_eq!(&read(&fixture.engine, *index), frame);
        }
        fixture.engine.flush();
        fixture = fixture.reopen();
        lead(&fixture.engine);
        clean(&fixture.engine);
    }
    purge(&fixture.engine, 7);
    clean(&fixture.engine);
    let free_now = status(&fixture.engine, "segmentsFree");
    assert!(free_now > free + 5, "{free} segments were free, {free_now} are");
    assert_eq!(log(&fixture.engine).frames(), FrameRange { purged: at(1, 7), last: at(1, 9) });
    assert_eq!((log(&fixture.engine).term_of(7), log(&fixture.engine).term_of(6)), (Some(1), None));
    assert_eq!(log(&fixture.engine).read_frame(7), Ok(None));
    fixture.engine.sync().expect("sync");
    let fixture = fixture.reopen();
    lead(&fixture.engine);
    for index in [8, 9] {
        assert_eq!(Some(&read(&fixture.engine, index)), frames.get(&index));
    }
    assert_eq!(fixture.contents().len(), ids.len());
}

/// A run of units, frames, purges and cleanings, and what each frame had.
struct Run {
    emulator: Emulator,
    engine: Arc<PmLog>,
    table: Table,
    random: SeededRandom,
    documents: BTreeMap<RecordId, Vec<u8>>,
    /// The records of each unit by its commit; those of definitions are unknown.
    units: BTreeMap<u64, Vec<(u8, u64, Vec<u8>)>>,
    frames: BTreeMap<u64, (Frame, Vec<FrameRecord>)>,
    /// After how many events which index was durable, and which was purged.
    durable: Vec<(usize, u64)>,
    purged: u64,
}

fn described(engine: &Arc<PmLog>) -> Table {
    let engine: Arc<dyn StorageEngine> = engine.clone();
    Table::new(&engine, 10, &[TableIndex::new(20, false, "k")])
}

impl Run {
    fn start(seed: u64, config: EmulatorConfig) -> Run {
        let emulator = Emulator::new(config);
        let engine = open(&emulator, bounded(40));
        let table = described(&engine);
        let create = || {
            let mut unit = WriteUnit::new();
            table.create_in(&mut unit);
            table.commit(&mut unit);
        };
        if seed.is_multiple_of(2) {
            create();
        }
        begin(&engine, at(1, 100));
        if !seed.is_multiple_of(2) {
            create();
        }
        Run {
            durable: vec![(emulator.events(), 100)],
            purged: 100,
            random: SeededRandom::new(seed),
            documents: BTreeMap::new(),
            units: BTreeMap::new(),
            frames: BTreeMap::new(),
            emulator,
            engine,
            table,
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n.max(1)
    }

    fn write(&mut self) {
        let mut unit = WriteUnit::new();
        let mut records = Vec::new();
        let mut taken = Vec::new();
        for _ in 0..=self.below(3) {
            let len =
                if self.below(10) == 0 { 9_000 + self.below(12_000) } else { self.below(700) };
            let new = doc(self.below(9) as i64, 1, &"x".repeat(len as usize));
            let count = self.documents.len() as u64;
            let known = self.documents.keys().nth(self.below(2 * count + 1) as usize).copied();
            match known.filter(|id| !taken.contains(id)) {
                None => {
                    self.table.insert_in(&mut unit, &new);
                    records.push((PUT, 0, new));
                }
                Some(id) => {
                    taken.push(id);
                    let old = self.table.record(id);
                    if self.below(3) == 0 || count > 40 {
                        self.table.delete_in(&mut unit, id, &old);
                        records.push((TOMBSTONE, id.0, Vec::new()));
                    } else {
                        self.table.update_in(&mut unit, id, &old, &new);
                        records.push((PUT, id.0, new));
                    }
                }
            }
        }
        let seq = match self.engine.commit(&mut unit) {
            Ok(ticket) => ticket.seq.0,
            Err(StorageError::OutOfDiskSpace) => return self.purge(u64::MAX),
            Err(error) => panic!("{error:?}"),
        };
        for (record, op) in records.iter_mut().zip(&unit.ops) {
            record.1 = op.record.0;
            match record.0 {
                PUT => drop(self.documents.insert(op.record, record.2.clone())),
                _ => drop(self.documents.remove(&op.record)),
            }
        }
        self.units.insert(seq, records);
    }

    fn close_frame(&mut self) {
        let last = log(&self.engine).frames().last;
        let position = at(last.term + self.below(2), last.index + 1);
        close(&self.engine, position);
        let (frame, records) = read(&self.engine, position.index);
        self.check_records(&frame, &records);
        self.frames.insert(position.index, (frame, records));
    }

    /// A frame has its units' records, in their order.
    fn check_records(&self, frame: &Frame, records: &[FrameRecord]) {
        let seqs = frame.first.0..frame.seq.0;
        assert_eq!(frame.records as usize, records.len());
        for seq in seqs.clone() {
            let found: Vec<&FrameRecord> =
                records.iter().filter(|record| record.seq.0 == seq).collect();
            let Some(expected) = self.units.get(&seq) else {
                assert!(!found.is_empty(), "unit {seq} has no records");
                continue;
            };
            let (documents, commit) = found.split_at(expected.len());
            assert_eq!(commit.len(), usize::from(expected.len() > 1), "unit {seq}");
            assert!(commit.iter().all(|record| record.kind == COMMIT));
            for (record, (kind, id, payload)) in documents.iter().zip(expected) {
                assert_eq!((record.kind, record.record, record.collection), (*kind, *id, 10));
                assert_eq!(&record.payload, payload);
            }
        }
        assert!(records.is_sorted_by_key(|record| record.seq));
        assert!(records.iter().all(|record| seqs.contains(&record.seq.0)));
    }

    fn purge(&mut self, most: u64) {
        let range = log(&self.engine).frames();
        let index = range.last.index.min(range.purged.index.saturating_add(most));
        purge(&self.engine, index);
        self.purged = index;
        if most == u64::MAX || self.below(2) == 0 {
            self.engine.sync().expect("sync");
            // Segments may be emptied and wait for commits.
            while self.engine.clean_once().expect("cleaning") {}
        }
    }

    fn step(&mut self) {
        match self.below(20) {
            0..12 => self.write(),
            12..16 => self.close_frame(),
            16 => {
                self.engine.sync().expect("sync");
                let last = log(&self.engine).frames().last.index;
                self.durable.push((self.emulator.events(), last));
            }
            17 => drop(self.engine.clean_once().expect("cleaning")),
            18 => self.engine.flush(),
            _ if self.frames.len() > 6 => {
                let most = self.below(4);
                self.purge(most);
            }
            _ => self.engine.flush_round().expect("a round"),
        }
    }

    /// What opens after a crash at this event has a prefix of the frames, and goes on.
    fn check(&self, image: &Emulator, events: usize) {
        let engine = open(image, bounded(40));
        let range = log(&engine).frames();
        let promised = self.durable.iter().filter(|(at, _)| *at <= events).map(|(_, index)| *index);
        let promised = promised.max();
        if promised.is_none() && range == FrameRange::default() {
            return;
        }
        assert!(range.last.index >= promised.unwrap_or(0), "{range:?} after {promised:?}");
        assert!(range.purged.index <= self.purged);
        // What is purged had happened.
        if let Some((frame, _)) = self.frames.get(&range.purged.index) {
            assert!(status(&engine, "log.lastCommit") as u64 >= frame.seq.0, "{range:?}");
        }
        for index in range.purged.index + 1..=range.last.index {
            let found = read(&engine, index);
            assert_eq!(Some(&found), self.frames.get(&index), "frame {index} of {range:?}");
        }
        let next = at(range.last.term, range.last.index + 1);
        let frame = close(&engine, next);
        // Units without a frame are gone.
        assert_eq!(read(&engine, next.index), (frame.clone(), vec![]));
        if let Some((last, _)) = self.frames.get(&range.last.index) {
            assert_eq!(frame.first.0, last.seq.0 + 1);
        }
    }
}

/// Units before it may be lost where what tells of the beginning is not.
#[test]
fn a_crash_while_the_log_begins_leaves_it_begun_or_not() {
    let (mut begun, mut lost) = (0, 0);
    for seed in 0..40 {
        let emulator = emulator();
        let engine = open(&emulator, options());
        let table = described(&engine);
        let mut unit = WriteUnit::new();
        table.create_in(&mut unit);
        table.commit(&mut unit);
        engine.sync().expect("sync");
        for u in 0..1 + seed as i64 % 7 {
            table.insert(&doc(u, u, &kilobyte(seed)));
        }
        let before = emulator.events();
        log(&engine).begin_frames(at(1, 5)).expect("begin");
        let commits = status(&engine, "log.lastCommit");
        for events in before..=emulator.events() {
            let image = emulator.crash_seeded(events, seed);
            let engine = open(&image, options());
            lost += i64::from(status(&engine, "log.lastCommit") < commits);
            let table = described(&engine);
            table.attach();
            match log(&engine).frames().last.index {
                0 => begin(&engine, at(1, 5)),
                _ => {
                    begun += 1;
                    lead(&engine);
                }
            }
            let id = table.insert(&doc(1, 1, "behind"));
            close(&engine, at(1, 6));
            let (_, records) = read(&engine, 6);
            assert_eq!((kinds(&records), records[0].record), (vec![PUT], id.0));
        }
    }
    assert!(begun > 40 && lost > 20, "{begun} had begun, {lost} had lost units");
}

/// The header of a segment tells of the purge, and may survive what was stored with it.
#[test]
fn a_purged_frame_is_durable() {
    let mut purged = 0;
    for seed in 0..30 {
        let emulator = emulator();
        let engine = open(&emulator, options());
        let table = described(&engine);
        begin(&engine, at(1, 5));
        let mut unit = WriteUnit::new();
        table.create_in(&mut unit);
        table.commit(&mut unit);
        for u in 0..20 + seed as i64 {
            table.insert(&doc(u, u, &kilobyte(seed)));
        }
        let frame = close(&engine, at(1, 6));
        purge(&engine, 6);
        let before = emulator.events();
        for u in 0..60 {
            table.insert(&doc(u, u, &kilobyte(seed)));
        }
        engine.flush();
        for events in before..=emulator.events() {
            let engine = open(&emulator.crash_seeded(events, seed), options());
            let range = log(&engine).frames();
            if range.purged.index == 6 {
                purged += 1;
                let last = status(&engine, "log.lastCommit") as u64;
                assert!(last >= frame.seq.0, "{last} of {frame:?}");
            }
        }
    }
    assert!(purged > 20, "{purged} purges were found again");
}

fn crashes(config: fn() -> EmulatorConfig, seeds: std::ops::Range<u64>) {
    let (mut images, mut purges) = (0, 0);
    for seed in seeds {
        let mut run = Run::start(seed, config());
        for _ in 0..160 {
            run.step();
        }
        purges += run.purged - 100;
        let events = run.emulator.events();
        for n in 0..12 {
            let at = if n == 0 { events } else { run.below(events as u64 + 1) as usize };
            run.check(&run.emulator.crash_seeded(at, seed * 100 + n), at);
            images += 1;
        }
        run.check(&run.emulator.process_death_image(), events);
    }
    assert!(images > 100 && purges > 50, "{images} images, {purges} purged frames");
}

#[test]
fn crashes_leave_a_prefix_of_the_frames_on_a_disk() {
    crashes(EmulatorConfig::default, 0..24);
}

#[test]
fn crashes_leave_a_prefix_of_the_frames_in_persistent_memory() {
    crashes(EmulatorConfig::persistent_memory, 0..24);
}
