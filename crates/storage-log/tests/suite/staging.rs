//! The staging file of a dead process, as seen by opening, checking and repairing its directory; also on a real
//! file system.

use crate::common::{self, Fixture, dynamic, open, options};
use kauri_base::CollectionId;
use kauri_bson::{DocBuf, Value};
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::faults::Fault;
use kauri_medium::plain::PlainDirectory;
use kauri_medium::{Directory, IoKind, Medium};
use kauri_storage::StorageEngine;
use kauri_storage_log::{Options, PmLog, salvage, verify};
use std::io::IoSlice;
use std::sync::Arc;

fn staged() -> Emulator {
    Emulator::new(EmulatorConfig { staging: true, ..EmulatorConfig::default() })
}

/// A collection of ten durable documents and three staged ones, after the process died.
fn left() -> Emulator {
    let fixture = Fixture::on(staged(), options());
    let insert = |u| {
        fixture.table.insert(&doc(0, u, &common::kilobyte(u as u64)));
    };
    (0..10).for_each(insert);
    fixture.engine.sync().expect("syncing");
    (10..13).for_each(insert);
    fixture.engine.flush();
    fixture.emulator.process_death_image()
}

fn has_staging(engine: &PmLog) -> bool {
    let status = DocBuf::build(|out| engine.write_status(out));
    let medium = status.as_doc().value("medium");
    let has = medium.as_document().map(|doc| doc.value("staging").into_owned());
    has == Some(Value::Bool(true))
}

fn documents(image: &Emulator) -> usize {
    let engine = open(image, options());
    let table = Table::new(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
    table.attach();
    table.check();
    table.records().len()
}

/// The number of documents that a check finds.
fn checked(image: &Emulator) -> u64 {
    let report = verify(image, &mut |_, _| {}).expect("the check");
    assert_eq!(report.damage, []);
    report.collections.iter().find(|size| size.id == CollectionId(10)).map_or(0, |s| s.records)
}

#[test]
fn a_check_predicts_recovery_and_changes_nothing() {
    let image = left();
    let before = image.open_log("pmlog.0").map(|log| bytes_of(&*log)).expect("the log");
    assert_eq!(checked(&image), 13);
    let after = image.open_log("pmlog.0").map(|log| bytes_of(&*log)).expect("the log");
    assert!(before == after, "the log was changed");
    assert_eq!(documents(&image), 13);
}

fn bytes_of(log: &dyn Medium) -> Vec<u8> {
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    bytes
}

#[test]
fn without_the_file_unstored_commits_are_lost() {
    let image = left();
    image.remove_file("pmlog.staging", "test").expect("removing");
    assert_eq!((checked(&image), documents(&image)), (10, 10));
}

#[test]
fn another_directorys_file_is_not_used() {
    let image = left();
    let other = left().read_file("pmlog.staging").expect("reading").expect("the file");
    let mine = image.read_file("pmlog.staging").expect("reading").expect("the file");
    assert!(mine != other);
    image.replace_file("pmlog.staging", &other, "test").expect("replacing");
    assert_eq!(documents(&image), 10);
}

#[test]
fn a_file_of_an_earlier_opening_is_not_used() {
    let image = left();
    let file = image.read_file("pmlog.staging").expect("reading").expect("the file");
    let bytes = |image: &Emulator| bytes_of(&*image.open_log("pmlog.0").expect("the log"));
    let before = bytes(&image);
    drop(open(&image, options()));
    let image = image.process_death_image();
    let after = bytes(&image);
    let staged = (0..before.len()).find(|at| before[*at] != after[*at]).expect("what was staged");
    // Other data replaced it, as in a restored log.
    let log = image.open_log("pmlog.0").expect("the log");
    log.store(staged as u64, &[IoSlice::new(&[0xee; 64])]).expect("storing");
    image.replace_file("pmlog.staging", &file, "test").expect("replacing");
    // Whether this log can be followed does not matter here.
    let _ = PmLog::open(Arc::new(image.clone()), options());
    assert_eq!(bytes(&image)[staged..staged + 64], [0xee; 64]);
}

#[test]
fn without_room_for_the_file_the_engine_opens_and_stores() {
    let image = left();
    // The metadata file is replaced first.
    image.faults().inject(IoKind::FileWrite, 1, 1, Fault::Enospc);
    let engine = open(&image, options());
    assert!(!has_staging(&engine));
    let table = Table::new(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
    table.attach();
    table.insert(&doc(0, 100, "one more"));
    engine.flush();
    let after = image.process_death_image();
    after
        .remove_file("pmlog.staging", "test")
        .expect("the old one, or what there is of the new one");
    assert_eq!((documents(&after), checked(&after)), (14, 14));
}

#[test]
fn a_place_that_cannot_be_read_is_stored_again() {
    let image = left();
    // The first read is the header's.
    image.faults().inject(IoKind::Read, 1, 1, Fault::Eio);
    assert_eq!(documents(&image), 13);
}

#[test]
fn a_salvaged_log_has_the_staged_commits() {
    let image = left();
    let log = image.open_log("pmlog.0").expect("the log");
    // Both copies of the only header.
    log.store(0, &[IoSlice::new(&[0xee; 4096])]).expect("storing");
    assert!(PmLog::open(Arc::new(image.clone()), options()).is_err());
    let mended = salvage(&image, &options()).expect("salvaging");
    assert_eq!(mended.len(), 1);
    assert_eq!(documents(&image), 13);
}

#[test]
fn commits_of_a_process_that_died_are_found_in_a_directory() {
    let path = std::env::temp_dir().join(format!("kauri-staging-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a temporary directory");
    let open = || {
        let directory = PlainDirectory::open(&path).expect("the directory");
        Arc::new(PmLog::open(Arc::new(directory), Options::default()).expect("the engine"))
    };
    let engine = open();
    assert!(has_staging(&engine), "4 MB of locked memory are allowed here");
    let table = Table::create(&dynamic(&engine), 10, &[]);
    table.insert(&doc(1, 1, "durable"));
    engine.sync().expect("syncing");
    table.insert(&doc(2, 2, "only staged"));
    engine.flush();
    // No thread stores it, and the process does not shut down.
    drop((table, engine));
    let file = std::fs::read(path.join("pmlog.0")).expect("the log");
    let holds = |text: &[u8]| file.windows(text.len()).any(|window| window == text);
    assert!(holds(b"durable") && !holds(b"only staged"));
    let engine = open();
    assert_eq!(Table::new(&dynamic(&engine), 10, &[]).records().len(), 2);
    engine.close().expect("closing");
    std::fs::remove_dir_all(&path).expect("removing");
}
