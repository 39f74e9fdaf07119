//! Sessions over RDMA: the fabric of queue pairs, the handshake, the server's device with its workers' completion
//! queues, and the client (docs/design/rdma.md).
//!
//! Invariants:
//! - The memory that a server pins for a session is fixed when the session begins; the memory for large messages is
//!   fixed at startup. The server registers nothing later. A client pins more memory before its first large
//!   message.
//! - The peer can access only the ring that it sends into: by a window that is bound to this queue pair, or in a
//!   protection domain with no other queue pair.
//! - A receive is posted for every frame that the peer's credit allows. The send queue always has space for a
//!   credit.
//! - A place in the staging area or the pool is reused only after the request that sent it has completed locally.
//!   Credits from the peer do not count for that.
//!
//! | module | holds |
//! |---|---|
//! | [`parameters`] | the handshake, byte by byte |
//! | [`staging`] | the memory that frames are sent from |
//! | [`mailbox`] | completions of a session |
//! | [`fabric`] | a [`Fabric`](crate::ring::Fabric) over a queue pair |
//! | [`pool`] | the server: memory for large messages |
//! | [`hosted`] | the server's fabric: large messages by READ and WRITE |
//! | [`host`] | the server: device, limits, offers |
//! | [`queues`] | the server: a worker's completion queues |
//! | [`dial`] | the client |
//!
//! Position: below sessions and clients, above `ring` and the crate `verbs`.

mod dial;
mod fabric;
mod host;
mod hosted;
mod mailbox;
mod parameters;
mod pool;
mod queues;
mod staging;

pub use dial::{DialedEnd, DialedFabric, Dialer, Dialing};
pub(crate) use fabric::RdmaFabric;
pub(crate) use host::{Addresses, RdmaMembership};
pub use host::{RdmaHost, RdmaOptions, RdmaRefusal};
pub use hosted::HostedFabric;
pub use kauri_verbs::Counters;
pub(crate) use mailbox::Mailbox;
pub use pool::PoolCounts;
pub(crate) use queues::WorkerQueues;

use crate::ring::Shape;
use kauri_verbs::{ConnectOptions, QueuePairOptions};

/// Bytes of a ring.
const RING_BYTES: u32 = 64 << 10;
/// Frames of a ring.
const FRAMES: u32 = 64;
/// Bytes that frames are sent from.
const STAGING_BYTES: u32 = 80 << 10;
/// Send requests at once.
const SENDS_MAX: u32 = 64;
/// Number of sends reserved for credits.
const SENDS_RESERVED: u32 = 8;
/// One in this many consecutive sends has a signalled completion.
const SIGNAL_EACH: u32 = 32;
/// Or one in this many consecutive bytes.
const SIGNAL_BYTES: u32 = STAGING_BYTES / 2;
/// Receives that are posted at once.
const RECEIVE_BATCH: u32 = 16;
/// Number of receives: this many are still posted when a batch is due.
const RECEIVES: u32 = FRAMES + RECEIVE_BATCH;
/// Pieces that a server reads from a client at once.
const READS_MAX: u8 = 3;
/// Bytes that go with a request, where the device can do that.
const INLINE_BYTES: u32 = 512;
/// Completions that a session may have at once.
const COMPLETIONS: u32 = SENDS_MAX + RECEIVES;

/// Sessions whose completions one queue has room for, if the device lets it.
const SESSIONS_A_QUEUE: u32 = 128;
/// Bytes that a session pins.
const SESSION_BYTES: u64 = RING_BYTES as u64 + STAGING_BYTES as u64;

/// The rings of every session.
const SHAPE: Shape = match Shape::new(RING_BYTES, FRAMES) {
    Some(shape) => shape,
    None => panic!("rings of an impossible size"),
};

fn queue_pair_options(
    key: u64,
    gid: kauri_verbs::GidEntry,
    random: u64,
) -> kauri_verbs::QueuePairOptions {
    QueuePairOptions {
        key,
        sends_max: SENDS_MAX,
        receives_max: RECEIVES,
        inline_bytes: INLINE_BYTES,
        signal_interval: SENDS_MAX,
        gid,
        sequence: (random & 0xff_ffff) as u32,
    }
}

/// Some seconds without a reply, or a tenth of one without a receive, end the session: the peer is dead or faulty.
fn connect_options() -> ConnectOptions {
    ConnectOptions::default()
}
