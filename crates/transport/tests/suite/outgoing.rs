//! Outgoing sessions, with the echo service over sockets and with servers that a test plays itself.

use crate::common::{PATIENCE, Server, op, op_with_number, request, wait_for};
use kauri_transport::outgoing::{Address, Outgoing, OutgoingError, OutgoingOptions, SocketConnect};
use kauri_transport::unix::{UnixOptions, UnixTransport};
use kauri_transport::{
    ExecutorOptions, ServiceExecutor, TransportLayer, monotonic_ns, shared_memory,
};
use kauri_wire::Header;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

fn connect(address: SocketAddr) -> Arc<SocketConnect> {
    Arc::new(SocketConnect::new(Address::Tcp(address.ip().to_string(), address.port())))
}

fn workers() -> Arc<ServiceExecutor> {
    let options = ExecutorOptions { workers: 1, ..Default::default() };
    ServiceExecutor::start(&options).unwrap()
}

fn done<T>(future: impl Future<Output = T>) -> T {
    wait_for(future).expect("it hangs")
}

/// A server that the test plays, and a session with it.
struct Played {
    executor: Arc<ServiceExecutor>,
    outgoing: Outgoing,
    server: TcpStream,
}

impl Played {
    fn with(options: OutgoingOptions) -> Played {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let executor = workers();
        let connect = connect(listener.local_addr().unwrap());
        let outgoing = Outgoing::open(&executor.workers()[0], connect, options);
        let server = listener.accept().unwrap().0;
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server.set_write_timeout(Some(PATIENCE)).unwrap();
        Played { executor, outgoing, server }
    }

    fn start() -> Played {
        Played::with(OutgoingOptions::default())
    }

    /// The id and the body of the next request.
    fn hear(&mut self) -> (i32, Vec<u8>) {
        let mut header = [0; 16];
        self.server.read_exact(&mut header).unwrap();
        let header = Header::parse(&header).unwrap();
        let mut body = vec![0; header.length as usize - 16];
        self.server.read_exact(&mut body).unwrap();
        (header.request_id, body)
    }

    fn answer(&mut self, id: i32, body: &[u8]) {
        let length = 16 + body.len() as i32;
        let header = Header { length, request_id: 900, response_to: id, op_code: 2013 };
        self.server.write_all(&[&header.to_bytes()[..], body].concat()).unwrap();
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.executor.shutdown();
    }
}

#[test]
fn replies_in_any_order_find_their_requests() {
    let mut played = Played::start();
    let requests: Vec<_> = (0..5u8).map(|n| played.outgoing.request(request(&[n]), None)).collect();
    let heard: Vec<_> = (0..5).map(|_| played.hear()).collect();
    for (id, body) in heard.iter().rev() {
        played.answer(*id, &[body[0] + 100]);
    }
    for (n, request) in requests.into_iter().enumerate() {
        assert_eq!(done(request).unwrap()[16..], [n as u8 + 100]);
    }
    assert!(played.outgoing.is_quiet());
}

#[test]
fn a_deadline_ends_a_request_and_its_late_reply_is_dropped() {
    let mut played = Played::start();
    let soon_ns = monotonic_ns() + 20_000_000;
    let late = played.outgoing.request(request(b"late"), Some(soon_ns));
    let (late_id, _) = played.hear();
    let ended = done(late).unwrap_err();
    assert_eq!(ended, OutgoingError::TimedOut { sent: true });
    assert!(monotonic_ns() >= soon_ns && ended.may_have_acted());
    let next = played.outgoing.request(request(b"next"), None);
    let (next_id, _) = played.hear();
    played.answer(late_id, b"too late");
    played.answer(next_id, b"in time");
    assert_eq!(&done(next).unwrap()[16..], b"in time");
    assert!(played.outgoing.is_quiet());
}

#[test]
fn requests_in_flight_fail_when_the_connection_is_lost() {
    let mut played = Played::start();
    let requests: Vec<_> = (0..3u8).map(|n| played.outgoing.request(request(&[n]), None)).collect();
    let (first, _) = played.hear();
    let _ = (played.hear(), played.hear());
    played.answer(first, b"one");
    played.server.shutdown(std::net::Shutdown::Both).unwrap();
    let mut requests = requests.into_iter();
    assert_eq!(&done(requests.next().unwrap()).unwrap()[16..], b"one");
    for request in requests {
        let error = done(request).unwrap_err();
        assert!(matches!(&error, OutgoingError::Lost(_)) && error.may_have_acted(), "{error}");
    }
    let after = done(played.outgoing.request(request(b"x"), None)).unwrap_err();
    assert!(matches!(&after, OutgoingError::NotSent(_)) && !after.may_have_acted(), "{after}");
}

#[test]
fn an_unsolicited_message_ends_the_session() {
    for wrong in [0, 77, -1] {
        let mut played = Played::start();
        let asked = played.outgoing.request(request(b"x"), None);
        let (id, _) = played.hear();
        assert_ne!(id, wrong);
        played.answer(wrong, b"what?");
        let error = done(asked).unwrap_err();
        assert!(matches!(&error, OutgoingError::Lost(why) if why.contains("not asked")), "{error}");
    }
    let mut played = Played::start();
    let asked = played.outgoing.request(request(b"x"), None);
    played.hear();
    played.server.write_all(&[255; 16]).unwrap();
    assert!(matches!(done(asked), Err(OutgoingError::Lost(_))));
}

#[test]
fn a_reply_is_not_taken_for_the_hello_of_a_tls_client() {
    let mut played = Played::start();
    // An id with the byte 3 where a ClientHello has its version.
    for _ in 1..0x0300 {
        let asked = played.outgoing.request(request(b"x"), None);
        let (id, _) = played.hear();
        played.answer(id, b"y");
        done(asked).unwrap();
    }
    let asked = played.outgoing.request(request(b"x"), None);
    let (id, _) = played.hear();
    assert_eq!(id, 0x0300);
    // Longer than one receive, so that its beginning is examined alone.
    let length = 0x0001_0316;
    let header = Header { length, request_id: 0x0100, response_to: id, op_code: 2013 };
    let reply = [&header.to_bytes()[..], &vec![7; length as usize - 16]].concat();
    played.server.write_all(&reply).unwrap();
    assert!(done(asked).unwrap() == reply);
}

#[test]
fn ordered_messages_arrive_as_they_were_sent() {
    let mut played = Played::with(OutgoingOptions { in_order: true, ..Default::default() });
    done(played.outgoing.send(request(b"exhaust"))).unwrap();
    assert_eq!(played.hear(), (42, b"exhaust".to_vec()));
    let received = played.outgoing.receive();
    played.answer(42, b"one");
    played.answer(900, b"two");
    assert_eq!(&done(received).unwrap()[16..], b"one");
    assert_eq!(&done(played.outgoing.receive()).unwrap()[16..], b"two");
    played.server.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(matches!(done(played.outgoing.receive()), Err(OutgoingError::Lost(_))));
}

#[test]
fn queued_requests_are_bounded() {
    let options = OutgoingOptions { unsent_bytes_max: 20 << 20, ..Default::default() };
    let mut played = Played::with(options);
    done(played.outgoing.opened()).unwrap();
    // More than the kernel buffers for a server that does not read.
    let large = request(&vec![7; 16 << 20]);
    let first = played.outgoing.request(large.clone(), None);
    let soon_ns = monotonic_ns() + 50_000_000;
    let second = played.outgoing.request(large.clone(), Some(soon_ns));
    assert_eq!(done(second).unwrap_err(), OutgoingError::TimedOut { sent: false });
    // A request dropped before it is sent is never sent, and the next one that fits is sent in its turn.
    drop(played.outgoing.request(request(b"dropped"), None));
    let third = played.outgoing.request(request(b"third"), None);
    // A request that waits for room is sent when there is some.
    let fourth = played.outgoing.request(large, None);
    let (report, reported) = channel();
    played.executor.workers()[0].spawn(async move {
        report.send(fourth.await.map(|reply| reply[16..].to_vec())).unwrap();
    });
    assert_eq!(played.hear().1.len(), 16 << 20);
    let (id, body) = played.hear();
    assert_eq!(body, b"third");
    played.answer(id, b"3");
    assert_eq!(&done(third).unwrap()[16..], b"3");
    let (id, body) = played.hear();
    assert_eq!(body.len(), 16 << 20);
    played.answer(id, b"4");
    assert_eq!(reported.recv_timeout(PATIENCE).unwrap().unwrap(), b"4");
    drop(first);
}

#[test]
fn requests_in_flight_are_bounded() {
    let mut played = Played::with(OutgoingOptions { requests_max: 2, ..Default::default() });
    let [one, two, three] =
        [b"1", b"2", b"3"].map(|body| played.outgoing.request(request(body), None));
    let (first, _) = played.hear();
    assert_eq!(played.hear().1, b"2");
    // A dropped request counts until its reply arrives.
    drop((one, two));
    let (report, reported) = channel();
    played.executor.workers()[0].spawn(async move {
        report.send(three.await.map(|reply| reply[16..].to_vec())).unwrap();
    });
    played.answer(first, b"late");
    let (third, body) = played.hear();
    assert_eq!(body, b"3");
    played.answer(third, b"three");
    assert_eq!(reported.recv_timeout(PATIENCE).unwrap().unwrap(), b"three");
}

#[test]
fn unread_replies_stop_the_server() {
    let options = OutgoingOptions { untaken_bytes_max: 1 << 20, ..Default::default() };
    let mut played = Played::with(options);
    let requests: Vec<_> =
        (0..64u8).map(|n| played.outgoing.request(request(&[n]), None)).collect();
    let ids: Vec<_> = (0..64).map(|_| played.hear().0).collect();
    let mut server = played.server.try_clone().unwrap();
    server.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // 64 MB: more than the kernel buffers.
    let (report, reported): (_, Receiver<usize>) = channel();
    let answers = std::thread::spawn(move || {
        let mut rest = Vec::new();
        for (at, id) in ids.iter().enumerate() {
            let header =
                Header { length: 16 + (1 << 20), request_id: 1, response_to: *id, op_code: 2013 };
            let answer = [&header.to_bytes()[..], &vec![at as u8; 1 << 20]].concat();
            let mut sent = 0;
            while rest.is_empty() && sent < answer.len() {
                match server.write(&answer[sent..]) {
                    Ok(count) => sent += count,
                    Err(_) => {
                        report.send(at).unwrap();
                        rest.extend_from_slice(&answer[sent..]);
                    }
                }
            }
            if !rest.is_empty() && sent == answer.len() - rest.len() {
                server.set_write_timeout(Some(PATIENCE)).unwrap();
                server.write_all(&rest).unwrap();
                rest = vec![0];
                continue;
            }
            if rest.len() == 1 {
                server.write_all(&answer).unwrap();
            }
        }
    });
    let stopped_at = reported.recv_timeout(PATIENCE).expect("the session takes everything");
    assert!(stopped_at < 60, "{stopped_at}");
    for (n, request) in requests.into_iter().enumerate() {
        let reply = done(request).unwrap();
        assert!(reply.len() == 16 + (1 << 20) && reply[16..].iter().all(|b| *b == n as u8));
    }
    answers.join().unwrap();
}

#[test]
fn a_server_that_cannot_be_reached_is_an_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let executor = workers();
    let worker = &executor.workers()[0];
    let outgoing = Outgoing::open(worker, connect(port), OutgoingOptions::default());
    let error = done(outgoing.request(request(b"x"), None)).unwrap_err();
    assert!(matches!(&error, OutgoingError::Unreachable(_)) && !error.may_have_acted());
    let path = std::env::temp_dir().join("kauri-no-such-socket.sock");
    let nowhere = Arc::new(SocketConnect::new(Address::Unix(path)));
    let outgoing = Outgoing::open(worker, nowhere, OutgoingOptions::default());
    assert!(matches!(done(outgoing.opened()), Err(OutgoingError::Unreachable(_))));
    executor.shutdown();
}

#[test]
fn an_executor_that_ends_leaves_no_request_waiting() {
    let mut played = Played::start();
    let asked = played.outgoing.request(request(b"x"), None);
    played.hear();
    played.executor.shutdown();
    assert!(matches!(done(asked), Err(OutgoingError::Lost(_))));
    let worker = &played.executor.workers()[0];
    let address = played.server.local_addr().unwrap();
    let outgoing = Outgoing::open(worker, connect(address), OutgoingOptions::default());
    assert!(done(outgoing.request(request(b"x"), None)).is_err());
}

#[test]
fn a_session_ends_with_its_last_handle_after_sending_all_requests() {
    let mut played = Played::with(OutgoingOptions { in_order: true, ..Default::default() });
    done(played.outgoing.send(request(b"last words"))).unwrap();
    let other = Arc::new(SocketConnect::new(Address::Tcp("localhost".to_owned(), 1)));
    let worker = &played.executor.workers()[0];
    let unused = Outgoing::open(worker, other, OutgoingOptions::default());
    drop(std::mem::replace(&mut played.outgoing, unused));
    assert_eq!(played.hear().1, b"last words");
    assert_eq!(played.server.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn names_are_resolved() {
    let server = Server::start();
    let name = Address::Tcp("localhost".to_owned(), server.address().port());
    let connect = Arc::new(SocketConnect::new(name));
    let executor = workers();
    let worker = &executor.workers()[0];
    let outgoing = Outgoing::open(worker, connect, OutgoingOptions::default());
    let reply = done(outgoing.request(request(b"e hello"), None)).unwrap();
    assert_eq!(&reply[16..], b"e hello");
    assert_eq!(outgoing.transport(), Some("tcp"));
    executor.shutdown();
}

#[test]
fn a_session_goes_over_to_shared_memory() {
    let server = Server::start();
    let place = std::env::temp_dir().join(format!("kauri-outgoing-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let (path_prefix, permissions) = (place.clone(), 0o700);
    let mut unix = UnixTransport::new(UnixOptions { path_prefix, port: 7, permissions });
    unix.setup().unwrap();
    unix.start(&server.manager).unwrap();
    let connect =
        Arc::new(SocketConnect::new(Address::Unix(unix.local_addresses()[0].clone().into())));
    let executor = workers();
    let worker = &executor.workers()[0];
    let outgoing = Outgoing::open(worker, connect, OutgoingOptions::default());
    let wanted = [vec![op::UPGRADE], shared_memory::request(0)].concat();
    let answer = done(outgoing.request(request(&wanted), None)).unwrap();
    done(outgoing.upgrade(answer[16..].to_vec())).unwrap().unwrap();
    assert_eq!(outgoing.transport(), Some("sharedMemory"));
    // One at a time, so that both sides sleep in between and signal each other, more often than the signal's
    // counter holds.
    for n in 0..1000u32 {
        let asked = op_with_number(op::ECHO_LATER, n);
        assert_eq!(done(outgoing.request(request(&asked), None)).unwrap()[16..], asked);
    }
    // All at once, with more data than the rings hold in either direction.
    let bodies: Vec<_> = (0..40u32)
        .map(|n| [op_with_number(op::ECHO, n), vec![n as u8; 100_000]].concat())
        .collect();
    let requests: Vec<_> =
        bodies.iter().map(|body| outgoing.request(request(body), None)).collect();
    for (request, body) in requests.into_iter().zip(bodies) {
        assert!(done(request).unwrap()[16..] == body);
    }
    let counts = server.manager.stats();
    assert_eq!(
        counts.fast_transport(kauri_transport::upgrade::FastTransport::SharedMemory).sessions,
        1
    );
    // The session notices the server's end without any frame in the ring.
    let waits = outgoing.request(request(&[op::HANG]), None);
    server.seen.wait_for("hanging", 1);
    server.manager.shutdown(Duration::ZERO);
    assert!(matches!(done(waits), Err(OutgoingError::Lost(_))));
    executor.shutdown();
    unix.shutdown();
    std::fs::remove_dir_all(place).unwrap();
}
