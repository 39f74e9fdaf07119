//! Flipped bits and misplaced sectors: a read returns the right data or an error.

use crate::crash::{Crashes, Recording};
use crate::dice::Dice;
use crate::model::Model;
use crate::schema::{CATALOG, TableDef};
use crate::target::CrashTarget;
use kauri_base::{CollectionId, CommitSeq, RecordId};
use kauri_conformance::inspect::{self, Reader};
use kauri_emulator::Emulator;
use kauri_medium::Directory;
use kauri_storage::StorageEngine;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

/// Most places of one directory that are damaged.
const PLACES_MAX: u64 = 8;

/// The result for damaged directories.
#[derive(Default, Debug)]
pub struct Report {
    /// Directories that were damaged.
    pub damaged: usize,
    /// Refused directories.
    pub refused: usize,
    /// Opened directories with unreadable documents.
    pub reported: usize,
    /// Directories where the damage had no effect.
    pub harmless: usize,
}

enum Found {
    Refused,
    Reported,
    Harmless,
}

/// Damages the state after a recording with a clean shutdown `times` times: unchanged, or after a power loss behind
/// the shutdown. Everything must be there: right, or reported.
pub fn after_shutdown(
    crashes: &Crashes<'_>,
    target: &dyn CrashTarget,
    recording: &Recording,
    seed: u64,
    times: usize,
) -> Report {
    let dice = Dice::new(seed);
    let left = |dice: &Dice| match dice.below(2) {
        0 => recording.emulator.process_death_image(),
        _ => recording.emulator.crash_seeded(recording.emulator.events(), dice.bits()),
    };
    let whole = Whole::read(target, &left(&dice), recording);
    let mut report = Report::default();
    let mut tries = times * 8;
    while report.damaged < times && tries > 0 {
        tries -= 1;
        let image = left(&dice);
        let before = image.content_hash();
        let places: Vec<_> =
            (0..=dice.below(PLACES_MAX)).filter_map(|_| damage(&image, &dice)).collect();
        let what = places.join(", ");
        if image.content_hash() == before {
            continue;
        }
        crashes.equip(&image);
        report.damaged += 1;
        match look(target, &image, &whole, &what) {
            Found::Refused => report.refused += 1,
            Found::Reported => report.reported += 1,
            Found::Harmless => report.harmless += 1,
        }
        crashes.note_sites(&image);
    }
    report
}

/// What is read when nothing is damaged.
struct Whole {
    model: Model,
    versions: BTreeMap<(CollectionId, RecordId), CommitSeq>,
}

impl Whole {
    fn read(target: &dyn CrashTarget, image: &Emulator, recording: &Recording) -> Whole {
        let opened = target.open(image);
        let opened = opened.unwrap_or_else(|error| panic!("opening failed: {error:?}"));
        let engine = opened.engine();
        let model = recording.timeline.contents(recording.timeline.end());
        let mut versions = BTreeMap::new();
        for id in model.stores().keys() {
            let records = inspect::records(&*engine, *id);
            let records = records.unwrap_or_else(|error| panic!("reading {id:?}: {error}"));
            versions.extend(records.into_iter().map(|(record, s)| ((*id, record), s.version)));
        }
        Whole { model, versions }
    }

    /// Whether the record reads as it should; if not, it must be an error.
    fn is_right(
        &self,
        engine: &dyn StorageEngine,
        id: CollectionId,
        record: RecordId,
        expected: Option<&Arc<[u8]>>,
        what: &str,
    ) -> bool {
        let Some(store) = engine.record_store(id) else { panic!("{what}: {id:?} is gone") };
        let Ok(found) = Reader::new(engine).get(&*store, record) else { return false };
        let same = found.as_ref().map(|stored| &stored.doc[..]) == expected.map(|doc| &doc[..]);
        assert!(same, "{what}: {record} of {id:?} is {found:?} instead of {expected:?}");
        let version = found.map(|stored| stored.version);
        let expected = self.versions.get(&(id, record)).copied();
        assert_eq!(version, expected, "{what}: the version of {record} of {id:?}");
        true
    }
}

/// Changes something in one of the files. Answers what.
fn damage(image: &Emulator, dice: &Dice) -> Option<String> {
    let mut files = image.list().ok()?;
    let len = |name: &String| image.open_log(name).map_or(0, |log| log.len());
    files.sort_by_key(len);
    // The log is the longest by far.
    let log = files.pop()?;
    if dice.percent(85) {
        let medium = image.open_log(&log).ok()?;
        let mut bytes = vec![0; medium.len() as usize];
        medium.read(0, &mut bytes).ok()?;
        let (at, changed) = change(&bytes, dice)?;
        medium.store(at as u64, &[IoSlice::new(&changed)]).ok()?;
        return Some(format!("{} bytes at {at} of {log}", changed.len()));
    }
    let name = dice.pick(&files)?;
    let mut bytes = image.read_file(name).ok()??;
    let (at, changed) = change(&bytes, dice)?;
    bytes[at..at + changed.len()].copy_from_slice(&changed);
    image.replace_file(name, &bytes, "test").ok()?;
    Some(format!("{} bytes at {at} of {name}", changed.len()))
}

/// Where what should be different: a bit, a byte, a sector that was written to another's place, or
/// all of a piece.
fn change(bytes: &[u8], dice: &Dice) -> Option<(usize, Vec<u8>)> {
    const SECTOR: usize = 512;
    let sectors = (bytes.len() / SECTOR) as u64;
    // Somewhere where something is.
    let used = |at: &usize| bytes[*at..].iter().take(64).any(|byte| *byte != 0);
    let at = (0..100).map(|_| place(bytes.len(), dice)).find(used)?;
    match dice.below(10) {
        0 if sectors > 1 => {
            let from = dice.below(sectors) as usize * SECTOR;
            Some((at / SECTOR * SECTOR, bytes[from..from + SECTOR].to_vec()))
        }
        1 => Some((at, vec![dice.bits() as u8])),
        2 | 3 => {
            let len = (dice.below(10 << 10) as usize + 1).min(bytes.len() - at);
            Some((at, (0..len).map(|_| dice.bits() as u8).collect()))
        }
        _ => Some((at, vec![bytes[at] ^ 1 << dice.below(8)])),
    }
    .filter(|(at, changed)| at + changed.len() <= bytes.len())
}

/// Anywhere, and often about a multiple of a power of two: there headers and trailers are.
fn place(len: usize, dice: &Dice) -> usize {
    let anywhere = dice.below(len as u64) as usize;
    if dice.percent(60) {
        return anywhere;
    }
    let boundary = anywhere & !((4096 << dice.below(6)) - 1);
    let at = (boundary + dice.below(192) as usize).saturating_sub(dice.below(64) as usize);
    at.min(len - 1)
}

fn look(target: &dyn CrashTarget, image: &Emulator, whole: &Whole, what: &str) -> Found {
    let Ok(opened) = target.open(image) else { return Found::Refused };
    let (engine, model) = (opened.engine(), &whole.model);
    let mut right = true;
    let stores: Vec<CollectionId> = engine.stores();
    assert!(stores.iter().eq(model.stores().keys()), "{what}: stores came or went");
    for (id, store) in model.stores() {
        for record in (1..=store.last + 1).map(RecordId) {
            right &= whole.is_right(&*engine, *id, record, store.records.get(&record), what);
        }
    }
    if let Some(catalog) = model.stores().get(&CATALOG) {
        for (record, doc) in &catalog.records {
            if let Some(def) = TableDef::decode(*record, doc) {
                right &= indexes_are_right(&engine, &def, model);
            }
        }
    }
    if right { Found::Harmless } else { Found::Reported }
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
