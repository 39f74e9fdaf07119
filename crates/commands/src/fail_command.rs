//! The failpoints that drivers' test suites use. `failCommand` lets commands fail, break the connection, wait, or
//! succeed with a write concern error. `maxTimeAlwaysTimeOut` expires every time limit at once,
//! `maxTimeNeverTimeOut` none. `failGetMoreAfterCursorCheckout` lets a getMore fail after it has found its cursor,
//! `onPrimaryTransactionalWrite` a write that may be sent again before or after it is executed.
//! `waitInFindBeforeMakingBatch` holds a find until the failpoint is off or the find is ended.

use crate::dispatch::Injected;
use crate::invocation::Invocation;
use crate::server::Server;
use crate::set;
use kauri_base::{Error, ErrorCode, OperationContext, Result, bail};
use kauri_bson::{Doc, DocBuf, Value};
use std::borrow::Cow;
use std::time::Duration;

/// The effect to inject into a command.
#[derive(Default)]
pub struct Injection {
    error: Option<Error>,
    close: bool,
    write_concern_error: Option<DocBuf>,
    /// The labels that the test gives; without, the server gives them.
    labels: Option<Vec<String>>,
}

impl Injection {
    /// The outcome, if the command is not to run at all.
    pub fn immediate(&self) -> Option<Result<Injected>> {
        if self.close {
            return Some(Ok(Injected::CloseConnection));
        }
        self.error.clone().map(Err)
    }

    /// Adds to the reply of a command that ran.
    pub fn after(&self, invocation: &mut Invocation<'_>) {
        if let Some(error) = &self.write_concern_error {
            invocation.reply.put("writeConcernError", error);
            let code = error.as_doc().value("code").to_i64_saturating().unwrap_or(0);
            let code = ErrorCode::from_number(i32::try_from(code).unwrap_or(0));
            match &self.labels {
                Some(labels) => put_labels(invocation, labels),
                None => put_own_label(invocation, code),
            }
            set::reply::put_topology_version(&mut invocation.reply, invocation.server, code);
        } else if let Some(error) = invocation.write_concern_error.take() {
            put_own_label(invocation, error.code());
            set::write_wait::put_error(&mut invocation.reply, invocation.server, &error);
        }
    }
}

fn put_labels(invocation: &mut Invocation<'_>, labels: &[String]) {
    if !labels.is_empty() {
        let mut out = invocation.reply.array("errorLabels");
        labels.iter().for_each(|label| out.push(label));
    }
}

/// The label that the server gives to an error of this code.
fn put_own_label(invocation: &mut Invocation<'_>, code: ErrorCode) {
    if invocation.op.txn_number.is_some() && set::reply::is_retryable(code) {
        invocation.reply.array("errorLabels").push(set::reply::RETRYABLE);
    }
}

/// The failpoints that there are.
pub const POINTS: &[&str] = &[
    "failCommand",
    "failGetMoreAfterCursorCheckout",
    "maxTimeAlwaysTimeOut",
    "maxTimeNeverTimeOut",
    ON_NUMBERED,
    STOP_PRODUCER,
    IN_FIND,
];

/// Holds a find that has its plan and no batch yet.
const IN_FIND: &str = "waitInFindBeforeMakingBatch";
/// The interval at which a held find looks whether it may go on.
const HELD: Duration = Duration::from_millis(10);

/// Fails if the data of [`IN_FIND`] has another option than the namespace, or asks that a find cannot be ended.
pub fn check_in_find(data: Doc<'_>) -> Result<()> {
    for elem in data {
        match (elem.key(), elem.value()) {
            ("nss", Value::String(_)) => {}
            ("shouldCheckForInterrupt", value) if value.truthy() => {}
            (other, _) => bail!(BadValue, "{IN_FIND} has no such option: '{other}'"),
        }
    }
    Ok(())
}

/// Waits in a find of this namespace as long as a test wants it to.
pub async fn wait_in_find(invocation: &Invocation<'_>, ns: &str) -> Result<()> {
    let server = invocation.server;
    let applies = |data: &[u8]| match Doc::from_bytes(data).map(|data| data.value("nss")) {
        Ok(Value::String(wanted)) => wanted == ns,
        _ => true,
    };
    let random = || server.random.next_u64() as f64 / u64::MAX as f64;
    while server.fail_points.any_active()
        && server.fail_points.fire(IN_FIND, random, applies).is_some()
    {
        block(invocation, HELD).await?;
        invocation.op.check_for_interrupt()?;
    }
    Ok(())
}

/// While it is on a secondary takes no entries of the primary.
const STOP_PRODUCER: &str = "stopReplProducer";
/// Fires at each execution of a write that may be sent again.
const ON_NUMBERED: &str = "onPrimaryTransactionalWrite";
/// Its options: whether the connection ends (without the option it does), and the code that the write fails with.
const CLOSES: &str = "closeConnection";
const FAILS: &str = "failBeforeCommitExceptionCode";

/// Fails if the data of [`ON_NUMBERED`] has another option.
pub fn check_numbered(data: Doc<'_>) -> Result<()> {
    for elem in data {
        match elem.key() {
            CLOSES => {}
            FAILS if elem.value().is_number() => {}
            other => bail!(BadValue, "{ON_NUMBERED} has no such option: '{other}'"),
        }
    }
    Ok(())
}

/// Whether a test wants this member to lag.
pub fn stops_producer(server: &Server) -> bool {
    server.fail_points.any_active() && fire(server, STOP_PRODUCER).is_some()
}

/// Fires a failpoint that applies to every event.
fn fire(server: &Server, name: &str) -> Option<Vec<u8>> {
    let random = || server.random.next_u64() as f64 / u64::MAX as f64;
    server.fail_points.fire(name, random, |_| true)
}

/// Takes the time limit away from an operation if a test wants none to be exceeded.
pub fn lift_limit(server: &Server, op: &OperationContext) {
    let is_set = server.fail_points.any_active() && op.time_left().is_some();
    if is_set && fire(server, "maxTimeNeverTimeOut").is_some() {
        op.clear_deadline();
    }
}

/// Fails if a test wants a getMore to fail that has found its cursor.
pub fn check_get_more(server: &Server) -> Result<()> {
    if !server.fail_points.any_active() {
        return Ok(());
    }
    let Some(data) = fire(server, "failGetMoreAfterCursorCheckout") else { return Ok(()) };
    let code = Doc::from_bytes(&data)?.value("errorCode").to_i64_saturating();
    let code = code.and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
    Err(Error::location(code, "Hit the 'failGetMoreAfterCursorCheckout' failpoint"))
}

/// A test may want the connection to end once this many statements of a numbered write have run, or these not to run.
pub fn before_numbered(invocation: &mut Invocation<'_>, statements: usize) -> Result<()> {
    let server = invocation.server;
    if !server.fail_points.any_active() {
        return Ok(());
    }
    // Each of them counts, until it fires.
    let fired = (0..statements).find_map(|_| fire(server, ON_NUMBERED));
    let Some(data) = fired else { return Ok(()) };
    let data = Doc::from_bytes(&data)?;
    invocation.hang_up |= data.get(CLOSES).is_none_or(|closes| closes.value().truthy());
    match data.value(FAILS).to_i64_saturating() {
        Some(code) => {
            let code = i32::try_from(code).unwrap_or(0);
            Err(Error::location(code, "The write fails due to failpoint, and is not executed"))
        }
        None => Ok(()),
    }
}

/// Fails if a test wants the time limits of operations to be exceeded and this one has one.
pub fn check_time(server: &Server, op: &OperationContext) -> Result<()> {
    if !server.fail_points.any_active() || op.time_left().is_none() {
        return Ok(());
    }
    match fire(server, "maxTimeAlwaysTimeOut") {
        Some(_) => bail!(MaxTimeMSExpired, "operation exceeded time limit"),
        None => Ok(()),
    }
}

/// Looks whether the failpoint applies to the command of this name, and waits if that is what it asks. The
/// command need not be one that there is.
pub async fn before(
    server: &Server,
    invocation: &mut Invocation<'_>,
    name: &str,
) -> Result<Injection> {
    if !server.fail_points.any_active() {
        return Ok(Injection::default());
    }
    let random = || server.random.next_u64() as f64 / u64::MAX as f64;
    let asking = &*invocation;
    let applies = |data: &[u8]| applies(data, asking, name);
    let Some(data) = server.fail_points.fire("failCommand", random, applies) else {
        return Ok(Injection::default());
    };
    let data = DocBuf::from_vec(data)?;
    let data = data.as_doc();
    if data.value("blockConnection").truthy() {
        let ms = data.value("blockTimeMS").to_i64_saturating().unwrap_or(0).max(0) as u64;
        block(invocation, Duration::from_millis(ms)).await?;
    }
    let mut injection =
        Injection { close: data.value("closeConnection").truthy(), ..Default::default() };
    if let Value::Array(labels) = data.value("errorLabels") {
        let labels = labels.iter().filter_map(|l| l.value().as_str().map(str::to_owned));
        injection.labels = Some(labels.collect());
        invocation.labels_are_given = true;
    }
    let code = data.value("errorCode");
    if code.is_number() {
        let code = ErrorCode::from_number(code.to_i64_saturating().unwrap_or(0) as i32);
        let message = format!("Failing command via 'failCommand' failpoint: {name}");
        let mut error = Error::new(code, message);
        if let Value::Document(extra) = data.value("errorExtraInfo") {
            error = error.with_extra(extra.into_buf().into_vec());
        }
        for label in injection.labels.iter().flatten() {
            error = error.with_label(label.clone());
        }
        injection.error = Some(error);
    }
    if let Value::Document(error) = data.value("writeConcernError") {
        injection.write_concern_error = Some(error.into_buf());
    }
    Ok(injection)
}

/// Waits, but no longer than the operation may take.
async fn block(invocation: &Invocation<'_>, time: Duration) -> Result<()> {
    let left = invocation.op.time_left().unwrap_or(time);
    invocation.worker.sleep(time.min(left)).await;
    if left < time {
        bail!(MaxTimeMSExpired, "operation exceeded time limit");
    }
    Ok(())
}

fn applies(data: &[u8], invocation: &Invocation<'_>, name: &str) -> bool {
    let Ok(data) = Doc::from_bytes(data) else { return false };
    if invocation.command.is_some_and(|command| command.never_fails_by_failpoint) {
        return false;
    }
    let aliases = invocation.command.map_or(&[][..], |command| command.aliases);
    if let Value::String(wanted) = data.value("appName")
        && wanted != app_name(invocation)
    {
        return false;
    }
    if let Value::String(namespace) = data.value("namespace") {
        let target = invocation.body.first().map(|e| e.value());
        let full = match &target {
            Some(Value::String(name)) => format!("{}.{name}", invocation.db),
            _ => invocation.db.to_owned(),
        };
        if namespace != full {
            return false;
        }
    }
    if data.value("failAllCommands").truthy() {
        return true;
    }
    data.value("failCommands").as_array().is_some_and(|names| {
        names.iter().any(|wanted| {
            let value = wanted.value();
            value.as_str().is_some_and(|wanted| wanted == name || aliases.contains(&wanted))
        })
    })
}

/// The client's application name; a first hello is about to set it.
fn app_name<'a>(invocation: &'a Invocation<'_>) -> Cow<'a, str> {
    if invocation.client.metadata.is_none()
        && let Value::Document(client) = invocation.body.value("client")
        && let Value::Document(application) = client.as_doc().value("application")
        && let Value::String(name) = application.as_doc().value("name")
    {
        return Cow::Owned(name.into_owned());
    }
    Cow::Borrowed(&invocation.client.app_name)
}
