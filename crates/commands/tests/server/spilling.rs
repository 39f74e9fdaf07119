//! Queries that exceed their memory limit: disk use, rejected queries, reported figures.

use crate::common::{Client, TestServer, at, code_of, cursor_id, first_batch, number, show, until};
use kauri_base::temporary::{MemoryStore, TemporaryFile, TemporaryStore, Transfer};
use kauri_base::{Error, ErrorCode};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_storage::ephemeral::EphemeralEngine;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const LIMITS: &[(&str, &str)] = &[
    ("internalQueryMaxBlockingSortMemoryUsageBytes", "20000"),
    ("internalDocumentSourceGroupMaxMemoryBytes", "20000"),
    ("internalDocumentSourceSetWindowFieldsMaxMemoryBytes", "20000"),
    ("internalDocumentSourceBucketAutoMaxMemoryBytes", "20000"),
];

fn start(store: Arc<dyn TemporaryStore>, workers: usize) -> TestServer {
    TestServer::start_with(0, Arc::new(EphemeralEngine::new()), workers, LIMITS, store)
}

/// Inserts many times the memory limit of sorts and groups.
fn fill(client: &Client) {
    let one = |n: i32| doc! { "_id" => n, "k" => n * 7919 % 2003, "pad" => "p".repeat(100) };
    client.insert("c", (0..2000).map(one));
}

fn find() -> DocBuf {
    doc! { "find" => "c", "sort" => doc! { "k" => 1 }, "batchSize" => 5000 }
}

fn aggregate(stage: DocBuf) -> DocBuf {
    let cursor = doc! { "batchSize" => 5000 };
    doc! { "aggregate" => "c", "pipeline" => array![stage], "cursor" => cursor }
}

fn group() -> DocBuf {
    aggregate(doc! { "$group" => doc! { "_id" => "$k", "ids" => doc! { "$push" => "$_id" } } })
}

/// A command for each stage that spills.
fn commands() -> Vec<DocBuf> {
    let output = doc! { "rank" => doc! { "$rank" => doc! {} } };
    vec![
        find(),
        aggregate(doc! { "$sort" => doc! { "k" => -1 } }),
        group(),
        aggregate(doc! { "$sortByCount" => "$k" }),
        aggregate(doc! { "$bucketAuto" => doc! {
        "groupBy" => "$k", "buckets" => 7, "output" => doc! { "p" => doc! { "$max" => "$pad" } } } }),
        aggregate(doc! { "$setWindowFields" => doc! {
        "partitionBy" => "$k", "sortBy" => doc! { "_id" => 1 }, "output" => output } }),
    ]
}

fn with(command: &DocBuf, name: &str, value: impl Into<Value<'static>>) -> DocBuf {
    let value = value.into();
    DocBuf::build(|out| {
        out.put_all(command.as_doc());
        out.put_value(name, &value);
    })
}

#[test]
fn queries_spill_to_disk_by_default() {
    let store = Arc::new(MemoryStore::new());
    let test = start(store.clone(), 2);
    let client = test.client();
    fill(&client);
    let sorted = first_batch(&client.ok(find()));
    let keys: Vec<i64> = sorted.iter().map(|row| number(row, "k")).collect();
    assert!(keys.len() == 2000 && keys.is_sorted());
    assert_eq!(first_batch(&client.ok(group())).len(), 2000);
    for command in commands() {
        client.ok(command.clone());
        client.ok(with(&command, "allowDiskUse", true));
        assert_eq!(client.fails(with(&command, "allowDiskUse", false)), 292, "{}", show(&command));
        assert_eq!(client.fails(with(&command, "allowDiskUse", "yes")), 14);
        assert_eq!((store.files(), store.bytes_used()), (0, 0));
    }
    // If spilling isn't the default, the command must allow it.
    let default = |allowed: bool| {
        client.admin().ok(doc! { "setParameter" => 1, "allowDiskUseByDefault" => allowed });
    };
    default(false);
    for command in commands() {
        assert_eq!(client.fails(command.clone()), 292, "{}", show(&command));
        client.ok(with(&command, "allowDiskUse", true));
    }
    default(true);
    // The best few rows fit into memory.
    client.ok(with(&with(&find(), "limit", 50), "allowDiskUse", false));
}

#[test]
fn temporary_files_end_with_their_cursor() {
    let store = Arc::new(MemoryStore::new());
    let test = start(store.clone(), 2);
    let client = test.client();
    fill(&client);
    let some = || {
        let reply =
            client.ok(doc! { "find" => "c", "sort" => doc! { "k" => 1 }, "batchSize" => 3 });
        assert!(store.bytes_used() > 100_000 && store.files() > 0);
        cursor_id(&reply)
    };
    let id = some();
    let more = client.ok(doc! { "getMore" => id, "collection" => "c", "batchSize" => 3 });
    assert_eq!(cursor_id(&more), id);
    client.ok(doc! { "killCursors" => "c", "cursors" => array![id] });
    assert_eq!((store.files(), store.bytes_used()), (0, 0));
    // The cursor is exhausted.
    let id = some();
    client.ok(doc! { "getMore" => id, "collection" => "c", "batchSize" => 5000 });
    assert_eq!(store.files(), 0);
    // Its collection is dropped.
    some();
    client.ok(doc! { "drop" => "c" });
    assert_eq!(client.fails(doc! { "getMore" => id, "collection" => "c" }), 43);
}

#[test]
fn a_full_disk_fails_only_the_spilling_operation() {
    let store = Arc::new(MemoryStore::new());
    let test = start(store.clone(), 2);
    let client = test.client();
    fill(&client);
    for count in [0, 3, 100] {
        let full = Error::new(ErrorCode::OutOfDiskSpace, "no space left on device");
        store.fail_after(count, full);
        for command in commands() {
            assert_eq!(client.fails(command.clone()), 14031, "{}", show(&command));
            assert_eq!((store.files(), store.bytes_used()), (0, 0));
            client.insert("other", [doc! { "a" => 1 }]);
            client.ok(doc! { "find" => "c", "filter" => doc! { "k" => 5 } });
        }
    }
}

/// Transfers that complete when the test releases them. When the test ends they fail, so that no operation
/// waits for ever.
#[derive(Default)]
struct Held {
    jobs: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    over: AtomicBool,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.jobs.lock().unwrap().is_empty()
    }

    fn do_all(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock().unwrap());
        jobs.into_iter().for_each(|job| job());
    }
}

struct HeldUntilEnd(Arc<Held>);

impl Drop for HeldUntilEnd {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.jobs.lock().unwrap().clear();
    }
}

struct HeldStore {
    memory: MemoryStore,
    held: Arc<Held>,
}

struct HeldFile {
    file: Arc<dyn TemporaryFile>,
    held: Arc<Held>,
}

impl HeldFile {
    fn later(
        &self,
        work: impl FnOnce(&dyn TemporaryFile) -> Transfer + Send + 'static,
    ) -> Transfer {
        let ((transfer, completion), file) = (Transfer::new(), self.file.clone());
        let mut jobs = self.held.jobs.lock().unwrap();
        if self.held.over.load(Ordering::SeqCst) {
            return transfer;
        }
        jobs.push(Box::new(move || match work(&*file).take() {
            Ok(kauri_base::Access::Ready(bytes)) => completion.complete(Ok(bytes)),
            _ => drop(completion),
        }));
        transfer
    }
}

impl TemporaryStore for HeldStore {
    fn file(&self) -> Arc<dyn TemporaryFile> {
        Arc::new(HeldFile { file: self.memory.file(), held: self.held.clone() })
    }

    fn bytes_used(&self) -> u64 {
        self.memory.bytes_used()
    }
}

impl TemporaryFile for HeldFile {
    fn write(&self, offset: u64, bytes: Vec<u8>) -> Transfer {
        self.later(move |file| file.write(offset, bytes))
    }

    fn read(&self, offset: u64, buffer: Vec<u8>) -> Transfer {
        self.later(move |file| file.read(offset, buffer))
    }
}

#[test]
fn a_slow_disk_does_not_block_the_worker() {
    let held = Arc::new(Held::default());
    let store = Arc::new(HeldStore { memory: MemoryStore::new(), held: held.clone() });
    let test = start(store.clone(), 1);
    let _until_end = HeldUntilEnd(held.clone());
    let (client, other) = (test.client(), test.client());
    fill(&client);
    for command in commands() {
        client.send(&command);
        until("something is spilled", || !held.is_empty());
        // The only worker replies while the disk does not.
        other.ok(doc! { "ping" => 1 });
        other.insert("other", [doc! { "a" => 1 }]);
        let mut reply = None;
        while reply.is_none() {
            held.do_all();
            reply = client.receive_within(std::time::Duration::from_millis(1));
        }
        assert_eq!(code_of(&reply.unwrap()), 0, "{}", show(&command));
    }
    // A killed operation ends when the disk has replied, and leaves no file.
    client.send(&find());
    until("something is spilled", || !held.is_empty());
    let mut id = None;
    until("the operation is shown", || {
        let reply = other.admin().ok(doc! { "currentOp" => 1, "ns" => "test.c" });
        let Value::Array(all) = reply.as_doc().value("inprog") else { return false };
        id = all.as_doc().first().and_then(|e| e.as_doc()?.value("opid").as_i64_exact());
        id.is_some()
    });
    other.admin().ok(doc! { "killOp" => 1, "op" => id.unwrap() });
    held.do_all();
    assert_eq!(code_of(&client.receive().unwrap()), 11601);
    held.jobs.lock().unwrap().clear();
    assert_eq!((store.memory.files(), store.bytes_used()), (0, 0));
}

fn explained(client: &Client, command: DocBuf) -> DocBuf {
    client.ok(doc! { "explain" => command, "verbosity" => "executionStats" })
}

#[test]
fn spilled_amounts_are_reported() {
    let test = start(Arc::new(MemoryStore::new()), 2);
    let client = test.client();
    fill(&client);
    let reply = explained(&client, find());
    let sort = at(&at(&reply, "executionStats"), "executionStages");
    assert_eq!(sort.as_doc().value("stage").as_str(), Some("SORT"), "{}", show(&reply));
    assert_eq!(sort.as_doc().value("usedDisk"), Value::Bool(true));
    assert_eq!((number(&sort, "memLimit"), number(&sort, "spilledRecords")), (20_000, 2000));
    assert!(number(&sort, "spills") > 10 && number(&sort, "spilledBytes") > 200_000);
    assert!(number(&sort, "spilledDataStorageSize") > 200_000);
    for command in commands().split_off(2) {
        let reply = explained(&client, command);
        let Value::Array(stages) = reply.as_doc().value("stages") else {
            panic!("{}", show(&reply))
        };
        let stage = stages.as_doc().iter().nth(1).unwrap().as_doc().unwrap().to_buf();
        assert_eq!(stage.as_doc().value("usedDisk"), Value::Bool(true), "{}", show(&reply));
        assert!(number(&stage, "spills") > 0 && number(&stage, "spilledBytes") > 0);
        assert!(number(&stage, "spilledRecords") > 0 && number(&stage, "nReturned") > 0);
    }
    let planned = client.ok(doc! { "explain" => find(), "verbosity" => "queryPlanner" });
    let plan = at(&at(&planned, "queryPlanner"), "winningPlan");
    assert_eq!(number(&plan, "memLimit"), 20_000, "{}", show(&planned));

    let status = client.admin().ok(doc! { "serverStatus" => 1 });
    let query = at(&at(&status, "metrics"), "query");
    assert!(number(&at(&query, "sort"), "spillToDisk") > 10);
    assert!(number(&at(&query, "sort"), "totalKeysSorted") >= 2000);
    for stage in ["group", "bucketAuto", "setWindowFields"] {
        assert!(number(&at(&query, stage), "spills") > 0, "{stage}");
        assert!(number(&at(&query, stage), "spilledRecords") > 0, "{stage}");
    }
}

#[test]
fn limits_are_parameters() {
    let test = TestServer::start();
    let admin = test.client().admin();
    let set =
        |name: &str, value: i64| code_of(&admin.run(&doc! { "setParameter" => 1, name => value }));
    for (name, _) in LIMITS {
        let reply = admin.ok(doc! { "getParameter" => 1, *name => 1 });
        assert_eq!(number(&reply, name), 100 * 1024 * 1024);
        assert_eq!((set(name, -1), set(name, 11)), (2, 0));
        let least = i64::from(!name.contains("Sort"));
        assert_eq!((set(name, 0) == 0, set(name, 1)), (least == 0, 0), "{name}");
    }
}
