//! Plans queries (planner), runs plans (executor), and implements aggregation stages.
//!
//! This crate must know collections only by `namespaces`, indexes only by the catalog, and storage only by its
//! interface. It must not know commands, sessions, replication or the wire. Data beyond the memory limit goes to
//! the temporary store of the operation (`spill`).

pub mod exec;
pub mod explain;
pub mod namespaces;
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
