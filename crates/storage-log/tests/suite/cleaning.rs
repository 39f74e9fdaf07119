//! The cleaner frees space, loses no record and revives no deleted record.

use crate::common::{Fixture, SEGMENT_BYTES, bounded, clean, dynamic, kilobyte, options, status};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_conformance::table::{Table, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::{Directory, IoKind};
use kauri_storage::{CollectionId, OpKind, StorageEngine, StorageError, WriteUnit};
use kauri_storage_log::Options;
use std::collections::BTreeMap;

/// Inserts this many documents of a kilobyte.
fn fill(table: &Table, documents: i64) -> BTreeMap<RecordId, Vec<u8>> {
    let new = |u| doc(0, u, &kilobyte(u as u64));
    (0..documents).map(|u| (table.insert(&new(u)), new(u))).collect()
}

/// Overwrites a document of [`fill`].
fn overwrite(
    table: &Table,
    model: &mut BTreeMap<RecordId, Vec<u8>>,
    id: RecordId,
    (round, random): (i64, &SeededRandom),
) {
    let new = doc(round, id.0 as i64 - 1, &kilobyte(random.next_u64()));
    table.update(id, &new);
    model.insert(id, new);
}

#[test]
fn a_bounded_log_takes_many_times_its_size_in_updates() {
    let mut fixture = Fixture::new(bounded(24));
    let random = SeededRandom::new(7);
    let mut model = fill(&fixture.table, 700);
    for round in 0..4 {
        for _ in 0..3000 {
            let id = RecordId(1 + random.next_u64() % 700);
            overwrite(&fixture.table, &mut model, id, (round, &random));
        }
        assert_eq!(fixture.contents(), model);
        fixture.engine.flush();
        fixture = fixture.reopen();
        assert_eq!(fixture.contents(), model, "round {round}");
        fixture.table.check();
    }
    assert!(fixture.engine.space().used <= 24 * u64::from(SEGMENT_BYTES));
}

/// The fuller the log, the less space each victim frees; this must not reject an update.
#[test]
fn updates_of_a_log_with_room_are_never_refused() {
    const SEGMENTS: u32 = 60;
    let fixture = Fixture::new(bounded(SEGMENTS));
    let random = SeededRandom::new(5);
    let full = i64::from(SEGMENTS * SEGMENT_BYTES) / 100 * 85;
    let mut documents = 0;
    while status(&fixture.engine, "liveBytes") < full {
        fixture.table.insert(&doc(0, documents, &kilobyte(documents as u64)));
        documents += 1;
    }
    for round in 0..20_000 {
        let id = 1 + random.next_u64() % documents as u64;
        fixture.table.update(RecordId(id), &doc(round, id as i64 - 1, &kilobyte(round as u64)));
    }
    assert_eq!(fixture.table.records().len() as i64, documents);
    fixture.table.check();
}

#[test]
fn a_full_log_refuses_documents_and_admits_deletes() {
    let mut fixture = Fixture::new(bounded(16));
    for round in 0..3 {
        let mut inserted = 0;
        let refused = loop {
            match fixture.table.try_insert(&doc(round, inserted, &kilobyte(1))) {
                Ok(_) => inserted += 1,
                Err(error) => break error,
            }
            assert!(inserted < 2000, "16 segments of 64 KB don't hold that");
        };
        assert_eq!(refused, StorageError::OutOfDiskSpace);
        assert!(inserted > 500, "only {inserted} documents fitted");
        let records = fixture.table.records();
        assert_eq!(records.len() as i64, inserted);
        for id in records.keys() {
            fixture.table.delete(*id);
        }
        assert!(fixture.table.records().is_empty());
        fixture.engine.flush();
        fixture = fixture.reopen();
        assert!(fixture.table.records().is_empty());
        fixture.table.check();
    }
}

#[test]
fn updates_in_a_full_log_are_refused_and_change_nothing() {
    let fixture = Fixture::new(bounded(16));
    let mut inserted = 0;
    while fixture.table.try_insert(&doc(0, inserted, &kilobyte(1))).is_ok() {
        inserted += 1;
    }
    let before = fixture.contents();
    let mut refused = 0;
    for id in 1..=200 {
        let record = fixture.table.record(RecordId(id));
        let mut unit = WriteUnit::new();
        fixture.table.update_in(&mut unit, RecordId(id), &record, &doc(1, id as i64 - 1, "x"));
        match fixture.engine.commit(&mut unit) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, StorageError::OutOfDiskSpace);
                refused += 1;
                assert_eq!(fixture.table.record(RecordId(id)), record);
            }
        }
    }
    assert!(refused > 0);
    assert_eq!(fixture.contents().len(), before.len());
    fixture.table.check();
}

#[test]
fn deleted_records_stay_deleted_through_cleanings_and_restarts() {
    let mut fixture = Fixture::new(bounded(32));
    let random = SeededRandom::new(3);
    let mut model: BTreeMap<RecordId, Vec<u8>> = BTreeMap::new();
    let mut u = 0;
    for round in 0..6 {
        for _ in 0..2500 {
            let pick = random.next_u64();
            let known = model.keys().nth((pick >> 8) as usize % model.len().max(1)).copied();
            match (pick % 4, known) {
                (0, Some(id)) if model.len() > 300 => {
                    fixture.table.delete(id);
                    model.remove(&id);
                }
                (1, Some(id)) => {
                    u += 1;
                    let new = doc(round, u, &kilobyte(pick));
                    fixture.table.update(id, &new);
                    model.insert(id, new);
                }
                _ if model.len() < 600 => {
                    u += 1;
                    let new = doc(round, u, &kilobyte(pick)[..(pick >> 20) as usize % 900]);
                    model.insert(fixture.table.insert(&new), new);
                }
                _ => {}
            }
        }
        fixture.engine.sync().expect("sync");
        clean(&fixture.engine);
        assert_eq!(fixture.contents(), model);
        fixture = fixture.reopen();
        assert_eq!(fixture.contents(), model, "round {round}");
        fixture.table.check();
    }
    assert!(status(&fixture.engine, "liveBytes") < 32 * i64::from(SEGMENT_BYTES));
}

#[test]
fn tombstones_end_when_no_older_record_remains() {
    let mut fixture = Fixture::new(options());
    for u in 0..2000 {
        fixture.table.insert(&doc(0, u, &kilobyte(u as u64)));
    }
    for id in 1..=2000 {
        fixture.table.delete(RecordId(id));
    }
    let tombstones = status(&fixture.engine, "liveBytes");
    assert!(tombstones >= 2000 * 32);
    // Segments are reused only when others are full, and only then their records are lost.
    for round in 0..3 {
        for u in 0..2000 {
            let id = fixture.table.insert(&doc(round, u, &kilobyte(u as u64)));
            fixture.table.delete(id);
            if u % 100 == 0 {
                fixture.engine.sync().expect("sync");
                fixture.engine.flush_round().expect("sealing");
                clean(&fixture.engine);
            }
        }
    }
    let left = status(&fixture.engine, "liveBytes");
    assert!(left < tombstones, "{left} bytes are live in an empty collection");
    fixture.engine.sync().expect("sync");
    fixture = fixture.reopen();
    assert!(fixture.table.records().is_empty());
    assert!(status(&fixture.engine, "liveBytes") <= left);
}

#[test]
fn dropped_stores_give_their_space_back_and_stay_dropped() {
    let mut fixture = Fixture::new(bounded(20));
    for round in 1..12 {
        let other = Table::create(&dynamic(&fixture.engine), 100 + round, &[]);
        for i in 0..500 {
            other.insert(&doc(i, i, &kilobyte(i as u64)));
        }
        let mut unit = WriteUnit::new();
        unit.push(other.id, RecordId(0), OpKind::DropStore);
        other.commit(&mut unit);
        fixture.table.insert(&doc(i64::from(round), i64::from(round), ""));
        drop(other);
        if round % 3 == 0 {
            fixture.engine.flush();
            fixture = fixture.reopen();
        }
        assert_eq!(fixture.engine.stores(), [CollectionId(10)]);
        assert_eq!(fixture.table.records().len() as u32, round);
    }
    fixture.table.check();
}

#[test]
fn restarts_do_not_accumulate_segments() {
    let mut fixture = Fixture::new(options());
    for round in 0..40 {
        fixture.table.insert(&doc(round, round, &kilobyte(round as u64)));
        fixture.engine.sync().expect("sync");
        clean(&fixture.engine);
        fixture = fixture.reopen();
    }
    clean(&fixture.engine);
    let used = fixture.engine.space().used / u64::from(SEGMENT_BYTES);
    assert!(used <= 14, "{used} segments for 40 documents");
    assert_eq!(fixture.table.records().len(), 40);
}

#[test]
fn records_that_fill_half_a_segment_are_not_moved_for_ever() {
    for segments in [12, 64] {
        let fixture = Fixture::new(bounded(segments));
        let large = "x".repeat(SEGMENT_BYTES as usize / 2);
        let mut inserted = 0;
        while inserted < 20 && fixture.table.try_insert(&doc(0, inserted, &large)).is_ok() {
            inserted += 1;
        }
        fixture.engine.sync().expect("sync");
        fixture.engine.flush_round().expect("sealing");
        clean(&fixture.engine);
        let moved = status(&fixture.engine, "cleaner.movedRecords");
        assert!(moved <= 3 * inserted, "{moved} moves of {inserted} records");
        assert_eq!(fixture.table.records().len() as i64, inserted);
        if segments == 12 {
            let refused = fixture.table.try_insert(&doc(0, 1000, &large));
            assert_eq!(refused, Err(StorageError::OutOfDiskSpace));
        } else {
            assert_eq!(inserted, 20);
        }
    }
}

/// A few records change often, most change rarely. The cleaner moves the latter once, also after a crash.
#[test]
fn rarely_changed_records_are_separated() {
    let mut fixture = Fixture::new(bounded(64));
    let random = SeededRandom::new(5);
    let mut model = fill(&fixture.table, 2400);
    for round in 1..600 {
        for _ in 0..20 {
            // One update in ten goes to any record, the others to one in twenty.
            let of = if random.next_u64().is_multiple_of(10) { 2400 } else { 120 };
            let id = RecordId(1 + random.next_u64() % of);
            overwrite(&fixture.table, &mut model, id, (round, &random));
        }
        fixture.engine.flush_round().expect("sealing");
        clean(&fixture.engine);
    }
    let (all, old) = ("cleaner.movedBytes", "cleaner.movedBytesOld");
    let (all, old) = (status(&fixture.engine, all), status(&fixture.engine, old));
    println!("{all} bytes were moved, {old} of them to the old");
    assert!(old > all / 10 && old < all * 9 / 10);
    fixture.engine.sync().expect("sync");
    for _ in 0..2 {
        // Segments emptied by moving are still empty, in whatever order the streams were filled.
        let free = status(&fixture.engine, "segmentsFree");
        fixture = fixture.reopen();
        let left = status(&fixture.engine, "segmentsFree");
        assert!(left >= free, "{left} free segments of {free}");
        assert_eq!(fixture.contents(), model);
        fixture.table.check();
    }
}

/// The cleaner reads a record from the medium only if it is not in memory; then it is cached. On persistent
/// memory it reads the record, too: damage is an error there.
#[test]
fn cached_records_are_moved_without_a_read() {
    let memory = EmulatorConfig::persistent_memory;
    let cases = [
        (EmulatorConfig::default(), 4 << 20, true),
        (EmulatorConfig::default(), 128 << 10, false),
        (memory(), 4 << 20, false),
    ];
    for (config, cache_bytes, is_there) in cases {
        let fixture = Fixture::on(Emulator::new(config), Options { cache_bytes, ..options() });
        let random = SeededRandom::new(3);
        let mut model = fill(&fixture.table, 400);
        for _ in 0..400 {
            let id = RecordId(1 + random.next_u64() % 400);
            overwrite(&fixture.table, &mut model, id, (1, &random));
        }
        fixture.engine.sync().expect("sync");
        fixture.engine.flush_round().expect("sealing");
        let faults = fixture.emulator.faults();
        faults.watch();
        clean(&fixture.engine);
        let of = |what: &str| status(&fixture.engine, &format!("cleaner.{what}")) as u64;
        let (emptied, moved) = (of("segmentsCleaned"), of("movedRecords"));
        let read = faults.io_count(IoKind::Read);
        assert!(moved > 50, "{moved} records were moved");
        assert!(if is_there { read == 0 } else { read >= emptied }, "{read} reads for {emptied}");
        assert_eq!(fixture.contents(), model);
        fixture.table.check();
    }
}

/// Dead records also take memory. A cache of more than twice the documents' bytes keeps all live documents,
/// though the log has room for more dead ones.
#[test]
fn dead_records_are_evicted_before_live_ones() {
    const DOCUMENTS: i64 = 116;
    let cache_bytes = u64::from(SEGMENT_BYTES) * 11 / 2;
    let fixture = Fixture::new(Options { cache_bytes, ..options() });
    let random = SeededRandom::new(11);
    let mut model = fill(&fixture.table, DOCUMENTS);
    assert!(status(&fixture.engine, "liveBytes") < 2 * i64::from(SEGMENT_BYTES));
    for round in 0..4000 {
        let id = RecordId(1 + random.next_u64() % DOCUMENTS as u64);
        overwrite(&fixture.table, &mut model, id, (round, &random));
        if round % 8 == 0 {
            fixture.engine.flush_round().expect("sealing");
            clean(&fixture.engine);
        }
    }
    assert_eq!(fixture.contents(), model);
    assert_eq!(status(&fixture.engine, "cache.evictions"), 0);
    assert_eq!(status(&fixture.engine, "cache.misses"), 0);
}
