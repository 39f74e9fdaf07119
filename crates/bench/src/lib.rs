//! Measuring a server from outside: a load generator, a raw echo server to compare with, latency
//! histograms, CPU time.
//!
//! The echo server does what any server over the same transport has to do and nothing else: an epoll
//! loop, as many threads, messages of the same sizes. What a database adds to it is what the database
//! costs; so the two are measured in turns within one run, by one generator, and the figure is the
//! ratio ([`compare`]).
//!
//! Where it sits: a tool above `transport` and `wire`; it knows nothing of the server's insides.

pub mod compare;
pub mod cpu;
pub mod crud;
pub mod echo;
pub mod histogram;
pub mod load;
pub mod writelock;
