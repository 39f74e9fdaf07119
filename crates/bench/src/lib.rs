//! Measures a server from outside: a load generator, a raw echo server for comparison, latency histograms, CPU
//! time.
//!
//! The echo server does what any server over the same transport must do: an epoll loop, the same number of threads,
//! messages of the same sizes. The difference is the cost of the database. So the two are measured in turns within
//! one run, by one generator, and the figure is the ratio ([`compare`]).
//!
//! Further: sessions over each transport ([`transports`]) and experiments with one server over all of them
//! ([`standalone`]); the storage engines without a server ([`engine`]); both in YCSB's workloads ([`ycsb`]); the
//! effect of writes that wait for the disk on readers ([`writelock`]). YCSB's generators choose operations and
//! records ([`workload`]). A run file describes a measurement of any server that drivers can use ([`run`]).
//! Experiments of papers have names ([`experiments`]).
//!
//! Position: a tool above `transport`, `wire` and the engines; it must not know the server's internals.

mod columns;
pub mod compare;
pub mod cpu;
pub mod crud;
pub mod echo;
pub mod engine;
pub mod experiments;
mod gridfs;
pub mod histogram;
mod html;
pub mod load;
pub mod plots;
pub mod run;
pub mod standalone;
pub mod transports;
pub mod workload;
pub mod writelock;
pub mod ycsb;
