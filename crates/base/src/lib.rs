//! What all layers share: ids, times, error codes, limits, clocks and random sources as parameters, virtual time of
//! simulations, tickets for unfinished work, wakers by number, an asynchronous lock, temporary files as a parameter, the work meter
//! of operations, thread primitives, log lines.
//!
//! Invariants: no I/O, and no global state except the log sink and a thread's virtual time. This crate must not
//! know BSON, wire or storage.

pub mod clock;
pub mod codes;
pub mod error;
pub mod failpoint;
pub mod ids;
pub mod limits;
pub mod log;
pub mod operation;
mod operation_state;
pub mod probe;
#[cfg(feature = "lock-experiment")]
pub mod rw_lock;
pub mod sort;
pub mod sync;
pub mod temporary;
pub mod ticket;
pub mod ticks;
pub mod virtual_time;
pub mod waiters;
pub mod work;

pub use clock::{Clock, RandomSource};
pub use codes::ErrorCode;
pub use error::{Error, Result};
pub use ids::{CollectionId, CommitSeq, IndexId, OpTime, RecordId, Timestamp};
pub use operation::OperationContext;
pub use ticket::{Access, Ticket};
