//! What clients do with documents.
//!
//! | program | does |
//! |---|---|
//! | [`lists`] | appends to lists, and reads them |
//! | [`own`] | inserts, changes and deletes documents that no other client has |
//! | [`streams`] | inserts into a capped collection, and what expires |
//! | [`operates`] | has members step down and up, and changes priorities |

use super::client::{Answer, Client, batch, code, number, text, with};
use kauri_base::Clock;
use kauri_base::virtual_time::VirtualClock;
use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_consistency::lists::{Outcome, Step, Transaction};
use std::collections::BTreeMap;
use std::time::Duration;

/// The database of documents.
pub const DB: &str = "test";
/// Number of lists.
pub const LISTS: u64 = 5;
/// The numbers of clients whose reads are of the order of their session, not of real time, begin here.
pub const CAUSAL: u64 = 100;
/// Numbers of one client's documents.
const OWN_RANGE: i64 = 1_000_000;
const DUPLICATE_KEY: i64 = 11_000;
const NAMESPACE_EXISTS: i64 = 48;
/// How long documents that expire live, in seconds.
pub const EXPIRE_SECS: i64 = 2;

/// The documents of a client that must be there, by `_id`, with the number of their changes; `None`: nobody knows.
pub type Own = BTreeMap<i64, Option<i64>>;

/// Documents of a collection whose indexes come and go.
const BULK: i64 = 250;

/// Creates what all others need. Each may be there already.
pub async fn prepares(client: &mut Client) -> Result<(), String> {
    let index = |key: &str, unique: bool| {
        let spec = doc! { "key" => doc! { key => 1 }, "name" => format!("{key}_1") };
        Value::from(if unique { with(&spec, "unique", true) } else { spec })
    };
    let expiry =
        doc! { "key" => doc! { "at" => 1 }, "name" => "at_1", "expireAfterSeconds" => EXPIRE_SECS };
    let indexes = |name: &str, list: Vec<Value<'_>>| {
        doc! { "createIndexes" => name, "indexes" => Value::array(list), "writeConcern" => doc! { "w" => "majority" } }
    };
    let bulk = (0..BULK).map(|id| {
        let t = Value::array((0..id % 4).map(Value::from));
        Value::from(doc! { "_id" => id, "v" => id * 7 % 50, "a" => id % 9, "t" => t })
    });
    let bulk = Value::array(bulk);
    for command in [
        indexes("lists", vec![index("n", false)]),
        indexes("own", vec![index("u", true), index("t", false)]),
        indexes("expiring", vec![Value::from(expiry)]),
        doc! { "create" => "log", "capped" => true, "size" => 8_192, "writeConcern" => doc! { "w" => "majority" } },
        doc! { "insert" => "bulk", "documents" => bulk, "ordered" => false, "writeConcern" => doc! { "w" => "majority" } },
    ] {
        loop {
            match client.attempt(DB, &command).await {
                Answer::Done(_) | Answer::Refused(NAMESPACE_EXISTS | DUPLICATE_KEY, _) => break,
                Answer::Unknown => client.pause(Duration::from_millis(50)).await,
                other => return Err(format!("{}: {other:?}", text(&command))),
            }
        }
    }
    Ok(())
}

fn concern(client: &Client) -> DocBuf {
    match client.dice.below(4) {
        0 if client.shared.copies() > 1 => doc! { "w" => 2, "wtimeout" => 300 },
        1 => doc! { "w" => 1 },
        _ => doc! { "w" => "majority" },
    }
}

/// The padding of a list whose last value this is.
fn pad(value: u64) -> String {
    let letter = char::from(b'a' + (value % 26) as u8);
    letter.to_string().repeat((value.wrapping_mul(2_654_435_761) % 600) as usize)
}

fn change(value: u64) -> DocBuf {
    doc! {
        "$push" => doc! { "l" => value as i64 }, "$inc" => doc! { "n" => 1 },
        "$set" => doc! { "p" => pad(value) },
    }
}

/// The list of a document, which is whole.
pub fn list_of(client: &Client, doc: Doc<'_>) -> Vec<u64> {
    let array = doc.value("l");
    let numbers = array.as_array().into_iter().flatten();
    let list: Vec<u64> =
        numbers.filter_map(|e| Some(e.value().to_i64_saturating()? as u64)).collect();
    let pad = list.last().map(|last| pad(*last)).unwrap_or_default();
    if number(doc, "n") != list.len() as i64 || doc.value("p").as_str() != Some(&pad) {
        client.shared.fault(format!("a torn document: {}", kauri_bson::shell_text(doc)));
    }
    list
}

/// Appends to lists and reads them.
pub async fn lists(client: &mut Client) {
    while !client.shared.is_over() {
        client.pause(Duration::from_millis(30)).await;
        let key = client.dice.below(LISTS);
        match client.dice.below(10) {
            0..=3 => append(client).await,
            4 | 5 => append_and_see(client, key).await,
            6 | 7 => read_last(client, key).await,
            8 => read_causal(client, key).await,
            _ => read_any(client).await,
        }
    }
}

async fn append(client: &mut Client) {
    let statements = if client.dice.percent(20) { 1 + client.dice.below(3) } else { 1 };
    let first = client.dice.below(LISTS);
    let mut noted = Vec::new();
    let updates = (0..statements).map(|at| {
        let (key, value) = ((first + at) % LISTS, client.shared.next_value());
        noted.push(vec![Step::Append(key, value)]);
        Value::from(doc! {
            "q" => doc! { "_id" => key as i64 }, "u" => change(value), "upsert" => true,
        })
    });
    let command = doc! { "update" => "lists", "updates" => Value::array(updates) };
    let command = with(&command, "writeConcern", concern(client));
    let sent = client.shared.tick();
    let answer = client.write(DB, &command).await;
    let outcome = match &answer {
        Answer::Done(reply) if number(reply.as_doc(), "n") != statements as i64 => {
            return client.shared.fault(format!("{}: {}", text(&command), text(reply)));
        }
        Answer::Done(_) | Answer::Executed => Outcome::Committed(client.shared.tick()),
        Answer::Unknown => Outcome::Unknown,
        Answer::Refused(..) => {
            return client.shared.fault(format!("{}: {answer:?}", text(&command)));
        }
    };
    if matches!(outcome, Outcome::Committed(_)) {
        client.shared.count("appends");
    }
    for steps in noted {
        client.shared.note(Transaction { client: client.number, sent, outcome, steps });
    }
}

async fn append_and_see(client: &mut Client, key: u64) {
    let (value, is_new) = (client.shared.next_value(), client.dice.percent(50));
    let command = doc! {
        "findAndModify" => "lists", "query" => doc! { "_id" => key as i64 },
        "update" => change(value), "new" => is_new, "upsert" => true,
    };
    let command = with(&command, "writeConcern", concern(client));
    let sent = client.shared.tick();
    let answer = client.write(DB, &command).await;
    let mut steps = vec![Step::Append(key, value)];
    let outcome = match &answer {
        Answer::Done(reply) => {
            let document = reply.as_doc().value("value");
            let list = document.as_document().map(|doc| list_of(client, doc)).unwrap_or_default();
            let read = Step::Read(key, Some(list));
            if is_new {
                steps.push(read)
            } else {
                steps.insert(0, read)
            }
            client.shared.count("findAndModify");
            Outcome::Committed(client.shared.tick())
        }
        Answer::Executed => Outcome::Committed(client.shared.tick()),
        Answer::Unknown => Outcome::Unknown,
        Answer::Refused(..) => {
            return client.shared.fault(format!("{}: {answer:?}", text(&command)));
        }
    };
    client.shared.note(Transaction { client: client.number, sent, outcome, steps });
}

fn note_read(client: &Client, number: u64, (sent, key): (u64, u64), reply: &DocBuf) {
    let docs = batch(reply).0;
    let list = docs.first().map(|doc| list_of(client, doc.as_doc())).unwrap_or_default();
    let (outcome, steps) =
        (Outcome::Committed(client.shared.tick()), vec![Step::Read(key, Some(list))]);
    client.shared.note(Transaction { client: number, sent, outcome, steps });
}

/// A linearizable read.
pub async fn read_last(client: &mut Client, key: u64) {
    let command = doc! {
        "find" => "lists", "filter" => doc! { "_id" => key as i64 },
        "readConcern" => doc! { "level" => "linearizable" },
    };
    let sent = client.shared.tick();
    match client.attempt(DB, &command).await {
        Answer::Done(reply) => {
            client.shared.count("linearizable reads");
            note_read(client, client.number, (sent, key), &reply);
        }
        Answer::Unknown | Answer::Executed => {}
        refused @ Answer::Refused(..) => {
            client.shared.fault(format!("a linearizable read: {refused:?}"));
        }
    }
}

/// A read of what the set keeps, by any member that has what the client has seen.
async fn read_causal(client: &mut Client, key: u64) {
    let Some(member) = client.shared.any_member(&client.dice) else { return };
    let mut concern = doc! { "level" => "majority" };
    if let Some((time, _)) = &client.times {
        concern = with(&concern, "afterClusterTime", Value::Timestamp(*time));
    }
    let aggregates = client.dice.percent(30);
    let filter = doc! { "_id" => key as i64 };
    let command = match aggregates {
        true => {
            let stages = [doc! { "$match" => filter }, doc! { "$limit" => 1 }];
            let stages = Value::array(stages.into_iter().map(Value::from));
            doc! { "aggregate" => "lists", "pipeline" => stages, "cursor" => doc! {} }
        }
        false => doc! { "find" => "lists", "filter" => filter },
    };
    let command = with(&command, "readConcern", concern);
    let command = with(&command, "$readPreference", doc! { "mode" => "nearest" });
    let sent = client.shared.tick();
    let Some(reply) = client.ask(member, DB, &command).await else { return };
    // A member that cannot answer now: it starts, copies, or was deposed.
    if code(&reply) == 0 {
        client.shared.count("causal reads");
        note_read(client, CAUSAL + client.number, (sent, key), &reply);
    }
}

/// A scan of all lists on any member, of whatever is there: only whole documents.
async fn read_any(client: &mut Client) {
    let Some(member) = client.shared.any_member(&client.dice) else { return };
    let preference = doc! { "mode" => "secondaryPreferred" };
    let mut command = doc! {
        "find" => "lists", "filter" => doc! { "n" => doc! { "$gte" => 0 } }, "batchSize" => 2,
        "$readPreference" => preference.clone(),
    };
    loop {
        let Some(reply) = client.ask(member, DB, &command).await else { return };
        if code(&reply) != 0 {
            return;
        }
        let (docs, cursor) = batch(&reply);
        for doc in docs {
            list_of(client, doc.as_doc());
        }
        if cursor == 0 {
            return client.shared.count("scans");
        }
        command = doc! {
            "getMore" => cursor, "collection" => "lists", "batchSize" => 2,
            "$readPreference" => preference.clone(),
        };
    }
}

fn own_doc(id: i64, dice: &kauri_testkit::Dice) -> DocBuf {
    let tags = (0..dice.below(4)).map(|_| Value::from(dice.below(9) as i64)).collect::<Vec<_>>();
    doc! {
        "_id" => id, "u" => id * 7, "v" => 0i64, "t" => Value::array(tags),
        "p" => "x".repeat(dice.below(300) as usize),
    }
}

/// Inserts, changes and deletes documents that no other client has.
pub async fn own(client: &mut Client, own: &mut Own) {
    let mut next = OWN_RANGE * client.number as i64;
    while !client.shared.is_over() {
        client.pause(Duration::from_millis(40)).await;
        let known: Vec<i64> = own.iter().filter(|(_, v)| v.is_some()).map(|(id, _)| *id).collect();
        let picked = client.dice.pick(&known).copied();
        match (client.dice.below(10), picked) {
            (0..=3, _) | (_, None) => {
                let count = 1 + client.dice.below(4) as i64;
                insert(client, own, next, count).await;
                next += count;
            }
            (4, Some(id)) => duplicate(client, id, next).await,
            (5 | 6, Some(id)) => delete(client, own, id).await,
            (_, Some(id)) => update(client, own, id).await,
        }
    }
}

async fn write_own(client: &mut Client, command: DocBuf, expected: i64) -> Option<bool> {
    let command = with(&command, "writeConcern", concern(client));
    match client.write(DB, &command).await {
        Answer::Done(reply) if number(reply.as_doc(), "n") == expected => {
            client.shared.count("own writes");
            Some(true)
        }
        Answer::Executed => Some(true),
        Answer::Unknown => None,
        other => {
            client.shared.fault(format!("{}: {other:?}", text(&command)));
            None
        }
    }
}

async fn insert(client: &mut Client, own: &mut Own, first: i64, count: i64) {
    let ids = first..first + count;
    let docs = ids.clone().map(|id| Value::from(own_doc(id, &client.dice)));
    let command = doc! { "insert" => "own", "documents" => Value::array(docs) };
    let done = write_own(client, command, count).await;
    own.extend(ids.map(|id| (id, done.map(|_| 0))));
}

/// A document with the unique value of another one is refused.
async fn duplicate(client: &mut Client, id: i64, next: i64) {
    let twin = doc! { "_id" => -next - 1, "u" => id * 7 };
    let command = doc! { "insert" => "own", "documents" => Value::array([Value::from(twin)]) };
    match client.write(DB, &command).await {
        Answer::Refused(DUPLICATE_KEY, _) => client.shared.count("duplicates"),
        Answer::Unknown => {}
        other => client.shared.fault(format!("a duplicate is inserted: {other:?}")),
    }
}

async fn delete(client: &mut Client, own: &mut Own, id: i64) {
    let delete = doc! { "q" => doc! { "_id" => id }, "limit" => 1 };
    let command = doc! { "delete" => "own", "deletes" => Value::array([Value::from(delete)]) };
    match write_own(client, command, 1).await {
        Some(_) => drop(own.remove(&id)),
        None => drop(own.insert(id, None)),
    }
}

async fn update(client: &mut Client, own: &mut Own, id: i64) {
    let changed = own_doc(id, &client.dice);
    let tags = changed.as_doc().value("t").into_owned();
    let update = doc! { "$inc" => doc! { "v" => 1i64 }, "$set" => doc! { "t" => tags } };
    let by = if client.dice.percent(50) {
        doc! { "_id" => id }
    } else {
        doc! { "u" => id * 7 }
    };
    let update = doc! { "q" => by, "u" => update };
    let command = doc! { "update" => "own", "updates" => Value::array([Value::from(update)]) };
    let done = write_own(client, command, 1).await;
    let before = own.get(&id).copied().flatten();
    own.insert(id, done.and(before).map(|v| v + 1));
}

/// Inserts into a capped collection, and documents that expire.
pub async fn streams(client: &mut Client) {
    let mut id = 0i64;
    while !client.shared.is_over() {
        client.pause(Duration::from_millis(40)).await;
        id += 1;
        let (name, document) = match client.dice.percent(50) {
            true => {
                let p = "z".repeat(client.dice.below(400) as usize);
                ("log", doc! { "_id" => id, "p" => p })
            }
            false => {
                let at = VirtualClock.unix_ms() - client.dice.below(2_000) as i64;
                ("expiring", doc! { "_id" => id, "at" => Value::DateTime(at) })
            }
        };
        let command =
            doc! { "insert" => name, "documents" => Value::array([Value::from(document)]) };
        let command = with(&command, "writeConcern", concern(client));
        if let Answer::Refused(code, reply) = client.write(DB, &command).await {
            client.shared.fault(format!("{}: {code}, {}", text(&command), text(&reply)));
        }
    }
}

/// Has members step down and up, and gives them other priorities.
pub async fn operates(client: &mut Client) {
    while !client.shared.is_over() {
        client.pause(Duration::from_secs(3)).await;
        let Some(member) = client.shared.any_member(&client.dice) else { continue };
        let (command, what) = match client.dice.below(10) {
            0..=3 => {
                let secs = client.dice.below(2) as i64;
                let command = doc! {
                    "replSetStepDown" => 1, "secondaryCatchUpPeriodSecs" => secs,
                    "force" => client.dice.percent(30),
                };
                (command, "step-downs")
            }
            4 | 5 => (doc! { "replSetStepUp" => 1 }, "step-ups"),
            _ => match reconfiguration(client).await {
                Some(config) => (doc! { "replSetReconfig" => config }, "reconfigurations"),
                None => continue,
            },
        };
        let done = match what {
            "reconfigurations" => {
                matches!(client.attempt("admin", &command).await, Answer::Done(_))
            }
            _ => client.ask(member, "admin", &command).await.is_some_and(|of| code(&of) == 0),
        };
        if done {
            client.shared.count(what);
        }
    }
}

/// The primary's configuration, with another priority of a member. One at least can lead.
async fn reconfiguration(client: &mut Client) -> Option<DocBuf> {
    let reply = client.attempt("admin", &doc! { "replSetGetConfig" => 1 }).await;
    let Answer::Done(reply) = reply else { return None };
    let config = reply.as_doc().value("config").as_document()?.to_buf();
    let list = config.as_doc().value("members").into_owned();
    let members: Vec<Doc<'_>> = list.as_array()?.iter().filter_map(|of| of.as_doc()).collect();
    let can_lead = |of: &Doc<'_>| of.value("priority").as_f64_lossy().is_some_and(|p| p > 0.0);
    let of = client.dice.pick(&members)?.value("_id").to_i64_saturating()?;
    let others = members.iter().filter(|member| number(**member, "_id") != of);
    let may_not_lead = others.filter(|member| can_lead(member)).count() > 0;
    let priority = if may_not_lead { client.dice.below(3) } else { 1 + client.dice.below(2) };
    let is_hidden = priority == 0 && client.dice.percent(50);
    let changed = members.iter().map(|member| {
        let is_it = number(*member, "_id") == of && !member.value("arbiterOnly").truthy();
        Value::from(DocBuf::build(|out| {
            for elem in member.iter() {
                match elem.key() {
                    "priority" if is_it => out.put("priority", priority as i32),
                    "hidden" if is_it => out.put("hidden", is_hidden),
                    key => out.put_value(key, &elem.value()),
                }
            }
        }))
    });
    let changed = Value::array(changed);
    Some(DocBuf::build(|out| {
        for elem in config.as_doc().iter() {
            match elem.key() {
                "version" => out.put("version", number(config.as_doc(), "version") + 1),
                "members" => out.put_value("members", &changed),
                key => out.put_value(key, &elem.value()),
            }
        }
    }))
}
