//! Files of different times in one directory: a restored copy beside a leftover mark file. The engine rejects
//! the directory and names the remedy. A repair gives up no data of it.

use crate::common::{Fixture, SEGMENT_BYTES, bounded, clean, dynamic, kilobyte, open, options};
use kauri_base::RecordId;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_storage::StorageEngine;
use kauri_storage_log::format::marks::{MARK_EPOCH_BYTES, MARK_EPOCHS_AT, decode_epoch};
use kauri_storage_log::format::meta::Meta;
use kauri_storage_log::format::segment::SegmentHeader;
use kauri_storage_log::{Options, PmLog, salvage, verify};
use std::io::IoSlice;
use std::sync::Arc;

const LOG: &str = "pmlog.0";
const META: &str = "kauri.meta";
const MARKS: &str = "pmlog.marks";
const SEGMENT: usize = SEGMENT_BYTES as usize;
const WAY_OUT: &str =
    "restored from a copy without pmlog.marks, or with an older one, remove pmlog.marks";

/// The relevant files of a directory.
#[derive(Clone)]
struct Files {
    meta: Vec<u8>,
    log: Vec<u8>,
    marks: Vec<u8>,
}

impl Files {
    fn of(image: &Emulator) -> Files {
        let read = |name| image.read_file(name).expect("reading").expect("the file");
        Files { meta: read(META), log: read(LOG), marks: read(MARKS) }
    }

    fn directory(&self) -> Emulator {
        let image = Emulator::new(EmulatorConfig::default());
        let log = image.create_log(LOG, "test").expect("copying");
        log.grow(self.log.len() as u64).expect("growing");
        log.store(0, &[IoSlice::new(&self.log)]).expect("storing");
        for (name, bytes) in [(META, &self.meta), (MARKS, &self.marks)] {
            image.replace_file(name, bytes, "test").expect("copying");
        }
        image
    }

    /// Number of segments whose headers have an earlier epoch than the marks record.
    fn behind(&self) -> usize {
        let id = Meta::decode(&self.meta, true).expect("the metadata").directory;
        let entries = self.marks[MARK_EPOCHS_AT..].chunks_exact(MARK_EPOCH_BYTES);
        let headers =
            self.log.chunks_exact(SEGMENT).map(|bytes| SegmentHeader::decode(bytes, true));
        let told = (0..).zip(entries).map(|(n, entry)| decode_epoch(entry, &id, n, true));
        let both = headers.zip(told);
        both.filter(|(header, told)| header.is_some_and(|header| Some(header.epoch) < *told))
            .count()
    }
}

fn filled(options: Options, documents: i64) -> Fixture {
    let fixture = Fixture::new(options);
    for id in 1..=documents {
        fixture.table.insert(&doc(0, id, &kilobyte(id as u64)));
    }
    fixture.engine.sync().expect("sync");
    fixture
}

/// The reason for which a directory is rejected; a repair does not change it.
fn refused(files: &Files, options: &Options) -> String {
    let image = files.directory();
    let error = PmLog::open(Arc::new(image.clone()), options.clone()).err().expect("a refusal");
    let repair = salvage(&image, options).expect_err("nothing is to be mended");
    assert!(error.message().ends_with(repair.message()), "{error}, but {repair}");
    assert!(Files::of(&image).log == files.log, "the repair has changed the log");
    let names = image.list().expect("listing");
    assert!(!names.iter().any(|name| name.starts_with("quarantine")), "{names:?}");
    let report = verify(&image, &mut |_, _| {}).expect("the check");
    assert!(report.damage.iter().any(|damage| damage.what.contains(repair.message())));
    assert!(error.message().contains("Cannot start server"), "{error}");
    error.message().to_owned()
}

/// Checks that without the mark file all documents are intact.
fn is_whole_without_marks(files: &Files, options: &Options, documents: usize) {
    let image = files.directory();
    image.remove_file(MARKS, "test").expect("removing");
    let engine = open(&image, options.clone());
    let table = Table::new(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
    table.attach();
    table.check();
    assert_eq!(table.records().len(), documents);
}

#[test]
fn a_copy_of_an_earlier_start_is_refused_with_the_remedy() {
    let fixture = filled(options(), 40);
    fixture.engine.close().expect("close");
    let copy = Files::of(&fixture.emulator);
    let fixture = fixture.reopen();
    fixture.table.insert(&doc(0, 1000, "later"));
    fixture.engine.close().expect("close");
    let files = Files { marks: Files::of(&fixture.emulator).marks, ..copy };
    let message = refused(&files, &options());
    assert!(message.contains("of an earlier start") && message.contains(WAY_OUT), "{message}");
    is_whole_without_marks(&files, &options(), 40);
}

#[test]
fn a_shorter_copy_is_refused_with_the_remedy() {
    let fixture = filled(options(), 40);
    let copy = Files::of(&fixture.emulator.process_death_image());
    for id in 41..=400 {
        fixture.table.insert(&doc(0, id, &kilobyte(id as u64)));
    }
    fixture.engine.sync().expect("sync");
    let later = Files::of(&fixture.emulator.process_death_image());
    let files = Files { marks: later.marks, ..copy.clone() };
    let message = refused(&files, &options());
    assert!(message.contains("truncate -s") && message.contains(WAY_OUT), "{message}");
    is_whole_without_marks(&files, &options(), 40);
    // If the log itself shows that it was longer, the mark file is not a reason.
    fixture.engine.close().expect("close");
    let closed = Files::of(&fixture.emulator);
    let mut files = Files { marks: copy.marks, ..closed };
    files.log.truncate(copy.log.len());
    let message = refused(&files, &options());
    assert!(message.contains("truncate -s") && !message.contains(WAY_OUT), "{message}");
}

#[test]
fn many_segments_older_than_their_marks_are_not_given_up() {
    let options = bounded(12);
    let fixture = filled(options.clone(), 100);
    let copy = Files::of(&fixture.emulator.process_death_image());
    for round in 0..40 {
        for id in 1..=20 {
            let text = kilobyte(round * 100 + id);
            fixture.table.update(RecordId(id), &doc(0, id as i64, &text));
        }
        fixture.engine.sync().expect("sync");
        fixture.engine.flush_round().expect("sealing");
        clean(&fixture.engine);
    }
    fixture.engine.sync().expect("sync");
    let later = Files::of(&fixture.emulator.process_death_image());
    let mut files = Files { marks: later.marks, ..copy };
    // With its original length, so that only headers differ.
    files.log.resize(later.log.len(), 0);
    assert!(files.behind() > 1, "{} segments", files.behind());
    let message = refused(&files, &options);
    assert!(message.contains("of different times") && message.contains(WAY_OUT), "{message}");
    is_whole_without_marks(&files, &options, 100);
}

#[test]
fn the_refusal_of_damaged_metadata_names_the_remedy() {
    let fixture = filled(options(), 1);
    let mut files = Files::of(&fixture.emulator.process_death_image());
    files.meta.fill(0);
    let error = PmLog::open(Arc::new(files.directory()), options()).err().expect("a refusal");
    assert!(error.message().contains(WAY_OUT), "{error}");
}
