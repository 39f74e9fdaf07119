//! One document inserted, or one updated or deleted by its `_id`.

use super::{Common, Request, id_of, next_reply_id, numbers};
use crate::client::Client;
use crate::server::Server;
use crate::usage;
use kauri_base::rw_lock::LockMode;
use kauri_bson::{Doc, DocWriter, Elem, Type};
use kauri_catalog::{Collection, OperationKind};
use kauri_mutate::{ParseCx, Update};
use kauri_query::write::single;
use kauri_storage::{CommitTicket, Durability};
use kauri_transport::{Outcome, ReplyBuf, RequestContext, Tried};
use kauri_wire::MsgWriter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// The one statement of a command.
enum Statement<'r> {
    Insert(Doc<'r>),
    Update { id: Elem<'r>, update: Elem<'r> },
    Delete { id: Elem<'r> },
}

impl Statement<'_> {
    fn kind(&self) -> OperationKind {
        match self {
            Statement::Insert(_) => OperationKind::Insert,
            Statement::Update { .. } => OperationKind::Update,
            Statement::Delete { .. } => OperationKind::Remove,
        }
    }
}

/// What it came to.
struct Done {
    n: i32,
    modified: Option<i32>,
    ticket: Option<CommitTicket>,
}

pub(super) fn try_write(
    server: &Arc<Server>,
    cx: &mut RequestContext<'_>,
    request: &Request<'_>,
    reply: &mut ReplyBuf,
) -> Option<Tried> {
    if server.fsync_locks.load(Ordering::Acquire) > 0 {
        return None;
    }
    let (common, statement) = parse(request)?;
    let client = cx.state.downcast_mut::<Client>()?;
    let collection = common.resolve(server, client)?;
    let lock = common.lock(server, LockMode::Exclusive)?;
    let done = run(server, client, &collection, &statement)?;
    drop(lock);
    count(server, &statement, &done);
    usage::record_express(server, cx, &collection, statement.kind());
    write(reply, request.id, &done);
    let ticket = done.ticket.as_ref().and_then(|t| t.ticket(Durability::Written));
    Some(match ticket {
        Some(ticket) => {
            cx.worker.want_tick_end();
            Tried::After(ticket.clone())
        }
        None => Tried::Done(Outcome::Reply),
    })
}

fn parse<'r>(request: &Request<'r>) -> Option<(Common<'r>, Statement<'r>)> {
    let mut fields = request.body.iter();
    let command = fields.next()?;
    let mut common = Common::begin(command)?;
    let list = match command.key_bytes() {
        b"insert" => "documents",
        b"update" => "updates",
        _ => "deletes",
    };
    let mut statement = match request.beside {
        Some((name, document)) if name == list => Some(document),
        Some(_) => return None,
        None => None,
    };
    for elem in fields {
        match elem.key_bytes() {
            b"ordered" if elem.ty() == Type::Bool => {}
            key if key == list.as_bytes() && elem.ty() == Type::Array && statement.is_none() => {
                let mut entries = elem.as_doc()?.iter();
                statement = entries.next().filter(|e| e.ty() == Type::Document)?.as_doc();
                if entries.next().is_some() {
                    return None;
                }
            }
            _ => common.take(elem)?,
        }
    }
    let statement = statement?;
    let statement = match list {
        "documents" => Statement::Insert(statement),
        "updates" => update_of(statement)?,
        _ => delete_of(statement)?,
    };
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
    let (mut id, mut limited) = (None, false);
    for elem in statement.iter() {
        match elem.key_bytes() {
            b"q" => id = Some(id_of(elem)?),
            b"limit" => limited = matches!(elem.value().as_i64_exact(), Some(0 | 1)),
            _ => return None,
        }
    }
    limited.then_some(Statement::Delete { id: id? })
}

fn run(
    server: &Server,
    client: &mut Client,
    collection: &Collection,
    statement: &Statement<'_>,
) -> Option<Done> {
    let catalog = &server.catalog;
    let scratch = &mut client.scratch_keys;
    let key = &mut client.scratch_key;
    let reader = client.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
    let ru = &mut **reader.get_or_insert_with(|| catalog.engine().recovery_unit());
    match statement {
        Statement::Insert(doc) => {
            let ticket = single::insert(catalog, collection, *doc, scratch)?;
            Some(Done { n: 1, modified: None, ticket: Some(ticket) })
        }
        Statement::Update { id, update } => {
            let update = Update::parse(&update.value(), &[], &ParseCx::new()).ok()?;
            key.clear();
            key.append_elem(*id, false);
            let done = single::update(catalog, collection, ru, key.bytes(), &update, scratch)?;
            let (n, modified) = (i32::from(done.matched), i32::from(done.modified));
            Some(Done { n, modified: Some(modified), ticket: done.ticket })
        }
        Statement::Delete { id } => {
            key.clear();
            key.append_elem(*id, false);
            let done = single::delete(catalog, collection, ru, key.bytes(), scratch)?;
            Some(Done { n: i32::from(done.matched), modified: None, ticket: done.ticket })
        }
    }
}

fn count(server: &Server, statement: &Statement<'_>, done: &Done) {
    let counters = &server.counters;
    let (number, statements, documents, changed): (_, _, &AtomicU64, _) = match statement {
        Statement::Insert(_) => {
            (numbers().insert, &counters.insert, &counters.docs_inserted, done.n)
        }
        Statement::Update { .. } => (
            numbers().update,
            &counters.update,
            &counters.docs_updated,
            done.modified.unwrap_or_default(),
        ),
        Statement::Delete { .. } => {
            (numbers().delete, &counters.delete, &counters.docs_deleted, done.n)
        }
    };
    counters.commands.count(number, false);
    statements.fetch_add(1, Ordering::Relaxed);
    documents.fetch_add(changed as u64, Ordering::Relaxed);
}

fn write(reply: &mut ReplyBuf, request_id: i32, done: &Done) {
    let out = reply.buffer();
    let message = MsgWriter::begin(out, next_reply_id(), request_id, 0);
    {
        let mut body = DocWriter::new(out);
        body.put("n", done.n);
        if let Some(modified) = done.modified {
            body.put("nModified", modified);
        }
        body.put("ok", 1.0);
    }
    // So short a message always fits.
    let _ = message.finish(out);
}
