//! Bits that rot and sectors that end up in the wrong place: what is read is right, or an error.

use crate::crash::{Crashes, Recording};
use crate::dice::Dice;
use crate::model::Model;
use crate::schema::{CATALOG, TableDef};
use crate::target::CrashTarget;
use kauri_base::{CollectionId, RecordId};
use kauri_medium::Directory;
use kauri_medium::emulator::Emulator;
use kauri_storage::StorageEngine;
use kauri_storage::conformance::inspect::{self, Reader};
use std::io::IoSlice;
use std::sync::Arc;

/// How a damaged directory was found to be.
#[derive(Default, Debug)]
pub struct Report {
    /// Directories that were damaged.
    pub damaged: usize,
    /// Those that were refused.
    pub refused: usize,
    /// Those that were opened, and where some document couldn't be read.
    pub reported: usize,
    /// Those where the damage had no effect.
    pub harmless: usize,
}

enum Found {
    Refused,
    Reported,
    Harmless,
}

/// Damages what a recording that ended with a clean shutdown left, `times` times anew. Everything
/// must be there: right, or reported.
pub fn after_shutdown(
    crashes: &Crashes<'_>,
    target: &dyn CrashTarget,
    recording: &Recording,
    seed: u64,
    times: usize,
) -> Report {
    let dice = Dice::new(seed);
    let expected = recording.timeline.contents(recording.timeline.end());
    let mut report = Report::default();
    let mut tries = times * 8;
    while report.damaged < times && tries > 0 {
        tries -= 1;
        let image = recording.emulator.process_death_image();
        let before = image.content_hash();
        let Some(what) = damage(&image, &dice) else { continue };
        if image.content_hash() == before {
            continue;
        }
        crashes.equip(&image);
        report.damaged += 1;
        match look(target, &image, &expected, &what) {
            Found::Refused => report.refused += 1,
            Found::Reported => report.reported += 1,
            Found::Harmless => report.harmless += 1,
        }
        crashes.note_sites(&image);
    }
    report
}

/// Changes something in one of the files. Answers what.
fn damage(image: &Emulator, dice: &Dice) -> Option<String> {
    let files = image.list().ok()?;
    // Small files as often as the log: a file is picked, then a place in it.
    let name = dice.pick(&files)?;
    if let Ok(log) = image.open_log(name) {
        let mut bytes = vec![0; log.len() as usize];
        log.read(0, &mut bytes).ok()?;
        let (at, changed) = change(&bytes, dice)?;
        log.store(at as u64, &[IoSlice::new(&changed)]).ok()?;
        return Some(format!("{} bytes at {at} of {name}", changed.len()));
    }
    let mut bytes = image.read_file(name).ok()??;
    let (at, changed) = change(&bytes, dice)?;
    bytes[at..at + changed.len()].copy_from_slice(&changed);
    image.replace_file(name, &bytes, "test").ok()?;
    Some(format!("{} bytes at {at} of {name}", changed.len()))
}

/// Where what should be different: a bit, a byte, or a sector that was written to another's place.
fn change(bytes: &[u8], dice: &Dice) -> Option<(usize, Vec<u8>)> {
    const SECTOR: usize = 512;
    let sectors = (bytes.len() / SECTOR) as u64;
    // Somewhere where something is.
    let used = |at: usize| bytes[at..].iter().take(64).any(|byte| *byte != 0);
    let at = (0..100).map(|_| dice.below(bytes.len() as u64) as usize).find(|at| used(*at))?;
    match dice.below(8) {
        0 if sectors > 1 => {
            let from = dice.below(sectors) as usize * SECTOR;
            Some((at / SECTOR * SECTOR, bytes[from..from + SECTOR].to_vec()))
        }
        1 => Some((at, vec![dice.bits() as u8])),
        _ => Some((at, vec![bytes[at] ^ 1 << dice.below(8)])),
    }
    .filter(|(at, changed)| at + changed.len() <= bytes.len())
}

fn look(target: &dyn CrashTarget, image: &Emulator, expected: &Model, what: &str) -> Found {
    let Ok(opened) = target.open(image) else { return Found::Refused };
    let engine = opened.engine();
    let mut reported = false;
    let stores: Vec<CollectionId> = engine.stores();
    assert!(stores.iter().eq(expected.stores().keys()), "{what}: stores came or went");
    for (id, store) in expected.stores() {
        for (record, doc) in &store.records {
            reported |= !is_right(&*engine, *id, *record, Some(doc), what);
        }
        for record in (1..=store.last + 1).map(RecordId) {
            if !store.records.contains_key(&record) {
                reported |= !is_right(&*engine, *id, record, None, what);
            }
        }
    }
    if let Some(catalog) = expected.stores().get(&CATALOG) {
        for (record, doc) in &catalog.records {
            if let Some(def) = TableDef::decode(*record, doc) {
                reported |= !indexes_are_right(&engine, &def, expected);
            }
        }
    }
    if reported { Found::Reported } else { Found::Harmless }
}

/// Whether the record reads as it should; if not, it must be an error.
fn is_right(
    engine: &dyn StorageEngine,
    id: CollectionId,
    record: RecordId,
    expected: Option<&Arc<[u8]>>,
    what: &str,
) -> bool {
    let Some(store) = engine.record_store(id) else { panic!("{what}: {id:?} is gone") };
    match Reader::new(engine).get(&*store, record) {
        Err(_) => false,
        Ok(found) => {
            let same = found.as_ref().map(|stored| &stored.doc[..]) == expected.map(|doc| &doc[..]);
            assert!(same, "{what}: {record} of {id:?} is {found:?} instead of {expected:?}");
            true
        }
    }
}

/// Whether the collection's indexes could be attached; those that could must be right.
fn indexes_are_right(engine: &Arc<dyn StorageEngine>, def: &TableDef, expected: &Model) -> bool {
    let mut right = true;
    for index in def.indexes.iter().filter(|index| index.ready) {
        let (spec, generator) = (index.index.spec, index.index.generator.clone());
        if engine.attach_index(def.id, spec, generator).is_err() {
            right = false;
            continue;
        }
        let Ok(entries) = inspect::entries(&**engine, spec.id) else { panic!("{spec:?}") };
        let store = expected.stores().get(&def.id);
        let docs = store.into_iter().flat_map(|store| &store.records);
        let mut keys: Vec<_> = docs
            .flat_map(|(record, doc)| {
                let keys = inspect::generate(&*index.index.generator, doc);
                keys.into_keys().map(|key| (key, *record))
            })
            .collect();
        keys.sort();
        assert!(entries.into_iter().map(|entry| (entry.key, entry.record)).eq(keys), "{spec:?}");
    }
    right
}
