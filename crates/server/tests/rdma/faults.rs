//! RDMA clients that are malicious, get no resources, or lose their server. Other sessions are not affected.

use crate::leaks::used;
use crate::raw::{Raw, ask_ping, ping, until};
use crate::rig::{self, Server, Way, address, block, eventually, suite};
use crate::sessions::{pinned, start};
use kauri_bson::doc;
use kauri_client::{ClientError, Connection};
use kauri_transport::rdma::DialedEnd;
use kauri_transport::ring::Fabric;
use std::io::Write;

pub const TESTS: &[crate::Test] = &[
    ("a_faulty_client_ends_only_its_own_session", a_malicious_client),
    (
        "bytes_that_change_after_their_announcement_are_checked_as_used",
        changed_after_the_announcement,
    ),
    ("a_client_may_withdraw_an_upgrade_until_it_has_used_the_ring", a_withdrawn_upgrade),
    ("invalid_parameters_are_refused_and_the_session_continues", impossible_parameters),
    ("no_more_is_pinned_than_allowed", no_more_is_pinned_than_allowed),
    ("little_memory_that_may_be_locked", little_memory_that_may_be_locked),
    ("a_dead_server_is_noticed", a_server_that_dies),
    ("the_last_reply_is_sent_before_the_end", the_last_reply_is_sent_before_the_end),
    ("both_sides_detect_a_dead_host", both_sides_watch),
    ("rdma_is_refused_if_disabled", switched_off),
];

fn a_malicious_client() {
    let server = start("lies", &[]);
    let mut honest = server.open(Way::Rdma);
    type Lie = fn(&mut DialedEnd, [u8; 8]);
    let lies: [(&str, Lie); 6] = [
        ("invalid immediate", |end, _| end.fabric().write(0, [&[], &[], &[]], 0x7000_0000)),
        ("invalid immediate", |end, _| end.fabric().write(0, [&[], &[], &[]], 0x1fff_ffff)),
        ("invalid credit", |end, _| end.fabric().write(0, [&[], &[], &[]], 0x2000_0fff)),
        ("invalid credit", |end, probe| {
            end.fabric().write(0, [&[0xff; 8], &probe, &[]], 0x3000_0010);
        }),
        ("wrong probe", |end, probe| {
            end.probe(probe.map(|byte| byte ^ 1));
        }),
        ("wrong probe", |end, _| {
            end.send(&ping(), &[]);
        }),
    ];
    for (words, lie) in lies {
        let before = server.process.told(words);
        let mut raw = Raw::connect(&server);
        let (mut end, probe) = raw.offer();
        lie(&mut end, probe);
        assert!(raw.ended(), "{words}");
        server.tells(words, before + 1);
        honest.command("admin", &doc! { "ping" => 1 }).unwrap();
    }
    // Beyond the ring: the device lets nothing through.
    let mut raw = Raw::connect(&server);
    let mut end = raw.switch();
    end.fabric().write(1 << 20, [&ping(), &[], &[]], 0x1000_0010);
    until("the client's failure", || end.look().is_err());
    server.tells("RDMA session failed", 1);
    assert!(raw.goes_on(), "it has not used the ring yet");
    let mut raw = Raw::connect(&server);
    let mut end = raw.switch();
    ask_ping(&mut end);
    end.fabric().write(1 << 20, [&ping(), &[], &[]], 0x1000_0010);
    assert!(raw.ended());
    server.tells("RDMA session failed", 2);
    // A ring that is not the client's: wrong key or wrong address. The server's write there fails as if the
    // client were unreachable, and the session continues on its stream.
    let wrong: [(usize, u8); 2] = [(28, 0x55), (38, 0x55)];
    for (nth, (at, bits)) in wrong.into_iter().enumerate() {
        let mut raw = Raw::connect(&server);
        let dialing = raw.dial();
        let answer = raw.answer(&dialing, |parameters| parameters[at] ^= bits);
        let (mut end, probe) = dialing.accept(&answer).unwrap();
        end.probe(probe);
        server.tells("RDMA session failed", nth + 3);
        assert!(raw.goes_on());
    }
    assert_eq!(server.status("rdma.failed"), 4);
    // A nonexistent queue pair: the server's probe is lost, and the client continues on another transport.
    let mut raw = Raw::connect(&server);
    let dialing = raw.dial();
    drop(raw.answer(&dialing, |parameters| parameters[12] ^= 0x80));
    assert!(raw.goes_on());
    server.until("rdma.sessions", 1);
    honest.command("admin", &doc! { "ping" => 1 }).unwrap();
}

fn changed_after_the_announcement() {
    let server = start("changes", &["--spinMicros", "1000"]);
    let mut lies = rig::liar::Lies::new(200);
    while lies.are_left() {
        let mut raw = Raw::connect(&server);
        let (mut end, probe) = raw.offer();
        raw.socket.set_nonblocking(true).unwrap();
        lies.tell(end.fabric(), probe, &|| raw.has_ended());
    }
    lies.check(&server);
    eventually("all resources are freed", || used(&server) == [0; 4]);
    server.open(Way::Rdma).command("admin", &doc! { "ping" => 1 }).unwrap();
}

fn a_withdrawn_upgrade() {
    let server = start("mind", &[]);
    let mut raw = Raw::connect(&server);
    for round in 1..=3 {
        let kept = if round == 1 { raw.offer().0 } else { raw.switch() };
        raw.socket.write_all(&ping()).unwrap();
        assert!(raw.reply().is_some(), "round {round}");
        assert_eq!(server.status("rdma.withdrawn"), round);
        assert_eq!(server.status("rdma.sessions"), 0);
        drop(kept);
    }
    let mut end = raw.switch();
    ask_ping(&mut end);
    raw.socket.write_all(&ping()).unwrap();
    assert!(raw.ended(), "the client used the ring, then the stream");
    server.tells("has left it", 1);
}

fn impossible_parameters() {
    let server = start("parameters", &[]);
    let mut raw = Raw::connect(&server);
    let good = raw.dial().request();
    // Another GID: the kernel would search for it on the network.
    let mut bytes = good.clone();
    bytes[55] ^= 1;
    let reply = raw.ask(&bytes);
    assert!(format!("{reply:?}").contains("GID of another address"), "{reply:?}");
    let mut random = 88_172_645_463_325_252u64;
    let mut refused = 1;
    for round in 0..300 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut bytes = good.clone();
        match round % 3 {
            0 => bytes.truncate(random as usize % bytes.len()),
            1 => bytes.extend_from_slice(&random.to_le_bytes()),
            // Any byte except the key's, the address's and the GID's, which can be anything.
            _ => bytes[random as usize % 28] ^= (random >> 40) as u8 | 1,
        }
        let reply = raw.ask(&bytes);
        match reply.as_doc().value("ok").truthy() {
            false => {
                assert_eq!(reply.as_doc().value("code").to_i64_saturating(), Some(2));
                refused += 1;
            }
            // Any queue pair number may exist.
            true => {
                raw.socket.write_all(&ping()).unwrap();
                assert!(raw.reply().is_some());
            }
        }
    }
    assert!(refused >= 200, "{refused}");
    assert_eq!(server.status("rdma.refusals.parameters"), refused);
    assert_eq!(server.status("rdma.refused"), refused);
    drop(raw.switch());
}

fn refusal(result: Result<Connection, ClientError>) -> String {
    match result {
        Err(ClientError::Required(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn no_more_is_pinned_than_allowed() {
    // Sessions of 144 KB each.
    let server = start("bound", &["--rdmaMemoryMB", "1"]);
    let mut connections: Vec<_> = (0..7).map(|_| server.open(Way::Rdma)).collect();
    assert_eq!(pinned(&server), 7 * (144 << 10));
    let why = refusal(server.connect_by(Way::Rdma, ""));
    assert!(why.contains("--rdmaMemoryMB"), "{why}");
    assert_eq!(server.status("rdma.refusals.memory"), 1);
    // A client that does not require RDMA continues without it.
    let uri = format!("mongodb://{}:{}/?sharedMemory=off", address(), server.port);
    let mut fallen = Connection::open(&uri.parse().unwrap()).unwrap();
    assert!(fallen.fallback().unwrap().contains("--rdmaMemoryMB"));
    fallen.command("admin", &doc! { "ping" => 1 }).unwrap();
    for connection in &mut connections {
        connection.command("admin", &doc! { "ping" => 1 }).unwrap();
    }
    connections.pop();
    eventually("there is room again", || server.connect_by(Way::Rdma, "").is_ok());
}

fn little_memory_that_may_be_locked() {
    let args = ["--rdma", "require"];
    let server = Server::start_with_memlock("memlock", 8 << 20, &args);
    let mut connections = Vec::new();
    let why = loop {
        match server.connect_by(Way::Rdma, "") {
            Ok(connection) => connections.push(connection),
            refused => break refusal(refused),
        }
        assert!(connections.len() <= 56, "8 MB are 56 sessions");
    };
    assert!(why.contains("RLIMIT_MEMLOCK"), "{why}");
    assert!(connections.len() >= 32, "{}", connections.len());
    assert!(server.status("rdma.refusals.device") >= 1);
    for connection in &mut connections {
        connection.command("admin", &doc! { "ping" => 1 }).unwrap();
    }
    // There is no room for the pool either: large messages go through the ring.
    server.tells("Cannot pin memory for large messages over RDMA", 1);
    assert_eq!(server.status("rdma.pool.bytes"), 0);
    connections[0].command("test", &rig::insert(1, 3 << 20)).unwrap();
    let reply = connections[0].command("test", &rig::find(1)).unwrap();
    assert_eq!(rig::found(&reply).len(), 3 << 20);
    drop(connections);
    eventually("there is room again", || server.connect_by(Way::Rdma, "").is_ok());
}

fn a_server_that_dies() {
    let mut server = start("dies", &[]);
    let mut connection = server.connect_by(Way::Rdma, "spinMicros=0").unwrap();
    block(&mut connection, "ping", 600_000);
    connection.send("admin", &doc! { "ping" => 1 }).unwrap();
    server.until("connections.active", 2);
    server.process.child.kill().unwrap();
    let error = connection.receive().unwrap_err();
    assert!(matches!(error, ClientError::Io(_)), "{error}");
}

fn the_last_reply_is_sent_before_the_end() {
    let server = start("last", &[]);
    for _ in 0..20 {
        let mut connection = server.open(Way::Rdma);
        connection.send("admin", &doc! { "ping" => 1 }).unwrap();
        connection.receive().unwrap().checked().unwrap();
    }
    let mut connection = server.open(Way::Rdma);
    block(&mut connection, "find", 500);
    connection.send("test", &rig::find(1)).unwrap();
    server.until("connections.active", 2);
    let mut other = server.open(Way::Unix);
    other.send("admin", &doc! { "shutdown" => 1 }).unwrap();
    // The shutdown error is a reply, too.
    connection.receive().unwrap();
    let server = start("unwaited", &[]);
    suite::requests_without_replies_are_executed(&server, Way::Rdma);
}

/// The kernel checks the peer again within seconds, not minutes as for other connections.
fn both_sides_watch() {
    let server = start("watch", &[]);
    let _rdma = server.open(Way::Rdma);
    let port = server.port;
    let filter = format!("( sport = :{port} or dport = :{port} )");
    let ran = std::process::Command::new("ss").args(["-Htno", &filter]).output().unwrap();
    let ends = String::from_utf8(ran.stdout).unwrap();
    // As `9sec`, `9.468ms` (which is 9,468 ms) or `4min59sec`.
    let soon = |end: &str| {
        let left = end.split("timer:(keepalive,").nth(1)?.split(',').next()?;
        let number = left.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(!left.contains("min") && number.parse::<u32>().ok()? <= 10)
    };
    assert_eq!(ends.lines().filter(|end| soon(end) == Some(true)).count(), 2, "{ends}");
}

fn switched_off() {
    let server = Server::start("off", &["--rdma", "off"]);
    let why = refusal(server.connect_by(Way::Rdma, ""));
    assert!(why.contains("switched off"), "{why}");
    let server = Server::start("device", &["--rdmaDevice", "nothing0"]);
    server.tells("RDMA disabled", 1);
    let why = refusal(server.connect_by(Way::Rdma, ""));
    assert!(why.contains("nothing0"), "{why}");
    assert_eq!(server.status("rdma.refusals.noDevice"), 1);
    // An address that the device does not have.
    let server = Server::start("address", &["--bind_ip", "127.0.0.1"]);
    let uri = format!("mongodb://127.0.0.1:{}/?rdma=require", server.port);
    let why = refusal(Connection::open(&uri.parse().unwrap()));
    assert!(why.contains("127.0.0.1"), "{why}");
}
