//! Reports of a finished operation: a slow-query line in the log, a document in `system.profile`.
//!
//! A command collects its [`Figures`] while it runs; both reports leave out unknown figures. An `update` or
//! `delete` reports each of its statements, as in MongoDB. The command itself has a line and no document.
//!
//! Invariant: an operation that is not slow costs one relaxed load while no database is profiled.
//!
//! This module must not know how documents are stored: the profiler's queue takes them.

mod document;
mod line;

use crate::client::Client;
use crate::invocation::Invocation;
use crate::profiling::Watch;
use crate::registry::{Asked, Command, Report};
use crate::server::Server;
use kauri_base::operation::OperationState;
use kauri_base::{Error, work};
use kauri_bson::{Doc, DocBuf, DocWriter, Value};
use kauri_catalog::{Namespace, OperationKind};
use kauri_query::exec::Totals;
use kauri_query::write::update::Updated;
use kauri_transport::{
    COARSE_NS_MAX, ReplyBuf, RequestContext, SessionInfo, WorkerHandle, monotonic_coarse_ns,
    monotonic_ns,
};
use kauri_wire::Message;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Whether what an operation has locked is known: nothing, unless it ran under locks.
#[cfg(feature = "lock-experiment")]
fn locks_are_known(server: &Server) -> bool {
    !server.locks.are_on()
}

/// Nothing.
#[cfg(not(feature = "lock-experiment"))]
const fn locks_are_known(_: &Server) -> bool {
    true
}

/// A command's figures of its work. `None` is not reported.
#[derive(Default)]
pub struct Figures {
    /// What its plan has examined.
    pub plan: Option<Totals>,
    /// The cursor that it left open.
    pub cursor_id: Option<i64>,
    /// Whether its cursor is at its end.
    pub cursor_exhausted: bool,
    /// Documents in the reply.
    pub returned: Option<u64>,
    /// Documents that an update matched.
    pub matched: Option<u64>,
    /// Documents that it changed.
    pub modified: Option<u64>,
    /// Documents that it inserted.
    pub upserted: Option<u64>,
    /// Documents inserted.
    pub inserted: Option<u64>,
    /// Documents deleted.
    pub deleted: Option<u64>,
    /// The command that opened the cursor of a `getMore`.
    pub originating: Option<Arc<DocBuf>>,
}

impl Figures {
    /// The figures of an update.
    pub fn of_update(plan: Totals, done: Option<&Updated>) -> Figures {
        Figures {
            plan: Some(plan),
            matched: done.map(|done| done.matched),
            modified: done.map(|done| done.modified),
            upserted: done.map(|done| u64::from(done.upserted.is_some())),
            ..Figures::default()
        }
    }

    /// The figures of a delete.
    pub fn of_delete(plan: Totals, deleted: Option<u64>) -> Figures {
        Figures { plan: Some(plan), deleted, ..Figures::default() }
    }

    /// The plan, if all of it is known.
    fn known_plan(&self) -> Option<&Totals> {
        self.plan.as_ref().filter(|plan| !plan.leaves.is_empty() && !plan.are_cut)
    }

    /// The figures that the line and the document have in common, in order.
    fn facts(&self, used_disk: bool) -> impl Iterator<Item = (&'static str, Fact)> {
        let plan = self.known_plan();
        let count = |n: Option<u64>| n.map(Fact::Count);
        let flag = |is_set: bool| is_set.then_some(Fact::Flag);
        [
            ("cursorid", self.cursor_id.map(Fact::Id)),
            ("keysExamined", count(plan.map(|plan| plan.keys_examined))),
            ("docsExamined", count(plan.map(|plan| plan.docs_examined))),
            ("hasSortStage", flag(plan.is_some_and(|plan| plan.sorts))),
            ("usedDisk", flag(used_disk)),
            ("fromMultiPlanner", flag(plan.is_some_and(|plan| plan.won_trial))),
            ("nMatched", count(self.matched)),
            ("nModified", count(self.modified)),
            ("nUpserted", count(self.upserted)),
            ("ninserted", count(self.inserted)),
            ("ndeleted", count(self.deleted)),
            ("cursorExhausted", flag(self.cursor_exhausted)),
        ]
        .into_iter()
        .filter_map(|(name, fact)| Some((name, fact?)))
    }
}

/// One figure.
#[derive(Clone, Copy)]
enum Fact {
    Count(u64),
    Id(i64),
    /// A set flag; an unset one is left out.
    Flag,
}

/// An operation that has ended.
#[derive(Clone, Copy)]
struct Operation<'a> {
    kind: OperationKind,
    /// The command; none of a statement.
    whole: Option<&'static Command>,
    db: &'a str,
    ns: &'a str,
    command: Doc<'a>,
    figures: &'a Figures,
    yields: u64,
    used_disk: bool,
    error: Option<&'a Error>,
    reply_bytes: Option<usize>,
    protocol: &'static str,
    session: &'a SessionInfo,
    app_name: &'a str,
    elapsed_ms: u64,
}

impl Operation<'_> {
    /// Whether it may have a document in `system.profile`.
    fn is_for_profile(&self) -> bool {
        // Statements have documents of their own.
        self.whole.is_none_or(|command| command.report == Report::Full)
    }

    /// Which engine executed its plan, where it read by one.
    fn framework(&self) -> Option<&'static str> {
        let reads = self.whole.is_some_and(|command| command.has_plan);
        (reads && self.figures.known_plan().is_some()).then_some("classic")
    }
}

/// Why an operation is reported: it is slow, or its database is watched.
struct Interest {
    is_slow: bool,
    elapsed_ms: u64,
    watch: Watch,
}

impl Interest {
    fn of(server: &Server, db: &str, started_ns: u64) -> Option<Interest> {
        let is_slow = is_slow(server, started_ns);
        if !is_slow && !server.profiling.watches() {
            return None;
        }
        let watch = server.profiling.of(db);
        if !is_slow && watch.filter.is_none() && watch.level < 2 {
            return None;
        }
        let elapsed_ms = monotonic_ns().saturating_sub(started_ns) / 1_000_000;
        Some(Interest { is_slow, elapsed_ms, watch })
    }
}

/// Whether an operation takes as long as `slowms` says.
fn is_slow(server: &Server, started_ns: u64) -> bool {
    let slow_ms = server.slow_ms.load(Ordering::Relaxed);
    let elapsed_ms = |now_ns: u64| (now_ns.saturating_sub(started_ns) / 1_000_000) as i64;
    elapsed_ms(monotonic_coarse_ns() + COARSE_NS_MAX) >= slow_ms
        && elapsed_ms(monotonic_ns()) >= slow_ms
}

/// Logs and profiles the operation, as far as the settings of its database say so.
fn tell(server: &Arc<Server>, worker: &WorkerHandle, interest: &Interest, op: &Operation<'_>) {
    let watch = &interest.watch;
    let mut document = None;
    let is_chosen = match &watch.filter {
        Some(filter) => {
            let document = document.insert(document::of(server, op));
            filter.lets_through(document.as_doc(), server)
        }
        None => interest.is_slow && is_sampled(server, watch.sample_rate),
    };
    if is_chosen {
        line::write(server, op);
    }
    let is_profiled = watch.level >= 2 || watch.level == 1 && is_chosen;
    if is_profiled && op.is_for_profile() && server.accepts_writes() {
        let document = document.unwrap_or_else(|| document::of(server, op));
        server.profiler.push(server, worker, op.db, document);
    }
}

fn is_sampled(server: &Server, rate: f64) -> bool {
    const STEPS: u64 = 1 << 53;
    rate >= 1.0 || ((server.random.next_u64() % STEPS) as f64) < rate * STEPS as f64
}

/// A command that has ended.
pub(crate) struct Ended<'r> {
    command: &'static Command,
    db: &'r str,
    body: Doc<'r>,
    figures: Figures,
    state: Arc<OperationState>,
    error: Option<Error>,
    protocol: &'static str,
}

impl<'r> Ended<'r> {
    /// Takes the reported state from an invocation; `None` if it did not run.
    pub fn of(
        invocation: &mut Invocation<'_>,
        (db, body): (&'r str, Doc<'r>),
        error: Option<&Error>,
        protocol: &'static str,
    ) -> Option<Ended<'r>> {
        let command = invocation.ran?;
        if command.report == Report::None {
            return None;
        }
        Some(Ended {
            command,
            db,
            body,
            figures: std::mem::take(&mut invocation.figures),
            state: invocation.op.state().clone(),
            error: error.cloned(),
            protocol,
        })
    }

    /// Reports it. `reply_bytes`: the reply's length, if there is one.
    pub fn tell(
        &self,
        server: &Arc<Server>,
        cx: &mut RequestContext<'_>,
        reply_bytes: Option<usize>,
    ) {
        let Some(interest) = Interest::of(server, self.db, cx.received_ns) else { return };
        let op = Operation {
            kind: kind_around(self.command),
            whole: Some(self.command),
            db: self.db,
            ns: &namespace(self.command, self.db, self.body),
            command: self.body,
            figures: &self.figures,
            yields: self.state.yields(),
            used_disk: self.state.used_disk(),
            error: self.error.as_ref(),
            reply_bytes,
            protocol: self.protocol,
            session: cx.session,
            app_name: cx.state.downcast_mut::<Client>().map_or("", |c| &c.app_name),
            elapsed_ms: interest.elapsed_ms,
        };
        tell(server, cx.worker, &interest, &op);
    }
}

/// The reported kind of a command: a command with separately reported statements counts as a command.
fn kind_around(command: &Command) -> OperationKind {
    match command.report {
        Report::Statements => OperationKind::Other,
        _ => command.kind,
    }
}

/// The reported namespace of a command.
fn namespace(command: &Command, db: &str, body: Doc<'_>) -> String {
    match command.report {
        Report::Statements => format!("{db}.$cmd"),
        _ => command.namespace(Asked { db, body }),
    }
}

/// A statement of an `update` or `delete`, from its beginning.
pub struct Statement {
    started_ns: u64,
    yields: u64,
}

impl Statement {
    /// A statement that begins now.
    pub fn begin(invocation: &Invocation<'_>) -> Statement {
        Statement { started_ns: monotonic_ns(), yields: invocation.op.state().yields() }
    }

    /// Counts and reports the statement at its end. `write` writes its fields.
    pub fn end(
        self,
        invocation: &Invocation<'_>,
        (kind, ns): (OperationKind, &Namespace),
        write: impl FnOnce(&mut DocWriter<'_>),
        figures: &Figures,
        error: Option<&Error>,
    ) {
        let server = invocation.server;
        if let Some(plan) = &figures.plan {
            server.counters.count_plan(plan);
        }
        let Some(interest) = Interest::of(server, ns.database(), self.started_ns) else { return };
        // The document outlives the operation, whose memory it is none of.
        work::unmetered(|| {
            let command = DocBuf::build(|out| {
                write(out);
                put_comment(out, invocation.body);
            });
            let state = invocation.op.state();
            let op = Operation {
                kind,
                whole: None,
                db: ns.database(),
                ns: ns.as_str(),
                command: command.as_doc(),
                figures,
                yields: state.yields() - self.yields,
                used_disk: state.used_disk(),
                error,
                reply_bytes: None,
                protocol: "",
                session: invocation.session,
                app_name: &invocation.client.app_name,
                elapsed_ms: interest.elapsed_ms,
            };
            tell(server, invocation.worker, &interest, &op);
        });
    }
}

/// The comment of the command, which its statements have in common.
fn put_comment(out: &mut DocWriter<'_>, body: Doc<'_>) {
    if let Some(comment) = body.get("comment") {
        out.put_elem(comment);
    }
}

/// Writes an update or delete statement: the named fields with their defaults first, then what else it has.
pub fn write_statement(
    out: &mut DocWriter<'_>,
    statement: Doc<'_>,
    named: &[(&str, Option<Value<'static>>)],
) {
    for (name, default) in named {
        match (statement.get(name), default) {
            (Some(elem), _) => out.put_elem(elem),
            (None, Some(default)) => out.put_value(name, default),
            (None, None) => {}
        }
    }
    let is_named = |key: &str| named.iter().any(|(name, _)| *name == key);
    statement.iter().filter(|elem| !is_named(elem.key())).for_each(|elem| out.put_elem(elem));
}

/// Writes an update statement.
pub fn write_update(out: &mut DocWriter<'_>, statement: Doc<'_>) {
    let no = || Some(Value::Bool(false));
    write_statement(out, statement, &[("q", None), ("u", None), ("multi", no()), ("upsert", no())]);
}

/// Writes a delete statement.
pub fn write_delete(out: &mut DocWriter<'_>, statement: Doc<'_>) {
    write_statement(out, statement, &[("q", None), ("limit", None)]);
}

/// Reports an operation of the express path, which is done and whose reply is written.
pub(crate) fn express(
    server: &Arc<Server>,
    cx: &mut RequestContext<'_>,
    request: &[u8],
    reply: &mut ReplyBuf,
) {
    if !server.profiling.watches() && !is_slow(server, cx.received_ns) {
        return;
    }
    let Ok((_, Message::Msg(msg))) = Message::parse(request) else { return };
    let body = Doc::from_bytes(msg.body).unwrap_or(Doc::EMPTY);
    let db = body.value("$db");
    let Some(db) = db.as_str() else { return };
    let Some(interest) = Interest::of(server, db, cx.received_ns) else { return };
    let beside = msg.sequences().next().and_then(|sequence| sequence.documents().next());
    let beside = beside.and_then(|bytes| Doc::from_bytes(bytes).ok());
    Express { server, interest: &interest, db, body, beside }.tell(cx, reply);
}

/// The figures of an operation of the express path. `count` reads a number of its reply.
fn of_express(kind: OperationKind, count: impl Fn(&str) -> Option<u64>) -> Figures {
    let n = count("n");
    let by_id = |found: u64| {
        let mut plan = Totals { keys_examined: found, docs_examined: found, ..Totals::default() };
        plan.add_leaf("IDHACK", None);
        plan
    };
    match kind {
        OperationKind::Query => {
            let (plan, returned) = (Some(by_id(1)), Some(1));
            Figures { plan, returned, cursor_exhausted: true, ..Figures::default() }
        }
        OperationKind::Insert => Figures { inserted: n, ..Figures::default() },
        OperationKind::Update => {
            let (plan, modified) = (Some(by_id(n.unwrap_or(0))), count("nModified"));
            let upserted = Some(0);
            Figures { plan, matched: n, modified, upserted, ..Figures::default() }
        }
        _ => Figures::of_delete(by_id(n.unwrap_or(0)), n),
    }
}

/// An operation of the express path.
struct Express<'a> {
    server: &'a Arc<Server>,
    interest: &'a Interest,
    db: &'a str,
    body: Doc<'a>,
    /// The document that came beside the body.
    beside: Option<Doc<'a>>,
}

impl Express<'_> {
    fn tell(&self, cx: &mut RequestContext<'_>, reply: &mut ReplyBuf) {
        let name = self.body.first().map_or("", |first| first.key());
        let Some(entry) = crate::registry::by_name().get(name) else { return };
        let reply_bytes = Some(reply.total_len());
        // A large document may have left already; then the reply is that to a find.
        let answer = Message::parse(reply.buffer()).ok().and_then(|(_, message)| match message {
            Message::Msg(msg) => Doc::from_bytes(msg.body).ok(),
            _ => None,
        });
        let count = |field: &str| {
            let value = answer.map(|answer| answer.value(field).to_i64_saturating());
            value.flatten().and_then(|n| u64::try_from(n).ok())
        };
        let kind = entry.command.kind;
        let figures = of_express(kind, count);
        let ns = match self.body.first().map(|first| first.value()) {
            Some(Value::String(collection)) => format!("{}.{collection}", self.db),
            _ => return,
        };
        let app_name = cx.state.downcast_mut::<Client>().map_or("", |c| &c.app_name);
        let whole = Operation {
            kind,
            whole: Some(entry.command),
            db: self.db,
            ns: &ns,
            command: self.body,
            figures: &figures,
            yields: 0,
            used_disk: false,
            error: None,
            reply_bytes,
            protocol: "op_msg",
            session: cx.session,
            app_name,
            elapsed_ms: self.interest.elapsed_ms,
        };
        if let OperationKind::Query | OperationKind::Insert = kind {
            return tell(self.server, cx.worker, self.interest, &whole);
        }
        let statement = self.statement(kind);
        let part =
            Operation { whole: None, command: statement.as_doc(), reply_bytes: None, ..whole };
        tell(self.server, cx.worker, self.interest, &part);
        let (none, ns) = (Figures::default(), format!("{}.$cmd", self.db));
        let around = Operation {
            kind: OperationKind::Other,
            whole: Some(entry.command),
            ns: &ns,
            command: self.body,
            figures: &none,
            reply_bytes,
            ..part
        };
        tell(self.server, cx.worker, self.interest, &around);
    }

    /// The one statement of an update or delete.
    fn statement(&self, kind: OperationKind) -> DocBuf {
        let field = if kind == OperationKind::Update { "updates" } else { "deletes" };
        let list = self.body.get(field).and_then(|elem| elem.as_doc());
        let inside = list.and_then(|list| list.first()).and_then(|first| first.as_doc());
        let statement = self.beside.or(inside).unwrap_or(Doc::EMPTY);
        DocBuf::build(|out| {
            match kind {
                OperationKind::Update => write_update(out, statement),
                _ => write_delete(out, statement),
            }
            put_comment(out, self.body);
        })
    }
}
