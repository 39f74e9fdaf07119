//! Projections: find's, `$project`'s, and those of `$addFields` and `$unset`.
//!
//! A specification becomes a tree of its paths (`tree`, built by `parse` or `add_fields`), which is applied to raw
//! documents (`apply`).

mod add_fields;
mod apply;
mod parse;
mod tree;

use crate::cx::{ParseCx, ProjectCx};
use apply::Applier;
use kauri_base::Result;
use kauri_bson::{Doc, Value};
use kauri_matcher::MatchExpr;
use tree::{Mode, Node};

/// A parsed projection.
#[derive(Debug)]
pub struct Projection {
    root: Node,
    mode: Mode,
}

impl Projection {
    /// Parses find's projection. `filter` is the query that documents will have matched, which the
    /// positional `$` needs.
    pub fn parse(
        spec: Doc<'_>,
        filter: Option<&MatchExpr>,
        cx: &ParseCx<'_>,
    ) -> Result<Projection> {
        parse::parse_find(spec, filter, cx)
    }

    /// Parses the argument of `$project`.
    pub fn parse_project(spec: Doc<'_>, cx: &ParseCx<'_>) -> Result<Projection> {
        parse::parse_project(spec, cx)
    }

    /// Parses the argument of `$addFields` or `$set`.
    pub fn parse_add_fields(spec: Doc<'_>, cx: &ParseCx<'_>) -> Result<Projection> {
        add_fields::parse_add_fields(spec, cx)
    }

    /// Parses the argument of `$unset`.
    pub fn parse_unset(spec: &Value<'_>) -> Result<Projection> {
        parse::parse_unset(spec)
    }

    fn new(root: Node, mode: Mode) -> Projection {
        Projection { root, mode }
    }

    /// Writes the projected document at the end of `out`; leaves `out` as it was on an error.
    pub fn apply(&self, doc: Doc<'_>, cx: &ProjectCx<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let applied = Applier::new(self.mode, cx, doc, start).run(&self.root, out);
        if applied.is_err() {
            out.truncate(start);
        }
        applied
    }

    /// Whether fields that the specification does not name are left out.
    pub fn is_inclusion(&self) -> bool {
        self.mode == Mode::Inclusion
    }
}
