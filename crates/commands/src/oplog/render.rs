//! An entry of the log as MongoDB 7's oplog has it.
//!
//! - An update has the whole new document in `o`: the replacement that every reader of an oplog understands. The log does
//!   not tell which paths a statement has changed.
//! - A unit of several operations is one `applyOps`: they happen together, and have one time.
//! - A view is created and dropped by commands, as a collection is.

use super::bounds::time_of;
use kauri_base::{Result, Timestamp, bail, limits};
use kauri_bson::{Doc, DocBuf, DocWriter, Value};
use kauri_catalog::{DefinitionChange, definition_changes};
use kauri_member::oplog::{Entry, Op, OpKind, What};

/// The version of the format.
const VERSION: i64 = 2;

/// A part of an entry: an operation on a document, or a command.
struct Piece<'e> {
    op: &'static str,
    ns: String,
    uuid: Option<[u8; 16]>,
    o: Object<'e>,
    o2: Option<DocBuf>,
}

enum Object<'e> {
    Of(&'e [u8]),
    Made(DocBuf),
}

impl Object<'_> {
    fn as_doc(&self) -> Doc<'_> {
        match self {
            Object::Of(bytes) => Doc::from_bytes(bytes).unwrap_or(Doc::EMPTY),
            Object::Made(doc) => doc.as_doc(),
        }
    }
}

/// The document of an entry; `None` if it tells clients nothing. An entry that is not whole is an error.
pub fn document(entry: &Entry) -> Result<Option<DocBuf>> {
    let mut pieces = match &entry.what {
        What::Unit(ops) => pieces(ops),
        What::Incomplete => {
            let Timestamp { seconds, increment } = time_of(entry.time);
            bail!(
                OplogOperationUnsupported,
                "the log does not hold all of the entry at Timestamp({seconds}, {increment}): what it deletes or \
                 replaces had no room"
            );
        }
        other => vec![no_op(other)],
    };
    let mut document = build(entry, &pieces);
    if document.as_ref().is_some_and(is_too_large) {
        // These repeat an `_id` of `o`.
        pieces.iter_mut().filter(|piece| piece.op != "c").for_each(|piece| piece.o2 = None);
        document = build(entry, &pieces);
    }
    Ok(document)
}

fn is_too_large(document: &DocBuf) -> bool {
    document.as_doc().as_bytes().len() > limits::DOCUMENT_INTERNAL_BYTES_MAX
}

fn build(entry: &Entry, pieces: &[Piece<'_>]) -> Option<DocBuf> {
    let first = pieces.first()?;
    Some(DocBuf::build(|out| {
        match pieces.len() {
            1 => write_piece(out, first),
            _ => {
                out.put("op", "c");
                out.put("ns", "admin.$cmd");
                let mut object = out.document("o");
                let mut list = object.array("applyOps");
                pieces.iter().for_each(|piece| write_piece(&mut list.document(), piece));
            }
        }
        out.put_value("ts", &Value::Timestamp(time_of(entry.time)));
        out.put("t", entry.term as i64);
        out.put("v", VERSION);
        out.put_value("wall", &Value::DateTime(entry.wall_ms));
    }))
}

fn write_piece(out: &mut DocWriter<'_>, piece: &Piece<'_>) {
    out.put("op", piece.op);
    out.put("ns", &piece.ns);
    if let Some(uuid) = &piece.uuid {
        out.put_value("ui", &Value::Binary { subtype: 4, bytes: uuid.as_slice().into() });
    }
    out.put("o", piece.o.as_doc());
    if let Some(o2) = &piece.o2 {
        out.put("o2", o2);
    }
}

fn no_op(what: &What) -> Piece<'static> {
    let o = DocBuf::build(|out| match what {
        What::NewTerm => out.put("msg", "new primary"),
        What::Config(config) => {
            let version = config.as_doc().value("version");
            out.put("msg", "Reconfig set");
            out.put_value("version", &version);
        }
        What::Membership => out.put("msg", "Voters of the set change"),
        What::Idle | What::Incomplete | What::Unit(_) => out.put("msg", "periodic noop"),
    });
    Piece { op: "n", ns: String::new(), uuid: None, o: Object::Made(o), o2: None }
}

fn pieces(ops: &[Op]) -> Vec<Piece<'_>> {
    let mut pieces = Vec::with_capacity(ops.len());
    let mut changes = Vec::new();
    for op in ops {
        match &op.label {
            Some(label) => {
                let id = |bytes: &[u8]| {
                    let id = Doc::from_bytes(bytes).ok().and_then(|doc| doc.get("_id"));
                    id.map(|id| DocBuf::build(|out| out.put_elem(id)))
                };
                let (kind, o, o2) = match op.kind {
                    OpKind::Insert => ("i", &op.document, id(&op.document)),
                    OpKind::Update => ("u", &op.document, id(&op.document)),
                    OpKind::Delete => ("d", &op.note, None),
                };
                let (ns, uuid) = (label.name.clone(), Some(label.uuid));
                pieces.push(Piece { op: kind, ns, uuid, o: Object::Of(o), o2 });
            }
            None => {
                let doc = |bytes| Doc::from_bytes(bytes).ok().filter(|doc| !doc.is_empty());
                changes.extend(definition_changes(doc(&op.note), doc(&op.document)));
            }
        }
    }
    let database = changes.iter().find(|of| of.of_database).map(|of| of.database.clone());
    pieces.extend(with_dropped_targets(changes).into_iter().map(command));
    pieces.extend(database.map(|database| Piece {
        op: "c",
        ns: format!("{database}.$cmd"),
        uuid: None,
        o: Object::Made(kauri_bson::doc! { "dropDatabase" => 1 }),
        o2: None,
    }));
    pieces
}

fn command<'e>(change: DefinitionChange) -> Piece<'e> {
    let DefinitionChange { database, uuid, command, before, .. } = change;
    let name = command.as_doc().first().map_or("", |first| first.key()).to_owned();
    let o2 = before.map(|before| match name.as_str() {
        "collMod" if command.as_doc().get("index").is_some() => {
            kauri_bson::doc! { "indexOptions_old" => before }
        }
        "collMod" => kauri_bson::doc! { "collectionOptions_old" => before },
        _ => before,
    });
    Piece { op: "c", ns: format!("{database}.$cmd"), uuid, o: Object::Made(command), o2 }
}

/// A collection that makes room for a renamed one is dropped by the renaming, not by itself.
fn with_dropped_targets(mut changes: Vec<DefinitionChange>) -> Vec<DefinitionChange> {
    let target = changes.iter().enumerate().find_map(|(at, change)| {
        let to = change.command.as_doc().value("to").as_str()?.to_owned();
        change.command.as_doc().get("renameCollection").map(|_| (at, to))
    });
    let Some((renames, to)) = target else { return changes };
    let is_target = |change: &DefinitionChange| {
        let name = change.command.as_doc().value("drop").as_str().map(str::to_owned);
        name.is_some_and(|name| format!("{}.{name}", change.database) == to)
    };
    let Some(dropped) = changes.iter().position(is_target) else { return changes };
    let uuid = changes[dropped].uuid;
    let rename = &mut changes[renames];
    rename.command = DocBuf::build(|out| {
        out.put_all(rename.command.as_doc());
        if let Some(uuid) = uuid {
            let uuid = Value::Binary { subtype: 4, bytes: uuid.as_slice().into() };
            out.put_value("dropTarget", &uuid);
        }
    });
    changes.remove(dropped);
    changes
}
