//! Evaluates trees over raw documents.
//!
//! Evaluation builds and allocates nothing, except what `$expr`, `$jsonSchema` and regexes need.

mod leaf;
mod traverse;

use crate::cx::{MatchCx, MatchDetails};
use crate::path::Path;
use crate::tree::{CompareOp, Leaf, MatchExpr, Predicate};
use kauri_base::{Result, sort, work};
use kauri_bson::{Doc, Elem};

pub(crate) use leaf::{matches_elem, matches_missing};
pub(crate) use traverse::{Expand, from_doc, from_elem};

/// The target of an evaluation.
#[derive(Clone, Copy)]
enum Target<'a> {
    /// A document; paths begin at its fields.
    Doc(Doc<'a>),
    /// The value that all paths' first component names (an array filter's element).
    Named(Elem<'a>),
    /// A value; all paths are the path to itself.
    Value(Elem<'a>),
}

impl MatchExpr {
    /// Whether the document matches.
    pub fn matches(&self, doc: Doc<'_>, cx: &MatchCx<'_>) -> Result<bool> {
        self.eval(Target::Doc(doc), cx, None)
    }

    /// Whether the document matches, and at which array position, for the positional `$`.
    pub fn matches_with_details(
        &self,
        doc: Doc<'_>,
        cx: &MatchCx<'_>,
        details: &mut MatchDetails,
    ) -> Result<bool> {
        details.reset();
        self.eval(Target::Doc(doc), cx, Some(details))
    }

    /// Whether the value matches, where the first component of all paths is a name for the value:
    /// array filters (`{"x.a": 1}` for the elements that `$[x]` stands for).
    pub fn matches_named(&self, elem: Elem<'_>, cx: &MatchCx<'_>) -> Result<bool> {
        self.eval(Target::Named(elem), cx, None)
    }

    /// Whether the value itself matches predicates that stand on [`crate::Path::to_self`].
    pub fn matches_value(&self, elem: Elem<'_>, cx: &MatchCx<'_>) -> Result<bool> {
        self.eval(Target::Value(elem), cx, None)
    }

    fn eval(
        &self,
        target: Target<'_>,
        cx: &MatchCx<'_>,
        mut details: Option<&mut MatchDetails>,
    ) -> Result<bool> {
        Ok(match self {
            MatchExpr::Leaf(leaf) => leaf.eval(target, cx, details)?,
            MatchExpr::And(children) if details.is_some() && children.len() > 1 => {
                return all_with_details(children, target, cx, details);
            }
            MatchExpr::And(children) => {
                work::check_stack()?;
                for child in children {
                    work::tick(1)?;
                    if !child.eval(target, cx, details.as_deref_mut())? {
                        if let Some(details) = details {
                            details.reset();
                        }
                        return Ok(false);
                    }
                }
                true
            }
            MatchExpr::Or(children) if details.is_some() && is_list_of_equalities(children) => {
                return first_equal(children, target, cx, details);
            }
            MatchExpr::Or(children) => any(children, target, cx)?,
            MatchExpr::Nor(children) => !any(children, target, cx)?,
            MatchExpr::Not(child) => {
                work::check_stack()?;
                !child.eval(target, cx, None)?
            }
            MatchExpr::AlwaysTrue => true,
            MatchExpr::AlwaysFalse => false,
            MatchExpr::SampleRate(rate) => cx.random_unit() < *rate,
            // The parser lets these stand at a document's level only.
            MatchExpr::Expr(expr) => match target {
                Target::Doc(doc) => expr.matches(doc, cx)?,
                _ => false,
            },
            MatchExpr::Schema(schema) => match target {
                Target::Doc(doc) => schema.matches(doc)?,
                _ => false,
            },
        })
    }
}

/// All children, in the order in which MongoDB has them: the last one that finds a position sets it.
fn all_with_details(
    children: &[MatchExpr],
    target: Target<'_>,
    cx: &MatchCx<'_>,
    mut details: Option<&mut MatchDetails>,
) -> Result<bool> {
    work::check_stack()?;
    let mut ordered: Vec<&MatchExpr> = children.iter().collect();
    sort::sort_by(&mut ordered, |a, b| order_of(a).cmp(&order_of(b)))?;
    for child in ordered {
        work::tick(1)?;
        if !child.eval(target, cx, details.as_deref_mut())? {
            if let Some(details) = details {
                details.reset();
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// By kind of predicate, then path.
fn order_of(expr: &MatchExpr) -> (u8, &str) {
    let MatchExpr::Leaf(leaf) = expr else {
        return (if matches!(expr, MatchExpr::Not(_) | MatchExpr::Nor(_)) { 20 } else { 0 }, "");
    };
    let kind = match &leaf.pred {
        Predicate::ElemMatchObject(_) => 1,
        Predicate::ElemMatchValue(_) => 2,
        Predicate::Size(_) => 3,
        Predicate::Compare(CompareOp::Eq, _) => 4,
        Predicate::Compare(CompareOp::Lte, _) => 5,
        Predicate::Compare(CompareOp::Lt, _) => 6,
        Predicate::Compare(CompareOp::Gt, _) => 7,
        Predicate::Compare(CompareOp::Gte, _) => 8,
        Predicate::Regex(_) => 9,
        Predicate::Mod(_) => 10,
        Predicate::Exists => 11,
        Predicate::In(_) => 12,
        Predicate::Bits(_) => 13,
        Predicate::Type(..) => 21,
    };
    (kind, leaf.path.as_str())
}

/// Equalities on one path: the same as a list of values.
fn is_list_of_equalities(children: &[MatchExpr]) -> bool {
    fn path(child: &MatchExpr) -> Option<&Path> {
        match child {
            MatchExpr::Leaf(Leaf { path, pred: Predicate::Compare(CompareOp::Eq, _) }) => {
                Some(path)
            }
            _ => None,
        }
    }
    let first = children.first().and_then(path);
    first.is_some() && children.iter().all(|child| path(child) == first)
}

/// Whether one of the equalities holds, and the first position that one of them finds.
fn first_equal(
    children: &[MatchExpr],
    target: Target<'_>,
    cx: &MatchCx<'_>,
    details: Option<&mut MatchDetails>,
) -> Result<bool> {
    let (mut matched, mut first) = (false, None);
    for child in children {
        work::tick(1)?;
        let mut own = MatchDetails::new();
        if child.eval(target, cx, Some(&mut own))? {
            matched = true;
            let found = own.elem_match_key();
            first = if first.is_none() { found } else { first.min(found.or(first)) };
        }
    }
    if let (Some(details), Some(position)) = (details, first) {
        details.set_elem_match_key(position);
    }
    Ok(matched)
}

fn any(children: &[MatchExpr], target: Target<'_>, cx: &MatchCx<'_>) -> Result<bool> {
    work::check_stack()?;
    for child in children {
        work::tick(1)?;
        if child.eval(target, cx, None)? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Leaf {
    fn eval(
        &self,
        target: Target<'_>,
        cx: &MatchCx<'_>,
        mut details: Option<&mut MatchDetails>,
    ) -> Result<bool> {
        let visit = |elem: Option<Elem<'_>>, position: Option<u32>| {
            let matched = leaf::matches(&self.pred, elem, cx, details.as_deref_mut())?;
            if matched && let (Some(position), Some(details)) = (position, details.as_deref_mut()) {
                details.set_elem_match_key(position);
            }
            Ok(matched)
        };
        match target {
            Target::Doc(doc) => traverse::from_doc(doc, &self.path, 0, self.pred.expand(), visit),
            Target::Named(elem) => {
                traverse::from_elem(elem, &self.path, 1, self.pred.expand(), visit)
            }
            Target::Value(elem) => leaf::matches(&self.pred, Some(elem), cx, details),
        }
    }
}

impl Predicate {
    /// Whether the elements of an array at the end of the path are examined besides the array.
    pub(crate) fn expand(&self) -> Expand {
        match self {
            Predicate::Size(_) | Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => {
                Expand::ArrayOnly
            }
            _ => Expand::Elements,
        }
    }
}
