//! A ring's fabric over a queue pair: frames go as WRITE WITH IMMEDIATE from the staging area.

use super::mailbox::Mailbox;
use super::staging::Staging;
use super::{
    FRAMES, RECEIVE_BATCH, RECEIVES, RING_BYTES, SENDS_MAX, SENDS_RESERVED, SIGNAL_BYTES,
    SIGNAL_EACH, STAGING_BYTES, connect_options,
};
use crate::ring::{FRAME_HEADER_BYTES, Fabric};
use kauri_verbs::{
    Access, Endpoint, MemoryRegion, MemoryWindow, Operation, ProtectionDomain, QueuePair,
    RemoteAddress, Result, SendRequest, Source, WindowAccess,
};
use std::fmt;
use std::sync::Arc;

/// Bytes of the largest frame.
const FRAME_BYTES_MAX: u32 = RING_BYTES / 4;
/// Empty receives are told apart by nothing.
const RECEIVE_ID: u64 = 0;

/// See the module's head.
pub struct RdmaFabric {
    pair: QueuePair,
    /// The peer writes here.
    ring: MemoryRegion,
    /// What lets it, unless the region itself does.
    window: Option<MemoryWindow>,
    memory: MemoryRegion,
    staging: Staging,
    /// The ring that this side writes into.
    peer: RemoteAddress,
    mailbox: Arc<Mailbox>,
    /// The number of the newest send.
    sends: u64,
    /// Sends, and bytes of the staging area, since the last send that completes visibly.
    quiet_sends: u32,
    quiet_bytes: u32,
    /// Receives that have completed and were not posted again.
    receives_owed: u32,
    failure: Option<&'static str>,
}

impl fmt::Debug for RdmaFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RdmaFabric(queue pair {})", self.pair.number())
    }
}

impl RdmaFabric {
    /// Over a new queue pair, not connected yet. The ring's rights are `ring_access`.
    pub(super) fn new(
        domain: &ProtectionDomain,
        pair: QueuePair,
        ring_access: Access,
        mailbox: Arc<Mailbox>,
    ) -> Result<Self> {
        let ring = domain.register(RING_BYTES as usize, ring_access)?;
        let memory = domain.register(STAGING_BYTES as usize, Access::SEND)?;
        Ok(RdmaFabric {
            pair,
            ring,
            window: None,
            memory,
            staging: Staging::new(STAGING_BYTES, SENDS_MAX),
            peer: RemoteAddress { address: 0, key: 0 },
            mailbox,
            sends: 0,
            quiet_sends: 0,
            quiet_bytes: 0,
            receives_owed: 0,
            failure: None,
        })
    }

    /// This side's queue pair, for the peer.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.pair.endpoint()
    }

    /// This side's ring, for the peer.
    pub(super) fn ring(&self) -> RemoteAddress {
        let RemoteAddress { address, key } = self.ring.remote();
        RemoteAddress { address, key: self.window.as_ref().map_or(key, MemoryWindow::remote_key) }
    }

    /// Connects it to the peer, with all receives posted before.
    pub(super) fn connect(&mut self, peer: &Endpoint, ring: RemoteAddress) -> Result<()> {
        self.pair.post_empty_receives(RECEIVES, RECEIVE_ID).map_err(|post| post.error)?;
        self.peer = ring;
        self.pair.connect(peer, &connect_options())
    }

    /// Lets the peer into the ring by a window. Done when the mailbox says that it is bound.
    pub(super) fn bind(&mut self, domain: &ProtectionDomain) -> Result<()> {
        let window = domain.window()?;
        let bind = Operation::BindWindow {
            window: &window,
            part: self.ring.all(),
            access: WindowAccess::Write,
        };
        self.pair.post_send(&[SendRequest::new(0, bind)]).map_err(|post| post.error)?;
        self.window = Some(window);
        Ok(())
    }

    /// Sees to it that the end of the newest send will be known: [`Self::is_flushed`] tells when it has come.
    pub(crate) fn finish(&mut self) {
        if self.quiet_sends == 0 || self.failure().is_some() {
            return;
        }
        // A write of nothing, which the peer does not notice, completes after all before it.
        let operation = Operation::Write { from: Source::Nothing, to: self.peer };
        let posted = self.pair.post_send(&[SendRequest::new(self.sends, operation)]);
        self.quiet_sends = 0;
        self.fail_unless(posted.map_err(|post| post.error));
    }

    /// Whether the peer has all that was sent, or will never have it.
    pub(crate) fn is_flushed(&self) -> bool {
        self.mailbox.sent() >= self.sends || self.failure().is_some()
    }

    /// What has completed for it.
    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    fn post(&mut self, offset: u32, from: Option<u32>, length: u32, immediate: u32) -> Result<()> {
        let part = from.map(|from| self.memory.part(from as usize, length as usize)).transpose()?;
        let operation = Operation::WriteWithImmediate {
            from: part.map_or(Source::Nothing, Source::Region),
            to: RemoteAddress {
                address: self.peer.address.wrapping_add(u64::from(offset)),
                key: self.peer.key,
            },
            immediate,
        };
        let mut request = SendRequest::new(self.sends, operation);
        request.signalled = self.quiet_sends >= SIGNAL_EACH || self.quiet_bytes >= SIGNAL_BYTES;
        if request.signalled {
            (self.quiet_sends, self.quiet_bytes) = (0, 0);
        }
        self.pair.post_send(&[request]).map_err(|post| post.error)
    }

    fn write_frame(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32) -> Result<()> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
        self.sends += 1;
        self.quiet_sends += 1;
        let mut from = None;
        if length > 0 {
            let full = kauri_verbs::Error::QueueFull;
            let place = self.staging.take(length, self.sends).ok_or(full)?;
            let mut at = place as usize;
            for part in parts {
                self.memory.write(at, part)?;
                at += part.len();
            }
            self.quiet_bytes += length;
            from = Some(place);
        }
        self.post(offset, from, length, immediate)
    }

    /// Posts receives again for those that completed.
    fn renew_receives(&mut self) {
        if self.receives_owed >= RECEIVE_BATCH {
            let posted = self.pair.post_empty_receives(self.receives_owed, RECEIVE_ID);
            self.fail_unless(posted.map_err(|post| post.error));
            self.receives_owed = 0;
        }
    }

    fn fail_unless(&mut self, done: Result<()>) {
        if done.is_err() && self.failure.is_none() {
            self.failure = Some("the RDMA connection takes no more requests");
        }
    }
}

impl Fabric for RdmaFabric {
    fn has_room(&mut self, for_bytes: bool) -> bool {
        self.staging.completed(self.mailbox.sent());
        let (sends, _) = self.pair.room();
        let reserved = if for_bytes { SENDS_RESERVED } else { 0 };
        self.failure().is_none()
            && sends > reserved as usize
            && (!for_bytes || self.staging.fits(FRAME_BYTES_MAX))
    }

    fn failure(&self) -> Option<&'static str> {
        // What the device says tells more than that it took no more.
        self.mailbox.failure().or(self.failure)
    }

    fn write(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32) {
        let written = self.write_frame(offset, parts, immediate);
        self.fail_unless(written);
    }

    fn next_immediate(&mut self) -> Option<u32> {
        let immediate = self.mailbox.next_immediate()?;
        self.receives_owed += 1;
        self.renew_receives();
        Some(immediate)
    }

    fn read(&self, offset: u32, bytes: u32, into: &mut Vec<u8>) {
        // The ring's end never asks beyond the ring.
        let read = self.ring.append_to(offset as usize, bytes as usize, into);
        debug_assert!(read.is_ok(), "{read:?}");
    }

    fn read_header(&self, offset: u32) -> [u8; FRAME_HEADER_BYTES as usize] {
        let mut header = [0; FRAME_HEADER_BYTES as usize];
        let read = self.ring.read(offset as usize, &mut header);
        debug_assert!(read.is_ok(), "{read:?}");
        header
    }
}

const _: () = assert!(RECEIVES - RECEIVE_BATCH >= FRAMES);
// Whatever fills the send queue or the staging area, a send that completes visibly is among it.
const _: () = assert!(SENDS_MAX - SENDS_RESERVED > SIGNAL_EACH);
const _: () = assert!(SIGNAL_BYTES + 2 * FRAME_BYTES_MAX <= STAGING_BYTES);
