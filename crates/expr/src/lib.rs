//! Aggregation expressions and accumulators.
//!
//! [`Expression::parse`] parses BSON into a tree once: it checks names and argument counts and folds constants.
//! [`Expression::eval`] evaluates the tree for a document. Values borrow from the document where possible.
//!
//! This crate must not know pipelines, storage or the wire. It has no clock and no random source: [`EvalCx`] has
//! both.

mod accum;
pub mod apply;
mod coerce;
mod date;
mod decimal_math;
mod dependencies;
mod encode;
mod eval;
mod expression;
mod field;
mod hashed;
mod node;
mod numeric;
mod ops;
mod optimize;
mod parse;
pub mod path;
pub mod regex;
mod value;
mod variables;

pub use accum::{Accumulator, AccumulatorSpec, is_accumulator_name};
pub use dependencies::Dependencies;
pub use eval::{EvalCx, MetaSource};
pub use expression::{Expression, expression_names, is_expression_name};
pub use hashed::hash_key;
pub use parse::ParseCx;
pub use path::FieldPath;
pub use variables::{VariableScope, check_name_for_read, check_name_for_write, is_system_variable};
