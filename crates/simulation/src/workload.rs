//! The clients' workloads.
//!
//! | client | does |
//! |---|---|
//! | [`lists`] | appends to lists and reads them, in all possible ways |
//! | [`claims`] | inserts and deletes documents with unique values |
//! | [`scans`] | reads a collection in small batches while its documents change |
//! | [`produces`], [`follows`] | insert into a capped collection, and tail it |
//! | [`defines`] | creates and drops collections and indexes; validation |
//! | [`locks`] | `fsync` with `lock`, and the unlock after a while |
//! | [`is_refused`] | commands that must be refused, each with its code |

use crate::client::Client;
use crate::history::{Append, Claim, Known, Moment, Read};
use kauri_base::virtual_time;
use kauri_bson::{DocBuf, Value, doc};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The database of all clients.
const DB: &str = "test";
/// Documents with lists.
pub const LISTS: u64 = 6;
/// Values that are claimed.
pub const VALUES: u64 = 12;
/// Documents that are scanned.
const FIXED: i64 = 24;
/// Bytes beside a list, at most.
const PAD_MAX: u64 = 1500;
/// The maximum wait of a tailing cursor, and the maximum delay of a document inserted meanwhile.
const AWAIT_MS: i64 = 2_000;
const LATE_NS_MAX: u64 = 500_000_000;

/// The code of a reply that is an error; 0.
fn code(reply: &DocBuf) -> i64 {
    match reply.as_doc().value("ok").as_f64_lossy() {
        Some(1.0) => 0,
        _ => reply.as_doc().value("code").to_i64_saturating().unwrap_or(-1),
    }
}

fn number(doc: &DocBuf, field: &str) -> i64 {
    doc.as_doc().value(field).to_i64_saturating().unwrap_or(-1)
}

/// The document with one field more.
fn with<'v>(doc: &DocBuf, field: &str, value: impl Into<Value<'v>>) -> DocBuf {
    let value = value.into();
    DocBuf::build(|out| {
        out.put_all(doc.as_doc());
        out.put(field, value);
    })
}

/// The documents of a cursor's batch, and its id.
fn batch(reply: &DocBuf) -> (Vec<DocBuf>, i64) {
    let Value::Document(cursor) = reply.as_doc().value("cursor") else { return (Vec::new(), -1) };
    let cursor = cursor.into_buf();
    let mut docs = Vec::new();
    for field in ["firstBatch", "nextBatch"] {
        if let Value::Array(array) = cursor.as_doc().value(field) {
            docs.extend(array.as_doc().iter().filter_map(|e| Some(e.as_doc()?.to_buf())));
        }
    }
    (docs, number(&cursor, "id"))
}

/// The code of the only statement's error; 0.
fn statement_code(reply: &DocBuf) -> i64 {
    let Value::Array(errors) = reply.as_doc().value("writeErrors") else { return 0 };
    let first = errors.as_doc().iter().next();
    first.and_then(|e| Some(number(&e.as_doc()?.to_buf(), "code"))).unwrap_or(0)
}

const OUT_OF_DISK_SPACE: i64 = 14_031;
const MAX_TIME_EXPIRED: i64 = 50;
const DUPLICATE_KEY: i64 = 11_000;
const NAMESPACE_NOT_FOUND: i64 = 26;
const CURSOR_NOT_FOUND: i64 = 43;
const INTERRUPTED: i64 = 11_601;

/// What a write's reply says of it. Codes that no server may give are faults.
fn known(client: &Client, reply: Option<&DocBuf>, what: &str) -> Known {
    let Some(reply) = reply else { return Known::Nothing };
    let code = match code(reply) {
        0 => statement_code(reply),
        code => code,
    };
    match code {
        0 => Known::Done(client.history.facts().tick()),
        OUT_OF_DISK_SPACE => Known::Refused,
        MAX_TIME_EXPIRED | INTERRUPTED => Known::Nothing,
        _ => {
            let reply = kauri_bson::shell_text(reply.as_doc());
            client.history.fault(format!("{what}: {reply}"));
            Known::Nothing
        }
    }
}

/// Creates what all others need, while no other client is connected.
pub async fn prepares(client: &mut Client) {
    let unique = doc! { "key" => doc! { "u" => 1 }, "name" => "u_1", "unique" => true };
    let fixed =
        (0..FIXED).map(|id| Value::from(doc! { "_id" => id, "n" => 0, "p" => "x".repeat(200) }));
    for command in [
        doc! { "createIndexes" => "claims", "indexes" => Value::array([Value::from(unique)]),
        "writeConcern" => doc! { "j" => true } },
        doc! { "create" => "log", "capped" => true, "size" => 200_000, "writeConcern" => doc! { "j" => true } },
        doc! { "insert" => "log", "documents" => Value::array([Value::from(doc! { "_id" => 0i64 })]),
        "writeConcern" => doc! { "j" => true } },
        doc! { "insert" => "fixed", "documents" => Value::array(fixed), "writeConcern" => doc! { "j" => true } },
    ] {
        if let Some(reply) = client.run(DB, command).await
            && code(&reply) + statement_code(&reply) != 0
        {
            client.history.fault(format!("preparing: {}", kauri_bson::shell_text(reply.as_doc())));
        }
    }
}

/// Reads all lists and all claims while no other client is connected, and validates everything.
pub async fn surveys(client: &mut Client) {
    let keys: Vec<u64> = (0..LISTS).collect();
    read_all(client, &keys, true).await;
    for value in 0..VALUES {
        let sent = client.history.facts().tick();
        let find = doc! { "find" => "claims", "filter" => doc! { "u" => value as i64 } };
        let scan = doc! { "find" => "claims", "filter" => doc! { "u" => value as i64 }, "hint" => doc! { "$natural" => 1 } };
        let (Some(found), Some(scanned)) = (client.run(DB, find).await, client.run(DB, scan).await)
        else {
            return;
        };
        let counts = (batch(&found).0.len(), batch(&scanned).0.len());
        if counts.0 != counts.1 || counts.0 > 1 {
            client.history.fault(format!("value {value}: {counts:?} documents by index and scan"));
        }
        note_look(client, value, counts.0 == 1, sent);
    }
    for collection in ["lists", "claims", "fixed", "log"] {
        validate(client, collection).await;
    }
}

async fn validate(client: &mut Client, collection: &str) {
    let command = doc! { "validate" => collection, "full" => true };
    let Some(reply) = client.run(DB, command).await else { return };
    match code(&reply) {
        0 if reply.as_doc().value("valid").truthy() => client.count("validate"),
        NAMESPACE_NOT_FOUND => {}
        _ => client
            .history
            .fault(format!("{collection}: {}", kauri_bson::shell_text(reply.as_doc()))),
    }
}

/// The padding of a list whose last value this is.
fn pad(value: u64) -> String {
    let letter = char::from(b'a' + (value % 26) as u8);
    let length = value.wrapping_mul(2_654_435_761) % PAD_MAX;
    letter.to_string().repeat(length as usize)
}

fn change(value: u64) -> DocBuf {
    doc! {
        "$push" => doc! { "l" => value as i64 }, "$inc" => doc! { "n" => 1 },
        "$set" => doc! { "p" => pad(value) },
    }
}

/// Appends to lists, and reads them.
pub async fn lists(client: &mut Client, operations: u64, values: &AtomicU64) {
    for _ in 0..operations {
        let key = client.dice.below(LISTS);
        match client.dice.below(10) {
            0..=3 => append(client, key, values).await,
            4 => append_and_see(client, key, values).await,
            5 | 6 => {
                let find = doc! { "find" => "lists", "filter" => doc! { "_id" => key as i64 } };
                read_one(client, key, find).await;
            }
            7 => {
                let stage = doc! { "$match" => doc! { "_id" => key as i64 } };
                let pipeline =
                    Value::array([Value::from(stage), Value::from(doc! { "$skip" => 0 })]);
                let command =
                    doc! { "aggregate" => "lists", "pipeline" => pipeline, "cursor" => doc! {} };
                read_one(client, key, command).await;
            }
            8 => read_all(client, &(0..LISTS).collect::<Vec<_>>(), false).await,
            _ => {
                if client.dice.percent(10) {
                    client.disconnect();
                }
                client.pause(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Notes an append that is about to be sent, and answers its place in the history.
fn note_append(client: &Client, key: u64, value: u64, durable: bool) -> usize {
    let mut facts = client.history.facts();
    let (sent, life) = (facts.tick(), facts.life);
    facts.appends.push(Append { key, value, sent, known: Known::Nothing, durable, life });
    facts.appends.len() - 1
}

fn note_known(client: &Client, at: usize, known: Known) {
    if let Some(append) = client.history.facts().appends.get_mut(at) {
        append.known = known;
    }
}

async fn append(client: &mut Client, key: u64, values: &AtomicU64) {
    let statements = if client.dice.percent(20) { 1 + client.dice.below(4) } else { 1 };
    let durable = client.dice.percent(30);
    let mut updates = Vec::new();
    let mut noted = Vec::new();
    client.connects().await;
    for statement in 0..statements {
        let value = values.fetch_add(1, Ordering::Relaxed);
        let key = (key + statement) % LISTS;
        updates.push(Value::from(doc! {
            "q" => doc! { "_id" => key as i64 }, "u" => change(value), "upsert" => true,
        }));
        noted.push(note_append(client, key, value, durable));
    }
    let mut command = doc! { "update" => "lists", "updates" => Value::array(updates) };
    if durable {
        command = with(&command, "writeConcern", doc! { "w" => 1, "j" => true });
    }
    if client.dice.percent(10) {
        command = with(&command, "maxTimeMS", 1 + client.dice.below(20) as i64);
    }
    let reply = client.run(DB, command).await;
    let known = known(client, reply.as_ref(), "append");
    match (known, reply) {
        (Known::Done(_), Some(reply)) if number(&reply, "n") != statements as i64 => {
            client
                .history
                .fault(format!("{statements} appends: {}", kauri_bson::shell_text(reply.as_doc())));
        }
        (Known::Done(_), Some(reply)) if reply.as_doc().get("writeConcernError").is_some() => {}
        // The first of several may have had its effect.
        (Known::Refused, _) if statements > 1 => {}
        _ => {
            noted.into_iter().for_each(|at| note_known(client, at, known));
            if matches!(known, Known::Done(_)) {
                client.count("append");
            }
        }
    }
}

async fn append_and_see(client: &mut Client, key: u64, values: &AtomicU64) {
    client.connects().await;
    let value = values.fetch_add(1, Ordering::Relaxed);
    let at = note_append(client, key, value, false);
    let life = client.life();
    let sent = client.history.facts().tick();
    let command = doc! {
        "findAndModify" => "lists", "query" => doc! { "_id" => key as i64 }, "update" => change(value),
        "new" => true, "upsert" => true,
    };
    let reply = client.run(DB, command).await;
    let known = known(client, reply.as_ref(), "findAndModify");
    note_known(client, at, known);
    let (Known::Done(answered), Some(reply)) = (known, reply) else { return };
    let Value::Document(document) = reply.as_doc().value("value") else {
        return client.history.fault("findAndModify without a value");
    };
    client.count("findAndModify");
    let list = list_of(client, &document.into_buf());
    if list.last() != Some(&value) {
        client.history.fault(format!("{value} is not the last of {list:?}"));
    }
    note_read(client, Read { key, list, sent, answered, life, alone: false });
}

/// The list of a document, which is whole.
fn list_of(client: &Client, doc: &DocBuf) -> Vec<u64> {
    let mut list = Vec::new();
    if let Value::Array(values) = doc.as_doc().value("l") {
        list.extend(
            values.as_doc().iter().filter_map(|e| Some(e.value().to_i64_saturating()? as u64)),
        );
    }
    let pad = list.last().map(|last| pad(*last)).unwrap_or_default();
    let is_whole =
        number(doc, "n") == list.len() as i64 && doc.as_doc().value("p").as_str() == Some(&pad);
    if !is_whole {
        client.history.fault(format!("a torn document: {}", kauri_bson::shell_text(doc.as_doc())));
    }
    list
}

fn note_read(client: &Client, read: Read) {
    client.history.facts().reads.push(read);
}

async fn read_one(client: &mut Client, key: u64, command: DocBuf) {
    client.connects().await;
    let (sent, life) = client.moment();
    let Some(reply) = client.run(DB, command).await else { return };
    if code(&reply) != 0 {
        return client.history.fault(format!("a read: {}", kauri_bson::shell_text(reply.as_doc())));
    }
    let docs = batch(&reply).0;
    let (answered, _) = client.moment();
    let list = docs.first().map(|doc| list_of(client, doc)).unwrap_or_default();
    note_read(client, Read { key, list, sent, answered, life, alone: false });
    client.count("read");
}

/// Reads the lists of these keys in one scan, in batches of any size.
async fn read_all(client: &mut Client, keys: &[u64], alone: bool) {
    client.connects().await;
    let (sent, life) = client.moment();
    let size = if alone { 1000 } else { 1 + client.dice.below(4) as i64 };
    let find = doc! { "find" => "lists", "filter" => doc! {}, "batchSize" => size };
    let Some(docs) = scan(client, "lists", find).await else { return };
    let (answered, _) = client.moment();
    let mut found = BTreeMap::new();
    for doc in &docs {
        let (key, list) = (number(doc, "_id") as u64, list_of(client, doc));
        if found.insert(key, list).is_some() {
            client.history.fault(format!("a scan returns {key} twice"));
        }
    }
    for key in keys {
        let list = found.remove(key).unwrap_or_default();
        note_read(client, Read { key: *key, list, sent, answered, life, alone });
    }
    client.count("readAll");
}

/// All documents of a cursor. `None`: the connection has ended, or it is a fault.
async fn scan(client: &mut Client, collection: &str, find: DocBuf) -> Option<Vec<DocBuf>> {
    let mut reply = client.run(DB, find).await?;
    let life = client.asked_life();
    let mut docs = Vec::new();
    loop {
        if code(&reply) == CURSOR_NOT_FOUND && client.asked_life() != life {
            return None;
        }
        if code(&reply) != 0 {
            client.history.fault(format!("a scan: {}", kauri_bson::shell_text(reply.as_doc())));
            return None;
        }
        let (more, id) = batch(&reply);
        docs.extend(more);
        if id == 0 {
            return Some(docs);
        }
        if client.dice.percent(50) {
            client.pause(Duration::from_millis(3)).await;
        }
        let size = 1 + client.dice.below(7) as i64;
        let command = doc! { "getMore" => id, "collection" => collection, "batchSize" => size };
        reply = client.run(DB, command).await?;
    }
}

/// Records a read of a value: it counts as an insert with a duplicate if the value exists, and as a delete without
/// a match if it does not.
fn note_look(client: &Client, value: u64, is_there: bool, sent: Moment) {
    let mut facts = client.history.facts();
    let (known, life) = (Known::Done(facts.tick()), facts.life);
    facts.claims.push(Claim { value, insert: is_there, sent, known, effect: false, life });
}

/// Claims values and gives them up.
pub async fn claims(client: &mut Client, operations: u64, ids: &AtomicU64) {
    for _ in 0..operations {
        client.connects().await;
        let value = client.dice.below(VALUES);
        let insert = client.dice.percent(55);
        let (sent, life) = client.moment();
        let at = {
            let mut facts = client.history.facts();
            facts.claims.push(Claim {
                value,
                insert,
                sent,
                known: Known::Nothing,
                effect: true,
                life,
            });
            facts.claims.len() - 1
        };
        let concern = doc! { "w" => 1, "j" => true };
        let command = if insert {
            let doc =
                doc! { "_id" => ids.fetch_add(1, Ordering::Relaxed) as i64, "u" => value as i64 };
            doc! { "insert" => "claims", "documents" => Value::array([Value::from(doc)]), "writeConcern" => concern }
        } else {
            let delete = doc! { "q" => doc! { "u" => value as i64 }, "limit" => 1 };
            doc! { "delete" => "claims", "deletes" => Value::array([Value::from(delete)]), "writeConcern" => concern }
        };
        let reply = client.run(DB, command).await;
        let duplicate =
            reply.as_ref().is_some_and(|r| code(r) == 0 && statement_code(r) == DUPLICATE_KEY);
        let known = match duplicate {
            true => Known::Done(client.history.facts().tick()),
            false => known(client, reply.as_ref(), "claim"),
        };
        let effect = !duplicate && reply.is_none_or(|r| number(&r, "n") != 0);
        if let Some(claim) = client.history.facts().claims.get_mut(at) {
            (claim.known, claim.effect) = (known, effect);
        }
        if matches!(known, Known::Done(_)) {
            client.count(if insert { "insert" } else { "delete" });
        }
    }
}

/// Scans documents that others change, none of which comes or goes.
pub async fn scans(client: &mut Client, operations: u64) {
    for _ in 0..operations {
        if client.dice.percent(60) {
            let id = client.dice.below(FIXED as u64) as i64;
            let p = "y".repeat(client.dice.below(PAD_MAX) as usize);
            let update = doc! {
                "q" => doc! { "_id" => id }, "u" => doc! { "$set" => doc! { "p" => p }, "$inc" => doc! { "n" => 1 } },
            };
            let command =
                doc! { "update" => "fixed", "updates" => Value::array([Value::from(update)]) };
            let reply = client.run(DB, command).await;
            known(client, reply.as_ref(), "update");
            continue;
        }
        let sort = doc! { "_id" => if client.dice.percent(50) { 1 } else { -1 } };
        let mut find = doc! { "find" => "fixed", "filter" => doc! {}, "batchSize" => client.dice.below(7) as i64 };
        if client.dice.percent(50) {
            find = with(&find, "sort", sort);
        }
        let Some(docs) = scan(client, "fixed", find).await else { continue };
        let mut ids: Vec<i64> = docs.iter().map(|doc| number(doc, "_id")).collect();
        ids.sort_unstable();
        if ids != (0..FIXED).collect::<Vec<_>>() {
            client.history.fault(format!("a scan of {FIXED} documents returns {ids:?}"));
        }
        client.count("scan");
    }
}

/// The documents inserted into the capped collection.
#[derive(Default)]
pub struct Produced {
    /// The life of the server that acknowledged each number, and the time, in nanoseconds of the world.
    acked: Mutex<BTreeMap<u64, (u32, u64)>>,
    /// From this number on all were acknowledged by the server's present life.
    first_of_life: AtomicU64,
    /// All are produced.
    is_over: AtomicBool,
}

impl Produced {
    fn acked_ns(&self, id: u64, by: u32) -> Option<u64> {
        let acked = self.acked.lock().unwrap_or_else(PoisonError::into_inner);
        acked.get(&id).and_then(|(life, at_ns)| (*life == by).then_some(*at_ns))
    }
}

/// Inserts into the capped collection, one number after the other.
pub async fn produces(client: &mut Client, operations: u64, produced: &Produced) {
    let mut life = 0;
    for id in 1..=operations {
        client.connects().await;
        let now = client.life();
        if std::mem::replace(&mut life, now) != now || id == 1 {
            produced.first_of_life.store(id, Ordering::Relaxed);
        }
        let documents = Value::array([Value::from(doc! { "_id" => id as i64 })]);
        let reply = client.run(DB, doc! { "insert" => "log", "documents" => documents }).await;
        if let Known::Done(_) = known(client, reply.as_ref(), "produce") {
            let mut acked = produced.acked.lock().unwrap_or_else(PoisonError::into_inner);
            acked.insert(id, (client.asked_life(), virtual_time::peek_ns()));
            drop(acked);
            client.count("produce");
        } else {
            // It may be there or not: what follows is contiguous again from the next on.
            produced.first_of_life.store(id + 1, Ordering::Relaxed);
        }
        let at_most = if client.dice.percent(10) { 3_000 } else { 40 };
        client.pause(Duration::from_millis(at_most)).await;
    }
    produced.is_over.store(true, Ordering::Relaxed);
}

/// Tails the capped collection until all is produced.
pub async fn follows(client: &mut Client, produced: &Produced) {
    while !produced.is_over.load(Ordering::Relaxed) {
        let find = doc! {
            "find" => "log", "filter" => doc! {}, "tailable" => true, "awaitData" => true,
        };
        if let Some(reply) = client.run(DB, find).await {
            follow(client, reply, produced).await;
        }
    }
}

/// Follows one cursor until it or its connection ends, or all is produced.
async fn follow(client: &mut Client, first: DocBuf, produced: &Produced) {
    let (mut reply, mut last, mut sent_ns) = (first, None::<u64>, 0);
    let life = client.asked_life();
    loop {
        if code(&reply) == CURSOR_NOT_FOUND && client.asked_life() != life {
            return;
        }
        if code(&reply) != 0 {
            let reply = kauri_bson::shell_text(reply.as_doc());
            return client.history.fault(format!("tailing: {reply}"));
        }
        // The first that the cursor had not returned when it was asked.
        let next_ns = last.and_then(|last| produced.acked_ns(last + 1, life));
        let waited_ns = next_ns.map(|ns| virtual_time::peek_ns().saturating_sub(ns.max(sent_ns)));
        if sent_ns > 0 && waited_ns > Some(LATE_NS_MAX) {
            client
                .history
                .fault(format!("tailing: what follows {last:?} is late: {waited_ns:?} ns"));
        }
        let (docs, id) = batch(&reply);
        for doc in &docs {
            let number = number(doc, "_id") as u64;
            let first = produced.first_of_life.load(Ordering::Relaxed);
            let follows =
                last.is_none_or(|last| number == last + 1 || (number > last && last < first));
            if !follows {
                client.history.fault(format!("tailing: {number} after {last:?}"));
            }
            last = Some(number);
        }
        if id == 0 || produced.is_over.load(Ordering::Relaxed) {
            return;
        }
        let command = doc! { "getMore" => id, "collection" => "log", "maxTimeMS" => AWAIT_MS };
        sent_ns = virtual_time::peek_ns();
        match client.run(DB, command).await {
            Some(next) => reply = next,
            None => return,
        }
        client.count("tail");
    }
}

/// Has collections and indexes come and go.
pub async fn defines(client: &mut Client, operations: u64) {
    // Of what is not there, or there already, or was stopped by another definition.
    const EXPECTED: [i64; 7] = [0, NAMESPACE_NOT_FOUND, 27, 48, 276, 12_587, OUT_OF_DISK_SPACE];
    for _ in 0..operations {
        let index = |field: &str| {
            doc! { "key" => doc! { field => 1 }, "name" => format!("{field}_1") }
        };
        let one = Value::from(doc! { "a" => "z".repeat(client.dice.below(PAD_MAX) as usize) });
        let command = match client.dice.below(8) {
            0 => {
                doc! { "createIndexes" => "lists", "indexes" => Value::array([Value::from(index("n"))]) }
            }
            1 => {
                doc! { "createIndexes" => "lists", "indexes" => Value::array([Value::from(index("l"))]) }
            }
            2 => doc! { "dropIndexes" => "lists", "index" => "n_1" },
            3 => doc! { "dropIndexes" => "lists", "index" => "l_1" },
            4 => doc! { "drop" => "temporary" },
            5 => doc! { "insert" => "temporary", "documents" => Value::array([one]) },
            6 => {
                doc! { "createIndexes" => "fixed", "indexes" => Value::array([Value::from(index("n"))]) }
            }
            _ => {
                let collection = client.dice.pick(&["lists", "claims", "fixed"]).copied();
                validate(client, collection.unwrap_or("lists")).await;
                continue;
            }
        };
        let shown = kauri_bson::shell_text(command.as_doc());
        if let Some(reply) = client.run(DB, command).await {
            if !EXPECTED.contains(&(code(&reply) + statement_code(&reply))) {
                let reply = kauri_bson::shell_text(reply.as_doc());
                client.history.fault(format!("{shown}: {reply}"));
            }
            client.count("define");
        }
        client.pause(Duration::from_millis(10)).await;
    }
}

/// Keeps writers out for a while.
pub async fn locks(client: &mut Client, operations: u64) {
    for _ in 0..operations {
        client.pause(Duration::from_millis(100)).await;
        let Some(reply) = client.run("admin", doc! { "fsync" => 1, "lock" => true }).await else {
            continue;
        };
        let (locked, life) = client.moment();
        if code(&reply) != 0 {
            client.history.fault(format!("fsync: {}", kauri_bson::shell_text(reply.as_doc())));
            continue;
        }
        client.pause(Duration::from_millis(20)).await;
        let (unlocked, now) = client.moment();
        if now == client.asked_life() && now == life {
            client.history.facts().locks.push((locked, unlocked));
            client.run("admin", doc! { "fsyncUnlock" => 1 }).await;
            client.count("lock");
        }
    }
}

/// Sends what must be refused.
pub async fn is_refused(client: &mut Client, operations: u64) {
    for _ in 0..operations {
        let by_id = || doc! { "find" => "lists", "filter" => doc! { "_id" => 1 } };
        let insert = |concern: DocBuf| {
            let documents = Value::array([Value::from(doc! { "_id" => 1 })]);
            doc! { "insert" => "refused", "documents" => documents, "writeConcern" => concern }
        };
        let cases = [
            (DB, with(&by_id(), "bogus", 1), 40_415),
            (DB, with(&by_id(), "maxTimeMS", -1), 2),
            (DB, with(&by_id(), "apiVersion", "2"), 322),
            ("a.b", by_id(), 73),
            (DB, doc! { "listDatabases" => 1 }, 13),
            (DB, doc! { "noSuchCommand" => 1 }, 59),
            (DB, doc! { "getMore" => 77i64, "collection" => "lists" }, 43),
            (DB, insert(doc! { "w" => 2 }), 2),
        ];
        let Some((database, command, expected)) = client.dice.pick(&cases) else { return };
        if let Some(reply) = client.run(database, command.clone()).await {
            if code(&reply) != *expected {
                let (command, reply) = (
                    kauri_bson::shell_text(command.as_doc()),
                    kauri_bson::shell_text(reply.as_doc()),
                );
                client.history.fault(format!("{command} is not refused by {expected}: {reply}"));
            }
            client.count("refused");
        }
        client.pause(Duration::from_millis(10)).await;
    }
}
