//! Index images: the payloads of image records.
//!
//! An image is a sequence of *chunks*, each with entries of an index in order, and an *end* that identifies the
//! index. Within a chunk, a key is stored without the prefix that it shares with the previous key.

use super::{get_u32, get_u64, get_varint, put_u32, put_u64, put_varint, unzigzag, zigzag};

/// Payloads of chunks have about this many bytes.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Entries of an image that are put together to a chunk.
#[derive(Default)]
pub struct ChunkWriter {
    bytes: Vec<u8>,
    key: Vec<u8>,
    record: u64,
}

impl ChunkWriter {
    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], record: u64, bits: &[u8]) {
        let shared = self.key.iter().zip(key).take_while(|(a, b)| a == b).count();
        let rest = key.get(shared..).unwrap_or_default();
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, rest.len() as u64);
        put_varint(&mut self.bytes, bits.len() as u64);
        put_varint(&mut self.bytes, zigzag(record.wrapping_sub(self.record) as i64));
        self.bytes.extend_from_slice(rest);
        self.bytes.extend_from_slice(bits);
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        self.record = record;
    }

    /// The chunk so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Begins another chunk.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.key.clear();
        self.record = 0;
    }
}

/// Calls `visit(key, record, type bits)` for each entry of a chunk. `None` if it is none.
pub fn read_chunk(mut rest: &[u8], mut visit: impl FnMut(&[u8], u64, &[u8])) -> Option<()> {
    let (mut key, mut record) = (Vec::new(), 0u64);
    while !rest.is_empty() {
        let mut length = || usize::try_from(get_varint(&mut rest)?).ok();
        let (shared, suffix, bits) = (length()?, length()?, length()?);
        record = record.wrapping_add(unzigzag(get_varint(&mut rest)?) as u64);
        if shared > key.len() {
            return None;
        }
        key.truncate(shared);
        key.extend_from_slice(rest.get(..suffix)?);
        rest = rest.get(suffix..)?;
        visit(&key, record, rest.get(..bits)?);
        rest = rest.get(bits..)?;
    }
    Some(())
}

/// The end of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageEnd {
    /// Hash of the index's definition.
    pub tag: u64,
    /// Entries in all chunks.
    pub entries: u64,
    /// Whether the index is unique.
    pub unique: bool,
    /// State that the index's key generator has learned.
    pub learned: Vec<u8>,
}

const END_BYTES: usize = 24;

impl ImageEnd {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; END_BYTES];
        put_u64(&mut bytes, 0, self.tag);
        put_u64(&mut bytes, 8, self.entries);
        put_u32(&mut bytes, 16, u32::from(self.unique));
        bytes.extend_from_slice(&self.learned);
        bytes
    }

    /// From a payload whose CRC is right.
    pub fn decode(bytes: &[u8]) -> Option<ImageEnd> {
        Some(ImageEnd {
            learned: bytes.get(END_BYTES..)?.to_vec(),
            tag: get_u64(bytes, 0),
            entries: get_u64(bytes, 8),
            unique: get_u32(bytes, 16) == 1,
        })
    }
}

/// The record id of a chunk (or, with the number of chunks, of the end) of an index's image.
pub fn image_record(index: u32, chunk: u32) -> u64 {
    u64::from(index) << 32 | u64::from(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::RandomSource;
    use kauri_base::clock::SeededRandom;

    fn entries(bytes: &[u8]) -> Option<Vec<(Vec<u8>, u64, Vec<u8>)>> {
        let mut entries = Vec::new();
        let push =
            |key: &[u8], record, bits: &[u8]| entries.push((key.to_vec(), record, bits.to_vec()));
        read_chunk(bytes, push)?;
        Some(entries)
    }

    #[test]
    fn a_chunk_is_read_back_and_any_bytes_are_safe() {
        let random = SeededRandom::new(1);
        let (mut writer, mut expected) = (ChunkWriter::default(), Vec::new());
        for n in 0..300u64 {
            let dice = random.next_u64();
            let key = format!("{:04}{}", n / 3, "z".repeat((dice % 20) as usize)).into_bytes();
            let record = if dice & 64 == 0 { dice } else { n };
            let bits = vec![1; (dice >> 8 & 3) as usize];
            writer.push(&key, record, &bits);
            expected.push((key, record, bits));
        }
        assert_eq!(entries(writer.bytes()), Some(expected));
        for _ in 0..2000 {
            let mut bytes = writer.bytes().to_vec();
            let at = random.next_u64() as usize % bytes.len();
            bytes[at] = random.next_u64() as u8;
            bytes.truncate(random.next_u64() as usize % (bytes.len() + 1));
            let _ = entries(&bytes);
        }
    }

    #[test]
    fn an_end_is_read_back() {
        let end = ImageEnd { tag: 7, entries: 1 << 40, unique: true, learned: vec![1, 2, 3] };
        assert_eq!(ImageEnd::decode(&end.encode()), Some(end));
        assert_eq!(ImageEnd::decode(&[0; END_BYTES - 1]), None);
    }
}
