//! The write-lock experiment: the effect of writes on readers.
//!
//! Small documents, one reader of the first few of them at full speed, and one writer that sends unacknowledged
//! updates at a given rate, to documents in memory (*hot*: the ones that are read) or mostly not in memory (*cold*:
//! any of the others). It measures reads and writes per second, and, from the server and the operating system,
//! reads from the device. After each measurement every written document is read: all writes must have been applied.
//!
//! Works with any server of MongoDB's protocol; figures of Kauri's cache and locks are included if the server
//! reports them.

pub mod disk;
pub mod report;

use crate::crud::{put_message, run};
use crate::load::{Client, Load, Report};
use disk::{Device, DeviceReads};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{Doc, DocBuf, Value};
use kauri_wire::{HEADER_BYTES, MsgWriter, flags};
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const DATABASE: &str = "kauri_writelock";
const COLLECTION: &str = "docs";
const LOAD_BATCH: i64 = 2_000;
/// Writes that may lie ahead of what the server has taken before the writer gives up its pace.
const BEHIND_MAX: Duration = Duration::from_secs(5);

/// Which documents are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scatter {
    /// Those that are read.
    Hot,
    /// The others.
    Cold,
}

impl Scatter {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Scatter::Hot => "hot",
            Scatter::Cold => "cold",
        }
    }
}

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Documents in all.
    pub documents: i64,
    /// Bytes of one.
    pub document_bytes: usize,
    /// How many of them, the first, are read.
    pub hot: i64,
    /// How long one point is measured.
    pub seconds: u64,
    /// Seed of the ids.
    pub seed: u64,
}

/// Where a server is, and where its reads are counted.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// Its process, if it's on this machine.
    pub pid: Option<u32>,
    /// The block device under its data.
    pub device: Option<Device>,
    /// The control groups that it runs in: one may count what the device read for it alone.
    pub cgroups: Vec<PathBuf>,
}

/// What a server tells of itself.
#[derive(Clone, Copy, Default, Debug)]
struct Status {
    misses: i64,
    cache_reads: i64,
    cache_read_bytes: i64,
    lock_waits: i64,
    lock_wait_us: i64,
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Point {
    /// In which round: points are compared with those of the same round.
    pub round: usize,
    /// What was written.
    pub scatter: Scatter,
    /// Writes a second that were asked for.
    pub rate: f64,
    /// Writes that were sent.
    pub writes: u64,
    /// Writes a second, from the first one to when all were applied.
    pub writes_per_s: f64,
    /// Documents that don't show all writes to them.
    pub lost: u64,
    /// Reads a second.
    pub reads_per_s: f64,
    /// Latency of reads.
    pub read_p50_us: f64,
    /// Latency of reads.
    pub read_p99_us: f64,
    /// Longest read.
    pub read_max_ms: f64,
    /// Reads that did not find their document.
    pub read_errors: u64,
    /// Accesses that found the data not in memory.
    pub misses: i64,
    /// Reads that the cache made, and their bytes.
    pub cache_reads: (i64, i64),
    /// What the device counted meanwhile.
    pub device: Option<DeviceReads>,
    /// Bytes that the process had the device read.
    pub process_read_bytes: Option<i64>,
    /// Waits for the global lock, and microseconds of them.
    pub lock_waits: (i64, i64),
}

fn document(id: i64, bytes: usize) -> DocBuf {
    // `_id`, `n`, and what is missing to the size: 4 + (1+4+8) + (1+2+4) + (1+2+4+len+1) + 1.
    let filler = "x".repeat(bytes.saturating_sub(33));
    kauri_bson::doc! { "_id" => id, "n" => 0, "f" => filler }
}

/// Fills the collection anew, all of it durable at the end.
pub fn load(target: &Target, plan: &Plan) -> io::Result<()> {
    let mut stream = TcpStream::connect(target.address)?;
    command(&mut stream, DATABASE, "dropDatabase")?;
    let mut next = 0;
    while next < plan.documents {
        let end = (next + LOAD_BATCH).min(plan.documents);
        run(&mut stream, |w| {
            w.put("insert", COLLECTION);
            let mut list = w.array("documents");
            (next..end).for_each(|id| list.push_doc(document(id, plan.document_bytes).as_doc()));
            drop(list);
            w.put("$db", DATABASE);
        })?;
        next = end;
    }
    command(&mut stream, "admin", "fsync").map(drop)
}

/// How many documents a server has.
pub fn loaded(target: &Target) -> io::Result<i64> {
    let mut stream = TcpStream::connect(target.address)?;
    let reply = run(&mut stream, |w| {
        w.put("count", COLLECTION);
        w.put("$db", DATABASE);
    })?;
    Ok(reply.as_doc().value("n").to_i64_saturating().unwrap_or(0))
}

/// Runs a command without arguments.
pub fn command(stream: &mut TcpStream, database: &str, name: &str) -> io::Result<DocBuf> {
    run(stream, |w| {
        w.put(name, 1);
        w.put("$db", database);
    })
}

fn find(out: &mut Vec<u8>, number: i32, id: i64) {
    put_message(out, number, |w| {
        w.put("find", COLLECTION);
        w.document("filter").put("_id", id);
        w.put("$db", DATABASE);
    });
}

/// Reads every hot document once, so that all are in memory.
pub fn warm(target: &Target, plan: &Plan) -> io::Result<()> {
    let mut stream = TcpStream::connect(target.address)?;
    for id in 0..plan.hot {
        value(&mut stream, id)?;
    }
    Ok(())
}

/// `n` of a document.
fn value(stream: &mut TcpStream, id: i64) -> io::Result<i64> {
    let reply = run(stream, |w| {
        w.put("find", COLLECTION);
        w.document("filter").put("_id", id);
        w.put("$db", DATABASE);
    })?;
    let Value::Document(cursor) = reply.as_doc().value("cursor") else {
        return Err(io::Error::other("a find without a cursor"));
    };
    let batch = cursor.as_doc().value("firstBatch");
    let first = batch.as_array().and_then(Doc::first).and_then(|e| e.as_doc());
    let first = first.ok_or_else(|| io::Error::other(format!("document {id} is gone")))?;
    Ok(first.value("n").to_i64_saturating().unwrap_or(-1))
}

fn status(target: &Target) -> io::Result<Status> {
    let mut stream = TcpStream::connect(target.address)?;
    let reply = command(&mut stream, "admin", "serverStatus")?;
    let at = |path: &[&str]| {
        let mut value = Value::Document(reply.as_doc().into());
        for name in path {
            value = match &value {
                Value::Document(doc) => doc.as_doc().value(name).into_owned(),
                _ => Value::Missing,
            };
        }
        value.to_i64_saturating().unwrap_or(0)
    };
    Ok(Status {
        misses: at(&["pmlog", "cache", "misses"]),
        cache_reads: at(&["pmlog", "cache", "reads"]),
        cache_read_bytes: at(&["pmlog", "cache", "readBytes"]),
        lock_waits: at(&["locks", "Global", "acquireWaitCount", "R"]),
        lock_wait_us: at(&["locks", "Global", "timeAcquiringMicros", "R"]),
    })
}

struct Reader {
    random: SeededRandom,
    hot: i64,
    requests: i32,
}

impl Client for Reader {
    fn request(&mut self, out: &mut Vec<u8>) {
        self.requests = self.requests.wrapping_add(1);
        find(out, self.requests, (self.random.next_u64() % self.hot.max(1) as u64) as i64);
    }

    fn accept(&mut self, reply: &[u8]) -> bool {
        let body = reply.get(HEADER_BYTES + 5..).and_then(|b| Doc::from_bytes(b).ok());
        let cursor = body.map(|body| body.value("cursor").into_owned());
        let Some(Value::Document(cursor)) = cursor else { return false };
        cursor.as_doc().value("firstBatch").as_array().is_some_and(|batch| !batch.is_empty())
    }
}

/// Appends an update that nobody acknowledges.
fn put_update(out: &mut Vec<u8>, id: i64) -> io::Result<()> {
    let message = MsgWriter::begin(out, 1, 0, flags::MORE_TO_COME);
    {
        let mut body = kauri_bson::DocWriter::new(out);
        body.put("update", COLLECTION);
        {
            let mut list = body.array("updates");
            let mut entry = list.document();
            entry.document("q").put("_id", id);
            entry.document("u").document("$inc").put("n", 1);
        }
        body.document("writeConcern").put("w", 0);
        body.put("$db", DATABASE);
    }
    message.finish(out).map_err(|error| io::Error::other(error.to_string()))
}

/// Writes at a pace, unacknowledged, and then waits until all of it is done. Answers how often each
/// document was written, and how long it all took.
fn write(
    target: &Target,
    plan: &Plan,
    scatter: Scatter,
    rate: f64,
    time: Duration,
) -> io::Result<(HashMap<i64, i64>, Duration)> {
    let mut stream = TcpStream::connect(target.address)?;
    stream.set_nodelay(true)?;
    let (first, count) = match scatter {
        Scatter::Hot => (0, plan.hot),
        Scatter::Cold => (plan.hot, plan.documents - plan.hot),
    };
    let began_ns = kauri_transport::monotonic_ns();
    // Others than an earlier measurement wrote: those are in memory now.
    let random = SeededRandom::new(plan.seed ^ began_ns);
    let mut written: HashMap<i64, i64> = HashMap::new();
    let began = Instant::now();
    let mut message = Vec::new();
    let due = (0u32..).map(|number| Duration::from_secs_f64(f64::from(number) / rate.max(1e-9)));
    for due in due.take_while(|due| rate > 0.0 && *due < time) {
        match due.checked_sub(began.elapsed()) {
            // The writer's pace.
            Some(early) => std::thread::sleep(early),
            None if began.elapsed() > due + BEHIND_MAX => break,
            None => {}
        }
        let id = first + (random.next_u64() % count.max(1) as u64) as i64;
        message.clear();
        put_update(&mut message, id)?;
        stream.write_all(&message)?;
        *written.entry(id).or_default() += 1;
    }
    // A connection's commands are done in order: when this is answered, all before it are done.
    command(&mut stream, "admin", "ping")?;
    Ok((written, began.elapsed()))
}

/// Measures one point, as of round 0. `expected` has `n` of every document that was written before, and is brought up
/// to date.
pub fn measure(
    target: &Target,
    plan: &Plan,
    scatter: Scatter,
    rate: f64,
    expected: &mut HashMap<i64, i64>,
) -> io::Result<Point> {
    let time = Duration::from_secs(plan.seconds);
    let load = Load {
        address: target.address,
        connections: 1,
        threads: 1,
        warmup: Duration::from_millis(200),
        measure: time,
        server_pid: target.pid,
    };
    let before = (status(target)?, DeviceReads::of(target)?, disk::process_reads(target));
    let (reads, writes) = std::thread::scope(|scope| {
        let total = time + load.warmup;
        let writer = scope.spawn(move || write(target, plan, scatter, rate, total));
        let reads = load.run(|_| Reader {
            random: SeededRandom::new(plan.seed),
            hot: plan.hot,
            requests: 0,
        });
        let writes = writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")));
        (reads, writes)
    });
    let (reads, (written, took)): (Report, _) = (reads?, writes?);
    let after = (status(target)?, DeviceReads::of(target)?, disk::process_reads(target));
    let lost = check(target, &written, expected)?;
    let count: i64 = written.values().sum();
    let us = |fraction| reads.latency.percentile_ns(fraction) as f64 / 1000.0;
    let (was, is) = (before.0, after.0);
    Ok(Point {
        round: 0,
        scatter,
        rate,
        writes: count as u64,
        writes_per_s: count as f64 / took.as_secs_f64(),
        lost,
        reads_per_s: reads.throughput(),
        read_p50_us: us(0.5),
        read_p99_us: us(0.99),
        read_max_ms: reads.latency.max_ns() as f64 / 1e6,
        read_errors: reads.errors,
        misses: is.misses - was.misses,
        cache_reads: (is.cache_reads - was.cache_reads, is.cache_read_bytes - was.cache_read_bytes),
        device: after.1.zip(before.1).map(|(after, before)| after.since(before)),
        process_read_bytes: after.2.zip(before.2).map(|(after, before)| after - before),
        lock_waits: (is.lock_waits - was.lock_waits, is.lock_wait_us - was.lock_wait_us),
    })
}

/// Reads what was written; answers how many documents are not as all their writes make them.
fn check(
    target: &Target,
    written: &HashMap<i64, i64>,
    expected: &mut HashMap<i64, i64>,
) -> io::Result<u64> {
    let mut stream = TcpStream::connect(target.address)?;
    let mut lost = 0;
    for (id, times) in written {
        let n = match expected.get(id) {
            Some(n) => n + times,
            // From an earlier run: only what it gained is known.
            None => *times,
        };
        let found = value(&mut stream, *id)?;
        if found < n || (expected.contains_key(id) && found != n) {
            lost += 1;
        }
        expected.insert(*id, found);
    }
    Ok(lost)
}
