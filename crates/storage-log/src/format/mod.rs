//! The on-media format: encoders and decoders of every structure in `docs/design/on-media-format.md`, which is the
//! reference. Pure functions from bytes to bytes.
//!
//! | module | holds |
//! |---|---|
//! | [`record`] | record headers, the commit record's payload |
//! | [`segment`] | segment headers and trailers, the horizon |
//! | [`summary`] | summaries |
//! | [`id`] | the `_id` of documents in them |
//! | [`resolution`] | outcomes of pending units |
//! | [`frame`] | entries of a replicated log |
//! | [`image`] | index images |
//! | [`staging`] | entries of the staging file |
//! | [`marks`] | the mark file |
//! | [`meta`] | the metadata file and its cuts |
//!
//! Invariant: decoders accept any bytes. They return `None` (or a [`meta::MetaError`]) for bytes that the encoders
//! did not write.

pub mod frame;
pub mod id;
pub mod image;
pub mod marks;
pub mod meta;
pub mod record;
pub mod resolution;
pub mod segment;
pub mod staging;
pub mod summary;

/// The version of the format that this code reads and writes.
pub const FORMAT_VERSION: u32 = 3;
/// The engine's name, in the metadata file and in `--storageEngine`.
pub const ENGINE_NAME: &str = "pmlog";
/// The metadata file.
pub const META_FILE: &str = "kauri.meta";
/// The log file of tier 0.
pub const LOG_FILE: &str = "pmlog.0";
/// What commits are in before they are in the log.
pub const STAGING_FILE: &str = "pmlog.staging";
/// What was durable, told in place.
pub const MARK_FILE: &str = "pmlog.marks";
/// The way out where the mark file may be of another time than the other files.
pub const MARK_FILE_LEFT: &str = "If the files were restored from a copy without pmlog.marks, or with an older one, \
     remove pmlog.marks and start again: pmlog.marks only helps to find damage, and the server starts without it";
/// Bytes of a segment before its first record.
pub const SEGMENT_HEADER_BYTES: u32 = 4096;
/// Bytes at the end of a segment that the trailer takes.
pub const TRAILER_BYTES: u32 = 64;
/// Bytes of a record header.
pub const RECORD_HEADER_BYTES: u32 = 32;
/// Records begin at multiples of this.
pub const RECORD_ALIGN: u32 = 8;
/// Smallest segment.
pub const SEGMENT_BYTES_MIN: u32 = 64 << 10;
/// Largest segment: an offset has 27 bits.
pub const SEGMENT_BYTES_MAX: u32 = 128 << 20;
/// Most segments of a log: a segment number has 22 bits.
pub const SEGMENTS_MAX: u32 = 1 << 22;
/// Streams that the format has room for.
pub const STREAMS_MAX: usize = 4;
/// Tiers of media that the format has room for; this version writes tier 0 only.
pub const TIERS_MAX: usize = 4;

/// Which head wrote a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// User writes, in the order of the commit sequence.
    User = 0,
    /// The cleaner's moved copies.
    Cleaner = 1,
    /// Stream of records that have not changed for long.
    CleanerOld = 2,
    /// Index images. Disposable: no position of it is ever noted.
    Image = 16,
}

impl Stream {
    /// The cleaner's streams.
    pub const CLEANER: [Stream; 2] = [Stream::Cleaner, Stream::CleanerOld];

    /// Whether it is one of the cleaner's.
    pub fn is_cleaners(self) -> bool {
        Stream::CLEANER.contains(&self)
    }

    /// The stream of this number.
    pub fn from_number(number: u32) -> Option<Stream> {
        match number {
            0 => Some(Stream::User),
            1 => Some(Stream::Cleaner),
            2 => Some(Stream::CleanerOld),
            16 => Some(Stream::Image),
            _ => None,
        }
    }
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// The integer at this offset; zero beyond the end (callers check lengths first).
#[inline]
pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

/// As [`get_u32`].
#[inline]
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[inline]
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
pub(crate) fn get_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
