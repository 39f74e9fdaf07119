//! Raft's rules, by tables and small sets, over the members of this crate.
//!
//! The rules are the algorithm's; several tables follow the cases that etcd's and raft-rs' tests name.

mod codec;
mod elections;
mod faults;
mod fuzz;
mod log;
mod membership;
mod points;
mod set;
