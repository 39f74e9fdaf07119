//! A naive matcher for the few filters that are generated.

use super::order::{compare, equal, rank};
use bson::{Bson, Document};

/// Whether a document matches `{path: condition, …}`.
pub fn matches(doc: &Document, filter: &Document) -> bool {
    filter.iter().all(|(path, condition)| {
        let parts: Vec<&str> = path.split('.').collect();
        let mut found = Vec::new();
        collect(&Bson::Document(doc.clone()), &parts, &mut found);
        satisfies(&found, condition)
    })
}

/// Whether a value satisfies a condition as if it were a field's.
pub fn value_matches(value: &Bson, condition: &Bson) -> bool {
    let mut found = Vec::new();
    collect(value, &[], &mut found);
    satisfies(&found, condition)
}

/// The values at a path: the value itself and, for an array, its elements too.
fn collect(value: &Bson, path: &[&str], found: &mut Vec<Bson>) {
    let Some((name, rest)) = path.split_first() else {
        if let Bson::Array(items) = value {
            found.extend(items.iter().cloned());
        }
        found.push(value.clone());
        return;
    };
    match value {
        Bson::Document(doc) => {
            if let Some(inner) = doc.get(name) {
                collect(inner, rest, found);
            }
        }
        Bson::Array(items) => {
            for item in items.iter().filter(|i| matches!(i, Bson::Document(_))) {
                collect(item, path, found);
            }
        }
        _ => {}
    }
}

fn satisfies(found: &[Bson], condition: &Bson) -> bool {
    let operators = match condition {
        Bson::Document(doc) if doc.keys().next().is_some_and(|k| k.starts_with('$')) => doc,
        literal => return found.iter().any(|v| equal(v, literal)),
    };
    operators.iter().all(|(name, operand)| {
        let same_type = |v: &&Bson| rank(v) == rank(operand);
        let mut candidates = found.iter().filter(same_type);
        match name.as_str() {
            "$gt" => candidates.any(|v| compare(v, operand).is_gt()),
            "$gte" => candidates.any(|v| compare(v, operand).is_ge()),
            "$lt" => candidates.any(|v| compare(v, operand).is_lt()),
            "$lte" => candidates.any(|v| compare(v, operand).is_le()),
            "$eq" => found.iter().any(|v| equal(v, operand)),
            "$ne" => !found.iter().any(|v| equal(v, operand)),
            "$in" => match operand {
                Bson::Array(list) => list.iter().any(|o| found.iter().any(|v| equal(v, o))),
                other => panic!("not generated: {other:?}"),
            },
            other => panic!("not generated: {other}"),
        }
    })
}

/// The first array position that the condition `{path: condition}` matched.
pub fn position(doc: &Document, field: &str, condition: &Bson) -> Option<usize> {
    match doc.get(field) {
        Some(Bson::Array(items)) => items.iter().position(|i| single(i, condition)),
        _ => None,
    }
}

/// Whether an element itself, without its contents, satisfies a condition.
pub fn single(value: &Bson, condition: &Bson) -> bool {
    satisfies(std::slice::from_ref(value), condition)
}
