//! DDL concurrent with the reads: indexes are created and dropped, collections exchange names.

use super::run::{Actor, Run};
use super::swapped::documents;
use super::{stable, writers};
use crate::common::Client;
use kauri_bson::{DocBuf, array, doc};

const INDEX_NOT_FOUND: i64 = 27;

fn index(field: &'static str) -> DocBuf {
    doc! { "key" => doc! { field => 1 }, "name" => format!("{field}_1") }
}

fn create_index(collection: &str, field: &'static str) -> DocBuf {
    doc! { "createIndexes" => collection, "indexes" => array![index(field)] }
}

/// Changes the indexes of a collection whose name does not change.
pub fn indexes(run: &Run, actor: &Actor) {
    let all = [(stable::NAME, ["a", "b"]), writers::UPDATED, writers::UPSERTED, writers::DELETED];
    let (collection, fields) = all[actor.dice(all.len() as u64) as usize];
    let field = fields[actor.dice(2) as usize];
    match actor.dice(6) {
        0..3 => drop(run.change(actor, &create_index(collection, field), &[])),
        3 => {
            let name = format!("{field}_1");
            let command = doc! { "dropIndexes" => collection, "index" => name };
            run.change(actor, &command, &[INDEX_NOT_FOUND]);
        }
        4 => {
            let command = doc! { "dropIndexes" => collection, "index" => "*" };
            run.change(actor, &command, &[]);
        }
        _ => drop(run.change(actor, &doc! { "reIndex" => collection }, &[])),
    }
}

fn fill(client: &Client, collection: &str, generation: u64) {
    client.insert(collection, documents(generation));
}

/// `renameCollection` with `dropTarget`, and `convertToCapped`.
pub fn swaps(run: &Run, actor: &Actor) {
    if actor.dice(4) == 0 {
        let command = doc! { "convertToCapped" => "renamed", "size" => 10_000_000 };
        run.change(actor, &command, &[]);
        return;
    }
    let generation = run.swapped.renamed.begin();
    fill(&actor.client, "renamed_next", generation);
    if actor.dice(2) == 0 {
        run.change(actor, &create_index("renamed_next", "x"), &[]);
    }
    let rename = doc! {
        "renameCollection" => "test.renamed_next", "to" => "test.renamed", "dropTarget" => true,
    };
    run.change_on(&actor.client.admin(), &rename, &[]);
    run.swapped.renamed.end(generation);
}

/// `$out`.
pub fn outs(run: &Run, actor: &Actor) {
    let generation = run.swapped.out.begin();
    run.change(actor, &doc! { "drop" => "out_source" }, &[]);
    fill(&actor.client, "out_source", generation);
    let out = doc! {
        "aggregate" => "out_source", "pipeline" => array![doc! { "$out" => "out" }],
        "cursor" => doc! {},
    };
    run.change(actor, &out, &[]);
    run.swapped.out.end(generation);
}

/// Drops a collection and recreates it by the first insert.
pub fn recreations(run: &Run, actor: &Actor) {
    let generation = run.swapped.recreated.begin();
    run.change(actor, &doc! { "drop" => "recreated" }, &[]);
    fill(&actor.client, "recreated", generation);
    if actor.dice(2) == 0 {
        run.change(actor, &create_index("recreated", "x"), &[]);
    }
    run.swapped.recreated.end(generation);
}
