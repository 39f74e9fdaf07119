//! A repair moves damaged records aside and reports them as lost. All other records remain.

use crate::common::{Fixture, SEGMENT_BYTES, dynamic, kilobyte, open, options};
use kauri_base::{CollectionId, RecordId};
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::Emulator;
use kauri_medium::Directory;
use kauri_storage::{StorageEngine, WriteUnit};
use kauri_storage_log::format::record::{RecordHeader, Seed};
use kauri_storage_log::format::segment::{SegmentHeader, Trailer};
use kauri_storage_log::{Options, repair, salvage, verify, verify_with};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

fn filled() -> (Emulator, Options) {
    let fixture = Fixture::new(options());
    for id in 1..=200 {
        fixture.table.insert(&doc(0, id, &format!("<{id}>{}", kilobyte(id as u64))));
    }
    fixture.engine.close().expect("close");
    (fixture.emulator, fixture.options)
}

fn log_bytes(emulator: &Emulator) -> Vec<u8> {
    let log = emulator.open_log("pmlog.0").expect("the log");
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    bytes
}

/// Changes a byte of the record whose text begins with this, at this offset behind its header.
fn damage(emulator: &Emulator, text: &str, at: usize) {
    damage_in(emulator, &log_bytes(emulator), text, at);
}

/// The same with the log's bytes given.
fn damage_in(emulator: &Emulator, bytes: &[u8], text: &str, at: usize) {
    let place = bytes.windows(text.len()).position(|window| window == text.as_bytes());
    // The header, and the part of the document before its text.
    let place = place.expect("the text is in the log") - 33 - 32 + at;
    let log = emulator.open_log("pmlog.0").expect("the log");
    log.store(place as u64, &[IoSlice::new(&[bytes[place] ^ 8])]).expect("storing");
}

#[test]
fn damaged_records_are_moved_aside_and_others_stay() {
    let (emulator, options) = filled();
    damage(&emulator, "<17>", 500);
    damage(&emulator, "<40>", 17);
    damage(&emulator, "<41>", 300);
    let directory: Arc<dyn Directory> = Arc::new(emulator.clone());
    let report = verify(&*directory, &mut |_, _| {}).expect("the check");
    assert_eq!(report.damage.len(), 3, "{:?}", report.damage);
    let parallel = verify_with(&*directory, true, 3, &|_, _| {}).expect("the check");
    assert_eq!(parallel, report);
    let before = log_bytes(&emulator);
    let repaired = repair(&directory, options.clone(), &report).expect("the repair");
    let lost: Vec<_> = repaired.lost.iter().filter_map(|(damage, _)| damage.record).collect();
    assert_eq!(lost, [RecordId(17), RecordId(40), RecordId(41)]);
    for (damage, file) in &repaired.lost {
        let aside = directory.read_file(file).expect("reading").expect("the file");
        let at = (damage.segment * SEGMENT_BYTES + damage.offset) as usize;
        assert_eq!(aside, &before[at..at + aside.len()], "{file}");
        assert!(aside.len() > 900);
    }
    // The indexes are built, which a damaged document would prevent.
    for _ in 0..2 {
        let engine = open(&emulator, options.clone());
        let table = Table::new(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
        table.attach();
        table.check();
        assert_eq!(table.records().len(), 197);
        assert!(table.get(RecordId(17)).is_none() && table.get(RecordId(18)).is_some());
        engine.close().expect("close");
    }
    let after = verify(&*directory, &mut |_, _| {}).expect("the check");
    assert!(after.damage.iter().all(|damage| damage.current == Some(false)), "{:?}", after.damage);
    let size = after.collections.iter().find(|size| size.id == CollectionId(10));
    assert_eq!(size.map(|size| size.records), Some(197));
}

/// Checks and repairs a directory. Returns the files moved aside.
fn repaired(image: &Emulator, options: &Options) -> BTreeMap<String, Vec<u8>> {
    let directory: Arc<dyn Directory> = Arc::new(image.clone());
    let report = verify(image, &mut |_, _| {}).expect("the check");
    repair(&directory, options.clone(), &report).expect("the repair");
    let names = image.list().expect("listing").into_iter();
    let aside = names.filter(|name| name.starts_with("quarantine."));
    aside.map(|name| (name.clone(), image.read_file(&name).unwrap().unwrap())).collect()
}

#[test]
fn pieces_are_moved_aside_once_and_never_lost() {
    let (emulator, options) = filled();
    damage(&emulator, "<17>", 500);
    let damaged = || emulator.process_death_image();
    let image = damaged();
    let first = image.events();
    let aside = repaired(&image, &options);
    let [(name, bytes)] = &aside.clone().into_iter().collect::<Vec<_>>()[..] else {
        panic!("{:?}", aside.keys());
    };
    // Wherever the first repair dies, the second one has the same result.
    for at in first..=image.events() {
        let again = image.process_death_at(at, usize::MAX);
        let event = image.describe_event(at).unwrap_or_default();
        assert!(repaired(&again, &options) == aside, "died before {event}");
    }
    // Another file with the same name remains, and so do later ones.
    let mut aside = aside.clone();
    for n in 2..4 {
        let last = aside.values_mut().last().expect("a file");
        last[100] ^= n as u8;
        aside.insert(format!("{name}.{n}"), bytes.clone());
        for round in 0..2 {
            let image = damaged();
            for (name, bytes) in aside.iter().take(n - 1 + round) {
                image.replace_file(name, bytes, "test").expect("a file");
            }
            let found = repaired(&image, &options);
            assert!(found == aside, "{:?}, not {:?}", found.keys(), aside.keys());
        }
    }
}

#[test]
fn damage_to_dead_records_is_no_loss() {
    let (emulator, options) = filled();
    let engine = open(&emulator, options.clone());
    let table = Table::new(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
    table.attach();
    table.update(RecordId(17), &doc(0, 17, "new"));
    engine.close().expect("close");
    drop((table, engine));
    damage(&emulator, "<17>", 500);
    let directory: Arc<dyn Directory> = Arc::new(emulator.clone());
    let report = verify(&*directory, &mut |_, _| {}).expect("the check");
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    let repaired = repair(&directory, options, &report).expect("the repair");
    assert!(repaired.lost.is_empty());
}

/// The CRC is right: the record was written with this content.
#[test]
fn invalid_documents_are_reported_and_moved_aside() {
    let fixture = Fixture::new(options());
    fixture.table.insert(&doc(0, 1, "whole"));
    let mut unit = WriteUnit::new();
    unit.insert(CollectionId(10), &b"this is no document"[..]);
    fixture.engine.commit(&mut unit).expect("commit");
    fixture.engine.close().expect("close");
    let (emulator, options) = (fixture.emulator, fixture.options);
    let report = verify(&emulator, &mut |_, _| {}).expect("the check");
    let [damage] = &report.damage[..] else { panic!("{:?}", report.damage) };
    assert_eq!((damage.record, damage.current), (Some(RecordId(2)), Some(true)), "{damage:?}");
    assert!(damage.what.contains("not a document"), "{damage:?}");
    let aside = repaired(&emulator, &options);
    assert!(aside.values().any(|bytes| bytes.windows(4).any(|window| window == b"this")));
    let engine = open(&emulator, options);
    let table = Table::new(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
    table.attach();
    assert_eq!(table.records().len(), 1);
}

/// The next server must know whether the last one shut down cleanly.
#[test]
fn a_check_keeps_the_shutdown_state() {
    for ended_in_order in [true, false] {
        let fixture = Fixture::new(options());
        fixture.table.insert(&doc(0, 1, "text"));
        if ended_in_order {
            fixture.engine.close().expect("close");
        }
        let (emulator, options) = (fixture.emulator, fixture.options);
        drop((fixture.engine, fixture.table));
        let image = emulator.process_death_image();
        let looks: [&dyn Fn(); 2] = [
            &|| assert_eq!(verify(&image, &mut |_, _| {}).expect("the check").damage, []),
            &|| assert_eq!(salvage(&image, &options).expect("nothing to mend"), []),
        ];
        for look in looks {
            look();
            let lock = image.lock().expect("the lock");
            assert_eq!(lock.was_unclean(), !ended_in_order);
            if ended_in_order {
                lock.release_clean().expect("giving it back");
            }
        }
    }
}

#[test]
fn all_damage_to_a_segment_without_a_summary_is_reported() {
    let (emulator, options) = filled();
    damage(&emulator, "<17>", 500);
    damage(&emulator, "<19>", 300);
    let bytes = log_bytes(&emulator);
    let trailer = &bytes[SEGMENT_BYTES as usize - 64..][..64];
    let trailer = Trailer::decode(trailer, SEGMENT_BYTES, true).expect("a trailer");
    let log = emulator.open_log("pmlog.0").expect("the log");
    log.store(u64::from(trailer.summary_offset), &[IoSlice::new(&[0xa5; 64])]).expect("storing");
    let report = verify(&emulator, &mut |_, _| {}).expect("the check");
    let current = report.damage.iter().filter(|damage| damage.current == Some(true));
    let records: Vec<_> = current.filter_map(|damage| damage.record).collect();
    assert_eq!(records, [RecordId(17), RecordId(19)], "{:?}", report.damage);
    assert!(report.damage.iter().any(|damage| damage.what.contains("the summary is damaged")));
    assert_eq!(repaired(&emulator, &options).len(), 2);
}

/// A valid record, where the segment's summary names another one.
#[test]
fn records_that_contradict_the_summary_are_reported() {
    let (emulator, options) = filled();
    let bytes = log_bytes(&emulator);
    let at = bytes.windows(4).position(|window| window == b"<17>").expect("the text") - 33 - 32;
    let (number, offset) = (at as u32 / SEGMENT_BYTES, at as u32 % SEGMENT_BYTES);
    let segment = SegmentHeader::decode(&bytes[at - offset as usize..], true).expect("a header");
    let seed = Seed::new(number, segment.epoch);
    let header = bytes[at..].first_chunk().expect("a header");
    let (header, _) = RecordHeader::decode(header, seed, offset).expect("a record");
    assert_eq!(header.record, 17);
    let other = RecordHeader { record: 1017, ..header }.encode(seed, offset).0;
    let log = emulator.open_log("pmlog.0").expect("the log");
    log.store(at as u64, &[IoSlice::new(&other)]).expect("storing");
    let report = verify(&emulator, &mut |_, _| {}).expect("the check");
    let [damage] = &report.damage[..] else { panic!("{:?}", report.damage) };
    assert!(damage.what.contains("another record"), "{damage:?}");
    // The engine follows the summary and does not find the record.
    assert_eq!((damage.record, damage.current), (Some(RecordId(17)), Some(true)), "{damage:?}");
    let aside = repaired(&emulator, &options);
    let [aside] = &aside.into_values().collect::<Vec<_>>()[..] else { panic!("one file") };
    assert!(aside.starts_with(&other) && aside.windows(4).any(|window| window == b"<17>"));
    let engine = open(&emulator, options);
    let table = Table::new(&dynamic(&engine), 10, &[TableIndex::new(20, true, "u")]);
    table.attach();
    table.check();
    assert!(table.get(RecordId(17)).is_none() && table.get(RecordId(18)).is_some());
    assert_eq!(table.records().len(), 199);
}

#[test]
fn a_check_reports_the_use_of_space() {
    let (emulator, _) = filled();
    let report = verify_with(&emulator, false, 2, &|_, _| {}).expect("the check");
    assert!(report.damage.is_empty() && report.records == 0, "nothing but summaries was read");
    let live: u64 = report.extents.iter().map(|extent| extent.live).sum();
    assert!(live > 200 * 1000 && live < 200 * 1200, "{live}");
    let size = report.collections.iter().find(|size| size.id == CollectionId(10));
    assert_eq!(size.map(|size| size.records), Some(200));
    assert!(report.segments_opened >= report.extents.len() as u64);
}

/// Segments are read in pieces, and records span the ends of pieces.
#[test]
fn damage_is_found_wherever_pieces_end() {
    let fixture =
        Fixture::new(Options { segment_bytes: 8 << 20, cache_bytes: 64 << 20, ..options() });
    let text = |id: usize| {
        // The last one is longer than a piece.
        let len = if id == 8 { 3 << 20 } else { 1_200_007 + 1001 * id };
        let mut text = format!("<{id}>");
        text.extend((0..len).map(|i| char::from(b'a' + (i * i / 7 % 23) as u8)));
        text
    };
    for id in 1..=8 {
        fixture.table.insert(&doc(0, id, &text(id as usize)));
    }
    fixture.engine.close().expect("close");
    let emulator = fixture.emulator;
    let whole = verify_with(&emulator, true, 2, &|_, _| {}).expect("the check");
    assert!(whole.damage.is_empty() && whole.bytes > 11_000_000, "{:?}", whole.damage);
    let bytes = log_bytes(&emulator);
    for id in 1..=8 {
        // The beginning of one and the end of the next one.
        let at = if id % 2 == 0 { text(id).len() } else { 40 };
        damage_in(&emulator, &bytes, &format!("<{id}>"), at);
    }
    let report = verify_with(&emulator, true, 2, &|_, _| {}).expect("the check");
    let records: Vec<_> = report.damage.iter().map(|damage| damage.record).collect();
    assert!(records.iter().copied().eq((1..=8).map(|id| Some(RecordId(id)))), "{records:?}");
}
