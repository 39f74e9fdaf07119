//! Aggregation expressions and accumulators.

pub mod regex;
