//! From a message to its reply.
//!
//! Validates the message, finds the command, reads the arguments that all commands share, runs the command, and
//! writes its reply or error. An invalid request gets an error; a
//! malformed message ends its connection.

use crate::admission::{Wait, admit};
use crate::client::Client;
use crate::cluster_parameters;
use crate::concerns;
use crate::fail_command;
use crate::framing::{CompressedReply, Form, Open, begin_reply, finish_reply, unpack, write_error};
use crate::fsync_lock::Writer;
use crate::invocation::{Invocation, Sequence};
use crate::ops::{Entered, Entering};
use crate::profiling::PROFILE_COLLECTION;
use crate::registry::{self, Access, Command, Definitions, OpCounter};
use crate::report::{self, Ended};
use crate::server::Server;
use crate::write_concern::WriteConcernW;
use crate::{express, set, time_limit};
use kauri_base::log::{self, Attr};
use kauri_base::operation::{ClientPresence, OperationState};
use kauri_base::work::MemoryAccount;
use kauri_base::{Error, ErrorCode, OperationContext, Result, bail, limits, work};
use kauri_bson::{Doc, DocWriter, Value};
use kauri_catalog::dropped::{REPLANS_MAX, is_dropped};
use kauri_storage::Operation;
use kauri_transport::{Liveness, Outcome, ReplyBuf, RequestContext, WorkerHandle};
use kauri_wire::{Header, Message, flags, is_connection_fatal, opcode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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
        Err(error) => return refuse(server, &cx, request, &error, reply),
    };
    count_request(server, &mut cx, form, request.len());
    let (db, body, sequences) = match &message {
        Message::Msg(msg) => (None, msg.body, msg.sequences().collect()),
        Message::Query(query) => match query.command_database() {
            Some(db) => (Some(db), query.command(), Vec::new()),
            None => {
                log_end(&cx, "Unsupported OP_QUERY on a collection");
                return refuse_legacy_query(server, form, reply);
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
fn refuse(
    server: &Server,
    cx: &RequestContext<'_>,
    request: &[u8],
    error: &Error,
    reply: &mut ReplyBuf,
) -> Outcome {
    let answered = |header: &Header| matches!(header.op_code, opcode::MSG | opcode::QUERY);
    let header = Header::parse(request).filter(answered);
    let (Some(header), false) = (header, is_connection_fatal(error)) else {
        log_end(cx, &error.to_string());
        return Outcome::Close;
    };
    let form = Form {
        header,
        legacy: header.op_code == opcode::QUERY,
        secondary_ok: false,
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
        write_error(&mut writer, server, error);
    }
    finish_reply(server, open, form, reply);
    Outcome::Reply
}

/// OP_QUERY on anything but commands is gone since 6.0.
fn refuse_legacy_query(server: &Server, form: Form, reply: &mut ReplyBuf) -> Outcome {
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
    finish_reply(server, open, form, reply);
    Outcome::ReplyThenClose
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
    let mut ended = None;
    let mut after = After { memory_at_start: reply.buffer().capacity(), ..After::default() };
    {
        let writer = DocWriter::new(reply.buffer());
        let parsed = parse(db, body, &sequences);
        let mut failed = None;
        let mut unsatisfied = None;
        let mut is_numbered = false;
        match parsed {
            Err(error) => failed = Some((error, writer, None)),
            Ok((db, body, sequences)) => {
                let state = Arc::new(OperationState::new(server.operations.next_id()));
                let context = OperationContext::new(state.clone(), server.clock.clone());
                let mut op = Operation::new(context, &server.backend);
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
                    command: None,
                    body,
                    sequences,
                    db,
                    write_concern: Default::default(),
                    write_concern_error: None,
                    read_concern: Default::default(),
                    secondary_ok: form.secondary_ok,
                    labels_are_given: false,
                    exhaust_allowed: form.exhaust_allowed && !form.legacy,
                    in_exhaust: before.is_some(),
                    figures: Default::default(),
                    int_ok: false,
                    ran: None,
                    has_effect: false,
                    has_reached_documents: false,
                    more_to_come: false,
                    close_after: false,
                    hang_up: false,
                    part: None,
                    reply: writer,
                };
                let result = execute(&mut invocation, state, started_ns, cx.liveness).await;
                after.more_to_come = invocation.more_to_come;
                after.close = invocation.close_after;
                after.unacknowledged = invocation.write_concern.w == WriteConcernW::None
                    && invocation.command.is_some_and(|command| command.unacknowledged);
                is_numbered = invocation.op.txn_number.is_some() && !invocation.labels_are_given;
                let name = invocation.name;
                let protocol = if form.legacy { "op_query" } else { "op_msg" };
                let error = result.as_ref().err();
                ended = Ended::of(&mut invocation, (db, body), error, protocol);
                if invocation.hang_up {
                    return Outcome::Close;
                }
                if after.unacknowledged {
                    // Whoever waits all the same learns nothing of what became of the write.
                    invocation.reply.clear();
                }
                let out = &mut invocation.reply;
                match result {
                    Ok(Injected::CloseConnection) => return Outcome::Close,
                    Err(error) if !after.unacknowledged => {
                        unsatisfied = invocation.write_concern_error.take();
                        failed = Some((error, invocation.reply, Some(name)));
                    }
                    _ => {
                        if invocation.int_ok {
                            out.put("ok", 1);
                        } else {
                            out.put("ok", 1.0);
                        }
                        set::reply::put_times(out, server);
                    }
                }
            }
        }
        if let Some((error, mut writer, name)) = failed {
            server.counters.asserts_user.fetch_add(1, Ordering::Relaxed);
            log_failure(session.id, name, &error);
            writer.clear();
            // What has the fields of a change of the state already does not tell of another one.
            unsatisfied.take_if(|_| set::reply::is_state_change(error.code()));
            write_error(&mut writer, server, &set::reply::labelled(error, is_numbered));
            if let Some(error) = unsatisfied {
                set::write_wait::put_error(&mut writer, server, &error);
            }
            after.more_to_come = false;
        }
    }
    conclude(server, cx, form, &after, ended, open, reply_id, reply)
}

/// Completes the reply as the request wants it.
fn conclude(
    server: &Arc<Server>,
    mut cx: RequestContext<'_>,
    form: Form,
    after: &After,
    ended: Option<Ended<'_>>,
    open: Open,
    reply_id: i32,
    reply: &mut ReplyBuf,
) -> Outcome {
    if form.no_reply {
        reply.buffer().clear();
        if let Some(ended) = ended {
            ended.tell(server, &mut cx, None);
        }
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
    let compressed = finish_reply(server, open, form, reply);
    let bytes = compressed.as_ref().map_or(reply.total_len(), |sent| sent.plain);
    if let Some(sent) = compressed {
        count_reply(server, cx.worker, sent);
    }
    if let Some(ended) = ended {
        ended.tell(server, &mut cx, Some(bytes));
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

/// The effect of a failpoint on the command.
#[derive(PartialEq)]
pub enum Injected {
    /// None: it ran.
    No,
    /// The connection is to break.
    CloseConnection,
}

fn log_failure(connection: u64, name: Option<&str>, error: &Error) {
    if !log::enabled(log::Severity::Debug(1), "COMMAND") {
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
                std::str::from_utf8(&text[4..text.len() - 1])
                    .map_err(|_| kauri_bson::not_utf8::namespace_error(&elem.value()))?
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
        let injected = fail_command::before(server, invocation, first.key()).await?;
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
    invocation.command = Some(command);
    if command.access != Access::Write {
        invocation.op.watch_client(Arc::new(Presence(liveness.clone())));
    }
    check_database(command, invocation.db)?;
    if invocation.body.value("help").truthy() {
        let help = format!("help for: {} {}", command.name, command.help);
        invocation.reply.put("help", help);
        return Ok(Injected::No);
    }
    count(server, command);
    let is_member = server.member.is_some();
    let concerns = concerns::read(command, invocation.body, &mut invocation.op, is_member)?;
    if let Some(time) = concerns.cluster_time {
        set::cluster_time::accept(server, time)?;
    }
    (invocation.write_concern, invocation.read_concern) = (concerns.write, concerns.read);
    invocation.secondary_ok |= concerns.secondary_ok;
    limit_by_default(invocation, command).await?;
    fail_command::lift_limit(server, &invocation.op);
    let injected = fail_command::before(server, invocation, command.name).await?;
    if let Some(outcome) = injected.immediate() {
        return outcome;
    }
    fail_command::check_time(server, &invocation.op)?;
    if let Some(number) = invocation.op.txn_number {
        concerns::check_txn_number(command, invocation.op.lsid, number, is_member)?;
    }
    if let Some(id) = invocation.op.lsid {
        server.sessions.touch(id, server.clock.monotonic())?;
    }
    set::defaults::apply(invocation, command).await?;
    let asked = invocation.asked();
    settle_profiler(invocation, command).await?;
    let _running = enter(invocation, command, state, started_ns);
    wait_for_admission(invocation, command).await?;
    let _writer = match command.is_write(asked) {
        true => Some(enter_writer(invocation, command).await?),
        false => None,
    };
    #[cfg(feature = "lock-experiment")]
    server.locks.lock_command(&mut invocation.op, command, asked).await?;
    fetch_definitions(invocation, command.definitions).await?;
    let meter = invocation.op.meter();
    let (worker, state) = (invocation.worker, invocation.op.state().clone());
    let running = work::metered(meter, Box::pin(run_whole(invocation, command)));
    let result = time_limit::watch(worker, &state, &*server.clock, running).await;
    #[cfg(feature = "lock-experiment")]
    invocation.op.release_lock();
    crate::usage::record(invocation, command, started_ns);
    invocation.ran = Some(command);
    result?;
    injected.after(invocation);
    Ok(Injected::No)
}

/// Gives a read without `maxTimeMS` the time limit of the cluster parameter `defaultMaxTimeMS`. `maxTimeMS: 0` keeps it
/// unlimited. The express path need not look: none of its finds waits, so none exceeds a limit.
async fn limit_by_default(invocation: &mut Invocation<'_>, command: &Command) -> Result<()> {
    let is_meant = command.has_default_limit
        && invocation.body.value("maxTimeMS").is_nullish()
        && !command.is_write(invocation.asked());
    if !is_meant {
        return Ok(());
    }
    let (op, catalog) = (&mut invocation.op, &invocation.server.catalog);
    if let Some(limit) = cluster_parameters::read_time_limit(op, catalog).await?
        && op.time_left().is_none_or(|left| limit < left)
    {
        op.set_deadline(limit);
    }
    Ok(())
}

/// Waits until the profiler writes no more, for a command that changes where it writes.
async fn settle_profiler(invocation: &mut Invocation<'_>, command: &Command) -> Result<()> {
    let profiler = &invocation.server.profiler;
    if profiler.is_busy()
        && (command.settles_profile || names_profile(&command.namespace(invocation.asked())))
    {
        // Who stores the documents needs the lock that an operation around this one may have.
        #[cfg(feature = "lock-experiment")]
        invocation.op.release_lock();
        profiler.settle(invocation.worker, &mut invocation.op).await?;
        #[cfg(feature = "lock-experiment")]
        invocation.op.retake_lock().await;
    }
    Ok(())
}

/// The preparations of a command that writes, for a command that is part of another.
pub(crate) async fn prepare_part(
    invocation: &mut Invocation<'_>,
    command: &'static Command,
) -> Result<()> {
    check_database(command, invocation.db)?;
    settle_profiler(invocation, command).await?;
    fetch_definitions(invocation, command.definitions).await
}

/// Whether a namespace is that of documents of the profiler.
fn names_profile(ns: &str) -> bool {
    ns.split_once('.').is_some_and(|(_, collection)| collection == PROFILE_COLLECTION)
}

/// Runs the command, and ends within its account what has begun there.
async fn run_whole(invocation: &mut Invocation<'_>, command: &'static Command) -> Result<()> {
    let term = set::reads::begin(invocation).await?;
    let mut result = run_or_replan(invocation, command).await;
    if let Err(error) = &result
        && may_have_met_writes(invocation, command, error)
        && invocation.op.check_for_interrupt().is_ok()
    {
        result = invocation.wait_for_commit(None).await.and(result);
    }
    invocation.op.scope().close();
    if result.is_ok() {
        result = set::reads::end(invocation, term).await;
    }
    if let Some(plan) = invocation.figures.plan.take() {
        invocation.server.counters.count_plan(&plan);
        // They are told of when the operation has ended.
        invocation.figures.plan = Some(work::unmetered(|| plan.clone()));
    }
    result
}

/// Whether the reason of a failure may be something that was written, by the command itself or by another. The client is
/// told of it when it is as durable as the write concern says. Who has only been misunderstood does not wait.
fn may_have_met_writes(invocation: &mut Invocation<'_>, command: &Command, error: &Error) -> bool {
    // Definitions that are there, or are not.
    const OF_DEFINITIONS: &[ErrorCode] = &[
        ErrorCode::NamespaceNotFound,
        ErrorCode::NamespaceExists,
        ErrorCode::IndexNotFound,
        ErrorCode::IndexAlreadyExists,
        ErrorCode::IndexOptionsConflict,
        ErrorCode::IndexKeySpecsConflict,
        ErrorCode::CollectionUUIDMismatch,
        ErrorCode::CommandNotSupportedOnView,
        ErrorCode::DuplicateKey,
    ];
    invocation.has_reached_documents
        || invocation.op.scope().has_committed()
        || command.is_write(invocation.asked()) && OF_DEFINITIONS.contains(&error.code())
}

/// Runs the command; a reading command is planned again if its collection is dropped meanwhile.
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

/// Has the definitions in memory that a command may change.
async fn fetch_definitions(invocation: &mut Invocation<'_>, which: Definitions) -> Result<()> {
    let (catalog, db) = (&invocation.server.catalog, invocation.db);
    let mut names = Vec::new();
    match which {
        Definitions::None => return Ok(()),
        Definitions::OfDatabase => {
            names.extend(catalog.collections_of(db).iter().map(|c| c.ns.as_str().to_owned()));
            names.extend(catalog.views_of(db).iter().map(|v| v.ns.as_str().to_owned()));
        }
        Definitions::Named => {
            for elem in invocation.body.iter() {
                if let Value::String(text) = elem.value() {
                    names.extend([format!("{db}.{text}"), text.into_owned()]);
                }
            }
        }
    }
    catalog.fetch_definitions(&mut invocation.op, &names).await
}

/// Interval at which a waiting command asks for admission again.
const ADMISSION_STEP: Duration = Duration::from_millis(5);
/// Maximum wait for memory before a refusal. The cache shrinks faster.
const MEMORY_PATIENCE: Duration = Duration::from_secs(1);

/// Waits until the request is admitted: for `fsyncUnlock` without a limit, for memory a while. Then it runs, and is
/// refused where it needs memory: large replies in flight fill memory for a moment.
async fn wait_for_admission(invocation: &Invocation<'_>, command: &Command) -> Result<()> {
    let server = invocation.server;
    let mut until = None;
    while let Some(why) = admit(server, command, invocation.asked(), invocation.secondary_ok)? {
        if why == Wait::Memory {
            let now = server.clock.monotonic();
            let until = *until.get_or_insert_with(|| {
                server.counters.memory_waits.fetch_add(1, Ordering::Relaxed);
                now + MEMORY_PATIENCE
            });
            if now >= until {
                return Ok(());
            }
        }
        invocation.worker.sleep(ADMISSION_STEP).await;
        invocation.op.check_for_interrupt()?;
    }
    Ok(())
}

/// Registers a writer, unless `fsync` with `lock` has come in between. The writer holds the returned value until it
/// has ended.
async fn enter_writer<'s>(invocation: &Invocation<'s>, command: &Command) -> Result<Writer<'s>> {
    loop {
        if let Some(writer) = invocation.server.fsync_lock.admit() {
            return Ok(writer);
        }
        wait_for_admission(invocation, command).await?;
    }
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
    let counter = match command.op_counter {
        OpCounter::Statements => return,
        OpCounter::Query => &counters.query,
        OpCounter::GetMore => &counters.getmore,
        OpCounter::Command => &counters.command,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

fn enter(
    invocation: &Invocation<'_>,
    command: &'static Command,
    state: Arc<OperationState>,
    started_ns: u64,
) -> Entered {
    invocation.client.seat.enter(Entering {
        state,
        command,
        asked: invocation.asked(),
        started_ns,
        lsid: invocation.op.lsid,
    })
}

/// Ends a write of the express path, whose log has been waited for.
pub(crate) fn settle(
    server: &Arc<Server>,
    cx: &mut RequestContext<'_>,
    request: &[u8],
    reply: &mut ReplyBuf,
    result: Result<()>,
) -> Outcome {
    if let Err(error) = &result
        && server.member.is_some()
    {
        // The write is done. What becomes of it in the set is not known.
        express::put_error(server, request, reply, error);
    } else if let Err(error) = result {
        server.counters.asserts_user.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = express::entry_of(request) {
            server.counters.commands.count_failure(entry.number);
        }
        if !reply.clear() {
            return Outcome::Close;
        }
        return refuse(server, cx, request, &error, reply);
    }
    report::express(server, cx, request, reply);
    Outcome::Reply
}
