//! The workloads against a server, over one connection, as a driver sends them.

use super::driver::Driver;
use super::mix::{self, SCAN_MAX, Values};
use crate::crud::{exchange, put_message, run};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Doc, DocWriter, Value};
use kauri_wire::HEADER_BYTES;
use std::io;
use std::net::{SocketAddr, TcpStream};

const DATABASE: &str = "ycsb";
const COLLECTION: &str = "usertable";
/// Documents of one command while loading.
const LOAD_BATCH: u64 = 1_000;

/// What is done when a connection has ended: the server is ended, if it is the benchmark's own.
pub type End = Box<dyn FnOnce() -> Result<()>>;

/// A connection to a server that was loaded before.
pub struct Wire {
    stream: TcpStream,
    values: Values,
    request: Vec<u8>,
    requests: i32,
    end: End,
}

fn failed(error: io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// Fills the collection anew, all of it durable at the end.
pub fn load(address: SocketAddr, documents: u64) -> Result<()> {
    let mut stream = connect(address)?;
    run(&mut stream, |w| {
        w.put("dropDatabase", 1);
        w.put("$db", DATABASE);
    })
    .map_err(failed)?;
    let mut values = Values::new(documents);
    let mut next = 0;
    while next < documents {
        let end = (next + LOAD_BATCH).min(documents);
        run(&mut stream, |w| {
            w.put("insert", COLLECTION);
            let mut list = w.array("documents");
            (next..end).for_each(|number| list.push_doc(values.document(number).as_doc()));
            drop(list);
            w.put("$db", DATABASE);
        })
        .map_err(failed)?;
        next = end;
    }
    run(&mut stream, |w| {
        w.put("fsync", 1);
        w.put("$db", "admin");
    })
    .map_err(failed)
    .map(drop)
}

/// What a reply should be.
enum Expected {
    /// So many documents at least and at most.
    Documents(usize, usize),
    /// One document written.
    Written,
}

fn is_as_expected(reply: &[u8], expected: &Expected) -> bool {
    let body = reply.get(HEADER_BYTES + 5..).and_then(|bytes| Doc::from_bytes(bytes).ok());
    let Some(body) = body else { return false };
    match expected {
        Expected::Written => {
            body.value("n") == Value::Int32(1) && body.get("writeErrors").is_none()
        }
        Expected::Documents(least, most) => {
            let Value::Document(cursor) = body.value("cursor") else { return false };
            let batch = cursor.as_doc().value("firstBatch");
            let count = batch.as_array().map_or(0, |batch| batch.iter().count());
            (*least..=*most).contains(&count)
        }
    }
}

impl Wire {
    /// Connects.
    pub fn connect(address: SocketAddr, end: End) -> Result<Wire> {
        let stream = connect(address)?;
        Ok(Wire { stream, values: Values::new(1), request: Vec::new(), requests: 0, end })
    }

    fn ask(&mut self, expected: &Expected, fill: impl FnOnce(&mut DocWriter<'_>)) -> Result<()> {
        self.requests = self.requests.wrapping_add(1);
        self.request.clear();
        put_message(&mut self.request, self.requests, |w| {
            fill(w);
            w.put("$db", DATABASE);
        });
        let reply = exchange(&mut self.stream, &self.request).map_err(failed)?;
        if is_as_expected(&reply, expected) {
            return Ok(());
        }
        let body = reply.get(HEADER_BYTES + 5..).and_then(|bytes| Doc::from_bytes(bytes).ok());
        let text = body.map_or_else(String::new, |body| format!("{body:?}"));
        let text: String = text.chars().take(300).collect();
        Err(Error::new(ErrorCode::OperationFailed, format!("the server answered {text}")))
    }
}

impl Driver for Wire {
    fn read(&mut self, number: u64) -> Result<()> {
        self.ask(&Expected::Documents(1, 1), |w| {
            w.put("find", COLLECTION);
            w.document("filter").put("_id", mix::id(number).as_str());
            w.put("limit", 1);
            w.put("singleBatch", true);
        })
    }

    fn update(&mut self, number: u64, field: usize) -> Result<()> {
        let value = self.values.field();
        self.ask(&Expected::Written, |w| {
            w.put("update", COLLECTION);
            let mut list = w.array("updates");
            let mut entry = list.document();
            entry.document("q").put("_id", mix::id(number).as_str());
            entry
                .document("u")
                .document("$set")
                .put(&mix::field_name(field), String::from_utf8_lossy(&value).as_ref());
        })
    }

    fn insert(&mut self, number: u64) -> Result<()> {
        let document = self.values.document(number);
        self.ask(&Expected::Written, |w| {
            w.put("insert", COLLECTION);
            w.array("documents").push_doc(document.as_doc());
        })
    }

    fn scan(&mut self, number: u64, length: u64) -> Result<()> {
        self.ask(&Expected::Documents(1, SCAN_MAX as usize), |w| {
            w.put("find", COLLECTION);
            w.document("filter").document("_id").put("$gte", mix::id(number).as_str());
            w.document("sort").put("_id", 1);
            w.put("limit", length as i32);
            w.put("singleBatch", true);
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.stream);
        (self.end)()
    }
}
