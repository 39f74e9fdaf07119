//! Checkers of consistency: whether a recorded history of operations is one that a database may produce.
//!
//! - [`lists`] checks transactions that append to lists and read them. It infers the order of versions from the reads
//!   and searches for cycles of dependencies (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
//!   Experimental Observations", VLDB 2020; the anomalies are those of Adya's thesis, 1999).
//! - [`history`] reads such transactions from text.
//! - [`linearizable`] searches an order of operations on one object that explains all replies (Wing and Gong, "Testing
//!   and Verifying Concurrent Objects", 1993; with the memoization of Lowe, "Testing for linearizability", 2017).
//!
//! Invariant: a history without an anomaly has no report. A report names the operations that prove the anomaly.
//! Must not know: servers, clients, clocks. Times are numbers; only their order counts.

pub mod cycles;
pub mod graph;
pub mod history;
pub mod linearizable;
pub mod lists;
