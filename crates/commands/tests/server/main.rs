//! Commands against a whole server in memory.

mod aggregate;
#[allow(dead_code)]
mod common;
mod expiry;
