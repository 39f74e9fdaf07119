//! Clients that change over to shared memory, ones that don't, and ones that lie.

use kauri_bson::{DocBuf, Value, doc};
use kauri_client::{ClientError, Connection, Transport, Uri};
use kauri_transport::ring::Fabric;
use kauri_transport::shared_memory::{self, SharedEnd, sys};
use kauri_wire::MsgWriter;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let ends = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < ends, "not within a minute: {what}");
        std::thread::yield_now();
    }
}

/// The program; under another one that checks it, if the environment names that.
fn kauri() -> Command {
    let program = env!("CARGO_BIN_EXE_kauri");
    let under = std::env::var("KAURI_TEST_UNDER").unwrap_or_default();
    let mut words = under.split_whitespace();
    let Some(checker) = words.next() else { return Command::new(program) };
    let mut command = Command::new(checker);
    command.args(words).arg(program);
    command
}

struct Server {
    child: Child,
    place: PathBuf,
    port: u16,
    log: Arc<Mutex<String>>,
}

impl Server {
    fn start(name: &str, args: &[&str]) -> Server {
        let place = std::env::temp_dir().join(format!("kauri-shm-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(place.join("db")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = kauri()
            .args(["serve", "--segmentSizeMB", "32", "--workers", "2", "--port", &port.to_string()])
            .args(["--setParameter", "enableTestCommands=1", "--unixSocketPrefix"])
            .arg(&place)
            .arg("--dbpath")
            .arg(place.join("db"))
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !told.contains("Waiting for connections") {
            assert!(lines.read_line(&mut told).unwrap() > 0, "{told}");
        }
        let log = Arc::new(Mutex::new(told));
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
                kept.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Server { child, place, port, log }
    }

    fn socket(&self) -> PathBuf {
        self.place.join(format!("mongodb-{}.sock", self.port))
    }

    fn uri(&self, options: &str) -> Uri {
        let socket = self.socket().display().to_string().replace('/', "%2F");
        format!("mongodb://{socket}/?{options}").parse().unwrap()
    }

    fn connect(&self, options: &str) -> Connection {
        Connection::open(&self.uri(options)).unwrap()
    }

    fn shared(&self) -> Connection {
        let connection = self.connect("sharedMemory=require&socketTimeoutMS=60000");
        assert_eq!(connection.transport(), Transport::SharedMemory);
        connection
    }

    /// A number of `serverStatus`, by its dotted path.
    fn status(&self, path: &str) -> i64 {
        let mut connection = self.connect("sharedMemory=off");
        let mut doc = connection.command("admin", &doc! { "serverStatus" => 1 }).unwrap();
        let (sections, last) = path.rsplit_once('.').unwrap();
        for part in sections.split('.') {
            doc = doc.as_doc().get(part).unwrap().as_doc().unwrap().to_buf();
        }
        doc.as_doc().value(last).to_i64_saturating().unwrap()
    }

    /// Waits until a number of `serverStatus` is this.
    fn until(&self, path: &str, expected: i64) {
        eventually(path, || self.status(path) == expected);
    }

    /// Waits until the log has these words so often.
    fn tells(&self, words: &str, times: usize) {
        eventually(words, || self.log.lock().unwrap().matches(words).count() >= times);
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Descriptors that its workers watch.
    fn watched(&self) -> usize {
        let infos = std::fs::read_dir(format!("/proc/{}/fdinfo", self.child.id())).unwrap();
        // One that is closed meanwhile watches nothing.
        let texts = infos.map(|info| std::fs::read_to_string(info.unwrap().path()));
        let lines = |text: String| text.lines().filter(|line| line.starts_with("tfd:")).count();
        texts.map(|text| text.map_or(0, lines)).sum()
    }

    fn mappings(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap();
        maps.lines().filter(|line| line.contains("kauri-session")).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

fn payload(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(seed * 2 + 77) >> 5) as u8).collect()
}

fn insert(id: i32, bytes: usize) -> DocBuf {
    let value = Value::Binary { subtype: 0, bytes: payload(bytes, id as usize).into() };
    let document = doc! { "_id" => id, "x" => value };
    doc! { "insert" => "c", "documents" => kauri_bson::array![document] }
}

fn find(id: i32) -> DocBuf {
    let filter = doc! { "_id" => id };
    doc! { "find" => "c", "filter" => filter, "singleBatch" => true }
}

/// The payload in a reply to `find`.
fn found(reply: &DocBuf) -> Vec<u8> {
    let cursor = reply.as_doc().get("cursor").unwrap().as_doc().unwrap();
    let batch = cursor.get("firstBatch").unwrap().as_doc().unwrap();
    let document = batch.first().unwrap().as_doc().unwrap();
    match document.value("x") {
        Value::Binary { bytes, .. } => bytes.into_owned(),
        other => panic!("{other:?}"),
    }
}

const SIZES: [usize; 12] =
    [0, 1, 100, 1000, 4000, 16_300, 65_500, 65_536, 70_000, 300_000, 5 << 20, (16 << 20) - 100];

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
        let mut connection =
            server.connect(&format!("sharedMemory=require&ringBytes={ring_bytes}&spinMicros=5"));
        connection.command("test", &doc! { "drop" => "c" }).ok();
        let socket_sends =
            || (0..2).map(|w| server.status(&format!("transportWorkers.{w}.sends"))).sum::<i64>();
        let before = socket_sends();
        for (id, bytes) in SIZES.into_iter().enumerate() {
            connection.command("test", &insert(id as i32, bytes)).unwrap();
        }
        for (id, bytes) in SIZES.into_iter().enumerate() {
            let reply = connection.command("test", &find(id as i32)).unwrap();
            assert!(found(&reply) == payload(bytes, id), "{bytes} bytes, ring {ring_bytes}");
        }
        // Each look at the status is a connection over the socket: hello and two looks a piece.
        assert!(socket_sends() - before <= 8);
    }
    assert_eq!(server.status("sharedMemory.switched"), 3);
    assert!(server.status("sharedMemory.framesIn") > 3 * 24);
    assert!(server.status("sharedMemory.creditsOut") > 0);
}

#[test]
fn a_request_and_its_reply_are_one_frame_each() {
    let server = Server::start("frames", &[]);
    let mut connection = server.shared();
    connection.command("test", &insert(1, 1000)).unwrap();
    let before = ["framesIn", "framesOut", "creditsIn", "creditsOut"]
        .map(|count| server.status(&format!("sharedMemory.{count}")));
    for _ in 0..1000 {
        assert_eq!(found(&connection.command("test", &find(1)).unwrap()).len(), 1000);
    }
    let after = ["framesIn", "framesOut", "creditsIn", "creditsOut"]
        .map(|count| server.status(&format!("sharedMemory.{count}")));
    let spent: Vec<_> = before.iter().zip(after).map(|(before, after)| after - before).collect();
    assert_eq!(spent, [1000, 1000, 0, 0]);
}

#[test]
fn many_requests_in_a_row_and_their_replies_pass_each_other() {
    let server = Server::start("pipeline", &[]);
    pipelined(server.shared());
    pipelined(server.connect("sharedMemory=off&socketTimeoutMS=60000"));
    let tcp = format!("mongodb://127.0.0.1:{}/?sharedMemory=off", server.port);
    pipelined(Connection::open(&tcp.parse().unwrap()).unwrap());
}

#[test]
fn a_large_request_and_a_large_reply_pass_each_other() {
    let server = Server::start("large", &[]);
    for ring_bytes in [65_536, 262_144, 1 << 20] {
        let options = format!("sharedMemory=require&socketTimeoutMS=60000&ringBytes={ring_bytes}");
        let mut connection = server.connect(&options);
        connection.command("test", &doc! { "drop" => "c" }).ok();
        connection.command("test", &insert(1, 12 << 20)).unwrap();
        connection.send("test", &find(1)).unwrap();
        // The server has filled the ring, and waits for credit.
        server.until("connections.active", 2);
        eventually("the ring is full", || {
            let before = server.status("sharedMemory.framesOut");
            before > 0 && before == server.status("sharedMemory.framesOut")
        });
        connection.send("test", &insert(2, 5 << 20)).unwrap();
        assert_eq!(found(&connection.receive().unwrap().checked().unwrap()).len(), 12 << 20);
        connection.receive().unwrap().checked().unwrap();
    }
}

fn pipelined(mut connection: Connection) {
    connection.command("test", &doc! { "drop" => "c" }).ok();
    connection.command("test", &insert(1, 20_000)).unwrap();
    // More than both rings hold: the server waits for credit while requests are still coming.
    let filler = "x".repeat(900);
    let mut command = find(1);
    command = DocBuf::build(|out| {
        out.put_all(command.as_doc());
        out.put("comment", filler.as_str());
    });
    let ids: Vec<i32> = (0..2000).map(|_| connection.send("test", &command).unwrap()).collect();
    for id in ids {
        let reply = connection.receive().unwrap();
        assert_eq!(reply.response_to, id);
        assert_eq!(found(&reply.checked().unwrap()).len(), 20_000);
    }
}

#[test]
fn cursors_errors_and_many_sessions_at_once() {
    let server = Server::start("sessions", &[]);
    let mut connections: Vec<_> = (0..200).map(|_| server.shared()).collect();
    let documents =
        |from: i32| Value::array((from..from + 100).map(|id| Value::from(doc! { "_id" => id })));
    for (at, connection) in connections.iter_mut().enumerate() {
        let command = doc! { "insert" => "many", "documents" => documents(at as i32 * 100) };
        connection.send("test", &command).unwrap();
    }
    for connection in &mut connections {
        connection.receive().unwrap().checked().unwrap();
    }
    let reply = connections[7].command("test", &doc! { "find" => "many" }).unwrap();
    let cursor = reply.as_doc().get("cursor").unwrap().as_doc().unwrap();
    let id = cursor.value("id").to_i64_saturating().unwrap();
    assert_ne!(id, 0);
    let more = doc! { "getMore" => id, "collection" => "many" };
    let reply = connections[7].command("test", &more).unwrap();
    let cursor = reply.as_doc().get("cursor").unwrap().as_doc().unwrap();
    assert_eq!(cursor.get("nextBatch").unwrap().as_doc().unwrap().count(), 20_000 - 101);
    let error = connections[8].command("test", &doc! { "nonsense" => 1 }).unwrap_err();
    assert!(matches!(error, ClientError::Command(error) if error.code().number() == 59));
    assert_eq!(server.status("sharedMemory.sessions"), 200);
    drop(connections);
    server.until("sharedMemory.sessions", 0);
}

#[test]
fn who_may_not_or_cannot_stays_on_the_stream_and_is_told_why() {
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
    // Without its socket in /tmp there is only TCP, and a request there is refused.
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
    assert_eq!(server.status("sharedMemory.refused"), 3);
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

    fn message(command: &DocBuf) -> Vec<u8> {
        let mut message = Vec::new();
        let writer = MsgWriter::begin(&mut message, 1, 0, 0);
        {
            let mut body = kauri_bson::DocWriter::new(&mut message);
            body.put_all(command.as_doc());
            body.put("$db", "admin");
        }
        writer.finish(&mut message).unwrap();
        message
    }

    fn ping() -> Vec<u8> {
        Raw::message(&doc! { "ping" => 1 })
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Whether a whole reply came, or the end.
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
        self.answered(&Raw::message(
            &doc! { "kauriUpgrade" => 1, "transport" => transport, "parameters" => parameters },
        ))
    }

    /// What answers the request that ends with these bytes.
    fn answered(&mut self, bytes: &[u8]) -> (SharedEnd, [u8; 8]) {
        self.send(bytes);
        let (mut bytes, mut beside) = ([0; 4096], Vec::new());
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
fn a_client_may_change_its_mind_until_it_has_used_the_ring() {
    let server = Server::start("mind", &[]);
    let mut raw = Raw::connect(&server);
    // Offered, and not taken; then switched, and not used.
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
    assert!(!raw.replied(), "it has used the ring, and goes on with the stream");
    server.tells("has left it", 1);
    // Twice is once too often.
    let mut raw = Raw::connect(&server);
    let _kept = raw.offer();
    let mut other = Raw::connect(&server);
    let mut end = other.switch();
    let parameters = Value::Binary { subtype: 0, bytes: shared_memory::request(0).into() };
    let again =
        doc! { "kauriUpgrade" => 1, "transport" => "sharedMemory", "parameters" => parameters };
    Raw::ask(&mut end, &Raw::message(&again));
    assert_eq!(server.status("sharedMemory.refused"), 1);
}

#[test]
fn a_lying_client_ends_its_own_session_and_no_other() {
    let server = Server::start("lies", &[]);
    let mut honest = server.shared();
    let lies: [(&str, fn(&mut SharedEnd, [u8; 8])); 7] = [
        ("impossible immediate", |end, _| end.fabric().write(0, [&[], &[], &[]], 0x7000_0000)),
        ("impossible immediate", |end, _| end.fabric().write(0, [&[], &[], &[]], 0x1fff_ffff)),
        ("impossible credit", |end, _| end.fabric().write(0, [&[], &[], &[]], 0x2000_0fff)),
        ("impossible credit", |end, probe| {
            end.fabric().write(0, [&[0xff; 8], &probe, &[]], 0x3000_0010);
        }),
        ("wrong probe", |end, probe| {
            end.probe(probe.map(|byte| byte ^ 1));
        }),
        ("wrong probe", |end, probe| {
            end.probe(probe);
            end.probe(probe);
        }),
        // Bytes of the stream before the probe.
        ("wrong probe", |end, _| {
            end.send(&Raw::ping(), &[]);
        }),
    ];
    for (words, lie) in lies {
        let before = server.log.lock().unwrap().matches(words).count();
        let mut raw = Raw::connect(&server);
        let (mut end, probe) = raw.offer();
        lie(&mut end, probe);
        assert!(!raw.replied(), "{words}");
        server.tells(words, before + 1);
        honest.command("admin", &doc! { "ping" => 1 }).unwrap();
    }
    // While the server does not look: frames that take a quarter of the ring each, five at once.
    let mut raw = Raw::connect(&server);
    let mut end = raw.switch();
    block(&mut honest, "ping", 500);
    end.send(&Raw::ping(), &[]);
    server.until("connections.active", 2);
    // They tell truly that the server's probe was consumed.
    let header = [1, 0, 0, 0, 1, 0, 0, 0];
    let used = 16 + (8 + Raw::ping().len() as u32).next_multiple_of(16);
    for at in [used, used + (64 << 10), used + (128 << 10), 0, 64 << 10] {
        end.fabric().write(at, [&header, &[], &[]], 0x1001_0000);
    }
    assert!(!raw.replied());
    server.tells("beyond the credit", 1);
    // Messages that cannot be, through a ring that is well.
    for message in [vec![0xff; 100], 5i32.to_le_bytes().repeat(10)] {
        let mut raw = Raw::connect(&server);
        let mut end = raw.switch();
        let before = server.log.lock().unwrap().matches("mstLen is invalid").count();
        end.send(&message, &[]);
        assert!(!raw.replied());
        server.tells("mstLen is invalid", before + 1);
    }
    server.until("sharedMemory.sessions", 1);
    honest.command("admin", &doc! { "ping" => 1 }).unwrap();
}

#[test]
fn who_goes_at_whatever_step_leaves_nothing_behind() {
    let server = Server::start("leaks", &[]);
    // Once, for what stays for good.
    drop(server.shared());
    server.until("sharedMemory.sessions", 0);
    server.until("connections.current", 1);
    let (before, watched) = (server.descriptors(), server.watched());
    // What some of the clients keep.
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

/// Has the next command of this name take so long.
fn block(connection: &mut Connection, name: &str, millis: i32) {
    let command = DocBuf::build(|out| {
        out.put("configureFailPoint", "failCommand");
        out.put("mode", doc! { "times" => 1 });
        let mut data = out.document("data");
        data.put("failCommands", kauri_bson::array![name]);
        data.put("blockConnection", true);
        data.put("blockTimeMS", millis);
    });
    connection.command("admin", &command).unwrap();
}

#[test]
fn a_server_that_dies_is_noticed_by_a_client_that_sleeps() {
    let mut server = Server::start("dies", &[]);
    let mut connection = server.connect("sharedMemory=require&spinMicros=0");
    block(&mut connection, "ping", 600_000);
    connection.send("admin", &doc! { "ping" => 1 }).unwrap();
    server.until("connections.active", 2);
    server.child.kill().unwrap();
    let error = connection.receive().unwrap_err();
    assert!(matches!(error, ClientError::Io(_)), "{error}");
}

#[test]
fn a_server_that_shuts_down_answers_first() {
    let server = Server::start("ends", &[]);
    let mut connection = server.shared();
    block(&mut connection, "find", 500);
    connection.send("test", &find(1)).unwrap();
    server.until("connections.active", 2);
    let mut other = server.connect("sharedMemory=off");
    other.send("admin", &doc! { "shutdown" => 1 }).unwrap();
    // That it shuts down is an answer too.
    let id = connection.receive().unwrap().response_to;
    assert!(id > 0);
    let error = connection.command("admin", &doc! { "ping" => 1 }).unwrap_err();
    assert!(matches!(error, ClientError::Io(_)), "{error}");
}

#[test]
fn a_reply_may_time_out() {
    let server = Server::start("slow", &[]);
    let mut connection = server.connect("sharedMemory=require&socketTimeoutMS=1000");
    block(&mut connection, "ping", 60_000);
    let ping = doc! { "ping" => 1 };
    let error = connection.command("admin", &ping).unwrap_err().to_string();
    assert!(error.contains("timed out"), "{error}");
    // Its late answer must not be taken for that to another request.
    let error = connection.command("admin", &ping).unwrap_err().to_string();
    assert!(error.contains("broken before"), "{error}");
    // The same for the answer to the request to change over.
    let mut other = server.connect("sharedMemory=off");
    block(&mut other, "kauriUpgrade", 3000);
    let error = Connection::open(&server.uri("socketTimeoutMS=1000")).unwrap_err().to_string();
    assert!(error.contains("timed out"), "{error}");
}

#[test]
fn who_asks_in_pieces_or_in_haste_is_answered_rightly() {
    let server = Server::start("pieces", &[]);
    let parameters = Value::Binary { subtype: 0, bytes: shared_memory::request(0).into() };
    let ask = Raw::message(
        &doc! { "kauriUpgrade" => 1, "transport" => "sharedMemory", "parameters" => parameters },
    );
    // In two pieces, the second of which comes when the first was read.
    let mut raw = Raw::connect(&server);
    let received = |server: &Server| {
        (0..2).map(|w| server.status(&format!("transportWorkers.{w}.receives"))).sum::<i64>()
    };
    let before = received(&server);
    raw.send(&ask[..30]);
    // Each look at the status is two receives for each of its two connections.
    eventually("the first piece is read", || (received(&server) - before) % 4 != 0);
    let (mut end, probe) = raw.answered(&ask[30..]);
    end.probe(probe);
    while end.look().unwrap().probe.is_none() {
        std::thread::yield_now();
    }
    assert_eq!(server.status("sharedMemory.withdrawn"), 0);
    // With something behind it: it stays with the stream.
    let mut raw = Raw::connect(&server);
    raw.send(&[ask.as_slice(), &Raw::ping()].concat());
    assert!(raw.replied() && raw.replied());
    assert_eq!(server.status("sharedMemory.withdrawn"), 1);
    // Without wanting an answer: there is no offer that another answer could bring.
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
    std::os::unix::fs::symlink(other.socket(), &beside).unwrap();
    let wrong = Connection::open(&uri).map(|connection| connection.transport());
    std::fs::remove_file(&beside).unwrap();
    std::os::unix::fs::symlink(server.socket(), &beside).unwrap();
    let right = Connection::open(&uri).map(|connection| connection.transport());
    std::fs::remove_file(&beside).unwrap();
    assert_eq!(wrong.unwrap(), Transport::Tcp);
    assert_eq!(right.unwrap(), Transport::SharedMemory);
}
