//! Rings: a byte stream in each direction between two ends that write into each other's memory.
//!
//! Invariants (docs/design/rdma.md):
//! - A sender never writes beyond the credit that its peer gave, so nothing is overwritten unread and
//!   no frame comes without a place for its immediate.
//! - Credits always have room. So as long as both ends look at what comes, none waits for ever.
//! - What the peer says is checked before it is believed, and what it wrote is copied before it is
//!   looked at.
//! - Bytes of large messages may take another way, in pieces through the zones of one of the ends; the
//!   rings tell of each where it belongs in the stream.
//!
//! | module | holds |
//! |---|---|
//! | [`frame`] | immediates and headers, byte by byte |
//! | [`sender`] | where the next frame goes, and whether it may |
//! | [`receiver`] | where the frame lies that an immediate tells of; what was consumed |
//! | [`zone`] | where the next piece lies in a zone, and whether it may |
//! | [`end`] | both, over a [`Fabric`]: a stream |
//!
//! Must not know: what carries the bytes, sessions, messages.

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
/// A frame is at most this part of a ring, a piece of a zone; credit is told when this part of it was
/// consumed.
const PART: u32 = 4;
/// As long as so much is to be sent, it goes in pieces, if there are zones.
pub const LARGE_BYTES: usize = 64 << 10;

/// How large the rings of a session are: the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    bytes: u32,
    frames: u32,
}

/// Why a session through a ring ends: its peer lies, or what carries it has failed.
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
            RingError::Immediate(word) => write!(f, "an impossible immediate: {word:#010x}"),
            RingError::Overrun => f.write_str("a frame beyond the credit that was given"),
            RingError::Acknowledgement => f.write_str("a frame that tells of impossible credit"),
            RingError::Probe => f.write_str("a wrong probe"),
            RingError::Zones => f.write_str("impossible zones, or a piece that can't be"),
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

/// Where a frame (or piece) of `length` bytes begins, an offset in a ring (or zone) of so many bytes, if
/// the one before ended at this position, and the position at which it ends. At most `bytes` further.
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

/// A frame or piece is rather cut than begun anew at the start if so much lies before the end.
const CUT_BYTES_MIN: u32 = 4096;

/// How much of a frame or piece of `whole` bytes goes to a position, and how much before the end is left
/// out for it.
fn cut(bytes: u32, position: u64, whole: u32) -> (u32, u32) {
    match to_end(bytes, position).1 {
        to_end if whole <= to_end => (0, whole),
        to_end @ CUT_BYTES_MIN.. => (0, to_end),
        to_end => (to_end, whole),
    }
}
