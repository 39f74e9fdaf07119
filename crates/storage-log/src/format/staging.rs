//! The staging file: a header, then entries. An entry has bytes of the user stream and their place in the log.

use super::{get_u32, get_u64, put_u32, put_u64};

/// Entries begin at multiples of this.
pub const STAGED_ALIGN: usize = 64;
/// Bytes of an entry before those of the log.
pub const STAGED_HEADER_BYTES: usize = 32;

/// Most bytes of the log that an entry has.
pub const STAGED_BYTES_MAX: usize = 64 << 10;
/// Bytes of the file before its first entry.
pub const STAGING_HEADER_BYTES: usize = STAGED_ALIGN;

const MAGIC: u32 = u32::from_le_bytes(*b"STGD");
const FILE_MAGIC: &[u8; 8] = b"KAURISTG";

/// The place of an entry's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StagedAt {
    /// The segment's number.
    pub segment: u32,
    /// Its epoch.
    pub epoch: u64,
    /// The offset in it.
    pub offset: u32,
}

/// Binds entries to their file, so that no other bytes are taken for an entry, not even those of a user's document.
#[derive(Clone, Copy)]
pub struct StagedSeed(u32);

impl StagedSeed {
    /// For the file of the directory of this id, with a number that is secret.
    pub fn new(directory: &[u8; 16], number: u64) -> Self {
        StagedSeed(crc32c::crc32c_append(crc32c::crc32c(directory), &number.to_le_bytes()))
    }

    /// The file's header, with the number.
    pub fn header(directory: &[u8; 16], number: u64) -> [u8; STAGING_HEADER_BYTES] {
        let mut header = [0; STAGING_HEADER_BYTES];
        header[..8].copy_from_slice(FILE_MAGIC);
        header[8..24].copy_from_slice(directory);
        put_u64(&mut header, 24, number);
        header
    }

    /// The seed of a file of this directory. Its header was durable before its first entry.
    pub fn of_file(file: &[u8], directory: &[u8; 16]) -> Option<Self> {
        let header = file.get(..STAGING_HEADER_BYTES)?;
        let mine = header[..8] == FILE_MAGIC[..] && header[8..24] == directory[..];
        mine.then(|| StagedSeed::new(directory, get_u64(header, 24)))
    }
}

impl StagedAt {
    /// The header of an entry of these bytes.
    #[inline]
    pub fn encode(&self, seed: StagedSeed, bytes: &[u8]) -> [u8; STAGED_HEADER_BYTES] {
        let mut header = [0; STAGED_HEADER_BYTES];
        put_u32(&mut header, 0, MAGIC);
        put_u64(&mut header, 8, self.epoch);
        put_u32(&mut header, 16, self.segment);
        put_u32(&mut header, 20, self.offset);
        put_u32(&mut header, 24, bytes.len() as u32);
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(seed.0, &header[8..]), bytes);
        put_u32(&mut header, 4, crc);
        header
    }

    /// The entry that these bytes begin with, if they do. `check` is false only in tests that show what the
    /// CRC is for.
    pub fn decode(file: &[u8], seed: StagedSeed, check: bool) -> Option<(StagedAt, &[u8])> {
        let (header, rest) = file.split_at_checked(STAGED_HEADER_BYTES)?;
        if get_u32(header, 0) != MAGIC {
            return None;
        }
        let len = get_u32(header, 24) as usize;
        let bytes = rest.get(..len).filter(|_| len <= STAGED_BYTES_MAX)?;
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(seed.0, &header[8..]), bytes);
        if check && get_u32(header, 4) != crc {
            return None;
        }
        let epoch = get_u64(header, 8);
        Some((StagedAt { segment: get_u32(header, 16), epoch, offset: get_u32(header, 20) }, bytes))
    }

    /// All entries of a staging file, wherever they begin: older ones may be there in part.
    pub fn all(file: &[u8], seed: StagedSeed, check: bool) -> Vec<(StagedAt, &[u8])> {
        let (mut entries, mut at) = (Vec::new(), STAGING_HEADER_BYTES);
        while let Some(rest) = file.get(at..).filter(|rest| !rest.is_empty()) {
            let entry = StagedAt::decode(rest, seed, check);
            let bytes = entry.map_or(1, |(_, bytes)| STAGED_HEADER_BYTES + bytes.len());
            at += bytes.next_multiple_of(STAGED_ALIGN);
            entries.extend(entry);
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_whole_or_not_at_all() {
        let seed = StagedSeed::new(&[7; 16], 5);
        let at = StagedAt { segment: 3, epoch: 9, offset: 4096 };
        let mut file = vec![0; 512];
        file[128..160].copy_from_slice(&at.encode(seed, b"of the log"));
        file[160..170].copy_from_slice(b"of the log");
        assert_eq!(StagedAt::all(&file, seed, true), [(at, &b"of the log"[..])]);
        assert_eq!(StagedAt::all(&file, StagedSeed::new(&[7; 16], 6), true), []);
        for bit in (128 * 8..170 * 8).filter(|bit| !(156 * 8..160 * 8).contains(bit)) {
            let mut torn = file.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(StagedAt::all(&torn, seed, true), [], "bit {bit}");
        }
        let long = StagedAt::decode(&file[128..169], seed, true);
        assert_eq!(long, None, "bytes that are not there");
    }
}
