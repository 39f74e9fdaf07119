//! A ring's fabric over a queue pair: frames are sent by WRITE WITH IMMEDIATE from the staging area. This is the
//! part that both sides share. [`hosted`](super::hosted) and [`dial`](super::dial) transfer large messages.

use super::mailbox::Mailbox;
use super::staging::Staging;
use super::{
    FRAMES, RECEIVE_BATCH, RECEIVES, RING_BYTES, SENDS_MAX, SENDS_RESERVED, SIGNAL_BYTES,
    SIGNAL_EACH, STAGING_BYTES, connect_options,
};
use crate::ring::{FRAME_HEADER_BYTES, Fabric, FrameToWrite};
use kauri_verbs::{
    Access, Endpoint, MemoryRegion, MemoryWindow, Operation, ProtectionDomain, QueuePair,
    RegionSlice, RemoteAddress, Result, SendRequest, Source, WindowAccess,
};
use std::fmt;
use std::sync::Arc;

/// Bytes of the largest frame.
const FRAME_BYTES_MAX: u32 = RING_BYTES / 4;
/// If at most so many requests may not have completed there is room for another, besides the one that binds
/// the window, the one that finishes and those that are reserved.
const SENDS_FEW: u64 = (SENDS_MAX - SENDS_RESERVED) as u64 - 3;
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
    /// The number of the newest send request.
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
            slice: self.ring.all(),
            access: WindowAccess::Write,
        };
        self.pair.post_send(&[SendRequest::new(0, bind)]).map_err(|post| post.error)?;
        self.window = Some(window);
        Ok(())
    }

    /// Makes sure that the completion of the newest send is reported: then [`Self::is_flushed`] returns true.
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

    /// Its completions.
    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Copies the bytes to send into the staging area. Returns place and length.
    fn stage(&mut self, parts: &[&[u8]]) -> Result<(u32, u32)> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
        if length == 0 {
            return Ok((0, 0));
        }
        let place = self.staging.take(length, self.sends).ok_or(kauri_verbs::Error::QueueFull)?;
        let mut at = place as usize;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            self.memory.write(at, part)?;
            at += part.len();
        }
        self.quiet_bytes += length;
        Ok((place, length))
    }

    /// The request that writes the staged bytes into the peer's ring.
    fn frame_request(
        &self,
        (place, length): (u32, u32),
        offset: u32,
        immediate: u32,
    ) -> Result<SendRequest<'_>> {
        let from = match length {
            0 => Source::Nothing,
            _ => Source::Region(self.memory.slice(place as usize, length as usize)?),
        };
        let to = within(self.peer, offset);
        let operation = Operation::WriteWithImmediate { from, to, immediate };
        Ok(SendRequest::new(self.sends, operation))
    }

    fn write_frame(&mut self, offset: u32, parts: &[&[u8]], immediate: u32) -> Result<()> {
        self.sends += 1;
        self.quiet_sends += 1;
        let staged = self.stage(parts)?;
        let signalled = self.quiet_sends >= SIGNAL_EACH || self.quiet_bytes >= SIGNAL_BYTES;
        let mut request = self.frame_request(staged, offset, immediate)?;
        request.signalled = signalled;
        self.pair.post_send(&[request]).map_err(|post| post.error)?;
        if signalled {
            (self.quiet_sends, self.quiet_bytes) = (0, 0);
        }
        Ok(())
    }

    /// Whether a piece can be sent or fetched, with the send requests that are kept left over.
    pub(super) fn takes_piece(&self) -> bool {
        self.failure().is_none() && self.pair.room().0 > SENDS_RESERVED as usize + 2
    }

    /// Writes `piece` to a place of the peer's memory, and then a frame that announces it. Its completion is
    /// signalled. Returns the send's number.
    pub(super) fn send_piece(
        &mut self,
        piece: RegionSlice<'_>,
        to: RemoteAddress,
        frame: FrameToWrite<'_>,
    ) -> u64 {
        self.sends += 2;
        let posted = self.stage(&frame.parts).and_then(|staged| {
            let write = Operation::Write { from: Source::Region(piece), to };
            let write = SendRequest::new(self.sends, write).unsignalled();
            let tell = self.frame_request(staged, frame.offset, frame.immediate)?;
            self.pair.post_send(&[write, tell]).map_err(|post| post.error)
        });
        (self.quiet_sends, self.quiet_bytes) = (0, 0);
        self.fail_unless(posted);
        self.sends
    }

    /// Begins to read a piece from a place of the peer's. Completes visibly. The send's number.
    pub(super) fn read_piece(&mut self, into: RegionSlice<'_>, from: RemoteAddress) -> u64 {
        self.sends += 1;
        let request = SendRequest::new(self.sends, Operation::Read { into, from });
        let posted = self.pair.post_send(&[request]).map_err(|post| post.error);
        (self.quiet_sends, self.quiet_bytes) = (0, 0);
        self.fail_unless(posted);
        self.sends
    }

    /// Posts receives again for those that completed.
    fn renew_receives(&mut self) {
        if self.receives_owed >= RECEIVE_BATCH {
            let posted = self.pair.post_empty_receives(self.receives_owed, RECEIVE_ID);
            self.fail_unless(posted.map_err(|post| post.error));
            self.receives_owed = 0;
        }
    }

    /// Fails the session.
    pub(super) fn fail(&mut self) {
        self.fail_unless(Err(kauri_verbs::Error::Failed));
    }

    fn fail_unless(&mut self, done: Result<()>) {
        if done.is_err() && self.failure.is_none() {
            self.failure = Some("the RDMA connection takes no more requests");
        }
    }
}

impl Fabric for RdmaFabric {
    fn has_room(&mut self, for_bytes: bool) -> bool {
        let sent = self.mailbox.sent();
        self.staging.completed(sent);
        let reserved = if for_bytes { SENDS_RESERVED as usize } else { 0 };
        self.failure().is_none()
            && (self.sends - sent <= SENDS_FEW || self.pair.room().0 > reserved)
            && (!for_bytes || self.staging.fits(FRAME_BYTES_MAX))
    }

    fn failure(&self) -> Option<&'static str> {
        // What the device says tells more than that it took no more.
        self.mailbox.failure().or(self.failure)
    }

    fn write(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32) {
        let written = self.write_frame(offset, &parts, immediate);
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

/// The place at this offset.
pub(super) fn within(place: RemoteAddress, offset: u32) -> RemoteAddress {
    RemoteAddress { address: place.address.wrapping_add(u64::from(offset)), key: place.key }
}

const _: () = assert!(RECEIVES - RECEIVE_BATCH >= FRAMES);
// Whatever fills the send queue or the staging area, a send that completes visibly is among it.
const _: () = assert!(SENDS_MAX - SENDS_RESERVED > SIGNAL_EACH);
const _: () = assert!(SIGNAL_BYTES + 2 * FRAME_BYTES_MAX <= STAGING_BYTES);
