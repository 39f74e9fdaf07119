//! Runs the load generator briefly against the echo server.

use kauri_bench::echo::{EchoServer, preamble};
use kauri_bench::load::{Client, Load, Report};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

struct Sized {
    request_bytes: usize,
    reply_bytes: usize,
}

impl Client for Sized {
    fn begin(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(&preamble(self.request_bytes as u32, &reply(self.reply_bytes)))
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        out.resize(self.request_bytes, 7);
    }

    fn accept(&mut self, reply: &[u8]) -> bool {
        reply.len() == self.reply_bytes
    }
}

/// A reply of this size; only its length is significant.
fn reply(bytes: usize) -> Vec<u8> {
    let mut reply = vec![b'.'; bytes];
    reply[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    reply
}

fn server(threads: usize) -> EchoServer {
    EchoServer::start(SocketAddr::from(([127, 0, 0, 1], 0)), threads).unwrap()
}

#[test]
fn every_request_gets_a_reply_of_the_size_asked_for() {
    let server = server(2);
    for (connections, threads, request_bytes, reply_bytes) in
        [(1, 1, 100, 1100), (16, 2, 100, 1100), (5, 3, 300_000, 16), (3, 1, 16, 2_000_000)]
    {
        let run = |measure| {
            let load = Load {
                address: server.address(),
                connections,
                threads,
                warmup: Duration::from_millis(20),
                measure: Duration::from_millis(measure),
                server_pid: Some(std::process::id()),
            };
            load.run(|_| Sized { request_bytes, reply_bytes }).unwrap()
        };
        // A busy machine may need longer.
        let enough = |report: &Report| report.latency.count() >= connections as u64;
        let report = [150, 1500, 15_000].into_iter().map(run).find(enough).unwrap();
        assert_eq!(report.errors, 0);
        assert!(report.throughput() > 0.0 && report.server_cpu.is_some());
        assert!(report.latency.percentile_ns(0.5) > 0);
    }
}

#[test]
fn requests_may_arrive_in_pieces_and_in_bunches() {
    let server = server(1);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let mut all = preamble(10, &reply(20));
    all.extend_from_slice(&[1; 25]);
    for byte in all {
        stream.write_all(&[byte]).unwrap();
    }
    let mut replies = [0; 40];
    stream.read_exact(&mut replies).unwrap();
    assert_eq!((replies[0], replies[20]), (20, 20));
    stream.write_all(&[1; 5 + 30]).unwrap();
    stream.read_exact(&mut [0; 80]).unwrap();
}

#[test]
fn invalid_sizes_are_refused() {
    let server = server(1);
    for bad in [preamble(0, &[1]), preamble(1, &[]), preamble(u32::MAX, &[1])] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(&bad).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    }
}

#[test]
fn a_reply_that_is_not_accepted_is_an_error() {
    struct Picky(Sized);
    impl Client for Picky {
        fn begin(&mut self, stream: &mut TcpStream) -> io::Result<()> {
            self.0.begin(stream)
        }
        fn request(&mut self, out: &mut Vec<u8>) {
            self.0.request(out);
        }
        fn accept(&mut self, _reply: &[u8]) -> bool {
            false
        }
    }
    let server = server(1);
    let load = Load {
        address: server.address(),
        connections: 2,
        threads: 1,
        warmup: Duration::ZERO,
        measure: Duration::from_millis(30),
        server_pid: None,
    };
    let report = load.run(|_| Picky(Sized { request_bytes: 20, reply_bytes: 20 })).unwrap();
    assert!(report.errors > 0 && report.errors >= report.latency.count());
}

#[test]
fn a_run_that_cannot_go_on_fails() {
    struct Bad(&'static str);
    impl Client for Bad {
        fn begin(&mut self, stream: &mut TcpStream) -> io::Result<()> {
            assert_ne!(self.0, "panics at the beginning");
            stream.write_all(&preamble(20, &reply(20)))
        }
        fn request(&mut self, out: &mut Vec<u8>) {
            assert_ne!(self.0, "panics later");
            out.resize(20, 0);
        }
    }
    let server = server(1);
    let load = |address| Load {
        address,
        connections: 2,
        threads: 2,
        warmup: Duration::ZERO,
        measure: Duration::from_millis(10),
        server_pid: None,
    };
    assert!(load(server.address()).run(|_| Bad("does not")).is_ok());
    for how in ["panics at the beginning", "panics later"] {
        assert!(load(server.address()).run(|_| Bad(how)).is_err(), "{how}");
    }
    let nobody = server.address();
    drop(server);
    assert!(load(nobody).run(|_| Bad("finds no server")).is_err());
}
