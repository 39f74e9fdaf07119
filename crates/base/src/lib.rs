//! What every layer shares: ids, times, error codes with MongoDB's numbers and names, limits,
//! clocks and random sources as parameters, tickets for work that is not done yet, a lock to wait for
//! as a future, temporary files as a parameter, the meter of operations, the primitives of threads, log
//! lines.
//!
//! Invariants: no I/O and no global state but the log sink; nothing here knows of BSON, of the wire
//! or of storage.

pub mod clock;
pub mod codes;
pub mod error;
pub mod failpoint;
pub mod ids;
pub mod limits;
pub mod log;
pub mod operation;
pub mod probe;
pub mod rw_lock;
pub mod sort;
pub mod sync;
pub mod temporary;
pub mod ticket;
pub mod work;

pub use clock::{Clock, RandomSource};
pub use codes::ErrorCode;
pub use error::{Error, Result};
pub use ids::{CollectionId, CommitSeq, IndexId, OpTime, RecordId, Timestamp};
pub use operation::OperationContext;
pub use ticket::{Access, Ticket};
