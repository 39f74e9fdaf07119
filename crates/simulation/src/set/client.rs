//! A client of the set: finds the primary, and sends what is not answered again, as drivers do.

use super::shared::Shared;
use kauri_base::Timestamp;
use kauri_bson::{Doc, DocBuf, DocWriter, Value, doc};
use kauri_testkit::Dice;
use kauri_transport::WorkerHandle;
use kauri_transport::fake::FakeClient;
use kauri_wire::{Message, MsgWriter};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The label of errors after which a numbered write may be sent again.
const RETRYABLE: &str = "RetryableWriteError";
/// Codes of errors by members that are not, or no longer, what the client takes them for.
const STATE_CHANGES: [i64; 7] = [10_107, 13_435, 13_436, 11_600, 11_602, 189, 91];
/// The set has no configuration yet, or the member knows of none.
const NOT_YET_INITIALIZED: i64 = 94;
/// The statement was executed, and its result is not kept.
const RESULT_LOST: i64 = 217;
/// The fields that both answers to a numbered write have in common.
const SAME_TWICE: [&str; 5] = ["n", "nModified", "upserted", "value", "writeErrors"];

/// What a write has come to.
#[derive(Debug)]
pub enum Answer {
    /// It is acknowledged.
    Done(DocBuf),
    /// It was executed earlier and is acknowledged; its result is not known.
    Executed,
    /// It, or one of its statements, was refused with this code.
    Refused(i64, DocBuf),
    /// Nobody knows.
    Unknown,
}

/// The code of a reply that is an error; 0.
pub fn code(reply: &DocBuf) -> i64 {
    match reply.as_doc().value("ok").as_f64_lossy() {
        Some(1.0) => 0,
        _ => reply.as_doc().value("code").to_i64_saturating().unwrap_or(-1),
    }
}

/// Whether a code is of a member that is not, or no longer, what the client takes it for.
pub fn is_state_change(code: i64) -> bool {
    STATE_CHANGES.contains(&code)
}

/// A number of a document; -1 without one.
pub fn number(doc: Doc<'_>, field: &str) -> i64 {
    doc.value(field).to_i64_saturating().unwrap_or(-1)
}

/// The document with one field more.
pub fn with<'v>(doc: &DocBuf, field: &str, value: impl Into<Value<'v>>) -> DocBuf {
    let value = value.into();
    DocBuf::build(|out| {
        out.put_all(doc.as_doc());
        out.put(field, value);
    })
}

/// A document as text.
pub fn text(doc: &DocBuf) -> String {
    kauri_bson::shell_text(doc.as_doc())
}

/// The documents of a cursor's batch, and its id.
pub fn batch(reply: &DocBuf) -> (Vec<DocBuf>, i64) {
    let Value::Document(cursor) = reply.as_doc().value("cursor") else { return (Vec::new(), -1) };
    let cursor = cursor.into_buf();
    let mut docs = Vec::new();
    for field in ["firstBatch", "nextBatch"] {
        if let Value::Array(array) = cursor.as_doc().value(field) {
            docs.extend(array.as_doc().iter().filter_map(|e| Some(e.as_doc()?.to_buf())));
        }
    }
    (docs, number(cursor.as_doc(), "id"))
}

fn has_label(reply: &DocBuf) -> bool {
    let Value::Array(labels) = reply.as_doc().value("errorLabels") else { return false };
    labels.as_doc().iter().any(|label| label.value().as_str() == Some(RETRYABLE))
}

fn statement_code(reply: &DocBuf) -> i64 {
    let Value::Array(errors) = reply.as_doc().value("writeErrors") else { return 0 };
    let first = errors.as_doc().iter().next();
    first.and_then(|e| Some(number(e.as_doc()?, "code"))).unwrap_or(0)
}

/// See the module's head.
pub struct Client {
    /// Its number among the clients.
    pub number: u64,
    /// Choices of this client.
    pub dice: Dice,
    /// What all know.
    pub shared: Arc<Shared>,
    /// Where its programs run.
    pub worker: WorkerHandle,
    pipes: BTreeMap<u64, FakeClient>,
    primary: Option<u64>,
    requests: i32,
    writes: i64,
    patience: Duration,
    /// The greatest `operationTime`, and the `$clusterTime` of the newest reply.
    pub times: Option<(Timestamp, DocBuf)>,
}

impl Client {
    /// A client that is not connected yet, and waits this long for a reply.
    pub fn new(
        number: u64,
        shared: &Arc<Shared>,
        worker: &WorkerHandle,
        dice: Dice,
        patience: Duration,
    ) -> Client {
        Client {
            number,
            dice,
            shared: shared.clone(),
            worker: worker.clone(),
            pipes: BTreeMap::new(),
            primary: None,
            requests: 0,
            writes: 0,
            patience,
            times: None,
        }
    }

    /// Waits a while, at most so long.
    pub async fn pause(&self, at_most: Duration) {
        let ns = self.dice.below(at_most.as_nanos() as u64);
        self.worker.sleep(Duration::from_nanos(ns)).await;
    }

    /// Runs a command on a member. `None`: no reply, and the outcome is unknown.
    pub async fn ask(&mut self, member: u64, database: &str, command: &DocBuf) -> Option<DocBuf> {
        if self.pipes.get(&member).is_none_or(FakeClient::is_closed) {
            self.pipes.remove(&member);
            self.pipes.insert(member, self.shared.connect(member)?);
        }
        let message = self.message(database, command)?;
        let pipe = self.pipes.get(&member)?;
        pipe.send(&message);
        // The connection breaks now and then.
        let patience = match self.dice.percent(2) {
            true => Duration::from_micros(self.dice.below(3_000)),
            false => self.patience,
        };
        let mut limit = pin!(self.worker.sleep(patience));
        let received = poll_fn(|cx| match pipe.poll_receive(cx) {
            Poll::Ready(received) => Poll::Ready(received),
            Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
        });
        let reply = received.await.and_then(|bytes| self.reply(&bytes, command));
        match &reply {
            Some(reply) => self.note_times(reply),
            None => drop(self.pipes.remove(&member)),
        }
        reply
    }

    fn message(&mut self, database: &str, command: &DocBuf) -> Option<Vec<u8>> {
        self.requests += 1;
        let mut message = Vec::new();
        let writer = MsgWriter::begin(&mut message, self.requests, 0, 0);
        {
            let mut body = DocWriter::new(&mut message);
            body.put_all(command.as_doc());
            body.put("$db", database);
            if let Some((_, cluster)) = &self.times {
                body.put("$clusterTime", cluster);
            }
        }
        writer.finish(&mut message).ok()?;
        Some(message)
    }

    fn reply(&self, bytes: &[u8], command: &DocBuf) -> Option<DocBuf> {
        // Without the server's own number of the message, which is the process's.
        self.shared.mix(bytes.get(8..).unwrap_or_default());
        let parsed = Message::parse(bytes).ok().and_then(|(header, message)| {
            let Message::Msg(reply) = message else { return None };
            let doc = Doc::from_bytes(reply.body).ok()?.to_buf();
            (header.response_to == self.requests).then_some(doc)
        });
        if parsed.is_none() {
            self.shared.fault(format!("a reply to something else than {}", text(command)));
        }
        parsed
    }

    fn note_times(&mut self, reply: &DocBuf) {
        let (operation, cluster) =
            (reply.as_doc().value("operationTime"), reply.as_doc().value("$clusterTime"));
        if let (Value::Timestamp(time), Some(cluster)) = (operation, cluster.as_document()) {
            // Another member may be behind.
            let before = self.times.as_ref().map(|(before, _)| *before);
            self.times = Some((before.map_or(time, |before| before.max(time)), cluster.to_buf()));
        }
    }

    /// A member that says that it is the primary.
    pub async fn primary(&mut self) -> Option<u64> {
        if self.primary.is_none() {
            let member = self.shared.any_member(&self.dice)?;
            let reply = self.ask(member, "admin", &doc! { "hello" => 1 }).await?;
            let is_primary = reply.as_doc().value("isWritablePrimary").truthy();
            self.primary = is_primary.then_some(member);
        }
        self.primary
    }

    /// Sends a command to the primary, once.
    pub async fn attempt(&mut self, database: &str, command: &DocBuf) -> Answer {
        let Some(primary) = self.primary().await else { return Answer::Unknown };
        let Some(reply) = self.ask(primary, database, command).await else {
            self.primary = None;
            return Answer::Unknown;
        };
        let code = code(&reply);
        if code == RESULT_LOST {
            return Answer::Executed;
        }
        if is_state_change(code) || code == NOT_YET_INITIALIZED || has_label(&reply) {
            self.primary = None;
            return Answer::Unknown;
        }
        if code != 0 {
            return Answer::Refused(code, reply);
        }
        if let Some(error) = reply.as_doc().value("writeConcernError").as_document() {
            if is_state_change(number(error, "code")) {
                self.primary = None;
            }
            return Answer::Unknown;
        }
        match statement_code(&reply) {
            0 => Answer::Done(reply),
            code if is_state_change(code) => {
                self.primary = None;
                Answer::Unknown
            }
            code => Answer::Refused(code, reply),
        }
    }

    /// The number of the next write in the client's session, in a command.
    fn numbered(&mut self, command: &DocBuf) -> DocBuf {
        self.writes += 1;
        let id = Value::Binary { subtype: 4, bytes: vec![self.number as u8; 16].into() };
        let command = with(command, "lsid", doc! { "id" => id });
        with(&command, "txnNumber", self.writes)
    }

    /// Sends a numbered write until it is known what has become of it, or clients are to end.
    pub async fn write(&mut self, database: &str, command: &DocBuf) -> Answer {
        let command = self.numbered(command);
        loop {
            match self.attempt(database, &command).await {
                Answer::Unknown if self.shared.is_over() => return Answer::Unknown,
                Answer::Unknown => {
                    self.shared.count("retries");
                    self.pause(Duration::from_millis(50)).await;
                }
                Answer::Done(reply) => {
                    if reply.as_doc().get("retriedStmtIds").is_some()
                        || reply.as_doc().get("retriedStmtId").is_some()
                    {
                        self.shared.count("executed before");
                    }
                    if self.dice.percent(15) {
                        self.repeat(database, &command, &reply).await;
                    }
                    return Answer::Done(reply);
                }
                answer => return answer,
            }
        }
    }

    /// The reply was lost, and the write is sent again: it has the same one.
    async fn repeat(&mut self, database: &str, command: &DocBuf, before: &DocBuf) {
        let Answer::Done(again) = self.attempt(database, command).await else { return };
        self.shared.count("repeated");
        for field in SAME_TWICE {
            if before.as_doc().value(field) != again.as_doc().value(field) {
                let (command, before, again) = (text(command), text(before), text(&again));
                self.shared.fault(format!("{command} answers {before}, and then {again}"));
                return;
            }
        }
    }
}
