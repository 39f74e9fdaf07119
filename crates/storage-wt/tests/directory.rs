//! Directories that are opened and directories that are rejected, and the state that a closed one keeps.

mod common;

use common::TempDir;
use kauri_base::ErrorCode;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_storage::{CollectionId, OpKind, RecordId, StorageEngine, WriteUnit};
use kauri_storage_wt::{Options, WiredTiger};
use std::path::Path;
use std::sync::Arc;

fn open(path: &Path) -> kauri_base::Result<WiredTiger> {
    WiredTiger::open(path, Options { cache_bytes: 64 << 20, ..Options::default() })
}

fn refused(path: &Path) -> kauri_base::Error {
    match open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

#[test]
fn a_second_engine_is_refused() {
    let directory = TempDir::new();
    let first = open(directory.path()).expect("opening");
    let error = refused(directory.path());
    assert_eq!(error.code(), ErrorCode::DBPathInUse, "{}", error.message());
    drop(first);
    open(directory.path()).expect("opening again");
}

#[test]
fn foreign_directories_are_refused_with_the_remedy() {
    for (file, words) in [
        ("kauri.meta", ["'pmlog'", "--storageEngine pmlog"]),
        ("pmlog.0", ["'pmlog'", "mongodump"]),
        ("WiredTiger", ["not Kauri's", "mongodump"]),
    ] {
        let directory = TempDir::new();
        std::fs::write(directory.path().join(file), b"something").expect("writing");
        let error = refused(directory.path());
        assert_eq!(error.code().number(), 28_662);
        for word in words {
            assert!(error.message().contains(word), "{file}: {}", error.message());
        }
        let left: Vec<_> = std::fs::read_dir(directory.path()).expect("listing").collect();
        assert_eq!(left.len(), 1, "nothing was written beside {file}");
    }
}

#[test]
fn another_version_is_refused() {
    let directory = TempDir::new();
    drop(open(directory.path()).expect("opening"));
    std::fs::write(directory.path().join("kauri-wiredTiger"), b"2\n").expect("writing");
    assert!(refused(directory.path()).message().contains("another version"));
}

/// A killed start must not leave the file torn for the next start.
#[test]
fn the_owner_file_is_written_once_and_atomically() {
    use std::os::unix::fs::MetadataExt;
    let directory = TempDir::new();
    let marker = directory.path().join("kauri-wiredTiger");
    // The remains of a process that died while creating it.
    std::fs::write(directory.path().join("kauri-wiredTiger.new"), b"").expect("writing");
    drop(open(directory.path()).expect("opening"));
    let seen = || {
        let found = std::fs::metadata(&marker).expect("the marker");
        (found.ino(), found.mtime(), found.mtime_nsec())
    };
    let before = seen();
    drop(open(directory.path()).expect("opening again"));
    assert_eq!(seen(), before);
}

#[test]
fn the_configuration_is_mongodbs() {
    let directory = TempDir::new();
    let engine: Arc<dyn StorageEngine> = Arc::new(open(directory.path()).expect("opening"));
    assert!(engine.may_block());
    let table = Table::create(&engine, 10, &[TableIndex::new(20, true, "u")]);
    for i in 0..2000 {
        table.insert(&doc(i, i, &"compresses well ".repeat(64)));
    }
    drop((table, engine));
    let name = |start: &str| {
        let names = std::fs::read_dir(directory.path()).expect("listing").flatten();
        let mut names = names.map(|entry| entry.file_name().into_string().expect("a name"));
        names.find(|name| name.starts_with(start)).expect("a file")
    };
    let file = std::fs::metadata(directory.path().join(name("collection-10-"))).expect("a table");
    assert!(file.len() < 1_000_000, "2 MB of records compress to {} bytes", file.len());
    let journal = directory.path().join("journal");
    let logs = std::fs::read_dir(journal).expect("a journal").flatten();
    assert!(logs.count() > 0, "the journal has its directory");
    let metadata = std::fs::read(directory.path().join("WiredTiger.wt")).expect("metadata");
    let metadata = String::from_utf8_lossy(&metadata);
    assert!(metadata.contains("leaf_page_max=32KB") && metadata.contains("snappy"));
}

#[test]
fn without_compression_records_take_their_size() {
    let bytes = [true, false].map(|compressed| {
        let directory = TempDir::new();
        let options = Options { cache_bytes: 64 << 20, compressed, ..Options::default() };
        let engine = WiredTiger::open(directory.path(), options).expect("opening");
        let engine: Arc<dyn StorageEngine> = Arc::new(engine);
        let table = Table::create(&engine, 10, &[]);
        for i in 0..2000 {
            table.insert(&doc(i, i, &"compresses well ".repeat(64)));
        }
        drop((table, engine));
        let engine = open(directory.path()).expect("opening");
        engine
            .record_store(CollectionId(10))
            .expect("the store")
            .stats()
            .expect("stats")
            .storage_bytes
    });
    assert!(bytes[0] < 1_000_000 && bytes[1] > 2_000_000, "{bytes:?}");
}

#[test]
fn tables_of_refused_units_and_of_drops_are_removed() {
    let directory = TempDir::new();
    let tables = || {
        let names = std::fs::read_dir(directory.path()).expect("listing").flatten();
        let names = names.map(|entry| entry.file_name().into_string().expect("a name"));
        names.filter(|n| n.starts_with("collection-") || n.starts_with("index-")).count()
    };
    let engine: Arc<dyn StorageEngine> = Arc::new(open(directory.path()).expect("opening"));
    let kept = Table::create(&engine, 10, &[TableIndex::new(20, true, "u")]);
    kept.insert(&doc(1, 1, ""));
    let dropped = Table::create(&engine, 11, &[TableIndex::new(21, false, "k")]);
    dropped.insert(&doc(1, 1, ""));
    let mut unit = WriteUnit::new();
    Table::new(&engine, 12, &[TableIndex::new(22, false, "k")]).create_in(&mut unit);
    unit.expect_definition(CollectionId(99), 0);
    assert!(engine.commit(&mut unit).is_err());
    let mut unit = WriteUnit::new();
    unit.push(dropped.id, RecordId(0), OpKind::DropStore);
    dropped.commit(&mut unit);
    drop((dropped, kept, engine));
    let engine = open(directory.path()).expect("opening");
    assert_eq!(tables(), 2, "one store and its index are left");
    assert_eq!(engine.stores(), [CollectionId(10)]);
    let index = |number| engine.index(TableIndex::new(number, true, "u").spec.id).is_some();
    assert!(index(20) && !index(21), "an index goes with its store");
}

#[test]
fn an_index_build_that_has_not_ended_is_done_again() {
    let directory = TempDir::new();
    let engine: Arc<dyn StorageEngine> = Arc::new(open(directory.path()).expect("opening"));
    let mut table = Table::create(&engine, 10, &[]);
    for i in 0..3000 {
        table.insert(&doc(i % 7, i, ""));
    }
    let indexes = [TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    let mut unit = WriteUnit::new();
    indexes.iter().for_each(|index| table.create_index_in(&mut unit, index));
    table.commit(&mut unit);
    for id in (1..=10).map(RecordId) {
        let mut unit = WriteUnit::new();
        table.backfill_in(&mut unit, &indexes[0], id, &table.record(id));
        table.commit(&mut unit);
    }
    let (id, engine_handle) = (table.id, std::mem::replace(&mut table.engine, engine));
    drop((table, engine_handle));
    let engine: Arc<dyn StorageEngine> = Arc::new(open(directory.path()).expect("opening"));
    let table = Table { engine, id, indexes: indexes.to_vec() };
    table.attach();
    table.check();
    assert_eq!(table.engine.index(indexes[0].spec.id).map(|index| index.entries()), Some(Ok(3000)));
}
