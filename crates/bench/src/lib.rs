//! Measuring a server from outside: a load generator, a raw echo server to compare with, latency
//! histograms, CPU time.
//!
//! The echo server does what any server over the same transport has to do and nothing else: an epoll
//! loop, as many threads, messages of the same sizes. What a database adds to it is what the database
//! costs; so the two are measured in turns within one run, by one generator, and the figure is the
//! ratio ([`compare`]).
//!
//! Besides, sessions over each transport ([`transports`]) and one server's experiments over all of them
//! ([`standalone`]), the storage engines by themselves ([`engine`]), both in YCSB's workloads ([`ycsb`]), and what
//! writes that wait for the disk cost those who read ([`writelock`]). What is asked of which record comes from
//! YCSB's generators ([`workload`]). Any server that drivers can use is measured as a run file says ([`run`]). All
//! that began as somebody's paper has a name ([`experiments`]).
//!
//! Where it sits: a tool above `transport`, `wire` and the engines; it knows nothing of the server's
//! insides.

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
