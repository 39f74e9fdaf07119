//! Commands against a whole server in memory.

#[allow(dead_code)]
mod common;
mod expiry;
