//! Projections: find's, `$project`'s and `$addFields`'.

use crate::cx::{ParseCx, ProjectCx};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::Doc;
use kauri_matcher::MatchExpr;
use std::collections::BTreeSet;

/// A parsed projection.
#[derive(Debug)]
pub struct Projection {
    _private: (),
}

/// What a projection reads of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequiredFields {
    /// All of it.
    All,
    /// Only these dotted paths.
    Only(BTreeSet<String>),
}

impl Projection {
    /// Parses find's projection.
    pub fn parse(
        _spec: Doc<'_>,
        _filter: Option<&MatchExpr>,
        _cx: &ParseCx<'_>,
    ) -> Result<Projection> {
        Err(Error::new(ErrorCode::NotImplemented, "projections are not there yet"))
    }

    /// Writes the projected document at the end of `out`.
    pub fn apply(&self, _doc: Doc<'_>, _cx: &ProjectCx<'_>, _out: &mut Vec<u8>) -> Result<()> {
        Err(Error::new(ErrorCode::NotImplemented, "projections are not there yet"))
    }

    /// What must be read of a document to project it; a covered plan serves a bounded set.
    pub fn required_fields(&self) -> RequiredFields {
        RequiredFields::All
    }

    /// Whether it has a positional `$`, so that it needs [`ProjectCx::filter`].
    pub fn needs_filter(&self) -> bool {
        false
    }
}
