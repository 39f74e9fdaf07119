//! Updates: parsed once, applied to raw documents.

use crate::cx::{ParseCx, UpdateCx};
use crate::transform::DocTransform;
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_matcher::MatchExpr;

/// A parsed update.
#[derive(Debug)]
pub struct Update {
    kind: UpdateKind,
}

/// What sort of update it is.
#[derive(Debug)]
pub enum UpdateKind {
    /// A whole new document; `_id` stays.
    Replacement(DocBuf),
    /// `$set` and the like.
    Operators,
    /// An aggregation pipeline.
    Pipeline(Vec<DocTransform>),
}

/// What applying an update did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Whether the document differs. If not, nothing was written.
    pub modified: bool,
}

impl Update {
    /// Parses an update: a document, or an array that is a pipeline.
    pub fn parse(
        _spec: &Value<'_>,
        _array_filters: &[Doc<'_>],
        _cx: &ParseCx<'_>,
    ) -> Result<Update> {
        Err(Error::new(ErrorCode::NotImplemented, "updates are not there yet"))
    }

    /// What sort of update it is.
    pub fn kind(&self) -> &UpdateKind {
        &self.kind
    }

    /// Whether applying needs [`UpdateCx::matched_position`].
    pub fn needs_matched_position(&self) -> bool {
        false
    }

    /// Whether the update that was applied may have changed index keys on this dotted path.
    pub fn may_touch(&self, _applied: Applied, _path: &str) -> bool {
        true
    }

    /// Writes the updated document at the end of `out`; nothing if it stays as it is.
    pub fn apply(&self, _doc: Doc<'_>, _cx: &UpdateCx<'_>, _out: &mut Vec<u8>) -> Result<Applied> {
        Err(Error::new(ErrorCode::NotImplemented, "updates are not there yet"))
    }

    /// Writes the document that an upsert inserts. `object_id` becomes its `_id` if neither filter
    /// nor update gives it one.
    pub fn new_document(
        &self,
        _filter: &MatchExpr,
        _object_id: [u8; 12],
        _cx: &UpdateCx<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<()> {
        Err(Error::new(ErrorCode::NotImplemented, "updates are not there yet"))
    }
}
