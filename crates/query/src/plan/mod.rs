//! From a query to a plan.

pub mod bounds;
pub mod index_access;
pub mod interval;
pub mod planner;
pub mod query;

pub use planner::{over_rows, plan};
pub use query::{Hint, Query};
