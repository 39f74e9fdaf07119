//! The cost of a session without a database: an echo over the transport that the connection string selects.
//! Compare it with bare verbs (`pingpong` of the crate `verbs`).
//!
//! `session_echo serve ADDRESS:PORT SPIN-MICROS [SOCKET-DIRECTORY]`: the directory gets a Unix domain socket
//! `session_echo connect URI latency BYTES ITERATIONS`
//! `session_echo connect URI bandwidth BYTES ITERATIONS`
//!
//! The connecting side prints one JSON object. It has the one-way latency in microseconds of messages of BYTES,
//! or the bandwidth in megabytes (10^6) per second of replies of that size.

use kauri_base::Result as BaseResult;
use kauri_base::clock::SeededRandom;
use kauri_bson::{Doc, DocWriter, Value};
use kauri_client::{Connection, Uri};
use kauri_transport::rdma::{RdmaHost, RdmaOptions};
use kauri_transport::tcp::{TcpOptions, TcpTransport};
use kauri_transport::unix::{UnixOptions, UnixTransport};
use kauri_transport::upgrade::RdmaService;
use kauri_transport::{
    ClientState, ExecutorOptions, Handling, Outcome, ReplyBuf, RequestContext, ServiceEntryPoint,
    ServiceExecutor, SessionInfo, SessionManager, TransportLayer, Tried,
};
use kauri_wire::{HEADER_BYTES, Message, MsgWriter, ReplyWriter};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

type Outcomes<T> = Result<T, Box<dyn Error>>;

/// The bytes that `splice` sends.
static REPLY: [u8; 16 << 20] = [7; 16 << 20];
/// Asks for a reply of this many bytes. No command has this operation code.
const WANT_BYTES: i32 = 7777;

struct Echo {
    random: SeededRandom,
}

struct Nothing;

impl ClientState for Nothing {}

impl Echo {
    /// The handshake, which uses OP_QUERY, and the request for another transport.
    fn command(&self, session: &SessionInfo, request: &[u8], reply: &mut ReplyBuf) -> Option<()> {
        let (header, message) = match Message::parse(request).ok()? {
            (header, Message::Msg(message)) => (header, message),
            (header, Message::Query(_)) => return greet(header.request_id, reply),
            _ => return None,
        };
        let body = Doc::from_bytes(message.body).ok()?;
        let writer = MsgWriter::begin(reply.buffer(), 1, header.request_id, 0);
        {
            let mut out = DocWriter::new(reply.buffer());
            if let Value::Binary { bytes, .. } = body.value("parameters") {
                let transport = body.value("transport").to_string();
                let transport = transport.trim_matches('"');
                match session.upgrade.prepare(transport, &bytes, &self.random) {
                    Ok(answer) => {
                        out.put("parameters", Value::Binary { subtype: 0, bytes: answer.into() });
                        out.put("ok", 1.0);
                    }
                    Err(error) => {
                        out.put("errmsg", error.to_string().as_str());
                        out.put("ok", 0.0);
                    }
                }
            } else {
                out.put("ok", 1.0);
            }
        }
        writer.finish(reply.buffer()).ok()
    }

    fn answer(&self, session: &SessionInfo, request: &[u8], reply: &mut ReplyBuf) -> Outcome {
        let word = |at: usize| request.get(at..at + 4).and_then(|b| b.try_into().ok());
        let code = word(12).map_or(0, i32::from_le_bytes);
        let wanted = word(HEADER_BYTES).map_or(0, u32::from_le_bytes) as usize;
        if code == WANT_BYTES {
            let length = (HEADER_BYTES + wanted) as i32;
            for word in [length, 1, 1, WANT_BYTES] {
                reply.buffer().extend_from_slice(&word.to_le_bytes());
            }
            reply.splice(REPLY.get(..wanted).unwrap_or_default());
        } else if code == 0 {
            reply.buffer().extend_from_slice(request);
        } else if self.command(session, request, reply).is_none() {
            return Outcome::Close;
        }
        Outcome::Reply
    }
}

/// Answers a handshake: this server understands OP_MSG.
fn greet(request_id: i32, reply: &mut ReplyBuf) -> Option<()> {
    let writer = ReplyWriter::begin(reply.buffer(), 1, request_id, 0, 0, 1);
    let mut out = DocWriter::new(reply.buffer());
    out.put("maxWireVersion", 25);
    out.put("ok", 1.0);
    drop(out);
    writer.finish(reply.buffer()).ok()
}

impl ServiceEntryPoint for Echo {
    fn start_session(&self, _: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        Box::new(Nothing)
    }

    fn try_handle(
        &self,
        cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
    ) -> Tried {
        Tried::Done(self.answer(cx.session, request, reply))
    }

    fn handle_request<'a>(
        &'a self,
        cx: RequestContext<'a>,
        request: &'a [u8],
        reply: &'a mut ReplyBuf,
    ) -> Handling<'a> {
        Box::pin(async move { self.answer(cx.session, request, reply) })
    }

    fn end_session(&self, _: &Arc<SessionInfo>, _: Box<dyn ClientState>) {}
}

fn serve(address: SocketAddr, spin_us: u64, place: Option<&str>) -> Outcomes<()> {
    let executor =
        ServiceExecutor::start(&ExecutorOptions { workers: 1, spin_us, ..Default::default() })?;
    let service = Arc::new(Echo { random: SeededRandom::from_entropy() });
    let manager = SessionManager::new(executor, service, 100);
    let options =
        RdmaOptions { pinned_bytes_max: 1 << 30, pool_bytes: 64 << 20, ..RdmaOptions::default() };
    if let Ok(host) = RdmaHost::open(options) {
        manager.serve_rdma(RdmaService::On(Arc::new(host)));
    }
    let mut transport = TcpTransport::new(TcpOptions {
        bind_ips: vec![address.ip().to_string()],
        port: address.port(),
        ipv6: false,
    });
    let listens: BaseResult<()> = transport.setup().and_then(|()| transport.start(&manager));
    listens?;
    manager.allow_shared_memory(place.is_some());
    let mut beside = place.map(|place| {
        let path_prefix = place.into();
        UnixTransport::new(UnixOptions { path_prefix, port: address.port(), permissions: 0o700 })
    });
    if let Some(beside) = &mut beside {
        beside.setup()?;
        beside.start(&manager)?;
    }
    // Runs until it is killed.
    loop {
        std::thread::park();
    }
}

fn message(code: i32, payload: &[u8]) -> Vec<u8> {
    let length = (HEADER_BYTES + payload.len()) as i32;
    let header = [length, 1, 0, code].map(i32::to_le_bytes).concat();
    [header.as_slice(), payload].concat()
}

fn latency(connection: &mut Connection, bytes: usize, iterations: usize) -> Outcomes<()> {
    let ping = message(0, &vec![5; bytes.saturating_sub(HEADER_BYTES)]);
    let mut times = Vec::with_capacity(iterations);
    for _ in 0..iterations {
        let began = Instant::now();
        connection.send_message(&ping)?;
        if connection.receive_message()?.len() != ping.len() {
            return Err("an echo of another length".into());
        }
        times.push(began.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    times.sort_by(f64::total_cmp);
    let at = |fraction: f64| {
        times.get((times.len() as f64 * fraction) as usize).copied().unwrap_or_default()
    };
    println!("{{\"us_median\":{:.2},\"us_p99\":{:.2}}}", at(0.5), at(0.99));
    Ok(())
}

fn bandwidth(connection: &mut Connection, bytes: usize, iterations: usize) -> Outcomes<()> {
    let ask = message(WANT_BYTES, &(bytes as u32).to_le_bytes());
    let mut began = Instant::now();
    for round in 0..=iterations {
        // The first round sets up the path of large messages and is not counted.
        if round == 1 {
            began = Instant::now();
        }
        connection.send_message(&ask)?;
        if connection.receive_message()?.len() != HEADER_BYTES + bytes {
            return Err("a reply of another length".into());
        }
    }
    let rate = (bytes * iterations) as f64 / began.elapsed().as_secs_f64() / 1e6;
    println!("{{\"mb_per_s\":{rate:.2}}}");
    Ok(())
}

fn main() -> Outcomes<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address, spin] => serve(address.parse()?, spin.parse()?, None),
        ["serve", address, spin, place] => serve(address.parse()?, spin.parse()?, Some(place)),
        ["connect", uri, what, bytes, iterations] => {
            let uri: Uri = uri.parse()?;
            let mut connection = Connection::open(&uri)?;
            let (bytes, iterations) = (bytes.parse()?, iterations.parse()?);
            match *what {
                "latency" => latency(&mut connection, bytes, iterations),
                _ => bandwidth(&mut connection, bytes, iterations),
            }
        }
        _ => Err("see the head of this file for the arguments".into()),
    }
}
