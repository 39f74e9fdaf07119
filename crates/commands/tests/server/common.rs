//! Fixture: a server on the in-memory engine and transport with a manual clock, and clients that send commands.

use kauri_base::clock::SeededRandom;
use kauri_base::temporary::{MemoryStore, TemporaryStore};
use kauri_base::{Clock, RandomSource};
use kauri_bson::{Doc, DocBuf, DocWriter, Value, doc};
use kauri_catalog::Catalog;
use kauri_commands::cursors::CursorManager;
use kauri_commands::server::{Machine, ProcessMemory};
use kauri_commands::spilling::SpillSettings;
use kauri_commands::{CommandService, Server, StartInfo};
use kauri_member::{Member, SetCommitter};
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{Backend, Committer, LocalCommitter, StorageEngine};
use kauri_transport::fake::{FakeClient, FakeTransport};
use kauri_transport::{ExecutorOptions, ServiceExecutor, SessionManager, TransportLayer};
use kauri_wire::{Message, MsgWriter};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any operation takes, so that a hang becomes a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The initial time of the clock, in milliseconds since 1970.
pub const START_MS: i64 = 1_700_000_000_000;

/// A clock that stands still until the test advances it, or that advances at each read.
#[derive(Default)]
pub struct TestClock {
    passed_us: AtomicU64,
    look_us: AtomicU64,
}

impl TestClock {
    pub fn advance(&self, time: Duration) {
        self.passed_us.fetch_add(time.as_micros() as u64, Ordering::SeqCst);
    }

    /// From now on, each read of the clock advances it by this time.
    pub fn pass_at_looks(&self, time: Duration) {
        self.look_us.store(time.as_micros() as u64, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn unix_ms(&self) -> i64 {
        START_MS + self.passed_us.load(Ordering::SeqCst) as i64 / 1000
    }

    fn monotonic(&self) -> Duration {
        // Not zero, so that times in the past exist.
        let look_us = self.look_us.load(Ordering::Relaxed);
        let passed_us = self.passed_us.fetch_add(look_us, Ordering::SeqCst);
        Duration::from_secs(1_000_000) + Duration::from_micros(passed_us)
    }
}

/// A server, stopped when it is dropped.
pub struct TestServer {
    pub server: Arc<Server>,
    pub clock: Arc<TestClock>,
    pub executor: Arc<ServiceExecutor>,
    /// The requests of `shutdown`.
    pub shutdowns: Mutex<mpsc::Receiver<u64>>,
    manager: Arc<SessionManager>,
    transport: FakeTransport,
}

/// The `hello` of another server.
fn greeting(host: &str) -> Result<DocBuf, String> {
    match host.split(':').next() {
        Some("down") => Err("Connection refused".to_owned()),
        Some("alone") => Ok(doc! { "ok" => 1.0 }),
        Some("taken") => Ok(doc! { "ok" => 1.0, "setName" => "rs9" }),
        _ => Ok(doc! { "ok" => 1.0, "isreplicaset" => true }),
    }
}

impl TestServer {
    pub fn start() -> TestServer {
        TestServer::start_on(Arc::new(EphemeralEngine::new()), 2, &[])
    }

    /// A server on this engine, with this many workers and these parameters.
    pub fn start_on(
        engine: Arc<dyn StorageEngine>,
        workers: usize,
        parameters: &[(&str, &'static str)],
    ) -> TestServer {
        TestServer::start_within(0, engine, workers, parameters)
    }

    /// The same, with this many bytes of memory (0: unknown).
    pub fn start_within(
        memory: u64,
        engine: Arc<dyn StorageEngine>,
        workers: usize,
        parameters: &[(&str, &'static str)],
    ) -> TestServer {
        let store = Arc::new(MemoryStore::new());
        TestServer::start_with(memory, engine, workers, parameters, store)
    }

    /// The same, whose operations spill to this store.
    pub fn start_with(
        memory: u64,
        engine: Arc<dyn StorageEngine>,
        workers: usize,
        parameters: &[(&str, &'static str)],
        store: Arc<dyn TemporaryStore>,
    ) -> TestServer {
        let committer = Arc::new(LocalCommitter(engine.clone()));
        TestServer::start_committing(memory, (engine, committer), workers, parameters, store)
    }

    /// A member of a set, whose view and answers are the test's.
    pub fn start_member_on(engine: Arc<dyn StorageEngine>, member: Arc<Member>) -> TestServer {
        let committer = Arc::new(LocalCommitter(engine.clone()));
        let store = Arc::new(MemoryStore::new());
        TestServer::start_whole(0, (engine, committer), 2, &[], store, Some(member))
    }

    /// The same, with this committer.
    pub fn start_committing(
        memory: u64,
        (engine, committer): (Arc<dyn StorageEngine>, Arc<dyn Committer>),
        workers: usize,
        parameters: &[(&str, &'static str)],
        store: Arc<dyn TemporaryStore>,
    ) -> TestServer {
        TestServer::start_whole(memory, (engine, committer), workers, parameters, store, None)
    }

    fn start_whole(
        memory: u64,
        (engine, committer): (Arc<dyn StorageEngine>, Arc<dyn Committer>),
        workers: usize,
        parameters: &[(&str, &'static str)],
        store: Arc<dyn TemporaryStore>,
        member: Option<Arc<Member>>,
    ) -> TestServer {
        let clock = Arc::new(TestClock::default());
        let flushed = engine.clone();
        let random: Arc<dyn RandomSource> = Arc::new(SeededRandom::new(11));
        let committer = match &member {
            None => committer,
            Some(member) => {
                let statements = member.statements().clone();
                Arc::new(SetCommitter::new(engine.clone(), statements, clock.clone()))
            }
        };
        let backend = Backend::new(engine, committer, clock.clone(), random.clone());
        let has_frames =
            backend.engine().replicated_log().is_ok_and(|log| log.frames().last.index > 0);
        let catalog = match has_frames {
            true => Catalog::open_member(&backend).unwrap(),
            false => Catalog::open(&backend).unwrap(),
        };
        if has_frames {
            catalog.lead().unwrap();
        }
        let (shutdown, shutdowns) = mpsc::channel();
        let server = Arc::new(Server {
            operation_memory: Default::default(),
            cursors: CursorManager::new(clock.clone(), random.clone()),
            plans: Default::default(),
            backend,
            catalog: Arc::new(catalog),
            process_id: [1; 12],
            operations: Default::default(),
            parameters: Default::default(),
            #[cfg(feature = "lock-experiment")]
            locks: Default::default(),
            fail_points: Default::default(),
            start: start_info(memory),
            clock: clock.clone(),
            spilling: SpillSettings::new(store),
            random,
            counters: Default::default(),
            usage: Default::default(),
            memory: Box::new(ProcessMemory::default),
            system: Box::new(|out| out.document("cpu").put("user_ms", 7i64)),
            sessions: Default::default(),
            profiling: Default::default(),
            profiler: Default::default(),
            shutdown: Box::new(move |seconds| {
                let _ = shutdown.send(seconds);
            }),
            rotate_log: Box::new(|_| Ok(())),
            fsync_lock: Default::default(),
            auto_compact: Default::default(),
            member,
            is_self: Arc::new(|host| host == "alias:1"),
            greet: Some(Arc::new(|_, host| Box::pin(std::future::ready(greeting(host))))),
            slow_ms: AtomicI64::new(1_000_000),
            stopping: Default::default(),
        });
        server.follow_parameters();
        server.parameters.set_at_startup("enableTestCommands", Value::Bool(true)).unwrap();
        for (name, value) in parameters {
            server.parameters.set_at_startup(name, Value::from(*value)).unwrap();
        }
        #[cfg(feature = "lock-experiment")]
        server.locks.set_up(&server.parameters).unwrap();
        let options = ExecutorOptions { workers, ..Default::default() };
        let executor = ServiceExecutor::start(&options).unwrap();
        executor.on_tick_end(Arc::new(move || flushed.flush()));
        let service = Arc::new(CommandService::new(server.clone()));
        let manager = SessionManager::new(executor.clone(), service, 1_000);
        let mut transport = FakeTransport::default();
        transport.setup().unwrap();
        transport.start(&manager).unwrap();
        let shutdowns = Mutex::new(shutdowns);
        TestServer { server, clock, executor, shutdowns, manager, transport }
    }

    pub fn client(&self) -> Client {
        Client { pipe: Arc::new(self.transport.connect().unwrap()), database: "test".to_owned() }
    }

    /// A client with this address.
    pub fn client_from(&self, remote: &str) -> Client {
        let pipe = self.transport.connect_from(remote).unwrap();
        Client { pipe: Arc::new(pipe), database: "test".to_owned() }
    }

    /// Runs a future on a worker until it ends.
    pub fn run(&self, future: impl Future<Output = ()> + Send + 'static) {
        let (done, ended) = mpsc::channel();
        self.executor.workers()[0].spawn(async move {
            future.await;
            let _ = done.send(());
        });
        ended.recv_timeout(PATIENCE).unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.server.stopping.store(true, Ordering::Release);
        self.transport.shutdown();
        self.manager.shutdown(PATIENCE);
        self.executor.shutdown();
    }
}

fn start_info(memory: u64) -> StartInfo {
    StartInfo {
        argv: vec!["kauri".to_owned()],
        parsed: DocBuf::new(),
        host: "test:1".to_owned(),
        member_host: "test:1".to_owned(),
        port: 1,
        dbpath: String::new(),
        started_ms: START_MS,
        pid: 1,
        machine: Machine { memory_limit_bytes: memory, ..Machine::default() },
        revision: "test",
    }
}

/// A client's connection.
pub struct Client {
    pipe: Arc<FakeClient>,
    /// The database that receives the commands.
    pub database: String,
}

impl Client {
    /// The message that carries a command to the client's database.
    pub fn message(&self, command: &DocBuf) -> Vec<u8> {
        let mut message = Vec::new();
        let writer = MsgWriter::begin(&mut message, 1, 0, 0);
        {
            let mut body = DocWriter::new(&mut message);
            body.put_all(command.as_doc());
            body.put("$db", self.database.as_str());
        }
        writer.finish(&mut message).unwrap();
        message
    }

    /// Sends a command and does not wait for its reply.
    pub fn send(&self, command: &DocBuf) {
        self.send_bytes(&self.message(command));
    }

    /// Sends raw bytes.
    pub fn send_bytes(&self, bytes: &[u8]) {
        self.pipe.send(bytes);
    }

    /// The next message from the server; none if the connection ended.
    pub fn receive_bytes(&self) -> Option<Vec<u8>> {
        self.pipe.receive(PATIENCE)
    }

    /// Waits until the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.pipe.wait_closed(PATIENCE)
    }

    /// The next reply; none if the connection ended.
    pub fn receive(&self) -> Option<DocBuf> {
        self.receive_within(PATIENCE)
    }

    pub fn receive_within(&self, patience: Duration) -> Option<DocBuf> {
        let message = self.pipe.receive(patience)?;
        let (_, Message::Msg(reply)) = Message::parse(&message).unwrap() else {
            panic!("no OP_MSG");
        };
        Some(Doc::from_bytes(reply.body).unwrap().to_buf())
    }

    /// Runs a command and returns its reply, successful or not.
    pub fn run(&self, command: &DocBuf) -> DocBuf {
        self.send(command);
        self.receive().unwrap_or_else(|| panic!("no reply to {}", show(command)))
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub fn ok(&self, command: DocBuf) -> DocBuf {
        let reply = self.run(&command);
        assert_eq!(code_of(&reply), 0, "{} -> {}", show(&command), show(&reply));
        reply
    }

    /// Runs a command that must fail and returns the code.
    #[track_caller]
    pub fn fails(&self, command: DocBuf) -> i64 {
        let reply = self.run(&command);
        let code = code_of(&reply);
        assert_ne!(code, 0, "{} -> {}", show(&command), show(&reply));
        code
    }

    /// The same connection, for commands to another database.
    pub fn on(&self, database: &str) -> Client {
        Client { pipe: self.pipe.clone(), database: database.to_owned() }
    }

    pub fn admin(&self) -> Client {
        self.on("admin")
    }

    #[track_caller]
    pub fn insert(&self, collection: &str, docs: impl IntoIterator<Item = DocBuf>) {
        let docs = Value::array(docs.into_iter().map(Value::from));
        let reply = self.ok(doc! { "insert" => collection, "documents" => docs });
        assert!(reply.as_doc().get("writeErrors").is_none(), "{}", show(&reply));
    }

    /// The `_id`s of the documents that match, in order.
    #[track_caller]
    pub fn ids(&self, collection: &str, filter: DocBuf) -> Vec<i64> {
        let reply = self.ok(doc! {
            "find" => collection, "filter" => filter, "sort" => doc! { "_id" => 1 },
            "projection" => doc! { "_id" => 1 }, "batchSize" => 100_000,
        });
        first_batch(&reply).iter().map(|d| number(d, "_id")).collect()
    }

    #[track_caller]
    pub fn all_ids(&self, collection: &str) -> Vec<i64> {
        self.ids(collection, doc! {})
    }

    /// Fails unless `validate` finds the collection and its indexes sound.
    #[track_caller]
    pub fn validate(&self, collection: &str) {
        let reply = self.ok(doc! { "validate" => collection, "full" => true });
        assert_eq!(reply.as_doc().value("valid"), Value::Bool(true), "{}", show(&reply));
    }

    /// The names of the collection's indexes.
    #[track_caller]
    pub fn index_names(&self, collection: &str) -> Vec<String> {
        let reply = self.ok(doc! { "listIndexes" => collection });
        first_batch(&reply).iter().map(|d| text(d, "name")).collect()
    }
}

/// The code of a failed command; 0 if it succeeded.
pub fn code_of(reply: &DocBuf) -> i64 {
    match reply.as_doc().value("ok").as_f64_lossy() {
        Some(1.0) => 0,
        _ => number(reply, "code"),
    }
}

/// The code and the message with which a command fails; 0 and the reply if it succeeds.
pub fn refusal(client: &Client, command: DocBuf) -> (i64, String) {
    let reply = client.run(&command);
    match code_of(&reply) {
        0 => (0, show(&reply)),
        code => (code, text(&reply, "errmsg")),
    }
}

/// The positions of the statements that failed, and their codes.
pub fn write_errors(reply: &DocBuf) -> Vec<(i64, i64)> {
    let Value::Array(errors) = reply.as_doc().value("writeErrors") else { return Vec::new() };
    let error = |error: DocBuf| (number(&error, "index"), number(&error, "code"));
    errors.as_doc().iter().map(|e| error(e.as_doc().unwrap().to_buf())).collect()
}

/// The documents of a cursor's first batch.
pub fn first_batch(reply: &DocBuf) -> Vec<DocBuf> {
    let cursor = at(reply, "cursor");
    let Value::Array(batch) = cursor.as_doc().value("firstBatch") else { panic!("no batch") };
    batch.as_doc().iter().map(|e| e.as_doc().unwrap().to_buf()).collect()
}

pub fn cursor_id(reply: &DocBuf) -> i64 {
    number(&at(reply, "cursor"), "id")
}

/// The embedded document of this name.
#[track_caller]
pub fn at(doc: &DocBuf, field: &str) -> DocBuf {
    match doc.as_doc().value(field) {
        Value::Document(inner) => inner.into_buf(),
        _ => panic!("no document {field} in {}", show(doc)),
    }
}

#[track_caller]
pub fn number(doc: &DocBuf, field: &str) -> i64 {
    let value = doc.as_doc().value(field);
    value.as_i64_exact().unwrap_or_else(|| panic!("no number {field} in {}", show(doc)))
}

#[track_caller]
pub fn text(doc: &DocBuf, field: &str) -> String {
    let value = doc.as_doc().value(field);
    value.as_str().unwrap_or_else(|| panic!("no text {field} in {}", show(doc))).to_owned()
}

pub fn show(doc: &DocBuf) -> String {
    kauri_bson::shell_text(doc.as_doc())
}

/// Waits until `condition` holds. Other threads bring the condition about.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

/// An `lsid`.
pub fn lsid(n: u8) -> DocBuf {
    doc! { "id" => Value::Binary { subtype: 4, bytes: vec![n; 16].into() } }
}
