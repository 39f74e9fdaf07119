//! Medium tests, in one program so that it is linked once. Only `loom` is separate: it compiles sources against
//! a model checker's atomics.

mod common;

mod cache;
mod dax;
mod epoch;
mod plain;
mod sites;
mod stress;
mod tickets;
