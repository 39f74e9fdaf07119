//! Times the engine's own paths on one thread, without a server.
//!
//! `cargo run --release -p kauri-storage-log --example engine_timing -- [directory] [documents]`
//!
//! Documents of 1 KB with a 12-byte key in one unique index. `flush` is timed separately, called as a worker
//! calls it once per tick.

use kauri_base::clock::SeededRandom;
use kauri_base::{Access, CollectionId, IndexId, RandomSource, RecordId};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_medium::plain::PlainDirectory;
use kauri_storage::{
    CommitSeq, IndexSpec, KeyGenerator, OpKind, RecoveryUnit, SortedDataInterface, StorageEngine,
    WriteUnit,
};
use kauri_storage_log::{Options, PmLog};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

const COLLECTION: CollectionId = CollectionId(1);
const INDEX: IndexId = IndexId(1);
const UNIT_DOCS: u64 = 1000;
const FLUSH_EVERY: u64 = 16;

struct Keys;

impl KeyGenerator for Keys {
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> kauri_base::Result<()> {
        if let Value::ObjectId(id) = doc.value("_id") {
            emit(&id, &[]);
        }
        Ok(())
    }
}

fn key(random: &SeededRandom) -> [u8; 12] {
    let mut id = [0; 12];
    id[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    id[8..].copy_from_slice(&(random.next_u64() as u32).to_le_bytes());
    id
}

fn document(id: [u8; 12], fill: &str) -> Vec<u8> {
    DocBuf::build(|w| {
        w.put("_id", Value::ObjectId(id));
        w.put("text", fill);
    })
    .into_vec()
}

/// Times of single operations; the median is robust on a busy machine.
#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let answer = operation();
        self.0.push(started.elapsed().as_nanos() as u64);
        answer
    }

    /// Prints the figures of one of `parts` equal parts of an operation.
    fn report(mut self, what: &str, parts: u64) {
        self.0.sort_unstable();
        let at = |share: f64| {
            let index = (self.0.len() as f64 * share) as usize;
            self.0.get(index).copied().unwrap_or(0) as f64 / parts as f64
        };
        let mean = self.0.iter().sum::<u64>() as f64 / self.0.len() as f64 / parts as f64;
        println!(
            "{what:<44} median {:>8.0} ns, mean {mean:>8.0}, p99 {:>8.0}, p99.9 {:>8.0}",
            at(0.5),
            at(0.99),
            at(0.999)
        );
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().unwrap_or_else(|| "engine-timing".to_owned()));
    let count: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    std::fs::create_dir_all(&path).expect("the directory");
    let open = || {
        let directory = PlainDirectory::open(&path).expect("the directory");
        let options = Options { cache_bytes: 4 << 30, ..Options::default() };
        Arc::new(PmLog::open(Arc::new(directory), options).expect("the engine"))
    };
    let engine = open();
    let running = Running::start(&engine);
    let spec = IndexSpec { id: INDEX, unique: true };
    let mut unit = WriteUnit::new();
    unit.push(COLLECTION, RecordId(0), OpKind::CreateStore);
    unit.push(COLLECTION, RecordId(0), OpKind::CreateIndex { spec, generator: Arc::new(Keys) });
    engine.commit(&mut unit).expect("commit");

    let random = SeededRandom::new(1);
    let fill = "x".repeat(1000);
    let keys = inserts(&*engine, &random, &fill, count);
    bulk(&*engine, &random, &fill, count);
    gets(&*engine, &random, &keys);
    updates(&*engine, &random, &keys, &fill);
    durable(&*engine, &random, &fill);
    let status = DocBuf::build(|out| engine.write_status(out));
    println!("{:?}", status.as_doc());

    running.stop();
    engine.close().expect("close");
    drop(engine);
    let mut times = Times::default();
    let engine = times.time(open);
    times.report("open after a clean shutdown, a document", 2 * count);
    let mut times = Times::default();
    times.time(|| engine.attach_index(COLLECTION, spec, Arc::new(Keys)).expect("attach"));
    times.report("attach the index, cold cache, a document", 2 * count);
    drop(engine);
    std::fs::remove_dir_all(&path).expect("removing the directory");
}

fn inserts(
    engine: &dyn StorageEngine,
    random: &SeededRandom,
    fill: &str,
    count: u64,
) -> Vec<[u8; 12]> {
    let mut keys = Vec::new();
    let (mut commit, mut flush) = (Times::default(), Times::default());
    let mut unit = WriteUnit::new();
    for n in 0..count {
        let id = key(random);
        let doc = document(id, fill);
        unit.clear();
        unit.insert(COLLECTION, doc);
        unit.key(INDEX, true, true, &id, &[]);
        commit.time(|| engine.commit(&mut unit).expect("commit"));
        keys.push(id);
        if n % FLUSH_EVERY == 0 {
            flush.time(|| engine.flush());
        }
    }
    commit.report("insert, a unit of its own: commit", 1);
    flush.report(&format!("flush of {FLUSH_EVERY} inserts"), 1);
    keys
}

/// Processor time of this thread, which is independent of other load. Exact to a few milliseconds.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn bulk(engine: &dyn StorageEngine, random: &SeededRandom, fill: &str, count: u64) {
    let units = count / UNIT_DOCS;
    let docs: Vec<_> = (0..units * UNIT_DOCS)
        .map(|_| {
            let id = key(random);
            (id, document(id, fill))
        })
        .collect();
    let mut commit = Times::default();
    let before = cpu_nanos();
    for docs in docs.chunks(UNIT_DOCS as usize) {
        commit.time(|| {
            let mut unit = WriteUnit::new();
            for (id, doc) in docs {
                unit.insert(COLLECTION, &doc[..]);
                unit.key(INDEX, true, true, id, &[]);
            }
            engine.commit(&mut unit).expect("commit");
        });
    }
    let cpu = (cpu_nanos() - before) as f64 / (units * UNIT_DOCS) as f64;
    commit.report("insert, units of 1,000: commit, a document", UNIT_DOCS);
    println!("{:<44} {cpu:.0} ns of processor time", "");
    let mut flush = Times::default();
    flush.time(|| engine.flush());
    flush.report("flush of these, a document", units * UNIT_DOCS);
}

const READS: u64 = 100;

fn gets(engine: &dyn StorageEngine, random: &SeededRandom, keys: &[[u8; 12]]) {
    let store = engine.record_store(COLLECTION).expect("the store");
    let index = engine.index(INDEX).expect("the index");
    let mut unit = engine.recovery_unit();
    let mut bytes = 0;
    let few: Vec<_> = (1..=READS).map(RecordId).collect();
    let mut times = Times::default();
    for _ in 0..20_000 {
        times.time(|| {
            for id in &few {
                unit.enter();
                bytes += length(&*store, &*unit, *id);
                unit.leave();
            }
        });
    }
    times.report("get, 100 documents, hot", READS);
    let mut times = Times::default();
    for _ in 0..10_000 {
        let ids: Vec<_> =
            (0..READS).map(|_| RecordId(1 + random.next_u64() % keys.len() as u64)).collect();
        times.time(|| {
            for id in &ids {
                unit.enter();
                bytes += length(&*store, &*unit, *id);
                unit.leave();
            }
        });
    }
    times.report("get, all documents at random", READS);
    let mut times = Times::default();
    for _ in 0..10_000 {
        let wanted: Vec<_> =
            (0..READS).map(|_| &keys[(random.next_u64() % keys.len() as u64) as usize]).collect();
        times.time(|| {
            for key in &wanted {
                unit.enter();
                bytes += find(&*index, &*unit, &key[..]).map_or(0, |id| id.0 as usize);
                unit.leave();
            }
        });
    }
    times.report("index lookup, all keys at random", READS);
    assert!(bytes > 0);
}

fn length(store: &dyn kauri_storage::RecordStore, unit: &dyn RecoveryUnit, id: RecordId) -> usize {
    match store.get(unit, id).expect("get") {
        Access::Ready(Some(record)) => record.doc.as_bytes().len(),
        Access::Ready(None) => 0,
        Access::WouldBlock(_) => panic!("everything fits the cache"),
    }
}

fn find(index: &dyn SortedDataInterface, unit: &dyn RecoveryUnit, key: &[u8]) -> Option<RecordId> {
    match index.find(unit, key).expect("find") {
        Access::Ready(id) => id,
        Access::WouldBlock(_) => None,
    }
}

fn updates(engine: &dyn StorageEngine, random: &SeededRandom, keys: &[[u8; 12]], fill: &str) {
    let store = engine.record_store(COLLECTION).expect("the store");
    let mut reader = engine.recovery_unit();
    let rounds = keys.len() as u64;
    let (mut commit, mut unit) = (Times::default(), WriteUnit::new());
    for n in 0..rounds {
        let at = random.next_u64() % rounds;
        let id = RecordId(1 + at);
        reader.enter();
        let seen = match store.get(&*reader, id).expect("get") {
            Access::Ready(record) => record.map_or(CommitSeq(0), |record| record.version),
            Access::WouldBlock(_) => panic!("everything fits the cache"),
        };
        reader.leave();
        let doc = document(keys[at as usize], fill);
        unit.clear();
        unit.update(COLLECTION, id, seen, doc);
        commit.time(|| engine.commit(&mut unit).expect("commit"));
        if n % FLUSH_EVERY == 0 {
            engine.flush();
        }
    }
    commit.report("update without key changes: commit", 1);
}

fn durable(engine: &dyn StorageEngine, random: &SeededRandom, fill: &str) {
    let mut times = Times::default();
    for _ in 0..200 {
        let id = key(random);
        let mut unit = WriteUnit::new();
        unit.insert(COLLECTION, document(id, fill));
        unit.key(INDEX, true, true, &id, &[]);
        times.time(|| {
            let ticket = engine.commit(&mut unit).expect("commit");
            ticket.wait(kauri_storage::Durability::Durable).expect("wait");
        });
    }
    times.report("insert, durable, one writer", 1);
    let (writers, each) = (64, 50);
    let started = Instant::now();
    thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                let random = SeededRandom::new(1000 + writer);
                for _ in 0..each {
                    let id = key(&random);
                    let mut unit = WriteUnit::new();
                    unit.insert(COLLECTION, document(id, fill));
                    unit.key(INDEX, true, true, &id, &[]);
                    let ticket = engine.commit(&mut unit).expect("commit");
                    ticket.wait(kauri_storage::Durability::Durable).expect("wait");
                }
            });
        }
    });
    let nanos = started.elapsed().as_nanos() as f64 / (writers * each) as f64;
    println!("insert, durable, {writers} writers: {nanos:.0} ns an insert");
}

struct Running {
    stop: Arc<AtomicBool>,
    wakes: Vec<Box<dyn Fn() + Send + Sync>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Running {
    fn start(engine: &Arc<PmLog>) -> Running {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut wakes, mut threads) = (Vec::new(), Vec::new());
        for mut work in engine.maintenance() {
            let stop = stop.clone();
            wakes.push(work.wake);
            threads.push(thread::spawn(move || (work.run)(&stop)));
        }
        Running { stop, wakes, threads }
    }

    fn stop(self) {
        self.stop.store(true, std::sync::atomic::Ordering::SeqCst);
        self.wakes.iter().for_each(|wake| wake());
        for thread in self.threads {
            thread.join().expect("a maintenance thread");
        }
    }
}
