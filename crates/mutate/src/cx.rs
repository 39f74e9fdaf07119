//! What parsing and applying are given from outside.

use kauri_base::Timestamp;
use kauri_bson::Value;
use kauri_matcher::MatchExpr;

/// The surroundings of an update or projection being parsed.
#[derive(Clone, Debug, Default)]
pub struct ParseCx<'a> {
    marker: std::marker::PhantomData<&'a ()>,
}

impl ParseCx<'_> {
    /// Surroundings without variables of the user's.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The surroundings of an update being applied to one document.
#[derive(Clone, Debug)]
pub struct UpdateCx<'a> {
    /// The array position that the query matched, which the positional `$` stands for.
    pub matched_position: Option<u32>,
    /// Milliseconds since 1970, for `$currentDate`.
    pub now_ms: i64,
    /// The cluster time, for `$currentDate` of type timestamp and empty timestamps.
    pub cluster_time: Timestamp,
    /// Whether the document is being made by an upsert.
    pub is_insert: bool,
    marker: std::marker::PhantomData<&'a ()>,
}

impl UpdateCx<'_> {
    /// The surroundings of an update of a stored document.
    pub fn new(now_ms: i64, cluster_time: Timestamp) -> Self {
        UpdateCx {
            matched_position: None,
            now_ms,
            cluster_time,
            is_insert: false,
            marker: std::marker::PhantomData,
        }
    }
}

/// The surroundings of a projection being applied to one document.
#[derive(Clone, Debug, Default)]
pub struct ProjectCx<'a> {
    /// The filter that the document matched, for the positional `$`.
    pub filter: Option<&'a MatchExpr>,
    /// `{$meta: "sortKey"}`.
    pub sort_key: Option<Value<'a>>,
    /// `{$meta: "recordId"}`.
    pub record_id: Option<i64>,
    /// `{$meta: "indexKey"}`.
    pub index_key: Option<kauri_bson::Doc<'a>>,
}
