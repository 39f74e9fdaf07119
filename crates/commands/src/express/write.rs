//! Insert, update or delete of one document by its `_id`.

use super::{Common, List, Request, id_of, is_admitted, next_reply_id};
use crate::client::Client;
use crate::server::Server;
use crate::set::write_wait;
use crate::write_concern::WriteConcernW;
use crate::{set, usage};
use kauri_bson::{Doc, DocWriter, Elem, Type};
use kauri_catalog::Collection;
use kauri_mutate::{ParseCx, Update};
use kauri_query::write::single;
use kauri_storage::CommitTicket;
use kauri_transport::{Outcome, ReplyBuf, RequestContext, Tried};
use kauri_wire::MsgWriter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The one statement of a command.
enum Statement<'r> {
    Insert(Doc<'r>),
    Update { id: Elem<'r>, update: Elem<'r> },
    Delete { id: Elem<'r>, is_one: bool },
}

/// The result.
struct Done {
    n: i32,
    modified: Option<i32>,
    ticket: Option<CommitTicket>,
}

pub(super) fn try_write(
    server: &Arc<Server>,
    cx: &mut RequestContext<'_>,
    request: &Request<'_>,
    list: List,
    reply: &mut ReplyBuf,
) -> Option<Tried> {
    let (mut common, statement) = parse(server, request, list)?;
    if !is_admitted(server, &common, request.body) {
        return None;
    }
    let client = cx.state.downcast_mut::<Client>()?;
    let collection = common.resolve(server, client)?;
    common.complete_write(server, client)?;
    #[cfg(feature = "lock-experiment")]
    let lock = common.lock(server, kauri_base::rw_lock::LockMode::Exclusive)?;
    let numbered = common.statement(server)?;
    let is_numbered = numbered.is_some();
    let mut done = run(server, client, &collection, &statement, numbered)?;
    if is_numbered && done.ticket.is_none() {
        // Another attempt may have been in between.
        common.statement(server)?;
    }
    #[cfg(feature = "lock-experiment")]
    drop(lock);
    count(server, &statement, &done);
    server.counters.commands.count(common.entry.number, false);
    usage::record_express(server, cx, &collection, common.entry.command.kind);
    let commit = done.ticket.take();
    let awaited = match &server.member {
        None => write_wait::awaited(server, &common.write_concern, commit),
        Some(member) => {
            let commit = commit.map(|ticket| ticket.seq);
            // Concerns that may fail are left to dispatch.
            write_wait::awaited_of_set(server, member, &common.write_concern, commit)
                .map_or(None, |[first, _]| first)
        }
    };
    write(server, reply, request.id, &done);
    Some(match awaited {
        Some(ticket) => {
            cx.worker.want_tick_end();
            Tried::After(ticket)
        }
        None => Tried::Done(Outcome::Reply),
    })
}

fn parse<'r>(
    server: &Server,
    request: &Request<'r>,
    list: List,
) -> Option<(Common<'r>, Statement<'r>)> {
    let mut fields = request.body.iter();
    let mut common = Common::begin(server, list.entry(), fields.next()?)?;
    let name = list.name();
    let mut statement = match request.beside {
        Some((beside, document)) if beside == name => Some(document),
        Some(_) => return None,
        None => None,
    };
    for elem in fields {
        match elem.key_bytes() {
            b"ordered" if elem.ty() == Type::Bool => {}
            key if key == name.as_bytes() && elem.ty() == Type::Array && statement.is_none() => {
                let mut entries = elem.as_doc()?.iter();
                statement = entries.next().filter(|e| e.ty() == Type::Document)?.as_doc();
                if entries.next().is_some() {
                    return None;
                }
            }
            _ => common.take(elem)?,
        }
    }
    if !matches!(common.write_concern.w, WriteConcernW::Members(1) | WriteConcernW::Majority) {
        return None;
    }
    let statement = statement?;
    let statement = match list {
        List::Documents => Statement::Insert(statement),
        List::Updates => update_of(statement)?,
        List::Deletes => delete_of(statement)?,
    };
    if common.txn_number.is_some() && matches!(statement, Statement::Delete { is_one: false, .. }) {
        return None;
    }
    Some((common, statement))
}

fn update_of(statement: Doc<'_>) -> Option<Statement<'_>> {
    let (mut id, mut update) = (None, None);
    for elem in statement.iter() {
        match elem.key_bytes() {
            b"q" => id = Some(id_of(elem)?),
            b"u" if elem.ty() == Type::Document => update = Some(elem),
            b"multi" | b"upsert" if elem.ty() == Type::Bool && elem.value_bytes() == [0] => {}
            _ => return None,
        }
    }
    Some(Statement::Update { id: id?, update: update? })
}

fn delete_of(statement: Doc<'_>) -> Option<Statement<'_>> {
    let (mut id, mut limit) = (None, None);
    for elem in statement.iter() {
        match elem.key_bytes() {
            b"q" => id = Some(id_of(elem)?),
            b"limit" => limit = elem.value().as_i64_exact().filter(|limit| matches!(limit, 0 | 1)),
            _ => return None,
        }
    }
    Some(Statement::Delete { id: id?, is_one: limit? == 1 })
}

fn run(
    server: &Server,
    client: &mut Client,
    collection: &Collection,
    statement: &Statement<'_>,
    numbered: single::Statement,
) -> Option<Done> {
    let scratch = &mut client.scratch_keys;
    let key = &mut client.scratch_key;
    let scope = client.scope.get_or_insert_with(|| server.backend.scope());
    match statement {
        Statement::Insert(doc) => {
            let ticket = single::insert(scope, collection, *doc, scratch, numbered)?;
            Some(Done { n: 1, modified: None, ticket: Some(ticket) })
        }
        Statement::Update { id, update } => {
            let update = Update::parse(&update.value(), &[], &ParseCx::new()).ok()?;
            key.clear();
            key.append_elem(*id, false);
            let (backend, key) = (&server.backend, key.bytes());
            let done = single::update(scope, backend, collection, key, &update, scratch, numbered)?;
            let (n, modified) = (i32::from(done.matched), i32::from(done.modified));
            Some(Done { n, modified: Some(modified), ticket: done.ticket })
        }
        Statement::Delete { id, .. } => {
            key.clear();
            key.append_elem(*id, false);
            let done = single::delete(scope, collection, key.bytes(), scratch, numbered)?;
            Some(Done { n: i32::from(done.matched), modified: None, ticket: done.ticket })
        }
    }
}

fn count(server: &Server, statement: &Statement<'_>, done: &Done) {
    let counters = &server.counters;
    let (statements, documents, changed): (_, &AtomicU64, _) = match statement {
        Statement::Insert(_) => (&counters.insert, &counters.docs_inserted, done.n),
        Statement::Update { .. } => {
            (&counters.update, &counters.docs_updated, done.modified.unwrap_or_default())
        }
        Statement::Delete { .. } => (&counters.delete, &counters.docs_deleted, done.n),
    };
    statements.fetch_add(1, Ordering::Relaxed);
    documents.fetch_add(changed as u64, Ordering::Relaxed);
    if !matches!(statement, Statement::Insert(_)) {
        counters.keys_scanned.fetch_add(done.n as u64, Ordering::Relaxed);
        counters.docs_scanned.fetch_add(done.n as u64, Ordering::Relaxed);
    }
}

fn write(server: &Server, reply: &mut ReplyBuf, request_id: i32, done: &Done) {
    let out = reply.buffer();
    let message = MsgWriter::begin(out, next_reply_id(), request_id, 0);
    {
        let mut body = DocWriter::new(out);
        body.put("n", done.n);
        if let Some(modified) = done.modified {
            body.put("nModified", modified);
        }
        body.put("ok", 1.0);
        set::reply::put_times(&mut body, server);
    }
    // So short a message always fits.
    let _ = message.finish(out);
}
