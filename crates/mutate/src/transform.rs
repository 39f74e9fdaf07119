//! The aggregation stages that map one document to one document.

use crate::cx::{ParseCx, ProjectCx};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Doc, Value};

/// `$project`, `$addFields`/`$set`, `$unset`, `$replaceRoot`/`$replaceWith`.
#[derive(Debug)]
pub struct DocTransform {
    _private: (),
}

impl DocTransform {
    /// Whether a stage of this name is one.
    pub fn is_stage(name: &str) -> bool {
        matches!(
            name,
            "$project" | "$addFields" | "$set" | "$unset" | "$replaceRoot" | "$replaceWith"
        )
    }

    /// Parses the stage `{name: spec}`.
    pub fn parse(_name: &str, _spec: &Value<'_>, _cx: &ParseCx<'_>) -> Result<DocTransform> {
        Err(Error::new(ErrorCode::NotImplemented, "stages are not there yet"))
    }

    /// Writes the new document at the end of `out`.
    pub fn apply(&self, _doc: Doc<'_>, _cx: &ProjectCx<'_>, _out: &mut Vec<u8>) -> Result<()> {
        Err(Error::new(ErrorCode::NotImplemented, "stages are not there yet"))
    }
}
