//! The mark file: the durable horizon and the epoch of each segment, updated in place.
//!
//! Two slots with one mark each, then an entry for each segment. A torn mark or entry is ignored: its CRC is bound
//! to the directory and, for an entry, to the segment.

use super::segment::{HORIZON_BYTES, Horizon};
use super::{get_u32, get_u64, put_u32, put_u64};

/// Slots of the file.
pub const MARK_SLOTS: usize = 2;
/// Alignment of slots: they share no page.
pub const MARK_SLOT_BYTES: usize = 4096;
/// Bytes of a mark in its slot.
pub const MARK_BYTES: usize = HORIZON_AT + HORIZON_BYTES;
/// The start of the segments' entries.
pub const MARK_EPOCHS_AT: usize = MARK_SLOTS * MARK_SLOT_BYTES;
/// Bytes of a segment's entry.
pub const MARK_EPOCH_BYTES: usize = 16;

const MAGIC: &[u8; 8] = b"KAURIMRK";
const HORIZON_AT: usize = 48;

/// The contents of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// Of two marks the one with the higher number is newer.
    pub number: u64,
    /// First epoch after the newest cut of the metadata file.
    pub cut: u64,
    /// The horizon.
    pub horizon: Horizon,
}

impl Mark {
    /// The bytes.
    pub fn encode(&self, directory: &[u8; 16]) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[16..32].copy_from_slice(directory);
        put_u64(&mut bytes, 32, self.number);
        put_u64(&mut bytes, 40, self.cut);
        bytes[HORIZON_AT..].copy_from_slice(&self.horizon.encode());
        let crc = crc32c::crc32c(&bytes[12..]);
        put_u32(&mut bytes, 8, crc);
        bytes
    }

    /// The mark in these bytes, if they hold one of this directory. `check` is false only in tests that show
    /// what the CRC is for.
    pub fn decode(bytes: &[u8], directory: &[u8; 16], check: bool) -> Option<Mark> {
        let bytes = bytes.get(..MARK_BYTES)?;
        if bytes[..8] != MAGIC[..] || bytes[16..32] != directory[..] {
            return None;
        }
        if check && get_u32(bytes, 8) != crc32c::crc32c(&bytes[12..]) {
            return None;
        }
        Some(Mark {
            number: get_u64(bytes, 32),
            cut: get_u64(bytes, 40),
            horizon: Horizon::decode(&bytes[HORIZON_AT..])?,
        })
    }
}

/// A segment's entry: the epoch that it was opened with last.
pub fn encode_epoch(directory: &[u8; 16], segment: u32, epoch: u64) -> [u8; MARK_EPOCH_BYTES] {
    let mut bytes = [0; MARK_EPOCH_BYTES];
    put_u64(&mut bytes, 0, epoch);
    put_u32(&mut bytes, 8, epoch_crc(directory, segment, epoch));
    bytes
}

/// The epoch of an entry, if it is whole. `check` as for [`Mark::decode`].
pub fn decode_epoch(bytes: &[u8], directory: &[u8; 16], segment: u32, check: bool) -> Option<u64> {
    let bytes: &[u8; MARK_EPOCH_BYTES] = bytes.first_chunk()?;
    let epoch = get_u64(bytes, 0);
    let whole = !check || get_u32(bytes, 8) == epoch_crc(directory, segment, epoch);
    (whole && epoch > 0).then_some(epoch)
}

fn epoch_crc(directory: &[u8; 16], segment: u32, epoch: u64) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(directory), &segment.to_le_bytes());
    crc32c::crc32c_append(crc, &epoch.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::Position;

    #[test]
    fn every_flipped_bit_of_a_mark_is_found() {
        let mut horizon = Horizon { seq: 9, segments: 3, ..Horizon::default() };
        horizon.streams[0] = Position { epoch: 7, offset: 4096 };
        let mark = Mark { number: 5, cut: 6, horizon };
        let bytes = mark.encode(&[3; 16]);
        assert_eq!(Mark::decode(&bytes, &[3; 16], true), Some(mark));
        assert_eq!(Mark::decode(&bytes, &[4; 16], false), None);
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(&damaged, &[3; 16], true), None, "bit {bit}");
        }
    }

    #[test]
    fn an_entry_is_its_segments_and_its_directorys() {
        let bytes = encode_epoch(&[3; 16], 8, 77);
        assert_eq!(decode_epoch(&bytes, &[3; 16], 8, true), Some(77));
        assert_eq!(decode_epoch(&bytes, &[3; 16], 9, true), None);
        assert_eq!(decode_epoch(&bytes, &[4; 16], 8, true), None);
        assert_eq!(decode_epoch(&[0; MARK_EPOCH_BYTES], &[3; 16], 8, false), None);
        for bit in 0..8 * 12 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_epoch(&damaged, &[3; 16], 8, true), None, "bit {bit}");
        }
    }
}
