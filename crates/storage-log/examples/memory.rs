//! The cost of a commit and a read on persistent memory, or on ordinary memory in its place: `cargo run
//! --release -p kauri-storage-log --example memory [DIRECTORY [simulated|auto|off…]]`.
//!
//! The default is /dev/shm with `simulated` and `auto`. There `auto` is a file; on a DAX mount it is persistent
//! memory. Rounds of the modes alternate; the program prints the median and the best. A commit includes
//! building its unit; that time is also printed separately.

use kauri_base::Access;
use kauri_conformance::table::{Table, TableIndex, doc, key};
use kauri_medium::Dax;
use kauri_medium::plain::{DirectoryOptions, PlainDirectory};
use kauri_storage::{
    Durability, IndexId, RecordStore, RecoveryUnit, SortedDataInterface, StorageEngine, WriteUnit,
};
use kauri_storage_log::{Options, PmLog};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

const ROUNDS: usize = 31;
const OPERATIONS: usize = 20_000;

/// An engine on its own directory, with its maintenance threads running.
struct Subject {
    dax: Dax,
    engine: Arc<PmLog>,
    /// One without an index, and one with a unique index.
    tables: [Table; 2],
    store: Arc<dyn RecordStore>,
    index: Arc<dyn SortedDataInterface>,
    unit: Box<dyn RecoveryUnit>,
    path: PathBuf,
    stop: Arc<AtomicBool>,
    threads: Vec<(JoinHandle<()>, Box<dyn Fn() + Send + Sync>)>,
    text: String,
    records: u64,
}

impl Subject {
    fn new(parent: &Path, dax: Dax) -> Subject {
        let path = parent.join(format!("kauri-memory-{dax:?}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        let with = DirectoryOptions { dax, ..DirectoryOptions::default() };
        let directory = PlainDirectory::open_with(&path, with).expect("the directory");
        let options = Options { bytes_max: 4 << 30, cache_bytes: 2 << 30, ..Options::default() };
        let engine = Arc::new(PmLog::open(Arc::new(directory), options).expect("the engine"));
        let stop = Arc::new(AtomicBool::new(false));
        let threads = engine.maintenance().into_iter().map(|mut maintenance| {
            let stop = Arc::clone(&stop);
            let run = move || (maintenance.run)(&stop);
            (std::thread::spawn(run), maintenance.wake)
        });
        let threads = threads.collect();
        let shared: Arc<dyn StorageEngine> = engine.clone();
        let indexes = [TableIndex::new(20, true, "u")];
        let tables = [Table::create(&shared, 10, &[]), Table::create(&shared, 11, &indexes)];
        let (store, index) = (tables[1].store(), engine.index(IndexId(20)).expect("the index"));
        let (unit, text) = (engine.recovery_unit(), "x".repeat(980));
        Subject { dax, engine, tables, store, index, unit, path, stop, threads, text, records: 0 }
    }

    fn unit_of(&self, table: usize) -> WriteUnit<'static> {
        let doc = doc(1, self.records as i64, &self.text);
        let mut unit = WriteUnit::new();
        self.tables[table].insert_in(&mut unit, &doc);
        unit
    }

    fn commit(&mut self, table: usize) {
        self.records += table as u64;
        let mut unit = self.unit_of(table);
        let ticket = self.engine.commit(&mut unit).expect("a commit");
        if ticket.ticket(Durability::Written).is_some() {
            self.engine.flush();
        }
    }

    /// Finds one of this many records by the index, reads it and copies it.
    fn get(&mut self, turn: usize, of: u64, into: &mut Vec<u8>) {
        let back = (turn as u64).wrapping_mul(0x9E37_79B9) % of.min(self.records);
        self.unit.enter();
        let found = self.index.find(&*self.unit, &key((self.records - back) as i64));
        let Ok(Access::Ready(Some(id))) = found else { panic!("the key exists") };
        let read = self.store.get(&*self.unit, id).expect("a read");
        let Access::Ready(Some(record)) = read else { panic!("it is in memory") };
        into.clear();
        into.extend_from_slice(record.doc.as_bytes());
        black_box(&into);
        self.unit.leave();
    }

    fn end(self) {
        self.stop.store(true, Ordering::Release);
        for (thread, wake) in self.threads {
            wake();
            thread.join().expect("maintenance");
        }
        drop((self.unit, self.store, self.index, self.tables, self.engine));
        std::fs::remove_dir_all(&self.path).expect("removing the directory");
    }
}

fn timed(mut turn: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..OPERATIONS).for_each(&mut turn);
    start.elapsed().as_nanos() as f64 / OPERATIONS as f64
}

fn main() {
    let parent = std::env::args_os().nth(1).map_or_else(|| "/dev/shm".into(), PathBuf::from);
    let named = |name: String| match name.as_str() {
        "simulated" => Dax::Simulated,
        "auto" => Dax::Auto,
        _ => Dax::Off,
    };
    let mut ways: Vec<Dax> = std::env::args().skip(2).map(named).collect();
    if ways.is_empty() {
        ways = vec![Dax::Simulated, Dax::Auto];
    }
    let mut subjects: Vec<_> = ways.into_iter().map(|dax| Subject::new(&parent, dax)).collect();
    let mut times = vec![[const { Vec::new() }; 5]; subjects.len()];
    let mut into = Vec::with_capacity(2048);
    for _ in 0..ROUNDS {
        for (subject, times) in subjects.iter_mut().zip(&mut times) {
            times[4].push(timed(|_| drop(black_box(subject.unit_of(1)))));
            times[0].push(timed(|_| subject.commit(0)));
            times[1].push(timed(|_| subject.commit(1)));
            times[2].push(timed(|turn| subject.get(turn, 1000, &mut into)));
            times[3].push(timed(|turn| subject.get(turn, 100_000, &mut into)));
        }
    }
    for (subject, times) in subjects.into_iter().zip(times) {
        println!("{:?}", subject.dax);
        let what = [
            "commit",
            "commit, one unique index",
            "get of 1,000",
            "get of 100,000",
            "making a unit with a key",
        ];
        for (what, mut times) in what.into_iter().zip(times) {
            times.sort_by(f64::total_cmp);
            println!("  {what:<24} {:>7.0} ns, best {:>7.0} ns", times[ROUNDS / 2], times[0]);
        }
        subject.end();
    }
}
