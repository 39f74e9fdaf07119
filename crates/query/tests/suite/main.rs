//! Tests of the planner and of aggregation, in one program so that it is linked once.

/// Random documents and filters.
#[path = "../../../matcher/tests/reference/generate.rs"]
mod generate;
/// Filters and comparison, naively.
#[path = "../../../matcher/tests/reference/matcher.rs"]
mod matching;
/// Updates and projections, naively.
#[path = "../../../mutate/tests/reference/mod.rs"]
mod mutation;
mod world;

mod gaps;
mod pipelines;
mod plan_cache;
mod plans;
mod spill;
