//! Match expressions: the query language's filters, for find, `$match`, partial indexes, validators
//! and array filters.
//!
//! A filter is parsed once into a [`MatchExpr`], a plain tree that planner and catalog may take apart
//! ([`tree`]), and evaluated over raw documents without building anything ([`MatchExpr::matches`]).
//! A [`Matcher`] holds a tree together with what evaluates it fastest; whoever matches more than a few
//! documents uses that.
//!
//! Invariants: a tree owns all it needs; neither parsing nor matching panics on any input; depth and
//! number of nodes are bounded by the parser, so recursion over a tree is bounded too.
//!
//! Knows nothing of collections, indexes or plans.

pub mod cx;
mod eval;
mod explain;
mod inspect;
mod matcher;
mod optimize;
mod parse;
pub mod path;
pub mod schema;
mod serialize;
mod subset;
pub mod tree;

pub use cx::{MatchCx, MatchDetails, ParseCx, Place};
pub use inspect::Dependencies;
pub use matcher::Matcher;
pub use parse::is_operator_object;
pub use path::Path;
pub use schema::Schema;
pub use subset::is_subset_of;
pub use tree::{
    BitOp, BitTest, CompareOp, ExprMatch, InList, Leaf, MatchExpr, Modulo, Predicate, RegexMatch,
    TypeSet,
};
