//! Simplifies a tree without changing which documents match.
//!
//! Nested conjunctions and disjunctions become flat, constants disappear, `$in` of one value becomes an equality,
//! and a disjunction's equalities on one path become an `$in`. Negations stay as they were written. Children get a
//! canonical order, so that filters written in different orders become the same tree.

use crate::path::Path;
use crate::tree::{CompareOp, InList, Leaf, MatchExpr, Predicate};
use kauri_base::work;
use kauri_bson::{Type, compare};
use std::cmp::Ordering;

impl MatchExpr {
    /// Simplifies the tree and sorts its children; at the end of the stack, it stays unchanged.
    pub fn optimize(self) -> MatchExpr {
        work::tick_infallible(1);
        if work::check_stack().is_err() {
            return self;
        }
        match self {
            MatchExpr::And(children) => and(children),
            MatchExpr::Or(children) => or(children),
            MatchExpr::Nor(children) => nor(children),
            MatchExpr::Not(child) => match child.optimize() {
                MatchExpr::AlwaysTrue => MatchExpr::AlwaysFalse,
                MatchExpr::AlwaysFalse => MatchExpr::AlwaysTrue,
                MatchExpr::Not(inner) => *inner,
                other if other.is_empty_and() => MatchExpr::AlwaysFalse,
                other => MatchExpr::Not(Box::new(other)),
            },
            MatchExpr::Leaf(leaf) => optimize_leaf(leaf),
            MatchExpr::Expr(expr) => match expr.expression().as_constant() {
                Some(value) if value.truthy() => MatchExpr::AlwaysTrue,
                Some(_) => MatchExpr::AlwaysFalse,
                None => MatchExpr::Expr(expr),
            },
            other => other,
        }
    }

    fn is_empty_and(&self) -> bool {
        matches!(self, MatchExpr::And(children) if children.is_empty())
    }

    /// Whether it matches every document, judging by its form.
    pub fn is_always_true(&self) -> bool {
        matches!(self, MatchExpr::AlwaysTrue) || self.is_empty_and()
    }
}

fn and(children: Vec<MatchExpr>) -> MatchExpr {
    let mut flat = Vec::with_capacity(children.len());
    for child in children {
        match child.optimize() {
            MatchExpr::And(inner) => flat.extend(inner),
            MatchExpr::AlwaysTrue => {}
            MatchExpr::AlwaysFalse => return MatchExpr::AlwaysFalse,
            other => flat.push(other),
        }
    }
    flat.sort_by(order);
    only(flat).unwrap_or_else(MatchExpr::And)
}

fn or(children: Vec<MatchExpr>) -> MatchExpr {
    let mut flat = Vec::with_capacity(children.len());
    for child in children {
        match child.optimize() {
            MatchExpr::Or(inner) => flat.extend(inner),
            MatchExpr::AlwaysFalse => {}
            other if other.is_always_true() => return MatchExpr::AlwaysTrue,
            other => flat.push(other),
        }
    }
    let mut merged = merge_equalities(flat);
    if merged.is_empty() {
        return MatchExpr::AlwaysFalse;
    }
    merged.sort_by(order);
    only(merged).unwrap_or_else(MatchExpr::Or)
}

fn nor(children: Vec<MatchExpr>) -> MatchExpr {
    let mut kept = Vec::with_capacity(children.len());
    for child in children {
        match child.optimize() {
            MatchExpr::AlwaysFalse => {}
            other if other.is_always_true() => return MatchExpr::AlwaysFalse,
            other => kept.push(other),
        }
    }
    if kept.is_empty() {
        return MatchExpr::AlwaysTrue;
    }
    kept.sort_by(order);
    MatchExpr::Nor(kept)
}

/// The only child, or all of them back.
fn only(mut children: Vec<MatchExpr>) -> Result<MatchExpr, Vec<MatchExpr>> {
    match (children.pop(), children.is_empty()) {
        (Some(child), true) => Ok(child),
        (Some(child), false) => {
            children.push(child);
            Err(children)
        }
        (None, _) => Err(children),
    }
}

fn optimize_leaf(leaf: Leaf) -> MatchExpr {
    let Leaf { path, pred } = leaf;
    let pred = match pred {
        Predicate::In(mut list) => match (list.values.len(), list.regexes.len()) {
            (0, 0) => return MatchExpr::AlwaysFalse,
            (1, 0) => match list.values.pop() {
                Some(value) => Predicate::Compare(CompareOp::Eq, value),
                None => Predicate::In(list),
            },
            (0, 1) => match list.regexes.pop() {
                Some(regex) => Predicate::Regex(regex),
                None => Predicate::In(list),
            },
            _ => Predicate::In(list),
        },
        Predicate::ElemMatchObject(filter) => match filter.optimize() {
            MatchExpr::AlwaysFalse => return MatchExpr::AlwaysFalse,
            filter => Predicate::ElemMatchObject(Box::new(filter)),
        },
        Predicate::ElemMatchValue(filter) => match filter.optimize() {
            MatchExpr::AlwaysFalse => return MatchExpr::AlwaysFalse,
            filter => Predicate::ElemMatchValue(Box::new(filter)),
        },
        other => other,
    };
    MatchExpr::Leaf(Leaf { path, pred })
}

/// Makes one `$in` of the equalities, `$in`s and regexes on the same path.
fn merge_equalities(children: Vec<MatchExpr>) -> Vec<MatchExpr> {
    let (mut equalities, mut rest): (Vec<Leaf>, Vec<MatchExpr>) = (Vec::new(), Vec::new());
    for child in children {
        match child {
            MatchExpr::Leaf(leaf) if is_equality(&leaf.pred) => equalities.push(leaf),
            other => rest.push(other),
        }
    }
    equalities.sort_by(|a, b| a.path.cmp(&b.path));
    let mut equalities = equalities.into_iter().peekable();
    while let Some(leaf) = equalities.next() {
        if equalities.peek().is_none_or(|next| next.path != leaf.path) {
            rest.push(MatchExpr::Leaf(leaf));
            continue;
        }
        let path = leaf.path.clone();
        let mut list = InList::default();
        list.absorb(leaf.pred);
        while let Some(next) = equalities.next_if(|next| next.path == path) {
            list.absorb(next.pred);
        }
        list.normalize();
        rest.push(optimize_leaf(Leaf { path, pred: Predicate::In(list) }));
    }
    rest
}

fn is_equality(pred: &Predicate) -> bool {
    match pred {
        // As a member of a list a regex would match, not equal.
        Predicate::Compare(CompareOp::Eq, value) => value.ty() != Some(Type::Regex),
        Predicate::In(_) | Predicate::Regex(_) => true,
        _ => false,
    }
}

impl InList {
    fn absorb(&mut self, pred: Predicate) {
        match pred {
            Predicate::Compare(CompareOp::Eq, value) => self.values.push(value),
            Predicate::In(list) => {
                self.values.extend(list.values);
                self.regexes.extend(list.regexes);
            }
            Predicate::Regex(regex) => self.regexes.push(regex),
            _ => {}
        }
    }
}

/// The order of a node's children: by kind (as MongoDB's explain shows them), then path, then
/// operand.
fn order(a: &MatchExpr, b: &MatchExpr) -> Ordering {
    work::tick_infallible(1);
    rank(a)
        .cmp(&rank(b))
        .then_with(|| a.path().map(Path::as_str).cmp(&b.path().map(Path::as_str)))
        .then_with(|| operands(a, b))
}

fn rank(expr: &MatchExpr) -> u8 {
    match expr {
        MatchExpr::And(_) => 0,
        MatchExpr::Or(_) => 1,
        MatchExpr::Leaf(leaf) => match &leaf.pred {
            Predicate::ElemMatchObject(_) => 2,
            Predicate::ElemMatchValue(_) => 3,
            Predicate::Size(_) => 4,
            Predicate::Compare(CompareOp::Eq, _) => 5,
            Predicate::Compare(CompareOp::Lte, _) => 6,
            Predicate::Compare(CompareOp::Lt, _) => 7,
            Predicate::Compare(CompareOp::Gt, _) => 8,
            Predicate::Compare(CompareOp::Gte, _) => 9,
            Predicate::Regex(_) => 10,
            Predicate::Mod(_) => 11,
            Predicate::Exists => 12,
            Predicate::In(_) => 13,
            Predicate::Bits(_) => 14,
            Predicate::Type(..) => 17,
        },
        MatchExpr::Not(_) => 15,
        MatchExpr::Nor(_) => 16,
        MatchExpr::SampleRate(_) => 18,
        MatchExpr::Expr(_) => 19,
        MatchExpr::Schema(_) => 20,
        MatchExpr::AlwaysFalse => 21,
        MatchExpr::AlwaysTrue => 22,
    }
}

fn operands(a: &MatchExpr, b: &MatchExpr) -> Ordering {
    let children = |e: &MatchExpr| match e {
        MatchExpr::And(c) | MatchExpr::Or(c) | MatchExpr::Nor(c) => c.len(),
        _ => 0,
    };
    match (a, b) {
        (
            MatchExpr::Leaf(Leaf { pred: Predicate::Compare(_, a), .. }),
            MatchExpr::Leaf(Leaf { pred: Predicate::Compare(_, b), .. }),
        ) => compare(a, b),
        (MatchExpr::Not(a), MatchExpr::Not(b)) => order(a, b),
        (
            MatchExpr::And(left) | MatchExpr::Or(left) | MatchExpr::Nor(left),
            MatchExpr::And(right) | MatchExpr::Or(right) | MatchExpr::Nor(right),
        ) => children(a).cmp(&children(b)).then_with(|| {
            let orders = left.iter().zip(right).map(|(l, r)| order(l, r));
            orders.fold(Ordering::Equal, Ordering::then)
        }),
        _ => Ordering::Equal,
    }
}
