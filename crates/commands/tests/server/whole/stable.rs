//! Documents that never change, while their indexes are created and dropped.

use super::run::{Actor, Run};
use crate::common::number;
use kauri_bson::{DocBuf, Value, array, doc};
use std::collections::BTreeSet;

/// The collection.
pub const NAME: &str = "stable";
const DOCS: i64 = 300;
/// Number of values of `a`, all equally frequent.
const A: i64 = 12;

pub fn load(run: &Run) {
    let client = run.client();
    client.insert(
        NAME,
        (0..DOCS).map(|i| doc! { "_id" => i, "a" => i % A, "b" => i, "next" => i + 1 }),
    );
    client.insert("one", [doc! { "_id" => 0i64, "x" => 5i64 }]);
}

/// The result of a range over one of the fields.
struct Range {
    field: &'static str,
    low: i64,
    high: i64,
}

impl Range {
    fn random(actor: &Actor) -> Range {
        let (field, limit) = if actor.dice(2) == 0 { ("a", A) } else { ("b", DOCS) };
        let low = actor.dice(limit as u64) as i64;
        Range { field, low, high: low + 1 + actor.dice((limit - low) as u64) as i64 }
    }

    fn filter(&self) -> DocBuf {
        doc! { self.field => doc! { "$gte" => self.low, "$lt" => self.high } }
    }

    fn ids(&self) -> BTreeSet<i64> {
        let value = |i: &i64| if self.field == "a" { i % A } else { *i };
        (0..DOCS).filter(|i| (self.low..self.high).contains(&value(i))).collect()
    }
}

#[track_caller]
fn are(rows: &[DocBuf], ids: &BTreeSet<i64>, what: &DocBuf) {
    let found: BTreeSet<i64> = rows.iter().map(|row| number(row, "_id")).collect();
    let what = crate::common::show(what);
    assert_eq!(rows.len(), found.len(), "twice the same: {what}");
    assert_eq!(found, *ids, "{what}");
}

/// One read.
pub fn read(run: &Run, actor: &Actor) {
    let range = Range::random(actor);
    match actor.dice(8) {
        0 | 1 => find(run, actor, &range),
        2 => count(run, actor, &range),
        3 => distinct(run, actor, &range),
        4 => group(run, actor, &range),
        5 => lookup(run, actor, &range),
        6 => union(run, actor, &range),
        _ => graph(run, actor),
    }
}

fn find(run: &Run, actor: &Actor, range: &Range) {
    let mut command = doc! {
        "find" => NAME, "filter" => range.filter(), "batchSize" => 1 + actor.dice(120) as i64,
    };
    let sorted = actor.dice(3) == 0;
    if sorted {
        command = doc! {
            "find" => NAME, "filter" => range.filter(), "batchSize" => 1 + actor.dice(120) as i64,
            "sort" => doc! { "b" => -1 },
        };
    }
    let Some(rows) = run.rows(actor, &command) else { return };
    are(&rows, &range.ids(), &command);
    assert!(!sorted || rows.is_sorted_by_key(|row| -number(row, "b")), "out of order");
}

fn count(run: &Run, actor: &Actor, range: &Range) {
    let all = actor.dice(4) == 0;
    let (filter, expected) = match all {
        true => (doc! {}, DOCS),
        false => (range.filter(), range.ids().len() as i64),
    };
    let Some(reply) = run.read(actor, &doc! { "count" => NAME, "query" => filter }) else { return };
    assert_eq!(number(&reply, "n"), expected);
}

fn distinct(run: &Run, actor: &Actor, range: &Range) {
    let command = doc! { "distinct" => NAME, "key" => "a", "query" => range.filter() };
    let Some(reply) = run.read(actor, &command) else { return };
    let values = reply.as_doc().value("values");
    let found = values.as_array().unwrap().iter().filter_map(|e| e.value().as_i64_exact());
    let expected: BTreeSet<i64> = range.ids().into_iter().map(|i| i % A).collect();
    assert_eq!(found.collect::<BTreeSet<_>>(), expected, "{}", crate::common::show(&command));
}

fn aggregate(actor: &Actor, pipeline: Value<'static>) -> DocBuf {
    let cursor = doc! { "batchSize" => actor.dice(60) as i64 };
    doc! { "aggregate" => NAME, "pipeline" => pipeline, "cursor" => cursor }
}

fn group(run: &Run, actor: &Actor, range: &Range) {
    let group = doc! { "_id" => "$a", "n" => doc! { "$sum" => 1 }, "s" => doc! { "$sum" => "$b" } };
    let stages = array![doc! { "$match" => range.filter() }, doc! { "$group" => group }];
    let Some(rows) = run.rows(actor, &aggregate(actor, stages)) else { return };
    for row in &rows {
        let of: Vec<i64> =
            range.ids().into_iter().filter(|i| i % A == number(row, "_id")).collect();
        assert_eq!(number(row, "n"), of.len() as i64);
        assert_eq!(number(row, "s"), of.iter().sum::<i64>());
    }
    let groups: BTreeSet<i64> = range.ids().into_iter().map(|i| i % A).collect();
    assert_eq!(rows.len(), groups.len());
}

fn lookup(run: &Run, actor: &Actor, range: &Range) {
    let lookup = match actor.dice(2) {
        0 => doc! { "from" => NAME, "localField" => "next", "foreignField" => "b", "as" => "f" },
        _ => doc! {
            "from" => NAME, "let" => doc! { "n" => "$next" }, "as" => "f",
            "pipeline" => array![doc! { "$match" => doc! { "$expr" => doc! { "$eq" => array!["$b", "$$n"] } } }],
        },
    };
    let stages = array![doc! { "$match" => range.filter() }, doc! { "$lookup" => lookup }];
    let command = aggregate(actor, stages);
    let Some(rows) = run.rows(actor, &command) else { return };
    are(&rows, &range.ids(), &command);
    for row in &rows {
        let found = row.as_doc().value("f");
        let found = found.as_array().unwrap().iter();
        let found: Vec<i64> = found.map(|e| number(&e.as_doc().unwrap().to_buf(), "_id")).collect();
        let next = number(row, "next");
        let expected = if next < DOCS { vec![next] } else { vec![] };
        assert_eq!(found, expected, "{}", crate::common::show(row));
    }
}

fn union(run: &Run, actor: &Actor, range: &Range) {
    let inner = array![doc! { "$match" => range.filter() }];
    let union = doc! { "$unionWith" => doc! { "coll" => NAME, "pipeline" => inner } };
    let stages = array![doc! { "$match" => range.filter() }, union];
    let Some(rows) = run.rows(actor, &aggregate(actor, stages)) else { return };
    let mut found: Vec<i64> = rows.iter().map(|row| number(row, "_id")).collect();
    found.sort_unstable();
    let expected: Vec<i64> = range.ids().into_iter().flat_map(|id| [id, id]).collect();
    assert_eq!(found, expected);
}

fn graph(run: &Run, actor: &Actor) {
    let first = DOCS - 1 - actor.dice(25) as i64;
    let graph = doc! { "$graphLookup" => doc! {
        "from" => NAME, "startWith" => "$next", "connectFromField" => "next",
        "connectToField" => "b", "as" => "f",
    } };
    let stages = array![doc! { "$match" => doc! { "b" => first } }, graph];
    let Some(rows) = run.rows(actor, &aggregate(actor, stages)) else { return };
    assert_eq!(rows.len(), 1);
    let found = rows[0].as_doc().value("f");
    assert_eq!(found.as_array().unwrap().count() as i64, DOCS - 1 - first);
}
