//! Many connections, and invalid ones: limits, garbage, panics, shutdown.

use crate::common::{Client, PATIENCE, Server, op, op_with_number, request};
use kauri_transport::tcp::{TcpOptions, TcpTransport};
use kauri_transport::unix::{UnixOptions, UnixTransport};
use kauri_transport::{Stage, TransportLayer};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn connections_beyond_the_limit_are_closed_and_counted() {
    let server = Server::with(2, 3);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(b"e in"), b"e in");
    }
    for _ in 0..5 {
        assert_eq!(server.connect().read_to_end(), b"");
    }
    let counts = server.manager.stats().connections();
    assert_eq!((counts.current, counts.available), (3, 0));
    assert_eq!((counts.total_created, counts.rejected), (3, 5));
    clients.pop();
    server.seen.wait_for("end", 1);
    wait_until(|| server.manager.stats().connections().current == 2);
    assert_eq!(server.connect().ask(b"e in again"), b"e in again");
    server.manager.set_connections_max(100);
    clients.extend((0..50).map(|_| server.connect()));
    for client in &mut clients {
        assert_eq!(client.ask(b"e many"), b"e many");
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "the condition never held");
        std::thread::yield_now();
    }
}

#[test]
fn sessions_are_spread_over_the_workers() {
    let server = Server::with(4, 100);
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ask(b"e");
    }
    let spread: Vec<_> = server.manager.stats().workers().iter().map(|w| w.sessions).collect();
    assert_eq!(spread, [10; 4]);
    drop(clients);
    wait_until(|| server.manager.stats().workers().iter().all(|w| w.sessions == 0));
}

#[test]
fn garbage_closes_only_its_own_connection() {
    let server = Server::start();
    let mut good = server.connect();
    assert_eq!(good.ask(b"e before"), b"e before");
    for bad in [
        &[0u8; 64][..],
        &[15, 0, 0, 0],
        &[0xff; 16],
        &48_000_001i32.to_le_bytes(),
        &i32::MIN.to_le_bytes(),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x7a\x6b\x5c",
    ] {
        let mut client = server.connect();
        client.stream.write_all(bad).unwrap();
        assert_eq!(client.read_to_end(), b"", "{bad:?}");
    }
    assert_eq!(good.ask(b"e after"), b"e after");
}

#[test]
fn a_browser_gets_an_explanation() {
    let server = Server::start();
    let mut client = server.connect();
    client.stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let answer = String::from_utf8(client.read_to_end()).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    let text =
        "It looks like you are trying to access MongoDB over HTTP on the native driver port.";
    assert!(answer.contains(text), "{answer}");
}

#[test]
fn a_panic_ends_its_own_session_only() {
    let server = Server::with(1, 100);
    let mut good = server.connect();
    for how in [op::PANIC, op::PANIC_LATER] {
        let mut client = server.connect();
        assert_eq!(client.ask(b"e fine"), b"e fine");
        client.send(&[how]);
        assert_eq!(client.read_to_end(), b"");
        assert_eq!(good.ask(b"e still here"), b"e still here");
    }
    server.seen.wait_for("end", 2);
    wait_until(|| server.manager.stats().connections().active == 0);
}

#[test]
fn shutdown_lets_requests_finish_and_ends_idle_sessions() {
    let server = Server::start();
    let mut idle = server.connect();
    assert_eq!(idle.ask(b"e idle"), b"e idle");
    let mut busy = server.connect();
    busy.send(&op_with_number(op::SLEEP, 50));
    server.seen.wait_for("sleeping", 1);
    let manager = server.manager.clone();
    let shutdown = std::thread::spawn(move || manager.shutdown(PATIENCE));
    assert_eq!(idle.read_to_end(), b"");
    assert_eq!(busy.receive(), op_with_number(op::SLEEP, 50));
    assert_eq!(busy.read_to_end(), b"");
    shutdown.join().unwrap();
    assert_eq!(server.seen.ended.load(Ordering::SeqCst), 2);
    assert_eq!(server.connect().read_to_end(), b"", "no new connection is accepted");
}

#[test]
fn shutdown_notifies_commands_and_drops_those_that_ignore_it() {
    let server = Server::start();
    let mut polite = server.connect();
    polite.send(&[op::WAIT_FOR_END]);
    let mut deaf = server.connect();
    deaf.send(&[op::HANG]);
    server.seen.wait_for("waiting", 1);
    server.seen.wait_for("hanging", 1);
    server.manager.shutdown(Duration::ZERO);
    server.seen.wait_for("ended 11600", 1);
    assert_eq!(polite.receive(), b"ended");
    assert_eq!(deaf.read_to_end(), b"");
    assert_eq!(server.seen.ended.load(Ordering::SeqCst), 2);
}

#[test]
fn a_client_that_does_not_read_cannot_hold_up_the_shutdown() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(&op_with_number(op::BIG, 40_000_000));
    wait_until(|| server.manager.stats().network().physical_bytes_out > 0);
    server.manager.shutdown(Duration::ZERO);
    assert_eq!(server.seen.ended.load(Ordering::SeqCst), 1);
}

#[test]
fn one_session_can_be_ended() {
    let server = Server::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!(first.ask(b"e"), b"e");
    assert_eq!(second.ask(b"e"), b"e");
    assert!(server.manager.end_session(1));
    assert_eq!(first.read_to_end(), b"");
    assert_eq!(second.ask(b"e"), b"e");
    wait_until(|| !server.manager.end_session(1));
}

#[test]
fn counters_add_up() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..10 {
        client.ask(b"e 12345");
    }
    client.send(b"n");
    client.ask(b"l");
    // A request's figures are complete when its session waits again.
    wait_until(|| server.manager.stats().connections().active == 0);
    let network = server.manager.stats().network();
    assert_eq!(network.requests, 12);
    assert_eq!(network.bytes_in, 10 * (16 + 7) + 17 + 17);
    assert_eq!(network.bytes_out, 10 * (16 + 7) + 17);
    assert_eq!(network.physical_bytes_in, network.bytes_in);
    assert_eq!(network.physical_bytes_out, network.bytes_out);
    client.ask(&[op::COMPRESS]);
    wait_until(|| server.manager.stats().connections().active == 0);
    let compressed = server.manager.stats().network();
    assert_eq!(compressed.bytes_in, network.bytes_in + 17 + 100);
    assert_eq!(compressed.bytes_out, network.bytes_out + 17 - 10);
    assert_eq!(compressed.physical_bytes_in, network.physical_bytes_in + 17);
    assert_eq!(compressed.physical_bytes_out, network.physical_bytes_out + 17);
    let stats = server.manager.stats();
    for (stage, count) in [
        (Stage::Source, 13),
        (Stage::Process, 13),
        (Stage::Sink, 12),
        (Stage::Other, 13),
        (Stage::IdleWait, 13),
    ] {
        assert_eq!(stats.stage(stage).count(), count, "{stage:?}");
    }
}

/// A pause long enough to show in the statistics, even if the worker runs late.
const PAUSE: Duration = Duration::from_millis(200);

#[test]
fn stages_show_where_the_time_went() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask(b"e warm");
    client.ask(&op_with_number(op::SLEEP, 30));
    let process = server.manager.stats().stage(Stage::Process);
    assert!(process.percentile_ns(1.0) >= 29_000_000, "{}", process.percentile_ns(1.0));
    // A message whose last byte arrives late spends its time in Source, not in IdleWait.
    let message = request(b"e late");
    client.stream.write_all(&message[..10]).unwrap();
    let before = server.manager.stats().stage(Stage::Source).sum_ns();
    let pause = Instant::now();
    wait_until(|| pause.elapsed() > PAUSE);
    client.stream.write_all(&message[10..]).unwrap();
    assert_eq!(client.receive(), b"e late");
    let source = server.manager.stats().stage(Stage::Source).sum_ns() - before;
    assert!(source >= 25_000_000, "{source} ns");
    // Waiting before the first byte is IdleWait.
    let before = server.manager.stats().stage(Stage::IdleWait).sum_ns();
    let pause = Instant::now();
    wait_until(|| pause.elapsed() > PAUSE);
    client.ask(b"e after a pause");
    let idle = server.manager.stats().stage(Stage::IdleWait).sum_ns() - before;
    assert!(idle >= 25_000_000, "{idle} ns");
}

#[test]
fn unix_sockets_serve_and_leave_nothing_behind() {
    let server = Server::start();
    let directory = scratch("unix");
    let options = UnixOptions { path_prefix: directory.clone(), port: 4711, permissions: 0o600 };
    let path = directory.join("mongodb-4711.sock");
    // The socket of a killed server is no obstacle.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let mut unix = UnixTransport::new(options.clone());
    unix.setup().unwrap();
    unix.start(&server.manager).unwrap();
    assert_eq!(unix.local_addresses(), [path.to_str().unwrap()]);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = Client { stream: UnixStream::connect(&path).unwrap() };
    assert_eq!(client.ask(b"e over unix"), b"e over unix");
    client.send(&op_with_number(op::BIG, 3_000_000));
    assert_eq!(client.receive().len(), 3_000_002);
    // The socket of a live server is kept.
    let error = UnixTransport::new(options.clone()).setup().unwrap_err();
    assert_eq!(error.code().number(), 9001);
    assert!(path.exists());
    unix.shutdown();
    assert!(!path.exists());
    // A file that is no socket is kept, too.
    std::fs::write(&path, "mine").unwrap();
    assert!(UnixTransport::new(options).setup().is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    std::fs::remove_dir_all(&directory).unwrap();
}

fn scratch(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("kauri-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn ipv6_is_served_beside_ipv4_on_the_same_port() {
    let server = Server::start();
    for bind_ip in ["localhost", "*"] {
        let bind_ips = vec![bind_ip.to_owned()];
        let mut tcp = TcpTransport::new(TcpOptions { bind_ips, port: 0, ipv6: true });
        tcp.setup().unwrap();
        tcp.start(&server.manager).unwrap();
        let addresses = tcp.socket_addresses().to_vec();
        assert_eq!(addresses.len(), 2, "{addresses:?}");
        assert_eq!(addresses[0].port(), addresses[1].port());
        for host in ["127.0.0.1", "::1"] {
            let stream = TcpStream::connect((host, addresses[0].port())).unwrap();
            assert_eq!(Client { stream }.ask(b"e"), b"e", "{host}");
        }
    }
}

#[test]
fn addresses_that_cannot_be_listened_on_are_refused() {
    let server = Server::start();
    let refused = |bind_ips: &[&str], port, ipv6| {
        let bind_ips = bind_ips.iter().map(|ip| (*ip).to_owned()).collect();
        let mut tcp = TcpTransport::new(TcpOptions { bind_ips, port, ipv6 });
        let error = tcp.setup().unwrap_err();
        assert!(tcp.local_addresses().is_empty());
        error.code().number()
    };
    assert_eq!(refused(&["127.0.0.1"], server.address().port(), false), 9001);
    assert_eq!(refused(&["192.0.2.1"], 0, false), 9001);
    assert_eq!(refused(&["::1"], 0, false), 2);
    assert_eq!(refused(&["no.such.host.invalid"], 0, false), 6 + 1);
    assert_eq!(refused(&[], 0, false), 2);
}

#[test]
fn after_shutdown_the_port_is_free() {
    let mut server = Server::start();
    let address = server.address();
    let mut client = server.connect();
    assert_eq!(client.ask(b"e"), b"e");
    server.tcp.shutdown();
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(client.ask(b"e goes on"), b"e goes on");
    let mut byte = [0];
    server.manager.shutdown(Duration::ZERO);
    assert_eq!(client.stream.read(&mut byte).unwrap(), 0);
}
