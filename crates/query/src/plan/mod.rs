//! From a query to a plan.

pub mod bounds;
pub mod cache;
pub mod cover;
pub mod distinct;
pub mod index_access;
pub mod interval;
pub mod planner;
pub mod query;
pub mod rank;
pub mod shape;
mod tree;

pub use cache::PlanCache;
pub use distinct::plan_distinct;
pub use planner::over_rows;
pub use query::{Hint, Query};
pub use rank::{Planned, Trial, plan, plan_at_once, plan_for_explain};
