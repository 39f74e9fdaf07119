//! External inputs of parsing and matching.

use kauri_expr::EvalCx;

/// The position of a filter, which decides what it may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// find, count, distinct, update, delete, findAndModify.
    Find,
    /// update and findAndModify that may insert.
    Upsert,
    /// A `$match` stage, and the filters of commands that list things.
    Aggregation,
    /// A collection's validator.
    Validator,
    /// `partialFilterExpression`.
    PartialIndex,
    /// A filter for the elements of an array: `arrayFilters`, a `$pull` condition, or a projection's `$elemMatch`.
    Elements,
}

/// The surroundings of a filter being parsed.
#[derive(Clone, Copy, Debug)]
pub struct ParseCx<'a> {
    place: Place,
    expressions: Option<&'a kauri_expr::ParseCx>,
}

impl<'a> ParseCx<'a> {
    /// The surroundings of a filter at this place.
    pub fn new(place: Place) -> Self {
        ParseCx { place, expressions: None }
    }

    /// The same with what `$expr` is parsed with (variables from a command's `let`).
    pub fn with_expressions(self, expressions: &'a kauri_expr::ParseCx) -> Self {
        ParseCx { expressions: Some(expressions), ..self }
    }

    /// The position of the filter.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The parsing context of `$expr`, if given.
    pub fn expressions(&self) -> Option<&'a kauri_expr::ParseCx> {
        self.expressions
    }

    /// Whether the filter chooses the documents of a command by itself.
    pub(crate) fn is_of_command(&self) -> bool {
        matches!(self.place, Place::Find | Place::Upsert)
    }

    /// Whether `$expr`, `$jsonSchema` and `$sampleRate` may stand here.
    pub(crate) fn allows_expressions(&self) -> bool {
        !matches!(self.place, Place::PartialIndex | Place::Elements)
    }
}

/// The surroundings of a match.
#[derive(Clone, Copy, Default)]
pub struct MatchCx<'a> {
    /// The evaluation context of `$expr`, and the random source of `$sampleRate`.
    pub eval: EvalCx<'a>,
}

impl<'a> MatchCx<'a> {
    /// Surroundings that fit every filter without `$expr` and `$sampleRate`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Surroundings with what `$expr` is evaluated with.
    pub fn with_eval(eval: EvalCx<'a>) -> Self {
        MatchCx { eval }
    }

    /// A random number of at least 0 and below 1; 0 without a source.
    pub(crate) fn random_unit(&self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        self.eval.random.map_or(0.0, |r| (r.next_u64() >> 11) as f64 * SCALE)
    }
}

/// Details of a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchDetails {
    elem_match_key: Option<u32>,
}

impl MatchDetails {
    /// No position yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The array position that made the document match: the value of the positional `$`.
    pub fn elem_match_key(&self) -> Option<u32> {
        self.elem_match_key
    }

    /// Notes the position.
    pub fn set_elem_match_key(&mut self, position: u32) {
        self.elem_match_key = Some(position);
    }

    /// Forgets it.
    pub fn reset(&mut self) {
        self.elem_match_key = None;
    }
}
