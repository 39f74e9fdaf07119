//! Writes that wait for the log or for a claim, on either path. They are in `currentOp`, and `killOp` and
//! `maxTimeMS` end their wait.

use crate::common::{
    Client, TestServer, at, code_of, first_batch, lsid, number, show, text, until,
};
use kauri_base::temporary::MemoryStore;
use kauri_base::ticket::TicketSource;
use kauri_base::{Access, Error, ErrorCode, Result, Ticket};
use kauri_bson::{DocBuf, KeyStringBuilder, Value, array, doc};
use kauri_catalog::KeyScratch;
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{
    CommitTicket, Committer, LocalCommitter, StorageEngine, StorageError, Transaction, WriteUnit,
};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The progress of the log: the last written and the last durable commit.
#[derive(Default)]
struct Log(Mutex<LogState>);

struct LogState {
    commits: u64,
    reached: [u64; 2],
    waiting: Vec<Waker>,
    is_broken: bool,
}

impl Default for LogState {
    fn default() -> Self {
        LogState { commits: 0, reached: [u64::MAX; 2], waiting: Vec::new(), is_broken: false }
    }
}

/// The indexes into [`LogState::reached`].
const WRITTEN: usize = 0;
const DURABLE: usize = 1;

impl Log {
    /// Commits from now on wait for this durability.
    fn hold(&self, durability: usize) {
        let mut state = self.0.lock().unwrap();
        state.reached[durability] = state.commits;
    }

    /// Acknowledges all commits so far.
    fn catch_up(&self) {
        let waiting = {
            let mut state = self.0.lock().unwrap();
            let commits = state.commits;
            state.reached.iter_mut().for_each(|reached| *reached = commits.max(*reached));
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Acknowledges all commits, also future ones.
    fn release(&self) {
        self.0.lock().unwrap().reached = [u64::MAX; 2];
        self.catch_up();
    }

    /// Fails all waiting and future commits.
    fn fail(&self) {
        let waiting = {
            let mut state = self.0.lock().unwrap();
            state.is_broken = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn is_waited_for(&self) -> bool {
        !self.0.lock().unwrap().waiting.is_empty()
    }
}

impl TicketSource for Log {
    fn poll_ticket(&self, number: u64, waker: &Waker) -> Poll<Result<()>> {
        let mut state = self.0.lock().unwrap();
        if number / 2 <= state.reached[(number % 2) as usize] {
            return Poll::Ready(Ok(()));
        }
        if state.is_broken {
            return Poll::Ready(Err(Error::new(ErrorCode::FileStreamFailed, "the log is broken")));
        }
        state.waiting.push(waker.clone());
        Poll::Pending
    }
}

/// Commits to the engine; the test's log acknowledges the commits.
struct Held {
    inner: LocalCommitter,
    log: Arc<Log>,
}

impl Committer for Held {
    fn commit(&self, unit: &mut WriteUnit<'_>) -> std::result::Result<CommitTicket, StorageError> {
        let seq = self.inner.commit(unit)?.seq;
        let number = {
            let mut state = self.log.0.lock().unwrap();
            state.commits += 1;
            state.commits
        };
        let ticket = |place: usize| Ticket::new(self.log.clone(), 2 * number + place as u64);
        Ok(CommitTicket::new(seq, Some(ticket(WRITTEN)), Some(ticket(DURABLE))))
    }
}

struct World {
    test: TestServer,
    log: Arc<Log>,
    client: Client,
    other: Client,
}

impl World {
    fn start(is_ordinary: bool) -> World {
        let engine: Arc<dyn StorageEngine> = Arc::new(EphemeralEngine::new());
        let log = Arc::new(Log::default());
        let committer = Held { inner: LocalCommitter(engine.clone()), log: log.clone() };
        let ways: (_, Arc<dyn Committer>) = (engine, Arc::new(committer));
        let store = Arc::new(MemoryStore::new());
        let test = TestServer::start_committing(0, ways, 2, &[], store);
        let (client, other) = (test.client(), test.client());
        client.insert("c", (0..4).map(|n| doc! { "_id" => n }));
        if is_ordinary {
            // While a failpoint is set, every request goes the ordinary way.
            client.admin().ok(doc! {
                "configureFailPoint" => "failCommand", "mode" => "alwaysOn",
                "data" => doc! { "failCommands" => array!["nothing"] },
            });
        }
        World { test, log, client, other }
    }

    /// The operation on the collection; waits until there is one.
    fn waiting(&self) -> DocBuf {
        let mut found = None;
        until("an operation that waits", || {
            let reply = self.other.admin().ok(doc! { "currentOp" => 1, "ns" => "test.c" });
            let Value::Array(list) = reply.as_doc().value("inprog") else { panic!("no list") };
            found = list.as_doc().first().and_then(|e| e.as_doc()).map(|op| op.to_buf());
            found.is_some()
        });
        found.unwrap()
    }

    /// The same, once it waits for the log. The entry of an ordinary operation exists before its commit.
    fn waiting_for_log(&self) -> DocBuf {
        until("a wait for the log", || self.log.is_waited_for());
        self.waiting()
    }

    fn kill(&self, op: &DocBuf) {
        self.other.admin().ok(doc! { "killOp" => 1, "op" => number(op, "opid") });
    }

    /// Whether this command, which does not wait, takes the express path. Operations on the ordinary path have
    /// numbers.
    fn is_express(&self, command: &DocBuf) -> bool {
        let before = self.test.server.operations.next_id();
        self.client.ok(command.clone());
        self.test.server.operations.next_id() == before + 1
    }
}

/// Writes by `_id`, each of another document.
fn writes(id: i32, concern: &DocBuf) -> [DocBuf; 3] {
    let update = doc! { "q" => doc! { "_id" => 0 }, "u" => doc! { "$set" => doc! { "a" => id } } };
    let delete = doc! { "q" => doc! { "_id" => id }, "limit" => 1 };
    [
        doc! { "update" => "c", "updates" => array![update], "writeConcern" => concern },
        doc! {
            "insert" => "c", "documents" => array![doc! { "_id" => id }], "lsid" => lsid(9),
            "writeConcern" => concern,
        },
        doc! {
            "delete" => "c", "deletes" => array![delete], "maxTimeMS" => 60_000,
            "writeConcern" => concern,
        },
    ]
}

fn concerns() -> [(usize, DocBuf); 3] {
    [
        (WRITTEN, doc! { "w" => 1 }),
        (DURABLE, doc! { "w" => 1, "j" => true }),
        (DURABLE, doc! { "w" => "majority", "wtimeout" => 5 }),
    ]
}

#[test]
fn a_write_that_waits_for_the_log_is_listed_and_can_be_killed() {
    let replies = [false, true].map(|is_ordinary| {
        let world = World::start(is_ordinary);
        let mut replies = Vec::new();
        for (number_, (durability, concern)) in concerns().iter().enumerate() {
            let id = 10 + number_ as i32;
            for command in writes(20 + id, concern) {
                assert_eq!(world.is_express(&command), !is_ordinary, "{}", show(&command));
            }
            for command in writes(id, concern) {
                world.log.hold(*durability);
                world.client.send(&command);
                let op = world.waiting_for_log();
                let name = command.as_doc().first().unwrap().key().to_owned();
                assert_eq!(text(&op, "op"), if name == "delete" { "remove" } else { &name });
                assert_eq!(text(&at(&op, "command"), &name), "c");
                assert_eq!(op.as_doc().get("lsid").is_some(), name == "insert");
                world.kill(&op);
                let reply = world.client.receive().unwrap();
                assert_eq!((code_of(&reply), number(&reply, "n")), (0, 1), "{}", show(&reply));
                let error = at(&reply, "writeConcernError");
                assert_eq!(number(&error, "code"), 11601, "{}", show(&reply));
                replies.push(show(&reply));
                world.log.release();
            }
            // The interrupted operation was executed: the document was inserted and deleted.
            let found = world.client.ok(doc! { "find" => "c", "filter" => doc! { "_id" => 0 } });
            assert_eq!(number(&first_batch(&found)[0], "a"), i64::from(id));
            assert_eq!(world.client.ids("c", doc! { "_id" => id }), Vec::<i64>::new());
        }
        replies
    });
    assert_eq!(replies[0], replies[1]);
    let first = "{ n: 1, nModified: 1, writeConcernError: { code: 11601, codeName: \"Interrupted\", \
                 errmsg: \"operation was interrupted\" }, ok: 1.0 }";
    assert_eq!(replies[0][0], first);
}

#[test]
fn a_time_limit_ends_the_wait_for_the_log() {
    for is_ordinary in [false, true] {
        for (durability, concern) in concerns() {
            let world = World::start(is_ordinary);
            let command = doc! {
                "insert" => "c", "documents" => array![doc! { "_id" => 10 }], "maxTimeMS" => 1,
                "writeConcern" => concern,
            };
            world.log.hold(durability);
            world.client.send(&command);
            // The server's time stands still until there is an operation to interrupt.
            world.waiting_for_log();
            world.test.clock.advance(Duration::from_secs(1));
            let reply = world.client.receive().unwrap();
            let error = at(&reply, "writeConcernError");
            assert_eq!(text(&error, "codeName"), "MaxTimeMSExpired", "{}", show(&reply));
            assert_eq!(number(&reply, "n"), 1);
            world.log.release();
            assert_eq!(world.client.ids("c", doc! { "_id" => 10 }), [10]);
        }
    }
}

#[test]
fn a_waiting_write_is_acknowledged_when_the_log_has_it() {
    for is_ordinary in [false, true] {
        let world = World::start(is_ordinary);
        for (place, (durability, concern)) in concerns().into_iter().enumerate() {
            for command in writes(10 + place as i32, &concern) {
                world.log.hold(durability);
                world.client.send(&command);
                let op = world.waiting_for_log();
                assert_eq!(op.as_doc().value("killPending"), Value::Bool(false));
                world.log.catch_up();
                let reply = world.client.receive().unwrap();
                assert_eq!((code_of(&reply), number(&reply, "n")), (0, 1), "{}", show(&reply));
                assert!(reply.as_doc().get("writeConcernError").is_none(), "{}", show(&reply));
                let running = world.other.admin().ok(doc! { "currentOp" => 1, "ns" => "test.c" });
                assert_eq!(running.as_doc().value("inprog"), Value::array([]));
            }
        }
        // A concern of w:1 does not wait for durability.
        world.log.release();
        world.log.hold(DURABLE);
        assert_eq!(world.is_express(&writes(30, &doc! { "w" => 1 })[1]), !is_ordinary);
    }
}

#[test]
fn a_failed_log_fails_its_waiting_write() {
    let outcomes = [false, true].map(|is_ordinary| {
        let world = World::start(is_ordinary);
        world.log.hold(WRITTEN);
        let command = writes(10, &doc! { "w" => 1 })[1].clone();
        world.client.send(&command);
        world.waiting_for_log();
        world.log.fail();
        let waited = world.client.receive().unwrap();
        let at_once = world.client.run(&writes(11, &doc! { "w" => 1 })[1]);
        assert_eq!(text(&waited, "codeName"), "FileStreamFailed", "{}", show(&waited));
        let status = world.client.ok(doc! { "serverStatus" => 1 });
        let counts = at(&at(&at(&status, "metrics"), "commands"), "insert");
        (show(&waited), show(&at_once), show(&counts))
    });
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(outcomes[0].2, "{ failed: 2, total: 3 }");
}

#[test]
fn a_write_that_waits_only_for_its_tick_has_no_entry() {
    let world = World::start(false);
    let log = world.log.clone();
    world.test.executor.on_tick_end(Arc::new(move || log.catch_up()));
    world.log.hold(WRITTEN);
    world.log.hold(DURABLE);
    for id in 100..400 {
        let command = doc! { "insert" => "c", "documents" => array![doc! { "_id" => id }] };
        assert!(world.is_express(&command), "{id} became an operation");
    }
    assert!(!world.log.is_waited_for());
}

#[test]
fn a_write_that_waits_for_a_claim_is_listed_and_can_be_ended() {
    let world = World::start(false);
    let update = doc! { "q" => doc! { "_id" => 1 }, "u" => doc! { "$set" => doc! { "a" => 1 } } };
    let command = |extra: DocBuf| {
        DocBuf::build(|w| {
            w.put("update", "c");
            w.put_value("updates", &array![update.clone()]);
            w.put_all(extra.as_doc());
        })
    };
    let transaction = claim(&world.test, 1);
    world.client.send(&command(doc! { "comment" => "kill" }));
    world.kill(&world.waiting());
    assert_eq!(code_of(&world.client.receive().unwrap()), 11601);
    world.client.send(&command(doc! { "maxTimeMS" => 1 }));
    world.waiting();
    world.test.clock.advance(Duration::from_secs(1));
    assert_eq!(code_of(&world.client.receive().unwrap()), 50);
    world.client.send(&command(doc! { "maxTimeMS" => 60_000 }));
    world.waiting();
    drop(transaction);
    let reply = world.client.receive().unwrap();
    assert_eq!((code_of(&reply), number(&reply, "nModified")), (0, 1), "{}", show(&reply));
}

/// A transaction that has claimed this document to delete it.
fn claim(test: &TestServer, id: i32) -> Transaction {
    let mut transaction = Transaction::begin(test.server.backend.engine()).unwrap();
    let collection = test.server.catalog.collection("test.c").unwrap();
    let mut key = KeyStringBuilder::default();
    let id = doc! { "" => id };
    key.append_elem(id.as_doc().first().unwrap(), false);
    let mut unit = WriteUnit::new();
    let reader = transaction.unit();
    reader.enter();
    let index = collection.id_index().unwrap();
    let Access::Ready(Some(record)) = index.find(reader, key.bytes()).unwrap() else {
        panic!("no record")
    };
    let Access::Ready(Some(found)) = collection.get(reader, record).unwrap() else {
        panic!("no document")
    };
    let scratch = &mut KeyScratch::default();
    collection.delete(&mut unit, record, found.version, found.doc, scratch).unwrap();
    transaction.unit().leave();
    assert!(matches!(transaction.write(&mut unit), Ok(Access::Ready(()))));
    transaction
}
