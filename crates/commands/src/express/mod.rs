//! The express path: what most requests are, answered without a future, a plan or a context: a `find`
//! for one `_id`, one document to insert, one to update or delete by its `_id`.
//!
//! It takes only requests whose every field it knows to change nothing, and gives everything else
//! back untouched to `dispatch`, whose answer to the same request would be the same bytes. It never
//! waits: what is not at hand goes the ordinary way too. Only the reply to a write does, for the log.

mod find;
mod write;

use crate::client::Client;
use crate::registry;
use crate::server::Server;
use crate::sessions::SessionId;
use kauri_base::limits;
use kauri_base::rw_lock::{LockMode, OperationLock};
use kauri_bson::{Doc, Elem, Type};
use kauri_catalog::Collection;
use kauri_transport::{ReplyBuf, RequestContext, Tried};
use kauri_wire::{Header, OpMsg, opcode};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Longer requests are work that others on the worker would wait for.
const REQUEST_BYTES_MAX: usize = 80 * 1024;

/// A request that may be one for the express path.
struct Request<'r> {
    id: i32,
    body: Doc<'r>,
    /// The name of a document sequence and its only document.
    beside: Option<(&'r str, Doc<'r>)>,
}

/// Handles the request if it is one for the express path.
pub fn try_handle(
    server: &Arc<Server>,
    cx: &mut RequestContext<'_>,
    message: &[u8],
    reply: &mut ReplyBuf,
) -> Tried {
    if server.is_special() {
        return Tried::No;
    }
    let Some(request) = parse(message) else { return Tried::No };
    let Some(first) = request.body.first() else { return Tried::No };
    let tried = match first.key_bytes() {
        b"find" => find::try_find(server, cx, &request, reply).unwrap_or(Tried::No),
        b"insert" | b"update" | b"delete" => {
            write::try_write(server, cx, &request, reply).unwrap_or(Tried::No)
        }
        _ => Tried::No,
    };
    if let Tried::Done(_) = tried {
        crate::dispatch::log_if_slow_express(server, cx, message);
    }
    tried
}

fn parse(request: &[u8]) -> Option<Request<'_>> {
    let header = Header::parse(request)?;
    if header.op_code != opcode::MSG || request.len() > REQUEST_BYTES_MAX {
        return None;
    }
    let msg = OpMsg::parse(request).ok()?;
    if msg.flags != 0 {
        return None;
    }
    let valid = |bytes| kauri_bson::validate(bytes, limits::DOCUMENT_DEPTH_MAX).ok();
    let mut sequences = msg.sequences();
    let beside = match sequences.next() {
        None => None,
        Some(sequence) => {
            let mut documents = sequence.documents();
            let document = documents.next()?;
            if documents.next().is_some() || sequences.next().is_some() {
                return None;
            }
            Some((sequence.identifier, valid(document)?))
        }
    };
    Some(Request { id: header.request_id, body: valid(msg.body)?, beside })
}

/// What commands of the express path have in common.
#[derive(Default)]
struct Common<'r> {
    db: &'r str,
    collection: &'r str,
    session: Option<SessionId>,
}

impl<'r> Common<'r> {
    fn begin(first: Elem<'r>) -> Option<Common<'r>> {
        Some(Common { collection: text(first)?, ..Common::default() })
    }

    /// Takes a field that any command may have. `None`: it may change something.
    fn take(&mut self, elem: Elem<'r>) -> Option<()> {
        match elem.key_bytes() {
            b"$db" => self.db = text(elem)?,
            b"lsid" => self.session = Some(crate::concerns::session_id(elem).ok()?),
            b"$readPreference" | b"$clusterTime" if elem.ty() == Type::Document => {}
            _ => return None,
        }
        Some(())
    }

    /// Notes the use of the session and finds the collection.
    fn resolve(&self, server: &Server, client: &mut Client) -> Option<Arc<Collection>> {
        if self.db.is_empty() {
            return None;
        }
        if let Some(id) = self.session {
            server.sessions.touch(id, server.clock.monotonic()).ok()?;
        }
        let name = &mut client.scratch_name;
        name.clear();
        name.push_str(self.db);
        name.push('.');
        name.push_str(self.collection);
        server.catalog.collection(name)
    }

    /// The lock for this command, if there are locks (`lockGranularity`). The outer `None`: it would
    /// have to wait.
    fn lock(&self, server: &Server, mode: LockMode) -> Option<Option<OperationLock>> {
        server.locks.try_lock(self.db, self.collection, mode).ok()
    }
}

fn text(elem: Elem<'_>) -> Option<&str> {
    if elem.ty() != Type::String {
        return None;
    }
    let bytes = elem.value_bytes();
    std::str::from_utf8(bytes.get(4..bytes.len().checked_sub(1)?)?).ok()
}

/// The `_id` of a filter that asks for nothing else.
fn id_of(filter: Elem<'_>) -> Option<Elem<'_>> {
    let filter = filter.as_doc().filter(|_| filter.ty() == Type::Document)?;
    let mut parts = filter.iter();
    let id = parts.next().filter(|e| e.key_bytes() == b"_id")?;
    (parts.next().is_none() && is_plain(id)).then_some(id)
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

/// The numbers of the commands of the express path.
struct Numbers {
    find: usize,
    insert: usize,
    update: usize,
    delete: usize,
}

fn numbers() -> &'static Numbers {
    static NUMBERS: OnceLock<Numbers> = OnceLock::new();
    NUMBERS.get_or_init(|| {
        let of = |name| registry::by_name().get(name).map_or(usize::MAX, |entry| entry.number);
        Numbers {
            find: of("find"),
            insert: of("insert"),
            update: of("update"),
            delete: of("delete"),
        }
    })
}

fn next_reply_id() -> i32 {
    crate::dispatch::NEXT_REQUEST_ID.fetch_add(1, Ordering::Relaxed)
}
