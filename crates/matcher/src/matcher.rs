//! A filter with its fastest evaluation.
//!
//! Most filters are a conjunction of predicates on paths. These are evaluated in one pass over the document's
//! top-level fields: each field that is the first component of a predicate's path decides that predicate, and the
//! first false one ends the pass. Other predicates come afterwards, in the order of the filter.
//!
//! Many equalities on one path (`$all` of a long list) are evaluated together, in one walk of the path that looks
//! each value up in their set.

use crate::cx::{MatchCx, MatchDetails, ParseCx};
use crate::eval::{self, Expand};
use crate::path::Path;
use crate::tree::{CompareOp, Leaf, MatchExpr, Predicate};
use kauri_base::{Result, work};
use kauri_bson::compare::compare_elem_with;
use kauri_bson::{Doc, Elem, Type, Value, compare, equal};
use std::collections::BTreeMap;

/// A filter ready to match many documents.
#[derive(Clone, Debug)]
pub struct Matcher {
    expr: MatchExpr,
    plan: Plan,
}

#[derive(Clone, Debug)]
enum Plan {
    Pass(Pass),
    Groups(Groups),
    /// Just as the tree says.
    Tree,
}

/// A conjunction's children, by their positions among them.
#[derive(Clone, Debug)]
struct Pass {
    leaves: Vec<PassLeaf>,
    rest: Vec<usize>,
}

#[derive(Clone, Debug)]
struct PassLeaf {
    /// The path's first component.
    name: Box<[u8]>,
    /// The child.
    child: usize,
    /// Whether there is nothing more to the path.
    whole: bool,
}

/// Most predicates of one pass: a bit each.
const PASS_LEAVES_MAX: usize = 64;
/// Beyond this number, comparing each field's name with each predicate's costs more than it saves.
const PASS_LEAVES_GOOD: usize = 12;

impl Matcher {
    /// Parses a filter.
    pub fn parse(filter: Doc<'_>, cx: &ParseCx<'_>) -> Result<Matcher> {
        Ok(Matcher::new(MatchExpr::parse(filter, cx)?))
    }

    /// Prepares a tree.
    pub fn new(expr: MatchExpr) -> Matcher {
        let plan = match Pass::of(&expr) {
            Some(pass) => Plan::Pass(pass),
            None => Groups::of(&expr).map_or(Plan::Tree, Plan::Groups),
        };
        Matcher { expr, plan }
    }

    /// The tree.
    pub fn expr(&self) -> &MatchExpr {
        &self.expr
    }

    /// Gives the tree back.
    pub fn into_expr(self) -> MatchExpr {
        self.expr
    }

    /// Whether the document matches.
    #[inline]
    pub fn matches(&self, doc: Doc<'_>, cx: &MatchCx<'_>) -> Result<bool> {
        match &self.plan {
            Plan::Pass(pass) => pass.matches(&self.expr, doc, cx),
            Plan::Groups(groups) => groups.matches(&self.expr, doc, cx),
            Plan::Tree => self.expr.matches(doc, cx),
        }
    }

    /// Whether the document matches, and at which array position, for the positional `$`.
    pub fn matches_with_details(
        &self,
        doc: Doc<'_>,
        cx: &MatchCx<'_>,
        details: &mut MatchDetails,
    ) -> Result<bool> {
        self.expr.matches_with_details(doc, cx, details)
    }
}

/// The children of a conjunction; a leaf is a conjunction of one.
fn conjuncts(expr: &MatchExpr) -> &[MatchExpr] {
    match expr {
        MatchExpr::And(children) => children,
        other => std::slice::from_ref(other),
    }
}

impl Pass {
    fn of(expr: &MatchExpr) -> Option<Pass> {
        let mut pass = Pass { leaves: Vec::new(), rest: Vec::new() };
        for (child, expr) in conjuncts(expr).iter().enumerate() {
            match expr {
                MatchExpr::Leaf(leaf) => {
                    let name = leaf.path.part(0)?.as_bytes().into();
                    pass.leaves.push(PassLeaf { name, child, whole: leaf.path.len() == 1 });
                }
                _ => pass.rest.push(child),
            }
        }
        let good = 1..=PASS_LEAVES_GOOD.min(PASS_LEAVES_MAX);
        good.contains(&pass.leaves.len()).then_some(pass)
    }

    fn matches(&self, expr: &MatchExpr, doc: Doc<'_>, cx: &MatchCx<'_>) -> Result<bool> {
        let children = conjuncts(expr);
        let all = u64::MAX >> (PASS_LEAVES_MAX - self.leaves.len());
        let mut settled = 0u64;
        work::tick_bytes(doc.as_bytes().len())?;
        'fields: for elem in doc {
            for (i, candidate) in self.leaves.iter().enumerate() {
                if elem.key_bytes() != &*candidate.name || settled & (1 << i) != 0 {
                    continue;
                }
                if !candidate.matches(children, elem, cx)? {
                    return Ok(false);
                }
                settled |= 1 << i;
                if settled == all {
                    break 'fields;
                }
            }
        }
        for (i, candidate) in self.leaves.iter().enumerate() {
            let missing = settled & (1 << i) == 0;
            if missing && !candidate.leaf(children).is_some_and(|l| l.pred.matches_missing()) {
                return Ok(false);
            }
        }
        for expr in self.rest.iter().filter_map(|child| children.get(*child)) {
            work::tick(1)?;
            if !expr.matches(doc, cx)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl PassLeaf {
    #[inline]
    fn leaf<'e>(&self, children: &'e [MatchExpr]) -> Option<&'e Leaf> {
        match children.get(self.child) {
            Some(MatchExpr::Leaf(leaf)) => Some(leaf),
            _ => None,
        }
    }

    /// Whether the document matches, of which this is the field that the path begins with.
    #[inline]
    fn matches(&self, children: &[MatchExpr], elem: Elem<'_>, cx: &MatchCx<'_>) -> Result<bool> {
        let Some(leaf) = self.leaf(children) else { return Ok(false) };
        let pred = &leaf.pred;
        if self.whole && elem.ty() != Type::Array {
            return eval::matches_elem(pred, elem, cx, None);
        }
        eval::from_elem(elem, &leaf.path, 1, pred.expand(), |elem, _| match elem {
            Some(elem) => eval::matches_elem(pred, elem, cx, None),
            None => Ok(pred.matches_missing()),
        })
    }
}

/// A conjunction's children with many equalities on one path among them.
#[derive(Clone, Debug)]
struct Groups {
    groups: Vec<EqualityGroup>,
    rest: Vec<usize>,
}

/// Equalities on one path that all must hold.
#[derive(Clone, Debug)]
struct EqualityGroup {
    path: Path,
    /// In comparison order, each once.
    values: Vec<Value<'static>>,
}

/// Fewer equalities on one path than this are evaluated one by one.
const GROUP_MIN: usize = 16;

impl Groups {
    fn of(expr: &MatchExpr) -> Option<Groups> {
        let children = conjuncts(expr);
        let mut by_path: BTreeMap<&Path, Vec<(usize, &Value<'static>)>> = BTreeMap::new();
        for (child, expr) in children.iter().enumerate() {
            if let MatchExpr::Leaf(Leaf { path, pred: Predicate::Compare(CompareOp::Eq, value) }) =
                expr
            {
                by_path.entry(path).or_default().push((child, value));
            }
        }
        by_path.retain(|_, equalities| equalities.len() >= GROUP_MIN);
        if by_path.is_empty() {
            return None;
        }
        let mut grouped = vec![false; children.len()];
        let mut groups = Vec::with_capacity(by_path.len());
        for (path, equalities) in by_path {
            let mut values = Vec::with_capacity(equalities.len());
            for (child, value) in equalities {
                values.push(value.clone());
                if let Some(grouped) = grouped.get_mut(child) {
                    *grouped = true;
                }
            }
            values.sort_by(compare);
            values.dedup_by(|a, b| equal(a, b));
            groups.push(EqualityGroup { path: path.clone(), values });
        }
        let rest = grouped.iter().enumerate().filter(|(_, grouped)| !**grouped);
        Some(Groups { groups, rest: rest.map(|(child, _)| child).collect() })
    }

    fn matches(&self, expr: &MatchExpr, doc: Doc<'_>, cx: &MatchCx<'_>) -> Result<bool> {
        let children = conjuncts(expr);
        for child in self.rest.iter().filter_map(|child| children.get(*child)) {
            work::tick(1)?;
            if !child.matches(doc, cx)? {
                return Ok(false);
            }
        }
        for group in &self.groups {
            if !group.matches(doc)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl EqualityGroup {
    fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        work::tick_bytes(self.values.len())?;
        let mut found = vec![false; self.values.len()];
        let mut left = found.len();
        eval::from_doc(doc, &self.path, 0, Expand::Elements, |elem, _| {
            let place = self.values.binary_search_by(|value| match elem {
                Some(elem) => compare_elem_with(elem, value).reverse(),
                None => compare(value, &Value::Null),
            });
            if let Some(seen) = place.ok().and_then(|place| found.get_mut(place))
                && !*seen
            {
                *seen = true;
                left -= 1;
            }
            Ok(left == 0)
        })
    }
}
