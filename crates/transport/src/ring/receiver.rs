//! The receiving side: the place of each frame by its immediate, and the credit to return to the peer.

use super::frame::{FRAME_HEADER_BYTES, Immediate, encode_header};
use super::{FRAME_ALIGN, PART, RingError, Shape, place};

/// A frame in our ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Where its header lies.
    pub offset: u32,
    /// Bytes that follow the header.
    pub payload: u32,
    /// The position at which it ends.
    end: u64,
}

/// See the module's head.
#[derive(Debug)]
pub struct Receiver {
    shape: Shape,
    received_end: u64,
    received_frames: u64,
    consumed_end: u64,
    consumed_frames: u64,
    told_end: u64,
    told_frames: u64,
}

impl Receiver {
    /// Nothing has been received.
    pub fn new(shape: Shape) -> Self {
        Receiver {
            shape,
            received_end: 0,
            received_frames: 0,
            consumed_end: 0,
            consumed_frames: 0,
            told_end: 0,
            told_frames: 0,
        }
    }

    /// Processes the next immediate. Returns the place of its frame, if it has one; without a frame it is consumed
    /// now.
    pub fn arrived(&mut self, immediate: Immediate) -> Result<Option<Frame>, RingError> {
        let frames = self.received_frames + 1;
        if frames - self.told_frames > u64::from(self.shape.frames()) {
            return Err(RingError::Overrun);
        }
        let length = immediate.length();
        if length == 0 {
            self.received_frames = frames;
            self.consumed_frames += 1;
            return Ok(None);
        }
        let (offset, end) = place(self.shape.bytes(), self.received_end, length);
        if end - self.told_end > u64::from(self.shape.bytes()) {
            return Err(RingError::Overrun);
        }
        (self.received_end, self.received_frames) = (end, frames);
        Ok(Some(Frame { offset, payload: length - FRAME_HEADER_BYTES, end }))
    }

    /// The frame is consumed. Called frame by frame in order.
    pub fn consumed(&mut self, frame: &Frame) {
        self.consumed_end = frame.end;
        self.consumed_frames += 1;
    }

    /// The header of the next frame to the peer, which may rely on it from now on.
    pub fn tell(&mut self) -> [u8; FRAME_HEADER_BYTES as usize] {
        self.told();
        encode_header(self.told_end / u64::from(FRAME_ALIGN), self.told_frames)
    }

    /// The same without a frame.
    pub fn tell_credit(&mut self) -> Immediate {
        self.told();
        Immediate::credit(self.told_end / u64::from(FRAME_ALIGN), self.told_frames)
    }

    fn told(&mut self) {
        (self.told_end, self.told_frames) = (self.consumed_end, self.consumed_frames);
    }

    /// Whether the peer should get credit without waiting for a frame in its direction.
    pub fn owes_credit(&self) -> bool {
        self.consumed_end - self.told_end >= u64::from(self.shape.bytes() / PART)
            || self.consumed_frames - self.told_frames >= u64::from(self.shape.frames() / PART)
    }
}
