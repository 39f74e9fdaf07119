//! The catalog's documents in record store 0.
//!
//! `{kind: "counters", nextCollection, nextIndex}`, `{kind: "view", ns, options}`, and `{kind: "collection", id,
//! ns, uuid, options, indexes: [{id, ready, spec}]}`.

use crate::namespace::Namespace;
use crate::options::CollectionOptions;
use crate::view::View;
use kauri_base::{Access, CollectionId, CommitSeq, Error, ErrorCode, IndexId, RecordId, Result};
use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_storage::{Direction, RecordScan, RecordStore, RecoveryUnit, Scope};

/// In a note of a dropped definition: all of its database are dropped.
pub(crate) const OF_DATABASE: &str = "ofDatabase";

/// A stored document, read.
pub(crate) enum Stored {
    Counters {
        next_collection: u32,
        next_index: u32,
    },
    View(View),
    Collection {
        id: CollectionId,
        ns: Namespace,
        uuid: [u8; 16],
        options: CollectionOptions,
        indexes: Vec<(IndexId, bool, DocBuf)>,
    },
}

pub(crate) fn counters_doc(next_collection: u32, next_index: u32) -> DocBuf {
    doc! {
        "kind" => "counters",
        "nextCollection" => i64::from(next_collection),
        "nextIndex" => i64::from(next_index),
    }
}

pub(crate) fn view_doc(view: &View) -> DocBuf {
    doc! { "kind" => "view", "ns" => view.ns.as_str(), "options" => &view.options }
}

pub(crate) fn collection_doc(
    id: CollectionId,
    ns: &Namespace,
    uuid: &[u8; 16],
    options: &CollectionOptions,
    indexes: &[(IndexId, bool, DocBuf)],
) -> DocBuf {
    DocBuf::build(|w| {
        w.put("kind", "collection");
        w.put("id", i64::from(id.0));
        w.put("ns", ns.as_str());
        w.put("uuid", Value::Binary { subtype: 4, bytes: uuid.as_slice().into() });
        options.write(&mut w.document("options"));
        let mut array = w.array("indexes");
        for (id, ready, spec) in indexes {
            let mut entry = array.document();
            entry.put("id", i64::from(id.0));
            entry.put("ready", *ready);
            entry.put("spec", spec);
        }
    })
}

/// The collection id and namespace in a stored document of the catalog, for tools that read a directory without a
/// server.
pub fn collection_of(doc: Doc<'_>) -> Option<(CollectionId, Namespace)> {
    match parse(doc) {
        Ok(Stored::Collection { id, ns, .. }) => Some((id, ns)),
        _ => None,
    }
}

/// All stored documents with their places. Blocks; for the start of the server.
pub(crate) fn read_all(scope: &mut Scope) -> Result<Vec<(RecordId, CommitSeq, Stored)>> {
    let Some(store) = scope.backend().engine().record_store(CollectionId::CATALOG) else {
        return Err(malformed("the engine has no catalog store"));
    };
    let unit = scope.reader();
    let mut scan = RecordScan::new(Direction::Forward);
    let mut found = Vec::new();
    loop {
        unit.enter();
        let Some(id) = scan.next_buffered() else {
            if scan.ended() {
                unit.leave();
                return Ok(found);
            }
            let ticket = match store.fill(unit, &mut scan)? {
                Access::Ready(()) => None,
                Access::WouldBlock(ticket) => Some(ticket),
            };
            unit.leave();
            ticket.map_or(Ok(()), |t| t.wait())?;
            continue;
        };
        if let Some((version, doc)) = read_one(&*store, unit, id)? {
            found.push((id, version, parse(doc.as_doc())?));
        }
    }
}

/// Number of indexes in the stored document of a collection.
pub(crate) fn index_count(scope: &mut Scope, id: RecordId) -> Result<usize> {
    let Some(store) = scope.backend().engine().record_store(CollectionId::CATALOG) else {
        return Err(malformed("the engine has no catalog store"));
    };
    let Some((_, doc)) = read_one(&*store, scope.reader(), id)? else {
        return Err(malformed("a collection's document is gone"));
    };
    Ok(doc.as_doc().value("indexes").as_array().map_or(0, Doc::count))
}

/// The stored document of this record; `None` if it is gone. Blocks.
pub(crate) fn read_record(scope: &mut Scope, id: RecordId) -> Result<Option<(CommitSeq, Stored)>> {
    let Some(store) = scope.backend().engine().record_store(CollectionId::CATALOG) else {
        return Ok(None);
    };
    let found = read_one(&*store, scope.reader(), id)?;
    found.map(|(version, doc)| Ok((version, parse(doc.as_doc())?))).transpose()
}

fn read_one(
    store: &dyn RecordStore,
    unit: &mut dyn RecoveryUnit,
    id: RecordId,
) -> Result<Option<(CommitSeq, DocBuf)>> {
    loop {
        unit.enter();
        let answer = match store.get(unit, id)? {
            Access::Ready(record) => Ok(record.map(|r| (r.version, r.doc.to_buf()))),
            Access::WouldBlock(ticket) => Err(ticket),
        };
        unit.leave();
        match answer {
            Ok(record) => return Ok(record),
            Err(ticket) => ticket.wait()?,
        }
    }
}

fn parse(doc: Doc<'_>) -> Result<Stored> {
    match doc.value("kind").as_str().unwrap_or_default() {
        "counters" => Ok(Stored::Counters {
            next_collection: number(doc, "nextCollection")?,
            next_index: number(doc, "nextIndex")?,
        }),
        "view" => {
            let options = embedded(doc, "options")?;
            let view_on = options.as_doc().value("viewOn").as_str().unwrap_or_default().to_owned();
            let pipeline = match options.as_doc().value("pipeline") {
                Value::Array(stages) => stages.into_buf(),
                _ => DocBuf::new(),
            };
            let (ns, usage) = (namespace(doc)?, Default::default());
            Ok(Stored::View(View { ns, view_on, pipeline, options, usage }))
        }
        "collection" => {
            let uuid = match doc.value("uuid") {
                Value::Binary { bytes, .. } => {
                    bytes.as_ref().try_into().map_err(|_| malformed("a UUID's length"))?
                }
                _ => return Err(malformed("a collection without UUID")),
            };
            let mut indexes = Vec::new();
            for entry in doc.value("indexes").as_array().unwrap_or(Doc::EMPTY) {
                let entry = entry.as_doc().ok_or_else(|| malformed("an index"))?;
                let ready = matches!(entry.value("ready"), Value::Bool(true));
                indexes.push((IndexId(number(entry, "id")?), ready, embedded(entry, "spec")?));
            }
            Ok(Stored::Collection {
                id: CollectionId(number(doc, "id")?),
                ns: namespace(doc)?,
                uuid,
                options: CollectionOptions::from_stored(embedded(doc, "options")?.as_doc())?,
                indexes,
            })
        }
        other => Err(malformed(&format!("a document of kind '{other}'"))),
    }
}

fn number(doc: Doc<'_>, field: &str) -> Result<u32> {
    match doc.value(field) {
        Value::Int64(n) => u32::try_from(n).map_err(|_| malformed(field)),
        _ => Err(malformed(field)),
    }
}

fn embedded(doc: Doc<'_>, field: &str) -> Result<DocBuf> {
    match doc.value(field) {
        Value::Document(value) => Ok(value.into_buf()),
        _ => Err(malformed(field)),
    }
}

fn namespace(doc: Doc<'_>) -> Result<Namespace> {
    Namespace::parse(doc.value("ns").as_str().unwrap_or_default())
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorCode::DataCorruptionDetected, format!("the catalog cannot be read: {what}"))
}
