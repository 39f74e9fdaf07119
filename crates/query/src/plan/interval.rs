//! Intervals: the values of one index field that a predicate allows.
//!
//! A list is disjoint and ascends in comparison order. It may allow more than the predicate (then it is not
//! *exact*, and the document must be checked), never less.

use kauri_base::work;
use kauri_bson::{DocBuf, Type, Value, compare};
use kauri_matcher::{CompareOp, InList, Leaf, MatchExpr, Predicate};
use std::cmp::Ordering;

/// An interval between two values.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: Value<'static>,
    /// Whether the lower end belongs to it.
    pub low_inclusive: bool,
    /// The upper end.
    pub high: Value<'static>,
    /// Whether the upper end belongs to it.
    pub high_inclusive: bool,
}

impl Interval {
    /// Everything.
    pub fn all() -> Interval {
        Interval {
            low: Value::MinKey,
            low_inclusive: true,
            high: Value::MaxKey,
            high_inclusive: true,
        }
    }

    /// One value.
    pub fn point(value: Value<'static>) -> Interval {
        Interval { low: value.clone(), low_inclusive: true, high: value, high_inclusive: true }
    }

    fn new(
        low: Value<'static>,
        low_inclusive: bool,
        high: Value<'static>,
        high_inclusive: bool,
    ) -> Interval {
        Interval { low, low_inclusive, high, high_inclusive }
    }

    /// Whether it is one value.
    pub fn is_point(&self) -> bool {
        self.low_inclusive
            && self.high_inclusive
            && compare(&self.low, &self.high) == Ordering::Equal
    }

    /// Whether it is everything.
    pub fn is_all(&self) -> bool {
        matches!((&self.low, &self.high), (Value::MinKey, Value::MaxKey))
            && self.low_inclusive
            && self.high_inclusive
    }

    fn is_empty(&self) -> bool {
        match compare(&self.low, &self.high) {
            Ordering::Less => false,
            Ordering::Equal => !(self.low_inclusive && self.high_inclusive),
            Ordering::Greater => true,
        }
    }

    fn intersect(&self, other: &Interval) -> Interval {
        let (low, low_inclusive) = match compare(&self.low, &other.low) {
            Ordering::Less => (&other.low, other.low_inclusive),
            Ordering::Greater => (&self.low, self.low_inclusive),
            Ordering::Equal => (&self.low, self.low_inclusive && other.low_inclusive),
        };
        let (high, high_inclusive) = match compare(&self.high, &other.high) {
            Ordering::Less => (&self.high, self.high_inclusive),
            Ordering::Greater => (&other.high, other.high_inclusive),
            Ordering::Equal => (&self.high, self.high_inclusive && other.high_inclusive),
        };
        Interval::new(low.clone(), low_inclusive, high.clone(), high_inclusive)
    }

    /// As `explain` prints it: `[1.0, 5.0)`.
    pub fn text(&self) -> String {
        format!(
            "{}{}, {}{}",
            if self.low_inclusive { '[' } else { '(' },
            bound_text(&self.low),
            bound_text(&self.high),
            if self.high_inclusive { ']' } else { ')' },
        )
    }
}

fn bound_text(value: &Value<'_>) -> String {
    match value {
        Value::MinKey => "MinKey".to_owned(),
        Value::MaxKey => "MaxKey".to_owned(),
        other => kauri_bson::shell_value(other),
    }
}

/// Ascending disjoint intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalList {
    /// The intervals.
    pub intervals: Vec<Interval>,
    /// Whether a document has a key in them if and only if it satisfies the predicates.
    pub exact: bool,
}

impl IntervalList {
    /// Everything. Not exact for any predicate.
    pub fn all() -> IntervalList {
        IntervalList { intervals: vec![Interval::all()], exact: false }
    }

    /// Whether it is everything.
    pub fn is_all(&self) -> bool {
        matches!(self.intervals.as_slice(), [one] if one.is_all())
    }

    /// Whether all intervals are single values.
    pub fn is_points(&self) -> bool {
        self.intervals.iter().all(Interval::is_point)
    }

    /// The intersection of both.
    pub fn intersect(&self, other: &IntervalList) -> IntervalList {
        let mut intervals = Vec::new();
        let (mut a, mut b) = (0, 0);
        while let (Some(x), Some(y)) = (self.intervals.get(a), other.intervals.get(b)) {
            work::tick_infallible(1);
            let both = x.intersect(y);
            if !both.is_empty() {
                intervals.push(both);
            }
            match compare(&x.high, &y.high) {
                Ordering::Less => a += 1,
                Ordering::Greater => b += 1,
                Ordering::Equal if x.high_inclusive => b += 1,
                Ordering::Equal => a += 1,
            }
        }
        IntervalList { intervals, exact: self.exact && other.exact }
    }

    fn from_unsorted(mut intervals: Vec<Interval>, exact: bool) -> IntervalList {
        intervals.retain(|i| !i.is_empty());
        intervals.sort_by(|a, b| {
            work::tick_infallible(1);
            compare(&a.low, &b.low).then(b.low_inclusive.cmp(&a.low_inclusive))
        });
        let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
        for interval in intervals {
            if let Some(last) = merged.last_mut() {
                let touching = match compare(&interval.low, &last.high) {
                    Ordering::Less => true,
                    Ordering::Equal => interval.low_inclusive || last.high_inclusive,
                    Ordering::Greater => false,
                };
                if touching {
                    match compare(&interval.high, &last.high) {
                        Ordering::Greater => {
                            last.high = interval.high;
                            last.high_inclusive = interval.high_inclusive;
                        }
                        Ordering::Equal => last.high_inclusive |= interval.high_inclusive,
                        Ordering::Less => {}
                    }
                    continue;
                }
            }
            merged.push(interval);
        }
        IntervalList { intervals: merged, exact }
    }

    /// Everything that this does not allow. Never exact: a document may have several keys.
    pub fn complement(&self) -> IntervalList {
        let mut intervals = Vec::new();
        let (mut low, mut low_inclusive) = (Value::MinKey, true);
        for interval in &self.intervals {
            intervals.push(Interval::new(
                low,
                low_inclusive,
                interval.low.clone(),
                !interval.low_inclusive,
            ));
            low = interval.high.clone();
            low_inclusive = !interval.high_inclusive;
        }
        intervals.push(Interval::new(low, low_inclusive, Value::MaxKey, true));
        intervals.retain(|i| !i.is_empty());
        IntervalList { intervals, exact: false }
    }
}

/// The values of an index's keys that a predicate on an indexed path allows. `None`: no index can serve it.
pub fn of_predicate(pred: &Predicate) -> Option<IntervalList> {
    Some(match pred {
        Predicate::Compare(op, value) => of_compare(*op, value),
        Predicate::In(list) => of_in(list),
        Predicate::Regex(regex) => {
            let (mut intervals, exact) = of_regex(regex.pattern(), regex.options());
            intervals.push(Interval::point(regex_value(regex)));
            IntervalList::from_unsorted(intervals, exact)
        }
        Predicate::Exists | Predicate::Mod(_) | Predicate::Bits(_) | Predicate::Size(_) => {
            IntervalList::all()
        }
        Predicate::Type(..) | Predicate::ElemMatchObject(_) => IntervalList::all(),
        Predicate::ElemMatchValue(child) => {
            let mut list = of_value_tree(child)?;
            // An index key may stem from a value that is no array element.
            list.exact = false;
            list
        }
    })
}

/// The intersection of all. Two by two, because each may be long: one after the other would scan the rest again and
/// again.
pub fn intersect_all(mut lists: Vec<IntervalList>) -> Option<IntervalList> {
    while lists.len() > 1 {
        let pairs = lists.chunks(2).map(|pair| match pair {
            [a, b] => a.intersect(b),
            [a, ..] => a.clone(),
            [] => IntervalList::all(),
        });
        lists = pairs.collect();
    }
    lists.pop()
}

/// The intervals of `$elemMatch`'s predicates on the element itself: one element satisfies them all,
/// so they intersect however many keys a document has.
fn of_value_tree(expr: &MatchExpr) -> Option<IntervalList> {
    match expr {
        // An array within the array is one key as a whole, which its elements don't bound.
        MatchExpr::Leaf(Leaf { pred: Predicate::ElemMatchValue(_), .. }) => {
            Some(IntervalList::all())
        }
        MatchExpr::Leaf(leaf) if leaf.path.is_self() => of_predicate(&leaf.pred),
        MatchExpr::Leaf(_) => None,
        MatchExpr::And(children) => {
            intersect_all(children.iter().filter_map(of_value_tree).collect())
        }
        MatchExpr::Not(child) => Some(match &**child {
            MatchExpr::Leaf(leaf) if is_exact_for_complement(&leaf.pred) => {
                of_predicate(&leaf.pred)?.complement()
            }
            _ => IntervalList::all(),
        }),
        _ => Some(IntervalList::all()),
    }
}

/// Whether a key within the predicate's intervals means that the document satisfies it, so that
/// leaving these keys out loses no document of the negation.
pub fn is_exact_for_complement(pred: &Predicate) -> bool {
    match pred {
        Predicate::Compare(_, value) => {
            !matches!(value, Value::Array(_) | Value::Null | Value::Undefined | Value::Document(_))
        }
        Predicate::In(list) => {
            list.regexes().is_empty()
                && !list.values().iter().any(|v| {
                    matches!(
                        v,
                        Value::Array(_) | Value::Null | Value::Undefined | Value::Document(_)
                    )
                })
        }
        _ => false,
    }
}

fn of_in(list: &InList) -> IntervalList {
    let mut intervals = Vec::new();
    let mut exact = true;
    for value in list.values() {
        let one = of_compare(CompareOp::Eq, value);
        exact &= one.exact;
        intervals.extend(one.intervals);
    }
    for regex in list.regexes() {
        let (of_strings, is_exact) = of_regex(regex.pattern(), regex.options());
        exact &= is_exact;
        intervals.extend(of_strings);
        intervals.push(Interval::point(regex_value(regex)));
    }
    IntervalList::from_unsorted(intervals, exact)
}

fn regex_value(regex: &kauri_matcher::RegexMatch) -> Value<'static> {
    Value::Regex {
        pattern: regex.pattern().to_owned().into(),
        options: regex.options().to_owned().into(),
    }
}

/// The strings that a regular expression may match.
fn of_regex(pattern: &str, options: &str) -> (Vec<Interval>, bool) {
    let prefix = kauri_expr::regex::Regex::new(pattern, options)
        .ok()
        .and_then(|regex| regex.literal_prefix());
    let Some(prefix) = prefix.filter(|p| !p.text.is_empty()) else {
        let low = Value::String("".into());
        return (vec![Interval::new(low, true, empty_document(), false)], false);
    };
    let high = match next_string(&prefix.text) {
        Some(next) => Value::String(next.into()),
        None => empty_document(),
    };
    let low = Value::String(prefix.text.into());
    (vec![Interval::new(low, true, high, false)], false)
}

/// The least string behind all that begin with `text`.
fn next_string(text: &str) -> Option<String> {
    let mut chars: Vec<char> = text.chars().collect();
    while let Some(last) = chars.pop() {
        let next = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

fn empty_document() -> Value<'static> {
    Value::Document(DocBuf::new().into())
}

fn empty_array() -> Value<'static> {
    Value::Array(DocBuf::new().into())
}

fn of_compare(op: CompareOp, value: &Value<'static>) -> IntervalList {
    if let Value::Array(elements) = value {
        if op != CompareOp::Eq {
            return IntervalList::all();
        }
        // The array as an element of an array, or by its first element as an array itself.
        let first = elements.as_doc().first().map_or(Value::Undefined, |e| e.value().into_owned());
        let both = vec![Interval::point(value.clone()), Interval::point(first)];
        return IntervalList::from_unsorted(both, false);
    }
    match value {
        Value::Null => return of_null(op),
        Value::Undefined => {
            return IntervalList::from_unsorted(
                vec![Interval::point(Value::Undefined), Interval::point(Value::Null)],
                false,
            );
        }
        Value::MinKey | Value::MaxKey => return of_extreme(op, value),
        Value::Double(n) if n.is_nan() => {
            let allowed = !matches!(op, CompareOp::Lt | CompareOp::Gt);
            let intervals = if allowed { vec![Interval::point(value.clone())] } else { Vec::new() };
            return IntervalList { intervals, exact: false };
        }
        _ => {}
    }
    let interval = match op {
        CompareOp::Eq => Interval::point(value.clone()),
        CompareOp::Lt | CompareOp::Lte => {
            let (low, inclusive) = least_of_type(value);
            Interval::new(low, inclusive, value.clone(), op == CompareOp::Lte)
        }
        CompareOp::Gt | CompareOp::Gte => {
            let (high, inclusive) = greatest_of_type(value);
            Interval::new(value.clone(), op == CompareOp::Gte, high, inclusive)
        }
    };
    // Documents may hold arrays, whose comparison as a whole the keys don't show; so may code.
    // The bracket of a pointer is wider than its type.
    let exact = !matches!(
        value.ty(),
        Some(Type::Document | Type::Code | Type::CodeWithScope | Type::DbPointer)
    );
    IntervalList::from_unsorted(vec![interval], exact)
}

fn of_null(op: CompareOp) -> IntervalList {
    match op {
        CompareOp::Lt | CompareOp::Gt => IntervalList { intervals: Vec::new(), exact: true },
        // A missing field has the key null too, and so may a path that is cut off by an array.
        _ => IntervalList::from_unsorted(
            vec![Interval::point(Value::Undefined), Interval::point(Value::Null)],
            false,
        ),
    }
}

fn of_extreme(op: CompareOp, value: &Value<'static>) -> IntervalList {
    match (op, value) {
        (CompareOp::Eq, _) | (CompareOp::Lte, Value::MinKey) | (CompareOp::Gte, Value::MaxKey) => {
            IntervalList { intervals: vec![Interval::point(value.clone())], exact: false }
        }
        (CompareOp::Lt, Value::MinKey) | (CompareOp::Gt, Value::MaxKey) => {
            IntervalList { intervals: Vec::new(), exact: false }
        }
        _ => IntervalList::all(),
    }
}

/// Whether it is a string or a symbol, UTF-8 or not.
fn is_text(value: &Value<'_>) -> bool {
    matches!(value.ty(), Some(Type::String | Type::Symbol))
}

/// The least value that compares with this one, and whether it's within the bracket.
fn least_of_type(value: &Value<'_>) -> (Value<'static>, bool) {
    match value {
        v if v.is_number() => (Value::Double(f64::NEG_INFINITY), true),
        v if is_text(v) => (Value::String("".into()), true),
        Value::Document(_) => (empty_document(), true),
        Value::Binary { .. } => (Value::Binary { subtype: 0, bytes: Vec::new().into() }, true),
        Value::ObjectId(_) => (Value::ObjectId([0; 12]), true),
        Value::Bool(_) => (Value::Bool(false), true),
        Value::DateTime(_) => (Value::DateTime(i64::MIN), true),
        Value::Timestamp(_) => (Value::Timestamp(kauri_base::Timestamp::default()), true),
        v if v.ty() == Some(Type::Regex) => {
            (Value::Regex { pattern: "".into(), options: "".into() }, true)
        }
        _ => (Value::MinKey, true),
    }
}

/// The greatest value that compares with this one, or the least of the next type, and whether it's
/// within the bracket.
fn greatest_of_type(value: &Value<'_>) -> (Value<'static>, bool) {
    match value {
        v if v.is_number() => (Value::Double(f64::INFINITY), true),
        v if is_text(v) => (empty_document(), false),
        Value::Document(_) => (empty_array(), false),
        Value::Binary { .. } => (Value::ObjectId([0; 12]), false),
        Value::ObjectId(_) => (Value::ObjectId([0xFF; 12]), true),
        Value::Bool(_) => (Value::Bool(true), true),
        Value::DateTime(_) => (Value::DateTime(i64::MAX), true),
        Value::Timestamp(_) => (
            Value::Timestamp(kauri_base::Timestamp { seconds: u32::MAX, increment: u32::MAX }),
            true,
        ),
        v if v.ty() == Some(Type::Regex) => {
            (Value::DbPointer { namespace: "".into(), id: [0; 12] }, false)
        }
        _ => (Value::MaxKey, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &IntervalList) -> Vec<String> {
        list.intervals.iter().map(Interval::text).collect()
    }

    #[test]
    fn strings_that_are_not_utf8_stay_within_the_strings() {
        let bad = Value::string_of_bytes(b"\xFF".to_vec());
        let above = of_compare(CompareOp::Gt, &bad);
        assert!(above.exact);
        assert_eq!(texts(&above), ["(\"\u{FFFD}\", {})"]);
        assert_eq!(above.intervals[0].low, bad);
        assert_eq!(texts(&of_compare(CompareOp::Lte, &bad)), ["[\"\", \"\u{FFFD}\"]"]);
    }

    #[test]
    fn ranges_stay_within_the_type() {
        let gt = of_compare(CompareOp::Gt, &Value::Int32(5));
        let lt = of_compare(CompareOp::Lt, &Value::Int32(9));
        assert_eq!(texts(&gt.intersect(&lt)), ["(5, 9)"]);
        assert!(gt.intersect(&lt).exact);
        let strings = of_compare(CompareOp::Gte, &Value::String("m".into()));
        assert_eq!(texts(&strings), ["[\"m\", {})"]);
        assert_eq!(texts(&gt.intersect(&strings)), Vec::<String>::new());
    }

    #[test]
    fn a_complement_leaves_out_what_was_in() {
        let five = of_compare(CompareOp::Eq, &Value::Int32(5));
        assert_eq!(texts(&five.complement()), ["[MinKey, 5)", "(5, MaxKey]"]);
        assert_eq!(texts(&IntervalList::all().complement()), Vec::<String>::new());
    }

    #[test]
    fn a_prefix_bounds_a_regex() {
        let (list, _) = of_regex("^abc", "");
        assert_eq!(list[0].text(), "[\"abc\", \"abd\")");
        assert_eq!(next_string("a\u{10FFFF}").as_deref(), Some("b"));
    }
}
