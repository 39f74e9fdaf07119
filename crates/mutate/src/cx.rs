//! External inputs of parsing and applying.

use kauri_base::Timestamp;
use kauri_expr::EvalCx;
use kauri_matcher::MatchExpr;

/// The surroundings of an update or projection being parsed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParseCx<'a> {
    expressions: Option<&'a kauri_expr::ParseCx>,
}

impl<'a> ParseCx<'a> {
    /// Surroundings without variables of the user's.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with what expressions are parsed with (variables from a command's `let`).
    pub fn with_expressions(self, expressions: &'a kauri_expr::ParseCx) -> Self {
        ParseCx { expressions: Some(expressions) }
    }

    /// What expressions are parsed with, if it was given.
    pub fn expressions(&self) -> Option<&'a kauri_expr::ParseCx> {
        self.expressions
    }
}

/// The surroundings of an update being applied to one document.
#[derive(Clone, Copy, Default)]
pub struct UpdateCx<'a> {
    /// The array position that the query matched, which the positional `$` stands for.
    pub matched_position: Option<u32>,
    /// Milliseconds since 1970, for `$currentDate`.
    pub now_ms: i64,
    /// Gives a timestamp later than all before, for `$currentDate` of type timestamp and for empty timestamps.
    pub tick: Option<&'a dyn Fn() -> Timestamp>,
    /// Whether the document is being made by an upsert.
    pub is_insert: bool,
    /// Whether empty timestamps of a replacement stay empty.
    pub keeps_empty_timestamps: bool,
    /// What a pipeline's expressions are evaluated with.
    pub eval: EvalCx<'a>,
}

impl<'a> UpdateCx<'a> {
    /// The surroundings of an update of a stored document.
    pub fn new(now_ms: i64, tick: &'a dyn Fn() -> Timestamp) -> Self {
        let eval = EvalCx { now_ms, ..EvalCx::default() };
        UpdateCx { now_ms, tick: Some(tick), eval, ..UpdateCx::default() }
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        self.tick.map_or_else(Timestamp::default, |tick| tick())
    }
}

/// The surroundings of a projection being applied to one document.
#[derive(Clone, Copy, Default)]
pub struct ProjectCx<'a> {
    /// The filter that the document matched, for the positional `$`.
    pub filter: Option<&'a MatchExpr>,
    /// What expressions are evaluated with; `$meta` asks its source of metadata.
    pub eval: EvalCx<'a>,
}

impl<'a> ProjectCx<'a> {
    /// Surroundings without a filter.
    pub fn new(eval: EvalCx<'a>) -> Self {
        ProjectCx { filter: None, eval }
    }

    /// The same with the filter that the document matched.
    pub fn with_filter(self, filter: &'a MatchExpr) -> Self {
        ProjectCx { filter: Some(filter), ..self }
    }
}
