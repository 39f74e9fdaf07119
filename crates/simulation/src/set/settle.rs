//! What members tell of their data when everything is whole again: all the same, and what clients expect.

use super::client::{Client, batch, code, is_state_change, number, text, with};
use super::definitions::{DDL, Definitions, Expected};
use super::workload::{LISTS, Own, list_of};
use kauri_bson::{DocBuf, Value, doc};
use kauri_consistency::lists::{Outcome, Step, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often a member is asked that cannot answer.
const ATTEMPTS_MAX: u64 = 50;

/// Everything that a member tells, by what it is.
pub type Told = BTreeMap<String, String>;

async fn ask(
    client: &mut Client,
    member: u64,
    database: &str,
    command: DocBuf,
) -> Result<DocBuf, String> {
    let preference = doc! { "mode" => "secondaryPreferred" };
    let command = with(&command, "$readPreference", preference);
    for _ in 0..ATTEMPTS_MAX {
        match client.ask(member, database, &command).await {
            Some(reply) if code(&reply) == 0 => return Ok(reply),
            // It has just been deposed, or begins again.
            Some(reply) if is_state_change(code(&reply)) => {}
            Some(reply) => {
                return Err(format!("member {member}: {}: {}", text(&command), text(&reply)));
            }
            None => {}
        }
        client.worker.sleep(Duration::from_millis(200)).await;
    }
    Err(format!("member {member} does not answer {}", text(&command)))
}

/// All that a member tells of its databases.
pub async fn tells(client: &mut Client, member: u64) -> Result<Told, String> {
    let mut told = Told::new();
    let reply = ask(client, member, "admin", doc! { "listDatabases" => 1, "nameOnly" => true });
    let reply = reply.await?;
    let Value::Array(databases) = reply.as_doc().value("databases") else { return Ok(told) };
    for database in databases.as_doc().iter().filter_map(|e| Some(e.as_doc()?.to_buf())) {
        let name = database.as_doc().value("name").as_str().unwrap_or_default().to_owned();
        if name == "local" {
            continue;
        }
        tells_database(client, member, &name, &mut told).await?;
    }
    Ok(told)
}

async fn tells_database(
    client: &mut Client,
    member: u64,
    database: &str,
    told: &mut Told,
) -> Result<(), String> {
    let all = doc! { "batchSize" => 10_000 };
    let list = doc! { "listCollections" => 1, "cursor" => all.clone() };
    for info in batch(&ask(client, member, database, list).await?).0 {
        let name = info.as_doc().value("name").as_str().unwrap_or_default().to_owned();
        let ns = format!("{database}.{name}");
        told.insert(format!("{ns}: definition"), text(&info));
        // Views, and what stores them: a part of the catalog, which other commands show.
        let is_view = info.as_doc().value("type").as_str() != Some("collection");
        if is_view || name == "system.views" {
            continue;
        }
        let list = doc! { "listIndexes" => name.as_str(), "cursor" => all.clone() };
        for index in batch(&ask(client, member, database, list).await?).0 {
            let of = index.as_doc().value("name").as_str().unwrap_or_default().to_owned();
            told.insert(format!("{ns}: index {of}"), text(&index));
        }
        let validate = doc! { "validate" => name.as_str(), "full" => true };
        let valid = ask(client, member, database, validate).await?;
        if !valid.as_doc().value("valid").truthy() {
            return Err(format!("member {member}: {ns} is not valid: {}", text(&valid)));
        }
        told.insert(format!("{ns}: records"), number(valid.as_doc(), "nrecords").to_string());
        // Neither the order nor the records' ids are part of a hash.
        let find = doc! {
            "find" => name.as_str(), "projection" => doc! { "_id" => 1 }, "showRecordId" => true,
            "sort" => doc! { "$natural" => 1 }, "batchSize" => 10_000,
        };
        let docs = batch(&ask(client, member, database, find).await?).0;
        let docs: Vec<String> = docs.iter().map(text).collect();
        told.insert(format!("{ns}: order"), docs.join(", "));
    }
    let hashes = ask(client, member, database, doc! { "dbHash" => 1 }).await?;
    for field in ["collections", "uuids", "capped"] {
        let value = hashes.as_doc().value(field);
        told.insert(format!("{database}: {field}"), kauri_bson::shell_value(&value));
    }
    Ok(())
}

/// The first difference between two members.
pub fn difference(one: &Told, other: &Told) -> Option<String> {
    let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let key = keys.into_iter().find(|key| one.get(*key) != other.get(*key))?;
    Some(format!("{key}: {:?} and {:?}", one.get(key), other.get(key)))
}

/// Whether the definitions that a member tells of are what the client expects.
pub fn check_definitions(told: &Told, expected: &Definitions) -> Result<(), String> {
    for (ns, of) in expected {
        let is_there = told.contains_key(&format!("{ns}: definition"));
        let indexes = match of {
            Expected::Unsure => continue,
            _ if !is_there => return Err(format!("{ns} is lost: it was acknowledged")),
            Expected::View => continue,
            Expected::Collection(indexes) => indexes,
        };
        let prefix = format!("{ns}: index ");
        let found: BTreeSet<&str> =
            told.keys().filter_map(|key| key.strip_prefix(&prefix)).collect();
        let lost = indexes.iter().find(|(name, sure)| **sure && !found.contains(name.as_str()));
        if let Some((name, _)) = lost {
            return Err(format!("index {name} of {ns} is lost: it was acknowledged"));
        }
        if let Some(name) = found.iter().find(|name| !indexes.contains_key(**name)) {
            return Err(format!("{ns} has index {name}, which was dropped"));
        }
    }
    let prefix = format!("{DDL}.");
    let dropped = told.keys().filter_map(|key| key.strip_suffix(": definition")).find(|ns| {
        ns.starts_with(&prefix) && !ns.contains("system.") && !expected.contains_key(*ns)
    });
    match dropped {
        Some(ns) => Err(format!("{ns} is there, and was dropped")),
        None => Ok(()),
    }
}

/// Whether a client's own documents are what it expects.
pub async fn check_own(client: &mut Client, member: u64, own: &Own) -> Result<(), String> {
    let (Some(first), Some(last)) = (own.keys().next(), own.keys().next_back()) else {
        return Ok(());
    };
    let (first, last) = (first / 1_000_000 * 1_000_000, last + 100);
    let range = doc! { "_id" => doc! { "$gte" => first, "$lt" => last } };
    let find = doc! { "find" => "own", "filter" => range, "batchSize" => 100_000 };
    let docs = batch(&ask(client, member, "test", find).await?).0;
    let found: BTreeMap<i64, i64> =
        docs.iter().map(|doc| (number(doc.as_doc(), "_id"), number(doc.as_doc(), "v"))).collect();
    for (id, expected) in own {
        if let Some(expected) = expected
            && found.get(id) != Some(expected)
        {
            return Err(format!("own document {id} is {:?}, not {expected}", found.get(id)));
        }
    }
    match found.keys().find(|id| !own.contains_key(id)) {
        Some(id) => Err(format!("own document {id} is there, and was deleted")),
        None => Ok(()),
    }
}

/// The final reads of lists.
pub async fn read_lists(client: &mut Client, member: u64) -> Result<(), String> {
    let find = doc! { "find" => "lists", "filter" => doc! {}, "batchSize" => 1_000 };
    let sent = client.shared.tick();
    let docs = batch(&ask(client, member, "test", find).await?).0;
    for key in 0..LISTS {
        let doc = docs.iter().find(|doc| number(doc.as_doc(), "_id") == key as i64);
        let list = doc.map(|doc| list_of(client, doc.as_doc())).unwrap_or_default();
        let (outcome, steps) =
            (Outcome::Committed(client.shared.tick()), vec![Step::Read(key, Some(list))]);
        client.shared.note(Transaction { client: client.number, sent, outcome, steps });
    }
    Ok(())
}

/// Waits until everything that expires is gone.
pub async fn wait_for_expiry(client: &mut Client, member: u64) -> Result<(), String> {
    for _ in 0..30 {
        let count = doc! { "count" => "expiring" };
        if number(ask(client, member, "test", count).await?.as_doc(), "n") == 0 {
            return Ok(());
        }
        client.worker.sleep(Duration::from_millis(500)).await;
    }
    Err(format!("member {member}: expired documents are still there"))
}
