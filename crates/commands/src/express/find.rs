//! A `find` of one `_id`.

use super::{Common, Request, commands, id_of, is_admitted, next_reply_id};
use crate::client::Client;
use crate::server::Server;
use crate::{set, usage};
use kauri_base::{Access, Result};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, KeyStringBuilder, Type};
use kauri_catalog::{Collection, OperationKind};
use kauri_storage::Record;
use kauri_transport::{Outcome, ReplyBuf, RequestContext, SPLICE_BYTES_MIN, Tried};
use kauri_wire::{MsgWriter, begin_msg_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) fn try_find(
    server: &Arc<Server>,
    cx: &mut RequestContext<'_>,
    request: &Request<'_>,
    reply: &mut ReplyBuf,
) -> Option<Tried> {
    let (mut common, id) = parse(server, request)?;
    if !is_admitted(server, &common, request.body) {
        return None;
    }
    let client = cx.state.downcast_mut::<Client>()?;
    let collection = common.resolve(server, client)?;
    common.begin_read(server, client)?;
    #[cfg(feature = "lock-experiment")]
    let _lock = common.lock(server, kauri_base::rw_lock::LockMode::Shared)?;
    let reader = client.scope.get_or_insert_with(|| server.backend.scope()).enter();
    let answered = match look_up(&collection, &*reader, id, &mut client.scratch_key) {
        Ok(Some(found)) => write(server, &collection, found, request.id, reply).is_ok(),
        _ => false,
    };
    drop(reader);
    if !answered || !common.may_tell(server) {
        let _ = reply.clear();
        return None;
    }
    let counters = &server.counters;
    counters.query.fetch_add(1, Ordering::Relaxed);
    counters.found_by_id.fetch_add(1, Ordering::Relaxed);
    counters.commands.count(common.entry.number, false);
    usage::record_express(server, cx, &collection, OperationKind::Query);
    Some(Tried::Done(Outcome::Reply))
}

/// `None` unless the command is a find by `_id` without anything that would make it another one.
fn parse<'r>(server: &Server, request: &Request<'r>) -> Option<(Common<'r>, Elem<'r>)> {
    if request.beside.is_some() {
        return None;
    }
    let mut fields = request.body.iter();
    let mut common = Common::begin(server, commands().find, fields.next()?)?;
    let mut id = None;
    for elem in fields {
        match elem.key_bytes() {
            b"filter" => id = Some(id_of(elem)?),
            // A batch of at least one document holds the answer.
            b"limit" | b"batchSize" if elem.ty() == Type::Int32 || elem.ty() == Type::Int64 => {
                elem.value().as_i64_exact().filter(|n| *n > 0)?;
            }
            b"singleBatch" if elem.ty() == Type::Bool => {}
            b"projection" | b"sort" if elem.as_doc().is_some_and(Doc::is_empty) => {}
            _ => common.take(elem)?,
        }
    }
    Some((common, id?))
}

fn look_up<'g>(
    collection: &Collection,
    ru: &'g dyn kauri_storage::RecoveryUnit,
    id: Elem<'_>,
    key: &mut KeyStringBuilder,
) -> Result<Option<Record<'g>>> {
    let Some(index) = collection.id_index() else { return Ok(None) };
    key.clear();
    key.append_elem(id, false);
    let Access::Ready(Some(id)) = index.data.find(ru, key.bytes())? else { return Ok(None) };
    let Access::Ready(Some(record)) = collection.store.get(ru, id)? else { return Ok(None) };
    index.usage.accesses.fetch_add(1, Ordering::Relaxed);
    Ok(Some(record))
}

/// Bytes of a cursor reply around its one document and the namespace's text, without the fields behind the cursor.
const AROUND_BYTES: usize = {
    let length = 4;
    let end = 1;
    let cursor = 1 + "cursor".len() + 1 + length;
    let batch = 1 + "firstBatch".len() + 1 + length + (1 + 2) + end;
    let id = 1 + "id".len() + 1 + 8;
    let ns = 1 + "ns".len() + 1 + 4 + 1;
    length + cursor + batch + id + ns + end + end
};

fn write(
    server: &Server,
    collection: &Collection,
    record: Record<'_>,
    response_to: i32,
    reply: &mut ReplyBuf,
) -> Result<()> {
    let doc = record.doc.as_bytes();
    let reply_id = next_reply_id();
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
            set::reply::put_times(&mut body, server);
        }
        return message.finish(out);
    }
    // A large document leaves from where it lies, so all lengths are written before it.
    let behind = DocBuf::build(|out| {
        out.put("ok", 1.0);
        set::reply::put_times(out, server);
    });
    // Its elements, without the length and the end.
    let behind = behind.as_bytes().get(4..).unwrap_or(&[0]);
    let body = AROUND_BYTES + ns.len() + doc.len() + behind.len() - 1;
    let out = reply.buffer();
    begin_msg_of(out, reply_id, response_to, 0, body)?;
    let batch = 4 + 3 + doc.len() + 1;
    let cursor = body - 4 - (1 + "cursor".len() + 1) - behind.len();
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
    out.extend_from_slice(b"\0\0");
    out.extend_from_slice(behind);
    Ok(())
}
