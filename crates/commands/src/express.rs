//! The express path: a `find` for one `_id`, answered without a future, a plan or a context.
//!
//! It takes only requests whose every field it knows to change nothing, and gives everything else
//! back untouched to `dispatch`, whose answer to the same request would be the same bytes. It never
//! waits: a document that is not at hand goes the ordinary way too.

use crate::client::Client;
use crate::server::Server;
use crate::sessions::SessionId;
use kauri_base::{Access, Result, limits};
use kauri_bson::{Doc, DocWriter, Elem, KeyStringBuilder, Type};
use kauri_catalog::Collection;
use kauri_storage::Record;
use kauri_transport::{Outcome, ReplyBuf, RequestContext, SPLICE_BYTES_MIN};
use kauri_wire::{Header, MsgWriter, OpMsg, begin_msg_of, opcode};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, PoisonError};

/// What of a request the express path needs.
struct Find<'r> {
    db: &'r str,
    collection: &'r str,
    id: Elem<'r>,
    session: Option<SessionId>,
}

/// Answers the request if it is one for the express path.
pub fn try_find(
    server: &Arc<Server>,
    next_request_id: &AtomicI32,
    cx: &mut RequestContext<'_>,
    request: &[u8],
    reply: &mut ReplyBuf,
) -> Option<Outcome> {
    let header = Header::parse(request)?;
    if header.op_code != opcode::MSG || server.is_special() {
        return None;
    }
    let msg = OpMsg::parse(request).ok()?;
    if msg.flags != 0 || msg.sequences().next().is_some() {
        return None;
    }
    let body = kauri_bson::validate(msg.body, limits::DOCUMENT_DEPTH_MAX).ok()?;
    let find = parse(body)?;
    if let Some(id) = find.session {
        server.sessions.touch(id, server.clock.monotonic()).ok()?;
    }
    let client = cx.state.downcast_mut::<Client>()?;
    let name = &mut client.scratch_name;
    name.clear();
    name.push_str(find.db);
    name.push('.');
    name.push_str(find.collection);
    let collection = server.catalog.collection(name)?;
    let reader = client.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
    let ru = reader.get_or_insert_with(|| server.catalog.engine().recovery_unit());
    ru.enter();
    let reply_id = next_request_id.fetch_add(1, Ordering::Relaxed);
    let answered = match look_up(&collection, &**ru, &find, &mut client.scratch_key) {
        Ok(Some(found)) => write(&collection, found, reply_id, header.request_id, reply).is_ok(),
        _ => false,
    };
    ru.leave();
    if !answered {
        let _ = reply.clear();
        return None;
    }
    server.counters.query.fetch_add(1, Ordering::Relaxed);
    server.counters.docs_returned.fetch_add(1, Ordering::Relaxed);
    Some(Outcome::Reply)
}

/// `None` unless the command is a find by `_id` without anything that would make it another one.
fn parse(body: Doc<'_>) -> Option<Find<'_>> {
    let mut fields = body.iter();
    let first = fields.next()?;
    if first.key_bytes() != b"find" || first.ty() != Type::String {
        return None;
    }
    let mut find = Find { db: "", collection: text(first)?, id: first, session: None };
    let mut has_id = false;
    for elem in fields {
        match elem.key_bytes() {
            b"filter" => {
                let filter = elem.as_doc().filter(|_| elem.ty() == Type::Document)?;
                let mut parts = filter.iter();
                find.id = parts.next().filter(|e| e.key_bytes() == b"_id")?;
                has_id = parts.next().is_none() && is_plain(find.id);
            }
            b"$db" if elem.ty() == Type::String => find.db = text(elem)?,
            // A batch of at least one document holds the answer.
            b"limit" | b"batchSize" if elem.ty() == Type::Int32 || elem.ty() == Type::Int64 => {
                elem.value().as_i64_exact().filter(|n| *n > 0)?;
            }
            b"singleBatch" if elem.ty() == Type::Bool => {}
            b"projection" | b"sort" if elem.as_doc().is_some_and(Doc::is_empty) => {}
            b"lsid" => find.session = Some(crate::concerns::session_id(elem).ok()?),
            b"$readPreference" if elem.ty() == Type::Document => {}
            b"$clusterTime" if elem.ty() == Type::Document => {}
            _ => return None,
        }
    }
    (has_id && !find.db.is_empty()).then_some(find)
}

fn text(elem: Elem<'_>) -> Option<&str> {
    let bytes = elem.value_bytes();
    std::str::from_utf8(bytes.get(4..bytes.len().checked_sub(1)?)?).ok()
}

/// Whether equality with this value is one point of the `_id` index.
fn is_plain(id: Elem<'_>) -> bool {
    match id.ty() {
        Type::Document => id.as_doc().is_some_and(|doc| {
            !doc.first().is_some_and(|first| first.key_bytes().starts_with(b"$"))
        }),
        Type::Array | Type::Null | Type::Undefined | Type::Regex => false,
        _ => true,
    }
}

fn look_up<'g>(
    collection: &Collection,
    ru: &'g dyn kauri_storage::RecoveryUnit,
    find: &Find<'_>,
    key: &mut KeyStringBuilder,
) -> Result<Option<Record<'g>>> {
    let Some(index) = collection.id_index() else { return Ok(None) };
    key.clear();
    key.append_elem(find.id, false);
    let Access::Ready(Some(id)) = index.data.find(ru, key.bytes())? else { return Ok(None) };
    let Access::Ready(Some(record)) = collection.store.get(ru, id)? else { return Ok(None) };
    index.usage.accesses.fetch_add(1, Ordering::Relaxed);
    Ok(Some(record))
}

/// Bytes of a cursor reply around its one document and the namespace's text.
const AROUND_BYTES: usize = {
    let length = 4;
    let end = 1;
    let cursor = 1 + "cursor".len() + 1 + length;
    let batch = 1 + "firstBatch".len() + 1 + length + (1 + 2) + end;
    let id = 1 + "id".len() + 1 + 8;
    let ns = 1 + "ns".len() + 1 + 4 + 1;
    let ok = 1 + "ok".len() + 1 + 8;
    length + cursor + batch + id + ns + end + ok + end
};

fn write(
    collection: &Collection,
    record: Record<'_>,
    reply_id: i32,
    response_to: i32,
    reply: &mut ReplyBuf,
) -> Result<()> {
    let doc = record.doc.as_bytes();
    let ns = collection.ns.as_str();
    if doc.len() < SPLICE_BYTES_MIN {
        let out = reply.buffer();
        let message = MsgWriter::begin(out, reply_id, response_to, 0);
        {
            let mut body = DocWriter::new(out);
            let mut cursor = body.document("cursor");
            cursor.array("firstBatch").push_doc(record.doc);
            cursor.put("id", 0i64);
            cursor.put("ns", ns);
            drop(cursor);
            body.put("ok", 1.0);
        }
        return message.finish(out);
    }
    // A large document leaves from where it lies, so all lengths are written before it.
    let body = AROUND_BYTES + ns.len() + doc.len();
    let out = reply.buffer();
    begin_msg_of(out, reply_id, response_to, 0, body)?;
    let batch = 4 + 3 + doc.len() + 1;
    let cursor = body - 4 - (1 + "cursor".len() + 1) - (1 + "ok".len() + 1 + 8) - 1;
    out.extend_from_slice(&(body as i32).to_le_bytes());
    out.extend_from_slice(b"\x03cursor\0");
    out.extend_from_slice(&(cursor as i32).to_le_bytes());
    out.extend_from_slice(b"\x04firstBatch\0");
    out.extend_from_slice(&(batch as i32).to_le_bytes());
    out.extend_from_slice(b"\x030\0");
    reply.splice(doc);
    let out = reply.buffer();
    out.push(0);
    out.extend_from_slice(b"\x12id\0\0\0\0\0\0\0\0\0");
    out.extend_from_slice(b"\x02ns\0");
    out.extend_from_slice(&(ns.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(ns.as_bytes());
    out.extend_from_slice(b"\0\0\x01ok\0");
    out.extend_from_slice(&1f64.to_le_bytes());
    out.push(0);
    Ok(())
}
