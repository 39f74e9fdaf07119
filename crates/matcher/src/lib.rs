//! Match expressions: the filters of find, `$match`, partial indexes, validators and array filters.
//!
//! A filter is parsed once into a [`MatchExpr`], a plain tree that planner and catalog may inspect ([`tree`]). It
//! is evaluated over raw documents without building anything ([`MatchExpr::matches`]). A [`Matcher`] has a tree
//! together with its fastest evaluation; use it to match more than a few documents.
//!
//! Invariants: a tree owns everything that it needs. Neither parsing nor matching panics on any input. The parser
//! limits depth and number of nodes, so recursion over a tree is limited, too.
//!
//! This crate must not know collections, indexes or plans.

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
mod type_set;

pub use cx::{MatchCx, MatchDetails, ParseCx, Place};
pub use inspect::Dependencies;
pub use matcher::Matcher;
pub use parse::is_operator_object;
pub use path::Path;
pub use schema::Schema;
pub use subset::is_subset_of;
pub use tree::{
    BitOp, BitTest, CompareOp, ExprMatch, InList, Leaf, MatchExpr, Modulo, Predicate, RegexMatch,
};
pub use type_set::TypeSet;
