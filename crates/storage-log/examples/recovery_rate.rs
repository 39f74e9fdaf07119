//! The speed of opening a directory: address tables from summaries, then the index on `_id`.
//!
//! `cargo run --release -p kauri-storage-log --example recovery_rate -- [directory] [documents] [bytes per
//! document]`
//!
//! Documents have an ObjectId as `_id`; one in ten is updated. The process ends without a clean shutdown. The
//! directory is opened with one thread, then with one thread per core. The last run opens it after a clean
//! shutdown, with the index image.

use kauri_base::clock::SeededRandom;
use kauri_base::{CollectionId, IndexId, RandomSource, RecordId};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_medium::parallel;
use kauri_medium::plain::PlainDirectory;
use kauri_storage::{IndexSpec, KeyGenerator, OpKind, StorageEngine, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const COLLECTION: CollectionId = CollectionId(1);
const SPEC: IndexSpec = IndexSpec { id: IndexId(1), unique: true };
const UNIT_DOCS: u64 = 100;

struct Keys;

impl KeyGenerator for Keys {
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> kauri_base::Result<()> {
        if let Value::ObjectId(id) = doc.value("_id") {
            emit(&id, &[]);
        }
        Ok(())
    }

    fn image_tag(&self) -> Option<u64> {
        Some(1)
    }

    fn is_of_id(&self) -> bool {
        true
    }
}

fn document(n: u64, bytes: usize) -> Vec<u8> {
    let mut id = [7; 12];
    id[4..].copy_from_slice(&n.to_be_bytes());
    let text = "x".repeat(bytes.saturating_sub(40));
    DocBuf::build(|w| {
        w.put("_id", Value::ObjectId(id));
        w.put("text", text.as_str());
    })
    .into_vec()
}

fn open(path: &Path, open_threads: usize) -> Arc<PmLog> {
    let directory = PlainDirectory::open(path).expect("the directory");
    // The calling thread reads a record that is not in memory.
    let base = Options { read_threads: 0, ..Options::default() };
    let options = Options { cache_bytes: 1 << 30, open_threads, ..base };
    Arc::new(PmLog::open(Arc::new(directory), options).expect("the engine"))
}

fn fill(path: &Path, count: u64, bytes: usize) {
    let engine = open(path, 1);
    let mut unit = WriteUnit::new();
    unit.push(COLLECTION, RecordId(0), OpKind::CreateStore);
    engine.commit(&mut unit).expect("commit");
    let random = SeededRandom::new(1);
    let mut versions = Vec::new();
    for first in (0..count).step_by(UNIT_DOCS as usize) {
        let mut unit = WriteUnit::new();
        for n in first..(first + UNIT_DOCS).min(count) {
            unit.insert(COLLECTION, document(n, bytes));
        }
        let ticket = engine.commit(&mut unit).expect("commit");
        versions.extend(unit.ops.iter().map(|_| ticket.seq));
        if random.next_u64().is_multiple_of(10) {
            let mut unit = WriteUnit::new();
            let from = random.next_u64() % versions.len() as u64;
            for n in from..(from + UNIT_DOCS).min(versions.len() as u64) {
                let seen = versions[n as usize];
                unit.update(COLLECTION, RecordId(n + 1), seen, document(n, bytes));
            }
            let ticket = engine.commit(&mut unit).expect("commit");
            for n in from..(from + unit.ops.len() as u64) {
                versions[n as usize] = ticket.seq;
            }
        }
        engine.flush_round().expect("flushing");
    }
    engine.sync().expect("sync");
    engine.flush_round().expect("sealing");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().unwrap_or_else(|| "recovery-rate".to_owned()));
    let count: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let bytes: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(1024);
    std::fs::create_dir_all(&path).expect("the directory");
    fill(&path, count, bytes);
    for threads in [1, parallel::cores(), 1, parallel::cores()] {
        let started = Instant::now();
        let engine = open(&path, threads);
        let opened = started.elapsed();
        let started = Instant::now();
        engine.attach_index(COLLECTION, SPEC, Arc::new(Keys)).expect("attach");
        let attached = started.elapsed();
        let rate = |elapsed: std::time::Duration| count as f64 / elapsed.as_secs_f64() / 1e6;
        println!(
            "{threads} threads: open {:.0} ms ({:.2} M documents/s), index {:.0} ms ({:.2} M/s), both {:.2} M/s",
            opened.as_secs_f64() * 1e3,
            rate(opened),
            attached.as_secs_f64() * 1e3,
            rate(attached),
            rate(opened + attached),
        );
        drop(engine);
    }
    let engine = open(&path, 1);
    engine.attach_index(COLLECTION, SPEC, Arc::new(Keys)).expect("attach");
    let started = Instant::now();
    engine.close().expect("close");
    let closed = started.elapsed();
    drop(engine);
    let engine = open(&path, 1);
    let started = Instant::now();
    engine.attach_index(COLLECTION, SPEC, Arc::new(Keys)).expect("attach");
    let attached = started.elapsed();
    println!(
        "clean shutdown with image: {:.0} ms; index from its image {:.0} ms ({:.2} M/s)",
        closed.as_secs_f64() * 1e3,
        attached.as_secs_f64() * 1e3,
        count as f64 / attached.as_secs_f64() / 1e6,
    );
    drop(engine);
    std::fs::remove_dir_all(&path).expect("removing the directory");
}
