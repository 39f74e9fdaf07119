//! The express path: processes the most frequent requests without a future, a plan or an operation context: a
//! `find` of one `_id`, the insert of one document, an update or delete of one document by its `_id`.
//!
//! It accepts only requests whose every field it knows. All other requests go unchanged to `dispatch`, which gives
//! the same reply. The express path never waits for data: if something is missing, the request goes to `dispatch`.
//! Only the reply to a write waits, for the log ([`wait`]).

mod find;
mod wait;
mod write;

pub(crate) use wait::{put_error, wait_longer};

use crate::admission::admit;
use crate::client::Client;
use crate::read_concern::{self, Level, ReadConcern};
use crate::registry::{self, Asked, Entry};
use crate::server::Server;
use crate::sessions::SessionId;
use crate::set::defaults::{self, Defaults};
use crate::set::{cluster_time, read_preference, retries};
use crate::write_concern::{WriteConcern, WriteConcernW};
use crate::{concerns, write_concern};
use kauri_base::{Timestamp, limits};
use kauri_bson::{Doc, Elem, Type};
use kauri_catalog::Collection;
use kauri_member::Concern;
use kauri_member::statements::Known;
use kauri_query::write::single;
use kauri_storage::NumberedWrite;
use kauri_transport::{ReplyBuf, RequestContext, Tried};
use kauri_wire::{Header, OpMsg, opcode};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

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
    if server.fail_points.any_active() {
        return Tried::No;
    }
    let Some(request) = parse(message) else { return Tried::No };
    let Some(first) = request.body.first() else { return Tried::No };
    let tried = match first.key_bytes() {
        b"find" => find::try_find(server, cx, &request, reply),
        name => list_of(name).and_then(|list| write::try_write(server, cx, &request, list, reply)),
    };
    let Some(tried) = tried else { return Tried::No };
    if let Tried::Done(_) = tried {
        crate::report::express(server, cx, message, reply);
    }
    tried
}

/// The statements' list of a command that writes.
fn list_of(command: &[u8]) -> Option<List> {
    match command {
        b"insert" => Some(List::Documents),
        b"update" => Some(List::Updates),
        b"delete" => Some(List::Deletes),
        _ => None,
    }
}

/// A list of statements.
#[derive(Clone, Copy)]
enum List {
    Documents,
    Updates,
    Deletes,
}

impl List {
    fn name(self) -> &'static str {
        match self {
            List::Documents => "documents",
            List::Updates => "updates",
            List::Deletes => "deletes",
        }
    }

    fn entry(self) -> Entry {
        match self {
            List::Documents => commands().insert,
            List::Updates => commands().update,
            List::Deletes => commands().delete,
        }
    }
}

/// The command of a request that the express path has taken.
pub(crate) fn entry_of(message: &[u8]) -> Option<Entry> {
    let first = parse(message)?.body.first()?;
    registry::by_name().get(first.key()).copied()
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

/// What commands of the express path share.
struct Common<'r> {
    entry: Entry,
    db: &'r str,
    collection: &'r str,
    session: Option<SessionId>,
    /// The session's number for this write.
    txn_number: Option<i64>,
    write_concern: WriteConcern,
    read_concern: ReadConcern,
    /// Whether a secondary may answer.
    secondary_ok: bool,
    /// `$clusterTime`, on a member of a set.
    cluster_time: Option<Timestamp>,
    /// Whether this server is a member of a set.
    is_member: bool,
    /// `maxTimeMS`. Only a wait can exceed it.
    time_limit: Option<Duration>,
}

impl<'r> Common<'r> {
    fn begin(server: &Server, entry: Entry, first: Elem<'r>) -> Option<Common<'r>> {
        Some(Common {
            entry,
            db: "",
            collection: text(first)?,
            session: None,
            txn_number: None,
            write_concern: WriteConcern::default(),
            read_concern: ReadConcern::default(),
            secondary_ok: false,
            cluster_time: None,
            is_member: server.member.is_some(),
            time_limit: None,
        })
    }

    /// Takes a field that any command may have. `None`: it is for the ordinary path, or refused.
    fn take(&mut self, elem: Elem<'r>) -> Option<()> {
        match elem.key_bytes() {
            b"$db" => self.db = text(elem)?,
            b"lsid" => self.session = Some(concerns::session_id(elem).ok()?),
            b"$readPreference" => self.secondary_ok = read_preference::parse(elem).ok()?,
            b"$clusterTime" if self.is_member => {
                self.cluster_time = Some(cluster_time::parse(elem).ok()?);
            }
            b"$clusterTime" if elem.ty() == Type::Document => {}
            b"txnNumber" => self.txn_number = Some(concerns::txn_number(elem).ok()?),
            b"writeConcern" => {
                self.write_concern =
                    write_concern::read(self.entry.command, elem, self.is_member).ok()?;
            }
            b"readConcern" => {
                self.read_concern =
                    read_concern::read(self.entry.command, elem, self.is_member).ok()?;
            }
            b"maxTimeMS" | b"maxTimeMSOpOnly" => {
                let limit = Duration::from_millis(concerns::max_time_ms(elem).ok()?);
                if !limit.is_zero() {
                    self.time_limit = Some(self.time_limit.map_or(limit, |least| least.min(limit)));
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Notes the use of the session and finds the collection.
    fn resolve(&self, server: &Server, client: &mut Client) -> Option<Arc<Collection>> {
        if self.db.is_empty() {
            return None;
        }
        if let Some(number) = self.txn_number {
            concerns::check_txn_number(self.entry.command, self.session, number, self.is_member)
                .ok()?;
        }
        if let Some(time) = self.cluster_time {
            cluster_time::accept(server, time).ok()?;
        }
        if let Some(id) = self.session {
            server.sessions.touch(id, server.clock.monotonic()).ok()?;
        }
        let name = &mut client.scratch_name;
        name.clear();
        name.push_str(self.db);
        name.push('.');
        name.push_str(self.collection);
        // A dot in the database's name would reach a collection of another one.
        server.catalog.collection(name).filter(|found| found.ns.database() == self.db)
    }

    /// The statement of a numbered write. The outer `None`: it was executed, or cannot be told at once.
    fn statement(&self, server: &Server) -> Option<single::Statement> {
        let (Some(member), Some(number), Some(session)) =
            (&server.member, self.txn_number, self.session)
        else {
            return Some(None);
        };
        let (statements, now_ms) = (member.statements(), retries::now_ms(server));
        statements.begin(session, number, now_ms).ok()?;
        let known = statements.look(&session, number, 0, now_ms);
        let statements = vec![(0, Vec::new())];
        (known == Ok(Known::New))
            .then(|| Some(Box::new(NumberedWrite { session, number, statements })))
    }

    /// Gives a write the write concern that it does not name. `None`: it is one for dispatch.
    fn complete_write(&mut self, server: &Server, client: &mut Client) -> Option<()> {
        let Some(member) = &server.member else { return Some(()) };
        if self.write_concern.has_w {
            return Some(());
        }
        let default = defaults(server, client)?.write_concern(member);
        let is_simple = matches!(default.w, WriteConcernW::Members(1) | WriteConcernW::Majority)
            && default.timeout.is_none();
        self.write_concern.complete(&default);
        is_simple.then_some(())
    }

    /// `None`: the read has to wait first.
    fn begin_read(&mut self, server: &Server, client: &mut Client) -> Option<()> {
        let Some(member) = &server.member else { return Some(()) };
        if !self.read_concern.has_level {
            self.read_concern.level = defaults(server, client)?.read.unwrap_or_default();
        }
        let is_behind = |after| member.operation_time(server.backend.engine().visible()) < after;
        let waits = self.read_concern.level == Level::Linearizable
            || self.read_concern.after.is_some_and(is_behind);
        (!waits).then_some(())
    }

    /// Whether what was read may be told without waiting.
    fn may_tell(&self, server: &Server) -> bool {
        let Some(member) = &server.member else { return true };
        if self.read_concern.level == Level::Local {
            return true;
        }
        let seen = server.backend.engine().visible();
        matches!(member.acknowledged(seen, &Concern::Majority), Ok(None))
    }

    /// The lock for this command, if there are locks (`lockGranularity`). The outer `None`: it would have to wait.
    #[cfg(feature = "lock-experiment")]
    fn lock(
        &self,
        server: &Server,
        mode: kauri_base::rw_lock::LockMode,
    ) -> Option<Option<kauri_base::rw_lock::OperationLock>> {
        server.locks.try_lock(self.db, self.collection, mode).ok()
    }
}

/// The concerns of requests that name none; `None` if that means to wait.
fn defaults(server: &Server, client: &mut Client) -> Option<Defaults> {
    let scope = client.scope.get_or_insert_with(|| server.backend.scope());
    defaults::peek(server, scope)
}

fn text(elem: Elem<'_>) -> Option<&str> {
    if elem.ty() != Type::String {
        return None;
    }
    let bytes = elem.value_bytes();
    std::str::from_utf8(bytes.get(4..bytes.len().checked_sub(1)?)?).ok()
}

/// The `_id` of a filter that has nothing else.
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

/// The commands of the express path.
struct Commands {
    find: Entry,
    insert: Entry,
    update: Entry,
    delete: Entry,
}

fn commands() -> &'static Commands {
    static COMMANDS: LazyLock<Commands> = LazyLock::new(|| {
        let of = |name| registry::by_name()[name];
        Commands {
            find: of("find"),
            insert: of("insert"),
            update: of("update"),
            delete: of("delete"),
        }
    });
    &COMMANDS
}

/// Whether the request may run now. Otherwise dispatch refuses it, or waits.
fn is_admitted(server: &Server, common: &Common<'_>, body: Doc<'_>) -> bool {
    let asked = Asked { db: common.db, body };
    matches!(admit(server, common.entry.command, asked, common.secondary_ok), Ok(None))
}

fn next_reply_id() -> i32 {
    crate::framing::NEXT_REQUEST_ID.fetch_add(1, Ordering::Relaxed)
}
