//! Documents changed by one writer each, which counts its changes, while their indexes are created and dropped.

use super::run::{Actor, Run};
use crate::common::{at, first_batch, number, show};
use kauri_bson::{DocBuf, array, doc};
use std::collections::BTreeMap;

pub const UPDATED: (&str, [&str; 2]) = ("updated", ["a", "i"]);
pub const UPSERTED: (&str, [&str; 2]) = ("upserted", ["key", "n"]);
pub const DELETED: (&str, [&str; 2]) = ("deleted", ["round", "i"]);

const GROUPS: i64 = 6;
const PER_GROUP: i64 = 25;

/// The effects of the writers.
#[derive(Default)]
pub struct Model {
    /// Updates of all documents of a group.
    groups: BTreeMap<i64, i64>,
    /// Updates of one document.
    single: BTreeMap<(i64, i64), i64>,
    /// Upserts of a key.
    keys: BTreeMap<i64, i64>,
    rounds: i64,
}

pub fn load(run: &Run) {
    let client = run.client();
    let documents = (0..GROUPS * PER_GROUP).map(|id| {
        doc! { "_id" => id, "a" => id / PER_GROUP, "i" => id % PER_GROUP, "n" => 0i64, "v" => 0i64 }
    });
    client.insert(UPDATED.0, documents);
    client.insert(UPSERTED.0, [doc! { "_id" => "first", "key" => -1i64, "n" => 0i64 }]);
    client.insert(DELETED.0, [doc! { "_id" => "first", "round" => -1i64, "i" => 0i64 }]);
}

/// Runs a write that must succeed; returns its reply.
#[track_caller]
fn written(run: &Run, actor: &Actor, command: DocBuf) -> DocBuf {
    let reply = run.answer(actor, &command);
    let all_right =
        crate::common::code_of(&reply) == 0 && reply.as_doc().get("writeErrors").is_none();
    assert!(all_right, "{} -> {}", show(&command), show(&reply));
    reply
}

/// Updates a group, or one document that is returned.
pub fn update(run: &Run, actor: &Actor) {
    let (group, i) = (actor.dice(GROUPS as u64) as i64, actor.dice(PER_GROUP as u64) as i64);
    if actor.dice(2) == 0 {
        let statement = doc! {
            "q" => doc! { "a" => group }, "u" => doc! { "$inc" => doc! { "n" => 1i64 } }, "multi" => true,
        };
        let reply =
            written(run, actor, doc! { "update" => UPDATED.0, "updates" => array![statement] });
        assert_eq!((number(&reply, "n"), number(&reply, "nModified")), (PER_GROUP, PER_GROUP));
        *run.written.lock().unwrap().groups.entry(group).or_default() += 1;
        return;
    }
    let filter = match actor.dice(2) {
        0 => doc! { "a" => group, "i" => i },
        _ => doc! { "i" => i, "a" => doc! { "$gt" => group - 1, "$lt" => group + 1 } },
    };
    let command = doc! {
        "findAndModify" => UPDATED.0, "query" => filter, "new" => true,
        "update" => doc! { "$inc" => doc! { "v" => 1i64 } },
    };
    let reply = written(run, actor, command);
    assert!(
        reply.as_doc().value("value").as_document().is_some(),
        "null for a document: {}",
        show(&reply)
    );
    let value = at(&reply, "value");
    let mut model = run.written.lock().unwrap();
    let v = model.single.entry((group, i)).or_default();
    *v += 1;
    assert_eq!((number(&value, "a"), number(&value, "i"), number(&value, "v")), (group, i, *v));
}

/// Upserts an existing or a new key.
pub fn upsert(run: &Run, actor: &Actor) {
    let count = run.written.lock().unwrap().keys.len() as u64;
    let is_new = count == 0 || actor.dice(4) == 0;
    let key = if is_new { count as i64 } else { actor.dice(count) as i64 };
    let inc = doc! { "$inc" => doc! { "n" => 1i64 } };
    let query = doc! { "key" => key };
    match actor.dice(2) {
        0 => {
            let statement = doc! { "q" => query, "u" => inc, "upsert" => true };
            let reply = written(
                run,
                actor,
                doc! { "update" => UPSERTED.0, "updates" => array![statement] },
            );
            assert_eq!(reply.as_doc().get("upserted").is_some(), is_new, "{}", show(&reply));
            assert_eq!(number(&reply, "n"), 1);
        }
        _ => {
            let command = doc! {
                "findAndModify" => UPSERTED.0, "query" => query, "update" => inc, "upsert" => true,
            };
            let reply = written(run, actor, command);
            let last = at(&reply, "lastErrorObject");
            let existing = last.as_doc().value("updatedExisting");
            assert_eq!(existing, kauri_bson::Value::Bool(!is_new), "{}", show(&reply));
        }
    }
    *run.written.lock().unwrap().keys.entry(key).or_default() += 1;
}

/// Inserts and deletes a round of documents.
pub fn delete(run: &Run, actor: &Actor) {
    const DOCS: i64 = 30;
    let round = {
        let mut model = run.written.lock().unwrap();
        model.rounds += 1;
        model.rounds
    };
    let documents =
        (0..DOCS).map(|i| doc! { "_id" => round * DOCS + i, "round" => round, "i" => i });
    actor.client.insert(DELETED.0, documents);
    let one = doc! { "q" => doc! { "round" => round, "i" => doc! { "$gte" => 0 } }, "limit" => 1 };
    let all = doc! { "q" => doc! { "round" => round }, "limit" => 0 };
    for (statement, expected) in [(one, 1), (all, DOCS - 1)] {
        let command = doc! { "delete" => DELETED.0, "deletes" => array![statement] };
        let reply = written(run, actor, command);
        assert_eq!(number(&reply, "n"), expected);
    }
}

/// Checks that no document was lost or duplicated.
pub fn check(run: &Run) {
    let client = run.client();
    let model = run.written.lock().unwrap();
    let all =
        |name: &str| first_batch(&client.ok(doc! { "find" => name, "batchSize" => 1_000_000 }));
    let updated = all(UPDATED.0);
    assert_eq!(updated.len() as i64, GROUPS * PER_GROUP);
    for doc in &updated {
        let (group, i) = (number(doc, "a"), number(doc, "i"));
        assert_eq!(number(doc, "n"), model.groups.get(&group).copied().unwrap_or(0));
        assert_eq!(number(doc, "v"), model.single.get(&(group, i)).copied().unwrap_or(0));
    }
    let mut found = BTreeMap::new();
    for doc in all(UPSERTED.0).iter().filter(|doc| number(doc, "key") >= 0) {
        let twice = found.insert(number(doc, "key"), number(doc, "n"));
        assert_eq!(twice, None, "a key was inserted twice: {}", show(doc));
    }
    assert_eq!(found, model.keys);
    assert_eq!(all(DELETED.0).len(), 1);
    for (name, _) in [UPDATED, UPSERTED, DELETED, (super::stable::NAME, ["a", "b"])] {
        client.validate(name);
    }
    assert!(model.groups.len() + model.keys.len() > 10 && model.rounds > 5, "too few writes");
}
