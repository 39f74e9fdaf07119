//! RDMA verbs, safe: devices, protection domains, memory regions and windows, completion queues and
//! queue pairs of reliable connections, over libibverbs.
//!
//! | module | holds |
//! |---|---|
//! | `sys` | everything that touches libibverbs or registered memory, and the argument why safe code can't misuse it |
//! | `request` | work requests and completions |
//! | `slots` | posted requests until their completion |
//! | `gid` | the addresses of ports, and the choice among them |
//! | `counters` | what was done, in numbers |
//! | `error` | what can go wrong |
//!
//! Invariants:
//! - libibverbs is loaded at run time ([`Verbs::load`]): the same program runs where it is absent, and
//!   is told so.
//! - No memory or object is given back while the device may still use it, whatever the caller drops
//!   and in whatever order.
//! - No queue overruns: what does not fit is refused.
//! - Neither posting nor polling allocates or, beyond what the device's provider does, calls the kernel.
//!
//! Knows nothing of sessions, messages or credits, nor of how two ends find each other.

#![deny(missing_docs)]

mod counters;
mod error;
mod gid;
mod request;
mod slots;
mod sys;

pub use counters::Counters;
pub use error::{Error, PostError, Result};
pub use gid::{Gid, GidEntry, GidKind, choose_gid};
pub use request::{
    Completion, CompletionKind, Endpoint, Operation, Part, ReceiveRequest, RemoteAddress,
    SendRequest, Source, Status, WindowAccess,
};
pub use sys::completion::{CompletionChannel, CompletionQueue};
pub use sys::device::{AsyncEvent, Device, DeviceLimits, LinkLayer, Port, ProtectionDomain, Verbs};
pub use sys::memory::{Access, MemoryRegion};
pub use sys::queue_pair::{ConnectOptions, GATHER_MAX, QueuePair, QueuePairOptions};
pub use sys::window::MemoryWindow;
