//! Safe RDMA verbs over libibverbs: devices, protection domains, memory regions and windows, completion queues and
//! queue pairs of reliable connections.
//!
//! | module | holds |
//! |---|---|
//! | `sys` | all access to libibverbs and registered memory, and the argument why safe code cannot misuse it; work requests and completions |
//! | `slots` | posted requests until their completion |
//! | `gid` | the addresses of ports, and the choice among them |
//! | `counters` | counters |
//! | `error` | errors |
//!
//! Invariants:
//! - libibverbs is loaded at run time ([`Verbs::load`]): without it, the program runs and gets an error.
//! - No memory or object is freed while the device may still use it, whatever the caller drops and in whatever
//!   order.
//! - No queue overruns: a request that does not fit is refused.
//! - Neither posting nor polling allocates, or calls the kernel beyond what the device's provider does.
//!
//! This crate must not know sessions, messages or credits, nor how two ends connect.

#![deny(missing_docs)]

mod counters;
mod error;
mod gid;
mod slots;
mod sys;

pub use counters::Counters;
pub use error::{Error, PostError, Result};
pub use gid::{Gid, GidEntry, GidKind, choose_gid};
pub use sys::completion::{CompletionChannel, CompletionQueue};
pub use sys::device::{AsyncEvent, Device, DeviceLimits, LinkLayer, Port, ProtectionDomain, Verbs};
pub use sys::memory::{Access, MemoryRegion};
pub use sys::queue_pair::{ConnectOptions, GATHER_MAX, QueuePair, QueuePairOptions};
pub use sys::request::{
    Completion, CompletionKind, Endpoint, Operation, ReceiveRequest, RegionSlice, RemoteAddress,
    SendRequest, Source, Status, WindowAccess,
};
pub use sys::window::MemoryWindow;
