//! Update operators. Each path is expanded to the concrete paths that it selects in the document. These are
//! changed one after the other.

use super::matching::{matches, single, value_matches};
use super::order::{compare, equal, number};
use bson::{Bson, Document};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The new document, or the error codes of which an error must have one.
pub type Outcome = Result<Document, BTreeSet<i32>>;

/// One operator on one path of the update.
struct Op<'u> {
    name: &'u str,
    path: Vec<String>,
    operand: &'u Bson,
}

/// Applies an operator document, which must be well-formed.
pub fn apply(
    doc: &Document,
    update: &Document,
    filters: &[Document],
    position: Option<usize>,
) -> Outcome {
    let mut ops = Vec::new();
    let mut declared: Vec<Vec<String>> = Vec::new();
    for (name, fields) in update {
        for (path, operand) in fields.as_document().expect("fields") {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            declared.push(path.clone());
            if let ("$rename", Bson::String(to)) = (name.as_str(), operand) {
                declared.push(to.split('.').map(str::to_owned).collect());
            }
            ops.push(Op { name, path, operand });
        }
    }
    if conflicting(&declared) {
        return Err(BTreeSet::from([40]));
    }
    let mut errors = BTreeSet::new();
    let mut concrete: Vec<(Vec<String>, Action<'_>)> = Vec::new();
    let mut claims = Claims::new();
    let root = Bson::Document(doc.clone());
    for op in &ops {
        if op.name == "$rename" {
            claim(&mut claims, &op.path);
            claim(&mut claims, &split(op.operand));
            rename(doc, op, &mut concrete, &mut errors);
            continue;
        }
        let mut expansion = Expansion {
            filters,
            position,
            paths: Vec::new(),
            claims: &mut claims,
            errors: &mut errors,
        };
        expansion.expand(Some(&root), &op.path, Vec::new());
        for path in expansion.paths {
            concrete.push((path, Action::Operator(op.name, op.operand)));
        }
    }
    if claims.values().any(|rests| conflicting(rests)) {
        errors.insert(40);
    }
    for (path, action) in &concrete {
        if let Err(code) = change(&mut root.clone(), path, action) {
            errors.insert(code);
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    concrete.sort_by(|(a, _), (b, _)| compare_paths(a, b));
    let mut result = root;
    for (path, action) in &concrete {
        change(&mut result, path, action).expect("it worked on the original document");
    }
    let Bson::Document(result) = result else { panic!("a document stays one") };
    match (doc.get("_id"), result.get("_id")) {
        (Some(old), Some(new)) if equal(old, new) => Ok(result),
        (None, _) => Ok(result),
        _ => Err(BTreeSet::from([66])),
    }
}

/// Whether one path equals or contains another one, or two paths need both names and filters at one position.
fn conflicting(paths: &[Vec<String>]) -> bool {
    let filtered = |part: &str| part.starts_with("$[");
    paths.iter().enumerate().any(|(i, a)| {
        paths.iter().skip(i + 1).any(|b| {
            let shared = a.iter().zip(b).take_while(|(x, y)| x == y).count();
            match (a.get(shared), b.get(shared)) {
                (Some(x), Some(y)) => filtered(x) != filtered(y),
                _ => true,
            }
        })
    })
}

/// The remaining path parts at each concrete position that the paths reach. Paths at one position must not
/// conflict, even if a filter in them matches nothing there.
type Claims = BTreeMap<Vec<String>, Vec<Vec<String>>>;

/// Claims the positions of a path of names, also for a rename that finds no value.
fn claim(claims: &mut Claims, path: &[String]) {
    for length in 0..=path.len() {
        let (place, rest) = path.split_at(length);
        claims.entry(place.to_vec()).or_default().push(rest.to_vec());
    }
}

/// The concrete paths that `$`, `$[]` and `$[id]` select in a document.
struct Expansion<'e> {
    filters: &'e [Document],
    position: Option<usize>,
    paths: Vec<Vec<String>>,
    claims: &'e mut Claims,
    errors: &'e mut BTreeSet<i32>,
}

impl Expansion<'_> {
    fn expand(&mut self, value: Option<&Bson>, path: &[String], so_far: Vec<String>) {
        self.claims.entry(so_far.clone()).or_default().push(path.to_vec());
        let Some((part, rest)) = path.split_first() else {
            self.paths.push(so_far);
            return;
        };
        if !part.starts_with("$[") {
            let name = match (part.as_str(), self.position) {
                ("$", Some(position)) => position.to_string(),
                ("$", None) => {
                    self.errors.insert(2);
                    return;
                }
                _ => part.clone(),
            };
            let child = value.and_then(|v| child(v, &name)).cloned();
            let mut so_far = so_far;
            so_far.push(name);
            return self.expand(child.as_ref(), rest, so_far);
        }
        let Some(Bson::Array(items)) = value else {
            self.errors.insert(2);
            return;
        };
        let identifier = part.trim_start_matches("$[").trim_end_matches(']').to_owned();
        for (index, item) in items.iter().enumerate() {
            if identifier.is_empty() || self.passes(&identifier, item) {
                let mut so_far = so_far.clone();
                so_far.push(index.to_string());
                self.expand(Some(item), rest, so_far);
            }
        }
    }

    fn passes(&self, identifier: &str, item: &Bson) -> bool {
        let named = |path: &str| path.split('.').next() == Some(identifier);
        let filter = self.filters.iter().find(|f| f.keys().all(|k| named(k))).expect("a filter");
        let holder = bson::doc! { identifier: item.clone() };
        matches(&holder, filter)
    }
}

fn child<'v>(value: &'v Bson, name: &str) -> Option<&'v Bson> {
    match value {
        Bson::Document(doc) => doc.get(name),
        Bson::Array(items) => items.get(index_of(name)?),
        _ => None,
    }
}

fn index_of(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|b| b.is_ascii_digit());
    if is_number { name.parse().ok() } else { None }
}

fn compare_paths(a: &[String], b: &[String]) -> Ordering {
    for (x, y) in a.iter().zip(b) {
        let numbers = (x.parse::<u64>(), y.parse::<u64>());
        let order = match numbers {
            (Ok(x), Ok(y)) => x.cmp(&y),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            _ => x.cmp(y),
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// The action at a concrete path.
enum Action<'u> {
    Operator(&'u str, &'u Bson),
    Write(Bson),
    Remove,
}

fn split(path: &Bson) -> Vec<String> {
    path.as_str().expect("a name").split('.').map(str::to_owned).collect()
}

fn rename<'u>(
    doc: &Document,
    op: &Op<'u>,
    concrete: &mut Vec<(Vec<String>, Action<'u>)>,
    errors: &mut BTreeSet<i32>,
) {
    let to = split(op.operand);
    let root = Bson::Document(doc.clone());
    let (found, arrays, blocked) = walk(&root, &op.path);
    if blocked {
        errors.insert(28);
    }
    let Some(found) = found else { return };
    if arrays || walk(&root, &to).1 {
        errors.insert(2);
    }
    if to.first().is_some_and(|n| n == "_id") {
        errors.insert(66);
    }
    concrete.push((op.path.clone(), Action::Remove));
    concrete.push((to, Action::Write(found)));
}

/// The value at a path, whether the path traverses an array, and whether a scalar blocks it.
fn walk(root: &Bson, path: &[String]) -> (Option<Bson>, bool, bool) {
    let (mut here, mut arrays) = (root, false);
    for part in path {
        match here {
            Bson::Document(_) => {}
            Bson::Array(_) if index_of(part).is_some() => arrays = true,
            Bson::Array(_) => return (None, true, true),
            _ => return (None, arrays, true),
        }
        match child(here, part) {
            Some(inner) => here = inner,
            None => return (None, arrays, false),
        }
    }
    (Some(here.clone()), arrays, false)
}

/// The result of an action on a value.
enum Change {
    Keep,
    Remove,
    Write(Bson),
}

/// Carries out an action at a concrete path.
fn change(container: &mut Bson, path: &[String], action: &Action<'_>) -> Result<(), i32> {
    let (name, rest) = path.split_first().expect("a path");
    let index = index_of(name);
    if matches!(action, Action::Operator("$setOnInsert", _)) {
        return Ok(());
    }
    match container {
        Bson::Document(doc) => {
            if let (false, Some(inner)) = (rest.is_empty(), doc.get_mut(name)) {
                return change(inner, rest, action);
            }
            let existing = doc.get(name).cloned();
            match make(existing.as_ref(), action)? {
                Change::Keep => {}
                Change::Remove => drop(doc.remove(name)),
                Change::Write(value) => drop(doc.insert(name.clone(), wrap(value, rest))),
            }
            Ok(())
        }
        Bson::Array(items) if index.is_some() => {
            let index = index.expect("just checked");
            if let (false, Some(inner)) = (rest.is_empty(), items.get_mut(index)) {
                return change(inner, rest, action);
            }
            match make(items.get(index), action)? {
                Change::Keep => {}
                Change::Remove => items[index] = Bson::Null,
                Change::Write(value) => {
                    if index > items.len() + 1_500_000 {
                        return Err(34);
                    }
                    while items.len() <= index {
                        items.push(Bson::Null);
                    }
                    items[index] = wrap(value, rest);
                }
            }
            Ok(())
        }
        _ => match action {
            Action::Remove | Action::Operator("$unset", _) => Ok(()),
            _ => Err(28),
        },
    }
}

/// The value nested in new documents along the rest of its path.
fn wrap(value: Bson, rest: &[String]) -> Bson {
    rest.iter().rev().fold(value, |inner, name| Bson::Document(bson::doc! { name: inner }))
}

fn make(existing: Option<&Bson>, action: &Action<'_>) -> Result<Change, i32> {
    let (name, operand) = match action {
        Action::Write(value) => return Ok(Change::Write(value.clone())),
        Action::Remove => return Ok(existing.map_or(Change::Keep, |_| Change::Remove)),
        Action::Operator(name, operand) => (*name, *operand),
    };
    match (name, existing) {
        ("$set", _) => Ok(Change::Write(operand.clone())),
        ("$unset", Some(_)) => Ok(Change::Remove),
        ("$inc", existing) => arithmetic(existing, operand, false),
        ("$mul", existing) => arithmetic(existing, operand, true),
        ("$min", Some(old)) if compare(old, operand).is_le() => Ok(Change::Keep),
        ("$max", Some(old)) if compare(old, operand).is_ge() => Ok(Change::Keep),
        ("$min" | "$max", _) => Ok(Change::Write(operand.clone())),
        ("$bit", existing) => bit(existing, operand),
        ("$push", existing) => push(existing, operand),
        ("$addToSet", existing) => add_to_set(existing, operand),
        ("$pop", Some(Bson::Array(items))) => {
            let mut items = items.clone();
            if items.is_empty() {
                return Ok(Change::Keep);
            }
            let at = if number(operand) == Some(1.0) { items.len() - 1 } else { 0 };
            items.remove(at);
            Ok(Change::Write(items.into()))
        }
        ("$pop", Some(_)) => Err(14),
        ("$pull", Some(Bson::Array(items))) => Ok(retain(items, |v| !pulls(v, operand))),
        ("$pullAll", Some(Bson::Array(items))) => {
            let listed = operand.as_array().expect("a list");
            Ok(retain(items, |v| !listed.iter().any(|l| equal(v, l))))
        }
        ("$pull" | "$pullAll", Some(_)) => Err(2),
        ("$unset" | "$pop" | "$pull" | "$pullAll", None) => Ok(Change::Keep),
        (other, _) => panic!("not generated: {other}"),
    }
}

fn retain(items: &[Bson], keep: impl Fn(&Bson) -> bool) -> Change {
    Change::Write(items.iter().filter(|v| keep(v)).cloned().collect::<Vec<_>>().into())
}

fn pulls(item: &Bson, condition: &Bson) -> bool {
    match condition {
        Bson::Document(doc) if doc.keys().next().is_some_and(|k| k.starts_with('$')) => {
            value_matches(item, condition)
        }
        Bson::Document(filter) => match item {
            Bson::Document(doc) => matches(doc, filter),
            _ => false,
        },
        value => equal(item, value) && single(item, value),
    }
}

fn arithmetic(existing: Option<&Bson>, operand: &Bson, multiply: bool) -> Result<Change, i32> {
    let zero = Bson::Int32(0);
    let (left, right) = match (existing, multiply) {
        (None, false) => return Ok(Change::Write(operand.clone())),
        (None, true) => (operand, &zero),
        (Some(old), _) => (old, operand),
    };
    let whole = |v: &Bson| match v {
        Bson::Int32(v) => Some(i128::from(*v)),
        Bson::Int64(v) => Some(i128::from(*v)),
        _ => None,
    };
    let (Some(x), Some(y)) = (number(left), number(right)) else { return Err(14) };
    let result = match (whole(left), whole(right)) {
        (Some(x), Some(y)) => {
            let exact = if multiply { x * y } else { x + y };
            let ints = matches!((left, right), (Bson::Int32(_), Bson::Int32(_)));
            match (i32::try_from(exact), i64::try_from(exact)) {
                (Ok(int), _) if ints => Bson::Int32(int),
                (_, Ok(long)) => Bson::Int64(long),
                _ => return Err(2),
            }
        }
        _ => Bson::Double(if multiply { x * y } else { x + y }),
    };
    // Zeros of either sign are the same number.
    if existing.is_some_and(|old| *old == result) {
        return Ok(Change::Keep);
    }
    Ok(Change::Write(result))
}

fn bit(existing: Option<&Bson>, operand: &Bson) -> Result<Change, i32> {
    let mut value = existing.cloned().unwrap_or(Bson::Int32(0));
    for (name, operand) in operand.as_document().expect("operations") {
        let both = (&value, operand);
        let long = |v: &Bson| match v {
            Bson::Int32(v) => Some(i64::from(*v)),
            Bson::Int64(v) => Some(*v),
            _ => None,
        };
        let (Some(x), Some(y)) = (long(both.0), long(both.1)) else { return Err(2) };
        let result = match name.as_str() {
            "and" => x & y,
            "or" => x | y,
            _ => x ^ y,
        };
        value = match both {
            (Bson::Int32(_), Bson::Int32(_)) => Bson::Int32(result as i32),
            _ => Bson::Int64(result),
        };
    }
    Ok(Change::Write(value))
}

fn push(existing: Option<&Bson>, operand: &Bson) -> Result<Change, i32> {
    let mut items = match existing {
        None => Vec::new(),
        Some(Bson::Array(items)) => items.clone(),
        Some(_) => return Err(2),
    };
    let clauses = match operand {
        Bson::Document(doc) if doc.contains_key("$each") => doc.clone(),
        value => bson::doc! { "$each": [value.clone()] },
    };
    let each = clauses.get_array("$each").expect("a list");
    let integer = |name: &str| clauses.get(name).and_then(number).map(|n| n as i64);
    let length = items.len() as i64;
    let at = match integer("$position") {
        None => length,
        Some(p) if p < 0 => (length + p).max(0),
        Some(p) => p.min(length),
    };
    for (i, value) in each.iter().enumerate() {
        items.insert(at as usize + i, value.clone());
    }
    match clauses.get("$sort") {
        Some(Bson::Document(fields)) => items.sort_by(|a, b| by_fields(a, b, fields)),
        Some(direction) if number(direction) == Some(1.0) => items.sort_by(compare),
        Some(_) => items.sort_by(|a, b| compare(b, a)),
        None => {}
    }
    match integer("$slice") {
        Some(slice) if slice >= 0 => items.truncate(slice as usize),
        Some(slice) => {
            let drop = (items.len() as i64 + slice).max(0);
            items.drain(..drop as usize);
        }
        None => {}
    }
    Ok(Change::Write(items.into()))
}

fn by_fields(a: &Bson, b: &Bson, fields: &Document) -> Ordering {
    let key = |v: &Bson, name: &str| match v {
        Bson::Document(doc) => doc.get(name).cloned().unwrap_or(Bson::Null),
        _ => Bson::Null,
    };
    for (name, direction) in fields {
        let order = compare(&key(a, name), &key(b, name));
        let order = if number(direction) == Some(1.0) { order } else { order.reverse() };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

fn add_to_set(existing: Option<&Bson>, operand: &Bson) -> Result<Change, i32> {
    let mut items = match existing {
        None => Vec::new(),
        Some(Bson::Array(items)) => items.clone(),
        Some(_) => return Err(2),
    };
    let each = match operand {
        Bson::Document(doc) if doc.contains_key("$each") => {
            doc.get_array("$each").expect("a list").clone()
        }
        value => vec![value.clone()],
    };
    for value in each {
        if !items.iter().any(|i| equal(i, &value)) {
            items.push(value);
        }
    }
    Ok(Change::Write(items.into()))
}
