//! Summaries: the contents of a sealed segment without the documents.
//!
//! [`SummaryWriter`] grows with the segment. [`SummaryReader`] returns the entries, with offsets computed from
//! their lengths.

use super::id::{ID_BYTES_MAX, Id, IdBefore};
use super::record::{Kind, RecordHeader, record_bytes};
use super::{SEGMENT_HEADER_BYTES, get_varint, put_varint, unzigzag, zigzag};

const COLLECTION_DIFFERS: u8 = 1 << 4;
const SEQ_SHIFT: u8 = 5;
const SEQ_SAME: u8 = 0;
const SEQ_NEXT: u8 = 1;
const SEQ_OTHER: u8 = 2;
/// Like the previous entry, with a payload of the same length, which is not repeated.
const SEQ_OTHER_LEN_SAME: u8 = 3;
const RECORD_NEXT: u8 = 1 << 7;
/// In place of the kinds: a pending put, and a put, whose entries end with the document's `_id`.
const PENDING_PUT_WITH_ID: u8 = 0;
const PUT_WITH_ID: u8 = 15;
/// A put whose `_id` follows from the record id (`id.rs`), so that it takes nothing.
const PUT_WITH_ID_FOLLOWING: u8 = 2;
/// The kind is the byte behind the tag: kinds that are rare in a segment.
const KIND_FOLLOWS: u8 = Kind::End as u8;

/// Most bytes that one entry takes.
pub const ENTRY_BYTES_MAX: u32 = 2 + 5 + 10 + 10 + 5 + ID_BYTES_MAX;

/// A record as a summary has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its place in the segment.
    pub offset: u32,
    /// Its kind.
    pub kind: Kind,
    /// The collection.
    pub collection: u32,
    /// The record id.
    pub record: u64,
    /// The commit sequence.
    pub seq: u64,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// The `_id` of a document.
    pub id: Id,
}

impl Entry {
    /// The entry of a record at this offset.
    pub fn of(header: &RecordHeader, payload: &[u8], offset: u32) -> Entry {
        Entry {
            id: id_of(header, payload),
            offset,
            kind: header.kind,
            collection: header.collection,
            record: header.record,
            seq: header.seq,
            payload_len: header.payload_len,
        }
    }
}

#[inline]
fn id_of(header: &RecordHeader, payload: &[u8]) -> Id {
    match header.kind {
        Kind::Put | Kind::PendingPut => Id::of_document(payload),
        _ => Id::Unknown,
    }
}

#[derive(Clone, Copy, Default)]
struct Before {
    collection: u32,
    record: u64,
    seq: u64,
    payload_len: u32,
}

/// Writes the summary of a segment while it is being filled.
#[derive(Default)]
pub struct SummaryWriter {
    bytes: Vec<u8>,
    entries: u32,
    before: Before,
    id_before: IdBefore,
}

impl SummaryWriter {
    /// The summary of an empty segment.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the record that was appended.
    #[inline]
    pub fn add(&mut self, header: &RecordHeader, payload: &[u8]) {
        let before = self.before;
        let id = id_of(header, payload);
        let seq_step = header.seq.wrapping_sub(before.seq);
        let record_step = header.record.wrapping_sub(before.record);
        let id_follows = header.kind == Kind::Put
            && id != Id::Unknown
            && self.id_before.following(header.record) == Some(id);
        let mut tag = match (header.kind, id) {
            (Kind::End | Kind::Frame, _) => KIND_FOLLOWS,
            (kind, Id::Unknown) => kind as u8,
            (Kind::PendingPut, _) => PENDING_PUT_WITH_ID,
            _ if id_follows => PUT_WITH_ID_FOLLOWING,
            _ => PUT_WITH_ID,
        };
        if header.collection != before.collection {
            tag |= COLLECTION_DIFFERS;
        }
        let seq_form = match seq_step {
            0 => SEQ_SAME,
            1 => SEQ_NEXT,
            _ if header.payload_len == before.payload_len => SEQ_OTHER_LEN_SAME,
            _ => SEQ_OTHER,
        };
        tag |= seq_form << SEQ_SHIFT;
        if record_step == 1 {
            tag |= RECORD_NEXT;
        }
        self.bytes.push(tag);
        if tag & 15 == KIND_FOLLOWS {
            self.bytes.push(header.kind as u8);
        }
        if header.collection != before.collection {
            put_varint(&mut self.bytes, u64::from(header.collection));
        }
        if seq_step > 1 {
            put_varint(&mut self.bytes, zigzag(seq_step as i64));
        }
        if record_step != 1 {
            put_varint(&mut self.bytes, zigzag(record_step as i64));
        }
        if seq_form != SEQ_OTHER_LEN_SAME {
            let step = i64::from(header.payload_len) - i64::from(before.payload_len);
            put_varint(&mut self.bytes, zigzag(step));
        }
        match id_follows {
            true => self.id_before.follow(header.record),
            false => self.id_before.put(id, header.record, &mut self.bytes),
        }
        self.entries += 1;
        self.before = Before {
            collection: header.collection,
            record: header.record,
            seq: header.seq,
            payload_len: header.payload_len,
        };
    }

    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Entries so far.
    pub fn entries(&self) -> u32 {
        self.entries
    }
}

/// Reads a summary whose CRC is right. Ends early (see [`SummaryReader::is_whole`]) if it is not
/// what a [`SummaryWriter`] wrote.
pub struct SummaryReader<'a> {
    rest: &'a [u8],
    left: u32,
    before: Before,
    id_before: IdBefore,
    offset: u64,
    segment_bytes: u32,
    whole: bool,
}

impl<'a> SummaryReader<'a> {
    /// The entries in these bytes.
    pub fn new(bytes: &'a [u8], entries: u32, segment_bytes: u32) -> Self {
        SummaryReader {
            rest: bytes,
            left: entries,
            before: Before::default(),
            id_before: IdBefore::default(),
            offset: u64::from(SEGMENT_HEADER_BYTES),
            segment_bytes,
            whole: true,
        }
    }

    /// Whether everything read so far made sense; once all entries are read, whether that was all.
    pub fn is_whole(&self) -> bool {
        self.whole && (self.left > 0 || self.rest.is_empty())
    }

    fn entry(&mut self) -> Option<Entry> {
        let (&tag, rest) = self.rest.split_first()?;
        self.rest = rest;
        let kind = match tag & 15 {
            PUT_WITH_ID | PUT_WITH_ID_FOLLOWING => Kind::Put,
            PENDING_PUT_WITH_ID => Kind::PendingPut,
            KIND_FOLLOWS => {
                let (&number, rest) = self.rest.split_first()?;
                self.rest = rest;
                Kind::from_number(number)?
            }
            number => Kind::from_number(number)?,
        };
        let mut entry = Entry {
            offset: u32::try_from(self.offset).ok()?,
            kind,
            collection: self.before.collection,
            record: self.before.record,
            seq: self.before.seq,
            payload_len: self.before.payload_len,
            id: Id::Unknown,
        };
        if tag & COLLECTION_DIFFERS != 0 {
            entry.collection = u32::try_from(get_varint(&mut self.rest)?).ok()?;
        }
        let seq_form = tag >> SEQ_SHIFT & 3;
        let seq_step = match seq_form {
            SEQ_SAME => 0,
            SEQ_NEXT => 1,
            _ => unzigzag(get_varint(&mut self.rest)?) as u64,
        };
        entry.seq = entry.seq.wrapping_add(seq_step);
        let record_step =
            if tag & RECORD_NEXT != 0 { 1 } else { unzigzag(get_varint(&mut self.rest)?) as u64 };
        entry.record = entry.record.wrapping_add(record_step);
        if seq_form != SEQ_OTHER_LEN_SAME {
            let step = unzigzag(get_varint(&mut self.rest)?);
            let len = i64::from(entry.payload_len).checked_add(step)?;
            entry.payload_len = u32::try_from(len).ok()?;
        }
        if entry.payload_len >= self.segment_bytes {
            return None;
        }
        entry.id = match tag & 15 {
            PUT_WITH_ID | PENDING_PUT_WITH_ID => {
                self.id_before.get(entry.record, &mut self.rest)?
            }
            PUT_WITH_ID_FOLLOWING => {
                let id = self.id_before.following(entry.record)?;
                self.id_before.follow(entry.record);
                id
            }
            _ => Id::Unknown,
        };
        self.offset += u64::from(record_bytes(entry.payload_len));
        if self.offset > u64::from(self.segment_bytes) {
            return None;
        }
        self.before = Before {
            collection: entry.collection,
            record: entry.record,
            seq: entry.seq,
            payload_len: entry.payload_len,
        };
        Some(entry)
    }
}

impl Iterator for SummaryReader<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.left == 0 || !self.whole {
            return None;
        }
        self.left -= 1;
        let entry = self.entry();
        self.whole = entry.is_some();
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::super::RECORD_HEADER_BYTES;
    use super::*;
    use kauri_base::RandomSource;
    use kauri_base::clock::SeededRandom;

    /// The part of a document that an entry needs.
    fn document(kind: u8, id: [u8; 12], len: usize) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0, kind];
        bytes.extend_from_slice(b"_id\0");
        bytes.extend_from_slice(&id);
        bytes.resize(len.max(bytes.len()), 0);
        bytes
    }

    #[test]
    fn entries_are_read_back_with_their_offsets() {
        let random = SeededRandom::new(1);
        let kinds = [
            Kind::Put,
            Kind::Tombstone,
            Kind::Commit,
            Kind::Mark,
            Kind::DropStore,
            Kind::PendingPut,
            Kind::PendingTombstone,
            Kind::Frame,
            Kind::End,
        ];
        let mut writer = SummaryWriter::new();
        let (mut expected, mut offset) = (Vec::new(), SEGMENT_HEADER_BYTES);
        let mut header = header(0);
        let (mut id, mut known, mut len) = ([0; 12], 0, 0);
        for _ in 0..2000 {
            let dice = random.next_u64();
            header.kind = kinds[(dice % 9) as usize];
            match dice >> 40 & 7 {
                0 => header.collection = (dice >> 50) as u32,
                1 => header.seq = dice >> 20,
                2 => header.record = dice,
                3 | 4 => header.record = header.record.wrapping_add(1),
                _ => header.seq += 1,
            }
            let from = (dice >> 45) as usize % 13;
            id[from..].fill((dice >> 52) as u8);
            let kind = [0x07, 0x10, 0x12, 0x02][(dice >> 60 & 3) as usize];
            if dice & 1 << 30 != 0 {
                id[..8].copy_from_slice(&(header.record + 7 * (dice >> 33 & 1)).to_le_bytes());
            }
            if dice & 1 << 31 != 0 {
                len = (dice >> 8) as usize % 1500;
            }
            let payload = document(kind, id, len);
            header.payload_len = payload.len() as u32;
            writer.add(&header, &payload);
            let entry = Entry::of(&header, &payload, offset);
            known += usize::from(entry.id != Id::Unknown);
            expected.push(entry);
            offset += header.record_bytes();
        }
        assert!(known > 300);
        let mut reader = SummaryReader::new(writer.bytes(), writer.entries(), 4 << 20);
        assert_eq!(reader.by_ref().collect::<Vec<_>>(), expected);
        assert!(reader.is_whole());
    }

    fn header(record: u64) -> RecordHeader {
        RecordHeader {
            kind: Kind::Put,
            flags: 0,
            payload_len: 1024,
            payload_crc: 0,
            collection: 1,
            record,
            seq: record,
        }
    }

    #[test]
    fn documents_take_few_bytes_with_header_and_id() {
        let random = SeededRandom::new(3);
        let sizes = [0, 1, 2, 3, 4].map(|form| {
            let mut writer = SummaryWriter::new();
            for i in 1..=1000u64 {
                let mut id = [7; 12];
                let kind = if form < 2 || form == 4 { 0x12 } else { 0x07 };
                let mut header = header(i);
                match form {
                    0 => id[..8].copy_from_slice(&i.to_le_bytes()),
                    1 => id[..8].copy_from_slice(&random.next_u64().to_le_bytes()),
                    2 => id[8..].copy_from_slice(&(i as u32).to_be_bytes()),
                    // Others' changes, which have been moved: in the order of their commits.
                    4 => {
                        header.record = random.next_u64() >> 44;
                        id[..8].copy_from_slice(&(header.record + 5).to_le_bytes());
                        header.seq = i * 9;
                    }
                    _ => id = std::array::from_fn(|_| random.next_u64() as u8),
                }
                writer.add(&header, &document(kind, id, 1024));
            }
            RECORD_HEADER_BYTES as usize + (writer.bytes().len() + 500) / 1000
        });
        let [numbers, random_numbers, object_ids, random_object_ids, moved] = sizes;
        assert!(numbers <= 34 && random_numbers <= 47, "{sizes:?}");
        assert!(object_ids <= 36 && random_object_ids <= 47 && moved <= 37, "{sizes:?}");
    }

    #[test]
    fn damaged_summaries_are_noticed_and_never_panic() {
        let random = SeededRandom::new(2);
        let mut writer = SummaryWriter::new();
        for i in 1..=50 {
            let mut header = header(i);
            (header.payload_len, header.record) = (i as u32 * 7, i * 3);
            let mut id = [i as u8; 12];
            id[0] = 5;
            let kind = if i % 3 == 0 { 0x12 } else { 0x07 };
            writer.add(&header, &document(kind, id, 0));
        }
        for _ in 0..2000 {
            let mut bytes = writer.bytes().to_vec();
            let at = random.next_u64() as usize % bytes.len();
            bytes[at] ^= 1 << (random.next_u64() % 8);
            bytes.truncate(random.next_u64() as usize % (bytes.len() + 1));
            let mut reader = SummaryReader::new(&bytes, 50, 64 << 10);
            let read = reader.by_ref().count();
            assert!(read == 50 || !reader.is_whole());
        }
    }
}
