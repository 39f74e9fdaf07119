//! Frames and the immediates that announce them.

use super::zone::ZONE_BYTES_MAX;
use super::{FRAME_ALIGN, RingError, Shape};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: u32 = 8;
/// Bytes that a probe carries.
pub const PROBE_BYTES: u32 = 8;
/// Bytes that an offer of zones carries.
pub const OFFER_BYTES: u32 = 32;
/// Bytes that the frame of a piece carries: its length.
pub const PIECE_HEAD_BYTES: u32 = 4;

const KIND_SHIFT: u32 = 28;
const STREAM: u32 = 1;
const CREDIT: u32 = 2;
const PROBE: u32 = 3;
const OFFER: u32 = 4;
const PIECE: u32 = 5;
const DONE: u32 = 6;

/// The amount that a receiver has consumed, as reported to the sender. Each number is a count from the session's
/// beginning, of which as many low bits are sent as fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Consumed {
    /// The position up to which it has consumed, in units of the frames' alignment.
    pub end: Low,
    /// Frames.
    pub frames: Low,
}

/// The low bits of a count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Low {
    value: u32,
    bits: u32,
}

impl Low {
    fn of(value: u32, bits: u32) -> Self {
        Low { value: value & (u32::MAX >> (32 - bits)), bits }
    }

    /// The count that has these low bits, from `before` on, if it is at most `limit`.
    pub fn forward(self, before: u64, limit: u64) -> Result<u64, RingError> {
        let ahead = Low::of(self.value.wrapping_sub(before as u32), self.bits).value;
        let count = before + u64::from(ahead);
        if count <= limit { Ok(count) } else { Err(RingError::Acknowledgement) }
    }
}

/// The 32 bits that announce a frame. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Immediate {
    /// Bytes of the stream: the frame's length, header included.
    Stream(u32),
    /// No frame: only how much was consumed.
    Credit(Consumed),
    /// A frame that shows that this way works.
    Probe,
    /// A frame with the sender's zones.
    Offer,
    /// A frame that stands for bytes of the stream that lie in a zone.
    Piece,
    /// No frame: the position up to which a zone was consumed, in units of the alignment.
    Done(Low),
}

/// Bits of a credit immediate: enough to distinguish all counts that a ring allows.
const CREDIT_END_BITS: u32 = 17;
const CREDIT_FRAMES_BITS: u32 = 11;
const _: () = assert!(*Shape::BYTES.end() / FRAME_ALIGN < 1 << CREDIT_END_BITS);
const _: () = assert!(*Shape::FRAMES.end() < 1 << CREDIT_FRAMES_BITS);
const _: () = assert!(CREDIT_END_BITS + CREDIT_FRAMES_BITS <= KIND_SHIFT);
/// Bits of an immediate about a zone.
const DONE_BITS: u32 = KIND_SHIFT;
const _: () = assert!(ZONE_BYTES_MAX / FRAME_ALIGN < 1 << (DONE_BITS - 1));

impl Immediate {
    /// Reports the consumed position, in units of the alignment, and the consumed frames.
    pub fn credit(end: u64, frames: u64) -> Self {
        Immediate::Credit(Consumed {
            end: Low::of(end as u32, CREDIT_END_BITS),
            frames: Low::of(frames as u32, CREDIT_FRAMES_BITS),
        })
    }

    /// Reports that a zone was consumed up to this position, in units of the alignment.
    pub fn done(end: u64) -> Self {
        Immediate::Done(Low::of(end as u32, DONE_BITS))
    }

    /// As it is sent.
    pub fn encode(self) -> u32 {
        match self {
            Immediate::Stream(length) => STREAM << KIND_SHIFT | length,
            Immediate::Credit(Consumed { end, frames }) => {
                CREDIT << KIND_SHIFT | frames.value << CREDIT_END_BITS | end.value
            }
            Immediate::Probe => PROBE << KIND_SHIFT | self.length(),
            Immediate::Offer => OFFER << KIND_SHIFT | self.length(),
            Immediate::Piece => PIECE << KIND_SHIFT | self.length(),
            Immediate::Done(end) => DONE << KIND_SHIFT | end.value,
        }
    }

    /// The peer's immediate, if valid.
    pub fn decode(word: u32, shape: Shape) -> Result<Self, RingError> {
        let low = word & ((1 << KIND_SHIFT) - 1);
        match word >> KIND_SHIFT {
            STREAM if low > FRAME_HEADER_BYTES && low <= shape.frame_bytes_max() => {
                Ok(Immediate::Stream(low))
            }
            CREDIT => Ok(Immediate::Credit(Consumed {
                end: Low::of(low, CREDIT_END_BITS),
                frames: Low::of(low >> CREDIT_END_BITS, CREDIT_FRAMES_BITS),
            })),
            DONE => Ok(Immediate::Done(Low::of(low, DONE_BITS))),
            _ if word == Immediate::Probe.encode() => Ok(Immediate::Probe),
            _ if word == Immediate::Offer.encode() => Ok(Immediate::Offer),
            _ if word == Immediate::Piece.encode() => Ok(Immediate::Piece),
            _ => Err(RingError::Immediate(word)),
        }
    }

    /// Bytes of the frame in the ring.
    pub fn length(self) -> u32 {
        match self {
            Immediate::Stream(length) => length,
            Immediate::Credit(_) | Immediate::Done(_) => 0,
            Immediate::Probe => FRAME_HEADER_BYTES + PROBE_BYTES,
            Immediate::Offer => FRAME_HEADER_BYTES + OFFER_BYTES,
            Immediate::Piece => FRAME_HEADER_BYTES + PIECE_HEAD_BYTES,
        }
    }
}

/// A frame's header on the wire: the consumed position in units of the alignment.
pub fn encode_header(end: u64, frames: u64) -> [u8; FRAME_HEADER_BYTES as usize] {
    let mut bytes = [0; FRAME_HEADER_BYTES as usize];
    let (first, second) = bytes.split_at_mut(4);
    first.copy_from_slice(&(end as u32).to_le_bytes());
    second.copy_from_slice(&(frames as u32).to_le_bytes());
    bytes
}

/// The peer's header.
pub fn decode_header(bytes: [u8; FRAME_HEADER_BYTES as usize]) -> Consumed {
    let [a, b, c, d, e, f, g, h] = bytes;
    Consumed {
        end: Low::of(u32::from_le_bytes([a, b, c, d]), 32),
        frames: Low::of(u32::from_le_bytes([e, f, g, h]), 32),
    }
}
