//! Fixture: an engine on the emulator, without threads unless a test starts them.

use kauri_bson::Value;
use kauri_conformance::table::{Table, TableIndex};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_storage::{RecordId, StorageEngine};
use kauri_storage_log::{Options, PmLog};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const SEGMENT_BYTES: u32 = 64 << 10;

/// Small segments and a small cache; the waiting thread performs reads.
pub fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: 256 << 10,
        read_threads: 0,
        open_threads: 3,
        mark_interval_bytes: 1024,
        sort_segments_min: 0,
        ..Options::default()
    }
}

/// Options for a log of at most this many segments.
pub fn bounded(segments: u32) -> Options {
    Options { bytes_max: u64::from(segments * SEGMENT_BYTES), ..options() }
}

pub fn emulator() -> Emulator {
    Emulator::new(EmulatorConfig::default())
}

pub fn open(emulator: &Emulator, options: Options) -> Arc<PmLog> {
    match PmLog::open(Arc::new(emulator.clone()), options) {
        Ok(engine) => Arc::new(engine),
        Err(error) => panic!("opening: {error:?}"),
    }
}

/// An engine with one table.
pub struct Fixture {
    pub emulator: Emulator,
    pub options: Options,
    pub engine: Arc<PmLog>,
    pub table: Table,
}

impl Fixture {
    pub fn new(options: Options) -> Fixture {
        Fixture::on(emulator(), options)
    }

    pub fn on(emulator: Emulator, options: Options) -> Fixture {
        let engine = open(&emulator, options.clone());
        let table = Table::create(&dynamic(&engine), 10, &indexes());
        Fixture { emulator, options, engine, table }
    }

    /// Opens the engine again, without a clean shutdown.
    pub fn reopen(self) -> Fixture {
        let Fixture { emulator, options, engine, table } = self;
        drop((engine, table));
        Fixture::on_existing(emulator, options)
    }

    /// Opens a directory that has the table.
    pub fn on_existing(emulator: Emulator, options: Options) -> Fixture {
        let engine = open(&emulator, options.clone());
        let table = Table::new(&dynamic(&engine), 10, &indexes());
        table.attach();
        Fixture { emulator, options, engine, table }
    }

    /// The documents by id.
    pub fn contents(&self) -> BTreeMap<RecordId, Vec<u8>> {
        self.table.records().into_iter().map(|(id, record)| (id, record.doc)).collect()
    }
}

fn indexes() -> [TableIndex; 1] {
    [TableIndex::new(20, true, "u")]
}

pub fn dynamic(engine: &Arc<PmLog>) -> Arc<dyn StorageEngine> {
    engine.clone()
}

/// Nearly a kilobyte of text.
pub fn kilobyte(seed: u64) -> String {
    format!("{seed:016x}").repeat(60)
}

/// Cleans until there is nothing to clean and all emptied segments are free. No reader may be active: the wait
/// is for the cache's thread.
pub fn clean(engine: &PmLog) {
    loop {
        let changed = engine.clean_once().expect("cleaning");
        if !changed && status(engine, "segmentsEmptying") == 0 {
            return;
        }
        std::thread::yield_now();
    }
}

/// A number of the engine's status, by its dotted path.
pub fn status(engine: &PmLog, path: &str) -> i64 {
    let status = kauri_bson::DocBuf::build(|out| engine.write_status(out));
    let mut doc = status;
    let mut parts = path.split('.').peekable();
    while let Some(part) = parts.next() {
        let next = match doc.as_doc().value(part) {
            Value::Document(section) if parts.peek().is_some() => section.as_doc().to_buf(),
            Value::Int64(number) => return number,
            _ => break,
        };
        doc = next;
    }
    panic!("status has no number {path}")
}
