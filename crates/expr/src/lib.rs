//! Aggregation expressions and accumulators.
//!
//! [`Expression::parse`] turns BSON into a tree once (names, argument counts and constants are
//! checked and folded there), [`Expression::eval`] evaluates it for a document. Values borrow from
//! the document where they can.
//!
//! Knows nothing of pipelines, of storage or of the wire; reads no clock and has no randomness of
//! its own: [`EvalCx`] brings both.

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
