//! The cost of a session over each transport: one blocking client, one request after the other.
//!
//! Small finds by `_id` measure the latency and the server's CPU time per request. Large finds measure the
//! throughput, which is compared with copying the same bytes within this process. A raw TCP echo with messages of
//! the same sizes is the lower bound for everything that goes through the kernel's network.

use crate::columns::aligned;
use crate::compare::median;
use crate::cpu::cpu_time;
use crate::echo;
use crate::histogram::Histogram;
use kauri_bson::{DocBuf, Value, doc};
use kauri_client::{ClientError, Connection, Uri};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const DATABASE: &str = "bench";
const COLLECTION: &str = "transports";

/// What is measured, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of a small document.
    pub bytes: usize,
    /// Bytes of a large one.
    pub large_bytes: usize,
    /// How long each of the two is asked for, in a row.
    pub slice: Duration,
}

/// One measurement.
#[derive(Clone)]
pub struct Figures {
    /// Times of small requests.
    pub small: Histogram,
    /// The server's processor time for one, in microseconds.
    pub cpu_us: Option<f64>,
    /// Bytes of large documents a second.
    pub large_rate: f64,
}

/// Stores the two documents.
pub fn load(uri: &Uri, plan: &Plan) -> Result<(), ClientError> {
    let mut connection = Connection::open(uri)?;
    for (id, bytes) in [(1, plan.bytes), (2, plan.large_bytes)] {
        let filler = Value::Binary { subtype: 0, bytes: vec![7; bytes].into() };
        let document = doc! { "_id" => id, "x" => filler };
        let command = doc! { "insert" => COLLECTION, "documents" => kauri_bson::array![document] };
        connection.command(DATABASE, &command)?;
    }
    Ok(())
}

fn find(id: i32) -> DocBuf {
    let filter = doc! { "_id" => id };
    doc! { "find" => COLLECTION, "filter" => filter, "limit" => 1, "singleBatch" => true }
}

/// Measures one way to a server whose process is `pid`.
pub fn measure(uri: &Uri, pid: u32, plan: &Plan) -> Result<Figures, ClientError> {
    let mut connection = Connection::open(uri)?;
    let mut ask = |command: &DocBuf| -> Result<usize, ClientError> {
        connection.send(DATABASE, command)?;
        Ok(connection.receive_message()?.len())
    };
    let (small, large) = (find(1), find(2));
    let expected = ask(&small)?;
    let (histogram, cpu_us) = timed(pid, plan, || match ask(&small)? == expected {
        true => Ok(()),
        false => Err(ClientError::Protocol("a reply of another length".to_owned())),
    })?;
    ask(&large)?;
    let (began, mut replies) = (Instant::now(), 0);
    while began.elapsed() < plan.slice {
        ask(&large)?;
        replies += 1;
    }
    let large_rate = (replies * plan.large_bytes) as f64 / began.elapsed().as_secs_f64();
    Ok(Figures { small: histogram, cpu_us, large_rate })
}

/// The same sizes through a raw TCP echo.
pub fn measure_echo(address: SocketAddr, pid: u32, plan: &Plan) -> io::Result<Figures> {
    const REQUEST_BYTES: usize = 120;
    let (small, cpu_us) = echo_small(address, pid, plan, REQUEST_BYTES)?;
    let mut stream = echo_client(address, REQUEST_BYTES, plan.large_bytes)?;
    let mut reply = vec![0; plan.large_bytes];
    let (began, mut replies) = (Instant::now(), 0);
    while began.elapsed() < plan.slice {
        stream.write_all(&[1; REQUEST_BYTES])?;
        stream.read_exact(&mut reply)?;
        replies += 1;
    }
    let large_rate = (replies * plan.large_bytes) as f64 / began.elapsed().as_secs_f64();
    Ok(Figures { small, cpu_us, large_rate })
}

fn echo_client(address: SocketAddr, request: usize, reply: usize) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(&echo::preamble(request as u32, &vec![7; reply]))?;
    Ok(stream)
}

fn echo_small(
    address: SocketAddr,
    pid: u32,
    plan: &Plan,
    request_bytes: usize,
) -> io::Result<(Histogram, Option<f64>)> {
    let mut stream = echo_client(address, request_bytes, plan.bytes)?;
    let (request, mut reply) = (vec![1; request_bytes], vec![0; plan.bytes]);
    timed(pid, plan, || {
        stream.write_all(&request)?;
        stream.read_exact(&mut reply)
    })
}

/// Asks in a row, after some that are not counted. The times, and the processor time of `pid` for one.
fn timed<E>(
    pid: u32,
    plan: &Plan,
    mut ask: impl FnMut() -> Result<(), E>,
) -> Result<(Histogram, Option<f64>), E> {
    (0..1000).try_for_each(|_| ask())?;
    let cpu_before = cpu_time(pid);
    let mut histogram = Histogram::default();
    let began = Instant::now();
    while began.elapsed() < plan.slice {
        let asked = Instant::now();
        ask()?;
        histogram.record(asked.elapsed().as_nanos() as u64);
    }
    let cpu = cpu_time(pid).zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    let cpu_us = cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / histogram.count().max(1) as f64);
    Ok((histogram, cpu_us))
}

/// How many bytes of a large document this process copies in a second, from one of a few buffers to another.
pub fn copy_rate(plan: &Plan) -> f64 {
    let from = vec![vec![7u8; plan.large_bytes]; 4];
    let mut to = vec![vec![0u8; plan.large_bytes]; 4];
    let (began, mut copies) = (Instant::now(), 0);
    while began.elapsed() < plan.slice {
        for (to, from) in to.iter_mut().zip(&from) {
            to.copy_from_slice(std::hint::black_box(from));
            std::hint::black_box(to);
            copies += 1;
        }
    }
    (copies * plan.large_bytes) as f64 / began.elapsed().as_secs_f64()
}

/// The processor time that a server takes in `slice` while so many sessions are idle.
pub fn idle_cpu(
    uri: &Uri,
    pid: u32,
    sessions: usize,
    slice: Duration,
) -> Result<Option<Duration>, ClientError> {
    let connections: Result<Vec<_>, _> = (0..sessions).map(|_| Connection::open(uri)).collect();
    let connections = connections?;
    // What their beginnings left to do is done.
    std::thread::sleep(slice / 4);
    let before = cpu_time(pid);
    std::thread::sleep(slice);
    let spent = cpu_time(pid).zip(before).map(|(after, before)| after.saturating_sub(before));
    drop(connections);
    Ok(spent)
}

/// The measurements of one way in all rounds.
#[derive(Clone)]
pub struct Row {
    /// How long the server and the client look for what comes before they sleep.
    pub spin: String,
    /// The transport.
    pub way: String,
    /// A round each.
    pub rounds: Vec<Figures>,
}

impl Row {
    /// The median of the rounds' figures.
    pub fn median(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }

    /// A percentile of small requests, in microseconds.
    pub fn percentile_us(&self, fraction: f64) -> f64 {
        self.median(|figures| figures.small.percentile_ns(fraction) as f64 / 1000.0)
    }
}

/// The table. `copy_rate` is in bytes a second.
pub fn table(rows: &[Row], copy_rate: f64) -> String {
    let head = ["spin us", "way", "p50 us", "p99 us", "server CPU us", "large MB/s", "of copying"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let rate = row.median(|figures| figures.large_rate);
        lines.push(vec![
            row.spin.clone(),
            row.way.clone(),
            format!("{:.1}", row.percentile_us(0.5)),
            format!("{:.1}", row.percentile_us(0.99)),
            format!("{:.1}", row.median(|figures| figures.cpu_us.unwrap_or(f64::NAN))),
            format!("{:.0}", rate / 1e6),
            format!("{:.2}", rate / copy_rate),
        ]);
    }
    aligned(&lines, &[0, 1])
}
