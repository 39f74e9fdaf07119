//! Tests of the program `kauri`, in one program so that it is linked once.

#[path = "../rig/mod.rs"]
mod rig;

mod bench_run;
mod check;
mod diagnostics;
mod establishment;
mod log_lines;
mod old_servers;
mod operations;
mod proxy;
mod replica_set;
mod shapes;
mod shared_memory;
mod spilling;
#[cfg(feature = "lock-experiment")]
mod writelock;
