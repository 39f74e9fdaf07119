//! What is written at once, and the immediate that tells of it.

use super::{FRAME_ALIGN, RingError, Shape};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: u32 = 8;
/// Bytes that a probe carries.
pub const PROBE_BYTES: u32 = 8;

const KIND_SHIFT: u32 = 28;
const STREAM: u32 = 1;
const CREDIT: u32 = 2;
const PROBE: u32 = 3;

/// How much a receiver has consumed, as it tells the sender. Each number is a count from the session's
/// beginning, of which as many low bits are sent as there is room for.
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

/// The 32 bits that tell of a frame. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Immediate {
    /// Bytes of the stream: the frame's length, header included.
    Stream(u32),
    /// No frame: only how much was consumed.
    Credit(Consumed),
    /// A frame that shows that this way works.
    Probe,
}

/// Bits of a credit immediate: enough to tell all counts apart that a ring allows.
const CREDIT_END_BITS: u32 = 17;
const CREDIT_FRAMES_BITS: u32 = 11;
const _: () = assert!(*Shape::BYTES.end() / FRAME_ALIGN < 1 << CREDIT_END_BITS);
const _: () = assert!(*Shape::FRAMES.end() < 1 << CREDIT_FRAMES_BITS);
const _: () = assert!(CREDIT_END_BITS + CREDIT_FRAMES_BITS <= KIND_SHIFT);

impl Immediate {
    /// One that tells that this much was consumed: the position, in units of the alignment, and frames.
    pub fn credit(end: u64, frames: u64) -> Self {
        Immediate::Credit(Consumed {
            end: Low::of(end as u32, CREDIT_END_BITS),
            frames: Low::of(frames as u32, CREDIT_FRAMES_BITS),
        })
    }

    /// As it is sent.
    pub fn encode(self) -> u32 {
        match self {
            Immediate::Stream(length) => STREAM << KIND_SHIFT | length,
            Immediate::Credit(Consumed { end, frames }) => {
                CREDIT << KIND_SHIFT | frames.value << CREDIT_END_BITS | end.value
            }
            Immediate::Probe => PROBE << KIND_SHIFT | Self::PROBE_LENGTH,
        }
    }

    /// What somebody sent, if it can be.
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
            PROBE if low == Self::PROBE_LENGTH => Ok(Immediate::Probe),
            _ => Err(RingError::Immediate(word)),
        }
    }

    const PROBE_LENGTH: u32 = FRAME_HEADER_BYTES + PROBE_BYTES;

    /// Bytes of the frame in the ring.
    pub fn length(self) -> u32 {
        match self {
            Immediate::Stream(length) => length,
            Immediate::Credit(_) => 0,
            Immediate::Probe => Self::PROBE_LENGTH,
        }
    }
}

/// A frame's header as it is sent: how much was consumed, the position in units of the alignment.
pub fn encode_header(end: u64, frames: u64) -> [u8; FRAME_HEADER_BYTES as usize] {
    let mut bytes = [0; FRAME_HEADER_BYTES as usize];
    let (first, second) = bytes.split_at_mut(4);
    first.copy_from_slice(&(end as u32).to_le_bytes());
    second.copy_from_slice(&(frames as u32).to_le_bytes());
    bytes
}

/// A header that somebody sent.
pub fn decode_header(bytes: [u8; FRAME_HEADER_BYTES as usize]) -> Consumed {
    let [a, b, c, d, e, f, g, h] = bytes;
    Consumed {
        end: Low::of(u32::from_le_bytes([a, b, c, d]), 32),
        frames: Low::of(u32::from_le_bytes([e, f, g, h]), 32),
    }
}
