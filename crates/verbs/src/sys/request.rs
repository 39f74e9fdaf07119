//! Work requests and completions for callers. Plain data: their meaning for the device is in `queue_pair` and
//! `completion`.

use super::memory::MemoryRegion;
use super::window::MemoryWindow;
use crate::gid::Gid;

/// A slice of a region, which lies within it.
#[derive(Clone, Copy)]
pub struct RegionSlice<'a> {
    pub(crate) region: &'a MemoryRegion,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl RegionSlice<'_> {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A place in the peer's memory, and the key to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAddress {
    /// The address that the peer sent.
    pub address: u64,
    /// The key of a region or of a window.
    pub key: u32,
}

/// The source of a request's bytes.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// There are none.
    Nothing,
    /// They are copied into the request, so they may change as soon as it is posted.
    Inline(&'a [u8]),
    /// They are in a region, from which the device reads them at any time until the completion. If the queue pair
    /// allows that many inline, they are copied into the request.
    Region(RegionSlice<'a>),
    /// Several such slices, one after the other; at most [`crate::GATHER_MAX`].
    Gather(&'a [RegionSlice<'a>]),
}

/// The rights that a window gives the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE, with or without immediate.
    Write,
    /// Both.
    ReadWrite,
}

/// The operation of a work request of the send queue.
#[derive(Clone, Copy)]
pub enum Operation<'a> {
    /// RDMA WRITE: the peer's processor notices nothing.
    Write {
        /// The bytes.
        from: Source<'a>,
        /// Where they go.
        to: RemoteAddress,
    },
    /// RDMA WRITE WITH IMMEDIATE: uses up one of the peer's receives, and completes it.
    WriteWithImmediate {
        /// The bytes.
        from: Source<'a>,
        /// Where they go.
        to: RemoteAddress,
        /// What the peer's completion says.
        immediate: u32,
    },
    /// SEND: into the buffer of one of the peer's receives.
    Send {
        /// The bytes.
        from: Source<'a>,
    },
    /// RDMA READ.
    Read {
        /// Where the bytes go.
        into: RegionSlice<'a>,
        /// Where they come from.
        from: RemoteAddress,
    },
    /// Lets the peer of this queue pair, and no other, use a part of a region. The window's key is
    /// another one from now on. Some devices (Soft-RoCE) hold accesses to the bounds of the region
    /// rather than of the part, so where bounds matter a window shows a region of its own.
    BindWindow {
        /// A window that is not bound.
        window: &'a MemoryWindow,
        /// What it shows.
        slice: RegionSlice<'a>,
        /// And for what.
        access: WindowAccess,
    },
    /// Ends that.
    Invalidate {
        /// A window that is bound to this queue pair.
        window: &'a MemoryWindow,
    },
}

/// A work request of the send queue.
#[derive(Clone, Copy)]
pub struct SendRequest<'a> {
    /// What its completion is known by.
    pub id: u64,
    /// What is to be done.
    pub operation: Operation<'a>,
    /// Whether it completes visibly. If it fails it does in any case.
    pub signalled: bool,
    /// Whether it waits until the READs before it are done.
    pub fenced: bool,
}

impl<'a> SendRequest<'a> {
    /// A request with a signalled completion that does not wait for READs.
    pub fn new(id: u64, operation: Operation<'a>) -> Self {
        SendRequest { id, operation, signalled: true, fenced: false }
    }

    /// The same without a completion of its own.
    pub fn unsignalled(mut self) -> Self {
        self.signalled = false;
        self
    }

    /// The same after the READs before it.
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }
}

/// A work request of the receive queue.
#[derive(Clone, Copy)]
pub struct ReceiveRequest<'a> {
    /// What its completion is known by.
    pub id: u64,
    /// The buffer for a SEND; a WRITE WITH IMMEDIATE needs none.
    pub into: Option<RegionSlice<'a>>,
}

/// The kind of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletionKind {
    /// A WRITE, with or without immediate: the peer has the bytes.
    Write,
    /// A SEND.
    Send,
    /// A READ: the bytes are here.
    Read,
    /// A window was bound.
    BindWindow,
    /// A window was invalidated.
    Invalidate,
    /// A receive, by the peer's SEND; or one that failed.
    Receive,
    /// A receive, by the peer's WRITE WITH IMMEDIATE.
    ReceiveImmediate,
}

/// The status of a completion. Every status except success leaves the queue pair in the error state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Done.
    Success,
    /// Not done, since the queue pair is in the error state.
    Flushed,
    /// The peer's memory does not allow it: a wrong key, address, length or right.
    RemoteAccess,
    /// The peer could not process the request: its receive's buffer is too small, for example.
    RemoteInvalidRequest,
    /// The peer failed.
    RemoteOperation,
    /// The peer did not answer, often enough.
    RetryExceeded,
    /// The peer had no receive posted, often enough.
    ReceiverNotReady,
    /// A key or length of our own is wrong.
    LocalProtection,
    /// A window could not be bound.
    WindowBind,
    /// Another failure, by its number in `enum ibv_wc_status`.
    Other(u32),
}

impl Status {
    /// By its number in `enum ibv_wc_status`.
    pub(crate) fn of_number(number: i32) -> Status {
        match number {
            0 => Status::Success,
            1 | 4 => Status::LocalProtection,
            5 => Status::Flushed,
            6 => Status::WindowBind,
            9 => Status::RemoteInvalidRequest,
            10 => Status::RemoteAccess,
            11 => Status::RemoteOperation,
            12 => Status::RetryExceeded,
            13 => Status::ReceiverNotReady,
            other => Status::Other(other as u32),
        }
    }
}

/// A work request's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The queue pair, by the key that it was created with.
    pub queue_pair: u64,
    /// The request, by its id.
    pub id: u64,
    /// What it was.
    pub kind: CompletionKind,
    /// How it ended.
    pub status: Status,
    /// The bytes that came in, of a receive or READ.
    pub bytes: u32,
    /// Of a receive: the immediate of the peer's request.
    pub immediate: Option<u32>,
    /// The device's own number for a failure.
    pub vendor_error: u32,
}

impl Completion {
    /// The initial value of an array for polling.
    pub const EMPTY: Completion = Completion {
        queue_pair: 0,
        id: 0,
        kind: CompletionKind::Write,
        status: Status::Success,
        bytes: 0,
        immediate: None,
        vendor_error: 0,
    };
}

/// One end of a connection, for the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The queue pair's number.
    pub number: u32,
    /// The first packet sequence number that it sends, 24 bits.
    pub sequence: u32,
    /// The GID that it is reached by.
    pub gid: Gid,
    /// The port's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The largest packet payload that its port takes, in bytes.
    pub mtu: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_has_no_name_keeps_its_number() {
        for (number, status) in [
            (0, Status::Success),
            (5, Status::Flushed),
            (10, Status::RemoteAccess),
            (12, Status::RetryExceeded),
            (13, Status::ReceiverNotReady),
            (21, Status::Other(21)),
        ] {
            assert_eq!(Status::of_number(number), status);
        }
    }
}
