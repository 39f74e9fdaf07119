//! Decides whether every document that matches one filter also matches another.
//!
//! It decides whether a partial index may serve a query. It returns true only with certainty; false may mean
//! "unknown". Implications between leaves hold over arrays as well: the same element may satisfy both filters'
//! predicates.

use crate::eval::matches_missing;
use crate::tree::{CompareOp, InList, Leaf, MatchExpr, Predicate};
use kauri_base::work;
use kauri_bson::{Type, Value, compare, equal};

/// Whether every document that matches `narrow` matches `wide`.
pub fn is_subset_of(narrow: &MatchExpr, wide: &MatchExpr) -> bool {
    if work::check_stack().is_err() {
        return false;
    }
    match (narrow, wide) {
        (_, MatchExpr::AlwaysTrue) | (MatchExpr::AlwaysFalse, _) => true,
        (_, MatchExpr::And(all)) => all.iter().all(|w| is_subset_of(narrow, w)),
        (MatchExpr::Or(any), _) => any.iter().all(|n| is_subset_of(n, wide)),
        (MatchExpr::And(all), MatchExpr::Or(any)) => {
            all.iter().any(|n| is_subset_of(n, wide)) || any.iter().any(|w| is_subset_of(narrow, w))
        }
        (MatchExpr::And(all), _) => all.iter().any(|n| is_subset_of(n, wide)),
        (_, MatchExpr::Or(any)) => any.iter().any(|w| is_subset_of(narrow, w)),
        (MatchExpr::Not(narrow), MatchExpr::Not(wide)) => is_subset_of(wide, narrow),
        (MatchExpr::Leaf(narrow), MatchExpr::Leaf(wide)) => {
            narrow.path == wide.path && leaf_is_subset(narrow, wide)
        }
        (MatchExpr::Not(negated), MatchExpr::Leaf(Leaf { path, pred: Predicate::Exists })) => {
            // What a missing field satisfies, and this does not. Only of a path without arrays on
            // the way, where an array without documents reaches nothing, not even "missing".
            matches!(&**negated, MatchExpr::Leaf(leaf)
                if leaf.path == *path && path.len() == 1 && matches_missing(&leaf.pred))
        }
        _ => is_same(narrow, wide),
    }
}

fn is_same(a: &MatchExpr, b: &MatchExpr) -> bool {
    a.to_bson() == b.to_bson()
}

fn leaf_is_subset(narrow: &Leaf, wide: &Leaf) -> bool {
    match (&narrow.pred, &wide.pred) {
        (pred, Predicate::Exists) => !matches_missing(pred),
        (Predicate::Compare(op, value), Predicate::Compare(wide_op, wide_value)) => {
            comparison_is_subset(*op, value, *wide_op, wide_value)
        }
        (Predicate::In(list), Predicate::Compare(op, value)) => {
            list.regexes().is_empty()
                && list.values().iter().all(|v| comparison_is_subset(CompareOp::Eq, v, *op, value))
        }
        (Predicate::Compare(CompareOp::Eq, value), Predicate::In(list)) => holds(list, value),
        (Predicate::In(narrow), Predicate::In(wide)) => {
            narrow.values().iter().all(|v| holds(wide, v))
                && narrow.regexes().iter().all(|r| {
                    let same = |w: &crate::RegexMatch| {
                        w.pattern() == r.pattern() && w.options() == r.options()
                    };
                    wide.regexes().iter().any(same)
                })
        }
        (Predicate::Type(narrow, _), Predicate::Type(wide, _)) => narrow.is_subset_of(*wide),
        (Predicate::Compare(_, value), Predicate::Type(types, _)) => {
            // Numbers compare across their types, and symbols with strings.
            value.is_number() && types.contains_numbers()
                || matches!(
                    value.ty(),
                    Some(
                        Type::Document
                            | Type::Array
                            | Type::ObjectId
                            | Type::Bool
                            | Type::DateTime
                            | Type::Timestamp
                            | Type::Binary
                    )
                ) && value.ty().is_some_and(|ty| types.contains(ty))
        }
        _ => is_same(&MatchExpr::Leaf(narrow.clone()), &MatchExpr::Leaf(wide.clone())),
    }
}

fn holds(list: &InList, value: &Value<'_>) -> bool {
    value.ty() != Some(Type::Regex)
        && list.values().binary_search_by(|probe| compare(probe, value)).is_ok()
}

/// Whether all values in one comparison's range are in the other's.
fn comparison_is_subset(
    op: CompareOp,
    value: &Value<'_>,
    wide_op: CompareOp,
    wide_value: &Value<'_>,
) -> bool {
    use CompareOp::{Eq, Gt, Gte, Lt, Lte};
    if value.ty().map(Type::canonical) != wide_value.ty().map(Type::canonical) {
        return false;
    }
    if op == wide_op && equal(value, wide_value) {
        return true;
    }
    if value.is_nan() || wide_value.is_nan() {
        // NaN satisfies these of NaN alone.
        let includes = |op| matches!(op, Eq | Lte | Gte);
        return value.is_nan() && wide_value.is_nan() && includes(op) && includes(wide_op);
    }
    let order = compare(value, wide_value);
    match (op, wide_op) {
        (Eq, wide_op) => wide_op.accepts(order),
        (Lt, Lt | Lte) | (Lte, Lte) => order.is_le(),
        (Lte, Lt) => order.is_lt(),
        (Gt, Gt | Gte) | (Gte, Gte) => order.is_ge(),
        (Gte, Gt) => order.is_gt(),
        _ => false,
    }
}
