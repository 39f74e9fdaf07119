//! The client as a C library, `libkauri`: what `include/kauri.h` declares, over `kauri-client`.
//!
//! | module | holds |
//! |---|---|
//! | `abi` | the exported functions; the only unsafe code: from pointers to what Rust can check, and back |
//! | `handle` | a connection as C has it: used by one at a time, in order, and failed for good once it fails |
//! | `failure` | statuses, and the error structure that is filled |
//!
//! Invariants:
//! - The header is the contract: functions, numbers and layouts here are its. `tests/clients/c.sh` compares
//!   the exported symbols with it, compiles it as C and C++, and runs a C program that checks each promise.
//! - No panic crosses the border, and one that happened ends its connection.
//! - Nothing that was handed over is kept beyond the call, and nothing of a refused request is sent.
//!
//! Where it sits: above `client`. Must not know: what commands mean, or how messages travel.

#[cfg(panic = "abort")]
compile_error!("a panic must come back as KAURI_INTERNAL, not end the program that calls");

mod abi;
mod failure;
mod handle;
