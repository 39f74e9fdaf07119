//! The in-memory engine passes the conformance suite and builds an attached index.

use kauri_conformance::Subject;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_storage::{EphemeralEngine, RecordId, StorageEngine, StorageError};
use std::sync::Arc;

fn subject() -> Subject {
    Subject::new(|| Arc::new(EphemeralEngine::new()))
}

kauri_conformance::conformance_tests!(subject);
kauri_conformance::conformance_snapshot_tests!(subject);
kauri_conformance::conformance_transaction_tests!(subject);
kauri_conformance::conformance_pending_tests!(subject);

#[test]
fn an_attached_index_is_built_from_the_records() {
    let engine: Arc<dyn StorageEngine> = Arc::new(EphemeralEngine::new());
    let mut table = Table::create(&engine, 10, &[]);
    for i in 0..1000 {
        table.insert(&doc(i % 10, i, ""));
    }
    table.indexes = vec![TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    table.attach();
    table.check();
    assert!(table.try_insert(&doc(0, 17, "")).is_err(), "it is unique");
    table.delete(RecordId(18));
    table.insert(&doc(0, 17, ""));
    table.check();
}

#[test]
fn an_attached_unique_index_refuses_duplicates() {
    let engine: Arc<dyn StorageEngine> = Arc::new(EphemeralEngine::new());
    let table = Table::create(&engine, 10, &[]);
    table.insert(&doc(1, 5, ""));
    table.insert(&doc(2, 5, ""));
    let index = TableIndex::new(20, true, "u");
    let result = engine.attach_index(table.id, index.spec, index.generator);
    assert!(matches!(result, Err(StorageError::Corruption { .. })), "{result:?}");
}
