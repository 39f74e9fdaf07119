//! Memory of an open engine beside its cache: address table and index take at most 100 bytes per document. The
//! test has its own process, so that no other test changes the process's memory.

use kauri_base::clock::SeededRandom;
use kauri_base::{Access, CollectionId, IndexId, RandomSource, RecordId};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_medium::plain::PlainDirectory;
use kauri_storage::{IndexSpec, KeyGenerator, OpKind, StorageEngine, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DOCUMENTS: u64 = 250_000;
const UNIT: u64 = 500;
const CACHE_BYTES: u64 = 48 << 20;
/// Time within which the cache must return to its size.
const PATIENCE: Duration = Duration::from_secs(10);
const COLLECTION: CollectionId = CollectionId(10);
const INDEX: IndexId = IndexId(20);

struct Keys;

impl KeyGenerator for Keys {
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> kauri_base::Result<()> {
        if let Value::ObjectId(id) = doc.value("_id") {
            emit(&key(id), &[]);
        }
        Ok(())
    }
}

/// A type byte, then the ObjectId.
fn key(id: [u8; 12]) -> [u8; 13] {
    let mut key = [0x64; 13];
    key[1..].copy_from_slice(&id);
    key
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("resident pages");
    pages * 4096
}

/// The bytes that the cache reports as held.
fn cached_bytes(engine: &PmLog) -> u64 {
    let status = DocBuf::build(|out| engine.write_status(out));
    let cache = status.as_doc().value("cache");
    match cache.as_document().map(|cache| cache.value("residentBytes")) {
        Some(Value::Int64(bytes)) => bytes as u64,
        other => panic!("residentBytes is {other:?}"),
    }
}

fn load(engine: &PmLog) {
    let spec = IndexSpec { id: INDEX, unique: true };
    let mut unit = WriteUnit::new();
    unit.push(COLLECTION, RecordId(0), OpKind::CreateStore);
    unit.push(COLLECTION, RecordId(0), OpKind::CreateIndex { spec, generator: Arc::new(Keys) });
    engine.commit(&mut unit).expect("creation");
    let random = SeededRandom::new(1);
    let text = "x".repeat(980);
    for number in 0..DOCUMENTS / UNIT {
        unit.clear();
        for _ in 0..UNIT {
            // Unordered, the worst case for the index.
            let mut id = [0; 12];
            id[..8].copy_from_slice(&random.next_u64().to_le_bytes());
            id[8..].copy_from_slice(&(random.next_u64() as u32).to_le_bytes());
            let doc = DocBuf::build(|out| {
                out.put("_id", Value::ObjectId(id));
                out.put("text", text.as_str());
            });
            unit.insert(COLLECTION, doc.into_vec());
            unit.key(INDEX, true, true, &key(id), &[]);
        }
        engine.commit(&mut unit).expect("a commit");
        engine.flush();
        if number % 8 == 0 {
            engine.flush_round().expect("the flusher's work");
        }
    }
}

fn read(engine: &PmLog, count: u64) {
    let store = engine.record_store(COLLECTION).expect("the store");
    let random = SeededRandom::new(2);
    let mut unit = engine.recovery_unit();
    for _ in 0..count {
        let id = RecordId(1 + random.next_u64() % DOCUMENTS);
        loop {
            unit.enter();
            let ticket = match store.get(&*unit, id).expect("reading") {
                Access::Ready(record) => {
                    assert!(record.is_some());
                    None
                }
                Access::WouldBlock(ticket) => Some(ticket),
            };
            unit.leave();
            match ticket {
                Some(ticket) => ticket.wait().expect("reading"),
                None => break,
            }
        }
    }
}

#[test]
fn a_document_takes_few_bytes_beside_the_cache() {
    let path = std::env::temp_dir().join(format!("kauri-engine-memory-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("the directory");
    let options =
        Options { segment_bytes: 4 << 20, cache_bytes: CACHE_BYTES, ..Options::default() };
    let directory = PlainDirectory::open(&path).expect("the directory");
    let engine = PmLog::open(Arc::new(directory), options).expect("the engine");
    let before = resident_bytes();
    let check = |when: &str| {
        // Memory use may exceed the budget for a while: a thread that may not have run yet gives it back.
        let deadline = Instant::now() + PATIENCE;
        while cached_bytes(&engine) > CACHE_BYTES + CACHE_BYTES / 8 {
            assert!(Instant::now() < deadline, "{when}: {} B in the cache", cached_bytes(&engine));
            std::thread::yield_now();
        }
        let (grown, cached) = (resident_bytes() - before, cached_bytes(&engine));
        let beside = grown.saturating_sub(cached) as f64 / DOCUMENTS as f64;
        println!(
            "{when}: {grown} B more, {cached} B in the cache, {beside:.1} B a document beside it"
        );
        assert!(beside <= 100.0, "{when}: {beside} B a document");
    };
    load(&engine);
    check("after loading");
    read(&engine, 30_000);
    check("after reading here and there");
    drop(engine);
    std::fs::remove_dir_all(&path).expect("removing the directory");
}
