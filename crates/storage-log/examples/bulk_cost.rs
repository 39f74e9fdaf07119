//! The cost of a bulk load in the engine, for `perf stat -e instructions:u` and `perf record`.
//!
//! `cargo run --release -p kauri-storage-log --example bulk_cost -- DIRECTORY DOCUMENTS BYTES UNIT`
//!
//! Documents with ascending ObjectIds in one unique index, UNIT documents per unit, on one thread. UNIT 0 does
//! everything except the commits; subtract its cost.

use kauri_base::{CollectionId, IndexId, RecordId};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_medium::plain::PlainDirectory;
use kauri_storage::{IndexSpec, KeyGenerator, OpKind, StorageEngine, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const COLLECTION: CollectionId = CollectionId(1);
const INDEX: IndexId = IndexId(1);

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

fn main() {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().unwrap_or_else(|| "bulk-cost".to_owned()));
    let mut number = |default: usize| args.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (documents, bytes, per_unit) = (number(300_000), number(250), number(1000));
    std::fs::create_dir_all(&path).expect("the directory");
    let directory = PlainDirectory::open(&path).expect("the directory");
    let options = Options { cache_bytes: 4 << 30, ..Options::default() };
    let engine = PmLog::open(Arc::new(directory), options).expect("the engine");
    let spec = IndexSpec { id: INDEX, unique: true };
    let mut unit = WriteUnit::new();
    unit.push(COLLECTION, RecordId(0), OpKind::CreateStore);
    unit.push(COLLECTION, RecordId(0), OpKind::CreateIndex { spec, generator: Arc::new(Keys) });
    engine.commit(&mut unit).expect("commit");

    let fill = "x".repeat(bytes.saturating_sub(40));
    let mut docs: Vec<([u8; 12], Vec<u8>)> = Vec::new();
    for number in 0..documents as u64 {
        let mut id = [7; 12];
        id[4..].copy_from_slice(&number.to_be_bytes());
        let doc = DocBuf::build(|w| {
            w.put("_id", Value::ObjectId(id));
            w.put("text", fill.as_str());
        });
        docs.push((id, doc.into_vec()));
    }
    let started = Instant::now();
    if per_unit > 0 {
        for docs in docs.chunks(per_unit) {
            let mut unit = WriteUnit::new();
            for (id, doc) in docs {
                unit.insert(COLLECTION, &doc[..]);
                unit.key(INDEX, true, true, &key(*id), &[]);
            }
            engine.commit(&mut unit).expect("commit");
            engine.flush();
        }
    }
    println!("{:.0} ns a document", started.elapsed().as_nanos() as f64 / documents as f64);
    std::fs::remove_dir_all(&path).expect("removing the directory");
}
