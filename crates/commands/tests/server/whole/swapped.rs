//! Collections replaced as a whole by `renameCollection`, `$out`, `convertToCapped`, or by dropping and
//! recreating them. All documents of a collection have one generation, which determines their number.

use super::run::{Actor, Run};
use crate::common::{number, show};
use kauri_bson::{DocBuf, Value, array, doc};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// The generation of a name.
#[derive(Default)]
pub struct Generation {
    /// The newest generation that may be visible.
    begun: AtomicU64,
    /// The oldest generation that may be visible.
    done: AtomicU64,
}

#[derive(Default)]
pub struct Generations {
    pub renamed: Generation,
    pub out: Generation,
    pub recreated: Generation,
}

/// The names, and whether each may be absent for a moment.
const NAMES: [(&str, bool); 3] = [("renamed", false), ("out", false), ("recreated", true)];

impl Generations {
    pub fn of(&self, name: &str) -> &Generation {
        match name {
            "renamed" => &self.renamed,
            "out" => &self.out,
            _ => &self.recreated,
        }
    }
}

impl Generation {
    /// Begins a new generation.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Ends it: the generation is visible.
    pub fn end(&self, generation: u64) {
        self.done.store(generation, Ordering::SeqCst);
    }

    fn oldest(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    fn newest(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }
}

/// How many documents a generation has.
pub fn size(generation: u64) -> u64 {
    60 + generation * 7 % 41
}

pub fn documents(generation: u64) -> Vec<DocBuf> {
    let document = |x: u64| {
        let (x, gen_) = (x as i64, generation as i64);
        doc! { "_id" => x, "gen" => gen_, "x" => x, "next" => x + 1 }
    };
    (0..size(generation)).map(document).collect()
}

pub fn load(run: &Run) {
    let client = run.client();
    for (name, _) in NAMES {
        let generation = run.swapped.of(name).begin();
        client.insert(name, documents(generation));
        let index = doc! { "key" => doc! { "x" => 1 }, "name" => "x_1" };
        client.ok(doc! { "createIndexes" => name, "indexes" => array![index] });
        run.swapped.of(name).end(generation);
    }
}

/// The expected result of a read.
struct Expected<'r> {
    name: &'static str,
    may_be_gone: bool,
    generation: &'r Generation,
    oldest: u64,
}

impl Expected<'_> {
    /// The generation of these documents, which must be complete.
    #[track_caller]
    fn whole(&self, docs: &[DocBuf], what: &DocBuf) {
        if docs.is_empty() {
            assert!(self.may_be_gone, "{} is found empty: {}", self.name, show(what));
            return;
        }
        let generations: BTreeSet<i64> = docs.iter().map(|doc| number(doc, "gen")).collect();
        assert_eq!(generations.len(), 1, "of several generations: {}", show(what));
        let found: BTreeSet<i64> = docs.iter().map(|doc| number(doc, "x")).collect();
        assert_eq!(found.len(), docs.len(), "twice the same: {}", show(what));
        let generation = generations.into_iter().next().unwrap() as u64;
        let n = docs.len() as u64;
        assert!(self.has(generation, n), "{} has {n} by {}", self.name, show(what));
        self.current(generation);
    }

    /// Whether a read may find this many documents of a generation. It must find all, unless the generation
    /// began after the read and is made by inserts under the name itself.
    fn has(&self, generation: u64, n: u64) -> bool {
        let is_coming = self.may_be_gone && generation > self.oldest;
        n == size(generation) || is_coming && n < size(generation)
    }

    #[track_caller]
    fn current(&self, generation: u64) {
        let possible = self.oldest..=self.generation.newest();
        assert!(possible.contains(&generation), "{}: {generation} of {possible:?}", self.name);
    }

    /// Checks that one of the possible generations has this many documents.
    #[track_caller]
    fn counts(&self, n: u64, what: &DocBuf) {
        let gone = n == 0 && self.may_be_gone;
        let newest = self.generation.newest();
        let known = (self.oldest..=newest).any(|generation| self.has(generation, n));
        assert!(gone || known, "{} has {n} by {}", self.name, show(what));
    }
}

/// One read.
pub fn read(run: &Run, actor: &Actor) {
    let (name, may_be_gone) = NAMES[actor.dice(NAMES.len() as u64) as usize];
    let generation = run.swapped.of(name);
    let oldest = generation.oldest();
    let expected = Expected { name, may_be_gone, generation, oldest };
    match actor.dice(9) {
        0 | 1 => find(run, actor, &expected),
        2 => count(run, actor, &expected),
        3 => distinct(run, actor, &expected),
        4 => group(run, actor, &expected),
        5 => lookup_one(run, actor, &expected),
        6 => lookup_all(run, actor, &expected),
        7 => union(run, actor, &expected),
        _ => graph(run, actor, &expected),
    }
}

fn filter(actor: &Actor) -> DocBuf {
    match actor.dice(2) {
        0 => doc! {},
        _ => doc! { "x" => doc! { "$gte" => 0 } },
    }
}

fn find(run: &Run, actor: &Actor, expected: &Expected<'_>) {
    let size = [5, 50, 1000][actor.dice(3) as usize];
    let command = doc! { "find" => expected.name, "filter" => filter(actor), "batchSize" => size };
    if let Some(rows) = run.rows(actor, &command) {
        expected.whole(&rows, &command);
    }
}

fn count(run: &Run, actor: &Actor, expected: &Expected<'_>) {
    let command = doc! { "count" => expected.name, "query" => filter(actor) };
    if let Some(reply) = run.read(actor, &command) {
        expected.counts(number(&reply, "n") as u64, &command);
    }
}

fn distinct(run: &Run, actor: &Actor, expected: &Expected<'_>) {
    let command = doc! { "distinct" => expected.name, "key" => "gen", "query" => filter(actor) };
    let Some(reply) = run.read(actor, &command) else { return };
    let values = reply.as_doc().value("values");
    let found: Vec<i64> =
        values.as_array().unwrap().iter().filter_map(|e| e.value().as_i64_exact()).collect();
    assert!(found.len() == 1 || found.is_empty() && expected.may_be_gone, "{}", show(&reply));
    found.iter().for_each(|generation| expected.current(*generation as u64));
}

fn aggregate(name: &str, actor: &Actor, pipeline: Value<'static>) -> DocBuf {
    let cursor = doc! { "batchSize" => [0, 7, 1000][actor.dice(3) as usize] };
    doc! { "aggregate" => name, "pipeline" => pipeline, "cursor" => cursor }
}

fn group(run: &Run, actor: &Actor, expected: &Expected<'_>) {
    let group = doc! { "_id" => "$gen", "n" => doc! { "$sum" => 1 } };
    let stages = array![doc! { "$match" => filter(actor) }, doc! { "$group" => group }];
    let command = aggregate(expected.name, actor, stages);
    let Some(rows) = run.rows(actor, &command) else { return };
    assert!(rows.len() == 1 || rows.is_empty() && expected.may_be_gone, "{rows:?}");
    for row in &rows {
        let generation = number(row, "_id") as u64;
        assert!(expected.has(generation, number(row, "n") as u64), "{}", show(row));
        expected.current(generation);
    }
}

fn found(row: &DocBuf) -> Vec<DocBuf> {
    let found = row.as_doc().value("f");
    found.as_array().unwrap().iter().map(|e| e.as_doc().unwrap().to_buf()).collect()
}

/// One document, with the joined documents beside it.
fn beside(run: &Run, actor: &Actor, stage: DocBuf) -> Option<(DocBuf, Vec<DocBuf>)> {
    let command = aggregate("one", actor, array![stage]);
    let rows = run.rows(actor, &command)?;
    assert_eq!(rows.len(), 1, "{}", show(&command));
    let found = found(&rows[0]);
    Some((command, found))
}

fn lookup_one(run: &Run, actor: &Actor, expected: &Expected<'_>) {
    let lookup = doc! {
        "from" => expected.name, "localField" => "x", "foreignField" => "x", "as" => "f",
    };
    let Some((command, found)) = beside(run, actor, doc! { "$lookup" => lookup }) else { return };
    let gone = found.is_empty() && expected.may_be_gone;
    assert!(found.len() == 1 || gone, "{}: {found:?}", show(&command));
    found.iter().for_each(|doc| expected.current(number(doc, "gen") as u64));
}

fn lookup_all(run: &Run, actor: &Actor, expected: &Expected<'_>) {
    let inner = array![doc! { "$match" => filter(actor) }];
    let lookup = doc! { "from" => expected.name, "pipeline" => inner, "as" => "f" };
    if let Some((command, found)) = beside(run, actor, doc! { "$lookup" => lookup }) {
        expected.whole(&found, &command);
    }
}

fn union(run: &Run, actor: &Actor, expected: &Expected<'_>) {
    let inner = array![doc! { "$match" => filter(actor) }];
    let union = doc! { "$unionWith" => doc! { "coll" => expected.name, "pipeline" => inner } };
    let command = aggregate("one", actor, array![union]);
    let Some(mut rows) = run.rows(actor, &command) else { return };
    assert_eq!(number(&rows.remove(0), "x"), 5);
    expected.whole(&rows, &command);
}

fn graph(run: &Run, actor: &Actor, expected: &Expected<'_>) {
    let graph = doc! { "$graphLookup" => doc! {
        "from" => expected.name, "startWith" => "$_id", "connectFromField" => "next",
        "connectToField" => "x", "as" => "f",
    } };
    let Some((command, found)) = beside(run, actor, graph) else { return };
    expected.whole(&found, &command);
}
