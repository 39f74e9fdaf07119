//! The sending side: the place of the next frame in the peer's ring, and the credit for it.

use super::frame::{Consumed, FRAME_HEADER_BYTES, Immediate};
use super::{FRAME_ALIGN, RESERVED_FRAMES, RingError, Shape, cut, place};

/// A frame that may be written, and must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Where in the peer's ring its header goes.
    pub offset: u32,
    /// What tells the peer.
    pub immediate: Immediate,
}

impl Place {
    /// Bytes that follow the header.
    pub fn payload(&self) -> usize {
        self.immediate.length().saturating_sub(FRAME_HEADER_BYTES) as usize
    }
}

/// See the module's head. Positions count from the session's beginning.
#[derive(Debug)]
pub struct Sender {
    shape: Shape,
    sent_end: u64,
    sent_frames: u64,
    consumed_end: u64,
    consumed_frames: u64,
}

impl Sender {
    /// Nothing has been sent.
    pub fn new(shape: Shape) -> Self {
        Sender { shape, sent_end: 0, sent_frames: 0, consumed_end: 0, consumed_frames: 0 }
    }

    /// A frame for up to `wanted` bytes of the stream, which are more than none; `None` if there is no
    /// credit for it.
    pub fn stream(&mut self, wanted: usize) -> Option<Place> {
        if self.frames_left() <= RESERVED_FRAMES {
            return None;
        }
        let most = self.shape.frame_bytes_max();
        let wanted = u32::try_from(wanted).unwrap_or(most);
        let whole = wanted.max(1).saturating_add(FRAME_HEADER_BYTES).min(most);
        let (skipped, fitting) = cut(self.shape.bytes(), self.sent_end, whole);
        // What is left is a multiple of the alignment, so a length that is rounded up still fits.
        let fits = skipped + fitting <= self.bytes_left();
        fits.then(|| self.take(Immediate::Stream(fitting)))
    }

    /// A frame of a kind with a fixed length; `None` if there is no credit for it.
    pub fn fixed(&mut self, kind: Immediate) -> Option<Place> {
        self.has_room(kind).then(|| self.take(kind))
    }

    /// Whether there is credit for that.
    pub fn has_room(&self, kind: Immediate) -> bool {
        let end = place(self.shape.bytes(), self.sent_end, kind.length()).1;
        let needed = (end - self.sent_end) as u32;
        self.frames_left() > RESERVED_FRAMES && self.bytes_left() >= needed
    }

    /// The place of an immediate without a frame. `false` only if the peer has broken the rules.
    pub fn credit(&mut self) -> bool {
        let fits = self.frames_left() > 0;
        self.sent_frames += u64::from(fits);
        fits
    }

    fn take(&mut self, immediate: Immediate) -> Place {
        let (offset, end) = place(self.shape.bytes(), self.sent_end, immediate.length());
        self.sent_end = end;
        self.sent_frames += 1;
        Place { offset, immediate }
    }

    fn bytes_left(&self) -> u32 {
        self.shape.bytes() - (self.sent_end - self.consumed_end) as u32
    }

    fn frames_left(&self) -> u32 {
        self.shape.frames() - (self.sent_frames - self.consumed_frames) as u32
    }

    /// The peer's report of consumption. Whether it exceeds the last one.
    pub fn acknowledged(&mut self, told: Consumed) -> Result<bool, RingError> {
        let unit = u64::from(FRAME_ALIGN);
        let end = told.end.forward(self.consumed_end / unit, self.sent_end / unit)? * unit;
        let frames = told.frames.forward(self.consumed_frames, self.sent_frames)?;
        let more = end > self.consumed_end || frames > self.consumed_frames;
        (self.consumed_end, self.consumed_frames) = (end, frames);
        Ok(more)
    }
}
