//! The comparison order of values (manual, "Comparison/Sort Order").
//!
//! Values order by canonical type first, then by value. Nothing here allocates. A missing value equals undefined;
//! both are between MinKey and null. Equal values have equal hashes ([`hash_value`]).
//!
//! Embedded values are compared as raw bytes, without building [`Value`]s. Recursion ends at [`RECURSION_MAX`]
//! levels. Deeper values are compared with an explicit list of the open documents, so that no input exhausts the
//! stack.

use crate::doc::{Doc, Elem, Iter};
use crate::number::Number;
use crate::types::Type;
use crate::value::{Decimal128, Value};
use kauri_base::work;
use std::cmp::Ordering;
use std::hash::Hasher;

/// Levels of nesting that comparison and hashing recurse into.
const RECURSION_MAX: u32 = 24;

/// Compares two values.
#[inline]
pub fn compare(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Int32(a), Value::Int32(b)) => a.cmp(b),
        (Value::Int64(a), Value::Int64(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::ObjectId(a), Value::ObjectId(b)) => a.cmp(b),
        _ => compare_views(View::of(a), View::of(b), 0),
    }
}

/// Whether two values are equal in the comparison order (`1` equals `1.0`).
#[inline]
pub fn equal(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a == b,
        _ => compare(a, b) == Ordering::Equal,
    }
}

/// Compares two documents: element by element the canonical type, the name, the value; then the
/// shorter first.
pub fn compare_docs(a: Doc<'_>, b: Doc<'_>) -> Ordering {
    compare_elems(a, b, true, 0)
}

/// Compares the values of two elements, whatever their names, without building `Value`s.
pub fn compare_elem_values(a: Elem<'_>, b: Elem<'_>) -> Ordering {
    compare_values(a, b, 0)
}

/// Compares an element's value with a value.
pub fn compare_elem_with(a: Elem<'_>, b: &Value<'_>) -> Ordering {
    compare_views(View::of_elem(a), View::of(b), 0)
}

fn compare_elems(a: Doc<'_>, b: Doc<'_>, names: bool, depth: u32) -> Ordering {
    // Equal bytes are equal values, and unequal ones mostly differ early.
    if a.as_bytes() == b.as_bytes() {
        return Ordering::Equal;
    }
    if depth > RECURSION_MAX {
        return compare_deep(a, b, names);
    }
    let (mut left, mut right) = (a.iter(), b.iter());
    loop {
        work::tick_infallible(1);
        let (l, r) = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(l), Some(r)) => (l, r),
        };
        let mut order = l.ty().canonical().cmp(&r.ty().canonical());
        if order.is_eq() && names {
            order = l.key_bytes().cmp(r.key_bytes());
        }
        if order.is_eq() {
            order = compare_values(l, r, depth + 1);
        }
        if order.is_ne() {
            return order;
        }
    }
}

/// As [`compare_elems`], without recursion.
#[cold]
fn compare_deep(a: Doc<'_>, b: Doc<'_>, names: bool) -> Ordering {
    let mut open = vec![(a.iter(), b.iter(), names)];
    while let Some((left, right, names)) = open.last_mut() {
        kauri_base::work::tick_infallible(1);
        let (l, r) = match (left.next(), right.next()) {
            (None, None) => {
                open.pop();
                continue;
            }
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(l), Some(r)) => (l, r),
        };
        let mut order = l.ty().canonical().cmp(&r.ty().canonical());
        if order.is_eq() && *names {
            order = l.key_bytes().cmp(r.key_bytes());
        }
        if order.is_eq() {
            order = match (View::of_elem(l), View::of_elem(r)) {
                (View::Document(l), View::Document(r)) => {
                    open.push((l.iter(), r.iter(), true));
                    Ordering::Equal
                }
                (View::Array(l), View::Array(r)) => {
                    open.push((l.iter(), r.iter(), false));
                    Ordering::Equal
                }
                (View::CodeWithScope(lc, ls), View::CodeWithScope(rc, rs)) => {
                    open.push((ls.iter(), rs.iter(), true));
                    lc.cmp(rc)
                }
                (l, r) => compare_views(l, r, 0),
            };
        }
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Compares the values of two elements of one canonical type: the commonest types straight away.
#[inline]
fn compare_values(a: Elem<'_>, b: Elem<'_>, depth: u32) -> Ordering {
    if a.ty() == b.ty() {
        let (left, right) = (a.value_bytes(), b.value_bytes());
        match a.ty() {
            Type::Int32 => {
                if let (Some(left), Some(right)) = (left.first_chunk(), right.first_chunk()) {
                    return i32::from_le_bytes(*left).cmp(&i32::from_le_bytes(*right));
                }
            }
            Type::String => return text(left).cmp(text(right)),
            Type::ObjectId => return left.cmp(right),
            _ => {}
        }
    }
    compare_views(View::of_elem(a), View::of_elem(b), depth)
}

/// What comparison needs to see of a value, text as bytes.
#[derive(Clone, Copy)]
enum View<'a> {
    /// Missing, undefined, null, MinKey, MaxKey: the canonical type says it all.
    Bare(u8),
    Number(Number),
    Text(&'a [u8]),
    Document(Doc<'a>),
    Array(Doc<'a>),
    Binary(u8, &'a [u8]),
    ObjectId(&'a [u8]),
    Bool(bool),
    Date(i64),
    Timestamp(u64),
    Regex(&'a [u8], &'a [u8]),
    DbPointer(&'a [u8], &'a [u8]),
    Code(&'a [u8]),
    CodeWithScope(&'a [u8], Doc<'a>),
}

const UNDEFINED: u8 = 1;

impl<'a> View<'a> {
    #[inline]
    fn of(value: &'a Value<'_>) -> View<'a> {
        match value {
            Value::Missing => View::Bare(UNDEFINED),
            Value::MinKey => View::Bare(Type::MinKey.canonical()),
            Value::MaxKey => View::Bare(Type::MaxKey.canonical()),
            Value::Null => View::Bare(Type::Null.canonical()),
            Value::Undefined => View::Bare(UNDEFINED),
            Value::Int32(v) => View::Number(Number::Int(i64::from(*v))),
            Value::Int64(v) => View::Number(Number::Int(*v)),
            Value::Double(v) => View::Number(Number::Double(*v)),
            Value::Decimal128(v) => View::Number(Number::Decimal(*v)),
            Value::Bool(v) => View::Bool(*v),
            Value::String(v) | Value::Symbol(v) => View::Text(v.as_bytes()),
            Value::Code(v) => View::Code(v.as_bytes()),
            Value::Document(v) => View::Document(v.as_doc()),
            Value::Array(v) => View::Array(v.as_doc()),
            Value::Binary { subtype, bytes } => View::Binary(*subtype, bytes),
            Value::ObjectId(v) => View::ObjectId(v),
            Value::DateTime(v) => View::Date(*v),
            Value::Timestamp(v) => {
                View::Timestamp(u64::from(v.seconds) << 32 | u64::from(v.increment))
            }
            Value::Regex { pattern, options } => {
                View::Regex(pattern.as_bytes(), options.as_bytes())
            }
            Value::DbPointer { namespace, id } => View::DbPointer(namespace.as_bytes(), id),
            Value::CodeWithScope { code, scope } => {
                View::CodeWithScope(code.as_bytes(), scope.as_doc())
            }
            Value::NotUtf8 { ty, bytes } => View::raw(*ty, bytes).unwrap_or(View::Bare(UNDEFINED)),
        }
    }

    #[inline]
    fn of_elem(elem: Elem<'a>) -> View<'a> {
        let bytes = elem.value_bytes();
        View::raw(elem.ty(), bytes).unwrap_or(View::Bare(UNDEFINED))
    }

    #[inline]
    fn raw(ty: Type, bytes: &'a [u8]) -> Option<View<'a>> {
        let int64 = || Some(i64::from_le_bytes(bytes.try_into().ok()?));
        Some(match ty {
            Type::MinKey | Type::MaxKey | Type::Null | Type::Undefined => {
                View::Bare(ty.canonical())
            }
            Type::Int32 => {
                View::Number(Number::Int(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))))
            }
            Type::Int64 => View::Number(Number::Int(int64()?)),
            Type::Double => {
                View::Number(Number::Double(f64::from_le_bytes(bytes.try_into().ok()?)))
            }
            Type::Decimal128 => View::Number(Number::Decimal(Decimal128(bytes.try_into().ok()?))),
            Type::Bool => View::Bool(*bytes.first()? != 0),
            Type::String | Type::Symbol => View::Text(text(bytes)),
            Type::Code => View::Code(text(bytes)),
            Type::Document => View::Document(Doc::from_bytes(bytes).ok()?),
            Type::Array => View::Array(Doc::from_bytes(bytes).ok()?),
            Type::Binary => View::Binary(*bytes.get(4)?, bytes.get(5..)?),
            Type::ObjectId => View::ObjectId(bytes),
            Type::DateTime => View::Date(int64()?),
            Type::Timestamp => View::Timestamp(u64::from_le_bytes(bytes.try_into().ok()?)),
            Type::Regex => {
                let end = bytes.iter().position(|b| *b == 0)?;
                View::Regex(&bytes[..end], bytes.get(end + 1..bytes.len() - 1)?)
            }
            Type::DbPointer => {
                let (namespace, id) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
                View::DbPointer(text(namespace), id)
            }
            Type::CodeWithScope => {
                let rest = bytes.get(4..)?;
                let length = i32::from_le_bytes(rest.get(..4)?.try_into().ok()?);
                let end = usize::try_from(length).ok()?.checked_add(4)?;
                View::CodeWithScope(text(rest.get(..end)?), Doc::from_bytes(rest.get(end..)?).ok()?)
            }
        })
    }

    fn canonical(self) -> u8 {
        match self {
            View::Bare(class) => class,
            View::Number(_) => Type::Int32.canonical(),
            View::Text(_) => Type::String.canonical(),
            View::Document(_) => Type::Document.canonical(),
            View::Array(_) => Type::Array.canonical(),
            View::Binary(..) => Type::Binary.canonical(),
            View::ObjectId(_) => Type::ObjectId.canonical(),
            View::Bool(_) => Type::Bool.canonical(),
            View::Date(_) => Type::DateTime.canonical(),
            View::Timestamp(_) => Type::Timestamp.canonical(),
            View::Regex(..) => Type::Regex.canonical(),
            View::DbPointer(..) => Type::DbPointer.canonical(),
            View::Code(_) => Type::Code.canonical(),
            View::CodeWithScope(..) => Type::CodeWithScope.canonical(),
        }
    }
}

/// The text of a length-prefixed, zero-terminated string.
#[inline]
fn text(bytes: &[u8]) -> &[u8] {
    bytes.get(4..bytes.len().saturating_sub(1)).unwrap_or_default()
}

#[inline]
fn compare_views(a: View<'_>, b: View<'_>, depth: u32) -> Ordering {
    match (a, b) {
        (View::Number(a), View::Number(b)) => a.compare(b),
        (View::Text(a), View::Text(b)) | (View::Code(a), View::Code(b)) => a.cmp(b),
        (View::ObjectId(a), View::ObjectId(b)) => a.cmp(b),
        (View::Bool(a), View::Bool(b)) => a.cmp(&b),
        (View::Date(a), View::Date(b)) => a.cmp(&b),
        (View::Timestamp(a), View::Timestamp(b)) => a.cmp(&b),
        (View::Document(a), View::Document(b)) => compare_elems(a, b, true, depth),
        (View::Array(a), View::Array(b)) => compare_elems(a, b, false, depth),
        (View::Binary(sa, a), View::Binary(sb, b)) => {
            a.len().cmp(&b.len()).then(sa.cmp(&sb)).then_with(|| a.cmp(b))
        }
        (View::Regex(pa, oa), View::Regex(pb, ob)) => pa.cmp(pb).then_with(|| oa.cmp(ob)),
        (View::DbPointer(na, a), View::DbPointer(nb, b)) => {
            na.len().cmp(&nb.len()).then_with(|| na.cmp(nb)).then_with(|| a.cmp(b))
        }
        (View::CodeWithScope(ca, sa), View::CodeWithScope(cb, sb)) => {
            ca.cmp(cb).then_with(|| compare_elems(sa, sb, true, depth))
        }
        _ => a.canonical().cmp(&b.canonical()),
    }
}

/// Hashes so that values that are `equal` hash alike.
pub fn hash_value(value: &Value<'_>, hasher: &mut impl Hasher) {
    hash_view(View::of(value), hasher, 0);
}

fn hash_view(view: View<'_>, hasher: &mut impl Hasher, depth: u32) {
    hasher.write_u8(view.canonical());
    match view {
        View::Bare(_) => {}
        View::Number(number) => hash_number(number, hasher),
        View::Text(v) | View::Code(v) => hash_bytes(v, hasher),
        View::Document(doc) => hash_elems(doc, true, hasher, depth),
        View::Array(doc) => hash_elems(doc, false, hasher, depth),
        View::Binary(subtype, bytes) => {
            hasher.write_u8(subtype);
            hash_bytes(bytes, hasher);
        }
        View::ObjectId(id) => hasher.write(id),
        View::Bool(v) => hasher.write_u8(u8::from(v)),
        View::Date(v) => hasher.write_i64(v),
        View::Timestamp(v) => hasher.write_u64(v),
        View::Regex(a, b) | View::DbPointer(a, b) => {
            hash_bytes(a, hasher);
            hash_bytes(b, hasher);
        }
        View::CodeWithScope(code, scope) => {
            hash_bytes(code, hasher);
            hash_elems(scope, true, hasher, depth);
        }
    }
}

fn hash_bytes(bytes: &[u8], hasher: &mut impl Hasher) {
    hasher.write_usize(bytes.len());
    hasher.write(bytes);
}

fn hash_elems(doc: Doc<'_>, names: bool, hasher: &mut impl Hasher, depth: u32) {
    if depth > RECURSION_MAX {
        return hash_deep(doc, names, hasher);
    }
    for elem in doc {
        work::tick_infallible(1);
        if names {
            hash_bytes(elem.key_bytes(), hasher);
        }
        hash_view(View::of_elem(elem), hasher, depth + 1);
    }
    hasher.write_u8(ELEMS_END);
}

/// So that what follows a shorter array isn't taken for its elements.
const ELEMS_END: u8 = 0xFE;

/// As [`hash_elems`], without recursion.
#[cold]
fn hash_deep(doc: Doc<'_>, names: bool, hasher: &mut impl Hasher) {
    let mut open: Vec<(Iter<'_>, bool)> = vec![(doc.iter(), names)];
    while let Some((elems, names)) = open.last_mut() {
        kauri_base::work::tick_infallible(1);
        let Some(elem) = elems.next() else {
            hasher.write_u8(ELEMS_END);
            open.pop();
            continue;
        };
        if *names {
            hash_bytes(elem.key_bytes(), hasher);
        }
        let view = View::of_elem(elem);
        match view {
            View::Document(inner) | View::Array(inner) => {
                hasher.write_u8(view.canonical());
                open.push((inner.iter(), matches!(view, View::Document(_))));
            }
            View::CodeWithScope(code, scope) => {
                hasher.write_u8(view.canonical());
                hash_bytes(code, hasher);
                open.push((scope.iter(), true));
            }
            _ => hash_view(view, hasher, 0),
        }
    }
}

/// Equal numbers have the same long, or if none then the same nearest double.
fn hash_number(number: Number, hasher: &mut impl Hasher) {
    match number.to_i64_exact() {
        Some(whole) => hasher.write_i64(whole),
        None => {
            let double = number.to_f64_lossy();
            let double = if double.is_nan() { f64::NAN } else { double };
            hasher.write_u64(double.to_bits());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bid::Parts;
    use crate::random::Random;
    use crate::{array, doc};
    use kauri_base::Timestamp;
    use std::hash::DefaultHasher;

    fn decimal(coefficient: u128, exponent: i32) -> Value<'static> {
        let parts = Parts::Finite { negative: false, coefficient, exponent };
        Value::Decimal128(Decimal128::from_parts(parts).unwrap())
    }

    fn negative(coefficient: u128, exponent: i32) -> Value<'static> {
        let parts = Parts::Finite { negative: true, coefficient, exponent };
        Value::Decimal128(Decimal128::from_parts(parts).unwrap())
    }

    fn hash(value: &Value<'_>) -> u64 {
        let mut hasher = DefaultHasher::new();
        hash_value(value, &mut hasher);
        hasher.finish()
    }

    /// Groups of equal values, ascending.
    fn ladder() -> Vec<Vec<Value<'static>>> {
        let two_53 = 9_007_199_254_740_992i64;
        let binary = |subtype, bytes: &'static [u8]| Value::Binary { subtype, bytes: bytes.into() };
        let regex = |p: &'static str, o: &'static str| Value::Regex {
            pattern: p.into(),
            options: o.into(),
        };
        let pointer = |n: &'static str, id| Value::DbPointer { namespace: n.into(), id: [id; 12] };
        let time = |seconds, increment| Value::Timestamp(Timestamp { seconds, increment });
        vec![
            vec![Value::MinKey],
            vec![Value::Missing, Value::Undefined],
            vec![Value::Null],
            vec![Value::Double(f64::NAN), Value::Double(-f64::NAN), Decimal128::NAN.into()],
            vec![Value::Double(f64::NEG_INFINITY), Decimal128::NEG_INFINITY.into()],
            vec![negative(1, 400)],
            vec![Value::Double(f64::MIN)],
            vec![Value::Int64(i64::MIN), Value::Double(-TWO_63), negative(1 << 63, 0)],
            vec![Value::Int64(i64::MIN + 1)],
            vec![Value::Double(-1.5), negative(15, -1), negative(150, -2)],
            vec![Value::Int32(-1), Value::Double(-1.0), negative(10, -1)],
            vec![negative(1, -6176)],
            vec![
                Value::Int32(0),
                Value::Int64(0),
                Value::Double(0.0),
                Value::Double(-0.0),
                decimal(0, 0),
                negative(0, 100),
            ],
            vec![decimal(1, -6176)],
            vec![Value::Double(5e-324)],
            vec![decimal(1, -1)],
            vec![Value::Double(0.1)],
            vec![Value::Double(0.5), decimal(5, -1), decimal(5000, -4)],
            vec![Value::Int32(1), Value::Int64(1), Value::Double(1.0), decimal(1, 0)],
            vec![decimal(10u128.pow(33) + 1, -33)],
            vec![Value::Double(1.0 + f64::EPSILON)],
            vec![Value::Int64(two_53), Value::Double(two_53 as f64)],
            vec![Value::Int64(two_53 + 1), decimal(two_53 as u128 + 1, 0)],
            vec![Value::Int64(two_53 + 2), Value::Double((two_53 + 2) as f64)],
            vec![Value::Int64(i64::MAX), decimal(i64::MAX as u128, 0)],
            vec![Value::Double(TWO_63), decimal(1 << 63, 0)],
            vec![Value::Double(1e22), decimal(1, 22), decimal(1000, 19)],
            vec![decimal(1, 23)],
            // 1e23 is no double; the nearest is 99999999999999991611392, the next one up is above.
            vec![Value::Double(f64::from_bits(1e23f64.to_bits() + 1))],
            vec![Value::Double(f64::MAX)],
            vec![decimal(1, 400)],
            vec![Value::Double(f64::INFINITY), Decimal128::INFINITY.into()],
            vec![Value::String("".into()), Value::Symbol("".into())],
            vec![Value::String("A".into())],
            vec![Value::String("a".into()), Value::Symbol("a".into())],
            vec![Value::String("a\0".into())],
            vec![Value::String("aa".into())],
            vec![Value::String("é".into())],
            vec![Value::String("\u{ffff}".into())],
            vec![Value::String("\u{10000}".into())],
            vec![doc! {}.into()],
            vec![doc! { "b" => Value::Null }.into()],
            vec![doc! { "a" => 1 }.into(), doc! { "a" => 1.0 }.into()],
            vec![doc! { "a" => 1, "a" => 1 }.into()],
            vec![doc! { "a" => 2 }.into()],
            vec![doc! { "b" => 1 }.into()],
            vec![doc! { "a" => "x" }.into()],
            vec![array![]],
            vec![array![Value::Undefined]],
            vec![array![1], array![1.0]],
            vec![array![1, 1]],
            vec![array![2]],
            vec![array!["a"]],
            vec![binary(0, b"")],
            vec![binary(128, b"")],
            vec![binary(0, b"b")],
            vec![binary(5, b"a")],
            vec![binary(0, b"aa")],
            vec![Value::ObjectId([0; 12])],
            vec![Value::ObjectId([0xFF; 12])],
            vec![Value::Bool(false)],
            vec![Value::Bool(true)],
            vec![Value::DateTime(i64::MIN)],
            vec![Value::DateTime(-1)],
            vec![Value::DateTime(0)],
            vec![time(0, u32::MAX)],
            vec![time(1, 0)],
            vec![time(u32::MAX, 0)],
            vec![regex("a", "i")],
            vec![regex("a", "m")],
            vec![regex("b", "")],
            vec![pointer("b", 0)],
            vec![pointer("b", 1)],
            vec![pointer("aa", 0)],
            vec![Value::Code("a".into())],
            vec![Value::Code("b".into())],
            vec![Value::CodeWithScope { code: "a".into(), scope: doc! { "z" => 9 }.into() }],
            vec![Value::CodeWithScope { code: "b".into(), scope: doc! {}.into() }],
            vec![Value::CodeWithScope { code: "b".into(), scope: doc! { "a" => 1 }.into() }],
            vec![Value::MaxKey],
        ]
    }

    const TWO_63: f64 = 9_223_372_036_854_775_808.0;

    #[test]
    fn every_pair_of_the_ladder_is_in_order() {
        let ladder = ladder();
        for (i, left) in ladder.iter().enumerate() {
            for (j, right) in ladder.iter().enumerate() {
                for a in left {
                    for b in right {
                        assert_eq!(compare(a, b), i.cmp(&j), "{a:?} against {b:?}");
                        assert_eq!(equal(a, b), i == j, "{a:?} against {b:?}");
                        if i == j {
                            assert_eq!(hash(a), hash(b), "{a:?} and {b:?} hash differently");
                        }
                        // Nested as raw bytes, the order is the same (a missing value leaves its
                        // document empty, so it is no element).
                        if !a.is_missing() && !b.is_missing() {
                            let (da, db) = (doc! { "k" => a.clone() }, doc! { "k" => b.clone() });
                            let nested = compare_docs(da.as_doc(), db.as_doc());
                            assert_eq!(nested, i.cmp(&j), "{da:?} against {db:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn random_values_have_one_total_order() {
        for seed in 0..3 {
            let mut random = Random::new(seed);
            for _ in 0..30_000 {
                let [a, b, c] = [(); 3].map(|()| random.value(2));
                let context = format!("seed {seed}: {a:?}, {b:?}, {c:?}");
                let (ab, bc, ac) = (compare(&a, &b), compare(&b, &c), compare(&a, &c));
                assert_eq!(compare(&b, &a), ab.reverse(), "{context}");
                if ab == bc || bc.is_eq() {
                    assert_eq!(ac, ab, "{context}");
                }
                assert_eq!(equal(&a, &b), ab.is_eq(), "{context}");
                assert!(ab.is_ne() || hash(&a) == hash(&b), "{context}");
                // From raw elements, with every shortcut there is.
                let (da, db) = (doc! { "k" => a.clone() }, doc! { "k" => b.clone() });
                let (Some(ea), Some(eb)) = (da.as_doc().first(), db.as_doc().first()) else {
                    panic!("{context}");
                };
                assert_eq!(compare_elem_values(ea, eb), ab, "{context}");
                assert_eq!(compare_elem_with(ea, &b), ab, "{context}");
            }
        }
    }

    /// The exact decimal digits of a number before and behind the point, and its sign.
    fn plain(value: &Value<'_>) -> (bool, String, String) {
        let text = match value {
            Value::Double(v) => format!("{v:.1080}"),
            Value::Decimal128(v) => {
                let Parts::Finite { negative, coefficient, exponent } = v.parts() else {
                    panic!("finite numbers only");
                };
                let digits = if exponent < 0 {
                    let places = exponent.unsigned_abs() as usize;
                    let padded = format!("{coefficient:0>width$}", width = places + 1);
                    let (whole, fraction) = padded.split_at(padded.len() - places);
                    format!("{whole}.{fraction}")
                } else {
                    format!("{coefficient}{}", "0".repeat(exponent as usize))
                };
                format!("{}{digits}", if negative { "-" } else { "" })
            }
            Value::Int32(v) => v.to_string(),
            Value::Int64(v) => v.to_string(),
            other => panic!("{other:?} is no number"),
        };
        let digits = text.trim_start_matches('-');
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let whole = whole.trim_start_matches('0').to_owned();
        let fraction = fraction.trim_end_matches('0').to_owned();
        let negative = text.starts_with('-') && !(whole.is_empty() && fraction.is_empty());
        (negative, whole, fraction)
    }

    #[test]
    fn numbers_compare_like_their_decimal_digits() {
        let finite = |value: &Value<'_>| match value {
            Value::Double(v) => v.is_finite(),
            Value::Decimal128(v) => v.is_finite(),
            _ => true,
        };
        let mut random = Random::new(42);
        let mut previous = Value::Int32(0);
        for _ in 0..20_000 {
            let value = random.number();
            if !finite(&value) {
                continue;
            }
            let (a, b) = (plain(&previous), plain(&value));
            let magnitude =
                a.1.len().cmp(&b.1.len()).then(a.1.cmp(&b.1)).then_with(|| a.2.cmp(&b.2));
            let expected = match (a.0, b.0) {
                (true, true) => magnitude.reverse(),
                (negative, other) => other.cmp(&negative).then(magnitude),
            };
            assert_eq!(compare(&previous, &value), expected, "{previous:?} against {value:?}");
            previous = value;
        }
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let mut bytes = vec![5, 0, 0, 0, 0];
        for _ in 0..20_000 {
            let mut outer = Vec::with_capacity(bytes.len() + 8);
            outer.extend_from_slice(&(bytes.len() as i32 + 8).to_le_bytes());
            outer.extend_from_slice(&[3, b'a', 0]);
            outer.extend_from_slice(&bytes);
            outer.push(0);
            bytes = outer;
        }
        let doc = Doc::from_bytes(&bytes).unwrap();
        assert_eq!(compare_docs(doc, doc), Ordering::Equal);
        assert_eq!(hash(&doc.into()), hash(&doc.into()));
    }

    #[test]
    fn values_beyond_the_recursion_limit_compare_and_hash_the_same() {
        let wrap = |value: &Value<'static>, levels: u32| {
            (0..levels).fold(value.clone(), |value, level| match level % 3 {
                0 => doc! { "a" => value, "z" => 1 }.into(),
                1 => array![value],
                _ => Value::CodeWithScope { code: "c".into(), scope: doc! { "s" => value }.into() },
            })
        };
        for seed in 0..3000 {
            let mut random = Random::new(seed);
            let (a, b) = (random.value(3), random.value(3));
            for levels in [RECURSION_MAX - 1, RECURSION_MAX, RECURSION_MAX + 1, 40, 61] {
                let (deep_a, deep_b) = (wrap(&a, levels), wrap(&b, levels));
                let order = compare(&a, &b);
                assert_eq!(compare(&deep_a, &deep_b), order, "seed {seed}, {levels} levels");
                let same = hash(&deep_a) == hash(&deep_b);
                assert_eq!(same, hash(&a) == hash(&b), "seed {seed}, {levels} levels");
            }
        }
    }

    #[test]
    fn conversions_and_truth() {
        assert_eq!(decimal(1500, -2).as_i64_exact(), Some(15));
        assert_eq!(decimal(1501, -2).as_i64_exact(), None);
        assert_eq!(decimal(1501, -2).to_i64_saturating(), Some(15));
        assert_eq!(negative(1, 30).to_i64_saturating(), Some(i64::MIN));
        assert_eq!(negative(1 << 63, 0).as_i64_exact(), Some(i64::MIN));
        assert_eq!(decimal(1 << 63, 0).as_i64_exact(), None);
        assert_eq!(Value::Double(1e300).to_i64_saturating(), Some(i64::MAX));
        assert_eq!(Value::Double(2.5).as_i64_exact(), None);
        assert_eq!(Value::Double(-0.0).as_i64_exact(), Some(0));
        assert_eq!(decimal(1, -1).as_f64_lossy(), Some(0.1));
        assert_eq!(decimal(1, 400).as_f64_lossy(), Some(f64::INFINITY));
        for falsy in [Value::Missing, Value::Null, Value::Undefined, 0.into(), negative(0, 3)] {
            assert!(!falsy.truthy(), "{falsy:?}");
        }
        for truthy in [Value::Double(f64::NAN), "".into(), array![], decimal(1, -6176)] {
            assert!(truthy.truthy(), "{truthy:?}");
        }
    }
}
