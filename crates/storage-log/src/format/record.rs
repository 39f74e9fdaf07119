//! Record headers and the commit record's payload.

use super::{
    RECORD_ALIGN, RECORD_HEADER_BYTES, SEGMENT_BYTES_MAX, get_u32, get_u64, put_u32, put_u64,
};

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A document.
    Put = 1,
    /// A record's end.
    Tombstone = 3,
    /// The end of a unit of several records.
    Commit = 4,
    /// A record store begins.
    CreateStore = 5,
    /// A record store and all its records end.
    DropStore = 6,
    /// Nothing follows in this segment.
    End = 7,
    /// A horizon.
    Mark = 8,
    /// Entries of an index image.
    Image = 9,
    /// The end of an index image.
    ImageEnd = 10,
    /// A document of a pending unit.
    PendingPut = 11,
    /// A record's end in a pending unit.
    PendingTombstone = 12,
    /// The end of a pending unit.
    PendingCommit = 13,
    /// Which pending units have been committed, and which never were.
    Resolution = 14,
    /// The end of an entry of a replicated log: all units since the previous frame are the entry's.
    Frame = 15,
}

impl Kind {
    /// The kind of this number, if this version knows it.
    #[inline]
    pub fn from_number(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Put,
            3 => Kind::Tombstone,
            4 => Kind::Commit,
            5 => Kind::CreateStore,
            6 => Kind::DropStore,
            7 => Kind::End,
            8 => Kind::Mark,
            9 => Kind::Image,
            10 => Kind::ImageEnd,
            11 => Kind::PendingPut,
            12 => Kind::PendingTombstone,
            13 => Kind::PendingCommit,
            14 => Kind::Resolution,
            15 => Kind::Frame,
            _ => return None,
        })
    }

    /// The same in a pending unit.
    pub fn pending(self) -> Kind {
        match self {
            Kind::Put => Kind::PendingPut,
            Kind::Tombstone => Kind::PendingTombstone,
            Kind::Commit => Kind::PendingCommit,
            kind => kind,
        }
    }

    /// Whether a segment with such a record has information about pending units.
    pub fn is_of_pending(self) -> bool {
        use Kind::{PendingCommit, PendingPut, PendingTombstone, Resolution};
        matches!(self, PendingPut | PendingTombstone | PendingCommit | Resolution)
    }

    /// Whether it belongs to a unit (and counts in its commit record).
    pub fn is_member(self) -> bool {
        matches!(self, Kind::Put | Kind::Tombstone | Kind::CreateStore | Kind::DropStore)
    }
}

/// The record is a unit of its own.
pub const FLAG_ALONE: u8 = 1;
/// The record is the cleaner's copy; its unit was durable.
pub const FLAG_MOVED: u8 = 2;
/// The record is in the stream of records that have not changed for long; stored here in case the segment header is
/// lost.
pub const FLAG_OLD: u8 = 4;

/// Flags have 6 bits, between the kind and the commit sequence.
const FLAGS_SHIFT: u32 = 50;
const FLAGS_MAX: u64 = (1 << 6) - 1;
const KIND_SHIFT: u32 = 56;
/// Largest commit sequence: 50 bits.
pub const SEQ_MAX: u64 = (1 << FLAGS_SHIFT) - 1;

/// Binds the CRCs of a segment's records to it and to its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(u32);

impl Seed {
    /// The seed of a segment in an epoch.
    pub fn new(segment: u32, epoch: u64) -> Seed {
        let mut bytes = [0; 12];
        put_u32(&mut bytes, 0, segment);
        put_u64(&mut bytes, 4, epoch);
        Seed(crc32c::crc32c(&bytes))
    }
}

/// A record's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// The kind of the record.
    pub kind: Kind,
    /// `FLAG_…`.
    pub flags: u8,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// The payload's CRC.
    pub payload_crc: u32,
    /// The collection; 0 where there is none.
    pub collection: u32,
    /// The record id; 0 where there is none.
    pub record: u64,
    /// The commit sequence.
    pub seq: u64,
}

/// A header's bytes.
pub type HeaderBytes = [u8; RECORD_HEADER_BYTES as usize];

impl RecordHeader {
    /// The bytes for a place in the log, and the CRC among them.
    #[inline]
    pub fn encode(&self, seed: Seed, offset: u32) -> (HeaderBytes, u32) {
        let mut bytes = [0; RECORD_HEADER_BYTES as usize];
        put_u32(&mut bytes, 4, self.payload_len);
        put_u32(&mut bytes, 8, self.payload_crc);
        put_u32(&mut bytes, 12, self.collection);
        put_u64(&mut bytes, 16, self.record);
        let (kind, flags) = (u64::from(self.kind as u8), u64::from(self.flags));
        put_u64(&mut bytes, 24, kind << KIND_SHIFT | flags << FLAGS_SHIFT | self.seq);
        let crc = crc32c::crc32c_append(seed.0 ^ offset, &bytes[4..]);
        put_u32(&mut bytes, 0, crc);
        (bytes, crc)
    }

    /// The header at a place in the log, if its CRC is right. Also its CRC.
    pub fn decode(bytes: &HeaderBytes, seed: Seed, offset: u32) -> Option<(RecordHeader, u32)> {
        let crc = crc32c::crc32c_append(seed.0 ^ offset, &bytes[4..]);
        if crc != get_u32(bytes, 0) {
            return None;
        }
        Some((Self::decode_checked(bytes)?, crc))
    }

    /// The header at a place in the log if just one of its bits is wrong.
    pub fn decode_but_one_bit(
        bytes: &HeaderBytes,
        seed: Seed,
        offset: u32,
    ) -> Option<RecordHeader> {
        (0..8 * bytes.len()).find_map(|bit| {
            let mut bytes = *bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            RecordHeader::decode(&bytes, seed, offset).map(|(header, _)| header)
        })
    }

    /// The header of bytes whose CRC has been found right before. `None` for a kind that this version does not know, and
    /// for a payload that no segment has room for.
    #[inline]
    pub fn decode_checked(bytes: &HeaderBytes) -> Option<RecordHeader> {
        let (seq, payload_len) = (get_u64(bytes, 24), get_u32(bytes, 4));
        if payload_len >= SEGMENT_BYTES_MAX {
            return None;
        }
        Some(RecordHeader {
            kind: Kind::from_number((seq >> KIND_SHIFT) as u8)?,
            flags: (seq >> FLAGS_SHIFT & FLAGS_MAX) as u8,
            payload_len,
            payload_crc: get_u32(bytes, 8),
            collection: get_u32(bytes, 12),
            record: get_u64(bytes, 16),
            seq: seq & SEQ_MAX,
        })
    }

    /// Bytes of the record in the log.
    #[inline]
    pub fn record_bytes(&self) -> u32 {
        record_bytes(self.payload_len)
    }
}

/// Bytes in the log of a record with a payload of this length.
#[inline]
pub fn record_bytes(payload_len: u32) -> u32 {
    RECORD_HEADER_BYTES + payload_len.next_multiple_of(RECORD_ALIGN)
}

/// The payload of a commit record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitPayload {
    /// Records of the unit.
    pub count: u32,
    /// The CRC of their header CRCs.
    pub crc: u32,
    /// Of a pending unit, its position in the replicated log; else 0.
    pub term: u64,
    /// See `term`.
    pub index: u64,
}

/// Bytes of a commit record's payload.
pub const COMMIT_PAYLOAD_BYTES: u32 = 24;

impl CommitPayload {
    /// The bytes.
    pub fn encode(&self) -> [u8; COMMIT_PAYLOAD_BYTES as usize] {
        let mut bytes = [0; COMMIT_PAYLOAD_BYTES as usize];
        put_u32(&mut bytes, 0, self.count);
        put_u32(&mut bytes, 4, self.crc);
        put_u64(&mut bytes, 8, self.term);
        put_u64(&mut bytes, 16, self.index);
        bytes
    }

    /// From a payload whose CRC is right.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == COMMIT_PAYLOAD_BYTES as usize).then(|| CommitPayload {
            count: get_u32(bytes, 0),
            crc: get_u32(bytes, 4),
            term: get_u64(bytes, 8),
            index: get_u64(bytes, 16),
        })
    }
}

/// Adds a record's header CRC to the CRC of its unit (which begins with 0).
#[inline]
pub fn unit_crc(unit: u32, header_crc: u32) -> u32 {
    crc32c::crc32c_append(unit, &header_crc.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        RecordHeader {
            kind: Kind::Put,
            flags: FLAG_ALONE,
            payload_len: 1027,
            payload_crc: 0x1234_5678,
            collection: 7,
            record: 1 << 40,
            seq: SEQ_MAX - 1,
        }
    }

    #[test]
    fn a_header_is_read_back_at_its_place_only() {
        let seed = Seed::new(3, 9);
        let (bytes, crc) = header().encode(seed, 4096);
        assert_eq!(RecordHeader::decode(&bytes, seed, 4096), Some((header(), crc)));
        assert_eq!(RecordHeader::decode(&bytes, seed, 4104), None);
        assert_eq!(RecordHeader::decode(&bytes, Seed::new(3, 10), 4096), None);
        assert_eq!(RecordHeader::decode(&bytes, Seed::new(4, 9), 4096), None);
        assert_eq!(header().record_bytes(), 32 + 1032);
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_found() {
        let seed = Seed::new(3, 9);
        let (bytes, _) = header().encode(seed, 4096);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&damaged, seed, 4096), None, "bit {bit}");
        }
    }
}
