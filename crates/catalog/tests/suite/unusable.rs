//! An index whose stored definition is unusable. The catalog opens and the collection is readable. Writes fail
//! with an error that names the index and the remedy, until the index is dropped.

use crate::common::{Opened, Written, create, engine, insert, ns, open};
use kauri_base::{CollectionId, RecordId};
use kauri_bson::{Doc, DocBuf, DocWriter, Value, doc};
use kauri_catalog::KeyScratch;
use kauri_conformance::inspect;
use kauri_storage::{StorageEngine, WriteUnit};
use std::sync::Arc;

/// A filter that only another version knows.
fn unknown_filter() -> DocBuf {
    doc! { "a" => doc! { "$ofAnotherVersion" => 1 } }
}

fn add_index(catalog: &Opened, name: &str, spec: DocBuf) {
    let collection = catalog.collection(name).unwrap();
    let (ids, _) = catalog.add_indexes(&mut catalog.scope(), &collection, &[spec]).unwrap();
    let collection = catalog.collection(name).unwrap();
    catalog.indexes_ready(&mut catalog.scope(), &collection, &ids, &[]).unwrap();
}

fn with_filter(spec: Doc<'_>) -> DocBuf {
    DocBuf::build(|out| {
        out.put_all(spec);
        out.put("partialFilterExpression", unknown_filter());
    })
}

/// Rewrites the stored definition of a collection so that the index `a` has the filter.
fn store_filter(engine: &Arc<dyn StorageEngine>, name: &str) {
    let stored = inspect::records(&**engine, CollectionId::CATALOG).unwrap();
    let (id, record) = stored
        .into_iter()
        .find(|(_, record)| {
            let doc = Doc::from_bytes(&record.doc).unwrap();
            doc.value("ns").as_str() == Some(name)
        })
        .unwrap();
    let changed = with_unusable_index(Doc::from_bytes(&record.doc).unwrap());
    let mut unit = WriteUnit::new();
    unit.update(CollectionId::CATALOG, id, record.version, changed.into_vec());
    engine.commit(&mut unit).unwrap();
}

/// The stored definition of a collection where the index `a` has the filter.
pub fn with_unusable_index(doc: Doc<'_>) -> DocBuf {
    DocBuf::build(|out| {
        for elem in doc {
            if elem.key() != "indexes" {
                out.put_elem(elem);
                continue;
            }
            let mut array = out.array("indexes");
            for index in elem.as_doc().unwrap() {
                let index = index.as_doc().unwrap();
                let spec = index.value("spec");
                let spec = spec.as_document().unwrap();
                let is_a = spec.value("name").as_str() == Some("a");
                let mut entry = array.document();
                put_index(&mut entry, index, if is_a { with_filter(spec) } else { spec.to_buf() });
            }
        }
    })
}

fn put_index(out: &mut DocWriter<'_>, index: Doc<'_>, spec: DocBuf) {
    out.put_value("id", &index.value("id"));
    out.put_value("ready", &index.value("ready"));
    out.put("spec", &spec);
}

#[test]
fn an_unusable_filter_stops_writes_to_its_collection_only() {
    let engine = engine();
    let catalog = open(&engine);
    create(&catalog, "db.c");
    create(&catalog, "db.other");
    add_index(&catalog, "db.c", doc! { "v" => 2, "key" => doc! { "a" => 1 }, "name" => "a" });
    add_index(&catalog, "db.c", doc! { "v" => 2, "key" => doc! { "b" => 1 }, "name" => "b" });
    assert_eq!(insert(&catalog, "db.c", &doc! { "_id" => 1, "a" => 1 }), Written::Done);
    drop(catalog);
    store_filter(&engine, "db.c");

    for renamed in [false, true] {
        let catalog = open(&engine);
        let name = if renamed { "db.d" } else { "db.c" };
        let collection = catalog.collection(name).unwrap();
        let names: Vec<&str> = collection.indexes.iter().map(|index| index.name()).collect();
        assert_eq!(names, ["_id_", "b"]);
        let [index] = &collection.unusable[..] else { panic!("not one index") };
        assert_eq!((&*index.name, index.key()), ("a", doc! { "a" => 1 }));
        let filter = index.spec.as_doc().value("partialFilterExpression").into_owned();
        assert_eq!(filter, Value::from(unknown_filter()));
        assert_eq!(collection.stats().unwrap().records, 1);
        is_refused(&catalog, name);
        assert_eq!(
            insert(&catalog, "db.other", &doc! { "_id" => i32::from(renamed) }),
            Written::Done
        );
        if !renamed {
            // The unusable filter survives a change of the definition.
            let renamed = ns("db.d");
            let rename = kauri_catalog::Rename::new(&collection.ns, &renamed);
            catalog.rename_collection(&mut catalog.scope(), &rename).unwrap();
            let collection = catalog.collection("db.d").unwrap();
            catalog
                .change_options(&mut catalog.scope(), &collection, collection.options.clone())
                .unwrap();
            is_refused(&catalog, "db.d");
        }
    }

    let catalog = open(&engine);
    let collection = catalog.collection("db.d").unwrap();
    catalog.drop_indexes(&mut catalog.scope(), &collection, &[collection.unusable[0].id]).unwrap();
    assert_eq!(insert(&catalog, "db.d", &doc! { "_id" => 2 }), Written::Done);
    let catalog = open(&engine);
    let collection = catalog.collection("db.d").unwrap();
    assert!(collection.unusable.is_empty() && collection.indexes.len() == 2);
    assert_eq!(insert(&catalog, "db.d", &doc! { "_id" => 3 }), Written::Done);
}

/// Writes of all kinds fail with the index's name and the remedy.
fn is_refused(catalog: &Opened, name: &str) {
    let collection = catalog.collection(name).unwrap();
    let mut scratch = KeyScratch::default();
    let mut unit = WriteUnit::new();
    let document = doc! { "_id" => 9 };
    let (old, new) = (document.as_doc(), document.as_bytes());
    let version = kauri_base::CommitSeq(1);
    let inserted = collection.insert(&mut unit, new.into(), &mut scratch);
    let updated = collection.update(&mut unit, RecordId(1), version, old, new.into(), &mut scratch);
    let deleted = collection.delete(&mut unit, RecordId(1), version, old, &mut scratch);
    let spec = doc! { "v" => 2, "key" => doc! { "c" => 1 }, "name" => "c" };
    let indexed = catalog.add_indexes(&mut catalog.scope(), &collection, &[spec]).map(|_| 0);
    for refused in [inserted, updated, deleted, indexed] {
        let error = refused.unwrap_err();
        for words in ["Index 'a'", name, "dropIndexes", "$ofAnotherVersion"] {
            assert!(error.message().contains(words), "{words}: {error}");
        }
    }
    assert!(unit.is_empty());
}
