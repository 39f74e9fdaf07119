//! The client as a C library, `libkauri`: implements `include/kauri.h` with `kauri-client`.
//!
//! | module | holds |
//! |---|---|
//! | `abi` | the exported functions; the only unsafe code: converts pointers |
//! | `handle` | a connection handle: used by one call at a time, in order, unusable after a failure |
//! | `failure` | statuses, and the error structure |
//!
//! Invariants:
//! - The header is the contract: functions, numbers and layouts match it. `tests/clients/c.sh` compares the
//!   exported symbols with it, compiles it as C and C++, and runs a C program that checks each promise.
//! - No panic crosses the border, and a caught panic ends its connection.
//! - Nothing from the caller is kept beyond the call, and no byte of a refused request is sent.
//!
//! Position: above `client`. Must not know: the meaning of commands, or how messages are transferred.

#[cfg(panic = "abort")]
compile_error!("a panic must come back as KAURI_INTERNAL, not end the program that calls");

mod abi;
mod failure;
mod handle;
