//! Collection checks find each planted error and report nothing else, also while writers run.

use crate::common::*;
use kauri_base::RecordId;
use kauri_base::clock::SeededRandom;
use kauri_bson::{Doc, doc};
use kauri_catalog::Collection;
use kauri_catalog::check::{CheckStep, CollectionCheck, Finding};
use kauri_storage::WriteUnit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn filled(catalog: &Opened) -> Arc<Collection> {
    create(catalog, "db.c");
    for n in 0..200 {
        insert(catalog, "db.c", &doc! { "_id" => n, "x" => n % 9 });
    }
    create_indexes(
        catalog,
        "db.c",
        &[spec(doc! { "x" => 1 }, "x_1"), unique(doc! { "u" => 1, "_id" => 1 }, "u_1")],
    )
    .unwrap();
    catalog.collection("db.c").unwrap()
}

/// Commits an update that keeps a record's document but changes its keys arbitrarily.
fn tamper(
    catalog: &Opened,
    collection: &Collection,
    record: RecordId,
    keys: impl Fn(&mut WriteUnit<'_>, Doc<'_>),
) {
    let mut ru = catalog.backend.engine().recovery_unit();
    ru.enter();
    let found = collection.store.get(&*ru, record).unwrap();
    let kauri_base::Access::Ready(Some(found)) = found else { panic!("no record") };
    let (version, document) = (found.version, found.doc.to_buf());
    ru.leave();
    let mut unit = WriteUnit::new();
    unit.update(collection.id, record, version, document.as_bytes().to_vec());
    keys(&mut unit, document.as_doc());
    catalog.scope().commit(&mut unit).unwrap();
}

fn key(collection: &Collection, name: &str, document: Doc<'_>) -> Vec<u8> {
    let mut keys = kauri_bson::keygen::Keys::default();
    collection.index_by_name(name).unwrap().keys.generate_into(document, &mut keys).unwrap();
    keys.iter().next().unwrap().bytes.to_vec()
}

#[test]
fn a_sound_collection_has_no_findings_and_right_counts() {
    let catalog = open(&engine());
    let collection = filled(&catalog);
    let report = check(&catalog, &collection);
    assert_eq!((report.records, report.invalid, report.findings), (200, 0, vec![]));
    let counts: Vec<_> =
        report.indexes.iter().map(|i| (i.name.as_str(), i.keys, i.valid)).collect();
    assert_eq!(counts, [("_id_", 200, true), ("x_1", 200, true), ("u_1", 200, true)]);
    assert_eq!(report.bytes, collection.store.stats().unwrap().bytes);
}

#[test]
fn missing_and_extra_keys_are_found() {
    let catalog = open(&engine());
    let collection = filled(&catalog);
    let index = collection.index_by_name("x_1").unwrap().id;
    let (missing, extra) = (RecordId(17), RecordId(30));
    tamper(&catalog, &collection, missing, |unit, document| {
        unit.key(index, false, false, &key(&collection, "x_1", document), &[]);
    });
    let stray = doc! { "_id" => 0, "x" => 1_000_000 };
    tamper(&catalog, &collection, extra, |unit, _| {
        unit.key(index, true, false, &key(&collection, "x_1", stray.as_doc()), &[]);
    });
    let report = check(&catalog, &collection);
    assert_eq!(report.findings.len(), 2, "{:?}", report.findings);
    let index = "x_1".to_owned();
    let id = doc! { "_id" => 16 };
    assert!(report.findings.contains(&Finding::Missing {
        index: index.clone(),
        record: missing,
        id
    }));
    assert!(report.findings.contains(&Finding::Extra { index, record: extra }));
    let valid: Vec<_> = report.indexes.iter().map(|i| i.valid).collect();
    assert_eq!(valid, [true, false, true]);
}

#[test]
fn a_duplicate_key_in_a_unique_index_is_found() {
    let catalog = open(&engine());
    let collection = filled(&catalog);
    let index = collection.index_by_name("u_1").unwrap().id;
    let twin = doc! { "_id" => 10 };
    tamper(&catalog, &collection, RecordId(50), |unit, _| {
        unit.key(index, true, false, &key(&collection, "u_1", twin.as_doc()), &[]);
    });
    let findings = check(&catalog, &collection).findings;
    let expected = Finding::Duplicate { index: "u_1".to_owned(), record: RecordId(50) };
    assert!(findings.contains(&expected), "{findings:?}");
}

#[test]
fn a_malformed_document_is_found() {
    let catalog = open(&engine());
    let collection = filled(&catalog);
    let mut bytes = doc! { "_id" => 1000, "s" => "text" }.into_vec();
    // The string's length exceeds the document.
    let at = bytes.len() - 12 + 2;
    bytes[at] = 0x7F;
    let mut unit = WriteUnit::new();
    unit.insert(collection.id, bytes);
    catalog.scope().commit(&mut unit).unwrap();
    let report = check(&catalog, &collection);
    assert_eq!(report.invalid, 1);
    let corrupt = report.findings.iter().filter(|f| matches!(f, Finding::Corrupt { .. }));
    assert_eq!(corrupt.count(), 1);
}

/// Each key of a unique index moves from one record to another between any two steps, and back.
#[test]
fn keys_that_move_between_records_are_no_findings() {
    const KEYS: i32 = 300;
    let catalog = open(&engine());
    create(&catalog, "db.m");
    for n in 0..2 * KEYS {
        insert(&catalog, "db.m", &doc! { "_id" => n, "u" => n });
    }
    create_indexes(&catalog, "db.m", &[unique(doc! { "u" => 1 }, "u_1")]).unwrap();
    let collection = catalog.collection("db.m").unwrap();
    let set = |n: i32, u: i32| {
        let doc = doc! { "_id" => n, "u" => u };
        change(&catalog, "db.m", RecordId(n as u64 + 1), |_| Some(doc.clone()))
    };
    let mut check = CollectionCheck::new(collection, &SeededRandom::new(1));
    let mut ru = catalog.backend.engine().recovery_unit();
    let mut steps = 0;
    while !matches!(check.step(&mut *ru).unwrap(), CheckStep::Done) {
        let (from, to) = if steps % 2 == 0 { (0, KEYS) } else { (KEYS, 0) };
        steps += 1;
        for key in 0..KEYS {
            // Each of the two moves to another free place.
            assert_eq!(set(from + key, 2 * KEYS + from + key), Written::Done);
            assert_eq!(set(to + key, key), Written::Done);
        }
    }
    assert_eq!(check.report().findings, []);
    assert!(steps > 20, "{steps} steps");
}

/// Stops the writers when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn writers_in_the_middle_of_a_check_are_no_findings() {
    let catalog = open(&engine());
    let collection = filled(&catalog);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Stops the writers also if an assertion fails.
        let _end = End(&stop);
        for writer in 0..2u64 {
            let (catalog, stop) = (&catalog, &stop);
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Acquire) {
                    n += 1;
                    let record = RecordId(1 + (n * 7 + writer) % 200);
                    change(catalog, "db.c", record, |old| {
                        let id = number(old, "_id") as i32;
                        Some(doc! { "_id" => id, "x" => (n % 100) as i32 })
                    });
                }
            });
        }
        let mut ru = catalog.backend.engine().recovery_unit();
        for _ in 0..30 {
            let mut check = CollectionCheck::new(collection.clone(), &SeededRandom::new(1));
            while !matches!(check.step(&mut *ru).unwrap(), CheckStep::Done) {}
            assert_eq!(check.report().findings, []);
        }
    });
}

/// A document with many keys is parsed once, not once for each of its entries.
#[test]
fn entries_of_a_sound_index_are_not_compared_with_their_documents() {
    let catalog = open(&engine());
    create(&catalog, "db.c");
    for n in 0..50 {
        let keys = kauri_bson::Value::array((0..200).map(|key| kauri_bson::Value::Int32(key * n)));
        insert(&catalog, "db.c", &doc! { "_id" => n, "x" => keys });
    }
    create_indexes(&catalog, "db.c", &[spec(doc! { "x" => 1 }, "x_1")]).unwrap();
    let collection = catalog.collection("db.c").unwrap();
    let mut check = CollectionCheck::new(collection, &SeededRandom::new(1));
    let mut ru = catalog.backend.engine().recovery_unit();
    let mut names = Vec::new();
    while let Some(progress) = check.progress() {
        assert!(progress.done <= progress.total, "{} of {}", progress.done, progress.total);
        names.push(progress.name);
        names.dedup();
        assert!(matches!(check.step(&mut *ru).unwrap(), CheckStep::Again | CheckStep::Done));
    }
    assert_eq!(names, ["Validate: scanning collection", "Validate: scanning index entries"]);
    assert_eq!(check.report().findings, []);
    assert!(check.report().indexes[1].keys > 5_000);
}
