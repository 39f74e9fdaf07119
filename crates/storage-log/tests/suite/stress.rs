//! Concurrent writers, readers and scanners, while the cleaner works and the cache holds an eighth of the data.
//! Each document determines its own expected contents.

use crate::common::{bounded, emulator, kilobyte};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_conformance::Subject;
use kauri_conformance::inspect::Stored;
use kauri_conformance::table::{Table, TableIndex, doc, number};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::plain::{DirectoryOptions, PlainDirectory};
use kauri_medium::{Dax, Directory};
use kauri_storage::{Durability, StorageError, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const WRITERS: u64 = 4;
const RECORDS_EACH: u64 = 400;
const STEPS: u64 = 6000;

/// A document of writer `k`, with number `u` and a text derived from both.
fn document(k: u64, u: u64) -> Vec<u8> {
    doc(k as i64, u as i64, &text(k, u))
}

fn text(k: u64, u: u64) -> String {
    let mut text = kilobyte(k << 32 | u);
    text.truncate(1 + (u * 7919 % 900) as usize);
    text
}

fn verify(record: &Stored) -> (u64, u64) {
    let (k, u) = (number(&record.doc, "k") as u64, number(&record.doc, "u") as u64);
    assert!(record.doc == document(k, u), "the document of {k}, {u} is another one");
    (k, u)
}

/// One writer's records; no other thread writes them.
struct Writer<'t> {
    table: &'t Table,
    random: SeededRandom,
    k: u64,
    next_u: u64,
    mine: Vec<(RecordId, u64)>,
}

impl Writer<'_> {
    fn step(&mut self) {
        let dice = self.random.next_u64();
        let grow = (self.mine.len() as u64) < RECORDS_EACH;
        let ticket = match dice % 10 {
            0..3 if grow => self.insert(1),
            3 if grow => self.insert(10),
            0..2 if !self.mine.is_empty() => self.delete(dice as usize / 16),
            _ if self.mine.is_empty() => self.insert(1),
            _ => self.update(dice as usize / 16),
        };
        match dice >> 40 & 31 {
            0 => ticket.wait(Durability::Durable).expect("durable"),
            1..8 => ticket.wait(Durability::Written).expect("written"),
            _ => {}
        }
    }

    fn next_u(&mut self) -> u64 {
        self.next_u += 1;
        self.k << 32 | self.next_u
    }

    fn insert(&mut self, count: usize) -> kauri_storage::CommitTicket {
        let mut unit = WriteUnit::new();
        let numbers: Vec<_> = (0..count).map(|_| self.next_u()).collect();
        for u in &numbers {
            self.table.insert_in(&mut unit, &document(self.k, *u));
        }
        let ticket = self.table.commit(&mut unit);
        self.mine.extend(unit.ops.iter().map(|op| op.record).zip(numbers));
        ticket
    }

    fn check(&self, at: usize) -> (RecordId, Stored) {
        let (id, u) = self.mine[at];
        let record = self.table.record(id);
        assert_eq!(verify(&record), (self.k, u), "{id} is in another version");
        (id, record)
    }

    fn update(&mut self, at: usize) -> kauri_storage::CommitTicket {
        let at = at % self.mine.len();
        let u = self.next_u();
        let ticket = self.commit(at, |table, unit, id, old| {
            table.update_in(unit, id, old, &document(self.k, u));
        });
        self.mine[at].1 = u;
        ticket
    }

    /// Commits the result of `change` for a record that no other thread writes. A conflict is still possible if
    /// its version was evicted since the read; then the record is read again.
    fn commit(
        &self,
        at: usize,
        change: impl Fn(&Table, &mut WriteUnit<'_>, RecordId, &Stored),
    ) -> kauri_storage::CommitTicket {
        loop {
            let (id, old) = self.check(at);
            let mut unit = WriteUnit::new();
            change(self.table, &mut unit, id, &old);
            match self.table.engine.commit(&mut unit) {
                Err(StorageError::WriteConflict) => {}
                done => return done.expect("a commit"),
            }
        }
    }

    fn delete(&mut self, at: usize) -> kauri_storage::CommitTicket {
        let at = at % self.mine.len();
        let ticket = self.commit(at, |table, unit, id, old| {
            table.delete_in(unit, id, old);
        });
        let (id, _) = self.mine.swap_remove(at);
        assert_eq!(self.table.get(id), None);
        ticket
    }
}

/// Stops the scanner, also when a writer fails.
struct Leaving<'t>(&'t AtomicU64);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn stress(directory: impl Fn() -> Arc<dyn Directory> + 'static, options: Options) {
    let mut subject = Subject::new(move || {
        Arc::new(PmLog::open(directory(), options.clone()).expect("the engine"))
    });
    let indexes = [TableIndex::new(20, true, "u"), TableIndex::new(21, false, "k")];
    let table = Table::create(&subject.engine(), 10, &indexes);
    let running = AtomicU64::new(WRITERS);
    let mut all: Vec<(RecordId, u64)> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|k| {
                let (table, running) = (&table, &running);
                scope.spawn(move || {
                    let _leaving = Leaving(running);
                    let random = SeededRandom::new(k);
                    let mut writer = Writer { table, random, k, next_u: 0, mine: Vec::new() };
                    (0..STEPS).for_each(|_| writer.step());
                    writer.mine
                })
            })
            .collect();
        scope.spawn(|| {
            while running.load(Ordering::SeqCst) > 0 {
                let records = table.records();
                records.values().for_each(|record| assert!(verify(record).0 < WRITERS));
            }
        });
        writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect()
    });
    all.sort_unstable();
    let compare = |table: &Table| {
        let found: Vec<_> = table.records().iter().map(|(id, r)| (*id, verify(r).1)).collect();
        assert_eq!(found, all);
        table.check();
    };
    compare(&table);
    table.engine.sync().expect("sync");
    drop(table);
    subject.reopen();
    let table = Table::new(&subject.engine(), 10, &indexes);
    table.attach();
    compare(&table);
}

#[test]
fn on_the_emulator() {
    let emulator = emulator();
    stress(move || Arc::new(emulator.clone()), stress_options());
}

#[test]
fn on_emulated_memory() {
    let emulator = Emulator::new(EmulatorConfig::persistent_memory());
    stress(move || Arc::new(emulator.clone()), stress_options());
}

#[test]
fn on_plain_files() {
    on_files("plain", Dax::Off);
}

#[test]
fn on_memory_that_stands_in() {
    on_files("memory", Dax::Simulated);
}

fn on_files(name: &str, dax: Dax) {
    let path = std::env::temp_dir().join(format!("kauri-stress-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a temporary directory");
    let options = stress_options();
    let place = path.clone();
    let with = DirectoryOptions { dax, ..DirectoryOptions::default() };
    let open = move || PlainDirectory::open_with(&place, with.clone()).expect("the directory");
    stress(move || Arc::new(open()), options);
    std::fs::remove_dir_all(&path).expect("removing the directory");
}

fn stress_options() -> Options {
    Options { read_threads: 2, cache_bytes: 128 << 10, ..bounded(48) }
}
