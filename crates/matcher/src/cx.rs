//! What parsing and matching are given from outside.

use std::borrow::Cow;

/// Where a filter stands, which decides what it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// find, count, distinct, update, delete, findAndModify.
    Find,
    /// A `$match` stage (and `$lookup`'s and others' pipelines).
    Aggregation,
    /// A collection's validator.
    Validator,
    /// `partialFilterExpression`.
    PartialIndex,
    /// One of `arrayFilters`, or a `$pull` condition.
    Update,
}

/// The surroundings of a filter being parsed.
#[derive(Clone, Debug)]
pub struct ParseCx<'a> {
    place: Place,
    marker: std::marker::PhantomData<&'a ()>,
}

impl ParseCx<'_> {
    /// The surroundings of a filter at this place.
    pub fn new(place: Place) -> Self {
        ParseCx { place, marker: std::marker::PhantomData }
    }

    /// Where the filter stands.
    pub fn place(&self) -> Place {
        self.place
    }
}

/// The surroundings of a match.
#[derive(Clone, Debug, Default)]
pub struct MatchCx<'a> {
    marker: std::marker::PhantomData<&'a ()>,
}

impl MatchCx<'_> {
    /// Surroundings that fit every filter without `$expr` and `$sampleRate`.
    pub fn new() -> Self {
        Self::default()
    }
}

/// What a match tells besides yes or no.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchDetails {
    /// The array position that the positional `$` operator takes.
    elem_match_key: Option<u32>,
}

impl MatchDetails {
    /// No position yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The array position that made the document match: what the positional `$` stands for.
    pub fn elem_match_key(&self) -> Option<u32> {
        self.elem_match_key
    }

    /// The position as a field name.
    pub fn elem_match_name(&self) -> Option<Cow<'static, str>> {
        self.elem_match_key.map(|k| Cow::Owned(k.to_string()))
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
