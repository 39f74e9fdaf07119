//! `hello`, and its old name `isMaster`: the role and capabilities of the server.

use super::repl_set::describe;
use super::session_ids;
use crate::args::Args;
use crate::client::Client;
use crate::invocation::Invocation;
use crate::registry::{Command, Report, Run};
use crate::server::{MAX_WIRE_VERSION, Server};
use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, Result, bail, limits};
use kauri_bson::{Doc, DocWriter, Elem, Type, Value, doc};
use kauri_member::View;
use kauri_wire::Compressor;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// `hello`.
pub const HELLO: Command = Command {
    needs_no_login: true,
    api_v1: true,
    report: Report::None,
    ..Command::new("hello", "returns the role and capabilities of the server", run)
};

/// `isMaster`.
pub const IS_MASTER: Command = Command {
    aliases: &["ismaster"],
    needs_no_login: true,
    report: Report::None,
    ..Command::new("isMaster", "the old name of hello", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let request = Request::parse(invocation)?;
        if let (Some(wait_ms), Some(known)) = (request.max_await_ms, request.known) {
            wait_for_news(invocation, Duration::from_millis(wait_ms), known).await?;
        }
        let server = invocation.server;
        let view = server.member.as_ref().map(|member| member.view());
        if view.as_ref().is_some_and(|view| view.is_quiescing) {
            return Err(quiesces(server));
        }
        let stopping = server.stopping.load(Ordering::Relaxed);
        let waits = request.max_await_ms.is_some();
        invocation.more_to_come = waits && invocation.exhaust_allowed && !stopping;
        invocation.client.hello_topology = view.as_ref().map_or(0, |view| view.topology);
        write(invocation, &request, view.as_deref());
        Ok(())
    })
}

/// Waits until the topology has a higher counter than this, the time is over, or the server is to stop.
async fn wait_for_news(invocation: &Invocation<'_>, time: Duration, known: i64) -> Result<()> {
    // A standalone server's topology never changes: all there is to do is to wait.
    let news = invocation.server.member.as_ref().map(|member| member.topology_after(known));
    let mut news = pin!(news);
    let mut waited = pin!(invocation.worker.sleep(time));
    // The task is also woken when the client has gone, and when the server is to stop.
    poll_fn(|cx| {
        let stopping = invocation.server.stopping.load(Ordering::Relaxed);
        if stopping || invocation.op.check_for_interrupt().is_err() {
            return Poll::Ready(());
        }
        if let Some(news) = news.as_mut().as_pin_mut()
            && news.poll(cx).is_ready()
        {
            return Poll::Ready(());
        }
        waited.as_mut().poll(cx)
    })
    .await;
    invocation.op.check_for_interrupt()
}

/// The error for clients of a member that is about to end.
fn quiesces(server: &Server) -> Error {
    let ends = server.member.as_ref().and_then(|member| member.quiesce_ends());
    let left = ends.map_or(0, |ends| (ends - server.clock.unix_ms()).max(0));
    let extra = doc! { "remainingQuiesceTimeMillis" => left };
    let message = "The server is in quiesce mode and will shut down";
    Error::new(ErrorCode::ShutdownInProgress, message).with_extra(extra.into_vec())
}

struct Request {
    legacy: bool,
    hello_ok: bool,
    max_await_ms: Option<u64>,
    /// The topology that the client knows; `None` if it gets the current one at once.
    known: Option<i64>,
}

impl Request {
    fn parse(invocation: &mut Invocation<'_>) -> Result<Request> {
        let body = invocation.body;
        let args = Args::new(invocation.name);
        let legacy = invocation.name != "hello";
        let mut request = Request { legacy, hello_ok: false, max_await_ms: None, known: None };
        let mut topology_version = false;
        for elem in body.iter().skip(1) {
            match elem.key() {
                "client" => set_metadata(invocation.client, elem, invocation.session)?,
                "compression" => negotiate(invocation.client, args.array(elem)?)?,
                "helloOk" => request.hello_ok = args.safe_bool(elem)?,
                "topologyVersion" => {
                    let known = read_topology_version(args.object(elem)?, invocation)?;
                    // The client has the last reply of an exhaust, and waits for news of this process.
                    let told = invocation.client.hello_topology;
                    request.known = if invocation.in_exhaust { Some(told) } else { known };
                    topology_version = true;
                }
                "maxAwaitTimeMS" => request.max_await_ms = Some(args.count(elem)?),
                "saslSupportedMechs" => check_user(&args, elem)?,
                // Not strict, as in MongoDB: newer drivers announce what older servers don't know.
                _ => {}
            }
        }
        if topology_version != request.max_await_ms.is_some() {
            let message = if topology_version {
                "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'"
            } else {
                "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'"
            };
            return Err(Error::location(if topology_version { 31368 } else { 31371 }, message));
        }
        invocation.client.hello_ok |= request.hello_ok;
        Ok(request)
    }
}

/// The counter, if the topology version is of this process.
fn read_topology_version(version: Doc<'_>, invocation: &Invocation<'_>) -> Result<Option<i64>> {
    let args = Args::new("TopologyVersion");
    let (mut process, mut counter) = (None, None);
    for elem in version {
        match (elem.key(), elem.value()) {
            ("processId", Value::ObjectId(id)) => process = Some(id),
            ("processId", _) => return Err(args.wrong_type(elem, &["objectId"])),
            ("counter", Value::Int64(number)) => counter = Some(number),
            ("counter", _) => return Err(args.wrong_type(elem, &["long"])),
            (other, _) => return Err(args.unknown(other)),
        }
    }
    let process = process.ok_or_else(|| args.missing("processId"))?;
    let counter = counter.ok_or_else(|| args.missing("counter"))?;
    if counter < 0 {
        return Err(Error::location(31372, "topologyVersion must have a non-negative counter"));
    }
    let server = invocation.server;
    if process != server.process_id {
        return Ok(None);
    }
    let now = server.member.as_ref().map_or(0, |member| member.view().topology);
    if counter > now {
        let message = format!(
            "Received a topology version with counter: {counter} which is greater than the server topology version \
             counter: {now}"
        );
        return Err(Error::location(51764, message));
    }
    Ok(Some(counter))
}

/// The user whose mechanisms are asked for: `db.user`, or a document with both. (There are no users.)
fn check_user(args: &Args<'_>, elem: Elem<'_>) -> Result<()> {
    let is_user = match elem.value().lossy() {
        Value::String(name) => name.contains('.'),
        Value::Document(user) => {
            let has = |field: &str| matches!(user.as_doc().value(field), Value::String(_));
            has("user") && has("db")
        }
        _ => return Err(args.wrong_type(elem, &["object", "string"])),
    };
    if !is_user {
        bail!(BadValue, "UserName must contain a '.' separated database.user pair");
    }
    Ok(())
}

fn write(invocation: &mut Invocation<'_>, request: &Request, view: Option<&View>) {
    let server = invocation.server;
    let out: &mut DocWriter<'_> = &mut invocation.reply;
    if request.hello_ok {
        out.put("helloOk", true);
    }
    let primary_field = if request.legacy { "ismaster" } else { "isWritablePrimary" };
    match server.member.as_ref().zip(view) {
        Some((member, view)) => describe::write(out, member, view, primary_field),
        None => out.put(primary_field, true),
    }
    {
        let mut version = out.document("topologyVersion");
        version.put("processId", server.process_id);
        version.put("counter", view.map_or(0, |view| view.topology));
    }
    out.put("maxBsonObjectSize", limits::DOCUMENT_BYTES_MAX as i32);
    out.put("maxMessageSizeBytes", limits::MESSAGE_BYTES_MAX as i32);
    out.put("maxWriteBatchSize", limits::WRITE_BATCH_MAX as i32);
    out.put("localTime", Value::DateTime(server.clock.unix_ms()));
    out.put("logicalSessionTimeoutMinutes", session_ids::timeout_minutes(server));
    out.put("connectionId", invocation.session.id as i32);
    out.put("minWireVersion", 0);
    out.put("maxWireVersion", MAX_WIRE_VERSION);
    out.put("readOnly", false);
    let descriptor = server.parameters.get("automationServiceDescriptor");
    if let Some(Value::String(descriptor)) = descriptor.map(|parameter| parameter.value)
        && !descriptor.is_empty()
    {
        out.put("automationServiceDescriptor", &*descriptor);
    }
    if !invocation.client.compressors.is_empty() {
        let mut names = out.array("compression");
        invocation.client.compressors.iter().for_each(|c| names.push(c.name()));
    }
}

/// Takes the client's compressors that this server has too.
fn negotiate(client: &mut Client, wanted: Doc<'_>) -> Result<()> {
    client.compressors.clear();
    for elem in wanted {
        let value = elem.value();
        if let Some(compressor) = value.as_str().and_then(Compressor::from_name)
            && Compressor::NEGOTIABLE.contains(&compressor)
            && !client.compressors.contains(&compressor)
        {
            client.compressors.push(compressor);
        }
    }
    Ok(())
}

/// Checks and keeps the client's metadata (`client: {application, driver, os}`).
fn set_metadata(
    client: &mut Client,
    elem: Elem<'_>,
    session: &kauri_transport::SessionInfo,
) -> Result<()> {
    let Value::Document(metadata) = elem.value() else {
        bail!(TypeMismatch, "The client metadata document must be a document");
    };
    if client.metadata.is_some() {
        bail!(
            ClientMetadataCannotBeMutated,
            "The client metadata document may only be sent in the first hello"
        );
    }
    let doc = metadata.as_doc();
    if doc.as_bytes().len() > limits::CLIENT_METADATA_BYTES_MAX {
        bail!(
            ClientMetadataDocumentTooLarge,
            "The client metadata document must be less than or equal to {} bytes",
            limits::CLIENT_METADATA_BYTES_MAX
        );
    }
    if let Value::Document(application) = doc.value("application")
        && let Value::String(name) = application.as_doc().value("name")
    {
        if name.len() > limits::APP_NAME_BYTES_MAX {
            bail!(
                ClientMetadataAppNameTooLarge,
                "The 'client.application.name' field must be less than or equal to {} bytes",
                limits::APP_NAME_BYTES_MAX
            );
        }
        client.app_name = name.into_owned();
    }
    if let Value::Document(application) = doc.value("application")
        && application.as_doc().value("name").is_not_utf8()
    {
        return Err(kauri_bson::not_utf8::error("The 'client.application.name' field"));
    }
    let Value::Document(driver) = doc.value("driver") else {
        bail!(
            ClientMetadataMissingField,
            "Missing required sub-document 'driver' in the client metadata document"
        );
    };
    for field in ["name", "version"] {
        if driver.as_doc().value(field).ty() != Some(Type::String) {
            bail!(
                ClientMetadataMissingField,
                "Missing required field 'driver.{field}' in the client metadata document"
            );
        }
    }
    let Value::Document(os) = doc.value("os") else {
        bail!(
            ClientMetadataMissingField,
            "Missing required sub-document 'os' in the client metadata document"
        );
    };
    if os.as_doc().value("type").ty() != Some(Type::String) {
        bail!(
            ClientMetadataMissingField,
            "Missing required field 'os.type' in the client metadata document"
        );
    }
    let attr =
        Attr::new().str("remote", &session.remote).str("client", format!("conn{}", session.id));
    let attr = kauri_bson::log_doc(attr, "doc", doc);
    log::info("NETWORK", 51800, &format!("conn{}", session.id), "client metadata", attr);
    let metadata = metadata.into_buf();
    client.seat.introduce(&client.app_name, &metadata);
    client.metadata = Some(metadata);
    Ok(())
}
