//! A record as readers get it.

use kauri_base::CommitSeq;
use kauri_bson::Doc;

/// A version of a record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'g> {
    /// The document's bytes.
    pub doc: Doc<'g>,
    /// The commit that wrote it.
    pub version: CommitSeq,
}
