//! Rings: a byte stream in each direction between two ends that write into each other's memory.
//!
//! Invariants (docs/design/rdma.md):
//! - A sender never writes beyond the credit that its peer granted. So no unread byte is overwritten, and every
//!   frame has a slot for its immediate.
//! - Credits always have space. So as long as both ends process arrivals, neither waits forever.
//! - Values from the peer are checked before use, and bytes from the peer are copied before they are read.
//! - Bytes of large messages may instead go in pieces through the zones of one end. For each piece the rings
//!   transfer its position in the stream.
//!
//! | module | holds |
//! |---|---|
//! | [`frame`] | immediates and headers, byte by byte |
//! | [`sender`] | the place of the next frame, and its credit |
//! | [`receiver`] | the place of a frame by its immediate; consumed bytes |
//! | [`zone`] | the place of the next piece in a zone, and its credit |
//! | [`end`] | both, over a [`Fabric`]: a stream |
//!
//! Must not know: the fabric's implementation, sessions, messages.

mod end;
mod frame;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod zone;

pub use end::{Event, Fabric, FrameToWrite, RingCounts, RingEnd};
pub use frame::{FRAME_HEADER_BYTES, OFFER_BYTES, PROBE_BYTES};
pub use zone::{PIECE_BYTES_MAX, Zone};

/// Frames begin at multiples of this.
const FRAME_ALIGN: u32 = 16;
/// Frames that are kept for credits.
const RESERVED_FRAMES: u32 = 12;
/// The maximum frame is this part of a ring, the maximum piece this part of a zone; credit is sent after this part
/// was consumed.
const PART: u32 = 4;
/// As long as so much is to be sent, it goes in pieces, if there are zones.
pub const LARGE_BYTES: usize = 64 << 10;

/// The size of a session's rings: the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    bytes: u32,
    frames: u32,
}

/// Why a session through a ring ends: its peer is faulty, or its carrier has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingError {
    /// An immediate that none of ours would send.
    Immediate(u32),
    /// More than the credit that was given.
    Overrun,
    /// More consumed than was sent, or less than before.
    Acknowledgement,
    /// A probe that does not carry what the handshake gave, or comes when none may.
    Probe,
    /// Zones or a piece of theirs as none may be.
    Zones,
    /// The fabric has failed, for this reason.
    Fabric(&'static str),
}

impl std::fmt::Display for RingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RingError::Immediate(word) => write!(f, "an invalid immediate: {word:#010x}"),
            RingError::Overrun => f.write_str("a frame beyond the credit that was given"),
            RingError::Acknowledgement => f.write_str("a frame with invalid credit"),
            RingError::Probe => f.write_str("a wrong probe"),
            RingError::Zones => f.write_str("invalid zones, or an invalid piece"),
            RingError::Fabric(why) => f.write_str(why),
        }
    }
}

impl Shape {
    /// Least and most bytes of a ring.
    pub const BYTES: std::ops::RangeInclusive<u32> = 64 << 10..=1 << 20;
    /// Fewest and most frames.
    pub const FRAMES: std::ops::RangeInclusive<u32> = 64..=1024;

    /// Rings of so many bytes and frames, if these are powers of two within the limits.
    pub const fn new(bytes: u32, frames: u32) -> Option<Self> {
        let sound = *Self::BYTES.start() <= bytes
            && bytes <= *Self::BYTES.end()
            && *Self::FRAMES.start() <= frames
            && frames <= *Self::FRAMES.end()
            && bytes.is_power_of_two()
            && frames.is_power_of_two();
        if sound { Some(Shape { bytes, frames }) } else { None }
    }

    /// Bytes of a ring.
    pub fn bytes(self) -> u32 {
        self.bytes
    }

    /// Frames that may be on their way in one direction.
    pub fn frames(self) -> u32 {
        self.frames
    }

    fn frame_bytes_max(self) -> u32 {
        self.bytes / PART
    }
}

/// The offset of a frame (or piece) of `length` bytes in a ring (or zone) of `bytes` bytes, if the previous one
/// ended at this position, and the position at which it ends. At most `bytes` further.
fn place(bytes: u32, position: u64, length: u32) -> (u32, u64) {
    let (at, to_end) = to_end(bytes, position);
    let (offset, start) =
        if length <= to_end { (at, position) } else { (0, position + u64::from(to_end)) };
    (offset, start + u64::from(length.next_multiple_of(FRAME_ALIGN)))
}

/// The offset of a position, and how many bytes follow there. A ring's size, and a zone's, is a power of two.
fn to_end(bytes: u32, position: u64) -> (u32, u32) {
    let at = position as u32 & (bytes - 1);
    (at, bytes - at)
}

/// A frame or piece is cut, rather than moved to the start, if at least this much space is before the end.
const CUT_BYTES_MIN: u32 = 4096;

/// The part of a frame or piece of `whole` bytes that goes to a position, and the space before the end that is
/// skipped for it.
fn cut(bytes: u32, position: u64, whole: u32) -> (u32, u32) {
    match to_end(bytes, position).1 {
        to_end if whole <= to_end => (0, whole),
        to_end @ CUT_BYTES_MIN.. => (0, to_end),
        to_end => (to_end, whole),
    }
}
