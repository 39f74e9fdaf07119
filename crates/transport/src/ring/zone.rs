//! Zones: memory of one end for pieces of large messages, one zone per direction. Both ends count positions in the
//! same two zones, as for the rings.
//!
//! Must not know: which side owns the memory, and how the bytes move.

use super::frame::{Immediate, Low};
use super::{FRAME_ALIGN, PART, RingError, cut, place};

/// Most bytes of a zone.
pub const ZONE_BYTES_MAX: u32 = 1 << 20;
/// Most bytes of a piece.
pub const PIECE_BYTES_MAX: u32 = ZONE_BYTES_MAX / PART;
/// And fewest, so that few are on their way.
pub const PIECE_BYTES_MIN: u32 = 4096;

/// How large a zone is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    bytes: u32,
}

impl Zone {
    /// The largest.
    pub const LARGEST: Zone = Zone { bytes: ZONE_BYTES_MAX };

    /// One of 64 KB to 1 MB, a power of two.
    pub fn new(bytes: u32) -> Option<Zone> {
        let sound = (64 << 10..=ZONE_BYTES_MAX).contains(&bytes) && bytes.is_power_of_two();
        sound.then_some(Zone { bytes })
    }

    /// How many bytes it has.
    pub const fn bytes(self) -> u32 {
        self.bytes
    }

    fn piece_bytes_max(self) -> u32 {
        self.bytes / PART
    }
}

/// A piece of the stream, in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it begins in the zone.
    pub offset: u32,
    /// How many bytes it has.
    pub length: u32,
    /// The position at which it ends.
    end: u64,
}

/// The end that puts pieces into a zone. A piece has its place before there is credit for it.
#[derive(Debug)]
pub struct ZoneSender {
    zone: Zone,
    /// Where the last piece ends that has a place.
    placed: u64,
    sent: u64,
    consumed: u64,
}

impl ZoneSender {
    /// Of a zone that nothing has gone through.
    pub fn new(zone: Zone) -> Self {
        ZoneSender { zone, placed: 0, sent: 0, consumed: 0 }
    }

    /// The next piece of `wanted` bytes, at least the fewest, if it were placed now.
    pub fn next(&self, wanted: usize) -> Piece {
        let most = self.zone.piece_bytes_max();
        let whole = u32::try_from(wanted).unwrap_or(most).min(most);
        let (_, length) = cut(self.zone.bytes, self.placed, whole);
        let (offset, end) = place(self.zone.bytes, self.placed, length);
        Piece { offset, length, end }
    }

    /// The next piece keeps this place.
    pub fn place(&mut self, piece: &Piece) {
        self.placed = piece.end;
    }

    /// Whether there is credit for it.
    pub fn has_credit(&self, piece: &Piece) -> bool {
        piece.end - self.consumed <= u64::from(self.zone.bytes)
    }

    /// The first piece that has a place, and credit, goes there.
    pub fn send(&mut self, piece: &Piece) {
        self.sent = piece.end;
    }

    /// Whether all that was put there is known to be consumed.
    pub fn is_empty(&self) -> bool {
        self.consumed == self.sent
    }

    /// The peer's report of consumption. Whether it exceeds the last one.
    pub fn acknowledged(&mut self, told: Low) -> Result<bool, RingError> {
        let unit = u64::from(FRAME_ALIGN);
        let end = told.forward(self.consumed / unit, self.sent / unit)? * unit;
        let more = end > self.consumed;
        self.consumed = end;
        Ok(more)
    }
}

/// The end that takes them out.
#[derive(Debug)]
pub struct ZoneReceiver {
    zone: Zone,
    received: u64,
    consumed: u64,
    told: u64,
}

impl ZoneReceiver {
    /// Of a zone that nothing has gone through.
    pub fn new(zone: Zone) -> Self {
        ZoneReceiver { zone, received: 0, consumed: 0, told: 0 }
    }

    /// A piece of this length is there.
    pub fn arrived(&mut self, length: u32) -> Result<Piece, RingError> {
        if !(PIECE_BYTES_MIN..=self.zone.piece_bytes_max()).contains(&length) {
            return Err(RingError::Zones);
        }
        let (offset, end) = place(self.zone.bytes, self.received, length);
        if end - self.told > u64::from(self.zone.bytes) {
            return Err(RingError::Overrun);
        }
        self.received = end;
        Ok(Piece { offset, length, end })
    }

    /// The piece is consumed. Called piece by piece in order.
    pub fn consumed(&mut self, piece: &Piece) {
        self.consumed = piece.end;
    }

    /// Whether the peer should get credit.
    pub fn owes_credit(&self) -> bool {
        self.consumed - self.told >= u64::from(self.zone.bytes / PART)
    }

    /// The immediate with the credit.
    pub fn tell(&mut self) -> Immediate {
        self.told = self.consumed;
        Immediate::done(self.told / u64::from(FRAME_ALIGN))
    }
}
