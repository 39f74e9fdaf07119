//! Slow references for the planner: row order, the entries of a partial index, `$expr`. They work on owned
//! documents. The matcher's own reference decides which documents a filter matches.

use crate::matching::order;
use bson::{Bson, Document};
use std::cmp::Ordering;

/// The state of a path's traversal: the current value (`None`: missing) and the remaining path.
#[derive(Clone)]
struct Walk<'d> {
    value: Option<&'d Bson>,
    rest: Vec<&'d str>,
    place: Vec<&'d str>,
    /// An array element at the path's end, which is not traversed.
    is_final: bool,
}

/// The keys of the document in an index of these paths (without positions); `None` if two paths traverse
/// different arrays.
pub fn keys(doc: &Document, paths: &[&str]) -> Option<Vec<Vec<Bson>>> {
    let walks = paths.iter().map(|path| {
        let mut parts: Vec<&str> = path.split('.').collect();
        let first = parts.remove(0);
        Walk { value: doc.get(first), rest: parts, place: vec![first], is_final: false }
    });
    let mut out = Vec::new();
    expand(walks.collect(), &mut out).then_some(out)
}

fn expand(mut walks: Vec<Walk<'_>>, out: &mut Vec<Vec<Bson>>) -> bool {
    for walk in &mut walks {
        while let (Some(Bson::Document(inner)), false) = (walk.value, walk.rest.is_empty()) {
            let name = walk.rest.remove(0);
            walk.value = inner.get(name);
            walk.place.push(name);
        }
    }
    let is_array = |walk: &Walk<'_>| !walk.is_final && matches!(walk.value, Some(Bson::Array(_)));
    let Some(array) = walks.iter().find(|walk| is_array(walk)).cloned() else {
        out.push(walks.iter().map(end_of).collect());
        return true;
    };
    if walks.iter().any(|walk| is_array(walk) && walk.place != array.place) {
        return false;
    }
    let items = array.value.and_then(Bson::as_array).map_or(&[][..], Vec::as_slice);
    let within = |item: Option<&'_ Bson>, walk: &Walk<'_>| -> bool {
        // A path continues into an element that is a document, and may end at any element.
        matches!(item, Some(Bson::Document(_))) || walk.rest.is_empty()
    };
    if items.is_empty() {
        let mut walks = walks;
        for walk in walks.iter_mut().filter(|walk| is_array(walk)) {
            walk.value = if walk.rest.is_empty() { Some(&Bson::Undefined) } else { None };
            walk.is_final = true;
        }
        return expand(walks, out);
    }
    items.iter().all(|item| {
        let mut walks = walks.clone();
        for walk in walks.iter_mut().filter(|walk| is_array(walk)) {
            walk.is_final = walk.rest.is_empty() || !within(Some(item), walk);
            walk.value = within(Some(item), walk).then_some(item);
        }
        expand(walks, out)
    })
}

fn end_of(walk: &Walk<'_>) -> Bson {
    match walk.value {
        Some(value) if walk.rest.is_empty() => value.clone(),
        _ => Bson::Null,
    }
}

/// The order of two keys in a sort.
pub fn compare_keys(a: &[Bson], b: &[Bson], descending: &[bool]) -> Ordering {
    let steps = a.iter().zip(b).zip(descending);
    steps.fold(Ordering::Equal, |so_far, ((a, b), descending)| {
        so_far.then_with(|| if *descending { order(b, a) } else { order(a, b) })
    })
}

/// The sort key of a document; `None` if the document cannot be sorted.
pub fn sort_key(doc: &Document, sort: &[(String, bool)]) -> Option<Vec<Bson>> {
    let paths: Vec<&str> = sort.iter().map(|(path, _)| path.as_str()).collect();
    let descending: Vec<bool> = sort.iter().map(|(_, descending)| *descending).collect();
    keys(doc, &paths)?.into_iter().min_by(|a, b| compare_keys(a, b, &descending))
}

/// `{$expr: {op: ["$field", value]}}`: values compare across types, and a missing value is the least.
pub fn expression(doc: &Document, field: &str, op: &str, value: &Bson) -> bool {
    let found = match doc.get(field) {
        None if *value == Bson::MinKey => Ordering::Greater,
        None => Ordering::Less,
        Some(found) => order(found, value),
    };
    match op {
        "$eq" => found.is_eq(),
        "$lt" => found.is_lt(),
        "$gte" => found.is_ge(),
        other => panic!("not generated: {other}"),
    }
}

/// The value at a path without arrays.
pub fn value_at(doc: &Document, path: &str) -> Option<Bson> {
    match path.split_once('.') {
        None => doc.get(path).cloned(),
        Some((first, rest)) => value_at(doc.get_document(first).ok()?, rest),
    }
}
