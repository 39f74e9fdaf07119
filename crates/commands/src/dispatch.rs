//! From a message to its reply.
//!
//! Parses and validates the message, finds the command, reads the arguments that all commands share,
//! runs it, and writes its reply or its error in the form that the message came in. A bad message
//! costs its sender an error; a malformed one, its connection.

use crate::client::Client;
use crate::concerns;
use crate::fail_command;
use crate::invocation::{Invocation, Sequence, WriteConcernW};
use crate::ops::Entered;
use crate::registry::{self, Access, Command};
use crate::server::Server;
use kauri_base::log::{self, Attr};
use kauri_base::operation::{ClientPresence, OperationState};
use kauri_base::work::MemoryAccount;
use kauri_base::{Error, ErrorCode, OperationContext, Result, bail, limits, work};
use kauri_bson::{Doc, DocWriter, Value};
use kauri_catalog::dropped::{REPLANS_MAX, is_dropped};
use kauri_transport::{
    COARSE_NS_MAX, Liveness, Outcome, ReplyBuf, RequestContext, SessionInfo, WorkerHandle,
    monotonic_coarse_ns, monotonic_ns,
};
use kauri_wire::{
    Compressor, Header, Message, MsgWriter, ReplyWriter, flags, is_connection_fatal, opcode,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Ids of replies.
pub(crate) static NEXT_REQUEST_ID: AtomicI32 = AtomicI32::new(1);

/// How the request came, and so how the reply goes.
#[derive(Clone, Copy)]
struct Form {
    header: Header,
    /// OP_QUERY, answered by OP_REPLY.
    legacy: bool,
    checksum: bool,
    no_reply: bool,
    /// By what the request was compressed, and how long it was before.
    compressed: Option<(Compressor, usize)>,
    exhaust_allowed: bool,
}

struct Presence(Arc<Liveness>);

impl ClientPresence for Presence {
    fn is_connected(&self) -> bool {
        self.0.check().is_ok()
    }
}

/// Handles one message.
pub async fn handle(
    server: &Arc<Server>,
    mut cx: RequestContext<'_>,
    request: &[u8],
    reply: &mut ReplyBuf,
) -> Outcome {
    let mut unpacked = Vec::new();
    let (form, message) = match unpack(request, &mut unpacked) {
        Ok(parts) => parts,
        Err(error) => return refuse(&cx, request, &error, reply),
    };
    count_request(server, &mut cx, form, request.len());
    let (db, body, sequences) = match &message {
        Message::Msg(msg) => (None, msg.body, msg.sequences().collect()),
        Message::Query(query) => match query.command_database() {
            Some(db) => (Some(db), query.command(), Vec::new()),
            None => {
                log_end(&cx, "Unsupported OP_QUERY on a collection");
                return refuse_legacy_query(form, reply);
            }
        },
        Message::Legacy(op) => {
            log_end(&cx, op.name());
            return Outcome::Close;
        }
        _ => {
            log_end(&cx, "Unexpected message");
            return Outcome::Close;
        }
    };
    run(server, cx, form, db, body, sequences, reply).await
}

/// Counts the bytes of a compressed request, of which the transport knows only those that came. That of an
/// exhaust cursor's further replies has been counted.
fn count_request(server: &Server, cx: &mut RequestContext<'_>, form: Form, packed: usize) {
    let Some((compressor, plain)) = form.compressed else { return };
    let client = cx.state.downcast_mut::<Client>();
    let again = client.and_then(|client| client.exhaust_reply_id);
    if again.is_some_and(|(request, _)| request == form.header.request_id) {
        return;
    }
    if let Some(counts) = server.counters.compression.get(usize::from(compressor.id())) {
        counts.requests_packed.fetch_add(packed as u64, Ordering::Relaxed);
        counts.requests_plain.fetch_add(plain as u64, Ordering::Relaxed);
    }
    cx.worker.adjust_logical_bytes(plain as i64 - packed as i64, 0);
}

/// The same of a reply.
fn count_reply(server: &Server, worker: &WorkerHandle, sent: CompressedReply) {
    let CompressedReply { compressor, plain, packed } = sent;
    if let Some(counts) = server.counters.compression.get(usize::from(compressor.id())) {
        counts.replies_plain.fetch_add(plain as u64, Ordering::Relaxed);
        counts.replies_packed.fetch_add(packed as u64, Ordering::Relaxed);
    }
    worker.adjust_logical_bytes(0, plain as i64 - packed as i64);
}

/// A reply that was compressed, and its lengths.
struct CompressedReply {
    compressor: Compressor,
    plain: usize,
    packed: usize,
}

/// Parses the message, decompressed if need be.
fn unpack<'m>(request: &'m [u8], unpacked: &'m mut Vec<u8>) -> Result<(Form, Message<'m>)> {
    let (header, message) = Message::parse(request)?;
    let mut form = Form {
        header,
        legacy: false,
        checksum: false,
        no_reply: false,
        compressed: None,
        exhaust_allowed: false,
    };
    let message = match message {
        Message::Compressed(compressed) => {
            compressed.decompress(unpacked)?;
            form.compressed = Some((compressed.compressor, unpacked.len()));
            let (_, inner) = Message::parse(unpacked)?;
            if matches!(inner, Message::Compressed(_)) {
                bail!(ProtocolError, "a compressed message within a compressed message");
            }
            inner
        }
        other => other,
    };
    match &message {
        Message::Msg(msg) => {
            form.checksum = msg.flags & flags::CHECKSUM_PRESENT != 0;
            form.no_reply = msg.is_fire_and_forget();
            form.exhaust_allowed = msg.allows_exhaust();
        }
        Message::Query(_) => form.legacy = true,
        _ => {}
    }
    Ok((form, message))
}

fn log_end(cx: &RequestContext<'_>, why: &str) {
    let attr = Attr::new().str("remote", &cx.session.remote).str("error", why);
    log::info(
        "NETWORK",
        22990,
        &format!("conn{}", cx.session.id),
        "DBException handling request, closing client connection",
        attr,
    );
}

/// A message that cannot be parsed: answered if it can be, else the connection ends.
fn refuse(cx: &RequestContext<'_>, request: &[u8], error: &Error, reply: &mut ReplyBuf) -> Outcome {
    let answered = |header: &Header| matches!(header.op_code, opcode::MSG | opcode::QUERY);
    let header = Header::parse(request).filter(answered);
    let (Some(header), false) = (header, is_connection_fatal(error)) else {
        log_end(cx, &error.to_string());
        return Outcome::Close;
    };
    let form = Form {
        header,
        legacy: header.op_code == opcode::QUERY,
        checksum: false,
        no_reply: header.op_code == opcode::MSG
            && kauri_wire::flags_of(request) & flags::MORE_TO_COME != 0,
        compressed: None,
        exhaust_allowed: false,
    };
    if form.no_reply {
        return Outcome::NoReply;
    }
    let (_, open) = begin_reply(form, form.header.request_id, reply.buffer());
    {
        let mut writer = DocWriter::new(reply.buffer());
        write_error(&mut writer, error);
    }
    finish_reply(open, form, reply);
    Outcome::Reply
}

/// OP_QUERY on anything but commands is gone since 6.0.
fn refuse_legacy_query(form: Form, reply: &mut ReplyBuf) -> Outcome {
    let error = Error::new(
        ErrorCode::from_number(5739101),
        "OP_QUERY is no longer supported. The client driver may require an upgrade.",
    );
    let (_, open) = begin_reply(form, form.header.request_id, reply.buffer());
    {
        let mut writer = DocWriter::new(reply.buffer());
        writer.put("$err", error.message());
        writer.put("code", error.code().number());
        writer.put("ok", 0.0);
    }
    finish_reply(open, form, reply);
    Outcome::ReplyThenClose
}

enum Open {
    Msg(MsgWriter),
    Query(ReplyWriter),
}

/// Begins a reply; also answers its id.
fn begin_reply(form: Form, response_to: i32, out: &mut Vec<u8>) -> (i32, Open) {
    let id = NEXT_REQUEST_ID.fetch_add(1, Ordering::Relaxed);
    if form.legacy {
        let capable = kauri_wire::op_reply::AWAIT_CAPABLE;
        return (id, Open::Query(ReplyWriter::begin(out, id, response_to, capable, 0, 1)));
    }
    let flags = if form.checksum { flags::CHECKSUM_PRESENT } else { 0 };
    (id, Open::Msg(MsgWriter::begin(out, id, response_to, flags)))
}

/// Completes the message. One that became too long is replaced by an error. Answers what compressing it has
/// changed, if it was.
fn finish_reply(open: Open, form: Form, reply: &mut ReplyBuf) -> Option<CompressedReply> {
    let out = reply.buffer();
    let done = match open {
        Open::Msg(writer) => writer.finish(out),
        Open::Query(writer) => writer.finish(out),
    };
    if let Err(error) = done {
        out.clear();
        let (_, open) = begin_reply(form, form.header.request_id, out);
        {
            let mut writer = DocWriter::new(out);
            write_error(&mut writer, &error);
        }
        let _ = match open {
            Open::Msg(writer) => writer.finish(out),
            Open::Query(writer) => writer.finish(out),
        };
    }
    let (compressor, _) = form.compressed?;
    let plain = std::mem::take(out);
    if kauri_wire::compress(&plain, compressor, out).is_err() {
        *out = plain;
        return None;
    }
    Some(CompressedReply { compressor, plain: plain.len(), packed: out.len() })
}

/// `{ok: 0, errmsg, code, codeName, …}`.
pub fn write_error(out: &mut DocWriter<'_>, error: &Error) {
    if !error.labels().is_empty() {
        let mut labels = out.array("errorLabels");
        error.labels().iter().for_each(|label| labels.push(label.as_ref()));
    }
    out.put("ok", 0.0);
    out.put("errmsg", error.message());
    out.put("code", error.code().number());
    out.put("codeName", error.code().name());
    if let Some(extra) = error.extra().and_then(|e| Doc::from_bytes(e).ok()) {
        out.put_all(extra);
    }
}

async fn run(
    server: &Arc<Server>,
    cx: RequestContext<'_>,
    form: Form,
    db: Option<&str>,
    body: &[u8],
    sequences: Vec<&kauri_wire::Sequence<'_>>,
    reply: &mut ReplyBuf,
) -> Outcome {
    let started_ns = cx.received_ns;
    let session = cx.session;
    let Some(client) = cx.state.downcast_mut::<Client>() else { return Outcome::Close };
    let before = client.exhaust_reply_id.take();
    let before = before.filter(|(request, _)| *request == form.header.request_id);
    let response_to = before.map_or(form.header.request_id, |(_, last)| last);
    let (reply_id, open) = begin_reply(form, response_to, reply.buffer());
    let mut after = After { memory_at_start: reply.buffer().capacity(), ..After::default() };
    {
        let writer = DocWriter::new(reply.buffer());
        let parsed = parse(db, body, &sequences);
        let mut failed = None;
        match parsed {
            Err(error) => failed = Some((error, writer, None)),
            Ok((db, body, sequences)) => {
                let state = Arc::new(OperationState::new(server.operations.next_id()));
                let mut op = OperationContext::new(state.clone(), server.clock.clone());
                op.set_account(MemoryAccount::new(server.operation_memory.clone()));
                after.account = Some(op.account().clone());
                let mut invocation = Invocation {
                    server,
                    client,
                    session,
                    worker: cx.worker,
                    transport: cx.stats,
                    op,
                    name: "",
                    body,
                    sequences,
                    db,
                    write_concern: Default::default(),
                    exhaust_allowed: form.exhaust_allowed && !form.legacy,
                    in_exhaust: before.is_some(),
                    has_effect: false,
                    more_to_come: false,
                    close_after: false,
                    hang_up: false,
                    reply: writer,
                };
                let result = execute(&mut invocation, state, started_ns, cx.liveness).await;
                after.more_to_come = invocation.more_to_come;
                after.close = invocation.close_after;
                after.unacknowledged = invocation.write_concern.w == WriteConcernW::None
                    && matches!(invocation.name, "insert" | "update" | "delete");
                let name = invocation.name;
                if invocation.hang_up {
                    return Outcome::Close;
                }
                if after.unacknowledged {
                    // Whoever waits all the same learns nothing of what became of the write.
                    invocation.reply.clear();
                }
                match result {
                    Err(_) if after.unacknowledged => invocation.reply.put("ok", 1.0),
                    Ok(Injected::No) => invocation.reply.put("ok", 1.0),
                    Ok(Injected::CloseConnection) => return Outcome::Close,
                    Err(error) => failed = Some((error, invocation.reply, Some(name))),
                }
            }
        }
        if let Some((error, mut writer, name)) = failed {
            server.counters.asserts_user.fetch_add(1, Ordering::Relaxed);
            log_failure(session.id, name, &error);
            writer.clear();
            write_error(&mut writer, &error);
            after.more_to_come = false;
        }
    }
    conclude(server, cx, form, &after, open, reply_id, reply)
}

/// Completes the reply as the request wants it.
fn conclude(
    server: &Server,
    cx: RequestContext<'_>,
    form: Form,
    after: &After,
    open: Open,
    reply_id: i32,
    reply: &mut ReplyBuf,
) -> Outcome {
    if form.no_reply {
        reply.buffer().clear();
        return Outcome::NoReply;
    }
    if after.more_to_come {
        let out = reply.buffer();
        if let Some(byte) = out.get_mut(16) {
            *byte |= flags::MORE_TO_COME as u8;
        }
        if let Some(client) = cx.state.downcast_mut::<Client>() {
            client.exhaust_reply_id = Some((form.header.request_id, reply_id));
        }
    }
    if let Some(account) = &after.account
        && reply.buffer().len() >= COUNTED_REPLY_BYTES_MIN
    {
        // A buffer that was there before is not of the operation's making.
        let grown = reply.buffer().capacity().saturating_sub(after.memory_at_start);
        reply.count_in(account.split_off(grown));
    }
    if let Some(sent) = finish_reply(open, form, reply) {
        count_reply(server, cx.worker, sent);
    }
    match (after.more_to_come, after.close) {
        (true, _) => Outcome::Exhaust,
        (false, true) => Outcome::ReplyThenClose,
        (false, false) => Outcome::Reply,
    }
}

#[derive(Default)]
struct After {
    more_to_come: bool,
    close: bool,
    unacknowledged: bool,
    account: Option<Arc<MemoryAccount>>,
    /// Bytes of the reply's buffer before the operation began.
    memory_at_start: usize,
}

/// Replies from this length on are counted as memory of their operation until they are sent.
const COUNTED_REPLY_BYTES_MIN: usize = 64 * 1024;

/// What a failpoint made of the command.
#[derive(PartialEq)]
pub enum Injected {
    /// Nothing: it ran.
    No,
    /// The connection is to break.
    CloseConnection,
}

fn log_failure(connection: u64, name: Option<&str>, error: &Error) {
    if !log::enabled(log::Severity::Debug(1)) {
        return;
    }
    let attr = Attr::new()
        .str("command", name.unwrap_or("?"))
        .str("codeName", error.code().name())
        .num("code", error.code().number())
        .str("error", error.message());
    let ctx = format!("conn{connection}");
    log::line(
        log::Severity::Debug(1),
        "COMMAND",
        21962,
        &ctx,
        "Assertion while executing command",
        attr,
    );
}

type Parsed<'r> = (&'r str, Doc<'r>, Vec<Sequence<'r>>);

/// Validates the documents and finds the database.
fn parse<'r>(
    db: Option<&'r str>,
    body: &'r [u8],
    sequences: &[&kauri_wire::Sequence<'r>],
) -> Result<Parsed<'r>> {
    let body = kauri_bson::validate(body, limits::DOCUMENT_DEPTH_MAX)?;
    let mut parsed = Vec::with_capacity(sequences.len());
    for sequence in sequences {
        let field = sequence.identifier;
        if body.get(field).is_some() {
            return Err(kauri_wire::duplicate_field(field));
        }
        // Before each of them costs something.
        if sequence.count > limits::WRITE_BATCH_MAX {
            return Err(crate::cmds::insert::wrong_batch(sequence.count));
        }
        let docs = sequence
            .documents()
            .map(|bytes| kauri_bson::validate(bytes, limits::DOCUMENT_DEPTH_MAX))
            .collect::<Result<Vec<_>>>()?;
        parsed.push(Sequence { field, docs });
    }
    let db = match db {
        Some(db) => db,
        None => match body.get("$db") {
            Some(elem) if elem.ty() == kauri_bson::Type::String => {
                let text = elem.value_bytes();
                std::str::from_utf8(&text[4..text.len() - 1]).unwrap_or_default()
            }
            Some(elem) => {
                bail!(
                    TypeMismatch,
                    "BSON field '$db' is the wrong type '{}', expected type 'string'",
                    elem.ty().alias()
                );
            }
            None => return Err(Error::location(40571, "OP_MSG requests require a $db argument")),
        },
    };
    Ok((db, body, parsed))
}

async fn execute(
    invocation: &mut Invocation<'_>,
    state: Arc<OperationState>,
    started_ns: u64,
    liveness: &Arc<Liveness>,
) -> Result<Injected> {
    let server = invocation.server;
    let Some(first) = invocation.body.first() else {
        bail!(CommandNotFound, "no such command: ''");
    };
    let Some(entry) = registry::by_name().get(first.key()).copied() else {
        server.counters.unknown_commands.fetch_add(1, Ordering::Relaxed);
        // Drivers' tests let commands fail that this server doesn't have.
        let injected = fail_command::before(server, invocation, first.key(), &[]).await?;
        if let Some(outcome) = injected.immediate() {
            return outcome;
        }
        bail!(CommandNotFound, "no such command: '{}'", first.key());
    };
    let result = run_command(invocation, entry.command, state, started_ns, liveness).await;
    server.counters.commands.count(entry.number, result.is_err());
    result
}

async fn run_command(
    invocation: &mut Invocation<'_>,
    command: &'static Command,
    state: Arc<OperationState>,
    started_ns: u64,
    liveness: &Arc<Liveness>,
) -> Result<Injected> {
    let server = invocation.server;
    invocation.name = command.name;
    if command.access != Access::Write {
        invocation.op.watch_client(Arc::new(Presence(liveness.clone())));
    }
    check_database(command, invocation.db)?;
    count(server, command);
    invocation.write_concern = concerns::read(command, invocation.body, &mut invocation.op)?;
    let injected = fail_command::before(server, invocation, command.name, command.aliases).await?;
    if let Some(outcome) = injected.immediate() {
        return outcome;
    }
    fail_command::check_time(server, &invocation.op)?;
    if let Some(id) = invocation.op.lsid {
        server.sessions.touch(id, server.clock.monotonic())?;
    }
    if command.access == Access::Write {
        wait_for_unlock(server, invocation).await?;
        wait_for_memory(server, invocation).await?;
    }
    if server.stopping.load(Ordering::Relaxed) && !command.before_auth {
        bail!(ShutdownInProgress, "The server is in quiesce mode and will shut down");
    }
    let _running = enter(invocation, command, state, started_ns);
    let (db, body) = (invocation.db, invocation.body);
    server.locks.lock_command(&mut invocation.op, command, db, body).await?;
    if command.access == Access::Write {
        fetch_definitions(invocation).await?;
    }
    let meter = invocation.op.meter();
    let result = work::metered(meter, Box::pin(run_or_replan(invocation, command))).await;
    invocation.op.release_lock();
    crate::usage::record(invocation, command, started_ns);
    log_if_slow(invocation, command, started_ns, result.as_ref().err());
    result?;
    injected.after(invocation);
    Ok(Injected::No)
}

/// Runs the command; one that reads is planned anew where what it reads is dropped meanwhile.
async fn run_or_replan(invocation: &mut Invocation<'_>, command: &'static Command) -> Result<()> {
    for _ in 0..REPLANS_MAX {
        match (command.run)(invocation).await {
            Err(error) if command.replans && !invocation.has_effect && is_dropped(&error) => {
                invocation.reply.clear();
                invocation.server.catalog.catch_up();
                invocation.op.yield_now().await?;
            }
            result => return result,
        }
    }
    (command.run)(invocation).await
}

/// Has the definitions in memory that a command may change: those that its fields name.
async fn fetch_definitions(invocation: &mut Invocation<'_>) -> Result<()> {
    let (catalog, db) = (&invocation.server.catalog, invocation.db);
    let mut names = Vec::new();
    match invocation.name {
        // They change documents.
        "insert" | "update" | "delete" | "findAndModify" | "bulkWrite" => return Ok(()),
        "dropDatabase" => {
            names.extend(catalog.collections_of(db).iter().map(|c| c.ns.as_str().to_owned()));
            names.extend(catalog.views_of(db).iter().map(|v| v.ns.as_str().to_owned()));
        }
        _ => {
            for elem in invocation.body.iter() {
                if let Value::String(text) = elem.value() {
                    names.extend([format!("{db}.{text}"), text.into_owned()]);
                }
            }
        }
    }
    catalog.fetch_definitions(&mut invocation.op, &names).await
}

/// How often a writer looks whether `fsync` with `lock` is still in force.
const UNLOCK_STEP: Duration = Duration::from_millis(5);

/// Waits while `fsync` with `lock` keeps writers out.
async fn wait_for_unlock(server: &Server, invocation: &Invocation<'_>) -> Result<()> {
    while server.fsync_locks.load(Ordering::Acquire) > 0 {
        invocation.worker.sleep(UNLOCK_STEP).await;
        invocation.op.check_for_interrupt()?;
    }
    Ok(())
}

/// How often a writer looks whether there is memory again.
const MEMORY_STEP: Duration = Duration::from_millis(10);
/// How long it looks, before it is refused. The cache gives way in less.
const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// Waits a while where memory is full, before a command that adds to it: large replies under way fill it for a moment.
async fn wait_for_memory(server: &Server, invocation: &Invocation<'_>) -> Result<()> {
    let adds = ["insert", "update", "findAndModify", "bulkWrite", "create", "createIndexes"];
    let engine = server.catalog.engine();
    if !engine.is_full() || !adds.contains(&invocation.name) {
        return Ok(());
    }
    server.counters.memory_waits.fetch_add(1, Ordering::Relaxed);
    let until = server.clock.monotonic() + MEMORY_PATIENCE;
    while engine.is_full() && server.clock.monotonic() < until {
        invocation.worker.sleep(MEMORY_STEP).await;
        invocation.op.check_for_interrupt()?;
    }
    Ok(())
}

fn check_database(command: &Command, db: &str) -> Result<()> {
    kauri_catalog::check_database_name(db)?;
    if command.admin_only && db != "admin" {
        bail!(Unauthorized, "{} may only be run against the admin database.", command.name);
    }
    Ok(())
}

fn count(server: &Server, command: &Command) {
    let counters = &server.counters;
    match command.name {
        // Counted by document or statement where they run.
        "insert" | "update" | "delete" => {}
        "find" => drop(counters.query.fetch_add(1, Ordering::Relaxed)),
        "getMore" => drop(counters.getmore.fetch_add(1, Ordering::Relaxed)),
        _ => drop(counters.command.fetch_add(1, Ordering::Relaxed)),
    }
}

fn enter(
    invocation: &Invocation<'_>,
    command: &Command,
    state: Arc<OperationState>,
    started_ns: u64,
) -> Entered {
    let (client, session) = (&invocation.client, invocation.session);
    client.seat.enter(|running| {
        running.state = state;
        running.connection = session.id;
        running.client.clone_from(&session.remote);
        running.app_name.clone_from(&client.app_name);
        running.db.clear();
        running.db.push_str(invocation.db);
        running.command.clear();
        let bytes_max = limits::COMMAND_BYTES_KEPT_MAX;
        crate::ops::keep_command(invocation.body, bytes_max, &mut running.command);
        running.name = command.name;
        running.started_ns = started_ns;
        running.lsid = invocation.op.lsid;
    })
}

/// The operation's time in milliseconds if it is one to be logged.
fn slow_ms(server: &Server, started_ns: u64) -> Option<u64> {
    let slow_ms = server.slow_ms.load(Ordering::Relaxed);
    let elapsed_ms = |now_ns: u64| (now_ns.saturating_sub(started_ns) / 1_000_000) as i64;
    if elapsed_ms(monotonic_coarse_ns() + COARSE_NS_MAX) < slow_ms {
        return None;
    }
    let elapsed_ms = elapsed_ms(monotonic_ns());
    (elapsed_ms >= slow_ms).then_some(elapsed_ms as u64)
}

fn log_if_slow(
    invocation: &Invocation<'_>,
    command: &Command,
    started_ns: u64,
    error: Option<&Error>,
) {
    let Some(elapsed_ms) = slow_ms(invocation.server, started_ns) else { return };
    if matches!(command.name, "hello" | "isMaster") {
        return;
    }
    let kind = if command.access == Access::Write { "update" } else { "command" };
    let mut attr = about_slow(kind, invocation.db, &invocation.client.app_name, invocation.body)
        .num("numYields", invocation.op.state().yields());
    if invocation.op.state().used_disk() {
        attr = attr.num("usedDisk", true);
    }
    if let Some(error) = error {
        attr = attr
            .num("ok", 0)
            .str("errName", error.code().name())
            .num("errCode", error.code().number());
    }
    log_slow(invocation.session, attr, elapsed_ms);
}

fn about_slow(kind: &'static str, db: &str, app_name: &str, body: Doc<'_>) -> Attr {
    let ns = match body.first().map(|e| e.value()) {
        Some(Value::String(name)) => format!("{db}.{name}"),
        _ => format!("{db}.$cmd"),
    };
    let attr = Attr::new().str("type", kind).str("ns", ns).str("appName", app_name);
    kauri_bson::log_doc(attr, "command", body)
}

fn log_slow(session: &SessionInfo, attr: Attr, elapsed_ms: u64) {
    let attr = attr.str("remote", &session.remote).num("durationMillis", elapsed_ms);
    log::info("COMMAND", 51803, &format!("conn{}", session.id), "Slow query", attr);
}

/// Ends a write of the express path, whose log has been waited for.
pub(crate) fn settle(
    server: &Arc<Server>,
    cx: &mut RequestContext<'_>,
    request: &[u8],
    reply: &mut ReplyBuf,
    result: Result<()>,
) -> Outcome {
    if let Err(error) = result {
        server.counters.asserts_user.fetch_add(1, Ordering::Relaxed);
        if !reply.clear() {
            return Outcome::Close;
        }
        return refuse(cx, request, &error, reply);
    }
    log_if_slow_express(server, cx, request);
    Outcome::Reply
}

/// The same of an operation of the express path, which is done.
pub(crate) fn log_if_slow_express(server: &Server, cx: &mut RequestContext<'_>, request: &[u8]) {
    let Some(elapsed_ms) = slow_ms(server, cx.received_ns) else { return };
    let Ok((_, Message::Msg(msg))) = Message::parse(request) else { return };
    let app_name = cx.state.downcast_mut::<Client>().map_or("", |c| &c.app_name);
    let body = Doc::from_bytes(msg.body).unwrap_or(Doc::EMPTY);
    let db = body.get("$db").map(|e| e.value());
    let db = if let Some(Value::String(db)) = &db { db.as_ref() } else { "" };
    let is_find = body.first().is_some_and(|first| first.key_bytes() == b"find");
    let kind = if is_find { "command" } else { "update" };
    let attr = about_slow(kind, db, app_name, body).num("numYields", 0);
    log_slow(cx.session, attr, elapsed_ms);
}
