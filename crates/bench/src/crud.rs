//! Find, insert and update by `_id` on a running server, measured in turns with the echo server at the same message
//! sizes, connections and generator.
//!
//! Works with any server of MongoDB's protocol. The data: `documents` documents of about `document_bytes` in
//! `kauri_bench.docs`, with integer `_id`s; requests use random ids.

use crate::compare::{Comparison, alternate};
use crate::echo::{EchoServer, preamble};
use crate::load::{Client, Load, Report};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{Doc, DocBuf, DocWriter, Value, doc};
use kauri_wire::{HEADER_BYTES, MsgWriter};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

const DATABASE: &str = "kauri_bench";
const COLLECTION: &str = "docs";
const LOAD_BATCH: i64 = 500;
const LOAD_BATCH_BYTES_MAX: usize = 16 << 20;

/// What is asked of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// `find` by `_id`.
    Find,
    /// `insert` of one document with a new `_id`, w:1.
    Insert,
    /// `update` of one field by `_id`, w:1.
    Update,
}

impl Operation {
    /// The name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Find => "find",
            Operation::Insert => "insert",
            Operation::Update => "update",
        }
    }
}

/// How a comparison is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// Its process, to count its CPU time.
    pub server_pid: Option<u32>,
    /// Documents loaded before.
    pub documents: i64,
    /// Size of a document.
    pub document_bytes: usize,
    /// Connections.
    pub connections: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Threads of the echo server.
    pub echo_threads: usize,
    /// Rounds, each with both servers.
    pub rounds: usize,
    /// Seconds of each measurement.
    pub seconds: u64,
    /// Seed of the ids.
    pub seed: u64,
}

/// Appends a command as an OP_MSG.
pub(crate) fn put_message(out: &mut Vec<u8>, id: i32, fill: impl FnOnce(&mut DocWriter<'_>)) {
    let message = MsgWriter::begin(out, id, 0, 0);
    fill(&mut DocWriter::new(out));
    // A request of ours is far below the limit.
    let _ = message.finish(out);
}

/// Runs one command on a connection of its own making; fails if the answer is an error.
pub(crate) fn run(
    stream: &mut TcpStream,
    fill: impl FnOnce(&mut DocWriter<'_>),
) -> io::Result<DocBuf> {
    let mut out = Vec::new();
    put_message(&mut out, 1, fill);
    let reply = exchange(stream, &out)?;
    let body = reply.get(HEADER_BYTES + 5..).and_then(|b| Doc::split_prefix(b).ok());
    let (body, _) = body.ok_or_else(|| io::Error::other("a reply without a document"))?;
    if !body.value("ok").truthy() || body.get("writeErrors").is_some() {
        return Err(io::Error::other(format!("the server answered {body:?}")));
    }
    Ok(body.to_buf())
}

fn document(id: i64, bytes: usize, random: &SeededRandom) -> DocBuf {
    let mut field = String::with_capacity(bytes);
    while field.len() + 40 < bytes {
        field.push((b'a' + (random.next_u64() % 26) as u8) as char);
    }
    doc! { "_id" => id, "n" => 0, "field" => field }
}

/// Fills the collection anew.
pub fn load(plan: &Plan) -> io::Result<()> {
    let mut stream = TcpStream::connect(plan.address)?;
    run(&mut stream, |w| {
        w.put("dropDatabase", 1);
        w.put("$db", DATABASE);
    })?;
    let random = SeededRandom::new(plan.seed);
    let per_batch = (LOAD_BATCH_BYTES_MAX / plan.document_bytes.max(1)) as i64;
    let per_batch = per_batch.clamp(1, LOAD_BATCH);
    let mut next = 0;
    while next < plan.documents {
        let end = (next + per_batch).min(plan.documents);
        run(&mut stream, |w| {
            w.put("insert", COLLECTION);
            let mut list = w.array("documents");
            for id in next..end {
                list.push_doc(document(id, plan.document_bytes, &random).as_doc());
            }
            drop(list);
            w.put("$db", DATABASE);
        })?;
        next = end;
    }
    Ok(())
}

/// Makes requests of one kind.
struct Asker<'p> {
    operation: Operation,
    plan: &'p Plan,
    random: SeededRandom,
    /// A number that no request had yet: an update that changes nothing would not be written.
    next: &'p AtomicI64,
    template: DocBuf,
    requests: i32,
}

impl Asker<'_> {
    fn write(&mut self, out: &mut Vec<u8>) {
        self.requests = self.requests.wrapping_add(1);
        let id = (self.random.next_u64() % self.plan.documents.max(1) as u64) as i64;
        let operation = self.operation;
        let template = self.template.as_doc();
        let next = || self.next.fetch_add(1, Ordering::Relaxed);
        put_message(out, self.requests, |w| match operation {
            Operation::Find => {
                w.put("find", COLLECTION);
                w.document("filter").put("_id", id);
                w.put("$db", DATABASE);
            }
            Operation::Insert => {
                w.put("insert", COLLECTION);
                {
                    let mut list = w.array("documents");
                    let mut doc = list.document();
                    doc.put("_id", next());
                    template.iter().skip(1).for_each(|e| doc.put_elem(e));
                }
                w.put("$db", DATABASE);
            }
            Operation::Update => {
                w.put("update", COLLECTION);
                {
                    let mut list = w.array("updates");
                    let mut entry = list.document();
                    entry.document("q").put("_id", id);
                    entry.document("u").document("$set").put("n", next() as i32);
                }
                w.put("$db", DATABASE);
            }
        });
    }
}

impl Client for Asker<'_> {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.write(out);
    }

    fn accept(&mut self, reply: &[u8]) -> bool {
        let body = reply.get(HEADER_BYTES + 5..).and_then(|b| Doc::from_bytes(b).ok());
        let Some(body) = body else { return false };
        match self.operation {
            Operation::Find => {
                let Value::Document(cursor) = body.value("cursor") else { return false };
                let batch = cursor.as_doc().value("firstBatch");
                batch.as_array().is_some_and(|batch| !batch.is_empty())
            }
            Operation::Insert => body.value("n") == Value::Int32(1),
            Operation::Update => body.value("nModified") == Value::Int32(1),
        }
    }
}

/// Makes the same requests, for the echo server to give a server's reply to.
struct EchoAsker<'p> {
    asker: Asker<'p>,
    request_bytes: usize,
    reply: &'p [u8],
}

impl Client for EchoAsker<'_> {
    fn begin(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(&preamble(self.request_bytes as u32, self.reply))
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        self.asker.request(out);
    }

    fn accept(&mut self, reply: &[u8]) -> bool {
        self.asker.accept(reply)
    }
}

/// One request's whole reply.
pub(crate) fn exchange(stream: &mut TcpStream, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut reply = vec![0; HEADER_BYTES];
    stream.read_exact(&mut reply)?;
    let length = kauri_wire::claimed_length(&reply)
        .and_then(kauri_wire::checked_length)
        .ok_or_else(|| io::Error::other("a reply of no length"))?;
    reply.resize(length, 0);
    stream.read_exact(reply.get_mut(HEADER_BYTES..).unwrap_or_default())?;
    Ok(reply)
}

/// Measures an operation against the echo server; `round` is told of each report as it comes.
pub fn compare(
    plan: &Plan,
    operation: Operation,
    echo: SocketAddr,
    echo_pid: Option<u32>,
    round: &mut dyn FnMut(&str, &Report),
) -> io::Result<Comparison> {
    // New ids of inserts continue behind all that earlier runs can have used.
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first_new = since_1970.map_or(1 << 40, |d| d.as_micros() as i64);
    let next = AtomicI64::new(first_new);
    let template = document(0, plan.document_bytes, &SeededRandom::new(plan.seed));
    let asker = |thread: usize| Asker {
        operation,
        plan,
        random: SeededRandom::new(plan.seed ^ (thread as u64 + 1) << 32 ^ first_new as u64),
        next: &next,
        template: template.clone(),
        requests: 0,
    };
    let mut sample = Vec::new();
    asker(usize::MAX >> 33).write(&mut sample);
    let reply = exchange(&mut TcpStream::connect(plan.address)?, &sample)?;
    let load = |address, server_pid| Load {
        address,
        connections: plan.connections,
        threads: plan.threads,
        warmup: Duration::from_millis(300),
        measure: Duration::from_secs(plan.seconds),
        server_pid,
    };
    let (mut servers, mut floors) = (Vec::new(), Vec::new());
    let comparison = alternate(
        plan.rounds,
        || {
            let report = load(plan.address, plan.server_pid).run(asker)?;
            servers.push(report.clone());
            Ok(report)
        },
        || {
            let (request_bytes, reply) = (sample.len(), reply.as_slice());
            let report = load(echo, echo_pid).run(|thread| EchoAsker {
                asker: asker(thread),
                request_bytes,
                reply,
            })?;
            floors.push(report.clone());
            Ok(report)
        },
    )?;
    servers.iter().for_each(|report| round("server", report));
    floors.iter().for_each(|report| round("echo", report));
    Ok(comparison)
}

/// Runs an echo server until standard input ends; prints its address first. The echo server is a
/// process of its own so that its CPU time can be told from the generator's.
pub fn serve_echo(threads: usize) -> io::Result<()> {
    let server = EchoServer::start(SocketAddr::from(([127, 0, 0, 1], 0)), threads)?;
    println!("{}", server.address());
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
