//! Memory that is short: the cache gives way, writes are held up, and what adds to it is refused.

use crate::common::{self, Fixture, options};
use kauri_base::{ErrorCode, RecordId};
use kauri_storage::conformance::table::doc;
use kauri_storage::{MemoryRoom, StorageEngine, StorageError, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::sync::Arc;

const BUDGET: u64 = 1 << 20;

#[test]
fn what_adds_to_full_memory_is_refused_and_deletes_are_not() {
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

#[test]
fn a_log_that_needs_more_memory_than_there_is_is_not_opened() {
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
    assert!(error.to_string().contains("needs 1 MB of memory at least"), "{error}");
    assert!(open(1 << 20).is_ok());
}

#[test]
fn what_was_replaced_leaves_memory_before_what_was_not() {
    // A cache of three times what lives: three segments, so that the cleaner is at work all the time. Each record
    // is read once, by the update that replaces it; next to never from the medium.
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
            // All once a round, in another order each time.
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
