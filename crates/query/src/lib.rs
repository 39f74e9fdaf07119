//! Finding the way to documents (planner), walking it (executor), and what aggregation stages do on
//! the way.
//!
//! Knows collections and indexes by the catalog and storage by its interface; nothing of commands,
//! sessions, replication or the wire. What does not fit into memory goes to a place that comes with the
//! operation (`spill`).

pub mod exec;
pub mod explain;
pub mod pipeline;
pub mod plan;
pub mod spill;
pub mod write;

use exec::QueryEnv;
use kauri_matcher::MatchCx;

/// The surroundings of a filter in this operation.
pub(crate) fn match_cx(env: &QueryEnv) -> MatchCx<'_> {
    MatchCx::with_eval(env.eval_cx())
}
