//! The workload: each thread inserts, updates and deletes in its own collection, in units of one or many
//! documents. Collections are created and dropped, and the cleaner moves records.

use crate::{DATA, Result};
use kauri_bson::{DocBuf, Value};
use kauri_conformance::inspect::Stored;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_medium::plain::PlainDirectory;
use kauri_storage::{Durability, OpKind, RecordId, StorageEngine, StorageError, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use kauri_testkit::Dice;
use kauri_testkit::model::{Change, Model};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const WRITERS: u32 = 3;
const STEPS: usize = 250;
/// Maximum number of documents of a writer.
const DOCUMENTS_MAX: usize = 60;
/// One commit in this many is made durable and marked.
const MARK_EVERY: u64 = 8;

/// Small segments, so that the cleaner has work.
pub fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        cache_bytes: 256 << 10,
        bytes_max: 16 * (64 << 10),
        read_threads: 0,
        mark_interval_bytes: 2048,
        ..Options::default()
    }
}

fn table(engine: &Arc<dyn StorageEngine>, id: u32) -> Table {
    let indexes = [TableIndex::new(id * 10, true, "u"), TableIndex::new(id * 10 + 1, false, "k")];
    Table::new(engine, id, &indexes)
}

/// Attaches the indexes of all collections and compares them with the documents.
pub fn check_indexes(engine: &Arc<dyn StorageEngine>) {
    for id in engine.stores() {
        let table = table(engine, id.0);
        table.attach();
        table.check();
    }
}

/// The committed contents, by commit number.
#[derive(Default)]
struct Commits(Mutex<BTreeMap<u64, Vec<Change>>>);

struct Writer<'w> {
    engine: &'w Arc<dyn StorageEngine>,
    commits: &'w Commits,
    device: &'w str,
    dice: Dice,
    table: Table,
    /// The unused ids for its collections.
    ids: std::ops::Range<u32>,
    mine: Vec<RecordId>,
    last_u: i64,
}

impl Writer<'_> {
    fn run(mut self, steps: usize) -> Result<()> {
        self.create()?;
        for step in 0..steps {
            match self.dice.below(100) {
                0 if step > 10 => {
                    self.drop()?;
                    self.create()?;
                }
                1..30 => self.documents(2 + self.dice.below(8))?,
                _ => self.documents(1)?,
            }
        }
        Ok(())
    }

    fn commit(&self, mut unit: WriteUnit<'_>, changes: Vec<(usize, Change)>) -> Result<()> {
        let ticket = match self.engine.commit(&mut unit) {
            // The version it was made from has been evicted: no change was made.
            Err(StorageError::WriteConflict) => return Ok(()),
            done => done?,
        };
        let seq = ticket.seq.0;
        let known = changes.into_iter().map(|(op, change)| match change {
            Change::Put(id, RecordId(0), doc) => Change::Put(id, unit.ops[op].record, doc),
            change => change,
        });
        let mut all = self.commits.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(seq, known.collect());
        drop(all);
        if self.dice.below(MARK_EVERY) == 0 {
            ticket.wait(Durability::Durable)?;
            let mark = ["mark".to_owned(), seq.to_string()];
            crate::run(Command::new("dmsetup").args(["message", self.device, "0"]).args(mark))?;
        }
        Ok(())
    }

    fn create(&mut self) -> Result<()> {
        let Some(id) = self.ids.next() else { return Err("no more ids".into()) };
        self.table = table(self.engine, id);
        self.mine.clear();
        let mut unit = WriteUnit::new();
        self.table.create_in(&mut unit);
        self.commit(unit, vec![(0, Change::Create(self.table.id))])
    }

    fn drop(&mut self) -> Result<()> {
        let mut unit = WriteUnit::new();
        unit.push(self.table.id, RecordId(0), OpKind::DropStore);
        self.commit(unit, vec![(0, Change::Drop(self.table.id))])
    }

    fn new_doc(&mut self) -> Vec<u8> {
        self.last_u += 1;
        let text = format!("{:x}-", self.dice.bits()).repeat(self.dice.below(120) as usize);
        doc(self.dice.below(6) as i64, self.last_u, &text)
    }

    fn documents(&mut self, count: u64) -> Result<()> {
        let mut unit = WriteUnit::new();
        let mut changes = Vec::new();
        let mut touched = Vec::new();
        let id = self.table.id;
        for _ in 0..count {
            let known = self.pick().filter(|(record, _)| !touched.contains(record));
            let plenty = self.mine.len() > DOCUMENTS_MAX;
            match known {
                Some((record, old)) if plenty || self.dice.percent(20) => {
                    touched.push(record);
                    let op = self.table.delete_in(&mut unit, record, &old);
                    changes.push((op, Change::Remove(id, record)));
                }
                Some((record, old)) if self.dice.percent(60) => {
                    touched.push(record);
                    let doc = self.new_doc();
                    let op = self.table.update_in(&mut unit, record, &old, &doc);
                    changes.push((op, Change::Put(id, record, doc.into())));
                }
                _ => {
                    let doc = self.new_doc();
                    let op = self.table.insert_in(&mut unit, &doc);
                    changes.push((op, Change::Put(id, RecordId(0), doc.into())));
                }
            }
        }
        self.commit(unit, changes)?;
        self.mine = self.table.records().into_keys().collect();
        Ok(())
    }

    fn pick(&self) -> Option<(RecordId, Stored)> {
        let record = *self.dice.pick(&self.mine)?;
        Some((record, self.table.record(record)))
    }
}

/// See [`crate`].
pub fn work(directory: &str, device: &str, history: &str) -> Result<()> {
    let path = Path::new(directory).join(DATA);
    std::fs::create_dir(&path)?;
    let log = Arc::new(PmLog::open(Arc::new(PlainDirectory::open(path)?), options())?);
    // From here on at least the empty engine must be found.
    log.sync()?;
    std::fs::File::open(directory)?.sync_all()?;
    crate::run(Command::new("dmsetup").args(["message", device, "0", "mark", "0"]))?;
    let engine: Arc<dyn StorageEngine> = log.clone();
    let commits = Commits::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                log.flush_round().unwrap_or_else(|error| panic!("the flusher: {error}"));
                log.clean_once().unwrap_or_else(|error| panic!("the cleaner: {error}"));
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> = (1..=WRITERS)
            .map(|number| {
                let (engine, commits) = (&engine, &commits);
                let ids = number * 1000..(number + 1) * 1000;
                scope.spawn(move || {
                    let dice = Dice::new(u64::from(number));
                    let table = table(engine, ids.start);
                    let mine = Vec::new();
                    let writer =
                        Writer { engine, commits, device, dice, table, ids, mine, last_u: 0 };
                    writer.run(STEPS).map_err(|error| error.to_string())
                })
            })
            .collect();
        let joined = writers.into_iter().map(|writer| writer.join());
        let results: Vec<_> = joined.collect();
        done.store(true, Ordering::Release);
        for result in results {
            result.map_err(|_| "a writer panicked")??;
        }
        Ok(())
    })?;
    engine.sync()?;
    let mut model = Model::default();
    let mut text = String::new();
    let commits = commits.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (seq, changes) in commits {
        changes.iter().for_each(|change| model.apply(change));
        writeln!(text, "{seq} {}", model.hash())?;
    }
    std::fs::write(history, text)?;
    let status = DocBuf::build(|out| engine.write_status(out));
    let cleaner = status.as_doc().value("cleaner");
    let moved = cleaner.as_document().map(|doc| doc.value("movedRecords").into_owned());
    println!("the cleaner moved {moved:?} records");
    match moved {
        Some(Value::Int64(1..)) => Ok(()),
        _ => Err("the cleaner had nothing to do".into()),
    }
}
