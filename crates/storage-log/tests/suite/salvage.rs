//! Salvaging logs that cannot be followed. The loss is minimal and is reported.

use crate::common::{Fixture, SEGMENT_BYTES, bounded, dynamic, kilobyte, open, options};
use kauri_base::RecordId;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::Emulator;
use kauri_medium::Directory;
use kauri_storage::StorageEngine;
use kauri_storage_log::format::marks::{MARK_EPOCH_BYTES, MARK_EPOCHS_AT, encode_epoch};
use kauri_storage_log::format::meta::Meta;
use kauri_storage_log::format::record::{Kind, RecordHeader, Seed};
use kauri_storage_log::format::segment::{SegmentHeader, Trailer};
use kauri_storage_log::format::{RECORD_HEADER_BYTES, Stream};
use kauri_storage_log::{Mended, Options, PmLog, salvage, verify};
use std::io::IoSlice;
use std::sync::Arc;

const SEGMENT: usize = SEGMENT_BYTES as usize;
const DOCUMENTS: i64 = 300;

/// A directory with documents, a tenth of them moved by the cleaner.
fn filled(clean_shutdown: bool) -> (Emulator, Vec<u8>) {
    let fixture = Fixture::new(options());
    for id in 1..=DOCUMENTS {
        fixture.table.insert(&doc(0, id, &format!("<{id}>{}", kilobyte(id as u64))));
    }
    fixture.engine.sync().expect("sync");
    fixture.engine.flush_round().expect("sealing");
    if clean_shutdown {
        fixture.engine.close().expect("close");
    }
    let bytes = log_bytes(&fixture.emulator);
    (fixture.emulator.process_death_image(), bytes)
}

fn log_bytes(emulator: &Emulator) -> Vec<u8> {
    let log = emulator.open_log("pmlog.0").expect("the log");
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    bytes
}

/// The directory with these bytes of the log replaced.
fn with(whole: &Emulator, changes: &[(usize, &[u8])]) -> Emulator {
    let image = whole.process_death_image();
    let log = image.open_log("pmlog.0").expect("the log");
    for (at, bytes) in changes {
        log.store(*at as u64, &[IoSlice::new(bytes)]).expect("storing");
    }
    image
}

/// The segments with documents, by number and epoch.
fn segments(log: &[u8]) -> Vec<(usize, u64)> {
    let headers = log.chunks_exact(SEGMENT).map(|bytes| SegmentHeader::decode(bytes, true));
    let numbered = headers.enumerate();
    let used = numbered.filter_map(|(n, header)| Some((n, header?)));
    let used = used.filter(|(n, header)| {
        (header.stream as u32) < 16 && !records(log, *n, header.epoch).is_empty()
    });
    used.map(|(number, header)| (number, header.epoch)).collect()
}

/// A segment's puts: their offsets in the log, and their headers.
fn records(log: &[u8], segment: usize, epoch: u64) -> Vec<(usize, RecordHeader)> {
    let (seed, mut offset) = (Seed::new(segment as u32, epoch), 4096);
    let (mut found, bytes) = (Vec::new(), &log[segment * SEGMENT..(segment + 1) * SEGMENT]);
    while let Some(header) = bytes[offset as usize..].first_chunk() {
        let Some((header, _)) = RecordHeader::decode(header, seed, offset) else { break };
        if header.kind == Kind::Put {
            found.push((segment * SEGMENT + offset as usize, header));
        }
        offset += header.record_bytes();
    }
    found
}

/// Salvages a directory that cannot be opened. Returns the salvaged parts and the remaining documents.
fn mend(image: &Emulator) -> (Vec<Mended>, Vec<i64>) {
    let refused = PmLog::open(Arc::new(image.clone()), options());
    assert!(refused.is_err(), "it can be followed");
    let before = log_bytes(image);
    let mended = salvage(image, &options()).expect("salvaging");
    for place in &mended {
        let aside = image.read_file(&place.file).expect("reading").expect("the file");
        let at = place.damage.segment as usize * SEGMENT + place.damage.offset as usize;
        assert_eq!(aside, &before[at..at + aside.len()]);
    }
    let report = verify(image, &mut |_, _| {}).expect("the check");
    assert!(report.damage.iter().all(|damage| damage.current != Some(true)), "{report:?}");
    let engine = open(image, options());
    let table = Table::new(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
    table.attach();
    table.check();
    let left: Vec<i64> = table.records().keys().map(|id| id.0 as i64).collect();
    // The engine continues as any other.
    table.insert(&doc(0, 5000, "new"));
    engine.close().expect("close");
    drop((table, engine));
    let again = open(image, options());
    let table = Table::new(&dynamic(&again), 10, &[TableIndex::new(20, true, "u")]);
    table.attach();
    assert_eq!(table.records().len(), left.len() + 1);
    (mended, left)
}

fn all_but(lost: &[RecordId]) -> Vec<i64> {
    (1..=DOCUMENTS).filter(|id| !lost.contains(&RecordId(*id as u64))).collect()
}

#[test]
fn lost_headers_are_rewritten() {
    for clean_shutdown in [true, false] {
        let (whole, log) = filled(clean_shutdown);
        for (segment, epoch) in segments(&log) {
            let image = with(&whole, &[(segment * SEGMENT, &[0xEE; 4096])]);
            let (mended, left) = mend(&image);
            assert!(left == all_but(&[]), "segment {segment} of epoch {epoch}: {left:?}");
            assert!(mended.len() == 1 && !mended[0].lossy, "{mended:?}");
        }
    }
}

/// Without the repair, a header older than the mark file's epoch would be found at every start.
#[test]
fn a_segment_that_is_of_an_earlier_epoch_than_its_mark_is_given_up_once() {
    for (clean_shutdown, header_is_there) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        let (whole, log) = filled(clean_shutdown);
        let (segment, epoch) = segments(&log)[1];
        let changes: &[(usize, &[u8])] = &[(segment * SEGMENT, &[0xEE; 4096])];
        let image = with(&whole, if header_is_there { &[] } else { changes });
        let marked = epoch + 1000;
        mark(&image, segment as u32, marked);
        let held = records(&log, segment, epoch);
        let held: Vec<_> = held.iter().map(|(_, header)| RecordId(header.record)).collect();
        let (mended, left) = mend(&image);
        assert!(mended.len() == 1 && mended[0].lossy, "{} times: {:?}", mended.len(), mended[0]);
        assert_eq!(left, all_but(&held));
        let header = SegmentHeader::decode(&log_bytes(&image)[segment * SEGMENT..], true);
        assert!(header.is_some_and(|header| header.epoch > marked), "{header:?}");
    }
}

/// Records in the mark file that a segment was opened with this epoch.
fn mark(image: &Emulator, segment: u32, epoch: u64) {
    let read = |name| image.read_file(name).expect("reading").expect("the file");
    let meta = Meta::decode(&read("kauri.meta"), true).expect("the metadata");
    let mut marks = read("pmlog.marks");
    let at = MARK_EPOCHS_AT + segment as usize * MARK_EPOCH_BYTES;
    let entry = encode_epoch(&meta.directory, segment, epoch);
    marks[at..at + MARK_EPOCH_BYTES].copy_from_slice(&entry);
    image.replace_file("pmlog.marks", &marks, "test").expect("writing");
}

/// The newest segment may not be recorded anywhere. Without its header and its first record it looks like an
/// unused segment, and its epoch is free. Its other records must not be taken for new ones.
#[test]
fn records_of_a_lost_epoch_stay_lost() {
    let options = Options { mark_interval_bytes: u64::MAX, ..options() };
    let fixture = Fixture::new(options.clone());
    let text = |id: i64| format!("<{id:04}>{}", kilobyte(1));
    let mut id = 0;
    let mut insert = |table: &Table| {
        id += 1;
        table.insert(&doc(0, id, &text(id)))
    };
    let newest = |log: &[u8]| segments(log).into_iter().max_by_key(|(_, epoch)| *epoch);
    let used = |fixture: &Fixture| {
        fixture.engine.flush();
        newest(&log_bytes(&fixture.emulator)).map_or(0, |(segment, _)| segment)
    };
    while used(&fixture) < 2 {
        insert(&fixture.table);
    }
    let mut lost: Vec<RecordId> = (0..5).map(|_| insert(&fixture.table)).collect();
    fixture.engine.sync().expect("sync");
    let whole = fixture.emulator.process_death_image();
    let log = log_bytes(&whole);
    let (segment, epoch) = newest(&log).expect("a segment");
    let in_it = records(&log, segment, epoch);
    lost.insert(0, RecordId(in_it[0].1.record));
    assert!(in_it.iter().map(|(_, header)| RecordId(header.record)).eq(lost.clone()));
    let image = with(&whole, &[(segment * SEGMENT, &[0xEE; 4096 + 32])]);
    // Only the mark file records that the segment was in use.
    let refused = PmLog::open(Arc::new(image.clone()), options.clone()).err().expect("a refusal");
    assert!(refused.message().contains(&format!("segment {segment}: the header")), "{refused}");
    image.remove_file("pmlog.marks", "test").expect("removing");
    for inserted in 1..4 {
        let engine = open(&image, options.clone());
        let table = Table::new(&dynamic(&engine), 10, &[]);
        assert_eq!(table.insert(&doc(0, 5000, &text(5000))).0, lost[0].0 + inserted - 1);
        engine.flush();
        drop((table, engine));
        let engine = open(&image.process_death_image(), options.clone());
        let table = Table::new(&dynamic(&engine), 10, &[]);
        assert_eq!(table.records().len() as u64, lost[0].0 - 1 + inserted);
    }
}

/// Segments of both of the cleaner's streams. The lost header named the stream, which decides whether its
/// segment counts, because each recovery records the end of each stream.
#[test]
fn lost_headers_of_the_cleaner_are_rewritten() {
    let options = Options { sort_segments_min: 8, ..bounded(40) };
    let mut fixture = Fixture::new(options.clone());
    for id in 1..=900 {
        fixture.table.insert(&doc(0, id, &format!("<{id}>{}", kilobyte(id as u64))));
    }
    let (mut looked, mut last_is_old) = (0, 0);
    for round in 0..12i64 {
        for n in 0..150 {
            // A tenth changes all the time, the others sometimes.
            let id = if n % 3 > 0 { n * 7 % 90 } else { (n * 31 + round * 53) % 900 } + 1;
            let text = format!("<{id}, {n}, {round}>{}", kilobyte(id as u64));
            fixture.table.update(RecordId(id as u64), &doc(0, id, &text));
        }
        fixture.engine.sync().expect("sync");
        fixture.engine.flush_round().expect("sealing");
        (0..3).for_each(|_| _ = fixture.engine.clean_once().expect("cleaning"));
        fixture.engine.sync().expect("sync");
        // Recovery records the cut.
        fixture = fixture.reopen();
        let (log, docs) = (log_bytes(&fixture.emulator), fixture.contents());
        let whole = fixture.emulator.process_death_image();
        let headers = |log: &[u8]| {
            let headers = log.chunks_exact(SEGMENT).map(|bytes| SegmentHeader::decode(bytes, true));
            headers.flatten().collect::<Vec<_>>()
        };
        let of_cleaner = headers(&log).into_iter().filter(|header| header.stream.is_cleaners());
        let of_cleaner = of_cleaner
            .filter(|h| !records(&log, h.segment as usize, h.epoch).is_empty())
            .collect::<Vec<_>>();
        let newest = of_cleaner.iter().max_by_key(|header| header.epoch);
        last_is_old += usize::from(newest.is_some_and(|h| h.stream == Stream::CleanerOld));
        for header in &of_cleaner {
            let segment = header.segment as usize;
            let image = with(&whole, &[(segment * SEGMENT, &[0xEE; 4096])]);
            let mended = salvage(&image, &options).expect("salvaging");
            assert!(mended.len() == 1 && !mended[0].lossy, "{mended:?}");
            let made = SegmentHeader::decode(&log_bytes(&image)[segment * SEGMENT..], true);
            let made = made.map(|made| (made.epoch, made.stream));
            assert_eq!(made, Some((header.epoch, header.stream)));
            let engine = open(&image, options.clone());
            let table = Table::new(&dynamic(&engine), 10, &[]);
            let found = table.records().into_iter().map(|(id, record)| (id, record.doc));
            assert!(found.eq(docs.clone()), "round {round}, {header:?}");
            looked += 1;
        }
    }
    assert!(looked > 20 && last_is_old > 2, "{looked} segments, {last_is_old}");
}

#[test]
fn a_record_that_hides_the_next_ones_is_all_that_is_lost() {
    for clean_shutdown in [true, false] {
        let (whole, log) = filled(clean_shutdown);
        let mut lost_ever = 0;
        for (segment, epoch) in segments(&log) {
            let trailer = (segment + 1) * SEGMENT - 64;
            let sealed = Trailer::decode(&log[trailer..trailer + 64], SEGMENT_BYTES, true);
            if !clean_shutdown && sealed.is_none_or(|trailer| trailer.epoch != epoch) {
                continue;
            }
            let records = records(&log, segment, epoch);
            for (at, header) in records.iter().step_by(13) {
                // A damaged length, and no trailer with the right one.
                let image = with(&whole, &[(at + 4, &[0xFF; 3]), (trailer, &[0; 64])]);
                let (mended, left) = mend(&image);
                assert!(left == all_but(&[RecordId(header.record)]), "{left:?}");
                assert!(mended.len() == 1 && mended[0].lossy, "{mended:?}");
                let bytes = (header.record_bytes() - RECORD_HEADER_BYTES) as usize;
                assert_eq!(mended[0].damage.payload_len as usize, bytes);
                lost_ever += 1;
            }
        }
        assert!(lost_ever > 5, "{lost_ever}");
    }
}

#[test]
fn a_segment_without_intact_records_is_given_up() {
    let (whole, log) = filled(true);
    let (segment, epoch) = segments(&log)[1];
    let lost: Vec<RecordId> =
        records(&log, segment, epoch).iter().map(|(_, header)| RecordId(header.record)).collect();
    assert!(lost.len() > 20);
    let image = with(&whole, &[(segment * SEGMENT, &vec![0xAA; SEGMENT])]);
    let (mended, left) = mend(&image);
    assert!(left == all_but(&lost), "{left:?}");
    assert!(mended.len() == 1 && mended[0].lossy, "{mended:?}");
}

#[test]
fn a_log_that_can_be_followed_is_not_changed() {
    let (whole, log) = filled(true);
    assert_eq!(salvage(&whole, &options()).expect("salvaging"), []);
    assert!(log_bytes(&whole) == log);
    let names = whole.list().expect("the files");
    assert!(names.iter().all(|name| !name.starts_with("quarantine")), "{names:?}");
}
