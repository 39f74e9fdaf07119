//! Experiments that a run file describes: several servers, or several addresses of one server, measured in turns
//! with the same workload.
//!
//! - [`plan`]: the run file; [`flags`]: the same from a command line; [`own`]: the servers that the run starts;
//! - [`observe`]: the properties of each server, and whether they match the run file;
//! - [`subject`]: performs a workload's operations over one connection ([`link`]), on documents or on [`files`];
//! - [`phase`]: loading, and one measurement: threads, their pace, their counts;
//! - [`processes`]: one measurement by several client processes; [`order`]: their input and output;
//! - [`rounds`]: the turns;
//! - [`report`], [`page`]: the results, as a table and as JSON; as a page of plots and tables, with all workloads
//!   and reference figures side by side (`overview`) first;
//! - [`phases`]: the same for each phase;
//! - [`changes`]: significant differences between two results.
//!
//! Invariants: servers are measured in turns, in reverse order in every other round. A mismatch with the run file
//! ends the run before anything is measured. An operation counts only if its reply is what the workload expects.
//!
//! Position: above [`crate::workload`], which chooses operations, and `client`, which performs requests. This
//! module must not know servers' internals: any server that MongoDB's drivers can use can be measured.

pub mod changes;
pub mod files;
pub mod flags;
pub mod link;
pub mod observe;
pub mod order;
mod overview;
pub mod own;
pub mod page;
mod page_plots;
pub mod phase;
pub mod phases;
pub mod plan;
pub mod processes;
pub mod report;
pub mod rounds;
pub mod subject;

use kauri_base::{Error, ErrorCode};

/// What went wrong, with what it concerns.
fn failed(what: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::OperationFailed, format!("{what}: {why}"))
}
