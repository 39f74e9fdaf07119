//! A naive matcher over the `bson` crate's owned values, for tests only. It shares no code with the crate under
//! test: neither parser, traversal, matching nor comparison.

#![allow(dead_code)]

use bson::{Bson, Document};
use std::cmp::Ordering;

/// Whether the document matches the filter, which must be valid.
pub fn matches(filter: &Document, doc: &Document) -> bool {
    filter.iter().all(|(key, operand)| match key.as_str() {
        "$and" => branches(operand).all(|f| matches(f, doc)),
        "$or" => branches(operand).any(|f| matches(f, doc)),
        "$nor" => !branches(operand).any(|f| matches(f, doc)),
        "$comment" => true,
        path => on_path(path, operand, doc),
    })
}

/// The array position of the first match, if the filter is one field with one positive operator and matches.
pub fn position(filter: &Document, doc: &Document) -> Option<usize> {
    let (path, operand) = filter.iter().next()?;
    let reached = reach(doc, path);
    let test = |r: &Reached<'_>| match operand {
        Bson::Document(ops) if is_operators(ops) => {
            ops.iter().all(|(name, arg)| satisfies(name, arg, r.value))
        }
        value => satisfies("$eq", value, r.value),
    };
    let whole_arrays = operators(operand).is_some_and(|o| o.keys().any(|k| looks_at_arrays(k)));
    let mut candidates = Vec::new();
    for r in reached {
        if !whole_arrays {
            candidates.extend(r.expanded());
        } else {
            candidates.push(r);
        }
    }
    let hit = candidates.into_iter().find(test)?;
    if hit.position.is_some() {
        return hit.position;
    }
    let inner = operators(operand)?.get("$elemMatch")?.as_document()?;
    hit.value?.as_array()?.iter().position(|item| element_matches(inner, item))
}

fn operators(operand: &Bson) -> Option<&Document> {
    operand.as_document().filter(|d| is_operators(d))
}

fn branches(operand: &Bson) -> impl Iterator<Item = &Document> {
    operand.as_array().into_iter().flatten().filter_map(Bson::as_document)
}

fn is_operators(doc: &Document) -> bool {
    doc.keys().next().is_some_and(|k| k.starts_with('$'))
}

fn looks_at_arrays(operator: &str) -> bool {
    matches!(operator, "$size" | "$elemMatch")
}

/// One field of a filter.
fn on_path(path: &str, operand: &Bson, doc: &Document) -> bool {
    match operators(operand) {
        Some(ops) => ops.iter().all(|(name, arg)| operator(name, arg, path, doc)),
        None => operator("$eq", operand, path, doc),
    }
}

fn operator(name: &str, arg: &Bson, path: &str, doc: &Document) -> bool {
    match name {
        "$ne" => !operator("$eq", arg, path, doc),
        "$nin" => !operator("$in", arg, path, doc),
        "$not" => !on_path(path, arg, doc),
        "$exists" if !truthy(arg) => !operator("$exists", &Bson::Boolean(true), path, doc),
        "$all" => {
            let items = arg.as_array().unwrap();
            !items.is_empty() && items.iter().all(|item| on_path(path, item, doc))
        }
        _ => {
            let mut candidates = Vec::new();
            for reached in reach(doc, path) {
                if looks_at_arrays(name) {
                    candidates.push(reached);
                } else {
                    candidates.extend(reached.expanded());
                }
            }
            candidates.iter().any(|r| satisfies(name, arg, r.value))
        }
    }
}

fn truthy(value: &Bson) -> bool {
    match value {
        Bson::Boolean(b) => *b,
        Bson::Null => false,
        other => number(other) != Some(Number::Halves(0)),
    }
}

/// The result of a path: a value, or none.
#[derive(Clone, Copy)]
struct Reached<'a> {
    value: Option<&'a Bson>,
    /// Reached by its array position; then array elements behind it are not traversed.
    by_position: bool,
    /// The position in the outermost array entered.
    position: Option<usize>,
}

impl<'a> Reached<'a> {
    /// An array's elements, then the array.
    fn expanded(self) -> Vec<Reached<'a>> {
        let mut out = Vec::new();
        if let (Some(Bson::Array(items)), false) = (self.value, self.by_position) {
            for (i, item) in items.iter().enumerate() {
                out.push(Reached {
                    value: Some(item),
                    by_position: false,
                    position: self.position.or(Some(i)),
                });
            }
        }
        out.push(self);
        out
    }
}

fn reach<'a>(doc: &'a Document, path: &str) -> Vec<Reached<'a>> {
    let parts: Vec<&str> = path.split('.').collect();
    let mut out = Vec::new();
    in_document(doc, &parts, None, &mut out);
    out
}

fn in_document<'a>(
    doc: &'a Document,
    parts: &[&str],
    position: Option<usize>,
    out: &mut Vec<Reached<'a>>,
) {
    let missing = Reached { value: None, by_position: false, position };
    let (first, rest) = parts.split_first().unwrap();
    match doc.get(first) {
        None => out.push(missing),
        Some(value) if rest.is_empty() => out.push(Reached { value: Some(value), ..missing }),
        Some(Bson::Document(inner)) => in_document(inner, rest, position, out),
        Some(Bson::Array(items)) => in_array(items, rest, position, out),
        Some(_) => out.push(missing),
    }
}

fn in_array<'a>(
    items: &'a [Bson],
    parts: &[&str],
    position: Option<usize>,
    out: &mut Vec<Reached<'a>>,
) {
    for (i, item) in items.iter().enumerate() {
        if let Bson::Document(inner) = item {
            in_document(inner, parts, position.or(Some(i)), out);
        }
        if parts[0] != i.to_string() {
            continue;
        }
        match item {
            _ if parts.len() == 1 => {
                out.push(Reached { value: Some(item), by_position: true, position })
            }
            Bson::Document(inner) => in_document(inner, &parts[1..], position, out),
            Bson::Array(inner) => in_array(inner, &parts[1..], position, out),
            _ => {}
        }
    }
}

/// Whether an array's element matches an `$elemMatch`.
fn element_matches(inner: &Document, item: &Bson) -> bool {
    let on_value =
        is_operators(inner) && !inner.keys().any(|k| matches!(k.as_str(), "$and" | "$or" | "$nor"));
    if on_value {
        return inner.iter().all(|(name, arg)| on_element(name, arg, item));
    }
    match item {
        Bson::Document(doc) => matches(inner, doc),
        Bson::Array(items) => {
            let mut doc = Document::new();
            for (i, item) in items.iter().enumerate() {
                doc.insert(i.to_string(), item.clone());
            }
            matches(inner, &doc)
        }
        _ => false,
    }
}

/// An operator on a value itself.
fn on_element(name: &str, arg: &Bson, item: &Bson) -> bool {
    match name {
        "$ne" => !satisfies("$eq", arg, Some(item)),
        "$nin" => !satisfies("$in", arg, Some(item)),
        "$not" => !arg.as_document().unwrap().iter().all(|(n, a)| on_element(n, a, item)),
        "$all" => {
            let items = arg.as_array().unwrap();
            !items.is_empty() && items.iter().all(|a| satisfies("$eq", a, Some(item)))
        }
        _ => satisfies(name, arg, Some(item)),
    }
}

/// Whether one value, or none, satisfies an operator without negation.
fn satisfies(name: &str, arg: &Bson, value: Option<&Bson>) -> bool {
    let compared = |accept: fn(Ordering) -> bool| match relation(value, arg) {
        Some(order) => accept(order),
        None => false,
    };
    match name {
        "$eq" => compared(Ordering::is_eq),
        "$lt" => compared(Ordering::is_lt),
        "$lte" => compared(Ordering::is_le),
        "$gt" => compared(Ordering::is_gt),
        "$gte" => compared(Ordering::is_ge),
        "$in" => arg.as_array().unwrap().iter().any(|item| satisfies("$eq", item, value)),
        "$exists" => value.is_some() == truthy(arg),
        "$type" => value.is_some_and(|v| {
            let one = |t: &Bson| match t {
                Bson::String(alias) => type_matches(alias, v),
                _ => false,
            };
            match arg {
                Bson::Array(types) => types.iter().any(one),
                other => one(other),
            }
        }),
        "$size" => {
            let wanted = number(arg);
            value
                .and_then(Bson::as_array)
                .is_some_and(|items| Some(Number::Halves(2 * items.len() as i128)) == wanted)
        }
        "$mod" => modulo(arg, value),
        "$elemMatch" => value.and_then(Bson::as_array).is_some_and(|items| {
            items.iter().any(|item| element_matches(arg.as_document().unwrap(), item))
        }),
        "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => bits(name, arg, value),
        "$regex" => regex(arg, value),
        other => panic!("the reference does not know {other}"),
    }
}

/// The order of a value relative to a comparison's operand; `None` if they are not comparable.
fn relation(value: Option<&Bson>, operand: &Bson) -> Option<Ordering> {
    if let Bson::MinKey | Bson::MaxKey = operand {
        let rank = value.map_or(1, class);
        return Some(rank.cmp(&class(operand)));
    }
    let Some(value) = value else {
        return matches!(operand, Bson::Null).then_some(Ordering::Equal);
    };
    if class(value) != class(operand) {
        return None;
    }
    let nan = |v| number(v) == Some(Number::Nan);
    if nan(value) != nan(operand) {
        return None;
    }
    Some(order(value, operand))
}

/// The rank of a value's type in the order of types.
fn class(value: &Bson) -> i32 {
    match value {
        Bson::MinKey => 0,
        Bson::Undefined => 1,
        Bson::Null => 2,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => 3,
        Bson::String(_) | Bson::Symbol(_) => 4,
        Bson::Document(_) => 5,
        Bson::Array(_) => 6,
        Bson::Binary(_) => 7,
        Bson::ObjectId(_) => 8,
        Bson::Boolean(_) => 9,
        Bson::DateTime(_) => 10,
        Bson::Timestamp(_) => 11,
        Bson::RegularExpression(_) => 12,
        Bson::DbPointer(_) => 13,
        Bson::JavaScriptCode(_) => 14,
        Bson::JavaScriptCodeWithScope(_) => 15,
        Bson::MaxKey => 16,
    }
}

/// An exact number, in halves: the tests use no finer fraction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Number {
    Nan,
    NegativeInfinity,
    Halves(i128),
    Infinity,
}

fn number(value: &Bson) -> Option<Number> {
    Some(match value {
        Bson::Int32(v) => Number::Halves(i128::from(*v) * 2),
        Bson::Int64(v) => Number::Halves(i128::from(*v) * 2),
        Bson::Double(v) if v.is_nan() => Number::Nan,
        Bson::Double(v) if v.is_infinite() && *v > 0.0 => Number::Infinity,
        Bson::Double(v) if v.is_infinite() => Number::NegativeInfinity,
        Bson::Double(v) => Number::Halves((*v * 2.0) as i128),
        Bson::Decimal128(v) => {
            let text = v.to_string();
            match text.as_str() {
                "NaN" => Number::Nan,
                "Infinity" => Number::Infinity,
                "-Infinity" => Number::NegativeInfinity,
                text => {
                    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
                    let negative = whole.starts_with('-');
                    let digits: i128 = whole.trim_start_matches('-').parse().unwrap();
                    let half = i128::from(fraction.starts_with('5'));
                    let magnitude = digits * 2 + half;
                    Number::Halves(if negative { -magnitude } else { magnitude })
                }
            }
        }
        _ => return None,
    })
}

/// The order of values.
pub fn order(a: &Bson, b: &Bson) -> Ordering {
    let by_class = class(a).cmp(&class(b));
    if by_class.is_ne() {
        return by_class;
    }
    match (a, b) {
        (Bson::Boolean(a), Bson::Boolean(b)) => a.cmp(b),
        (Bson::ObjectId(a), Bson::ObjectId(b)) => a.bytes().cmp(&b.bytes()),
        (Bson::DateTime(a), Bson::DateTime(b)) => a.timestamp_millis().cmp(&b.timestamp_millis()),
        (Bson::Timestamp(a), Bson::Timestamp(b)) => {
            (a.time, a.increment).cmp(&(b.time, b.increment))
        }
        (Bson::Document(a), Bson::Document(b)) => {
            let (mut left, mut right) = (a.iter(), b.iter());
            loop {
                match (left.next(), right.next()) {
                    (None, None) => return Ordering::Equal,
                    (None, _) => return Ordering::Less,
                    (_, None) => return Ordering::Greater,
                    (Some((ka, va)), Some((kb, vb))) => {
                        let step = class(va)
                            .cmp(&class(vb))
                            .then(ka.as_bytes().cmp(kb.as_bytes()))
                            .then_with(|| order(va, vb));
                        if step.is_ne() {
                            return step;
                        }
                    }
                }
            }
        }
        (Bson::Array(a), Bson::Array(b)) => {
            for (x, y) in a.iter().zip(b) {
                let step = order(x, y);
                if step.is_ne() {
                    return step;
                }
            }
            a.len().cmp(&b.len())
        }
        (Bson::Binary(a), Bson::Binary(b)) => a
            .bytes
            .len()
            .cmp(&b.bytes.len())
            .then(u8::from(a.subtype).cmp(&u8::from(b.subtype)))
            .then_with(|| a.bytes.cmp(&b.bytes)),
        (Bson::RegularExpression(a), Bson::RegularExpression(b)) => {
            a.pattern.cmp(&b.pattern).then_with(|| a.options.cmp(&b.options))
        }
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => text(a).cmp(text(b)),
        },
    }
}

fn text(value: &Bson) -> &[u8] {
    match value {
        Bson::String(text) | Bson::Symbol(text) => text.as_bytes(),
        _ => &[],
    }
}

fn type_matches(alias: &str, value: &Bson) -> bool {
    let name = match value {
        Bson::Double(_) => "double",
        Bson::String(_) => "string",
        Bson::Document(_) => "object",
        Bson::Array(_) => "array",
        Bson::Binary(_) => "binData",
        Bson::Undefined => "undefined",
        Bson::ObjectId(_) => "objectId",
        Bson::Boolean(_) => "bool",
        Bson::DateTime(_) => "date",
        Bson::Null => "null",
        Bson::RegularExpression(_) => "regex",
        Bson::Int32(_) => "int",
        Bson::Int64(_) => "long",
        Bson::Decimal128(_) => "decimal",
        Bson::Timestamp(_) => "timestamp",
        Bson::MinKey => "minKey",
        Bson::MaxKey => "maxKey",
        Bson::Symbol(_) => "symbol",
        _ => "other",
    };
    alias == name || alias == "number" && class(value) == 3
}

fn whole(value: &Bson) -> Option<i128> {
    match number(value)? {
        Number::Halves(halves) => {
            let truncated = halves / 2;
            i64::try_from(truncated).ok().map(i128::from)
        }
        _ => None,
    }
}

fn modulo(arg: &Bson, value: Option<&Bson>) -> bool {
    let operands = arg.as_array().unwrap();
    let (divisor, remainder) = (whole(&operands[0]).unwrap(), whole(&operands[1]).unwrap());
    value.and_then(whole).is_some_and(|n| n % divisor == remainder)
}

fn bits(name: &str, arg: &Bson, value: Option<&Bson>) -> bool {
    let positions: Vec<i128> = match arg {
        Bson::Array(list) => list.iter().map(|p| whole(p).unwrap()).collect(),
        mask => {
            let mask = whole(mask).unwrap();
            (0..64).filter(|b| mask >> b & 1 == 1).collect()
        }
    };
    let bit: Box<dyn Fn(i128) -> bool> = match value {
        Some(Bson::Binary(binary)) => {
            let bytes = binary.bytes.clone();
            Box::new(move |p| {
                bytes.get((p / 8) as usize).is_some_and(|byte| byte >> (p % 8) & 1 == 1)
            })
        }
        Some(value) => match number(value) {
            Some(Number::Halves(halves)) if halves % 2 == 0 => {
                let number = halves / 2;
                if i64::try_from(number).is_err() {
                    return false;
                }
                // i128 extends the sign far enough.
                Box::new(move |p| number >> p.min(127) & 1 == 1)
            }
            _ => return false,
        },
        None => return false,
    };
    match name {
        "$bitsAllSet" => positions.iter().all(|p| bit(*p)),
        "$bitsAllClear" => positions.iter().all(|p| !bit(*p)),
        "$bitsAnySet" => positions.iter().any(|p| bit(*p)),
        _ => positions.iter().any(|p| !bit(*p)),
    }
}

/// Supports only `^text`, `text$` and `text` without special characters.
fn regex(arg: &Bson, value: Option<&Bson>) -> bool {
    let pattern = arg.as_str().unwrap();
    if let Some(Bson::RegularExpression(regex)) = value {
        return regex.pattern.to_string() == pattern && regex.options.to_string().is_empty();
    }
    let Some(Bson::String(text) | Bson::Symbol(text)) = value else { return false };
    if let Some(prefix) = pattern.strip_prefix('^') {
        text.starts_with(prefix)
    } else if let Some(suffix) = pattern.strip_suffix('$') {
        text.ends_with(suffix)
    } else {
        text.contains(pattern)
    }
}
