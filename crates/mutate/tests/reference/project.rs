//! Projections, one after the other: excluded, computed and sliced fields.

use super::generate::Place;
use super::matching::{matches, single};
use super::order::number;
use bson::{Bson, Document};

/// One entry of a specification.
enum Entry<'s> {
    Keep,
    Drop,
    Computed(Option<Bson>),
    Slice(&'s Bson),
}

type Path<'s> = Vec<&'s str>;

/// Stands for a scalar in an array that inclusion drops but a computed field replaces.
const HOLE: Bson = Bson::Undefined;

/// The projected document; `None` where paths collide.
pub fn apply(doc: &Document, spec: &Document, place: Place) -> Option<Document> {
    let mut entries: Vec<(Path<'_>, Entry<'_>)> = Vec::new();
    for (path, value) in spec {
        entries.push((path.split('.').collect(), entry(doc, path, value, place)));
    }
    let collide = |a: &Path<'_>, b: &Path<'_>| a.iter().zip(b).all(|(x, y)| x == y);
    for (i, (a, _)) in entries.iter().enumerate() {
        if entries.iter().skip(i + 1).any(|(b, _)| collide(a, b)) {
            return None;
        }
    }
    let mut result = match is_inclusion(spec, place) {
        true => {
            let mut kept: Vec<(&[&str], bool)> = vec![(&["_id"], false)];
            if entries.iter().any(|(p, _)| p[0] == "_id") {
                kept.clear();
            }
            for (path, entry) in &entries {
                match entry {
                    Entry::Keep | Entry::Slice(_) => kept.push((path, false)),
                    Entry::Computed(_) => kept.push((path, true)),
                    Entry::Drop => {}
                }
            }
            include(doc, &kept)
        }
        false => {
            let mut result = doc.clone();
            for (path, _) in entries.iter().filter(|(_, e)| matches!(e, Entry::Drop)) {
                exclude(&mut result, path);
            }
            result
        }
    };
    let mut computed: Vec<_> = entries
        .iter()
        .filter_map(|(path, entry)| match entry {
            Entry::Computed(value) => Some((path, value)),
            _ => None,
        })
        .collect();
    computed.sort_by_key(|(path, _)| first_mentions(path, &entries));
    for (path, value) in computed {
        set_in(&mut result, path, value);
    }
    for (path, entry) in &entries {
        if let Entry::Slice(range) = entry {
            slice_in(&mut result, path, range);
        }
    }
    Some(result)
}

/// The positions at which the specification first mentions each part of a path: fields are created in that
/// order.
fn first_mentions(path: &Path<'_>, entries: &[(Path<'_>, Entry<'_>)]) -> Vec<usize> {
    let first = |end: usize| entries.iter().position(|(p, _)| p.get(..end) == path.get(..end));
    (1..=path.len()).map(|end| first(end).expect("the path itself")).collect()
}

fn entry<'s>(doc: &Document, path: &str, value: &'s Bson, place: Place) -> Entry<'s> {
    match value {
        Bson::Document(operator) if place == Place::Find && operator.contains_key("$slice") => {
            Entry::Slice(operator.get("$slice").expect("just found"))
        }
        Bson::Document(operator) if place == Place::Find && operator.contains_key("$elemMatch") => {
            let condition = operator.get_document("$elemMatch").expect("a document");
            Entry::Computed(elem_match(doc.get(path), condition))
        }
        flag if place != Place::AddFields && number(flag).is_some() => {
            if number(flag) == Some(0.0) { Entry::Drop } else { Entry::Keep }
        }
        expression => Entry::Computed(evaluate(doc, expression)),
    }
}

fn is_inclusion(spec: &Document, place: Place) -> bool {
    if place == Place::AddFields {
        return false;
    }
    let operator = |v: &Bson, name: &str| v.as_document().is_some_and(|d| d.contains_key(name));
    let find = place == Place::Find;
    for (name, value) in spec {
        if number(value).is_some() && name != "_id" {
            return number(value) != Some(0.0);
        }
        let cut = find && (operator(value, "$slice") || operator(value, "$elemMatch"));
        if number(value).is_none() && !cut {
            return true;
        }
    }
    match spec.get("_id").and_then(number) {
        Some(flag) if flag != 0.0 => true,
        _ => spec.values().any(|v| operator(v, "$elemMatch")),
    }
}

/// Keeps the paths. Of computed paths it keeps only the containers.
fn include(doc: &Document, paths: &[(&[&str], bool)]) -> Document {
    let mut result = Document::new();
    for (name, value) in doc {
        let below: Vec<(&[&str], bool)> = paths
            .iter()
            .filter(|(p, _)| p[0] == name)
            .map(|(p, computed)| (&p[1..], *computed))
            .collect();
        if below.is_empty() || below.iter().any(|(p, computed)| p.is_empty() && *computed) {
            continue;
        }
        if below.iter().any(|(p, _)| p.is_empty()) {
            result.insert(name.clone(), value.clone());
            continue;
        }
        match include_value(value, &below) {
            Some(Bson::Undefined) | None => {}
            Some(value) => drop(result.insert(name.clone(), value)),
        }
    }
    result
}

fn include_value(value: &Bson, paths: &[(&[&str], bool)]) -> Option<Bson> {
    match value {
        Bson::Document(doc) => Some(Bson::Document(include(doc, paths))),
        Bson::Array(items) => {
            Some(Bson::Array(items.iter().filter_map(|i| include_value(i, paths)).collect()))
        }
        _ => paths.iter().any(|(_, computed)| *computed).then_some(HOLE),
    }
}

fn exclude(doc: &mut Document, path: &[&str]) {
    let (name, rest) = path.split_first().expect("a path");
    if rest.is_empty() {
        doc.remove(*name);
    } else if let Some(value) = doc.get_mut(*name) {
        exclude_value(value, rest);
    }
}

fn exclude_value(value: &mut Bson, path: &[&str]) {
    match value {
        Bson::Document(doc) => exclude(doc, path),
        Bson::Array(items) => items.iter_mut().for_each(|i| exclude_value(i, path)),
        _ => {}
    }
}

fn set_in(doc: &mut Document, path: &[&str], value: &Option<Bson>) {
    let (name, rest) = path.split_first().expect("a path");
    if !rest.is_empty() {
        let mut child = doc.get(*name).cloned().unwrap_or(Bson::Null);
        set_in_value(&mut child, rest, value);
        doc.insert(*name, child);
        return;
    }
    match value {
        Some(value) => drop(doc.insert(*name, value.clone())),
        None => drop(doc.remove(*name)),
    }
}

fn set_in_value(child: &mut Bson, path: &[&str], value: &Option<Bson>) {
    match child {
        Bson::Document(doc) => set_in(doc, path, value),
        Bson::Array(items) => items.iter_mut().for_each(|i| set_in_value(i, path, value)),
        other => {
            let mut doc = Document::new();
            set_in(&mut doc, path, value);
            *other = Bson::Document(doc);
        }
    }
}

fn slice_in(doc: &mut Document, path: &[&str], range: &Bson) {
    let (name, rest) = path.split_first().expect("a path");
    match doc.get_mut(*name) {
        Some(Bson::Array(items)) if rest.is_empty() => {
            let length = items.len() as i64;
            let integer = |v: &Bson| number(v).expect("a number") as i64;
            let (start, count) = match range {
                Bson::Array(pair) => {
                    let skip = integer(&pair[0]);
                    let start = if skip < 0 { (length + skip).max(0) } else { skip.min(length) };
                    (start, integer(&pair[1]))
                }
                limit if integer(limit) < 0 => ((length + integer(limit)).max(0), length),
                limit => (0, integer(limit)),
            };
            let kept = items.iter().skip(start as usize).take(count as usize).cloned().collect();
            *items = kept;
        }
        Some(value) if !rest.is_empty() => slice_in_value(value, rest, range),
        _ => {}
    }
}

fn slice_in_value(value: &mut Bson, path: &[&str], range: &Bson) {
    match value {
        Bson::Document(doc) => slice_in(doc, path, range),
        Bson::Array(items) => items.iter_mut().for_each(|i| slice_in_value(i, path, range)),
        _ => {}
    }
}

fn elem_match(value: Option<&Bson>, condition: &Document) -> Option<Bson> {
    let Some(Bson::Array(items)) = value else { return None };
    let operators = condition.keys().all(|k| k.starts_with('$'));
    let found = items.iter().find(|item| match item {
        _ if operators => single(item, &Bson::Document(condition.clone())),
        Bson::Document(doc) => matches(doc, condition),
        // An array is a document whose fields are its positions; no condition names one of them here.
        Bson::Array(_) => matches(&Document::new(), condition),
        _ => false,
    })?;
    Some(Bson::Array(vec![found.clone()]))
}

fn evaluate(doc: &Document, expression: &Bson) -> Option<Bson> {
    match expression {
        Bson::String(text) if text.starts_with('$') => {
            let path: Vec<&str> = text[1..].split('.').collect();
            field(&Bson::Document(doc.clone()), &path)
        }
        Bson::Document(literal) => literal.get("$literal").cloned(),
        Bson::Array(items) => Some(Bson::Array(
            items.iter().map(|i| evaluate(doc, i).unwrap_or(Bson::Null)).collect(),
        )),
        value => Some(value.clone()),
    }
}

fn field(value: &Bson, path: &[&str]) -> Option<Bson> {
    let Some((name, rest)) = path.split_first() else { return Some(value.clone()) };
    match value {
        Bson::Document(doc) => field(doc.get(name)?, rest),
        Bson::Array(items) => {
            let documents = items.iter().filter(|i| matches!(i, Bson::Document(_)));
            Some(Bson::Array(documents.filter_map(|i| field(i, path)).collect()))
        }
        _ => None,
    }
}
