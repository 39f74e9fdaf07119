//! Random contents of the medium cause no panic, no endless loop and no oversized allocation. Half of the runs
//! disable the CRC checks, so that the decoders see invalid input.

#[allow(dead_code, reason = "this test uses a part")]
#[path = "suite/common.rs"]
mod common;

use common::{Fixture, dynamic, emulator, kilobyte, options};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_conformance::inspect;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::Emulator;
use kauri_medium::Directory;
use kauri_storage::{OpKind, StorageEngine, WriteUnit};
use kauri_storage_log::format::meta::Meta;
use kauri_storage_log::format::record::{CommitPayload, RecordHeader, Seed};
use kauri_storage_log::format::segment::{Horizon, SegmentHeader, Trailer};
use kauri_storage_log::format::summary::SummaryReader;
use kauri_storage_log::{PmLog, verify};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Duration in seconds; KAURI_FUZZ_SECONDS overrides it.
const SECONDS: u64 = 4;

const CHECKS: [&str; 9] = [
    "marks.crc",
    "marks.epoch.crc",
    "meta.crc",
    "segment.header.crc",
    "segment.summary.crc",
    "record.header.crc",
    "record.payload.crc",
    "read.header.crc",
    "read.payload.crc",
];

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

fn time() -> Duration {
    Duration::from_secs(number_from_environment("KAURI_FUZZ_SECONDS").unwrap_or(SECONDS))
}

/// The files of a directory with every kind of record that a log may have.
fn original(close: bool) -> Vec<(String, Vec<u8>)> {
    let fixture = Fixture::new(common::bounded(16));
    let other = Table::create(&dynamic(&fixture.engine), 11, &[]);
    for u in 0..150 {
        fixture.table.insert(&doc(0, u, &kilobyte(u as u64)));
        other.insert(&doc(1, u, ""));
        if u % 3 == 0 {
            fixture.table.update(RecordId(1 + u as u64 / 2), &doc(2, 1000 + u, &kilobyte(1)));
        }
        if u % 20 == 19 {
            fixture.table.delete(RecordId(1 + u as u64 / 3));
            fixture.engine.sync().expect("sync");
            fixture.engine.flush_round().expect("sealing");
            common::clean(&fixture.engine);
        }
    }
    let mut unit = WriteUnit::new();
    unit.push(other.id, RecordId(0), OpKind::DropStore);
    for u in 0..10 {
        fixture.table.insert_in(&mut unit, &doc(3, 5000 + u, "in a unit of many"));
    }
    other.commit(&mut unit);
    drop(other);
    if close {
        fixture.engine.close().expect("close");
    } else {
        fixture.engine.flush();
    }
    let emulator = fixture.emulator.clone();
    drop(fixture);
    let read = |name: String| {
        let bytes = match emulator.open_log(&name) {
            Ok(log) => {
                let mut bytes = vec![0; log.len() as usize];
                log.read(0, &mut bytes).expect("reading");
                bytes
            }
            Err(_) => emulator.read_file(&name).expect("reading").unwrap_or_default(),
        };
        (name, bytes)
    };
    emulator.list().expect("listing").into_iter().map(read).collect()
}

fn mutate(bytes: &mut Vec<u8>, random: &SeededRandom) {
    let dice = |sides: usize| random.next_u64() as usize % sides.max(1);
    for _ in 0..1 + dice(6) {
        // Mostly positions where headers, records and trailers begin.
        let anywhere = dice(bytes.len());
        let at = match dice(3) {
            0 => anywhere,
            1 => anywhere / 4096 * 4096 + dice(200),
            _ => (anywhere / 65536 * 65536 + 65536).saturating_sub(1 + dice(300)),
        };
        let at = at.min(bytes.len().saturating_sub(16));
        let values = [0, 1, 0xff, 0x7f, 0x80, random.next_u64() as u8];
        match dice(5) {
            0 => bytes[at] ^= 1 << dice(8),
            1 => bytes[at] = values[dice(values.len())],
            2 => bytes[at..at + 8].copy_from_slice(&random.next_u64().to_le_bytes()),
            3 => bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes()),
            _ => {
                let from = dice(bytes.len() - 16);
                bytes.copy_within(from..from + 16, at);
            }
        }
    }
    if dice(20) == 0 {
        bytes.truncate(dice(bytes.len()));
    }
}

fn image(files: &[(String, Vec<u8>)], random: &SeededRandom) -> Emulator {
    let image = emulator();
    for (name, bytes) in files {
        let mut bytes = bytes.clone();
        let is_log = name.starts_with("pmlog");
        if is_log || random.next_u64().is_multiple_of(3) {
            mutate(&mut bytes, random);
        }
        if is_log {
            let log = image.create_log(name, "test").expect("a log");
            log.grow(bytes.len() as u64).expect("growing");
            log.store(0, &[IoSlice::new(&bytes)]).expect("storing");
        } else {
            image.replace_file(name, &bytes, "test").expect("writing");
        }
    }
    image
}

fn open_and_use(image: &Emulator) {
    // `damage.rs` checks that the result is right or an error; here it only has to return.
    let _ = verify(image, &mut |_, _| {});
    let Ok(engine) = PmLog::open(Arc::new(image.clone()), options()) else { return };
    let engine: Arc<dyn StorageEngine> = Arc::new(engine);
    for id in engine.stores() {
        let _ = inspect::records(&*engine, id);
        let index = TableIndex::new(20 + id.0, false, "u");
        let _ = engine.attach_index(id, index.spec, index.generator);
        let mut unit = WriteUnit::new();
        unit.insert(id, doc(1, 1, "new"));
        let _ = engine.commit(&mut unit);
    }
    let _ = engine.sync();
}

fn peak_resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn damaged_directories() {
    let originals = [original(true), original(false)];
    let started = Instant::now();
    let first = number_from_environment("KAURI_SEED").unwrap_or(1);
    let mut runs = 0;
    while started.elapsed() < time() || runs < 50 {
        let seed = first + runs;
        let random = SeededRandom::new(seed);
        let image = image(&originals[seed as usize % 2], &random);
        if seed.is_multiple_of(4) || seed % 4 == 3 {
            CHECKS.iter().for_each(|check| image.faults().disable(check));
        }
        let begun = Instant::now();
        let result = std::panic::catch_unwind(|| open_and_use(&image));
        assert!(result.is_ok(), "KAURI_SEED={seed} panics");
        assert!(begun.elapsed() < Duration::from_secs(20), "KAURI_SEED={seed} takes for ever");
        runs += 1;
    }
    let peak = peak_resident_kb();
    println!("{runs} directories, KAURI_SEED={first} and up; at most {peak} KB of memory");
    assert!(peak < 1 << 20, "{peak} KB of memory");
}

#[test]
fn decoders_take_any_bytes() {
    let seed = number_from_environment("KAURI_SEED").unwrap_or(5);
    println!("KAURI_SEED={seed}");
    let random = SeededRandom::new(seed);
    let started = Instant::now();
    let mut decoded = 0;
    while started.elapsed() < time() / 4 {
        let length = random.next_u64() as usize % 600;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        for magic in [b"KAURISEG", b"KAURISUM", b"KAURIDIR"] {
            if let Some(start) = bytes.get_mut(..8) {
                start.copy_from_slice(magic);
            }
            decoded += usize::from(SegmentHeader::decode(&bytes, false).is_some());
            decoded += usize::from(Meta::decode(&bytes, false).is_ok());
            let trailer = bytes.get(..64).unwrap_or(&[]);
            decoded += usize::from(Trailer::decode(trailer, 1 << 20, true).is_some());
        }
        if let Some(header) = bytes.first_chunk() {
            assert_eq!(RecordHeader::decode(header, Seed::new(1, 1), 4096), None);
            if let Some(header) = RecordHeader::decode_checked(header) {
                assert!(header.record_bytes() >= 32);
            }
        }
        decoded += usize::from(CommitPayload::decode(&bytes).is_some());
        decoded += usize::from(Horizon::decode(&bytes).is_some());
        let reader = SummaryReader::new(&bytes, random.next_u64() as u32, 1 << 20);
        assert!(reader.map(|entry| entry.offset).is_sorted_by(|a, b| a < b));
    }
    assert!(decoded > 0);
}
