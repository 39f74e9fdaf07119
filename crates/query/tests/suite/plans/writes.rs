//! Write statements executed through plans. Afterwards the collection equals the reference's result, and each
//! index equals a rebuild.

use super::ask::{self, Ask};
use super::{Tally, naive, reads};
use crate::generate::Generator;
use crate::mutation::update as reference;
use crate::world::{World, id_of, is_refusal, owned, raw};
use bson::{Bson, Document, doc};
use kauri_base::Result;
use kauri_base::clock::SeededRandom;
use kauri_base::operation::block_on;
use kauri_bson::Value;
use kauri_catalog::check::{CheckStep, CollectionCheck};
use kauri_mutate::{ParseCx, Update};
use kauri_query::plan::Hint;
use kauri_query::write::delete::delete;
use kauri_query::write::find_and_modify::{find_and_remove, find_and_update};
use kauri_query::write::targets::Targets;
use kauri_query::write::update::{Shown, UpdateStatement, update};
use kauri_query::write::{Bypass, WriteOutcome};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Verb {
    Update,
    Delete,
    FindAndUpdate { new: bool },
    FindAndRemove,
}

/// The result of a statement: the number of documents it reached, and the document it returned.
type Answer = Result<(u64, Option<Document>)>;

/// Runs one statement and compares.
pub fn check(world: &mut World, generator: &Generator, tally: &mut Tally) {
    let verb = match generator.below(10) {
        0..=4 => Verb::Update,
        5 => Verb::Delete,
        6..=8 => Verb::FindAndUpdate { new: generator.below(2) == 0 },
        _ => Verb::FindAndRemove,
    };
    let many = matches!(verb, Verb::Update | Verb::Delete) && generator.below(3) > 0;
    let mut ask = ask::ask(generator, &world.leading_paths(), &world.index_paths());
    (ask.skip, ask.limit, ask.projection) = (0, u64::from(!many), None);
    if many {
        ask.sort.clear();
    }
    let change = change(generator);
    let answer = execute(world, generator, &ask, verb, many, &change);
    let stored = world.stored();
    let old = std::mem::replace(&mut world.docs, stored);
    let judged = judge(&old, &world.docs, &ask, verb, many, &change, &answer);
    if let Err(complaint) = judged {
        let (filter, sort) = (&ask.filter.asked, ask.sort_spec());
        let stored: Vec<_> = world.docs.iter().map(raw).collect();
        let changed: Vec<_> = old.iter().filter(|doc| !stored.contains(&raw(doc))).collect();
        panic!(
            "{verb:?} many {many}: {complaint}\n filter {filter}\n sort {sort} change {change}\n \
             answer {answer:?}\n indexes\n{} changed {changed:?}",
            world.indexes()
        );
    }
    tally.written += answer.map_or(0, |(reached, _)| reached);
    // The collection must not become empty.
    while world.docs.len() < 10 {
        world.insert(generator.document());
    }
}

/// An update that only an index can reject.
fn change(generator: &Generator) -> Document {
    let value = |doc: Document| doc.get("a").cloned().unwrap_or(Bson::Int32(1));
    let fields = ["a", "b", "c"];
    let (one, other) = (generator.below(3) as usize, 1 + generator.below(2) as usize);
    let mut change = doc! { "$set": { fields[one]: value(generator.document()) } };
    if generator.below(2) == 0 {
        change.insert("$unset", doc! { fields[(one + other) % 3]: "" });
    }
    change
}

fn execute(
    world: &World,
    generator: &Generator,
    ask: &Ask,
    verb: Verb,
    many: bool,
    change: &Document,
) -> Answer {
    let mut query = reads::query(ask);
    let collection = world.collection();
    let index = &collection.indexes[generator.below(collection.indexes.len() as u64) as usize];
    if generator.below(2) == 0 && !index.definition().sparse && index.definition().partial.is_none()
    {
        query.hint = Some(Hint::Name(index.name().to_owned()));
    }
    let (mut op, mut outcome) = (world.op(), WriteOutcome::default());
    let targets = Targets {
        catalog: &world.catalog,
        ns: &world.ns,
        query: &query,
        env: &world.env,
        multi: many,
        only: None,
    };
    let parsed = Update::parse(&Value::from(raw(change)), &[], &ParseCx::new()).unwrap();
    if verb == Verb::Delete {
        let deleted = block_on(delete(&mut op, &targets, &mut outcome))?;
        return Ok((deleted, None));
    }
    if verb == Verb::FindAndRemove {
        let done = block_on(find_and_remove(&mut op, &targets, &mut outcome))?;
        return Ok((u64::from(done.existing), done.value.map(|doc| owned(doc.as_doc()))));
    }
    let statement =
        UpdateStatement { targets, update: &parsed, upsert: false, bypass: Bypass::default() };
    if let Verb::FindAndUpdate { new } = verb {
        let done = block_on(find_and_update(&mut op, &statement, new, &mut outcome))?;
        return Ok((u64::from(done.existing), done.value.map(|doc| owned(doc.as_doc()))));
    }
    let done = block_on(update(&mut op, &statement, Shown::None, &mut outcome))?;
    Ok((done.matched, None))
}

fn judge(
    old: &[Document],
    new: &[Document],
    ask: &Ask,
    verb: Verb,
    many: bool,
    change: &Document,
    answer: &Answer,
) -> std::result::Result<(), String> {
    let removes = matches!(verb, Verb::Delete | Verb::FindAndRemove);
    let after = |doc: &Document| match removes {
        true => None,
        false => Some(reference::apply(doc, change, &[], None).expect("no error is generated")),
    };
    let matching: Vec<&Document> = old.iter().filter(|doc| ask.filter.matches(doc)).collect();
    let now = |doc: &Document| new.iter().find(|other| id_of(other) == id_of(doc));
    let touched: Vec<&&Document> =
        matching.iter().filter(|doc| now(doc).map(raw) == after(doc).as_ref().map(raw)).collect();
    let untouched = |doc: &Document| now(doc).is_some_and(|other| raw(other) == raw(doc));
    for doc in old {
        if !untouched(doc) && !touched.iter().any(|other| id_of(other) == id_of(doc)) {
            return Err(format!("{doc} became {:?}", now(doc)));
        }
    }
    let Ok((reached, shown)) = answer else {
        // An index rejected one update, after earlier updates were done.
        let refused = answer.as_ref().is_err_and(is_refusal);
        let unsortable = matching.iter().any(|doc| naive::sort_key(doc, &ask.sort).is_none());
        return if refused || unsortable { Ok(()) } else { Err("an error".to_owned()) };
    };
    let wanted = if many { matching.len() } else { matching.len().min(1) };
    if *reached != wanted as u64 {
        return Err(format!("reached {reached} instead of {wanted}"));
    }
    // A document that the update leaves unchanged counts as touched, so there may be more.
    if touched.len() < wanted {
        return Err(format!("{} of {wanted} are changed", touched.len()));
    }
    if !many && removes && old.len() - new.len() != wanted {
        return Err("more documents are deleted".to_owned());
    }
    let Some(shown) = shown else { return Ok(()) };
    let before = match verb {
        Verb::FindAndUpdate { new: true } => old.iter().find(|doc| id_of(doc) == id_of(shown)),
        _ => old.iter().find(|doc| raw(doc) == raw(shown)),
    };
    let Some(before) = before else { return Err("shows what was not there".to_owned()) };
    first_of(before, &matching, ask)
}

/// Whether a document is one of the first in the requested order.
fn first_of(doc: &Document, matching: &[&Document], ask: &Ask) -> std::result::Result<(), String> {
    let descending: Vec<bool> = ask.sort.iter().map(|(_, descending)| *descending).collect();
    let key = |doc: &Document| naive::sort_key(doc, &ask.sort);
    for other in matching {
        let (Some(key), Some(other_key)) = (key(doc), key(other)) else { continue };
        if naive::compare_keys(&other_key, &key, &descending).is_lt() {
            return Err(format!("{other} comes before {doc}"));
        }
    }
    Ok(())
}

/// Checks that every index has the keys of its documents.
pub fn check_indexes(world: &World) {
    let mut check = CollectionCheck::new(world.collection(), &SeededRandom::new(1));
    let mut scope = world.backend.scope();
    loop {
        match check.step(scope.reader()).unwrap() {
            CheckStep::Done => break,
            CheckStep::Again => {}
            CheckStep::Blocked(ticket) => ticket.wait().unwrap(),
        }
    }
    let report = format!("{:?}", check.report());
    assert!(check.report().findings.is_empty(), "{report}\n{}", world.indexes());
}
