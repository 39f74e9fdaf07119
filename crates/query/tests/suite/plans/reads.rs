//! Runs one query through the chosen plan, each candidate plan, each index as a hint, and the records in both
//! directions.

use super::ask::{self, Ask};
use super::{Tally, naive};
use crate::generate::Generator;
use crate::matching::order;
use crate::mutation::generate::Place;
use crate::mutation::project;
use crate::world::{World, id_of, raw};
use bson::{Bson, Document};
use kauri_base::{ErrorCode, Result};
use kauri_catalog::Index;
use kauri_matcher::{Matcher, ParseCx, Place as FilterPlace};
use kauri_mutate::Projection;
use kauri_query::exec::sort::SortPattern;
use kauri_query::plan::{Hint, Query, plan_distinct, planner};
use kauri_storage::Direction;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The expected result.
struct Expected {
    /// The matching documents, in record order.
    matching: Vec<Document>,
    /// Their sort keys in order; `None` without a sort.
    keys: Option<Vec<Vec<Bson>>>,
    /// Whether the matching documents cannot be sorted.
    unsortable: bool,
}

pub fn query(ask: &Ask) -> Query {
    let filter = raw(&ask.filter.asked);
    let expressions = kauri_expr::ParseCx::default();
    let cx = ParseCx::new(FilterPlace::Find).with_expressions(&expressions);
    let matcher = Matcher::parse(filter.as_doc(), &cx);
    let matcher = matcher.unwrap_or_else(|e| panic!("{}: {e:?}", ask.filter.asked));
    let sort = ask.sort_spec();
    let projection = ask.projection.as_ref().map(|spec| {
        let spec = raw(spec);
        let parsed = Projection::parse(spec.as_doc(), None, &kauri_mutate::ParseCx::new());
        (Arc::new(parsed.unwrap()), spec)
    });
    Query {
        filter: (!filter.as_doc().is_empty()).then(|| Arc::new(matcher)),
        sort: (!sort.is_empty()).then(|| SortPattern::parse(raw(&sort).as_doc()).unwrap()),
        skip: ask.skip,
        limit: ask.limit,
        projection,
        ..Query::default()
    }
}

fn expected(world: &World, ask: &Ask) -> Expected {
    let matching: Vec<Document> =
        world.docs.iter().filter(|doc| ask.filter.matches(doc)).cloned().collect();
    let mut expected = Expected { matching, keys: None, unsortable: false };
    if !ask.sort.is_empty() {
        let descending: Vec<bool> = ask.sort.iter().map(|(_, descending)| *descending).collect();
        let keys: Option<Vec<_>> =
            expected.matching.iter().map(|doc| naive::sort_key(doc, &ask.sort)).collect();
        expected.unsortable = keys.is_none();
        expected.keys = keys.map(|mut keys| {
            keys.sort_by(|a, b| naive::compare_keys(a, b, &descending));
            keys
        });
    }
    expected
}

/// Runs one query in every way.
pub fn check(world: &World, generator: &Generator, tally: &mut Tally) {
    let ask = ask::ask(generator, &world.leading_paths(), &world.index_paths());
    let expected = expected(world, &ask);
    let query = query(&ask);
    let collection = world.collection();
    tally.queries += 1;
    let mut judge = |way: &str, answer: Result<(Vec<Document>, String)>, natural| {
        tally.plans += 1;
        if let Ok((rows, plan)) = &answer {
            tally.rows += rows.len() as u64;
            tally.by_index += u32::from(plan.contains("IXSCAN"));
            tally.by_or += u32::from(plan.contains("\"OR\""));
            tally.merged += u32::from(plan.contains("SORT_MERGE"));
            tally.covered += u32::from(plan.contains("PROJECTION_COVERED"));
            let sorted = !ask.sort.is_empty() && !plan.contains("\"SORT\"");
            tally.sorted_by_index += u32::from(sorted && plan.contains("IXSCAN"));
        }
        if let Err(complaint) = compare(&ask, &expected, &answer, natural) {
            panic!("{}", dump(world, &ask, &expected, way, &answer, &complaint));
        }
    };
    judge("chosen", world.run(&query), false);
    let candidates = planner::candidates(Some(&collection), &query).unwrap();
    for candidate in candidates {
        judge("candidate", world.rows(candidate.into_stage(Some(&collection), &query)), false);
    }
    for index in &collection.indexes {
        // A hint uses these although they lack documents.
        if index.definition().sparse || index.definition().partial.is_some() {
            continue;
        }
        let same = |other: &&Arc<Index>| other.definition().key == index.definition().key;
        let hint = match generator.below(2) {
            0 if collection.indexes.iter().filter(same).count() == 1 => {
                Hint::Pattern(index.definition().key.clone())
            }
            _ => Hint::Name(index.name().to_owned()),
        };
        let query = Query { hint: Some(hint), ..query.clone() };
        judge("hint", world.run(&query), false);
    }
    check_count(world, generator, &ask, &expected, &query);
    let direction = match generator.below(2) {
        0 => Direction::Forward,
        _ => Direction::Backward,
    };
    let query = Query { hint: Some(Hint::Natural(direction)), ..query };
    judge("natural", world.run(&query), direction == Direction::Forward);
    check_distinct(world, generator, &ask, &expected, tally);
}

/// Counts the rows through one of the plans.
fn check_count(
    world: &World,
    generator: &Generator,
    ask: &Ask,
    expected: &Expected,
    query: &Query,
) {
    let query = Query { count: true, sort: None, projection: None, ..query.clone() };
    let collection = world.collection();
    let mut candidates = planner::candidates(Some(&collection), &query).unwrap();
    let chosen = candidates.swap_remove(generator.below(candidates.len() as u64) as usize);
    let (rows, plan) = world.rows(chosen.into_stage(Some(&collection), &query)).unwrap();
    let all = expected.matching.len().saturating_sub(ask.skip as usize) as i64;
    let wanted = if ask.limit > 0 { all.min(ask.limit as i64) } else { all };
    let told: Vec<_> = rows.iter().map(|row| row.get_i64("n").unwrap()).collect();
    if told != [wanted] {
        let answer = Ok((rows, plan));
        panic!("{}", dump(world, ask, expected, "count", &answer, &format!("not {wanted}")));
    }
}

/// The distinct values of a field without arrays, through an index if a suitable one exists.
fn check_distinct(
    world: &World,
    generator: &Generator,
    ask: &Ask,
    expected: &Expected,
    tally: &mut Tally,
) {
    let key = generator.pick(&world.leading_paths());
    let only_filter = Query { filter: query(ask).filter, ..Query::default() };
    let only_filter = match generator.below(3) {
        0 => only_filter,
        _ => Query::default(),
    };
    let collection = world.collection();
    let planned = plan_distinct(Some(&collection), &only_filter, &key, &world.env).unwrap();
    let Some(planned) = planned else { return };
    tally.distinct += 1;
    let (rows, plan) = world.rows(planned.root).unwrap();
    let docs = if only_filter.filter.is_some() { &expected.matching } else { &world.docs };
    let values = |docs: &[Document]| {
        let mut values: Vec<Bson> =
            docs.iter().filter_map(|doc| naive::value_at(doc, &key)).collect();
        values.sort_by(order);
        values.dedup_by(|a, b| order(a, b).is_eq());
        values
    };
    let (found, wanted) = (values(&rows), values(docs));
    let same =
        found.len() == wanted.len() && found.iter().zip(&wanted).all(|(a, b)| order(a, b).is_eq());
    if !same {
        let complaint = format!("values of {key}: {found:?} instead of {wanted:?}");
        let answer = Ok((Vec::new(), plan));
        panic!("{}", dump(world, ask, expected, "distinct", &answer, &complaint));
    }
}

/// Compares a result with the expected one.
fn compare(
    ask: &Ask,
    expected: &Expected,
    answer: &Result<(Vec<Document>, String)>,
    natural: bool,
) -> std::result::Result<(), String> {
    let (rows, plan) = match answer {
        Ok(answer) => answer,
        Err(error) if expected.unsortable && error.code() == ErrorCode::BadValue => return Ok(()),
        Err(error) => return Err(format!("{error:?}")),
    };
    if expected.unsortable {
        // An index with this order has no such documents, so the rows were sorted.
        return Err("sorted what cannot be sorted".to_owned());
    }
    let all = expected.matching.len();
    let wanted = all.saturating_sub(ask.skip as usize);
    let wanted = if ask.limit > 0 { wanted.min(ask.limit as usize) } else { wanted };
    if rows.len() != wanted {
        return Err(format!("{} rows instead of {wanted}", rows.len()));
    }
    if natural && ask.sort.is_empty() && ask.projection.is_none() {
        let skipped = &expected.matching[all.min(ask.skip as usize)..];
        if !rows.iter().zip(skipped).all(|(row, doc)| raw(row) == raw(doc)) {
            return Err("not in the order of the records".to_owned());
        }
    }
    // A projection may omit `_id`: then a row represents any equal document.
    let seen = |doc: &Document| match &ask.projection {
        Some(spec) => project::apply(doc, spec, Place::Find).unwrap(),
        None => doc.clone(),
    };
    // Rows made of index keys have their fields in the index's order.
    let covered = plan.contains("PROJECTION_COVERED");
    let bytes = |doc: Document| raw(&if covered { in_name_order(doc) } else { doc }).into_vec();
    let mut left: Vec<(&Document, Vec<u8>)> =
        expected.matching.iter().map(|doc| (doc, bytes(seen(doc)))).collect();
    let order = expected.keys.as_ref().map(|keys| &keys[keys.len().min(ask.skip as usize)..]);
    for (place, row) in rows.iter().enumerate() {
        let bytes = bytes(row.clone());
        let fits = |(doc, seen): &(&Document, Vec<u8>)| {
            let in_place = |order: &[Vec<Bson>]| {
                let key = naive::sort_key(doc, &ask.sort).unwrap();
                let descending = vec![false; key.len()];
                naive::compare_keys(&key, &order[place], &descending).is_eq()
            };
            *seen == bytes && order.is_none_or(in_place)
        };
        match left.iter().position(fits) {
            Some(found) => drop(left.remove(found)),
            None => return Err(format!("row {place} should not be there: {row}")),
        }
    }
    Ok(())
}

fn in_name_order(doc: Document) -> Document {
    let mut fields: Vec<(String, Bson)> = doc.into_iter().collect();
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    fields.into_iter().collect()
}

/// The description of a failure, with the relevant documents only.
fn dump(
    world: &World,
    ask: &Ask,
    expected: &Expected,
    way: &str,
    answer: &Result<(Vec<Document>, String)>,
    complaint: &str,
) -> String {
    let mut text = format!("{way}: {complaint}\n filter {}\n", ask.filter.asked);
    text += &format!(" sort {} skip {} limit {}", ask.sort_spec(), ask.skip, ask.limit);
    text += &format!(" projection {:?}\n indexes\n{}", ask.projection, world.indexes());
    let Ok((rows, plan)) = answer else { return text };
    text += &format!(" plan {plan}\n");
    let have_ids = !rows.is_empty() && rows.iter().all(|row| row.contains_key("_id"));
    let ids = |docs: &[Document]| docs.iter().map(id_of).collect::<BTreeSet<i32>>();
    let wanted = ids(&expected.matching);
    let found = if have_ids { ids(rows) } else { wanted.clone() };
    for doc in &world.docs {
        let id = id_of(doc);
        match (wanted.contains(&id), found.contains(&id)) {
            (true, false) => text += &format!(" missing {doc}\n"),
            (false, true) => text += &format!(" too many {doc}\n"),
            _ => {}
        }
    }
    if wanted == found {
        rows.iter().for_each(|row| text += &format!(" row {row}\n"));
        expected.matching.iter().for_each(|doc| text += &format!(" matching {doc}\n"));
    }
    text
}
