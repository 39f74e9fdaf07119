//! From a query to a plan.

pub mod bounds;
pub mod planner;
pub mod query;

pub use planner::plan;
pub use query::{Hint, Query};
