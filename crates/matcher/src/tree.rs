//! The tree of a parsed filter.
//!
//! It represents the meaning of a filter, not its spelling: `$ne` is a `Not` over an equality, `$all` an `And` of
//! equalities. Guarantees for planner and catalog:
//!
//! - an [`InList`]'s values are in comparison order without duplicates;
//! - comparisons have operands of any type but regex ([`Predicate::Compare`] with a regex operand is an equality
//!   only) and never `Missing`;
//! - trees of [`Predicate::ElemMatchValue`] have only logical nodes and leaves on [`Path::to_self`].

use crate::cx::{MatchCx, ParseCx};
use crate::path::Path;
use crate::schema::Schema;
use crate::type_set::TypeSet;
use kauri_base::Result;
use kauri_bson::{Doc, Value};
use kauri_expr::Expression;
use kauri_expr::regex::Regex;
use std::sync::Arc;

/// One node of a filter.
#[derive(Clone, Debug)]
pub enum MatchExpr {
    /// All match; an empty one always does.
    And(Vec<MatchExpr>),
    /// One at least matches.
    Or(Vec<MatchExpr>),
    /// None matches.
    Nor(Vec<MatchExpr>),
    /// The child does not match.
    Not(Box<MatchExpr>),
    /// A predicate on a path.
    Leaf(Leaf),
    /// `$expr`.
    Expr(ExprMatch),
    /// `$jsonSchema`.
    Schema(Arc<Schema>),
    /// `$sampleRate`: a random share, above 0 and below 1.
    SampleRate(f64),
    /// Matches everything.
    AlwaysTrue,
    /// Matches nothing.
    AlwaysFalse,
}

/// A predicate on what a path reaches.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Where it looks.
    pub path: Path,
    /// What it asks.
    pub pred: Predicate,
}

/// What a leaf asks of the values that its path reaches.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// `$eq`, `$lt`, `$lte`, `$gt`, `$gte`.
    Compare(CompareOp, Value<'static>),
    /// `$in`.
    In(InList),
    /// `$regex`.
    Regex(RegexMatch),
    /// `$exists: true`; its negation is `Not` over it.
    Exists,
    /// `$type`: the types, and the operand as it was given.
    Type(TypeSet, Box<Value<'static>>),
    /// `$mod`.
    Mod(Modulo),
    /// `$size`.
    Size(i64),
    /// The `$bits…` family.
    Bits(BitTest),
    /// `$elemMatch` with a filter for the array's documents.
    ElemMatchObject(Box<MatchExpr>),
    /// `$elemMatch` with predicates on the array's values.
    ElemMatchValue(Box<MatchExpr>),
}

/// Which comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompareOp {
    /// `$eq`
    Eq,
    /// `$lt`
    Lt,
    /// `$lte`
    Lte,
    /// `$gt`
    Gt,
    /// `$gte`
    Gte,
}

impl CompareOp {
    /// The operator's name.
    pub fn name(self) -> &'static str {
        match self {
            CompareOp::Eq => "$eq",
            CompareOp::Lt => "$lt",
            CompareOp::Lte => "$lte",
            CompareOp::Gt => "$gt",
            CompareOp::Gte => "$gte",
        }
    }
}

/// The operand of `$in`.
#[derive(Clone, Debug, Default)]
pub struct InList {
    pub(crate) values: Vec<Value<'static>>,
    pub(crate) regexes: Vec<RegexMatch>,
}

impl InList {
    /// The values, in comparison order, each once. No regexes among them.
    pub fn values(&self) -> &[Value<'static>] {
        &self.values
    }

    /// The regexes.
    pub fn regexes(&self) -> &[RegexMatch] {
        &self.regexes
    }
}

/// A regular expression as an operand. It matches strings and symbols that hold a match, and regex
/// values that are the same.
#[derive(Clone, Debug)]
pub struct RegexMatch {
    pub(crate) regex: Arc<Regex>,
}

impl RegexMatch {
    /// Compiles a pattern.
    pub fn new(pattern: &str, options: &str) -> Result<RegexMatch> {
        Ok(RegexMatch { regex: Arc::new(Regex::new(pattern, options)?) })
    }

    /// The pattern.
    pub fn pattern(&self) -> &str {
        self.regex.pattern()
    }

    /// The option letters.
    pub fn options(&self) -> &str {
        self.regex.options()
    }

    /// The compiled pattern (its literal prefix gives index bounds).
    pub fn regex(&self) -> &Regex {
        &self.regex
    }
}

/// The operand of `$mod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modulo {
    /// Never zero.
    pub divisor: i64,
    /// What must be left.
    pub remainder: i64,
}

/// Which bits a [`BitTest`] wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitOp {
    /// `$bitsAllSet`
    AllSet,
    /// `$bitsAllClear`
    AllClear,
    /// `$bitsAnySet`
    AnySet,
    /// `$bitsAnyClear`
    AnyClear,
}

impl BitOp {
    /// The operator's name.
    pub fn name(self) -> &'static str {
        match self {
            BitOp::AllSet => "$bitsAllSet",
            BitOp::AllClear => "$bitsAllClear",
            BitOp::AnySet => "$bitsAnySet",
            BitOp::AnyClear => "$bitsAnyClear",
        }
    }
}

/// The operand of the `$bits…` family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitTest {
    op: BitOp,
    /// Ascending, each once.
    positions: Box<[u32]>,
    /// Those of the positions that a long has. Positions beyond stand for its sign.
    mask: u64,
}

impl BitTest {
    /// A test of these positions, which ascend.
    pub(crate) fn new(op: BitOp, positions: Vec<u32>) -> BitTest {
        let mask = positions.iter().map(|p| 1 << (*p).min(63)).fold(0, |mask, bit| mask | bit);
        BitTest { op, positions: positions.into(), mask }
    }

    /// The positions as bits of a long, sign-extended: all beyond its last bit are that bit.
    pub(crate) fn mask(&self) -> u64 {
        self.mask
    }

    /// Which test.
    pub fn op(&self) -> BitOp {
        self.op
    }

    /// The bit positions, ascending, each once.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }
}

/// `$expr`'s operand.
#[derive(Clone, Debug)]
pub struct ExprMatch {
    source: Arc<Value<'static>>,
    expression: Arc<Expression>,
}

impl ExprMatch {
    /// Parses an expression.
    pub(crate) fn parse(source: &Value<'_>, cx: &ParseCx<'_>) -> Result<ExprMatch> {
        let none = kauri_expr::ParseCx::default();
        let expression = Expression::parse(source, cx.expressions().unwrap_or(&none))?;
        Ok(ExprMatch {
            source: Arc::new(source.clone().into_owned()),
            expression: Arc::new(expression),
        })
    }

    /// As the filter wrote it.
    pub fn source(&self) -> &Value<'static> {
        &self.source
    }

    /// The parsed expression.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Whether the expression gives something true.
    pub(crate) fn matches(&self, doc: Doc<'_>, cx: &MatchCx<'_>) -> Result<bool> {
        Ok(self.expression.eval(&cx.eval, doc)?.truthy())
    }
}
