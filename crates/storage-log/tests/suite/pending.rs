//! Crashes of runs with pending units, transactions over several segments, held snapshots and a busy cleaner.
//! Recovery finds the state after some commit, no earlier than the last promise. Units are complete, and the
//! pending suffix is unchanged and can be resolved.

use crate::common::{self, bounded, open};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_bson::{DocBuf, Value};
use kauri_conformance::inspect::Reader;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_storage::{
    Access, CommitTicket, Direction, LogPosition, PendingLog, StorageEngine, StorageError,
    Transaction, WriteUnit,
};
use kauri_storage_log::PmLog;
use std::collections::BTreeMap;
use std::sync::Arc;

const SEGMENTS: u32 = 40;

type Docs = BTreeMap<RecordId, Vec<u8>>;

/// The state after a commit.
#[derive(Clone, Default)]
struct State {
    /// The event at which the commit began.
    began: usize,
    visible: Docs,
    /// The pending units: index, and changes.
    pending: Vec<(u64, Vec<Change>)>,
    committed: u64,
}

type Change = (RecordId, Option<Vec<u8>>);

struct Run {
    emulator: Emulator,
    engine: Arc<PmLog>,
    table: Table,
    random: SeededRandom,
    now: State,
    next: u64,
    /// By commit.
    states: BTreeMap<u64, State>,
    /// The durable commit after each number of events.
    promised: Vec<(usize, u64)>,
    held: Vec<(Reader, Docs)>,
    large: usize,
}

fn described(engine: &Arc<PmLog>) -> Table {
    let engine: Arc<dyn StorageEngine> = engine.clone();
    Table::new(&engine, 10, &[TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")])
}

fn log(engine: &PmLog) -> &dyn PendingLog {
    engine.pending_log().expect("pending units")
}

fn docs(table: &Table) -> Docs {
    table.records().into_iter().map(|(id, record)| (id, record.doc)).collect()
}

fn last_commit(engine: &PmLog) -> u64 {
    let status = DocBuf::build(|out| engine.write_status(out));
    match status.as_doc().value("log").as_document().map(|log| log.value("lastCommit")) {
        Some(Value::Int64(seq)) => seq as u64,
        other => panic!("{other:?}"),
    }
}

impl Run {
    fn start(seed: u64) -> Run {
        let emulator = Emulator::new(EmulatorConfig::default());
        let engine = open(&emulator, bounded(SEGMENTS));
        let table = described(&engine);
        let mut unit = WriteUnit::new();
        table.create_in(&mut unit);
        table.commit(&mut unit);
        engine.sync().expect("sync");
        let mut run = Run {
            promised: vec![(emulator.events(), last_commit(&engine))],
            states: BTreeMap::new(),
            random: SeededRandom::new(seed),
            now: State::default(),
            next: 1,
            held: Vec::new(),
            large: 0,
            emulator,
            engine,
            table,
        };
        run.states.insert(last_commit(&run.engine), State::default());
        run
    }

    fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n.max(1)
    }

    fn document(&self) -> Vec<u8> {
        // Sometimes a large one, so that a unit of few documents takes more than a segment.
        let len = if self.below(10) == 0 { 10_000 + self.below(15_000) } else { self.below(900) };
        doc(self.below(20) as i64, self.below(100_000) as i64, &"x".repeat(len as usize))
    }

    /// Builds a unit from the visible state.
    fn unit(&self, most: u64) -> (WriteUnit<'static>, Vec<Option<Vec<u8>>>) {
        let mut unit = WriteUnit::new();
        let (mut changes, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..=self.below(most) {
            let count = self.now.visible.len() as u64;
            let pick = self.now.visible.keys().nth(self.below(count * 2) as usize);
            let new = self.document();
            match pick.filter(|id| !taken.contains(*id)) {
                Some(id) => {
                    taken.push(*id);
                    let old = self.table.record(*id);
                    // The more records there are, the more often one is deleted.
                    if self.below(3) == 0 || count > 60 {
                        self.table.delete_in(&mut unit, *id, &old);
                        changes.push(None);
                    } else {
                        self.table.update_in(&mut unit, *id, &old, &new);
                        changes.push(Some(new));
                    }
                }
                None => {
                    self.table.insert_in(&mut unit, &new);
                    changes.push(Some(new));
                }
            }
        }
        (unit, changes)
    }

    fn note(&mut self, began: usize, ticket: &CommitTicket) {
        self.now.began = began;
        self.states.insert(ticket.seq.0, self.now.clone());
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for (id, doc) in changes {
            match doc {
                Some(doc) => drop(self.now.visible.insert(id, doc)),
                None => drop(self.now.visible.remove(&id)),
            }
        }
    }

    fn step(&mut self) {
        let began = self.emulator.events();
        match self.below(24) {
            0..6 => self.append(began),
            6..9 if !self.now.pending.is_empty() => {
                let at = self.below(self.now.pending.len() as u64) as usize;
                let up_to = self.now.pending[at].0;
                let ticket = log(&self.engine).commit_up_to(up_to).expect("commit");
                let rest = self.now.pending.split_off(at + 1);
                for (_, changes) in std::mem::replace(&mut self.now.pending, rest) {
                    self.apply(changes);
                }
                self.now.committed = up_to;
                self.note(began, &ticket);
            }
            9 if self.now.pending.len() > 2 => {
                let keep = self.below(self.now.pending.len() as u64) as usize;
                let after = self.now.pending[keep].0;
                let ticket = log(&self.engine).truncate_after(after).expect("truncate");
                let changed = keep + 1 < self.now.pending.len();
                self.now.pending.truncate(keep + 1);
                self.next = after + 1;
                if changed {
                    self.note(began, &ticket);
                }
            }
            10..13 => self.transaction(began),
            13..16 => {
                let (mut unit, changes) = self.unit(2);
                match self.engine.commit(&mut unit) {
                    Ok(ticket) => {
                        let ids = unit.ops.iter().map(|op| op.record);
                        self.apply(ids.zip(changes).collect());
                        self.note(began, &ticket);
                    }
                    Err(error) => refused(&error),
                }
            }
            16 => {
                self.engine.sync().expect("sync");
                self.promised.push((self.emulator.events(), last_commit(&self.engine)));
            }
            17 if self.held.len() < 3 => {
                self.held.push((Reader::hold(&*self.engine), docs(&self.table)));
                let (reader, _) = self.held.last_mut().expect("just pushed");
                reader.unit().leave();
            }
            18 if !self.held.is_empty() => {
                let (mut reader, expected) = self.held.remove(0);
                reader.unit().enter();
                let found = reader.records(&*self.table.store(), Direction::Forward).expect("scan");
                let found: Docs = found.into_iter().map(|(id, r)| (id, r.doc)).collect();
                assert_eq!(found, expected, "a held snapshot has changed");
            }
            19 => self.engine.flush_round().expect("flushing"),
            20 => self.engine.flush(),
            _ => drop(self.engine.clean_once().expect("cleaning")),
        }
    }

    fn append(&mut self, began: usize) {
        let (mut unit, changes) = self.unit(if self.below(12) == 0 { 12 } else { 3 });
        let position = LogPosition { term: self.next / 7, index: self.next };
        match log(&self.engine).append(&mut unit, position) {
            Ok(ticket) => {
                let ids = unit.ops.iter().map(|op| op.record);
                self.now.pending.push((self.next, ids.zip(changes).collect()));
                self.next += 1;
                self.note(began, &ticket);
            }
            Err(error) => refused(&error),
        }
    }

    /// Several statements, committed as one unit, which may span several segments.
    fn transaction(&mut self, began: usize) {
        let engine: Arc<dyn StorageEngine> = self.engine.clone();
        let mut transaction = Transaction::begin(&engine).expect("begin");
        let large = self.below(5) == 0;
        for _ in 0..if large { 8 } else { 2 } {
            let (mut unit, _) = self.unit(3);
            if large {
                let text = "y".repeat(9000 + self.below(4000) as usize);
                let new = doc(self.below(20) as i64, self.below(100_000) as i64, &text);
                self.table.insert_in(&mut unit, &new);
            }
            match transaction.write(&mut unit) {
                Ok(Access::Ready(())) => {}
                Ok(Access::WouldBlock(_)) => panic!("indexes are in memory"),
                Err(error) => refused(&error),
            }
        }
        let bytes = transaction.write_set().map_or(0, |writes| writes.bytes());
        if self.below(5) == 0 {
            return transaction.abort();
        }
        match transaction.commit() {
            Ok(ticket) => {
                self.large += usize::from(bytes > common::SEGMENT_BYTES as usize);
                self.now.visible = docs(&self.table);
                self.note(began, &ticket);
            }
            Err(error) => refused(&error),
        }
    }

    /// The range of commits that a crash after this many events may leave.
    fn possible(&self, at: usize, power: bool) -> (u64, u64) {
        let kept = self.promised.iter().rev().find(|(events, _)| *events <= at);
        let begun = self.states.iter().filter(|(_, state)| state.began <= at);
        let from = if power { kept.map_or(0, |(_, seq)| *seq) } else { 0 };
        (from, begun.map(|(seq, _)| *seq).max().unwrap_or(0))
    }
}

fn refused(error: &StorageError) {
    match error {
        StorageError::WriteConflict | StorageError::DuplicateKey { .. } => {}
        StorageError::OutOfDiskSpace => {}
        error => panic!("{error}"),
    }
}

/// Checks that the engine is in this state.
fn check(engine: &Arc<PmLog>, expected: &State, when: &str) {
    let table = described(engine);
    assert_eq!(
        docs(&table).keys().collect::<Vec<_>>(),
        expected.visible.keys().collect::<Vec<_>>(),
        "{when}"
    );
    assert!(docs(&table) == expected.visible, "{when}: documents differ");
    table.check();
    let pending: Vec<_> = log(engine).pending().iter().map(|unit| unit.position).collect();
    let known: Vec<_> = expected
        .pending
        .iter()
        .map(|(index, _)| LogPosition { term: index / 7, index: *index })
        .collect();
    assert_eq!((pending, log(engine).committed().index), (known, expected.committed), "{when}");
}

/// Opens the state after a crash, checks it, resolves the pending units, and continues to work on it.
fn look_at(run: &Run, image: &Emulator, (from, to): (u64, u64), dice: &SeededRandom, when: &str) {
    let engine = open(image, bounded(SEGMENTS));
    described(&engine).attach();
    let last = last_commit(&engine);
    // The last recovered commit may be an unacknowledged one that changes nothing.
    let found = run.states.range(..=last).next_back();
    let (seq, state) = found.unwrap_or_else(|| panic!("{when}: commit {last}"));
    assert!((from..=to).contains(seq), "{when}: commit {seq} is not from {from} to {to}");
    check(&engine, state, when);
    let mut state = state.clone();
    let keep = dice.next_u64() as usize % (state.pending.len() + 1);
    let index = |at: usize| state.pending.get(at).map_or(u64::MAX, |(index, _)| *index);
    let (last, commit) = (index(keep).saturating_sub(1), index(keep / 2).saturating_sub(1));
    log(&engine).truncate_after(last).expect("truncate");
    log(&engine).commit_up_to(commit).expect("commit");
    state.pending.truncate(keep);
    let rest = state.pending.split_off(keep / 2);
    for (index, changes) in std::mem::replace(&mut state.pending, rest) {
        state.committed = index;
        for (id, doc) in changes {
            match doc {
                Some(doc) => drop(state.visible.insert(id, doc)),
                None => drop(state.visible.remove(&id)),
            }
        }
    }
    check(&engine, &state, &format!("{when}, resolved"));
    engine.flush_round().expect("flushing");
    for _ in 0..6 {
        engine.clean_once().expect("cleaning");
    }
    check(&engine, &state, &format!("{when}, cleaned"));
    engine.sync().expect("sync");
    drop(engine);
    let engine = open(&image.process_death_image(), bounded(SEGMENTS));
    described(&engine).attach();
    check(&engine, &state, &format!("{when}, opened again"));
}

fn crashes(seed: u64, steps: usize, images: usize) {
    let mut run = Run::start(seed);
    for _ in 0..steps {
        run.step();
    }
    check(&run.engine, &run.now, "at the end");
    let status = DocBuf::build(|out| run.engine.write_status(out));
    let number = |section: &str, name: &str| match status.as_doc().value(section).as_document() {
        Some(section) => match section.value(name) {
            Value::Int64(number) => number,
            other => panic!("{name} is {other:?}"),
        },
        None => panic!("no {section}"),
    };
    println!(
        "seed {seed}: {} states, {} units over a segment, {} records moved, {} events",
        run.states.len(),
        run.large,
        number("cleaner", "movedRecords"),
        run.emulator.events()
    );
    assert!(run.large > 0 && number("cleaner", "movedRecords") > 100);
    let dice = SeededRandom::new(seed);
    let mut lost = 0;
    // Before that there was no collection.
    let (created, _) = run.promised[0];
    for image in run.emulator.crash_images(seed, images) {
        if image.at < created {
            continue;
        }
        let possible = run.possible(image.at, true);
        lost += usize::from(possible.0 < possible.1);
        let when = format!("seed {seed}, event {}, image {}", image.at, image.seed);
        look_at(&run, &image.emulator, possible, &dice, &when);
    }
    assert!(lost > images / 3, "{lost} crashes between promises");
    for n in 0..images / 4 {
        let at = created + dice.next_u64() as usize % (run.emulator.events() - created);
        let bytes = dice.next_u64() as usize % 20_000;
        let image = run.emulator.process_death_at(at, bytes);
        let when = format!("seed {seed}, death {n} after event {at}");
        look_at(&run, &image, run.possible(at, false), &dice, &when);
    }
}

#[test]
fn power_losses_and_deaths() {
    let seed = kauri_testkit::seed(1);
    for seed in seed..seed + 3 {
        crashes(seed, 700, 80);
    }
}

/// Rewrites the whole log several times by random updates of these records. No segment becomes empty by itself,
/// and every segment that may be cleaned is, the oldest first.
fn churn(engine: &Arc<PmLog>, table: &Table, ids: &[RecordId]) {
    let random = SeededRandom::new(1);
    for round in 1..200 {
        for _ in 0..20 {
            let id = ids[random.next_u64() as usize % ids.len()];
            let k = round * 1000 + id.0 as i64;
            table.update(id, &doc(k, k, &"z".repeat(900)));
        }
        engine.flush_round().expect("flushing");
        common::clean(engine);
    }
}

fn cleaned(engine: &PmLog) -> i64 {
    let status = DocBuf::build(|out| engine.write_status(out));
    match status.as_doc().value("cleaner").as_document().map(|c| c.value("segmentsCleaned")) {
        Some(Value::Int64(segments)) => segments,
        other => panic!("{other:?}"),
    }
}

/// Segments of a log that is half live after [`churn`].
const SMALL: u32 = 16;

fn small_log() -> (Emulator, Arc<PmLog>, Table, Vec<RecordId>) {
    let emulator = Emulator::new(EmulatorConfig::default());
    let engine = open(&emulator, bounded(SMALL));
    let table = described(&engine);
    let mut unit = WriteUnit::new();
    table.create_in(&mut unit);
    table.commit(&mut unit);
    let ids = (1..=500).map(|i| table.insert(&doc(-i, -i, "first"))).collect();
    (emulator, engine, table, ids)
}

fn append(engine: &PmLog, index: u64, make: impl FnOnce(&mut WriteUnit<'static>)) {
    let mut unit = WriteUnit::new();
    make(&mut unit);
    log(engine).append(&mut unit, LogPosition { term: 1, index }).expect("appending");
}

#[test]
fn pending_units_outlive_the_cleaning_around_them() {
    let (emulator, engine, table, ids) = small_log();
    let text = "pending".repeat(20);
    append(&engine, 1, |unit| {
        table.update_in(unit, ids[0], &table.record(ids[0]), &doc(-1000, -1000, &text));
    });
    append(&engine, 2, |unit| {
        table.insert_in(unit, &doc(-1001, -1001, &text));
    });
    append(&engine, 3, |unit| {
        table.delete_in(unit, ids[1], &table.record(ids[1]));
    });
    churn(&engine, &table, &ids[2..]);
    assert!(cleaned(&engine) > 3 * i64::from(SMALL), "{}", cleaned(&engine));
    // The records they replace were moved and are still the valid versions.
    assert_eq!(table.record(ids[0]).doc, doc(-1, -1, "first"));
    assert_eq!(table.record(ids[1]).doc, doc(-2, -2, "first"));
    engine.sync().expect("sync");
    drop((table, engine));
    let engine = open(&emulator.process_death_image(), bounded(SMALL));
    let table = described(&engine);
    table.attach();
    assert_eq!(log(&engine).pending().len(), 3);
    log(&engine).commit_up_to(3).expect("committing");
    assert_eq!(table.record(ids[0]).doc, doc(-1000, -1000, &text));
    assert_eq!(table.get(ids[1]), None);
    assert!(table.find(&table.indexes[1], -1001).is_some());
    table.check();
    let before = docs(&table);
    churn(&engine, &table, &ids[2..]);
    table.check();
    assert_eq!(docs(&table).len(), before.len());
}

#[test]
fn resolutions_are_permanent() {
    let (emulator, engine, table, ids) = small_log();
    append(&engine, 1, |unit| {
        table.insert_in(unit, &doc(-1001, -1001, "committed"));
    });
    append(&engine, 2, |unit| {
        table.insert_in(unit, &doc(-1002, -1002, "dropped"));
    });
    log(&engine).commit_up_to(1).expect("committing");
    log(&engine).truncate_after(1).expect("truncating");
    churn(&engine, &table, &ids);
    assert!(cleaned(&engine) > 3 * i64::from(SMALL), "{}", cleaned(&engine));
    let expected = docs(&table);
    engine.sync().expect("sync");
    drop((table, engine));
    let engine = open(&emulator.process_death_image(), bounded(SMALL));
    let table = described(&engine);
    table.attach();
    assert_eq!(log(&engine).committed(), LogPosition { term: 1, index: 1 });
    assert_eq!(log(&engine).pending(), []);
    assert_eq!(docs(&table), expected);
    table.check();
}
