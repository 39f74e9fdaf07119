//! Queries on a tree without evaluating it, for other layers.
//!
//! Functions here recurse without a check of the stack: the parser limits a tree's depth
//! ([`kauri_base::limits::MATCH_DEPTH_MAX`]), and their frames are small.

use crate::path::Path;
use crate::tree::{CompareOp, Leaf, MatchExpr, Predicate};
use kauri_base::{Result, bail, work};
use kauri_bson::Value;
use std::collections::BTreeSet;

/// Which part of a document decides whether it matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// The paths that are read.
    pub paths: BTreeSet<String>,
    /// Whether fields beyond those may be (`$expr`, `$jsonSchema`).
    pub whole_document: bool,
}

impl MatchExpr {
    /// The path of a leaf, or of the leaf that is negated.
    pub fn path(&self) -> Option<&Path> {
        match self {
            MatchExpr::Leaf(leaf) => Some(&leaf.path),
            MatchExpr::Not(child) => child.path(),
            _ => None,
        }
    }

    /// The direct children of this node, without the contents of `$elemMatch`.
    pub fn children(&self) -> &[MatchExpr] {
        match self {
            MatchExpr::And(children) | MatchExpr::Or(children) | MatchExpr::Nor(children) => {
                children
            }
            MatchExpr::Not(child) => std::slice::from_ref(child),
            _ => &[],
        }
    }

    /// What decides whether a document matches.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        self.add_dependencies(&mut found);
        found
    }

    fn add_dependencies(&self, found: &mut Dependencies) {
        work::tick_infallible(1);
        match self {
            MatchExpr::Leaf(leaf) => {
                found.paths.insert(leaf.path.as_str().to_owned());
            }
            MatchExpr::Expr(_) | MatchExpr::Schema(_) => found.whole_document = true,
            _ => self.children().iter().for_each(|c| c.add_dependencies(found)),
        }
    }

    /// The values that paths must equal for a document to match, with which an upsert starts its new document. In
    /// the filter's order; a path of two equalities occurs twice.
    pub fn equalities(&self) -> Vec<(&Path, &Value<'static>)> {
        let mut found = Vec::new();
        self.add_equalities(&mut found);
        found
    }

    fn add_equalities<'e>(&'e self, found: &mut Vec<(&'e Path, &'e Value<'static>)>) {
        match self {
            MatchExpr::Leaf(Leaf { path, pred: Predicate::Compare(CompareOp::Eq, value) }) => {
                found.push((path, value));
            }
            MatchExpr::Leaf(Leaf { path, pred: Predicate::In(list) }) => {
                if let ([value], []) = (list.values(), list.regexes()) {
                    found.push((path, value));
                }
            }
            MatchExpr::And(children) => children.iter().for_each(|c| c.add_equalities(found)),
            MatchExpr::Or(children) if children.len() == 1 => {
                children.iter().for_each(|c| c.add_equalities(found));
            }
            _ => {}
        }
    }

    /// Checks that the tree has only what `partialFilterExpression` may hold.
    pub fn check_partial_filter(&self) -> Result<()> {
        match self {
            MatchExpr::And(children) | MatchExpr::Or(children) => {
                children.iter().try_for_each(MatchExpr::check_partial_filter)
            }
            MatchExpr::Leaf(Leaf {
                pred:
                    Predicate::Compare(..) | Predicate::In(_) | Predicate::Exists | Predicate::Type(..),
                ..
            }) => Ok(()),
            other => bail!(
                CannotCreateIndex,
                "Expression not supported in partial index: {}",
                other.to_bson().as_doc()
            ),
        }
    }
}

impl Predicate {
    /// Whether a missing field satisfies it.
    pub fn matches_missing(&self) -> bool {
        crate::eval::matches_missing(self)
    }
}
