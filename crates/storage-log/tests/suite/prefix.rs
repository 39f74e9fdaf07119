//! A crash leaves a prefix of the commit sequence: all durable commits, each unit complete.
//!
//! A workload runs on the emulator: inserts, updates, deletes, units of several documents, drops and cleanings.
//! Then the power fails at many points of its trace, and again during recovery.

use crate::common::{Fixture, bounded, clean, dynamic, kilobyte, open};
use kauri_base::clock::SeededRandom;
use kauri_base::{CollectionId, RandomSource, RecordId};
use kauri_conformance::inspect;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::Emulator;
use kauri_storage::{OpKind, StorageEngine, WriteUnit};
use kauri_storage_log::Options;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All stores with all documents.
type Contents = BTreeMap<CollectionId, BTreeMap<RecordId, Vec<u8>>>;

/// The history of the workload.
#[derive(Default)]
struct History {
    /// The contents after each unit; the first is the empty engine.
    states: Vec<Contents>,
    /// The number of events when a state was visible.
    visible_at: Vec<usize>,
    /// Numbers of events, each with the last state that was durable then.
    durable: Vec<(usize, usize)>,
}

struct Workload {
    random: SeededRandom,
    fixture: Fixture,
    contents: Contents,
    history: History,
    next_store: u32,
    next_u: i64,
}

impl Workload {
    fn new(seed: u64, options: Options) -> Workload {
        let fixture = Fixture::new(options);
        let mut workload = Workload {
            random: SeededRandom::new(seed),
            fixture,
            contents: Contents::new(),
            history: History::default(),
            next_store: 100,
            next_u: 0,
        };
        workload.history.states.push(Contents::new());
        workload.history.visible_at.push(0);
        workload.contents.insert(CollectionId(10), BTreeMap::new());
        workload.committed();
        workload
    }

    fn dice(&self, sides: u64) -> u64 {
        self.random.next_u64() % sides
    }

    fn committed(&mut self) {
        self.history.states.push(self.contents.clone());
        self.history.visible_at.push(self.fixture.emulator.events());
    }

    fn durable(&mut self) {
        let state = self.history.states.len() - 1;
        self.history.durable.push((self.fixture.emulator.events(), state));
    }

    fn new_doc(&mut self) -> Vec<u8> {
        self.next_u += 1;
        let text = kilobyte(self.random.next_u64());
        let length = match self.dice(20) {
            0..8 => text.len(),
            _ => self.dice(300) as usize,
        };
        doc(self.dice(5) as i64, self.next_u, &text[..length])
    }

    fn step(&mut self) {
        match self.dice(100) {
            0..10 => {
                self.fixture.engine.sync().expect("sync");
                self.durable();
            }
            10..16 => self.fixture.engine.flush(),
            16..20 => self.fixture.engine.flush_round().expect("flushing"),
            20..26 => drop(self.fixture.engine.clean_once().expect("cleaning")),
            26..30 => self.ddl(),
            _ => self.write(),
        }
    }

    fn write(&mut self) {
        let ops = if self.dice(3) == 0 { 1 + self.dice(12) } else { 1 };
        let mut unit = WriteUnit::new();
        let table = self.fixture.table.clone();
        let id = table.id;
        let mut records = self.contents[&id].clone();
        let mut touched = std::collections::BTreeSet::new();
        let mut inserted = Vec::new();
        for _ in 0..ops {
            let known = records.keys().nth(self.dice(1 + records.len() as u64) as usize).copied();
            let room = records.len() < 250;
            match (self.dice(3), known.filter(|id| touched.insert(*id))) {
                (0, Some(record)) => {
                    let old = table.record(record);
                    let new = self.new_doc();
                    table.update_in(&mut unit, record, &old, &new);
                    records.insert(record, new);
                }
                (roll, Some(record)) if roll == 1 || !room => {
                    table.delete_in(&mut unit, record, &table.record(record));
                    records.remove(&record);
                }
                _ if !room => {}
                _ => {
                    let new = self.new_doc();
                    inserted.push((table.insert_in(&mut unit, &new), new));
                }
            }
        }
        if self.fixture.engine.commit(&mut unit).is_err() {
            return;
        }
        for (op, new) in inserted {
            records.insert(unit.ops[op].record, new);
        }
        self.contents.insert(id, records);
        self.committed();
    }

    fn ddl(&mut self) {
        let engine = dynamic(&self.fixture.engine);
        let others: Vec<_> = self.contents.keys().filter(|id| id.0 >= 100).copied().collect();
        let mut unit = WriteUnit::new();
        if others.len() > 3 || (self.dice(2) == 0 && !others.is_empty()) {
            let dropped = others[self.dice(others.len() as u64) as usize];
            unit.push(dropped, RecordId(0), OpKind::DropStore);
            if engine.commit(&mut unit).is_ok() {
                self.contents.remove(&dropped);
                self.committed();
            }
        } else {
            self.next_store += 1;
            let table = Table::new(&engine, self.next_store, &[]);
            table.create_in(&mut unit);
            let new = self.new_doc();
            let op = table.insert_in(&mut unit, &new);
            if engine.commit(&mut unit).is_ok() {
                let records = BTreeMap::from([(unit.ops[op].record, new)]);
                self.contents.insert(table.id, records);
                self.committed();
            }
        }
    }
}

fn read(engine: &dyn StorageEngine) -> Contents {
    let documents = |id| {
        let records = inspect::records(engine, id).expect("reading");
        records.into_iter().map(|(id, record)| (id, record.doc)).collect()
    };
    engine.stores().into_iter().map(|id| (id, documents(id))).collect()
}

/// Opens the state after a crash, and returns the number of that state.
fn check(image: &Emulator, options: &Options, history: &History, at: usize) -> usize {
    let engine = open(image, options.clone());
    let found = read(&*engine);
    let durable = history.durable.iter().rev().find(|(event, _)| *event <= at);
    let first = durable.map_or(0, |(_, state)| *state);
    let last = history.visible_at.iter().rposition(|event| *event <= at).unwrap_or(0);
    let Some(state) = (first..history.states.len()).find(|s| history.states[*s] == found) else {
        let any = history.states.iter().position(|state| *state == found);
        panic!("at event {at}: not a state from {first} on (visible {last}), but {any:?}");
    };
    let table = Table::new(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
    if found.contains_key(&table.id) {
        table.attach();
        table.check();
    }
    // The engine accepts writes and assigns only new ids.
    if let Some(records) = found.get(&table.id) {
        let id = table.insert(&doc(0, i64::MAX, "after the crash"));
        assert!(records.keys().all(|known| *known < id));
    }
    state
}

fn run(seed: u64, steps: usize, crashes: u64) {
    let options = bounded(16);
    let mut workload = Workload::new(seed, options.clone());
    for step in 0..steps {
        workload.step();
        if step % 500 == 499 {
            workload.fixture.engine.flush();
            workload.fixture = workload.fixture.reopen();
            // Opening drains the data that it found.
            workload.durable();
            assert_eq!(read(&*workload.fixture.engine), workload.contents, "seed {seed}");
        }
    }
    let Workload { fixture, history, .. } = workload;
    let random = SeededRandom::new(seed ^ 0xC0FFEE);
    for _ in 0..crashes {
        let at = random.next_u64() as usize % (fixture.emulator.events() + 1);
        let image_seed = random.next_u64();
        let image = fixture.emulator.crash_seeded(at, image_seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let state = check(&image, &options, &history, at);
            // The power fails again, during or after recovery.
            let again = random.next_u64() as usize % (image.events() + 1);
            let second = image.crash_seeded(again, random.next_u64());
            let engine = open(&second, options.clone());
            let found = read(&*engine);
            let same = found == history.states[state];
            let written = found.get(&CollectionId(10)).is_some_and(|records| {
                records.values().any(|d| *d == doc(0, i64::MAX, "after the crash"))
            });
            assert!(same || written, "a second crash changes what was recovered");
        }));
        if let Err(panic) = result {
            eprintln!("seed {seed}, crash at {at}, image {image_seed}");
            std::panic::resume_unwind(panic);
        }
    }
    clean(&fixture.engine);
    assert_eq!(Arc::strong_count(&fixture.engine), 1 + 1);
}

#[test]
fn a_crash_leaves_a_prefix() {
    let seed = std::env::var("KAURI_SEED").ok().and_then(|s| s.parse().ok());
    match seed {
        Some(seed) => run(seed, 3000, 200),
        None => (1..=12).for_each(|seed| run(seed, 3000, 40)),
    }
}
