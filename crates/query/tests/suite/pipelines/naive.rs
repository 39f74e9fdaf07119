//! A naive reference: pipelines over owned documents, stage by stage.

use super::generate::Case;
use crate::matching;
use crate::mutation::generate::Place;
use crate::mutation::project;
use bson::{Bson, Document, doc};
use std::cmp::Ordering;

/// Cases outside the reference: an error that depends on the order of stages, or sums that depend on the order
/// of addition.
#[derive(Debug)]
pub struct Unjudged;

type Docs = Result<Vec<Document>, Unjudged>;

/// The value of `$$v`, if it is defined.
type Vars<'v> = Option<&'v Option<Bson>>;

pub fn run(case: &Case, stages: &[Document], docs: Vec<Document>) -> Docs {
    run_with(case, stages, docs, None)
}

fn run_with(case: &Case, stages: &[Document], docs: Vec<Document>, vars: Vars<'_>) -> Docs {
    stages.iter().try_fold(docs, |docs, stage| {
        let (name, spec) = stage.iter().next().expect("a stage has a name");
        run_stage(case, name, spec, docs, vars)
    })
}

fn run_stage(case: &Case, name: &str, spec: &Bson, docs: Vec<Document>, vars: Vars<'_>) -> Docs {
    let mapped = |of: &dyn Fn(&Document) -> Document| Ok(docs.iter().map(of).collect());
    match name {
        "$match" => {
            let filter = spec.as_document().unwrap();
            Ok(docs.into_iter().filter(|doc| matches(filter, doc, vars)).collect())
        }
        "$project" => mapped(&|doc| projected(doc, spec, Place::Project)),
        "$addFields" | "$set" => mapped(&|doc| projected(doc, spec, Place::AddFields)),
        "$unset" => mapped(&|doc| {
            let spec = doc! { spec.as_str().unwrap(): 0 };
            projected(doc, &Bson::Document(spec), Place::Project)
        }),
        "$replaceRoot" => {
            mapped(&|doc| root(doc, spec.as_document().unwrap().get("newRoot").unwrap()))
        }
        "$replaceWith" => mapped(&|doc| root(doc, spec)),
        "$group" => group(&docs, spec.as_document().unwrap()),
        "$sortByCount" => {
            let groups = group(&docs, &doc! { "_id": spec.clone(), "count": { "$sum": 1 } })?;
            sort(groups, &doc! { "count": -1 })
        }
        "$bucket" => bucket(&docs, spec.as_document().unwrap()),
        "$sort" => sort(docs, spec.as_document().unwrap()),
        "$limit" => Ok(docs.into_iter().take(spec.as_i32().unwrap() as usize).collect()),
        "$skip" => Ok(docs.into_iter().skip(spec.as_i32().unwrap() as usize).collect()),
        "$unwind" => Ok(docs.iter().flat_map(|doc| unwind(doc, spec)).collect()),
        "$count" if docs.is_empty() => Ok(docs),
        "$count" => Ok(vec![doc! { spec.as_str().unwrap(): docs.len() as i32 }]),
        "$facet" => {
            let mut all = Document::new();
            for (name, stages) in spec.as_document().unwrap() {
                all.insert(name, run(case, &pipeline(stages), docs.clone())?);
            }
            Ok(vec![all])
        }
        "$unionWith" => {
            let stages = pipeline(spec.as_document().unwrap().get("pipeline").unwrap());
            let mut all = docs;
            all.extend(run(case, &stages, case.foreign.clone())?);
            Ok(all)
        }
        "$redact" => Ok(docs.iter().filter_map(|doc| redact(doc, spec)).collect()),
        "$setWindowFields" => windows(docs, spec.as_document().unwrap()),
        "$graphLookup" => {
            Ok(docs.iter().map(|doc| graph(case, doc, spec.as_document().unwrap())).collect())
        }
        "$lookup" => {
            docs.iter().map(|doc| lookup(case, doc, spec.as_document().unwrap())).collect()
        }
        other => panic!("not generated: {other}"),
    }
}

fn pipeline(stages: &Bson) -> Vec<Document> {
    stages.as_array().unwrap().iter().map(|stage| stage.as_document().unwrap().clone()).collect()
}

fn matches(filter: &Document, doc: &Document, vars: Vars<'_>) -> bool {
    match filter.get("$expr") {
        Some(expression) => truthy(&evaluate(doc, expression, vars)),
        None => matching::matches(filter, doc),
    }
}

fn projected(doc: &Document, spec: &Bson, place: Place) -> Document {
    let mut computed = Document::new();
    for (name, value) in spec.as_document().unwrap() {
        let value = match value {
            Bson::Int32(_) => value.clone(),
            expression => match evaluate(doc, expression, None) {
                Some(value) => Bson::Document(doc! { "$literal": value }),
                None => Bson::String("$no.such.field".to_owned()),
            },
        };
        computed.insert(name, value);
    }
    project::apply(doc, &computed, place).expect("no paths collide")
}

fn root(doc: &Document, expression: &Bson) -> Document {
    match evaluate(doc, expression, None) {
        Some(Bson::Document(root)) => root,
        other => panic!("no document: {other:?}"),
    }
}

fn truthy(value: &Option<Bson>) -> bool {
    match value {
        None | Some(Bson::Null | Bson::Undefined) => false,
        Some(Bson::Boolean(flag)) => *flag,
        Some(value) => matching::order(value, &Bson::Int32(0)).is_ne(),
    }
}

/// The order of values, of which one may be missing: a missing value comes directly after `MinKey`.
fn order(a: &Option<Bson>, b: &Option<Bson>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => matching::order(a, b),
        (None, None) => Ordering::Equal,
        (None, Some(Bson::MinKey)) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => order(b, a).reverse(),
    }
}

fn evaluate(doc: &Document, expression: &Bson, vars: Vars<'_>) -> Option<Bson> {
    let eval = |inner: &Bson| evaluate(doc, inner, vars);
    match expression {
        Bson::String(text) if text == "$$ROOT" => Some(Bson::Document(doc.clone())),
        Bson::String(text) if text.starts_with("$$") && text != "$$v" => {
            Some(Bson::String(text.clone()))
        }
        Bson::String(text) if text == "$$v" => vars.expect("a variable in scope").clone(),
        Bson::String(text) if text.starts_with('$') => {
            let path: Vec<&str> = text[1..].split('.').collect();
            field(doc, &path)
        }
        Bson::Array(items) => {
            Some(Bson::Array(items.iter().map(|item| eval(item).unwrap_or(Bson::Null)).collect()))
        }
        Bson::Document(call) => match call.iter().next() {
            Some((name, args)) if name.starts_with('$') => operator(name, args, &eval),
            _ => {
                let fields = call.iter().filter_map(|(name, e)| Some((name.clone(), eval(e)?)));
                Some(Bson::Document(fields.collect()))
            }
        },
        constant => Some(constant.clone()),
    }
}

fn operator(name: &str, args: &Bson, eval: &dyn Fn(&Bson) -> Option<Bson>) -> Option<Bson> {
    if name == "$literal" {
        return Some(args.clone());
    }
    if name == "$sortArray" {
        return Some(by_id(eval(args.as_document()?.get("input")?)?));
    }
    let args: Vec<Option<Bson>> = match args {
        Bson::Array(list) => list.iter().map(eval).collect(),
        one => vec![eval(one)],
    };
    let compared = || order(&args[0], &args[1]);
    let nullish = |v: &Option<Bson>| matches!(v, None | Some(Bson::Null | Bson::Undefined));
    Some(match name {
        "$ifNull" => return if nullish(&args[0]) { args[1].clone() } else { args[0].clone() },
        "$cond" => return args[if truthy(&args[0]) { 1 } else { 2 }].clone(),
        "$eq" => Bson::Boolean(compared().is_eq()),
        "$ne" => Bson::Boolean(compared().is_ne()),
        "$gt" => Bson::Boolean(compared().is_gt()),
        "$lt" => Bson::Boolean(compared().is_lt()),
        "$lte" => Bson::Boolean(compared().is_le()),
        "$cmp" => Bson::Int32(compared() as i32),
        "$and" => Bson::Boolean(args.iter().all(truthy)),
        "$or" => Bson::Boolean(args.iter().any(truthy)),
        "$isArray" => Bson::Boolean(matches!(args[0], Some(Bson::Array(_)))),
        "$type" => Bson::String(type_name(&args[0]).to_owned()),
        "$mergeObjects" => {
            let mut merged = Document::new();
            for part in args.into_iter().flatten() {
                merged.extend(part.as_document().expect("a document").clone());
            }
            Bson::Document(merged)
        }
        other => panic!("not generated: {other}"),
    })
}

/// The documents of an array in the order of their numeric `_id`s.
fn by_id(array: Bson) -> Bson {
    let Bson::Array(mut items) = array else { panic!("no array: {array:?}") };
    items.sort_by(|a, b| matching::order(id(a), id(b)));
    Bson::Array(items)
}

fn id(value: &Bson) -> &Bson {
    value.as_document().and_then(|doc| doc.get("_id")).expect("a document with an _id")
}

fn type_name(value: &Option<Bson>) -> &'static str {
    match value {
        None => "missing",
        Some(Bson::Double(_)) => "double",
        Some(Bson::String(_)) => "string",
        Some(Bson::Document(_)) => "object",
        Some(Bson::Array(_)) => "array",
        Some(Bson::Binary(_)) => "binData",
        Some(Bson::ObjectId(_)) => "objectId",
        Some(Bson::Boolean(_)) => "bool",
        Some(Bson::DateTime(_)) => "date",
        Some(Bson::Null) => "null",
        Some(Bson::RegularExpression(_)) => "regex",
        Some(Bson::Int32(_)) => "int",
        Some(Bson::Int64(_)) => "long",
        Some(Bson::Decimal128(_)) => "decimal",
        Some(Bson::Timestamp(_)) => "timestamp",
        Some(Bson::MinKey) => "minKey",
        Some(Bson::MaxKey) => "maxKey",
        Some(Bson::Symbol(_)) => "symbol",
        Some(other) => panic!("not generated: {other:?}"),
    }
}

/// A path as expressions resolve it: into the documents of arrays, one array deep.
fn field(doc: &Document, path: &[&str]) -> Option<Bson> {
    let value = doc.get(path[0])?;
    let rest = &path[1..];
    match value {
        value if rest.is_empty() => Some(value.clone()),
        Bson::Document(inner) => field(inner, rest),
        Bson::Array(items) => {
            let inner = items.iter().filter_map(Bson::as_document);
            Some(Bson::Array(inner.filter_map(|doc| field(doc, rest)).collect()))
        }
        _ => None,
    }
}

fn group(docs: &[Document], spec: &Document) -> Docs {
    let mut groups: Vec<(Bson, Vec<&Document>)> = Vec::new();
    for doc in docs {
        let id = evaluate(doc, spec.get("_id").unwrap(), None).unwrap_or(Bson::Null);
        match groups.iter_mut().find(|(other, _)| matching::order(other, &id).is_eq()) {
            Some((_, members)) => members.push(doc),
            None => groups.push((id, vec![doc])),
        }
    }
    groups.into_iter().map(|(id, members)| shown(id, &members, spec)).collect()
}

/// The output document of a group.
fn shown(id: Bson, members: &[&Document], spec: &Document) -> Result<Document, Unjudged> {
    let mut shown = doc! { "_id": id };
    for (name, accumulator) in spec.iter().filter(|(name, _)| *name != "_id") {
        let (operator, argument) = accumulator.as_document().unwrap().iter().next().unwrap();
        let values = members.iter().map(|doc| evaluate(doc, argument, None)).collect();
        shown.insert(name, accumulate(operator, values)?);
    }
    Ok(shown)
}

fn accumulate(operator: &str, values: Vec<Option<Bson>>) -> Result<Bson, Unjudged> {
    let best = |wanted: Ordering| {
        let there = values.iter().flatten().filter(|v| !matches!(v, Bson::Null | Bson::Undefined));
        there.fold(Bson::Null, |best, value| {
            let better = best == Bson::Null || matching::order(value, &best) == wanted;
            if better { value.clone() } else { best }
        })
    };
    Ok(match operator {
        "$sum" => sum(&values)?.0,
        "$avg" => match sum(&values)? {
            (_, _, 0) => Bson::Null,
            (_, sum, count) if is_exact(sum / count as f64) => Bson::Double(sum / count as f64),
            _ => return Err(Unjudged),
        },
        "$min" => best(Ordering::Less),
        "$max" => best(Ordering::Greater),
        "$first" => values.first().cloned().flatten().unwrap_or(Bson::Null),
        "$last" => values.last().cloned().flatten().unwrap_or(Bson::Null),
        "$push" => Bson::Array(values.into_iter().flatten().collect()),
        "$addToSet" => {
            let mut set: Vec<Bson> = Vec::new();
            for value in values.into_iter().flatten() {
                if !set.iter().any(|other| matching::order(other, &value).is_eq()) {
                    set.push(value);
                }
            }
            Bson::Array(set)
        }
        other => panic!("not generated: {other}"),
    })
}

/// The sum as shown, the sum as a double, and the count of numbers.
fn sum(values: &[Option<Bson>]) -> Result<(Bson, f64, usize), Unjudged> {
    let (mut sum, mut count, mut widest) = (0.0, 0, 0);
    for value in values.iter().flatten() {
        let (number, width) = match value {
            Bson::Int32(v) => (f64::from(*v), 0),
            Bson::Int64(v) => (*v as f64, 1),
            Bson::Double(v) => (*v, 2),
            Bson::Decimal128(_) => return Err(Unjudged),
            _ => continue,
        };
        if !is_exact(number) {
            return Err(Unjudged);
        }
        (sum, count, widest) = (sum + number, count + 1, widest.max(width));
    }
    let shown = match widest {
        0 => Bson::Int32(sum as i32),
        1 => Bson::Int64(sum as i64),
        _ => Bson::Double(sum),
    };
    Ok((shown, sum, count))
}

/// Whether the reference's comparison, which works in halves, distinguishes the number from others.
fn is_exact(number: f64) -> bool {
    let small = number.abs() < 1e6 && !(number == 0.0 && number.is_sign_negative());
    small && (number * 2.0).fract() == 0.0
}

fn bucket(docs: &[Document], spec: &Document) -> Docs {
    let boundaries = spec.get_array("boundaries").unwrap();
    let count = doc! { "count": { "$sum": 1 } };
    let output = spec.get_document("output").unwrap_or(&count);
    let mut all = Vec::new();
    let mut rest: Vec<&Document> = docs.iter().collect();
    for pair in boundaries.windows(2) {
        let within = |doc: &&Document| {
            let value = evaluate(doc, spec.get("groupBy").unwrap(), None);
            order(&value, &Some(pair[0].clone())).is_ge()
                && order(&value, &Some(pair[1].clone())).is_lt()
        };
        let (members, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(within);
        if !members.is_empty() {
            all.push(shown(pair[0].clone(), &members, output)?);
        }
        rest = others;
    }
    if !rest.is_empty() {
        all.push(shown(spec.get("default").unwrap().clone(), &rest, output)?);
    }
    Ok(all)
}

fn sort(docs: Vec<Document>, spec: &Document) -> Docs {
    let mut keyed = Vec::new();
    for doc in docs {
        let mut arrays = 0;
        let mut key = Vec::new();
        for (path, direction) in spec {
            let path: Vec<&str> = path.split('.').collect();
            let (mut values, mut through_array) = (Vec::new(), false);
            sort_values(&Bson::Document(doc.clone()), &path, &mut values, &mut through_array);
            arrays += u32::from(through_array);
            let descending = direction.as_i32() == Some(-1);
            values.sort_by(matching::order);
            let least = if descending { values.pop() } else { values.into_iter().next() };
            key.push((least.expect("a key"), descending));
        }
        if arrays > 1 {
            return Err(Unjudged);
        }
        keyed.push((key, doc));
    }
    keyed.sort_by(|(a, _), (b, _)| {
        let parts = a.iter().zip(b).map(|((a, descending), (b, _))| {
            let order = matching::order(a, b);
            if *descending { order.reverse() } else { order }
        });
        parts.fold(Ordering::Equal, Ordering::then)
    });
    Ok(keyed.into_iter().map(|(_, doc)| doc).collect())
}

/// The values that an index on the path has.
fn sort_values(value: &Bson, path: &[&str], values: &mut Vec<Bson>, through_array: &mut bool) {
    match (value, path.split_first()) {
        (Bson::Document(doc), Some((name, rest))) => match doc.get(name) {
            Some(inner) => sort_values(inner, rest, values, through_array),
            None => values.push(Bson::Null),
        },
        (Bson::Array(items), rest) => {
            *through_array = true;
            if items.is_empty() {
                values.push(if rest.is_none() { Bson::Undefined } else { Bson::Null });
            }
            for item in items {
                match (item, rest) {
                    (Bson::Document(_), Some(_)) => {
                        sort_values(item, path, values, through_array);
                    }
                    (_, Some(_)) => values.push(Bson::Null),
                    (item, None) => values.push(item.clone()),
                }
            }
        }
        (_, Some(_)) => values.push(Bson::Null),
        (value, None) => values.push(value.clone()),
    }
}

fn unwind(doc: &Document, spec: &Bson) -> Vec<Document> {
    let (path, preserve, index) = match spec {
        Bson::Document(spec) => (
            spec.get_str("path").unwrap(),
            spec.get_bool("preserveNullAndEmptyArrays").unwrap(),
            spec.get_str("includeArrayIndex").ok(),
        ),
        path => (path.as_str().unwrap(), false, None),
    };
    let path: Vec<&str> = path[1..].split('.').collect();
    let with_index = |mut doc: Document, at: Bson| {
        if let Some(index) = index {
            set(&mut doc, &index.split('.').collect::<Vec<_>>(), Some(at));
        }
        doc
    };
    match within(doc, &path) {
        Some(Bson::Array(items)) if !items.is_empty() => {
            let row = |(at, item): (usize, &Bson)| {
                let mut row = doc.clone();
                set(&mut row, &path, Some(item.clone()));
                with_index(row, Bson::Int64(at as i64))
            };
            items.iter().enumerate().map(row).collect()
        }
        Some(Bson::Array(_)) if preserve => {
            let mut row = doc.clone();
            set(&mut row, &path, None);
            vec![with_index(row, Bson::Null)]
        }
        None | Some(Bson::Array(_) | Bson::Null | Bson::Undefined) if !preserve => Vec::new(),
        _ => vec![with_index(doc.clone(), Bson::Null)],
    }
}

/// The value at a path through documents only.
fn within<'d>(doc: &'d Document, path: &[&str]) -> Option<&'d Bson> {
    match path {
        [name] => doc.get(name),
        [name, rest @ ..] => within(doc.get(name)?.as_document()?, rest),
        [] => None,
    }
}

/// Sets or removes the value at a path; other values on the path are replaced.
fn set(doc: &mut Document, path: &[&str], value: Option<Bson>) {
    let (name, rest) = path.split_first().expect("a path");
    match (rest.is_empty(), value) {
        (true, Some(value)) => drop(doc.insert(*name, value)),
        (true, None) => drop(doc.remove(*name)),
        (false, value) => {
            let mut inner = match doc.get(*name) {
                Some(Bson::Document(inner)) => inner.clone(),
                _ => Document::new(),
            };
            set(&mut inner, rest, value);
            doc.insert(*name, inner);
        }
    }
}

fn lookup(case: &Case, doc: &Document, spec: &Document) -> Result<Document, Unjudged> {
    let mut found = case.foreign.clone();
    if let Ok(local) = spec.get_str("localField") {
        let mut values = Vec::new();
        local_values(doc, &local.split('.').collect::<Vec<_>>(), &mut values);
        if values.is_empty() {
            values.push(Bson::Null);
        }
        let foreign = spec.get_str("foreignField").unwrap();
        let matches = |doc: &Document| {
            values
                .iter()
                .any(|value| matching::matches(&doc! { foreign: { "$eq": value.clone() } }, doc))
        };
        found.retain(matches);
    }
    let variable =
        spec.get_document("let").ok().map(|vars| evaluate(doc, vars.get("v").unwrap(), None));
    let found = run_with(case, &pipeline(spec.get("pipeline").unwrap()), found, variable.as_ref())?;
    let mut joined = doc.clone();
    let output: Vec<&str> = spec.get_str("as").unwrap().split('.').collect();
    set(&mut joined, &output, Some(found.into()));
    Ok(joined)
}

/// The result of `$redact` on a document whose fields start the paths of the expression.
fn redact(doc: &Document, expression: &Bson) -> Option<Document> {
    match evaluate(doc, expression, None)?.as_str()? {
        "$$PRUNE" => None,
        "$$KEEP" => Some(doc.clone()),
        _ => {
            let fields = doc.iter();
            let kept = |(name, value): (&String, &Bson)| {
                Some((name.clone(), redact_value(value, expression)?))
            };
            Some(fields.filter_map(kept).collect())
        }
    }
}

fn redact_value(value: &Bson, expression: &Bson) -> Option<Bson> {
    match value {
        Bson::Document(doc) => redact(doc, expression).map(Bson::Document),
        Bson::Array(items) => {
            let kept = items.iter().filter_map(|item| redact_value(item, expression));
            Some(Bson::Array(kept.collect()))
        }
        value => Some(value.clone()),
    }
}

fn windows(docs: Vec<Document>, spec: &Document) -> Docs {
    let docs = sort(docs, spec.get_document("sortBy").unwrap())?;
    let mut partitions: Vec<(Option<Bson>, Vec<Document>)> = Vec::new();
    for doc in docs {
        let key = spec.get("partitionBy").and_then(|by| evaluate(&doc, by, None));
        match partitions.iter_mut().find(|(other, _)| order(other, &key).is_eq()) {
            Some((_, members)) => members.push(doc),
            None => partitions.push((key, vec![doc])),
        }
    }
    partitions.sort_by(|(a, _), (b, _)| order(a, b));
    let mut all = Vec::new();
    for (_, members) in partitions {
        for (at, doc) in members.iter().enumerate() {
            let mut results = Document::new();
            for (path, function) in spec.get_document("output").unwrap() {
                let function = function.as_document().unwrap();
                let (operator, argument) = function.iter().next().unwrap();
                let frame = frame(function.get("window"), at, members.len());
                let values = members[frame].iter().map(|doc| evaluate(doc, argument, None));
                let value = accumulate(operator, values.collect())?;
                results.insert(path, doc! { "$literal": value });
            }
            all.push(projected(doc, &Bson::Document(results), Place::AddFields));
        }
    }
    Ok(all)
}

/// The rows in a window of documents around the one at `at`.
fn frame(window: Option<&Bson>, at: usize, count: usize) -> std::ops::Range<usize> {
    let Some(window) = window else { return 0..count };
    let bounds = window.as_document().unwrap().get_array("documents").unwrap();
    let place = |bound: &Bson, unbounded: i64| match bound {
        Bson::String(word) if word == "current" => at as i64,
        Bson::String(_) => unbounded,
        number => at as i64 + i64::from(number.as_i32().unwrap()),
    };
    let start = place(&bounds[0], 0).clamp(0, count as i64);
    let end = (place(&bounds[1], count as i64) + 1).clamp(start, count as i64);
    start as usize..end as usize
}

fn graph(case: &Case, doc: &Document, spec: &Document) -> Document {
    let path = |name: &str| spec.get_str(name).unwrap().split('.').collect::<Vec<_>>();
    let (from, to) = (path("connectFromField"), spec.get_str("connectToField").unwrap());
    let mut wanted = match evaluate(doc, spec.get("startWith").unwrap(), None) {
        Some(Bson::Array(items)) => items,
        other => other.into_iter().collect(),
    };
    let everything = Document::new();
    let restrict = spec.get_document("restrictSearchWithMatch").unwrap_or(&everything);
    let mut left: Vec<&Document> =
        case.foreign.iter().filter(|doc| matching::matches(restrict, doc)).collect();
    let mut reached = Vec::new();
    let mut depth = 0;
    while !wanted.is_empty() && spec.get_i32("maxDepth").map_or(true, |max: i32| depth <= max) {
        let is_wanted = |doc: &&Document| {
            wanted.iter().any(|v| matching::matches(&doc! { to: { "$eq": v.clone() } }, doc))
        };
        let (found, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_wanted);
        left = others;
        wanted = Vec::new();
        for doc in found {
            local_values(doc, &from, &mut wanted);
            let mut doc = doc.clone();
            if spec.contains_key("depthField") {
                set(&mut doc, &path("depthField"), Some(Bson::Int64(depth.into())));
            }
            reached.push(Bson::Document(doc));
        }
        depth += 1;
    }
    let mut joined = doc.clone();
    set(&mut joined, &path("as"), Some(Bson::Array(reached)));
    joined
}

/// The values of a join: those at the path, and each element of arrays.
fn local_values(doc: &Document, path: &[&str], values: &mut Vec<Bson>) {
    let Some(value) = doc.get(path[0]) else { return };
    let rest = &path[1..];
    match value {
        Bson::Array(items) if rest.is_empty() => values.extend(items.iter().cloned()),
        Bson::Array(items) => {
            items.iter().filter_map(Bson::as_document).for_each(|d| local_values(d, rest, values));
        }
        value if rest.is_empty() => values.push(value.clone()),
        Bson::Document(inner) => local_values(inner, rest, values),
        _ => {}
    }
}
