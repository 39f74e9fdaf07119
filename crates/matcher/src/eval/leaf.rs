//! Evaluates one predicate on one value.

use crate::cx::{MatchCx, MatchDetails};
use crate::parse::number;
use crate::tree::{BitOp, BitTest, CompareOp, InList, MatchExpr, Modulo, Predicate, RegexMatch};
use kauri_base::{Result, work};
use kauri_bson::compare::compare_elem_with;
use kauri_bson::{Doc, Elem, Number, Type, Value, compare};
use std::cmp::Ordering;

/// Whether the value, or a missing value, satisfies the predicate.
#[inline]
pub(crate) fn matches(
    pred: &Predicate,
    elem: Option<Elem<'_>>,
    cx: &MatchCx<'_>,
    details: Option<&mut MatchDetails>,
) -> Result<bool> {
    match elem {
        Some(elem) => matches_elem(pred, elem, cx, details),
        None => Ok(matches_missing(pred)),
    }
}

/// Whether a value that is there satisfies the predicate.
#[inline]
pub(crate) fn matches_elem(
    pred: &Predicate,
    elem: Elem<'_>,
    cx: &MatchCx<'_>,
    details: Option<&mut MatchDetails>,
) -> Result<bool> {
    Ok(match pred {
        Predicate::Compare(op, operand) => compares(*op, operand, elem),
        Predicate::In(list) => return in_list(list, elem),
        Predicate::Regex(regex) => return regex.matches(elem),
        Predicate::Exists => true,
        Predicate::Type(types, _) => types.contains(elem.ty()),
        Predicate::Mod(modulo) => modulo.matches(elem),
        Predicate::Size(size) => match elem.as_doc().filter(|_| elem.ty() == Type::Array) {
            Some(items) => items.count_ticked()? as i64 == *size,
            None => false,
        },
        Predicate::Bits(test) => test.matches(elem),
        Predicate::ElemMatchObject(filter) => return elem_match(filter, true, elem, cx, details),
        Predicate::ElemMatchValue(filter) => return elem_match(filter, false, elem, cx, details),
    })
}

/// Whether a missing value satisfies the predicate.
pub(crate) fn matches_missing(pred: &Predicate) -> bool {
    match pred {
        Predicate::Compare(op, Value::Null) => {
            matches!(op, CompareOp::Eq | CompareOp::Lte | CompareOp::Gte)
        }
        Predicate::Compare(op, Value::MinKey) => op.accepts(Ordering::Greater),
        Predicate::Compare(op, Value::MaxKey) => op.accepts(Ordering::Less),
        Predicate::In(list) => {
            list.values.binary_search_by(|value| compare(value, &Value::Null)).is_ok()
        }
        _ => false,
    }
}

/// A comparison: between values of one class only, unless the operand is MinKey or MaxKey.
#[inline]
fn compares(op: CompareOp, operand: &Value<'_>, elem: Elem<'_>) -> bool {
    match operand {
        Value::String(text) => {
            if !matches!(elem.ty(), Type::String | Type::Symbol) {
                return false;
            }
            let bytes = elem.value_bytes();
            let bytes = bytes.get(4..bytes.len().saturating_sub(1)).unwrap_or_default();
            match op {
                CompareOp::Eq => bytes == text.as_bytes(),
                _ => op.accepts(bytes.cmp(text.as_bytes())),
            }
        }
        Value::Int32(v) => compares_number(op, Number::Int(i64::from(*v)), elem),
        Value::Int64(v) => compares_number(op, Number::Int(*v), elem),
        Value::Double(v) => compares_number(op, Number::Double(*v), elem),
        Value::Decimal128(v) => compares_number(op, Number::Decimal(*v), elem),
        Value::ObjectId(id) => {
            elem.ty() == Type::ObjectId && op.accepts(elem.value_bytes().cmp(id.as_slice()))
        }
        // The ends of the order are comparable with all.
        Value::MinKey | Value::MaxKey => op.accepts(compare_elem_with(elem, operand)),
        other => {
            other.ty().map(Type::canonical) == Some(elem.ty().canonical())
                && op.accepts(compare_elem_with(elem, other))
        }
    }
}

#[inline]
fn compares_number(op: CompareOp, operand: Number, elem: Elem<'_>) -> bool {
    let Some(number) = number_of(elem) else { return false };
    // NaN equals NaN and stands in no other relation to anything.
    if number.is_nan() || operand.is_nan() {
        return number.is_nan() && operand.is_nan() && !matches!(op, CompareOp::Lt | CompareOp::Gt);
    }
    op.accepts(number.compare(operand))
}

#[inline]
pub(crate) fn number_of(elem: Elem<'_>) -> Option<Number> {
    let bytes = elem.value_bytes();
    Some(match elem.ty() {
        Type::Int32 => Number::Int(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))),
        Type::Int64 => Number::Int(i64::from_le_bytes(bytes.try_into().ok()?)),
        Type::Double => Number::Double(f64::from_le_bytes(bytes.try_into().ok()?)),
        Type::Decimal128 => return elem.value().as_number(),
        _ => return None,
    })
}

impl CompareOp {
    /// Whether a value that stands so to the operand satisfies the comparison.
    #[inline]
    pub(crate) fn accepts(self, order: Ordering) -> bool {
        match self {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Lte => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Gte => order.is_ge(),
        }
    }
}

/// Up to here a list is searched one by one.
const LINEAR_MAX: usize = 8;

fn in_list(list: &InList, elem: Elem<'_>) -> Result<bool> {
    let found = if list.values.len() <= LINEAR_MAX {
        list.values.iter().any(|v| compare_elem_with(elem, v).is_eq())
    } else {
        search(&list.values, elem)
    };
    if found {
        return Ok(true);
    }
    for regex in &list.regexes {
        work::tick(1)?;
        if regex.matches(elem)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Searches sorted values; the commonest types without the general comparison.
fn search(values: &[Value<'static>], elem: Elem<'_>) -> bool {
    let class = elem.ty().canonical();
    let by_class = |v: &Value<'_>| v.ty().map_or(0, Type::canonical).cmp(&class);
    let found = if let Some(number) = number_of(elem) {
        values.binary_search_by(|v| match v.as_number() {
            Some(n) => n.compare(number),
            None => by_class(v),
        })
    } else if elem.ty() == Type::ObjectId {
        values.binary_search_by(|v| match v {
            Value::ObjectId(id) => id.as_slice().cmp(elem.value_bytes()),
            other => by_class(other),
        })
    } else {
        values.binary_search_by(|v| compare_elem_with(elem, v).reverse())
    };
    found.is_ok()
}

impl RegexMatch {
    fn matches(&self, elem: Elem<'_>) -> Result<bool> {
        match elem.value() {
            Value::String(text) | Value::Symbol(text) => self.regex.is_match(&text),
            Value::Regex { pattern, options } => {
                Ok(pattern == self.pattern() && options == self.options())
            }
            _ => Ok(false),
        }
    }
}

impl Modulo {
    fn matches(self, elem: Elem<'_>) -> bool {
        let number = number_of(elem).and_then(number::truncated);
        // The least long divided by -1 leaves nothing, like any other.
        number.is_some_and(|n| n.checked_rem(self.divisor).unwrap_or(0) == self.remainder)
    }
}

impl BitTest {
    fn matches(&self, elem: Elem<'_>) -> bool {
        if let Some(number) = number_of(elem) {
            return number.to_i64_exact().is_some_and(|n| self.test_long(n as u64));
        }
        match elem.value() {
            Value::Binary { bytes, .. } => self.test_bytes(&bytes),
            _ => false,
        }
    }

    fn test_long(&self, bits: u64) -> bool {
        let mask = self.mask();
        match self.op() {
            BitOp::AllSet => bits & mask == mask,
            BitOp::AllClear => bits & mask == 0,
            BitOp::AnySet => bits & mask != 0,
            BitOp::AnyClear => !bits & mask != 0,
        }
    }

    fn test_bytes(&self, bytes: &[u8]) -> bool {
        work::tick_infallible(self.positions().len() as u32);
        let is_set = |position: &u32| {
            bytes.get((position / 8) as usize).is_some_and(|byte| byte >> (position % 8) & 1 == 1)
        };
        let mut positions = self.positions().iter();
        match self.op() {
            BitOp::AllSet => positions.all(is_set),
            BitOp::AllClear => !positions.any(is_set),
            BitOp::AnySet => positions.any(is_set),
            BitOp::AnyClear => !positions.all(is_set),
        }
    }
}

/// Whether one element of an array matches: its documents (and arrays, treated as documents) a filter, or its
/// values predicates.
fn elem_match(
    filter: &MatchExpr,
    documents: bool,
    elem: Elem<'_>,
    cx: &MatchCx<'_>,
    details: Option<&mut MatchDetails>,
) -> Result<bool> {
    if elem.ty() != Type::Array {
        return Ok(false);
    }
    for (position, item) in elem.as_doc().unwrap_or(Doc::EMPTY).ticked().enumerate() {
        let item = item?;
        let matched = if documents {
            match item.as_doc() {
                Some(doc) => filter.matches(doc, cx)?,
                None => false,
            }
        } else {
            filter.matches_value(item, cx)?
        };
        if matched {
            if let Some(details) = details {
                details.set_elem_match_key(position as u32);
            }
            return Ok(true);
        }
    }
    Ok(false)
}
