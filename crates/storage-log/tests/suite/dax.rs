//! The engine on persistent memory passes the conformance suite, and a commit is durable when it returns.
//!
//! Ordinary memory takes the place of persistent memory. With `KAURI_TEST_DAX_DIR` set to a directory on a DAX
//! mount, the tests run there and mapping with `MAP_SYNC` must succeed. Without it, the directories of this
//! machine must be detected as ordinary ones.

use crate::common::{bounded, clean, dynamic, kilobyte, options, status};
use kauri_bson::{DocBuf, Value};
use kauri_conformance::Subject;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_medium::plain::{DirectoryOptions, PlainDirectory};
use kauri_medium::{Dax, Directory};
use kauri_storage::{CommitTicket, Durability, RecordId, StorageEngine, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory, removed when the test ends; on persistent memory if there is some.
struct TempDir {
    path: PathBuf,
    dax: Dax,
}

impl TempDir {
    fn new() -> TempDir {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (parent, dax) = match std::env::var_os("KAURI_TEST_DAX_DIR") {
            Some(dir) => (PathBuf::from(dir), Dax::Auto),
            None => (std::env::temp_dir(), Dax::Simulated),
        };
        let path = parent.join(format!("kauri-dax-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir { path, dax }
    }

    fn open(&self, options: Options) -> Arc<PmLog> {
        open(&self.path, self.dax, options)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn open(path: &Path, dax: Dax, options: Options) -> Arc<PmLog> {
    let with = DirectoryOptions { dax, ..DirectoryOptions::default() };
    let directory: Arc<dyn Directory> =
        Arc::new(PlainDirectory::open_with(path, with).expect("the directory"));
    Arc::new(PmLog::open(directory, options).expect("the engine"))
}

fn subject() -> Subject {
    let directory = TempDir::new();
    Subject::new(move || directory.open(Options { segment_bytes: 32 << 20, ..Options::default() }))
}

mod suite {
    use super::subject;
    kauri_conformance::conformance_tests!(subject);
    kauri_conformance::conformance_durable_tests!(subject);
}

/// A text of the section `medium` of the engine's status.
fn medium(engine: &PmLog, name: &str) -> String {
    let status = DocBuf::build(|out| engine.write_status(out));
    let medium = status.as_doc().value("medium");
    let Some(Value::String(text)) = medium.as_document().map(|doc| doc.value(name).into_owned())
    else {
        panic!("no {name} in {medium:?}")
    };
    text.into_owned()
}

#[test]
fn the_status_reports_the_path_in_use() {
    let directory = TempDir::new();
    let engine = directory.open(options());
    let (kind, durable_by) = (medium(&engine, "kind"), medium(&engine, "durableBy"));
    let promise = medium(&engine, "survivesPowerLoss");
    if directory.dax == Dax::Auto {
        assert_eq!((kind.as_str(), durable_by.as_str()), ("dax", "sfence"));
        assert!(promise.contains("every acknowledged write") && promise.contains("ADR"));
        println!("{}", medium(&engine, "description"));
        drop(engine);
        assert_eq!(medium(&open(&directory.path, Dax::Off, options()), "kind"), "file");
    } else {
        assert_eq!((kind.as_str(), durable_by.as_str()), ("simulatedDax", "nothing"));
        assert!(
            promise.contains("no write") && promise.contains("simulates persistent memory"),
            "{promise}"
        );
        drop(engine);
        // The same directory without emulated persistent memory.
        let engine = open(&directory.path, Dax::Auto, options());
        assert_eq!((medium(&engine, "kind").as_str()), "file");
        assert_eq!(medium(&engine, "durableBy"), "fdatasync");
    }
}

fn assert_durable(ticket: &CommitTicket) {
    assert!(ticket.ticket(Durability::Written).is_none());
    assert!(ticket.ticket(Durability::Durable).is_none());
}

/// Without a flush, a sync or a thread: documents of all sizes, and units that span segments.
#[test]
fn a_commit_is_durable_when_it_returns() {
    let directory = TempDir::new();
    let index = [TableIndex::new(20, true, "u")];
    let engine = directory.open(options());
    let table = Table::create(&dynamic(&engine), 10, &index);
    let mut expected = Vec::new();
    for number in 0..200u64 {
        let mut unit = WriteUnit::new();
        let documents = if number % 10 == 0 { 100 } else { 1 };
        let first = expected.len();
        for n in 0..documents {
            let text = kilobyte(number).repeat(if number % 50 == 7 { 20 } else { 1 });
            let text = &text[..text.len() - n % 900];
            expected.push(doc(number as i64, (first + n) as i64, text));
        }
        for doc in &expected[first..] {
            table.insert_in(&mut unit, doc);
        }
        assert_durable(&table.commit(&mut unit));
    }
    assert_eq!(status(&engine, "log.durable"), status(&engine, "log.lastCommit"));
    assert!(status(&engine, "segments") > 8, "units span segments");
    assert_eq!(status(&engine, "cache.reads"), 0);
    assert_eq!(status(&engine, "log.syncs"), status(&engine, "log.segmentsOpened"));
    drop((table, engine));
    let engine = directory.open(options());
    let table = Table::new(&dynamic(&engine), 10, &index);
    table.attach();
    let found: Vec<_> = table.records().into_values().map(|record| record.doc).collect();
    assert_eq!(found, expected);
    table.check();
    engine.close().expect("closing");
    drop((table, engine));
    let engine = directory.open(options());
    let table = Table::new(&dynamic(&engine), 10, &index);
    assert_eq!(table.records().len(), expected.len());
}

/// A directory can be opened with and without a mapping in turns.
#[test]
fn the_format_is_the_same_with_and_without_a_mapping() {
    let directory = TempDir::new();
    let ways = [directory.dax, Dax::Off, directory.dax, Dax::Off, directory.dax];
    for (turn, dax) in ways.into_iter().enumerate() {
        let engine = open(&directory.path, dax, options());
        let table = match turn {
            0 => Table::create(&dynamic(&engine), 10, &[]),
            _ => Table::new(&dynamic(&engine), 10, &[]),
        };
        for number in 0..100 {
            table.insert(&doc(turn as i64, number, &kilobyte(number as u64)));
        }
        table.delete(RecordId(turn as u64 * 100 + 1));
        engine.sync().expect("sync");
        assert_eq!(table.records().len(), (turn + 1) * 99);
        if turn % 2 == 0 {
            engine.close().expect("closing");
        }
    }
}

#[test]
fn a_flipped_bit_is_found_though_nothing_was_read_from_the_medium() {
    let directory = TempDir::new();
    let engine = directory.open(options());
    let table = Table::create(&dynamic(&engine), 10, &[]);
    let text = kilobyte(0xFACE);
    let id = table.insert(&doc(1, 2, &text));
    assert!(table.get(id).is_some());
    // Flips a bit without the engine's knowledge.
    let log = directory.path.join("pmlog.0");
    let bytes = std::fs::read(&log).expect("reading");
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes());
    let at = at.expect("the document") as u64 + 500;
    let file = std::fs::File::options().write(true).open(&log).expect("the log");
    std::os::unix::fs::FileExt::write_all_at(&file, b"#", at).expect("writing");
    let mut unit = engine.recovery_unit();
    unit.enter();
    let found = table.store().get(&*unit, id).map(drop);
    assert!(found.is_err_and(|error| error.to_string().contains("damaged")));
}

#[test]
fn scarce_segments_only_delay_acknowledgements() {
    let directory = TempDir::new();
    let engine = directory.open(bounded(12));
    let table = Table::create(&dynamic(&engine), 10, &[]);
    let mut ids = Vec::new();
    let mut held = 0;
    for number in 0..3000u64 {
        if ids.len() >= 200 {
            table.delete(ids.swap_remove(number as usize * 7 % 200));
        }
        let mut unit = WriteUnit::new();
        table.insert_in(&mut unit, &doc(number as i64, number as i64, &kilobyte(number)));
        let ticket = table.commit(&mut unit);
        ids.extend(unit.ops.iter().map(|op| op.record));
        if ticket.ticket(Durability::Written).is_some() {
            held += 1;
            ticket.wait(Durability::Durable).expect("durable");
        }
        if number % 100 == 0 {
            engine.flush_round().expect("the flusher's work");
            clean(&engine);
        }
    }
    assert!(held > 0, "there was always room");
    assert!(status(&engine, "cleaner.movedRecords") > 100);
    assert_eq!(table.records().len(), ids.len());
}
