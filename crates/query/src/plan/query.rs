//! A query for the planner, from any source (find, count, update, `$match` at the front of a pipeline).

use crate::exec::Fields;
use crate::exec::sort::SortPattern;
use kauri_bson::{Doc, DocBuf};
use kauri_matcher::Matcher;
use kauri_mutate::Projection;
use kauri_storage::Direction;
use std::sync::Arc;

/// The user's hint for the planner.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// The index of this name.
    Name(String),
    /// The index of this key pattern.
    Pattern(DocBuf),
    /// No index: the records in this direction.
    Natural(Direction),
}

/// See the module's head.
#[derive(Clone, Default)]
pub struct Query {
    /// Which documents; `None` for all.
    pub filter: Option<Arc<Matcher>>,
    /// In which order.
    pub sort: Option<SortPattern>,
    /// The projection, also in the user's form.
    pub projection: Option<(Arc<Projection>, DocBuf)>,
    /// Number of rows to skip first.
    pub skip: u64,
    /// Maximum number; 0 for all.
    pub limit: u64,
    /// The hint.
    pub hint: Option<Hint>,
    /// Lower bound (inclusive) in the hinted index.
    pub min: Option<DocBuf>,
    /// Upper bound (exclusive) in the hinted index.
    pub max: Option<DocBuf>,
    /// Whether rows have to carry their sort key (`$meta: "sortKey"`).
    pub keep_sort_key: bool,
    /// The fields of the results that are read.
    pub fields: Fields,
    /// `returnKey`: the index key instead of the document.
    pub return_key: bool,
    /// `showRecordId`.
    pub show_record_id: bool,
    /// Only the number of rows is needed, as one row.
    pub count: bool,
    /// The memory that a sort may take, as a plan shows it that has not run.
    pub sort_bytes_max: Option<usize>,
    /// The indexes that may be used, where an index filter says so.
    pub allowed: Option<Arc<Vec<Hint>>>,
}

impl Query {
    /// Whether a row has to carry the index key that it came by.
    pub fn needs_index_key(&self) -> bool {
        let by_meta = |spec: Doc<'_>| {
            spec.iter().filter_map(|e| e.as_doc()).any(|inner| {
                inner
                    .first()
                    .is_some_and(|e| e.key() == "$meta" && e.value().as_str() == Some("indexKey"))
            })
        };
        self.return_key || self.projection.as_ref().is_some_and(|(_, spec)| by_meta(spec.as_doc()))
    }
}
