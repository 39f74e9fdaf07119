//! The values of a row that a join searches, and the filter for them.

use kauri_base::Result;
use kauri_bson::{Doc, Elem, Type, Value, doc};
use kauri_expr::FieldPath;
use kauri_matcher::{MatchExpr, ParseCx, Place};

/// All values at a path: elements of an array separately, through arrays on the path, with numeric components also
/// as positions. Null if there are none.
pub fn at_path<'d>(doc: Doc<'d>, path: &FieldPath) -> Vec<Value<'d>> {
    let mut found = found_at(doc, path);
    if found.is_empty() {
        found.push(Value::Null);
    }
    found
}

/// The same, without the null.
pub fn found_at<'d>(doc: Doc<'d>, path: &FieldPath) -> Vec<Value<'d>> {
    let mut found = Vec::new();
    collect(doc, path.parts(), &mut found);
    found
}

fn collect<'d>(doc: Doc<'d>, path: &[String], found: &mut Vec<Value<'d>>) {
    let Some((name, mut rest)) = path.split_first() else { return };
    let Some(mut elem) = doc.get(name) else { return };
    while let Some((next, behind)) = rest.split_first()
        && elem.ty() == Type::Array
        && let Some(position) = position(next)
    {
        let inner = elem.as_doc().and_then(|items| items.iter().nth(position));
        let Some(inner) = inner else { return };
        (elem, rest) = (inner, behind);
    }
    let Some(inner) = elem.as_doc() else {
        if rest.is_empty() {
            found.push(elem.value());
        }
        return;
    };
    match (elem.ty(), rest.is_empty()) {
        (Type::Array, true) => found.extend(inner.iter().map(Elem::value)),
        (_, true) => found.push(elem.value()),
        (Type::Array, false) => {
            let documents = inner.iter().filter(|e| e.ty() == Type::Document);
            documents.filter_map(Elem::as_doc).for_each(|doc| collect(doc, rest, found));
        }
        (_, false) => collect(inner, rest, found),
    }
}

/// A component of a path as a position in an array: digits, no zero in front of others.
fn position(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty();
    if !is_number || (name.len() > 1 && name.starts_with('0')) {
        return None;
    }
    name.parse().ok()
}

/// The filter for documents in which the path has one of these values.
pub fn filter(path: &str, values: &[Value<'_>]) -> Result<MatchExpr> {
    let is_regex = |value: &&Value<'_>| value.ty() == Some(Type::Regex);
    let mut parts = Vec::new();
    for value in values.iter().filter(is_regex) {
        parts.push(equality(path, value)?);
    }
    let plain: Vec<&Value<'_>> = values.iter().filter(|v| !is_regex(v)).collect();
    match plain.as_slice() {
        [] => {}
        [one] => parts.push(equality(path, one)?),
        many => {
            let list = Value::array(many.iter().map(|value| value.borrow()));
            parts.push(parse(doc! { path => doc! { "$in" => list } }.as_doc())?);
        }
    }
    Ok(match (parts.len(), parts.pop()) {
        (1, Some(one)) => one,
        (_, last) => {
            parts.extend(last);
            MatchExpr::Or(parts)
        }
    })
}

/// The filter for documents in which the path has this value.
pub fn equality(path: &str, value: &Value<'_>) -> Result<MatchExpr> {
    let value = if value.is_missing() { Value::Null } else { value.borrow() };
    parse(doc! { path => doc! { "$eq" => value } }.as_doc())
}

fn parse(filter: Doc<'_>) -> Result<MatchExpr> {
    MatchExpr::parse(filter, &ParseCx::new(Place::Aggregation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::array;

    #[test]
    fn values_at_paths() {
        let doc = doc! {
            "a" => 1,
            "list" => array![1, array![2, 3], Value::Null],
            "docs" => array![doc! { "x" => 1 }, 7, doc! { "x" => array![2, 3] }, doc! {}],
            "none" => array![],
        };
        let at = |path: &str| at_path(doc.as_doc(), &FieldPath::parse(path).unwrap());
        assert_eq!(at("a"), [Value::from(1)]);
        assert_eq!(at("b"), [Value::Null]);
        assert_eq!(at("none"), [Value::Null]);
        assert_eq!(at("list"), [Value::from(1), array![2, 3], Value::Null]);
        assert_eq!(at("list.1"), [Value::from(2), Value::from(3)]);
        assert_eq!(at("list.1.0"), [Value::from(2)]);
        assert_eq!(at("list.9"), [Value::Null]);
        assert_eq!(at("list.01"), [Value::Null]);
        assert_eq!(at("docs.x"), [Value::from(1), Value::from(2), Value::from(3)]);
        assert_eq!(at("docs.2.x"), [Value::from(2), Value::from(3)]);
        assert_eq!(at("a.b"), [Value::Null]);
    }
}
