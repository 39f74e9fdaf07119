//! One server over all transports: the experiments of *RDMA Optimization on MongoDB* (its sections 4.2 and 4.3, and
//! 4.5's clients with one server).
//!
//! Put, Get and half of each by size with the server's stages and both sides' CPU time; models through GridFS; one
//! to four client processes. Data directories and transports take turns within one run ([`turns`]). A measurement
//! that fails stays in the report, with the reason.
//!
//! | module | holds |
//! |---|---|
//! | [`way`] | the transports: a name and a connection string each |
//! | [`requests`] | Put and Get in a closed loop |
//! | [`stages`] | the server's stages, and whether their sum is the client's time |
//! | [`models`] | large files in GridFS's layout |
//! | [`clients`] | client processes: input and output |
//! | [`rows`] | the measurements and their medians |
//! | [`table`], [`json`], [`page`] | the report |
//! | [`paper`] | the paper's numbers |
//!
//! Must not know: how a server is started, and transports beyond [`way::WAYS`].

pub mod clients;
pub mod file_system;
pub mod json;
pub mod models;
pub mod page;
pub mod paper;
pub mod requests;
pub mod rows;
pub mod stages;
pub mod table;
#[cfg(test)]
mod tests;
pub mod turns;
pub mod way;

/// The database of all data.
const DATABASE: &str = "standalone";

/// A size as one says it: 1 KB, 256 KB, 1 MB; powers of 1024.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [(u64, &str); 2] = [(1 << 20, "MB"), (1 << 10, "KB")];
    let whole = UNITS.iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    whole.map_or(format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}
