//! The cost of cleaning: bytes stored per byte of documents written, while a log of bounded size is updated.
//!
//! `cargo run --release -p kauri-storage-log --example cleaning_cost -- [directory] [percent live]`
//!
//! Documents of 1 KB in 1,024 segments of 256 KB. Updates are uniformly random, then Zipfian (0.99). Each
//! distribution writes ten times the log's size; the figures are of the second half.

use kauri_base::clock::SeededRandom;
use kauri_base::{Access, CollectionId, CommitSeq, RandomSource, RecordId};
use kauri_bson::{DocBuf, Value};
use kauri_medium::plain::PlainDirectory;
use kauri_storage::{OpKind, StorageEngine, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

const COLLECTION: CollectionId = CollectionId(1);
const SEGMENT_BYTES: u32 = 256 << 10;
const SEGMENTS: u64 = 1024;
const RECORD_BYTES: u64 = 1064;
const FLUSH_EVERY: u64 = 16;

fn document(seed: u64) -> Vec<u8> {
    let text = format!("{seed:020}").repeat(50);
    DocBuf::build(|w| w.put("text", text.as_str())).into_vec()
}

/// Numbers from 1 to `n`, by Zipf's law with exponent 0.99, scattered over the range.
struct Zipf {
    n: u64,
    zeta: f64,
    half: f64,
}

impl Zipf {
    const THETA: f64 = 0.99;

    fn new(n: u64) -> Zipf {
        let zeta = |n| (1..=n).map(|i| (i as f64).powf(-Self::THETA)).sum();
        Zipf { n, zeta: zeta(n), half: zeta(2) }
    }

    /// As in YCSB (Gray and others, "Quickly generating billion-record synthetic databases").
    fn next(&self, random: &SeededRandom) -> u64 {
        let u = random.next_u64() as f64 / u64::MAX as f64;
        let n = self.n as f64;
        let eta = (1.0 - (2.0 / n).powf(1.0 - Self::THETA)) / (1.0 - self.half / self.zeta);
        let rank = match u * self.zeta {
            z if z < 1.0 => 0,
            z if z < self.half => 1,
            _ => (n * (eta * u - eta + 1.0).powf(1.0 / (1.0 - Self::THETA))) as u64,
        };
        1 + rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % self.n
    }
}

struct Bench {
    engine: Arc<PmLog>,
    random: SeededRandom,
    records: u64,
}

impl Bench {
    fn status(&self, section: &str, name: &str) -> f64 {
        let doc = DocBuf::build(|out| self.engine.write_status(out));
        match doc.as_doc().value(section) {
            Value::Document(doc) => number(&doc.as_doc().value(name)),
            _ => 0.0,
        }
    }

    fn update(&self, id: RecordId) {
        let store = self.engine.record_store(COLLECTION).expect("the store");
        let mut unit = self.engine.recovery_unit();
        let seen = loop {
            unit.enter();
            let ticket = match store.get(&*unit, id).expect("get") {
                Access::Ready(record) => break record.map_or(CommitSeq(0), |r| r.version),
                Access::WouldBlock(ticket) => ticket,
            };
            unit.leave();
            ticket.wait().expect("reading");
        };
        unit.leave();
        let mut update = WriteUnit::new();
        update.update(COLLECTION, id, seen, document(self.random.next_u64()));
        self.engine.commit(&mut update).expect("commit");
    }

    fn run(&self, what: &str, mut next: impl FnMut(&SeededRandom) -> u64) {
        let updates = 10 * SEGMENTS * u64::from(SEGMENT_BYTES) / RECORD_BYTES;
        let mut times = Vec::new();
        let mut before = (0.0, 0.0);
        let started = Instant::now();
        for n in 0..updates {
            if n == updates / 2 {
                before = self.stored_and_written();
            }
            let id = RecordId(next(&self.random));
            let start = Instant::now();
            self.update(id);
            if n % FLUSH_EVERY == 0 {
                self.engine.flush();
            }
            times.push(start.elapsed().as_nanos() as u64);
        }
        let seconds = started.elapsed().as_secs_f64();
        let after = self.stored_and_written();
        times.sort_unstable();
        let at = |share: f64| times[(times.len() as f64 * share) as usize] as f64 / 1000.0;
        println!(
            "{what:<8} write amplification {:.2}, {:.0} updates/s, p50 {:.1} us, p99 {:.1} us, \
             p99.9 {:.0} us, max {:.0} us",
            (after.0 - before.0) / (after.1 - before.1),
            updates as f64 / seconds,
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.999_999_9)
        );
    }

    fn stored_and_written(&self) -> (f64, f64) {
        (self.status("log", "storedBytes"), self.status("log", "documentBytes"))
    }
}

fn number(value: &Value<'_>) -> f64 {
    match value {
        Value::Int64(number) => *number as f64,
        Value::Double(number) => *number,
        _ => 0.0,
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().unwrap_or_else(|| "cleaning-cost".to_owned()));
    let percent: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(85);
    std::fs::create_dir_all(&path).expect("the directory");
    let directory = PlainDirectory::open(&path).expect("the directory");
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        bytes_max: SEGMENTS * u64::from(SEGMENT_BYTES),
        cache_bytes: 1 << 30,
        ..Options::default()
    };
    let engine = Arc::new(PmLog::open(Arc::new(directory), options).expect("the engine"));
    let stop = Arc::new(AtomicBool::new(false));
    let mut wakes = Vec::new();
    let mut threads = Vec::new();
    for mut work in engine.maintenance() {
        let stop = stop.clone();
        wakes.push(work.wake);
        threads.push(thread::spawn(move || (work.run)(&stop)));
    }
    let records = SEGMENTS * u64::from(SEGMENT_BYTES) * percent / 100 / RECORD_BYTES;
    let mut unit = WriteUnit::new();
    unit.push(COLLECTION, RecordId(0), OpKind::CreateStore);
    engine.commit(&mut unit).expect("commit");
    for n in 0..records {
        let mut unit = WriteUnit::new();
        unit.insert(COLLECTION, document(n));
        engine.commit(&mut unit).expect("commit");
        if n % FLUSH_EVERY == 0 {
            engine.flush();
        }
    }
    let bench = Bench { engine: engine.clone(), random: SeededRandom::new(1), records };
    println!("{records} documents, {percent} % of the log");
    bench.run("uniform", |random| 1 + random.next_u64() % bench.records);
    let zipf = Zipf::new(records);
    bench.run("Zipf", |random| zipf.next(random));
    stop.store(true, Ordering::SeqCst);
    wakes.iter().for_each(|wake| wake());
    threads.into_iter().for_each(|thread| thread.join().expect("a maintenance thread"));
    drop((bench, engine));
    std::fs::remove_dir_all(&path).expect("removing the directory");
}
