//! One end of a session's two rings: a byte stream over a [`Fabric`].

use super::frame::{FRAME_HEADER_BYTES, Immediate, PROBE_BYTES, decode_header};
use super::receiver::{Frame, Receiver};
use super::sender::{Place, Sender};
use super::{RingError, Shape};
use std::collections::VecDeque;

/// What carries frames between two ends.
///
/// The end asks for nothing that the credits don't allow, nor for what there is no room for, so nothing
/// here waits.
pub trait Fabric {
    /// Whether the next frame can be written now: one of the largest size, or one without bytes. Who is
    /// told that it can't looks again when something has happened.
    fn has_room(&mut self, _for_bytes: bool) -> bool {
        true
    }
    /// Why nothing can be told or heard any more, if so.
    fn failure(&self) -> Option<&'static str> {
        None
    }
    /// Puts a frame into the peer's ring at `offset`, its parts one after the other, and then tells the
    /// peer the immediate. Without a frame all parts are empty.
    fn write(&mut self, offset: u32, parts: [&[u8]; 3], immediate: u32);
    /// The next immediate that the peer has told. What it tells of can then be read.
    fn next_immediate(&mut self) -> Option<u32>;
    /// Appends so many bytes of our own ring from `offset` on. The peer may still be writing there, if it
    /// lies; what was copied doesn't change any more.
    fn read(&self, offset: u32, bytes: u32, into: &mut Vec<u8>);
    /// The same for a frame's header.
    fn read_header(&self, offset: u32) -> [u8; FRAME_HEADER_BYTES as usize];
}

/// What has happened at an end, as [`RingEnd::look`] tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// There are bytes of the stream to be received.
    pub readable: bool,
    /// There is credit that there was not before.
    pub credit: bool,
    /// A probe came.
    pub probe: Option<[u8; PROBE_BYTES as usize]>,
}

/// What has gone through an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingCounts {
    /// Frames with bytes of the stream that were written.
    pub frames_out: u64,
    /// The same, received.
    pub frames_in: u64,
    /// Credit frames that were written.
    pub credits_out: u64,
    /// The same, received.
    pub credits_in: u64,
}

/// See the module's head.
#[derive(Debug)]
pub struct RingEnd<F> {
    shape: Shape,
    pub(super) fabric: F,
    sender: Sender,
    pub(super) receiver: Receiver,
    /// Frames of the stream that were told of and not consumed. At most as many as there are frames.
    waiting: VecDeque<Frame>,
    /// Payload bytes of the first of them that have been received.
    taken: u32,
    counts: RingCounts,
}

impl<F: Fabric> RingEnd<F> {
    /// An end through which nothing has gone.
    pub fn new(shape: Shape, fabric: F) -> Self {
        RingEnd {
            shape,
            fabric,
            sender: Sender::new(shape),
            receiver: Receiver::new(shape),
            waiting: VecDeque::new(),
            taken: 0,
            counts: RingCounts::default(),
        }
    }

    /// What carries it.
    pub fn fabric(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Why nothing goes through any more, if so.
    pub fn failure(&self) -> Option<&'static str> {
        self.fabric.failure()
    }

    /// Whether there are bytes of the stream that were told of and not received.
    pub fn is_readable(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What has gone through.
    pub fn counts(&self) -> RingCounts {
        self.counts
    }

    /// Takes note of all that the peer has told.
    pub fn look(&mut self) -> Result<Event, RingError> {
        let mut event = Event::default();
        while let Some(word) = self.fabric.next_immediate() {
            let immediate = Immediate::decode(word, self.shape)?;
            let frame = self.receiver.arrived(immediate)?;
            let told = match (immediate, frame) {
                (Immediate::Credit(told), _) => told,
                (_, Some(frame)) => decode_header(self.fabric.read_header(frame.offset)),
                (_, None) => return Err(RingError::Immediate(word)),
            };
            event.credit |= self.sender.acknowledged(told)?;
            match (immediate, frame) {
                (Immediate::Stream(_), Some(frame)) => {
                    self.counts.frames_in += 1;
                    self.waiting.push_back(frame);
                }
                (Immediate::Probe, Some(frame)) if event.probe.is_none() => {
                    event.probe = Some(self.take_probe(&frame)?);
                }
                (Immediate::Probe, _) => return Err(RingError::Probe),
                _ => self.counts.credits_in += 1,
            }
        }
        event.readable = !self.waiting.is_empty();
        if !event.readable
            && let Some(why) = self.fabric.failure()
        {
            return Err(RingError::Fabric(why));
        }
        self.tell_if_owed();
        Ok(event)
    }

    /// Probes come before anything else.
    fn take_probe(&mut self, frame: &Frame) -> Result<[u8; PROBE_BYTES as usize], RingError> {
        if self.counts.frames_in > 0 {
            return Err(RingError::Probe);
        }
        let mut bytes = Vec::with_capacity(PROBE_BYTES as usize);
        self.fabric.read(frame.offset + FRAME_HEADER_BYTES, PROBE_BYTES, &mut bytes);
        self.receiver.consumed(frame);
        bytes.try_into().map_err(|_| RingError::Probe)
    }

    /// Appends what has come of the stream to `buffer`, as much as fits into its capacity. How much that was.
    pub fn receive(&mut self, buffer: &mut Vec<u8>) -> usize {
        let before = buffer.len();
        while let Some(frame) = self.waiting.front() {
            let room = u32::try_from(buffer.capacity() - buffer.len()).unwrap_or(u32::MAX);
            let bytes = (frame.payload - self.taken).min(room);
            let from = frame.offset + FRAME_HEADER_BYTES + self.taken;
            self.fabric.read(from, bytes, buffer);
            self.taken += bytes;
            if self.taken < frame.payload {
                break;
            }
            self.taken = 0;
            self.receiver.consumed(frame);
            self.waiting.pop_front();
        }
        self.tell_if_owed();
        buffer.len() - before
    }

    fn tell_if_owed(&mut self) {
        if self.receiver.owes_credit() && self.fabric.has_room(false) && self.sender.credit() {
            self.counts.credits_out += 1;
            let immediate = self.receiver.tell_credit();
            self.fabric.write(0, [&[], &[], &[]], immediate.encode());
        }
    }

    /// Sends as much of `first` and then `second` as there is credit for. How much that was.
    pub fn send(&mut self, first: &[u8], second: &[u8]) -> usize {
        let all = first.len() + second.len();
        let mut sent = 0;
        while sent < all && self.fabric.has_room(true) {
            let Some(place) = self.sender.stream(all - sent) else { break };
            let end = sent + place.payload();
            let part = |bytes: &'_ [u8], before: usize| {
                let within = |at: usize| at.saturating_sub(before).min(bytes.len());
                within(sent)..within(end)
            };
            let (a, b) = (part(first, 0), part(second, first.len()));
            let (a, b) = (first.get(a).unwrap_or_default(), second.get(b).unwrap_or_default());
            self.counts.frames_out += 1;
            self.write(place, a, b);
            sent = end;
        }
        sent
    }

    /// Sends a probe. False if there is no room, which at a session's beginning there is.
    pub fn probe(&mut self, bytes: [u8; PROBE_BYTES as usize]) -> bool {
        let place = self.sender.probe();
        place.inspect(|place| self.write(*place, &bytes, &[])).is_some()
    }

    fn write(&mut self, place: Place, first: &[u8], second: &[u8]) {
        let header = self.receiver.tell();
        self.fabric.write(place.offset, [&header, first, second], place.immediate.encode());
    }
}
