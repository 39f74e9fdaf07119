//! Files that are locked for a copy: commits are refused, readers continue.

use super::Subject;
use super::table::{Table, doc};
use kauri_base::{CollectionId, RecordId};
use kauri_storage::error::StorageError;
use kauri_storage::unit::{OpKind, WriteUnit};

pub(super) fn commits_are_refused_until_files_are_let_go(subject: &mut Subject) {
    let engine = subject.engine();
    let table = Table::create(&engine, 10, &[]);
    let id = table.insert(&doc(1, 1, "x"));
    let before = table.records();
    let (first, second) = (engine.hold_files().expect("held"), engine.hold_files().expect("held"));
    let refused = |last: bool| {
        assert_eq!(table.try_insert(&doc(2, 2, "x")), Err(StorageError::FilesHeld), "{last}");
        let mut unit = WriteUnit::new();
        unit.push(CollectionId(11), RecordId(0), OpKind::CreateStore);
        assert_eq!(engine.commit(&mut unit).map(|t| t.seq), Err(StorageError::FilesHeld));
        assert!(engine.record_store(CollectionId(11)).is_none());
        assert_eq!(table.records(), before);
    };
    refused(false);
    drop(first);
    refused(true);
    engine.sync().expect("a sync");
    drop(second);
    table.update(id, &doc(1, 1, "y"));
    table.insert(&doc(2, 2, "x"));
    table.check();
}
