//! Put and Get in a closed loop: one connection, one request after the other.
//!
//! Put inserts a document with a binary field, acknowledged with the server's default durability. Get finds one by
//! `_id`. Mixed chooses one of both at random. A request's bytes are built once and only its numbers change, so the
//! client costs little. A reply is checked after its time was taken: a Put's for the count of one document, a Get's
//! for the length of a verified reply.

use super::DATABASE;
use super::rows::Round;
use super::stages::{Reading, Window};
use crate::cpu::busy_time;
use crate::crud::put_message;
use crate::histogram::Histogram;
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{Doc, DocBuf, Value, array, doc};
use kauri_client::{ClientError, Connection, Uri};
use kauri_wire::HEADER_BYTES;
use std::time::{Duration, Instant};

/// Where Get finds its documents.
const KEPT: &str = "kept";
/// Where Put puts its own; dropped after each measurement.
const PUTS: &str = "puts";
/// Stands for the `_id` while a message is made.
const MARK: i64 = 0x6B61_7572_695F_6964;
/// Of a message's number in its header.
const REQUEST_ID_AT: usize = 4;
/// Of documents that are kept for Get, in all.
const KEPT_BYTES: u64 = 64 << 20;
const KEPT_MAX: u64 = 10_000;
/// Of documents inserted at once.
const BATCH_BYTES: usize = 8 << 20;
/// Requests that find out nothing but that all works, before any are counted.
const WARM_UP_MIN: u64 = 20;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operation {
    Put,
    Get,
    Mixed,
}

impl Operation {
    /// All.
    pub const ALL: [Operation; 3] = [Operation::Put, Operation::Get, Operation::Mixed];

    /// As on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Mixed => "mixed",
        }
    }

    /// The operation of this name.
    pub fn parse(name: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

/// How long to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub measure: Duration,
    /// Ends earlier if so many bytes of documents have been put, so that a disk or memory doesn't fill up.
    pub put_bytes_max: u64,
}

/// How many documents of this size are kept for Get.
pub fn kept(bytes: u64) -> i64 {
    (KEPT_BYTES / bytes.max(1)).clamp(1, KEPT_MAX) as i64
}

/// Bytes that don't compress.
pub fn noise(bytes: usize, random: &SeededRandom) -> Vec<u8> {
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        noise.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

/// The document of a reply that tells of no error.
pub fn ok_body(message: &[u8]) -> Result<Doc<'_>, ClientError> {
    let body = message.get(HEADER_BYTES + 5..).and_then(|body| Doc::from_bytes(body).ok());
    let body =
        body.ok_or_else(|| ClientError::Protocol("a reply without a document".to_owned()))?;
    if body.value("ok").truthy() && body.get("writeErrors").is_none() {
        return Ok(body);
    }
    Err(ClientError::Protocol(format!("the server answered {body:?}")))
}

/// Drops a collection, if it is there.
pub fn drop_collection(connection: &mut Connection, name: &str) -> Result<(), ClientError> {
    connection.command(DATABASE, &doc! { "drop" => name }).map(drop)
}

/// A read as this server answers it: a secondary has to be told that it is wanted.
pub fn read_from(connection: &Connection, find: DocBuf) -> DocBuf {
    if !connection.greeting().value("secondary").truthy() {
        return find;
    }
    DocBuf::build(|out| {
        out.put_all(find.as_doc());
        out.put("$readPreference", doc! { "mode" => "secondaryPreferred" });
    })
}

/// Waits until a secondary has what the primary has now.
pub fn catch_up(primary: &Uri, secondary: &Uri) -> Result<(), ClientError> {
    let now = Connection::open(primary)?.command(DATABASE, &doc! { "ping" => 1 })?;
    let concern = doc! { "afterClusterTime" => now.as_doc().value("operationTime").into_owned() };
    let find = DocBuf::build(|out| {
        out.put("find", KEPT);
        out.put("limit", 1);
        out.put("readConcern", concern);
        // Without it a time that the secondary has not heard of is refused.
        if let Some(time) = now.as_doc().get("$clusterTime") {
            out.put_elem(time);
        }
    });
    let mut connection = Connection::open(secondary)?;
    let find = read_from(&connection, find);
    connection.command(DATABASE, &find).map(drop)
}

/// Stores the documents that Get asks for, in place of those that were there.
pub fn load(uri: &Uri, bytes: u64, seed: u64) -> Result<(), ClientError> {
    let mut connection = Connection::open(uri)?;
    drop_collection(&mut connection, KEPT)?;
    let random = SeededRandom::new(seed);
    let (mut next, count) = (0, kept(bytes));
    while next < count {
        let batch = (BATCH_BYTES as i64 / bytes.max(1) as i64).clamp(1, 1000).min(count - next);
        let documents = (next..next + batch).map(|id| {
            let x = Value::Binary { subtype: 0, bytes: noise(bytes as usize, &random).into() };
            Value::from(doc! { "_id" => id, "x" => x })
        });
        let command = doc! { "insert" => KEPT, "documents" => Value::array(documents) };
        connection.send(DATABASE, &command)?;
        ok_body(connection.receive_message()?)?;
        next += batch;
    }
    Ok(())
}

/// A request whose `_id` can be changed.
struct Template {
    message: Vec<u8>,
    id_at: usize,
}

impl Template {
    fn new(command: &DocBuf) -> Result<Template, ClientError> {
        let mut message = Vec::new();
        put_message(&mut message, 0, |out| {
            out.put_all(command.as_doc());
            out.put("$db", DATABASE);
        });
        let id_at = message.windows(8).position(|bytes| bytes == MARK.to_le_bytes());
        let id_at =
            id_at.ok_or_else(|| ClientError::Protocol("a request without _id".to_owned()))?;
        Ok(Template { message, id_at })
    }

    fn with(&mut self, request: i32, id: i64) -> &[u8] {
        for (at, bytes) in
            [(REQUEST_ID_AT, request.to_le_bytes().as_slice()), (self.id_at, &id.to_le_bytes())]
        {
            if let Some(place) = self.message.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
        &self.message
    }
}

/// Asks over one connection.
pub struct Asker {
    operation: Operation,
    bytes: u64,
    connection: Connection,
    put: Template,
    get: Template,
    /// Of a Get's reply.
    reply_bytes: usize,
    random: SeededRandom,
    next_id: i64,
    requests: i32,
    put_bytes: u64,
}

impl Asker {
    /// Connects. `first_id` is that of the first Put; each asker has 2^32 ids of its own.
    pub fn connect(
        uri: &Uri,
        operation: Operation,
        bytes: u64,
        first_id: i64,
    ) -> Result<Asker, ClientError> {
        let random = SeededRandom::new(first_id as u64 ^ bytes);
        let x = Value::Binary { subtype: 0, bytes: noise(bytes as usize, &random).into() };
        let put =
            doc! { "insert" => PUTS, "documents" => array![doc! { "_id" => MARK, "x" => x }] };
        let filter = doc! { "_id" => MARK };
        let get = doc! { "find" => KEPT, "filter" => filter, "limit" => 1, "singleBatch" => true };
        let connection = Connection::open(uri)?;
        let get = read_from(&connection, get);
        let mut asker = Asker {
            operation,
            bytes,
            connection,
            put: Template::new(&put)?,
            get: Template::new(&get)?,
            reply_bytes: 0,
            random,
            next_id: first_id,
            requests: 0,
            put_bytes: 0,
        };
        asker.look_through_one()?;
        Ok(asker)
    }

    /// A Get whose reply is looked through.
    fn look_through_one(&mut self) -> Result<(), ClientError> {
        self.connection.send_message(self.get.with(0, 0))?;
        let reply = self.connection.receive_message()?;
        let bytes = reply.len();
        let body = ok_body(reply)?;
        let cursor = body.get("cursor").and_then(|cursor| cursor.as_doc());
        let batch = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_doc());
        let found = batch.and_then(|batch| batch.first()?.as_doc());
        match found.map(|found| found.value("x")) {
            Some(Value::Binary { bytes: x, .. }) if x.len() as u64 == self.bytes => {}
            _ => return Err(ClientError::Protocol("Get does not find its document".to_owned())),
        }
        self.reply_bytes = bytes;
        Ok(())
    }

    /// One request. How long it took.
    fn ask(&mut self) -> Result<Duration, ClientError> {
        self.requests = self.requests.wrapping_add(1);
        let puts = match self.operation {
            Operation::Put => true,
            Operation::Get => false,
            Operation::Mixed => self.random.next_u64() & 1 == 0,
        };
        let message = if puts {
            self.next_id += 1;
            self.put_bytes += self.bytes;
            self.put.with(self.requests, self.next_id)
        } else {
            let id = (self.random.next_u64() % kept(self.bytes) as u64) as i64;
            self.get.with(self.requests, id)
        };
        let asked = Instant::now();
        self.connection.send_message(message)?;
        let reply = self.connection.receive_message()?;
        let took = asked.elapsed();
        let fine = match puts {
            true => ok_body(reply)?.value("n") == Value::Int32(1),
            false => reply.len() == self.reply_bytes,
        };
        match fine {
            true => Ok(took),
            false => Err(ClientError::Protocol("a reply other than it should be".to_owned())),
        }
    }

    /// Asks without counting.
    pub fn warm_up(&mut self, slice: &Slice) -> Result<(), ClientError> {
        let (began, mut asked) = (Instant::now(), 0);
        self.put_bytes = 0;
        while asked < WARM_UP_MIN
            || began.elapsed() < slice.warm_up && self.put_bytes < slice.put_bytes_max / 4
        {
            self.ask()?;
            asked += 1;
        }
        Ok(())
    }

    /// Asks for as long as `slice` says. The latencies, and how long it took in all.
    pub fn run(&mut self, slice: &Slice) -> Result<(Histogram, Duration), ClientError> {
        let mut latency = Histogram::default();
        let began = Instant::now();
        self.put_bytes = 0;
        while began.elapsed() < slice.measure && self.put_bytes < slice.put_bytes_max {
            latency.record(self.ask()?.as_nanos() as u64);
        }
        Ok((latency, began.elapsed()))
    }
}

/// Measures one client with one connection to the server whose process is `pid`.
pub fn measure(
    uri: &Uri,
    pid: u32,
    operation: Operation,
    bytes: u64,
    slice: &Slice,
) -> Result<Round, ClientError> {
    let mut asker = Asker::connect(uri, operation, bytes, 0)?;
    asker.warm_up(slice)?;
    let before = Reading::take(&mut asker.connection)?;
    let own = std::process::id();
    let cpu = || (busy_time(pid), busy_time(own));
    let (server_before, client_before) = cpu();
    let (latency, wall) = asker.run(slice)?;
    let (server_after, client_after) = cpu();
    let after = Reading::take(&mut asker.connection)?;
    drop_collection(&mut asker.connection, PUTS)?;
    let spent = |after: Option<Duration>, before| Some(after?.saturating_sub(before?));
    Ok(Round {
        latency,
        wall,
        window: Window::between(&before, &after),
        server_cpu: spent(server_after, server_before),
        client_cpu: spent(client_after, client_before),
        secondary: None,
    })
}

/// The latency of one client's Gets from a secondary.
pub fn secondary_latency(
    uri: &Uri,
    operation: Operation,
    bytes: u64,
    slice: &Slice,
) -> Result<Histogram, ClientError> {
    let mut asker = Asker::connect(uri, operation, bytes, 0)?;
    asker.warm_up(slice)?;
    Ok(asker.run(slice)?.0)
}

/// Drops what Puts of client processes have left.
pub fn clean_up(uri: &Uri) -> Result<(), ClientError> {
    drop_collection(&mut Connection::open(uri)?, PUTS)
}

/// Drops what Gets asked for.
pub fn unload(uri: &Uri) -> Result<(), ClientError> {
    drop_collection(&mut Connection::open(uri)?, KEPT)
}
