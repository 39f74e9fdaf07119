//! Sessions over TCP and Unix domain sockets, the service state machine, and the executor.
//!
//! Read `contract` first: it defines the obligations of a transport and of the service. `tcp` and `unix` are
//! transports over byte streams (`stream`), `fake` is one in memory. `manager` admits and counts sessions,
//! `state_machine` drives each session on a worker of `executor`. `outgoing` has the sessions that a worker opens
//! itself.
//!
//! Position: above `wire` and `base`. Of a message it knows only the length. Unsafe code is only in `sys`, which
//! has the system calls that std lacks.

mod arrivals;
mod contract;
mod establishment;
mod executor;
pub mod fake;
mod histogram;
mod liveness;
mod manager;
pub mod outgoing;
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
pub use establishment::{EstablishmentCounts, EstablishmentLimiter, EstablishmentRate};
pub use executor::seeded::{Draw, SeededWorkers};
pub use executor::{
    ExecutorOptions, ServiceExecutor, Sleep, TickEndHook, WorkerHandle, YieldNow, yield_now,
};
pub use histogram::HistogramSnapshot;
pub use liveness::Liveness;
pub use manager::SessionManager;
pub use panics::log_panic;
pub use reply::{ReplyBuf, SPLICE_BYTES_MIN, SendNow};
pub use state_machine::SessionState;
pub use stats::{
    ConnectionCounts, FastTransportCounts, NetworkCounts, ServiceStats, Stage, WorkerSnapshot,
};
pub use sys::{COARSE_NS_MAX, monotonic_coarse_ns, monotonic_ns, raise_descriptor_limit};
