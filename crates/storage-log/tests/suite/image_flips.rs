//! Every flipped bit in the metadata of index images, and many in their entries. The directory check reports
//! them as harmless, and no index changes.

use crate::common::{self, SEGMENT_BYTES, dynamic, open, options};
use kauri_conformance::inspect;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::Emulator;
use kauri_medium::Directory;
use kauri_storage_log::format::record::{RecordHeader, Seed};
use kauri_storage_log::format::segment::{HEADER_COPY_AT, HEADER_END, SegmentHeader, Trailer};
use kauri_storage_log::format::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Stream, TRAILER_BYTES};
use kauri_storage_log::verify;
use kauri_testkit::Dice;
use std::io::IoSlice;
use std::sync::atomic::{AtomicUsize, Ordering};

const SEGMENT: usize = SEGMENT_BYTES as usize;
/// Significant bytes of a segment's header.
const HEADER_BYTES: usize = HEADER_END;
/// Number of flipped bits of entries.
const ENTRY_FLIPS: usize = 3000;

fn index() -> TableIndex {
    TableIndex::new(20, true, "u")
}

fn filled() -> (Emulator, Vec<u8>) {
    let emulator = common::emulator();
    let engine = open(&emulator, options());
    let table = Table::create(&dynamic(&engine), 10, &[index()]);
    for u in 0..1500 {
        table.insert(&doc(0, u * 7919 % 1500, "text"));
    }
    engine.close().expect("close");
    drop((engine, table));
    let image = emulator.process_death_image();
    let log = image.open_log("pmlog.0").expect("the log");
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    (emulator.process_death_image(), bytes)
}

/// Offsets of the bytes to flip: all that describe the image's segments, and those of its entries.
fn places(log: &[u8]) -> (Vec<usize>, Vec<usize>) {
    let (mut describing, mut entries) = (Vec::new(), Vec::new());
    for (number, bytes) in log.chunks_exact(SEGMENT).enumerate() {
        let start = number * SEGMENT;
        let header = SegmentHeader::decode(bytes, true);
        let Some(header) = header.filter(|header| header.stream == Stream::Image) else { continue };
        for copy in [0, HEADER_COPY_AT] {
            describing.extend(start + copy..start + copy + HEADER_BYTES);
        }
        let at = SEGMENT - TRAILER_BYTES as usize;
        let trailer = Trailer::decode(&bytes[at..], SEGMENT_BYTES, true).expect("a trailer");
        let summary = trailer.summary_offset as usize;
        describing.extend(start + summary..start + summary + trailer.summary_bytes as usize);
        describing.extend(start + at..start + SEGMENT);
        let seed = Seed::new(header.segment, header.epoch);
        let mut offset = SEGMENT_HEADER_BYTES;
        while let Some(bytes) = bytes[offset as usize..].first_chunk() {
            let Some((header, _)) = RecordHeader::decode(bytes, seed, offset) else { break };
            let payload = start + (offset + RECORD_HEADER_BYTES) as usize;
            describing.extend(start + offset as usize..payload);
            entries.extend(payload..payload + header.payload_len as usize);
            offset += header.record_bytes();
        }
    }
    (describing, entries)
}

#[test]
fn flipped_bits_of_images_are_reported_and_harmless() {
    let (whole, log) = filled();
    let (describing, entries) = places(&log);
    assert!(
        describing.len() > 500 && entries.len() > 3000,
        "{} {}",
        describing.len(),
        entries.len()
    );
    let dice = Dice::new(1);
    let mut flips: Vec<(usize, u8)> =
        describing.into_iter().flat_map(|at| (0..8).map(move |bit| (at, bit))).collect();
    flips.extend((0..ENTRY_FLIPS).map(|_| {
        let at = entries[dice.below(entries.len() as u64) as usize];
        (at, dice.below(8) as u8)
    }));
    let expected = {
        let engine = open(&whole.process_death_image(), options());
        let table = Table::new(&dynamic(&engine), 10, &[index()]);
        table.attach();
        inspect::entries(&*engine, index().spec.id).expect("entries")
    };
    let next = AtomicUsize::new(0);
    let look = || {
        while let Some((at, bit)) = flips.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
            let image = whole.process_death_image();
            let medium = image.open_log("pmlog.0").expect("the log");
            medium.store(at as u64, &[IoSlice::new(&[log[at] ^ 1 << bit])]).expect("storing");
            let place = format!("bit {bit} of byte {at}");
            let report = verify(&image.process_death_image(), &mut |_, _| {}).expect("the check");
            assert_eq!(report.damage, [], "{place}");
            assert!(!report.images.is_empty(), "{place} went unnoticed");
            assert!(report.images.iter().all(|damage| damage.current == Some(false)));
            // Opening is slower than checking, and most flips are equivalent to it.
            if at % 16 == 0 {
                let engine = open(&image, options());
                let table = Table::new(&dynamic(&engine), 10, &[index()]);
                table.attach();
                let found = inspect::entries(&*engine, index().spec.id).expect("entries");
                assert!(found == expected, "{place}");
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(look);
        look();
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
