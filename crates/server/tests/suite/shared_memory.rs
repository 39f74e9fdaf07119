//! Clients that upgrade to shared memory, clients that do not, and malicious clients.

use crate::rig::{self, Server, Way, block, eventually, find, suite};
use kauri_bson::{DocBuf, Value, doc};
use kauri_client::{ClientError, Connection, Transport, Uri};
use kauri_transport::ring::Fabric;
use kauri_transport::shared_memory::{self, SharedEnd, sys};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

#[test]
fn documents_of_all_sizes_go_through_and_only_through_the_ring() {
    documents_of_all_sizes(&Server::start("sizes", &[]));
}

#[test]
fn the_same_while_the_workers_spin() {
    documents_of_all_sizes(&Server::start("spins", &["--spinMicros", "50"]));
}

fn documents_of_all_sizes(server: &Server) {
    for ring_bytes in [0, 65_536, 1 << 20] {
        let options = format!("ringBytes={ring_bytes}&spinMicros=5");
        suite::documents_of_all_sizes(server, Way::SharedMemory, &options);
    }
    assert_eq!(server.status("sharedMemory.switched"), 3);
    assert!(server.status("sharedMemory.creditsOut") > 0);
}

/// The session is counted by the time its client knows of the upgrade. The two sessions are on different
/// workers.
#[test]
fn an_upgraded_session_is_counted() {
    let server = Server::start("counted", &[]);
    let mut asking = server.connect("sharedMemory=off");
    for sessions in 1..=50 {
        let _session = server.open(Way::SharedMemory);
        assert_eq!(rig::status(&mut asking, "sharedMemory.switched"), sessions);
    }
}

#[test]
fn a_request_and_its_reply_are_one_frame_each() {
    suite::a_request_and_its_reply_are_one_frame_each(
        &Server::start("frames", &[]),
        Way::SharedMemory,
    );
}

#[test]
fn many_requests_in_a_row_and_their_replies_pass_each_other() {
    let server = Server::start("pipeline", &[]);
    for way in [Way::SharedMemory, Way::Unix, Way::Tcp] {
        suite::many_requests_in_a_row(&server, way);
    }
}

#[test]
fn a_large_request_and_a_large_reply_pass_each_other() {
    let server = Server::start("large", &[]);
    for ring_bytes in [65_536, 262_144, 1 << 20] {
        let options = format!("ringBytes={ring_bytes}");
        suite::a_large_request_and_a_large_reply(&server, Way::SharedMemory, &options);
    }
}

#[test]
fn messages_of_the_maximum_size() {
    let server = Server::start("limits", &[]);
    for way in [Way::Tcp, Way::Unix, Way::SharedMemory] {
        suite::messages_of_the_maximum_size(&server, way);
    }
}

#[test]
fn cursors_errors_and_many_sessions_at_once() {
    suite::cursors_errors_and_many_sessions(
        &Server::start("sessions", &[]),
        Way::SharedMemory,
        200,
    );
}

#[test]
fn requests_without_replies_are_executed() {
    for way in [Way::Tcp, Way::Unix, Way::SharedMemory] {
        suite::requests_without_replies_are_executed(&Server::start("unwaited", &[]), way);
    }
}

#[test]
fn a_refused_upgrade_keeps_the_stream_and_has_a_reason() {
    let server = Server::start("off", &["--sharedMemory", "off"]);
    let mut connection = server.connect("sharedMemory=auto");
    assert_eq!(connection.transport(), Transport::Unix);
    assert!(connection.fallback().unwrap().contains("switched off"));
    connection.command("admin", &doc! { "ping" => 1 }).unwrap();
    let error = Connection::open(&server.uri("sharedMemory=require")).unwrap_err().to_string();
    assert!(error.contains("switched off"), "{error}");
    assert_eq!(server.status("sharedMemory.refused"), 2);
    assert_eq!(server.status("sharedMemory.offered"), 0);

    let server = Server::start("on", &[]);
    // Without the server's socket in /tmp there is only TCP, and an upgrade there is rejected.
    let over_tcp = |options: &str| format!("mongodb://127.0.0.1:{}/?{options}", server.port);
    let mut tcp = Connection::open(&over_tcp("sharedMemory=auto").parse().unwrap()).unwrap();
    assert_eq!(tcp.transport(), Transport::Tcp);
    assert!(tcp.fallback().is_some());
    let binary = Value::Binary { subtype: 0, bytes: shared_memory::request(0).into() };
    let ask = |transport: &str, parameters: Value<'static>| {
        doc! { "kauriUpgrade" => 1, "transport" => transport, "parameters" => parameters }
    };
    let code = |result: Result<DocBuf, ClientError>| match result {
        Err(ClientError::Command(error)) => error.code().number(),
        other => panic!("{other:?}"),
    };
    let mut unix = server.connect("sharedMemory=off");
    assert_eq!(code(tcp.command("admin", &ask("sharedMemory", binary.clone()))), 20);
    assert_eq!(code(unix.command("admin", &ask("pigeons", binary.clone()))), 2);
    let short = Value::Binary { subtype: 0, bytes: vec![1].into() };
    assert_eq!(code(unix.command("admin", &ask("sharedMemory", short))), 2);
    assert_eq!(code(unix.command("admin", &ask("sharedMemory", Value::Int32(1)))), 14);
    assert_eq!(code(unix.command("admin", &doc! { "kauriUpgrade" => 1 })), 40414);
    assert_eq!(code(unix.command("test", &ask("sharedMemory", binary))), 13);
    // "pigeons" is no known transport and is not counted.
    assert_eq!(server.status("sharedMemory.refused"), 2);
    unix.command("admin", &doc! { "ping" => 1 }).unwrap();
}

/// A client that does each step by itself.
struct Raw {
    socket: UnixStream,
}

impl Raw {
    fn connect(server: &Server) -> Raw {
        let socket = UnixStream::connect(server.socket()).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        Raw { socket }
    }

    fn ping() -> Vec<u8> {
        rig::message(&doc! { "ping" => 1 })
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Whether a complete reply came; otherwise the stream has ended.
    fn replied(&mut self) -> bool {
        let mut header = [0; 16];
        if let Err(error) = self.socket.read_exact(&mut header) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "neither");
            return false;
        }
        let length = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        self.socket.read_exact(&mut vec![0; length - 16]).is_ok()
    }

    fn offer(&mut self) -> (SharedEnd, [u8; 8]) {
        let parameters = Value::Binary { subtype: 0, bytes: shared_memory::request(0).into() };
        let transport = "sharedMemory";
        self.answered(&rig::message(
            &doc! { "kauriUpgrade" => 1, "transport" => transport, "parameters" => parameters },
        ))
    }

    /// The reply to the request that ends with these bytes.
    fn answered(&mut self, bytes: &[u8]) -> (SharedEnd, [u8; 8]) {
        self.send(bytes);
        let (mut bytes, mut beside) = (Vec::with_capacity(4096), Vec::new());
        let fd = self.socket.as_fd();
        let received = sys::receive_with_descriptors(fd, &mut bytes, &mut beside).unwrap();
        let (_, message) = kauri_wire::Message::parse(&bytes[..received]).unwrap();
        let kauri_wire::Message::Msg(message) = message else { panic!("no OP_MSG") };
        let body = kauri_bson::Doc::from_bytes(message.body).unwrap();
        let Value::Binary { bytes, .. } = body.value("parameters") else { panic!("{body:?}") };
        shared_memory::accept(&bytes, beside).unwrap()
    }

    fn switch(&mut self) -> SharedEnd {
        let (mut end, probe) = self.offer();
        end.probe(probe);
        while end.look().unwrap().probe.is_none() {
            std::hint::spin_loop();
        }
        end
    }

    fn ask(end: &mut SharedEnd, message: &[u8]) {
        assert_eq!(end.send(message, &[]), message.len());
        while !end.look().unwrap().readable {
            std::hint::spin_loop();
        }
        let mut reply = Vec::with_capacity(4096);
        end.receive(&mut reply);
        assert!(reply.len() > 30);
    }
}

#[test]
fn a_client_may_withdraw_an_upgrade_until_it_has_used_the_ring() {
    let server = Server::start("mind", &[]);
    let mut raw = Raw::connect(&server);
    // Offered, but not accepted; then switched, but not used.
    for round in 1..=3 {
        let kept = if round == 1 { raw.offer().0 } else { raw.switch() };
        raw.send(&Raw::ping());
        assert!(raw.replied(), "round {round}");
        assert_eq!(server.status("sharedMemory.withdrawn"), round);
        assert_eq!(server.status("sharedMemory.sessions"), 0);
        drop(kept);
    }
    let mut end = raw.switch();
    Raw::ask(&mut end, &Raw::ping());
    raw.send(&Raw::ping());
    assert!(!raw.replied(), "the client used the ring, then the stream");
    server.tells("has left it", 1);
    // A second request is an error.
    let mut raw = Raw::connect(&server);
    let _kept = raw.offer();
    let mut other = Raw::connect(&server);
    let mut end = other.switch();
    let parameters = Value::Binary { subtype: 0, bytes: shared_memory::request(0).into() };
    let again =
        doc! { "kauriUpgrade" => 1, "transport" => "sharedMemory", "parameters" => parameters };
    Raw::ask(&mut end, &rig::message(&again));
    assert_eq!(server.status("sharedMemory.refused"), 1);
}

#[test]
fn a_faulty_client_ends_only_its_own_session() {
    let server = Server::start("lies", &[]);
    let mut honest = server.open(Way::SharedMemory);
    let lies: [(&str, fn(&mut SharedEnd, [u8; 8])); 7] = [
        ("invalid immediate", |end, _| end.fabric().write(0, [&[], &[], &[]], 0x7000_0000)),
        ("invalid immediate", |end, _| end.fabric().write(0, [&[], &[], &[]], 0x1fff_ffff)),
        ("invalid credit", |end, _| end.fabric().write(0, [&[], &[], &[]], 0x2000_0fff)),
        ("invalid credit", |end, probe| {
            end.fabric().write(0, [&[0xff; 8], &probe, &[]], 0x3000_0010);
        }),
        ("wrong probe", |end, probe| {
            end.probe(probe.map(|byte| byte ^ 1));
        }),
        ("wrong probe", |end, probe| {
            end.probe(probe);
            end.probe(probe);
        }),
        // Bytes on the stream before the probe.
        ("wrong probe", |end, _| {
            end.send(&Raw::ping(), &[]);
        }),
    ];
    for (words, lie) in lies {
        let before = server.process.told(words);
        let mut raw = Raw::connect(&server);
        let (mut end, probe) = raw.offer();
        lie(&mut end, probe);
        assert!(!raw.replied(), "{words}");
        server.tells(words, before + 1);
        honest.command("admin", &doc! { "ping" => 1 }).unwrap();
    }
    // While the server does not poll: frames of a quarter of the ring each, five at once.
    let mut raw = Raw::connect(&server);
    let mut end = raw.switch();
    block(&mut honest, "ping", 500);
    end.send(&Raw::ping(), &[]);
    server.until("connections.active", 2);
    // The header correctly reports that the server's probe was consumed.
    let header = [1, 0, 0, 0, 1, 0, 0, 0];
    let used = 16 + (8 + Raw::ping().len() as u32).next_multiple_of(16);
    for at in [used, used + (64 << 10), used + (128 << 10), 0, 64 << 10] {
        end.fabric().write(at, [&header, &[], &[]], 0x1001_0000);
    }
    assert!(!raw.replied());
    server.tells("beyond the credit", 1);
    // Invalid messages through a valid ring.
    for message in [vec![0xff; 100], 5i32.to_le_bytes().repeat(10)] {
        let mut raw = Raw::connect(&server);
        let mut end = raw.switch();
        let before = server.process.told("mstLen is invalid");
        end.send(&message, &[]);
        assert!(!raw.replied());
        server.tells("mstLen is invalid", before + 1);
    }
    server.until("sharedMemory.sessions", 1);
    honest.command("admin", &doc! { "ping" => 1 }).unwrap();
}

#[test]
fn bytes_that_change_after_their_announcement_are_checked_as_used() {
    let server = Server::start("changes", &["--spinMicros", "1000"]);
    let mut lies = rig::liar::Lies::new(1000);
    while lies.are_left() {
        let mut raw = Raw::connect(&server);
        let (mut end, probe) = raw.offer();
        raw.socket.set_nonblocking(true).unwrap();
        let socket = raw.socket;
        let has_ended = || !matches!((&socket).read(&mut [0; 1]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock);
        lies.tell(end.fabric(), probe, &has_ended);
    }
    lies.check(&server);
    server.open(Way::SharedMemory).command("admin", &doc! { "ping" => 1 }).unwrap();
}

#[test]
fn a_disconnect_at_any_step_leaves_nothing_behind() {
    let server = Server::start("leaks", &[]);
    // Once, to allocate permanent resources.
    drop(server.open(Way::SharedMemory));
    server.until("sharedMemory.sessions", 0);
    server.until("connections.current", 1);
    let (before, watched) = (server.descriptors(), server.watched());
    // The parts that some clients keep.
    let mut kept = Vec::new();
    for round in 0..300 {
        let mut raw = Raw::connect(&server);
        match round % 5 {
            0 => kept.push(raw.offer().0),
            1 => kept.push(raw.switch()),
            2 => {
                let (mut end, probe) = raw.offer();
                end.probe(probe);
            }
            3 => {
                let mut end = raw.switch();
                Raw::ask(&mut end, &Raw::ping());
            }
            // In the middle of a message.
            _ => {
                let mut end = raw.switch();
                end.send(&Raw::ping()[..20], &[]);
            }
        }
    }
    server.until("sharedMemory.sessions", 0);
    server.until("connections.current", 1);
    assert_eq!(server.mappings(), 0);
    // The connections that asked for numbers are closed a little later.
    eventually("the descriptors are closed", || server.descriptors() <= before);
    eventually("nothing is watched", || server.watched() <= watched);
    assert_eq!(kept.len(), 120);
}

#[test]
fn a_sleeping_client_notices_a_dead_server() {
    let mut server = Server::start("dies", &[]);
    let mut connection = server.connect("sharedMemory=require&spinMicros=0");
    block(&mut connection, "ping", 600_000);
    connection.send("admin", &doc! { "ping" => 1 }).unwrap();
    server.until("connections.active", 2);
    server.process.child.kill().unwrap();
    let error = connection.receive().unwrap_err();
    assert!(matches!(error, ClientError::Io(_)), "{error}");
}

#[test]
fn a_stopping_server_replies_first() {
    let server = Server::start("ends", &[]);
    let mut connection = server.open(Way::SharedMemory);
    block(&mut connection, "find", 500);
    connection.send("test", &find(1)).unwrap();
    server.until("connections.active", 2);
    let mut other = server.connect("sharedMemory=off");
    other.send("admin", &doc! { "shutdown" => 1 }).unwrap();
    // The shutdown error is a reply, too.
    let id = connection.receive().unwrap().response_to;
    assert!(id > 0);
    // On a slow machine the reply may have arrived before the shutdown began.
    let error = loop {
        if let Err(error) = connection.command("admin", &doc! { "ping" => 1 }) {
            break error;
        }
    };
    assert!(matches!(error, ClientError::Io(_)), "{error}");
}

#[test]
fn a_reply_may_time_out() {
    let server = Server::start("slow", &[]);
    let mut connection = server.open(Way::SharedMemory);
    block(&mut connection, "ping", 600_000);
    connection.set_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
    let ping = doc! { "ping" => 1 };
    let error = connection.command("admin", &ping).unwrap_err().to_string();
    assert!(error.contains("timed out"), "{error}");
    // A late reply must not be matched to another request.
    let error = connection.command("admin", &ping).unwrap_err().to_string();
    assert!(error.contains("broken before"), "{error}");
    // The same for the reply to the request to upgrade.
    let mut other = server.connect("sharedMemory=off");
    block(&mut other, "kauriUpgrade", 600_000);
    let error = Connection::open(&server.uri("socketTimeoutMS=1000")).unwrap_err().to_string();
    assert!(error.contains("timed out"), "{error}");
}

#[test]
fn split_and_pipelined_requests_get_the_right_replies() {
    let server = Server::start("pieces", &[]);
    let parameters = Value::Binary { subtype: 0, bytes: shared_memory::request(0).into() };
    let ask = rig::message(
        &doc! { "kauriUpgrade" => 1, "transport" => "sharedMemory", "parameters" => parameters },
    );
    // In two parts; the second is sent after the first was read.
    let mut raw = Raw::connect(&server);
    let received = |server: &Server| {
        (0..2).map(|w| server.status(&format!("transportWorkers.{w}.receives"))).sum::<i64>()
    };
    let before = received(&server);
    raw.send(&ask[..30]);
    // Each read of the status is two receives on each of its two connections.
    eventually("the first piece is read", || (received(&server) - before) % 4 != 0);
    let (mut end, probe) = raw.answered(&ask[30..]);
    end.probe(probe);
    while end.look().unwrap().probe.is_none() {
        std::thread::yield_now();
    }
    assert_eq!(server.status("sharedMemory.withdrawn"), 0);
    // With a request behind it, which stays on the stream.
    let mut raw = Raw::connect(&server);
    raw.send(&[ask.as_slice(), &Raw::ping()].concat());
    assert!(raw.replied() && raw.replied());
    assert_eq!(server.status("sharedMemory.withdrawn"), 1);
    // Without wanting a reply: no offer is pending that another reply could carry.
    let mut silent = ask.clone();
    silent[16] |= 2;
    raw.send(&silent);
    raw.send(&Raw::ping());
    assert!(raw.replied());
    assert_eq!(server.status("sharedMemory.withdrawn"), 2);
    raw.switch();
}

#[test]
fn a_client_of_this_host_finds_the_socket_of_the_same_server_and_no_other() {
    let server = Server::start("host", &[]);
    let other = Server::start("other", &[]);
    let beside = PathBuf::from(format!("/tmp/mongodb-{}.sock", server.port));
    let uri: Uri = format!("mongodb://127.0.0.1:{}/", server.port).parse().unwrap();
    // A server that was killed may have left one, and the port is this server's now.
    drop(std::fs::remove_file(&beside));
    std::os::unix::fs::symlink(other.socket(), &beside).unwrap();
    let wrong = Connection::open(&uri).map(|connection| connection.transport());
    std::fs::remove_file(&beside).unwrap();
    std::os::unix::fs::symlink(server.socket(), &beside).unwrap();
    let right = Connection::open(&uri).map(|connection| connection.transport());
    std::fs::remove_file(&beside).unwrap();
    assert_eq!(wrong.unwrap(), Transport::Tcp);
    assert_eq!(right.unwrap(), Transport::SharedMemory);
}

#[test]
fn the_polling_time_of_running_workers_can_be_changed() {
    let server = Server::start("spin-time", &["--spinMicros", "7"]);
    let mut connection = server.open(Way::Unix);
    let get = doc! { "getParameter" => 1, "spinMicros" => 1 };
    let now = |connection: &mut Connection| {
        let reply = connection.command("admin", &get).unwrap();
        reply.as_doc().value("spinMicros").to_i64_saturating()
    };
    assert_eq!(now(&mut connection), Some(7));
    connection.command("admin", &doc! { "setParameter" => 1, "spinMicros" => 0 }).unwrap();
    let spins =
        || (0..2).map(|w| server.status(&format!("transportWorkers.{w}.spins"))).sum::<i64>();
    // Earlier work has ended when each worker has served a request.
    let settled = || {
        let mut before = spins();
        eventually("no worker spins", || std::mem::replace(&mut before, spins()) == before);
        before
    };
    let before = settled();
    connection.command("admin", &doc! { "setParameter" => 1, "spinMicros" => 2_000_000 }).unwrap();
    eventually("a worker spins", || spins() > before);
    assert_eq!(now(&mut connection), Some(2_000_000));
    let wrong = doc! { "setParameter" => 1, "spinMicros" => -1 };
    let error = connection.command("admin", &wrong).unwrap_err();
    assert!(matches!(error, ClientError::Command(error) if error.code().number() == 2));
    assert_eq!(now(&mut connection), Some(2_000_000));
}
