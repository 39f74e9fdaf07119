//! Segment headers, trailers, and the horizon that headers carry.

use super::{
    SEGMENT_HEADER_BYTES, STREAMS_MAX, Stream, TIERS_MAX, TRAILER_BYTES, get_u32, get_u64, put_u32,
    put_u64,
};

use kauri_storage::LogPosition;

const HEADER_MAGIC: &[u8; 8] = b"KAURISEG";
const TRAILER_MAGIC: &[u8; 8] = b"KAURISUM";
/// End of the header bytes that the CRC covers; the rest is unused.
pub const HEADER_END: usize = HORIZON_AT + HORIZON_BYTES;
const HORIZON_AT: usize = 112;
/// Offset of a header's second copy: in another sector, in case one is damaged.
pub const HEADER_COPY_AT: usize = 2048;
/// Bytes of a horizon.
pub const HORIZON_BYTES: usize = STREAMS_AT + 16 * STREAMS_MAX;
const PURGED_AT: usize = 16 + 4 * TIERS_MAX;
const COMMITTED_AT: usize = PURGED_AT - 8;
const STREAMS_AT: usize = PURGED_AT + 24;

/// A place in a stream: in the segment of this epoch at this offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// The segment's epoch.
    pub epoch: u64,
    /// The offset in it.
    pub offset: u32,
}

/// A place in each of [`Stream::CLEANER`].
pub type CleanerPositions = [Position; Stream::CLEANER.len()];

/// Up to where frames of the replicated log may be gone; its index is 0 where there is no such log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Purged {
    /// The last of these frames, or the position that the log began with.
    pub position: LogPosition,
    /// The last commit that belongs to none of the frames that are left.
    pub seq: u64,
}

/// The durable horizon. See the format's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Horizon {
    /// Every unit up to this one.
    pub seq: u64,
    /// All segments below this number have had a durable header.
    pub segments: u32,
    /// Frames of the replicated log up to this commit were durable on a quorum; 0 where that is not known.
    pub committed: u64,
    /// Frames of the replicated log up to this one may be gone.
    pub purged: Purged,
    /// Everything before this, for each stream.
    pub streams: [Position; STREAMS_MAX],
}

impl Horizon {
    /// The position of a stream.
    pub fn stream(&self, stream: Stream) -> Position {
        self.streams.get(stream as usize).copied().unwrap_or_default()
    }

    /// Raises the position of a stream.
    pub fn raise_stream(&mut self, stream: Stream, position: Position) {
        if let Some(mine) = self.streams.get_mut(stream as usize) {
            *mine = (*mine).max(position);
        }
    }

    /// Raises the positions of the cleaner's streams.
    pub fn raise_cleaner(&mut self, positions: &CleanerPositions) {
        for (stream, position) in Stream::CLEANER.into_iter().zip(positions) {
            self.raise_stream(stream, *position);
        }
    }

    /// Raises the position up to which frames may be gone. The end of the replicated log is position 0 at a later commit,
    /// and another one begins at a later commit, too, or at the same.
    pub fn raise_purged(&mut self, purged: Purged) {
        let order = |of: &Purged| (of.seq, of.position.index);
        if order(&purged) > order(&self.purged) {
            self.purged = purged;
        }
    }

    /// The last commit that a start applies of a log that ends with commit `last`: without frames that one. What may
    /// be purged is committed.
    pub fn applied(&self, last: u64) -> u64 {
        match self.purged.position.index {
            0 => last,
            _ => self.committed.max(self.purged.seq).min(last),
        }
    }

    /// The positions of the cleaner's streams.
    pub fn cleaner(&self) -> CleanerPositions {
        Stream::CLEANER.map(|stream| self.stream(stream))
    }

    /// Raises it to the other one, part by part.
    pub fn raise(&mut self, other: &Horizon) {
        self.seq = self.seq.max(other.seq);
        self.segments = self.segments.max(other.segments);
        self.committed = self.committed.max(other.committed);
        self.raise_purged(other.purged);
        for (mine, theirs) in self.streams.iter_mut().zip(&other.streams) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; HORIZON_BYTES] {
        let mut bytes = [0; HORIZON_BYTES];
        put_u64(&mut bytes, 0, self.seq);
        put_u32(&mut bytes, 8, self.segments);
        put_u64(&mut bytes, COMMITTED_AT, self.committed);
        put_u64(&mut bytes, PURGED_AT, self.purged.position.term);
        put_u64(&mut bytes, PURGED_AT + 8, self.purged.position.index);
        put_u64(&mut bytes, PURGED_AT + 16, self.purged.seq);
        encode_positions(&self.streams, &mut bytes[STREAMS_AT..]);
        bytes
    }

    /// From bytes that a CRC covers.
    pub fn decode(bytes: &[u8]) -> Option<Horizon> {
        (bytes.len() == HORIZON_BYTES).then(|| Horizon {
            seq: get_u64(bytes, 0),
            segments: get_u32(bytes, 8),
            committed: get_u64(bytes, COMMITTED_AT),
            purged: Purged {
                position: LogPosition {
                    term: get_u64(bytes, PURGED_AT),
                    index: get_u64(bytes, PURGED_AT + 8),
                },
                seq: get_u64(bytes, PURGED_AT + 16),
            },
            streams: decode_positions(&bytes[STREAMS_AT..]),
        })
    }
}

pub(super) fn encode_positions(positions: &[Position; STREAMS_MAX], bytes: &mut [u8]) {
    for (i, position) in positions.iter().enumerate() {
        put_u64(bytes, i * 16, position.epoch);
        put_u32(bytes, i * 16 + 8, position.offset);
    }
}

pub(super) fn decode_positions(bytes: &[u8]) -> [Position; STREAMS_MAX] {
    std::array::from_fn(|i| Position {
        epoch: get_u64(bytes, i * 16),
        offset: get_u32(bytes, i * 16 + 8),
    })
}

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The segment's number.
    pub segment: u32,
    /// Its epoch.
    pub epoch: u64,
    /// The directory's id.
    pub directory: [u8; 16],
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Who wrote it.
    pub stream: Stream,
    /// The horizon when the segment was opened.
    pub horizon: Horizon,
}

impl SegmentHeader {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SEGMENT_HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(HEADER_MAGIC);
        put_u32(&mut bytes, 12, self.segment);
        put_u64(&mut bytes, 16, self.epoch);
        bytes[24..40].copy_from_slice(&self.directory);
        put_u32(&mut bytes, 40, self.segment_bytes);
        put_u32(&mut bytes, 44, self.stream as u32);
        bytes[HORIZON_AT..HEADER_END].copy_from_slice(&self.horizon.encode());
        let crc = crc32c::crc32c(&bytes[12..HEADER_END]);
        put_u32(&mut bytes, 8, crc);
        bytes.copy_within(..HEADER_END, HEADER_COPY_AT);
        bytes
    }

    /// The header in these bytes, if they hold one. `check` is false only in tests that show what the
    /// CRC is for.
    pub fn decode(bytes: &[u8], check: bool) -> Option<SegmentHeader> {
        let bytes = bytes.get(..HEADER_END)?;
        if bytes[..8] != HEADER_MAGIC[..] {
            return None;
        }
        if check && get_u32(bytes, 8) != crc32c::crc32c(&bytes[12..]) {
            return None;
        }
        Some(SegmentHeader {
            segment: get_u32(bytes, 12),
            epoch: get_u64(bytes, 16),
            directory: *bytes[24..].first_chunk()?,
            segment_bytes: get_u32(bytes, 40),
            stream: Stream::from_number(get_u32(bytes, 44))?,
            horizon: Horizon::decode(&bytes[HORIZON_AT..])?,
        })
    }
}

/// The trailer of a sealed segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// The segment's number.
    pub segment: u32,
    /// Its epoch.
    pub epoch: u64,
    /// Where the records end.
    pub records_end: u32,
    /// Where the summary begins.
    pub summary_offset: u32,
    /// Its length.
    pub summary_bytes: u32,
    /// Its CRC.
    pub summary_crc: u32,
    /// Its entries.
    pub entries: u32,
    /// Whether there are records of pending units, or resolutions, among them.
    pub has_pending: bool,
    /// Lowest commit sequence.
    pub seq_min: u64,
    /// Highest commit sequence.
    pub seq_max: u64,
}

impl Trailer {
    /// The bytes.
    pub fn encode(&self) -> [u8; TRAILER_BYTES as usize] {
        let mut bytes = [0; TRAILER_BYTES as usize];
        bytes[..8].copy_from_slice(TRAILER_MAGIC);
        put_u32(&mut bytes, 12, self.segment);
        put_u64(&mut bytes, 16, self.epoch);
        put_u32(&mut bytes, 24, self.records_end);
        put_u32(&mut bytes, 28, self.summary_offset);
        put_u32(&mut bytes, 32, self.summary_bytes);
        put_u32(&mut bytes, 36, self.summary_crc);
        put_u32(&mut bytes, 40, self.entries);
        put_u32(&mut bytes, 44, u32::from(self.has_pending));
        put_u64(&mut bytes, 48, self.seq_min);
        put_u64(&mut bytes, 56, self.seq_max);
        let crc = crc32c::crc32c(&bytes[12..]);
        put_u32(&mut bytes, 8, crc);
        bytes
    }

    /// The trailer in these bytes, if they have one and it is within the segment. Without `check` its CRC is
    /// ignored: for tests only.
    pub fn decode(bytes: &[u8], segment_bytes: u32, check: bool) -> Option<Trailer> {
        if bytes.len() != TRAILER_BYTES as usize || bytes[..8] != TRAILER_MAGIC[..] {
            return None;
        }
        if check && get_u32(bytes, 8) != crc32c::crc32c(&bytes[12..]) {
            return None;
        }
        let trailer = Trailer {
            segment: get_u32(bytes, 12),
            epoch: get_u64(bytes, 16),
            records_end: get_u32(bytes, 24),
            summary_offset: get_u32(bytes, 28),
            summary_bytes: get_u32(bytes, 32),
            summary_crc: get_u32(bytes, 36),
            entries: get_u32(bytes, 40),
            has_pending: get_u32(bytes, 44) & 1 != 0,
            seq_min: get_u64(bytes, 48),
            seq_max: get_u64(bytes, 56),
        };
        let end = u64::from(trailer.summary_offset) + u64::from(trailer.summary_bytes);
        let inside = trailer.records_end >= SEGMENT_HEADER_BYTES
            && trailer.records_end <= trailer.summary_offset
            && end <= u64::from(segment_bytes.saturating_sub(TRAILER_BYTES));
        inside.then_some(trailer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        let mut horizon = Horizon { seq: 77, segments: 4, ..Horizon::default() };
        horizon.streams[1] = Position { epoch: 5, offset: 8192 };
        SegmentHeader {
            segment: 3,
            epoch: 9,
            directory: [7; 16],
            segment_bytes: 1 << 20,
            stream: Stream::Cleaner,
            horizon,
        }
    }

    #[test]
    fn every_flipped_bit_of_a_segment_header_is_found() {
        let bytes = header().encode();
        assert_eq!(SegmentHeader::decode(&bytes, true), Some(header()));
        for bit in 0..HEADER_END * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&damaged, true), None, "bit {bit}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_trailer_is_found() {
        let trailer = Trailer {
            segment: 3,
            epoch: 9,
            records_end: 5000,
            summary_offset: 5000,
            summary_bytes: 100,
            summary_crc: 1,
            entries: 20,
            has_pending: true,
            seq_min: 3,
            seq_max: 30,
        };
        let bytes = trailer.encode();
        assert_eq!(Trailer::decode(&bytes, 1 << 16, true), Some(trailer));
        assert_eq!(Trailer::decode(&bytes, 5100, true), None);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::decode(&damaged, 1 << 16, true), None, "bit {bit}");
        }
    }

    #[test]
    fn a_horizon_is_raised_part_by_part() {
        let mut a = Horizon { seq: 5, segments: 1, ..Horizon::default() };
        a.streams[0] = Position { epoch: 2, offset: 100 };
        let purged = Purged { position: LogPosition { term: 4, index: 9 }, seq: 3 };
        let mut b = Horizon { seq: 3, segments: 2, committed: 3, purged, ..Horizon::default() };
        b.streams[0] = Position { epoch: 2, offset: 200 };
        a.raise(&b);
        assert_eq!((a.seq, a.segments, a.purged, a.streams[0].offset), (5, 2, purged, 200));
        assert_eq!((a.applied(9), a.applied(2), Horizon::default().applied(9)), (3, 2, 9));
        assert_eq!(Horizon::decode(&a.encode()), Some(a));
    }
}
