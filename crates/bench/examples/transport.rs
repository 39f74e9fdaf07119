//! Compares the transport layer with the echo server.
//!
//! `transport compare [connections] [threads] [reply bytes] [rounds] [seconds]` starts both servers as separate
//! processes, measures them alternately, and prints the figures of each and the ratios. `transport serve
//! echo|fixed [threads]` runs one server until its standard input ends, for strace or perf.

use kauri_bench::compare::alternate;
use kauri_bench::echo::{EchoServer, preamble};
use kauri_bench::load::{Client, Load, Report};
use kauri_transport::tcp::{TcpOptions, TcpTransport};
use kauri_transport::{
    ClientState, ExecutorOptions, Handling, Outcome, ReplyBuf, RequestContext, ServiceEntryPoint,
    ServiceExecutor, SessionInfo, SessionManager, TransportLayer, Tried,
};
use kauri_wire::{Header, MsgWriter, begin_msg_of};
use std::error::Error;
use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// About the size of a find by _id.
const REQUEST_BODY_BYTES: usize = 120;

/// The document's offset in its allocation. If the source and target of the kernel's copy lie a few bytes apart
/// modulo 4096, some CPUs copy at a third of their speed. So the offset is not near the beginning of a page.
const DOCUMENT_AT: usize = 1000;

/// Answers every request with the same document. Its size is an int32 in the request's body, behind the
/// document's length.
struct FixedReply {
    document: Vec<u8>,
}

struct NoState;
impl ClientState for NoState {}

impl FixedReply {
    fn answer(&self, request: &[u8], reply: &mut ReplyBuf) -> Option<()> {
        let request_id = Header::parse(request)?.request_id;
        let size = i32::from_le_bytes(request.get(25..29)?.try_into().ok()?) as usize;
        let body = self.document.get(DOCUMENT_AT..)?.get(..size)?;
        begin_msg_of(reply.buffer(), 1, request_id, 0, size).ok()?;
        reply.splice(body);
        Some(())
    }
}

impl ServiceEntryPoint for FixedReply {
    fn start_session(&self, _session: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        Box::new(NoState)
    }

    fn try_handle(
        &self,
        _cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
    ) -> Tried {
        self.answer(request, reply).map_or(Tried::No, |()| Tried::Done(Outcome::Reply))
    }

    fn handle_request<'a>(
        &'a self,
        _cx: RequestContext<'a>,
        _request: &'a [u8],
        _reply: &'a mut ReplyBuf,
    ) -> Handling<'a> {
        Box::pin(async { Outcome::Close })
    }

    fn end_session(&self, _session: &Arc<SessionInfo>, _state: Box<dyn ClientState>) {}
}

fn request(reply_bytes: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut out = Vec::new();
    let writer = MsgWriter::begin(&mut out, 1, 0, 0);
    let body = out.len();
    out.resize(body + REQUEST_BODY_BYTES, 0);
    let size = (reply_bytes - 21) as i32;
    out.splice(body..body + 4, (REQUEST_BODY_BYTES as i32).to_le_bytes());
    out.splice(body + 4..body + 8, size.to_le_bytes());
    writer.finish(&mut out).map_err(|error| error.to_string())?;
    Ok(out)
}

struct Asker {
    request: Vec<u8>,
    reply_bytes: usize,
    echo: bool,
}

impl Client for Asker {
    fn begin(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        if self.echo {
            let mut reply = vec![0; self.reply_bytes];
            let length = (self.reply_bytes as u32).to_le_bytes();
            reply.iter_mut().zip(length).for_each(|(byte, value)| *byte = value);
            stream.write_all(&preamble(self.request.len() as u32, &reply))?;
        }
        Ok(())
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
    }

    fn accept(&mut self, reply: &[u8]) -> bool {
        reply.len() == self.reply_bytes
    }
}

/// A server in a separate process.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(what: &str, threads: usize) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", what, &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        io::BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        Ok(Process { child, address: line.trim().parse()? })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn serve(what: &str, threads: usize, spin_us: u64) -> Result<(), Box<dyn Error>> {
    let until_told = || io::stdin().read_to_end(&mut Vec::new());
    if what == "echo" {
        let server = EchoServer::start(SocketAddr::from(([127, 0, 0, 1], 0)), threads)?;
        println!("{}", server.address());
        until_told()?;
        return Ok(());
    }
    let executor = ServiceExecutor::start(&ExecutorOptions {
        workers: threads,
        spin_us,
        ..Default::default()
    })?;
    let service = Arc::new(FixedReply { document: vec![b'.'; 16 << 20] });
    let manager = SessionManager::new(Arc::clone(&executor), service, 100_000);
    let mut tcp = TcpTransport::new(TcpOptions { port: 0, ..TcpOptions::default() });
    tcp.setup()?;
    println!("{}", tcp.local_addresses().concat());
    tcp.start(&manager)?;
    until_told()?;
    tcp.shutdown();
    manager.shutdown(Duration::ZERO);
    executor.shutdown();
    Ok(())
}

fn print(name: &str, report: &Report) {
    let us = |fraction| report.latency.percentile_ns(fraction) as f64 / 1000.0;
    println!(
        "{name:6} {:9.0}/s  p50 {:7.2} us  p95 {:7.2}  p99 {:7.2}  server CPU {:6.2} us  errors {}",
        report.throughput(),
        us(0.5),
        us(0.95),
        us(0.99),
        report.server_cpu_us().unwrap_or(0.0),
        report.errors,
    );
}

fn compare(figures: &[usize]) -> Result<(), Box<dyn Error>> {
    let [connections, threads, reply_bytes, rounds, seconds] = figures else {
        return Err("wrong number of figures".into());
    };
    let servers = 2;
    let (echo, fixed) = (Process::start("echo", servers)?, Process::start("fixed", servers)?);
    let load = |process: &Process| Load {
        address: process.address,
        connections: *connections,
        threads: *threads,
        warmup: Duration::from_millis(200),
        measure: Duration::from_secs(*seconds as u64),
        server_pid: Some(process.child.id()),
    };
    let request = request(*reply_bytes)?;
    let run = |process: &Process, echo: bool| {
        let asker = |_| Asker { request: request.clone(), reply_bytes: *reply_bytes, echo };
        let report = load(process).run(asker)?;
        print(if echo { "echo" } else { "fixed" }, &report);
        Ok(report)
    };
    let comparison = alternate(*rounds, || run(&fixed, false), || run(&echo, true))?;
    let p50 = |report: &Report| report.latency.percentile_ns(0.5) as f64 / 1000.0;
    let (server, floor) = comparison.medians(p50);
    println!("median latency {server:.2} us, echo {floor:.2} us: {:+.2} us", server - floor);
    println!("latency ratio {:.3}", comparison.ratio(p50));
    println!("throughput ratio {:.3}", comparison.ratio(Report::throughput));
    let cpu = |report: &Report| report.server_cpu_us().unwrap_or(0.0);
    let (server, floor) = comparison.medians(cpu);
    println!("server CPU a request {server:.2} us, echo {floor:.2} us");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let spin_us = std::env::var("SPIN_US").ok().and_then(|us| us.parse().ok()).unwrap_or(0);
    match args.as_slice() {
        ["serve", what @ ("echo" | "fixed")] => serve(what, 2, spin_us),
        ["serve", what @ ("echo" | "fixed"), threads] => serve(what, threads.parse()?, spin_us),
        ["compare", figures @ ..] => {
            let mut all = [1, 1, 1100, 7, 2];
            for (slot, figure) in all.iter_mut().zip(figures) {
                *slot = figure.parse()?;
            }
            compare(&all)
        }
        _ => Err("usage: transport compare|serve ...".into()),
    }
}
