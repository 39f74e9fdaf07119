//! From a query to a plan.

pub mod bounds;
pub mod index_access;
pub mod interval;
pub mod planner;
pub mod query;
pub mod rank;

pub use planner::over_rows;
pub use query::{Hint, Query};
pub use rank::{Planned, plan, plan_at_once};
