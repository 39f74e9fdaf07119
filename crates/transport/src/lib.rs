//! Sessions over TCP and Unix domain sockets, the service state machine, and the executor.
//!
//! `contract` says what a transport and the service behind it owe each other; read that first.
//! `tcp` and `unix` are transports over byte streams (`stream`), `fake` is one in memory. `manager`
//! admits and counts sessions, `state_machine` drives each, on a worker of `executor`.
//!
//! Where it sits: above `wire` and `base`. It knows of a message nothing but its length. Unsafe code
//! only in `sys`, which holds the system calls that std lacks.

mod arrivals;
mod contract;
mod executor;
pub mod fake;
mod histogram;
mod liveness;
mod manager;
mod panics;
mod pool;
pub mod rdma;
mod reply;
pub mod ring;
pub mod shared_memory;
mod state_machine;
mod stats;
mod steering;
mod stream;
pub mod sys;
pub mod tcp;
pub mod unix;
pub mod upgrade;

pub use arrivals::ArrivalsSnapshot;
pub use contract::{
    ClientState, Departure, Handling, Lease, Outcome, RequestContext, ServiceEntryPoint, Session,
    SessionEnd, SessionInfo, TransportLayer, Tried,
};
pub use executor::{
    ExecutorOptions, ServiceExecutor, Sleep, TickEndHook, WorkerHandle, YieldNow, yield_now,
};
pub use histogram::HistogramSnapshot;
pub use liveness::Liveness;
pub use manager::SessionManager;
pub use reply::{ReplyBuf, SPLICE_BYTES_MIN, SendNow};
pub use state_machine::SessionState;
pub use stats::{
    ConnectionCounts, FastTransportCounts, NetworkCounts, ServiceStats, Stage, WorkerSnapshot,
};
pub use sys::{COARSE_NS_MAX, monotonic_coarse_ns, monotonic_ns, raise_descriptor_limit};
