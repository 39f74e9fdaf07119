//! Experiments that a run file describes: several servers, or several addresses of one, asked the same in
//! turns.
//!
//! - [`plan`]: what the run file says; [`flags`]: the same from a command line; [`own`]: the servers that are started
//!   for it;
//! - [`observe`]: what is found of each server, and whether it is what was asked for;
//! - [`subject`]: performs a workload's operations over one connection ([`link`]), on documents or on [`files`];
//! - [`phase`]: loading, and one measurement: threads, their pace, what they count;
//! - [`processes`]: one measurement by several client processes, [`order`]: what these are told and tell;
//! - [`rounds`]: the turns;
//! - [`report`], [`page`]: what came of it, as a table and as JSON; as a page of plots and tables, all workloads and
//!   others' figures beside each other (`overview`) first;
//! - [`phases`]: the same of each phase, as the tables of both;
//! - [`changes`]: what differs between two results beyond noise.
//!
//! Invariants: servers are measured in turns, in the opposite order in every other round. What is not as the
//! run file says ends the run before anything is measured. An operation counts only if its reply is what the
//! workload expects.
//!
//! Where it sits: above [`crate::workload`], which knows what is asked next, and `client`, which knows how. It
//! must not know what servers are made of: any server that MongoDB's drivers can use can be measured.

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
