//! The metadata file.

use super::segment::{HORIZON_BYTES, Horizon, Position, decode_positions, encode_positions};
use super::{
    ENGINE_NAME, FORMAT_VERSION, MARK_FILE_LEFT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, STREAMS_MAX,
    Stream, get_u32, get_u64, put_u32, put_u64,
};
use std::fmt;

const MAGIC: &[u8; 8] = b"KAURIDIR";
const HORIZON_AT: usize = 64;
const CUTS_AT: usize = HORIZON_AT + HORIZON_BYTES + 8;
const CUT_BYTES: usize = 16 + 16 * STREAMS_MAX;
/// The second copy begins at a multiple of this.
const COPY_ALIGN: usize = 4096;

/// The place at which a recovery ended the log. See the format's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Segments opened after the cut have this epoch or a later one.
    pub epoch_next: u64,
    /// The last commit that was kept.
    pub seq: u64,
    /// The end of each stream.
    pub streams: [Position; STREAMS_MAX],
}

/// The metadata file's contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// The directory's id.
    pub directory: [u8; 16],
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Whether the last shutdown was clean.
    pub clean: bool,
    /// The epoch of the next segment that is opened, at least.
    pub epoch_next: u64,
    /// The durable horizon.
    pub horizon: Horizon,
    /// Whether there is a mark file.
    pub marks: bool,
    /// Oldest first.
    pub cuts: Vec<Cut>,
}

/// Why a metadata file can't be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MetaError {
    /// Not a metadata file, or damaged.
    Damaged,
    /// Another format version.
    Version(u32),
    /// Another engine.
    Engine(String),
}

impl fmt::Display for MetaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetaError::Damaged => write!(
                f,
                "kauri.meta is damaged; restore the directory from a backup, or copy an intact \
                 kauri.meta of this directory back. {MARK_FILE_LEFT}"
            ),
            MetaError::Version(version) => write!(
                f,
                "the directory has format version {version}, this server reads and writes version \
                 {FORMAT_VERSION} only; dump the data with the version that wrote it (mongodump) \
                 and restore it here (mongorestore)"
            ),
            MetaError::Engine(name) => write!(
                f,
                "the directory was written by the storage engine {name}; start with \
                 --storageEngine {name}, or use another --dbpath"
            ),
        }
    }
}

impl Meta {
    /// The file's bytes: the contents twice, the second time at a multiple of 4096.
    pub fn encode(&self) -> Vec<u8> {
        let contents = self.encode_contents();
        let mut bytes = contents.clone();
        bytes.resize(contents.len().next_multiple_of(COPY_ALIGN), 0);
        bytes.extend_from_slice(&contents);
        bytes
    }

    fn encode_contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; CUTS_AT + CUT_BYTES * self.cuts.len()];
        bytes[..8].copy_from_slice(MAGIC);
        put_u32(&mut bytes, 12, FORMAT_VERSION);
        bytes[16..16 + ENGINE_NAME.len()].copy_from_slice(ENGINE_NAME.as_bytes());
        bytes[32..48].copy_from_slice(&self.directory);
        put_u32(&mut bytes, 48, self.segment_bytes);
        put_u32(&mut bytes, 52, u32::from(self.clean));
        put_u64(&mut bytes, 56, self.epoch_next);
        bytes[HORIZON_AT..HORIZON_AT + HORIZON_BYTES].copy_from_slice(&self.horizon.encode());
        put_u32(&mut bytes, CUTS_AT - 8, self.cuts.len() as u32);
        put_u32(&mut bytes, CUTS_AT - 4, u32::from(self.marks));
        for (i, cut) in self.cuts.iter().enumerate() {
            let at = CUTS_AT + i * CUT_BYTES;
            put_u64(&mut bytes, at, cut.epoch_next);
            put_u64(&mut bytes, at + 8, cut.seq);
            encode_positions(&cut.streams, &mut bytes[at + 16..at + CUT_BYTES]);
        }
        let crc = crc32c::crc32c(&bytes[12..]);
        put_u32(&mut bytes, 8, crc);
        bytes
    }

    /// From the file's bytes: from the second copy if the first is damaged. `check` is false only in
    /// tests that show what the CRC is for.
    pub fn decode(bytes: &[u8], check: bool) -> Result<Meta, MetaError> {
        let second_at = bytes.len().div_ceil(2).next_multiple_of(COPY_ALIGN);
        let second = bytes.get(second_at..).unwrap_or_default();
        let first = bytes.get(..second.len()).unwrap_or_default();
        match Self::decode_contents(first, check) {
            Err(MetaError::Damaged) => Self::decode_contents(second, check),
            result => result,
        }
    }

    fn decode_contents(bytes: &[u8], check: bool) -> Result<Meta, MetaError> {
        if bytes.get(..8) != Some(MAGIC) || bytes.len() < 32 {
            return Err(MetaError::Damaged);
        }
        if check && get_u32(bytes, 8) != crc32c::crc32c(&bytes[12..]) {
            return Err(MetaError::Damaged);
        }
        let name = bytes[16..32].split(|b| *b == 0).next().unwrap_or_default();
        if name != ENGINE_NAME.as_bytes() {
            return Err(MetaError::Engine(String::from_utf8_lossy(name).into_owned()));
        }
        let version = get_u32(bytes, 12);
        if version != FORMAT_VERSION {
            return Err(MetaError::Version(version));
        }
        Self::decode_fields(bytes).ok_or(MetaError::Damaged)
    }

    fn decode_fields(bytes: &[u8]) -> Option<Meta> {
        let count = get_u32(bytes.get(..CUTS_AT)?, CUTS_AT - 8) as usize;
        let mut cuts = Vec::new();
        let mut rest = &bytes[CUTS_AT..];
        for _ in 0..count {
            let (cut, tail) = rest.split_at_checked(CUT_BYTES)?;
            rest = tail;
            cuts.push(Cut {
                epoch_next: get_u64(cut, 0),
                seq: get_u64(cut, 8),
                streams: decode_positions(&cut[16..]),
            });
        }
        let segment_bytes = get_u32(bytes, 48);
        let valid = rest.is_empty()
            && cuts.is_sorted_by(|a, b| a.epoch_next < b.epoch_next)
            && segment_bytes.is_power_of_two()
            && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes);
        if !valid {
            return None;
        }
        Some(Meta {
            directory: *bytes[32..].first_chunk()?,
            segment_bytes,
            clean: get_u32(bytes, 52) == 1,
            epoch_next: get_u64(bytes, 56),
            horizon: Horizon::decode(bytes.get(HORIZON_AT..HORIZON_AT + HORIZON_BYTES)?)?,
            marks: get_u32(bytes, CUTS_AT - 4) & 1 != 0,
            cuts,
        })
    }

    /// The first epoch after the newest cut.
    pub fn last_cut(&self) -> u64 {
        self.cuts.last().map_or(0, |cut| cut.epoch_next)
    }

    /// The cuts behind this epoch. A later one may end the log before an earlier one's end.
    fn cuts_after(&self, epoch: u64) -> impl Iterator<Item = &Cut> {
        self.cuts.iter().filter(move |cut| epoch < cut.epoch_next)
    }

    /// Of the cuts behind this epoch the one that keeps least.
    pub fn cut_after(&self, epoch: u64) -> Option<&Cut> {
        self.cuts_after(epoch).min_by_key(|cut| cut.seq)
    }

    /// The end of the segment of this epoch by the cuts: `None` if no cut covers it, otherwise the cut's first
    /// epoch and the offset after the segment's last record (0 if it has none).
    pub fn cut_of(&self, stream: Stream, epoch: u64) -> Option<(u64, u32)> {
        let end = |cut: &Cut| {
            let last = *cut.streams.get(stream as usize)?;
            match epoch.cmp(&last.epoch) {
                std::cmp::Ordering::Less => None,
                std::cmp::Ordering::Equal => Some((cut.epoch_next, last.offset)),
                std::cmp::Ordering::Greater => Some((cut.epoch_next, 0)),
            }
        };
        self.cuts_after(epoch).filter_map(end).min_by_key(|(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        let mut cut = Cut { epoch_next: 10, seq: 5, streams: Default::default() };
        cut.streams[0] = Position { epoch: 7, offset: 6000 };
        let mut later = Cut { epoch_next: 20, seq: 50, ..cut };
        later.streams[0] = Position { epoch: 12, offset: 7000 };
        Meta {
            directory: [3; 16],
            segment_bytes: 1 << 20,
            clean: true,
            epoch_next: 20,
            horizon: Horizon { seq: 50, segments: 9, ..Horizon::default() },
            marks: true,
            cuts: vec![cut, later],
        }
    }

    #[test]
    fn it_is_read_back_and_damage_is_noticed() {
        let contents = meta().encode_contents();
        assert_eq!(Meta::decode(&meta().encode(), true), Ok(meta()));
        for bit in 0..contents.len() * 8 {
            let mut damaged = contents.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let decoded = Meta::decode_contents(&damaged, true);
            assert_eq!(decoded, Err(MetaError::Damaged), "bit {bit}");
        }
        for length in 0..contents.len() {
            assert!(Meta::decode_contents(&contents[..length], false).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn either_copy_is_enough() {
        let many = Meta { cuts: vec![], ..meta() };
        let streams = meta().cuts[0].streams;
        for cuts in [0, 2, 60, 150] {
            let cuts = (0..cuts).map(|n| Cut { epoch_next: n, seq: n, streams }).collect();
            let meta = Meta { cuts, ..many.clone() };
            let bytes = meta.encode();
            for at in [20, bytes.len() - 20] {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert_eq!(Meta::decode(&damaged, true).as_ref(), Ok(&meta));
            }
            for length in 0..bytes.len() {
                assert_ne!(Meta::decode(&bytes[..length], true).as_ref(), Ok(&many));
            }
        }
    }

    #[test]
    fn other_engines_and_versions_are_named() {
        let mut bytes = meta().encode_contents();
        put_u32(&mut bytes, 12, FORMAT_VERSION + 1);
        let other = MetaError::Version(FORMAT_VERSION + 1);
        assert_eq!(Meta::decode_contents(&bytes, false), Err(other));
        bytes[16..21].copy_from_slice(b"other");
        let other = MetaError::Engine("other".to_owned());
        assert_eq!(Meta::decode_contents(&bytes, false), Err(other));
    }

    #[test]
    fn cuts_say_where_segments_end() {
        let meta = meta();
        assert_eq!(meta.cut_of(Stream::User, 6), None);
        assert_eq!(meta.cut_of(Stream::User, 7), Some((10, 6000)));
        assert_eq!(meta.cut_of(Stream::User, 8), Some((10, 0)));
        assert_eq!(meta.cut_of(Stream::User, 11), None);
        assert_eq!(meta.cut_of(Stream::User, 12), Some((20, 7000)));
        assert_eq!(meta.cut_of(Stream::User, 19), Some((20, 0)));
        assert_eq!(meta.cut_of(Stream::User, 20), None);
        assert_eq!(meta.cut_of(Stream::Cleaner, 8), Some((10, 0)));
        // Frames behind the first cut, and some before it, were cut off.
        let mut meta = meta;
        meta.cuts[1] = Cut { seq: 4, ..meta.cuts[1] };
        meta.cuts[1].streams[0] = Position { epoch: 7, offset: 5000 };
        assert_eq!(meta.cut_of(Stream::User, 6), None);
        assert_eq!(meta.cut_of(Stream::User, 7), Some((20, 5000)));
        assert_eq!(meta.cut_of(Stream::User, 12), Some((20, 0)));
        assert_eq!(meta.cut_after(7).map(|cut| cut.seq), Some(4));
    }
}
