//! What was synced and can't be read is reported, always: behind every sync of a workload bits flip, files
//! become shorter, segments are lost, swapped or of an earlier time. All that was synced is there then and
//! right, or the damage is found by whoever opens the directory and by whoever checks it.

use crate::common::{self, Fixture, SEGMENT_BYTES, dynamic, kilobyte, open, options, status};
use kauri_base::RecordId;
use kauri_medium::Directory;
use kauri_medium::emulator::{Emulator, EmulatorConfig};
use kauri_storage::StorageEngine;
use kauri_storage::conformance::inspect::Reader;
use kauri_storage::conformance::table::{Table, doc};
use kauri_storage_log::format::marks::MARK_EPOCHS_AT;
use kauri_storage_log::format::record::{RecordHeader, Seed};
use kauri_storage_log::format::segment::SegmentHeader;
use kauri_storage_log::format::{SEGMENT_HEADER_BYTES, Stream};
use kauri_storage_log::{PmLog, verify};
use kauri_testkit::Dice;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

const LOG: &str = "pmlog.0";
const META: &str = "kauri.meta";
const MARKS: &str = "pmlog.marks";
const SEGMENT: usize = SEGMENT_BYTES as usize;

/// The media that all of this is shown on.
fn media() -> [(&'static str, EmulatorConfig); 3] {
    let staging = EmulatorConfig { staging: true, ..EmulatorConfig::default() };
    [
        ("file", EmulatorConfig::default()),
        ("staging", staging),
        ("memory", EmulatorConfig::persistent_memory()),
    ]
}

type Documents = BTreeMap<RecordId, Vec<u8>>;

/// A directory's files.
#[derive(Clone)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    fn of(image: &Emulator) -> Files {
        let read = |name: String| {
            let bytes = image.read_file(&name).expect("reading").expect("the file");
            (name, bytes)
        };
        Files(image.list().expect("listing").into_iter().map(read).collect())
    }

    fn file(&mut self, name: &str) -> &mut Vec<u8> {
        self.0.get_mut(name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn flip(&mut self, name: &str, at: usize, bit: u8) {
        self.file(name)[at] ^= 1 << bit;
    }

    fn directory(&self, medium: EmulatorConfig) -> Emulator {
        let image = Emulator::new(medium);
        for (name, bytes) in &self.0 {
            if name != LOG {
                image.replace_file(name, bytes, "test").expect("copying");
                continue;
            }
            let log = image.create_log(name, "test").expect("copying");
            log.grow(bytes.len() as u64).expect("growing");
            log.store(0, &[IoSlice::new(bytes)]).expect("storing");
        }
        image
    }

    /// Where records are, by segment of the user stream, and what each is.
    fn records(&self) -> Vec<(usize, RecordHeader)> {
        let mut records = Vec::new();
        for (number, bytes) in self.0[LOG].chunks_exact(SEGMENT).enumerate() {
            let header = SegmentHeader::decode(bytes, true);
            let Some(header) = header.filter(|header| header.stream == Stream::User) else {
                continue;
            };
            let seed = Seed::new(header.segment, header.epoch);
            let mut offset = SEGMENT_HEADER_BYTES;
            while let Some(bytes) = bytes[offset as usize..].first_chunk() {
                let Some((record, _)) = RecordHeader::decode(bytes, seed, offset) else { break };
                records.push((number * SEGMENT + offset as usize, record));
                offset += record.record_bytes();
            }
        }
        records
    }
}

/// What came of a damaged directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
enum Found {
    /// All that was synced is there.
    Whole,
    /// Documents answer errors.
    Reported,
    /// The directory was refused.
    Refused,
}

/// Opens and checks a damaged directory: what was synced is there, or that it is not is reported by both.
fn judge(files: &Files, medium: EmulatorConfig, synced: &Documents, what: &str) -> Found {
    let check = verify(&files.directory(medium), &mut |_, _| {});
    let matters = check.map_or(1, |report| {
        report.damage.iter().filter(|damage| damage.current != Some(false)).count()
    });
    let found = match PmLog::open(Arc::new(files.directory(medium)), options()) {
        Ok(engine) => read(&Arc::new(engine), synced, what),
        Err(error) => {
            assert!(!error.message().is_empty(), "{what}");
            Found::Refused
        }
    };
    assert!(found == Found::Whole || matters > 0, "{what}: {found:?}, but the check is content");
    found
}

fn read(engine: &Arc<PmLog>, synced: &Documents, what: &str) -> Found {
    let table = Table::new(&dynamic(engine), 10, &[]);
    let mut found = Found::Whole;
    let store = table.store();
    let mut reader = Reader::new(&**engine);
    for (id, doc) in synced {
        match reader.get(&*store, *id) {
            Ok(Some(stored)) => assert!(stored.doc == *doc, "{what}: {id} is another document"),
            Ok(None) => panic!("{what}: {id} is gone in silence"),
            Err(_) => found = Found::Reported,
        }
    }
    found
}

/// A few small documents, synced; then the process died.
fn small(medium: EmulatorConfig) -> (Files, Documents) {
    let fixture = Fixture::on(Emulator::new(medium), options());
    for u in 0..6 {
        fixture.table.insert(&doc(0, u, "small"));
    }
    fixture.engine.sync().expect("sync");
    (Files::of(&fixture.emulator.process_death_image()), fixture.contents())
}

#[test]
fn every_flipped_bit_of_what_was_synced_is_found() {
    for (name, medium) in media() {
        let (files, synced) = small(medium);
        let records = files.records();
        let (first, (last, record)) = (records[0].0, records[records.len() - 1]);
        let end = last + record.record_bytes() as usize;
        let mut counts = BTreeMap::new();
        for (at, bit) in (first..end).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut files = files.clone();
            files.flip(LOG, at, bit);
            let found = judge(&files, medium, &synced, &format!("{name}: bit {bit} at {at}"));
            *counts.entry(found).or_insert(0) += 1;
        }
        println!("{name}: {counts:?}");
        assert!(counts[&Found::Reported] > 100, "{name}: {counts:?}");
    }
}
