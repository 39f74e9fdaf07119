//! Sessions between two hosts when the network or the clients' host fails.
//!
//! tests/lab/two runs this program on each host: `rdma_tests --server` and `rdma_tests --clients`. All RDMA
//! traffic is UDP to one port; the clients' host blocks and unblocks it. TCP is not blocked: a session over TCP
//! pings all the time and must see no fault.

use crate::leaks::{used, used_of};
use crate::rig::process::within;
use crate::rig::{Server, Way, address, eventually, find, found, insert, status};
use kauri_bson::{DocBuf, doc};
use kauri_client::{ClientError, Connection};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PORT: u16 = 27017;
/// An outage that a session survives. Sides give up after more than 7 s, and emulation is slow in between.
const OUTAGE: Duration = Duration::from_secs(1);
/// Within this time both sides give up a session whose packets are lost.
const GIVEN_UP: Duration = Duration::from_secs(20);
/// Within this time the server notices that a client's host is gone: 20 s of its keepalive, and a margin.
const NOTICED: Duration = Duration::from_secs(30);
/// Interval of the server host's checks, which would otherwise use its only processor.
const PAUSE: Duration = Duration::from_millis(200);
/// Time limit of the clients' own work; emulation is slow.
const CLIENTS: Duration = Duration::from_secs(240);

/// The server's host. It serves until the clients' host is about to die, then frees the clients' resources.
pub fn server() {
    let server = Server::start_at("two", PORT, &["--rdma", "require"]);
    let mut local = server.open(Way::Unix);
    let dying = |connection: &mut Connection| {
        let query = doc! { "_id" => "dying" };
        let count = doc! { "count" => "words", "query" => query };
        let reply = connection.command("lab", &count).unwrap();
        reply.as_doc().value("n").to_i64_saturating() == Some(1)
    };
    within(CLIENTS, PAUSE, "the clients come to their end", || dying(&mut local));
    let failures = server.process.told("RDMA session failed");
    assert!(failures >= 1, "the log reports the lost reply");
    hold_finds(&mut local, "off");
    let dead = Instant::now();
    within(NOTICED, PAUSE, "all resources are freed", || {
        local.command("admin", &doc! { "ping" => 1 }).unwrap();
        used(&server) == [0; 4]
    });
    println!(
        "two: the resources of a dead host were freed after {} ms",
        dead.elapsed().as_millis()
    );
    assert_eq!(server.status("rdma.verbs.leaks"), 0);
    local.command("test", &find(1)).unwrap();
}

fn connect(options: &str) -> Result<Connection, ClientError> {
    let uri =
        format!("mongodb://{}:{PORT}/?sharedMemory=off&socketTimeoutMS=60000&{options}", address());
    Connection::open(&uri.parse().unwrap())
}

fn over_rdma() -> Connection {
    connect("rdma=require").unwrap()
}

fn over_tcp() -> Connection {
    connect("rdma=off").unwrap()
}

/// A fault of RDMA packets in both directions, until it is dropped.
struct Fault;

impl Fault {
    /// All packets are lost.
    fn cut() -> Fault {
        Fault::new("")
    }

    /// One packet in `one_in` is lost.
    fn losing(one_in: &str) -> Fault {
        Fault::new(&format!("action pass random netrand pipe {one_in}"))
    }

    /// Packets that this action passes on are lost. They go to a device that swallows them. Soft-RoCE would
    /// notice a packet dropped on its way out; it does not notice a loss in the network.
    fn new(action: &str) -> Fault {
        change_filters(|way| {
            format!(
                "filter add dev eth0 {way} protocol ip prio 1 u32 match ip protocol 17 0xff \
                 match ip dport 4791 0xffff {action} action mirred egress redirect dev sink\n"
            )
        });
        Fault
    }
}

/// Changes the filters of both directions, by one process.
fn change_filters(line: impl Fn(&str) -> String) {
    let lines: String = ["ingress", "egress"].into_iter().map(line).collect();
    let mut tc = Command::new("tc").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    tc.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(tc.wait().unwrap().success(), "tc {lines}");
}

impl Drop for Fault {
    fn drop(&mut self) {
        change_filters(|way| format!("filter del dev eth0 {way} prio 1\n"));
    }
}

/// A session over TCP that pings as long as it lives.
struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Witness {
    fn start() -> Witness {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut connection, stopped) = (over_tcp(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut worst = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                connection.command("admin", &doc! { "ping" => 1 }).unwrap();
                worst = worst.max(began.elapsed());
            }
            worst
        });
        Witness { stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let worst = self.thread.join().expect("a session over TCP has noticed");
        println!("two: the longest ping over TCP during the faults took {} ms", worst.as_millis());
        // Shorter than the time after which a session over RDMA is given up.
        assert!(worst < Duration::from_secs(6), "a session over TCP has waited {worst:?}");
    }
}

/// The clients' host. It is stopped at the end.
pub fn clients() {
    eventually("the server listens", || connect("rdma=off").is_ok());
    let mut tcp = over_tcp();
    let witness = Witness::start();
    for (name, test) in [
        ("every request is a frame", every_request_is_a_frame as fn(&mut Connection)),
        ("lost packets are sent again", lost_packets_are_sent_again),
        ("a session outlives an outage", a_session_outlives_an_outage),
        ("a cut ends what was under way, with an error", a_cut_ends_what_was_under_way),
    ] {
        let began = Instant::now();
        test(&mut tcp);
        println!("two: {name}: ok ({} ms)", began.elapsed().as_millis());
    }
    witness.end();
    die(&mut tcp);
}

fn every_request_is_a_frame(tcp: &mut Connection) {
    const SIZES: [usize; 6] = [0, 1000, 16_300, 65_536, 300_000, 1 << 20];
    let mut connection = over_rdma();
    let before = ["framesIn", "framesOut"].map(|count| status(tcp, &format!("rdma.{count}")));
    for (id, bytes) in SIZES.into_iter().enumerate() {
        connection.command("test", &insert(id as i32, bytes)).unwrap();
        let reply = connection.command("test", &find(id as i32)).unwrap();
        assert!(found(&reply) == crate::rig::payload(bytes, id), "{bytes} bytes");
    }
    for (count, before) in ["framesIn", "framesOut"].into_iter().zip(before) {
        let spent = status(tcp, &format!("rdma.{count}")) - before;
        assert!(spent >= 2 * SIZES.len() as i64, "{count}: {spent}");
    }
}

/// Checks that the reply to the find arrived intact, on the same session.
fn is_answered(connection: &mut Connection) {
    let reply = connection.receive().unwrap().checked().unwrap();
    assert!(found(&reply) == crate::rig::payload(1000, 1));
}

fn lost_packets_are_sent_again(tcp: &mut Connection) {
    let mut connection = over_rdma();
    let switched = status(tcp, "rdma.switched");
    let fault = Fault::losing("40");
    for id in 100..120 {
        connection.command("test", &insert(id, 5000)).unwrap();
        let reply = connection.command("test", &find(id)).unwrap();
        assert!(found(&reply) == crate::rig::payload(5000, id as usize));
    }
    drop(fault);
    assert_eq!(status(tcp, "rdma.switched"), switched);
}

/// Sends a find that the server executes and does not answer until [`release`].
fn ask_held(tcp: &mut Connection, connection: &mut Connection) {
    hold_finds(tcp, "alwaysOn");
    let before = status(tcp, "rdma.framesIn");
    connection.send("test", &find(1)).unwrap();
    eventually("the server has it", || status(tcp, "rdma.framesIn") > before);
}

/// Lets the server answer the finds that are held.
fn release(tcp: &mut Connection) {
    let before = status(tcp, "rdma.framesOut");
    hold_finds(tcp, "off");
    eventually("the server has replied", || status(tcp, "rdma.framesOut") > before);
}

fn hold_finds(connection: &mut Connection, mode: &str) {
    let point = "waitInFindBeforeMakingBatch";
    let command = doc! { "configureFailPoint" => point, "mode" => mode };
    connection.command("admin", &command).unwrap();
}

fn a_session_outlives_an_outage(tcp: &mut Connection) {
    let mut connection = over_rdma();
    let switched = status(tcp, "rdma.switched");
    // A request that does not come through, and then a reply.
    for is_reply in [false, true] {
        let cut = if is_reply {
            ask_held(tcp, &mut connection);
            let cut = Fault::cut();
            release(tcp);
            cut
        } else {
            let cut = Fault::cut();
            connection.send("test", &find(1)).unwrap();
            cut
        };
        std::thread::sleep(OUTAGE);
        assert!(!connection.has_ended(), "the session has not survived the outage");
        assert!(connection.is_quiet(), "a packet has arrived");
        drop(cut);
        is_answered(&mut connection);
    }
    assert_eq!(status(tcp, "rdma.switched"), switched);
}

/// The use of the server's device by sessions.
fn used_there(tcp: &mut Connection) -> [i64; 4] {
    used_of(|name| status(tcp, &format!("rdma.{name}")))
}

fn a_cut_ends_what_was_under_way(tcp: &mut Connection) {
    eventually("earlier sessions have ended", || used_there(tcp) == [0; 4]);
    let [mut asking, mut waiting, mut idle] = [(); 3].map(|()| over_rdma());
    ask_held(tcp, &mut waiting);
    let cut = Fault::cut();
    release(tcp);
    let began = Instant::now();
    asking.send("test", &find(1)).unwrap();
    for (who, connection) in [("asks", &mut asking), ("waits for a reply", &mut waiting)] {
        let error = connection.receive().unwrap_err();
        println!(
            "two: the session that {who} fails after {} ms: {error}",
            began.elapsed().as_millis()
        );
        assert!(matches!(error, ClientError::Io(_)), "{error}");
        assert!(began.elapsed() < GIVEN_UP, "{:?}", began.elapsed());
    }
    // The idle session notices when it sends.
    let began = Instant::now();
    let error = idle.send("test", &find(1)).and_then(|_| idle.receive()).unwrap_err();
    assert!(matches!(error, ClientError::Io(_)), "{error}");
    assert!(began.elapsed() < GIVEN_UP, "{:?}", began.elapsed());
    drop([asking, waiting, idle]);
    eventually("all resources are freed", || used_there(tcp) == [0; 4]);
    // A client that connects now has no RDMA; it gets an error or continues without it.
    let error = connect("rdma=require").unwrap_err();
    assert!(matches!(error, ClientError::Required(_) | ClientError::Io(_)), "{error}");
    let mut fallen = connect("rdma=auto").unwrap();
    println!("two: without RDMA: {}", fallen.fallback().unwrap());
    fallen.command("admin", &doc! { "ping" => 1 }).unwrap();
    drop(cut);
    let mut connection = over_rdma();
    connection.send("test", &find(1)).unwrap();
    is_answered(&mut connection);
    drop(connection);
    eventually("all resources are freed", || used_there(tcp) == [0; 4]);
}

/// Ends the host with sessions that are idle, that wait for a reply, and that are in the middle of a message.
fn die(tcp: &mut Connection) -> ! {
    let [idle, mut waiting, mut halfway] = [(); 3].map(|()| over_rdma());
    halfway.send_message(&crate::rig::message(&doc! { "ping" => 1 })[..20]).unwrap();
    ask_held(tcp, &mut waiting);
    assert_eq!(status(tcp, "rdma.sessions"), 3);
    let word: DocBuf = doc! { "_id" => "dying" };
    let command = doc! { "insert" => "words", "documents" => kauri_bson::array![word] };
    tcp.command("lab", &command).unwrap();
    println!("lab: this host dies now");
    let _kept = (idle, waiting, halfway);
    loop {
        std::thread::park();
    }
}
