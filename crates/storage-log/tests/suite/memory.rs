//! Low memory: the cache shrinks, writes are throttled, and operations that need more memory are rejected.

use crate::common::{self, Fixture, options};
use kauri_base::{CollectionId, ErrorCode, IndexId, RecordId};
use kauri_bson::Doc;
use kauri_conformance::table::doc;
use kauri_storage::{IndexSpec, KeyGenerator, MemoryRoom, StorageEngine, StorageError, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::sync::Arc;

const BUDGET: u64 = 1 << 20;
const TABLE: CollectionId = CollectionId(10);

#[test]
fn full_memory_refuses_inserts_but_not_deletes() {
    let fixture = Fixture::new(options());
    let room = |full| MemoryRoom { cache_bytes: BUDGET, scarcity: 0.0, full, free_bytes: u64::MAX };
    for number in 0..2 {
        fixture.table.insert(&doc(0, number, "x"));
    }
    let before = common::status(&fixture.engine, "cache.budgetBytes");
    fixture.engine.set_memory(room(true));
    assert_eq!(
        common::status(&fixture.engine, "cache.budgetBytes"),
        BUDGET.min(before as u64) as i64
    );
    let refused = fixture.table.try_insert(&doc(0, 2, "x")).expect_err("it was admitted");
    assert_eq!(refused, StorageError::OutOfMemory);
    let record = fixture.table.record(RecordId(1));
    let mut update = WriteUnit::new();
    fixture.table.update_in(&mut update, RecordId(1), &record, &doc(1, 0, "y"));
    assert_eq!(fixture.engine.check(&update), Err(StorageError::OutOfMemory));
    assert_eq!(fixture.engine.commit(&mut update).err(), Some(StorageError::OutOfMemory));
    assert_eq!(common::status(&fixture.engine, "memory.refused"), 3);
    fixture.table.delete(RecordId(2));
    assert_eq!(fixture.table.records().len(), 1);
    fixture.engine.set_memory(room(false));
    assert!(fixture.engine.commit(&mut update).is_ok());
    fixture.table.insert(&doc(0, 3, "x"));
    fixture.table.check();
}

fn free(free_bytes: u64) -> MemoryRoom {
    MemoryRoom { cache_bytes: BUDGET, scarcity: 0.0, full: false, free_bytes }
}

/// Between two checks of memory, indexes grow by at most the memory left at the last check.
#[test]
fn a_unit_whose_keys_exceed_memory_is_refused() {
    let fixture = Fixture::new(options());
    let keys = |unit: &mut WriteUnit<'_>, bytes: usize| {
        unit.key(IndexId(20), true, false, &vec![7; bytes], &[]);
    };
    let insert = |bytes: usize| {
        let mut unit = WriteUnit::new();
        unit.insert(TABLE, doc(0, 1, "x"));
        keys(&mut unit, bytes);
        fixture.engine.commit(&mut unit).map(drop)
    };
    fixture.engine.set_memory(free(100_000));
    assert_eq!(insert(60_000), Err(StorageError::OutOfMemory));
    assert_eq!(insert(20_000), Ok(()), "40,000 bytes of the tree");
    assert_eq!(insert(40_000), Err(StorageError::OutOfMemory));
    assert_eq!(insert(1_000), Ok(()), "short keys wait for the next look");
    fixture.engine.set_memory(free(100_000));
    assert_eq!(insert(40_000), Ok(()));
    fixture.engine.set_memory(free(0));
    let record = fixture.table.record(RecordId(1));
    let mut delete = WriteUnit::new();
    delete.delete(TABLE, RecordId(1), record.version);
    delete.key(IndexId(20), false, false, &vec![7; 20_000], &[]);
    assert!(fixture.engine.commit(&mut delete).is_ok(), "a delete is admitted");
    fixture.engine.set_memory(free(u64::MAX));
    assert_eq!(insert(900_000), Ok(()), "there is no limit");
}

/// Makes a long key of every document.
struct LongKeys;

impl KeyGenerator for LongKeys {
    fn generate(&self, _: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> kauri_base::Result<()> {
        emit(&[9; 100_000], &[]);
        Ok(())
    }
}

#[test]
fn an_index_that_does_not_fit_is_not_made_at_the_start() {
    const RECORDS: i64 = 200;
    let fixture = Fixture::new(options());
    for number in 0..RECORDS {
        fixture.table.insert(&doc(0, number, "x"));
    }
    let attach = |index: u32, free_bytes: u64| {
        fixture.engine.set_memory(free(free_bytes));
        let spec = IndexSpec { id: IndexId(index), unique: false };
        let wanted: (IndexSpec, Arc<dyn KeyGenerator>) = (spec, Arc::new(LongKeys));
        fixture.engine.attach_indexes(TABLE, &[wanted]).remove(0)
    };
    match attach(30, 4_000_000) {
        Err(StorageError::NeedsMemory { bytes, what }) => {
            assert_eq!(what, "the indexes");
            // 20 MB of keys: the keys in the order of documents, and the tree.
            assert!((40_000_000..80_000_000).contains(&bytes), "{bytes}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(attach(31, 100_000_000), Ok(()));
    assert_eq!(attach(32, u64::MAX), Ok(()));
    let entries = fixture.engine.index(IndexId(31)).map(|index| index.entries());
    assert_eq!(entries, Some(Ok(RECORDS as u64)));
    assert!(fixture.engine.index(IndexId(30)).is_none());
}

#[test]
fn a_log_that_needs_too_much_memory_is_not_opened() {
    let fixture = Fixture::new(options());
    for number in 0..100 {
        fixture.table.insert(&doc(0, number, "x"));
    }
    fixture.engine.sync().expect("sync");
    let Fixture { emulator, engine, table, .. } = fixture;
    drop((engine, table));
    let open = |memory_bytes_max| {
        PmLog::open(Arc::new(emulator.clone()), Options { memory_bytes_max, ..options() })
    };
    let error = open(1000).err().expect("it was opened");
    assert_eq!(error.code(), ErrorCode::ExceededMemoryLimit);
    assert!(error.to_string().contains("need at least 1 MB of memory"), "{error}");
    assert!(open(1 << 20).is_ok());
}

#[test]
fn superseded_versions_are_evicted_first() {
    // The cache is three times the live data, and the log has three segments, so the cleaner always runs. Each
    // record is read once, by the update that replaces it, and hardly ever from the medium.
    const RECORDS: u64 = 64;
    const RECORD_BYTES: usize = 64 << 10;
    let fixture = Fixture::new(Options {
        segment_bytes: 4 << 20,
        cache_bytes: 3 * RECORDS * RECORD_BYTES as u64,
        ..options()
    });
    let content =
        |round: u64| char::from(b'a' + (round % 26) as u8).to_string().repeat(RECORD_BYTES);
    for number in 0..RECORDS {
        fixture.table.insert(&doc(0, number as i64, &content(0)));
    }
    for round in 1..40 {
        for number in 0..RECORDS {
            // All records once per round, each time in another order.
            let id = RecordId((number * (2 * round + 1)) % RECORDS + 1);
            let record = fixture.table.record(id);
            let mut update = WriteUnit::new();
            fixture.table.update_in(
                &mut update,
                id,
                &record,
                &doc(0, id.0 as i64 - 1, &content(round)),
            );
            fixture.engine.commit(&mut update).expect("commit");
            fixture.engine.flush_round().expect("flushing");
        }
        while fixture.engine.clean_once().expect("cleaning") {}
    }
    let evictions = common::status(&fixture.engine, "cache.evictions");
    let reads = common::status(&fixture.engine, "cache.reads");
    assert!(evictions > 100 && reads <= 3, "{evictions} evictions, {reads} reads");
}
