//! The medium's tests, in one program: it is linked once. Beside it only `loom`, which compiles sources
//! against a model checker's atomics.

mod common;

mod cache;
mod dax;
mod epoch;
mod plain;
mod sites;
mod stress;
mod tickets;
