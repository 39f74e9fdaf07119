//! Positions in record stores and indexes.
//!
//! A scan belongs to its operation, not to the engine: it remembers where it stands by id or key,
//! and holds a batch of entries that the engine copied into it. No lock, epoch or pin outlives the
//! call that filled it, so a scan may be kept as long as a cursor lives. What is in the batch may be
//! out of date by the time it is used; the caller looks each record up and goes by what it finds.

use kauri_base::RecordId;

/// Ascending or descending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Direction {
    Forward,
    Backward,
}

const BATCH_FIRST: usize = 4;
const BATCH_MAX: usize = 256;
/// A batch of index entries with this many bytes of keys takes no more.
const BATCH_BYTES: usize = 256 * 1024;

/// A walk over the ids of a record store.
#[derive(Clone, Debug)]
pub struct RecordScan {
    direction: Direction,
    /// The last id that was put into the batch; `None` before the first.
    last: Option<RecordId>,
    batch: Vec<RecordId>,
    at: usize,
    ended: bool,
}

impl RecordScan {
    /// From the first id (or the last one, backward).
    pub fn new(direction: Direction) -> Self {
        RecordScan { direction, last: None, batch: Vec::new(), at: 0, ended: false }
    }

    /// From the first id after `id` in this direction.
    pub fn after(direction: Direction, id: RecordId) -> Self {
        RecordScan { last: Some(id), ..Self::new(direction) }
    }

    /// The next id of the batch; `None`: ask the engine to fill it, unless [`Self::ended`].
    #[inline]
    pub fn next_buffered(&mut self) -> Option<RecordId> {
        let id = self.batch.get(self.at).copied()?;
        self.at += 1;
        Some(id)
    }

    /// Puts the id that was just taken back, to be taken again (its record was not at hand).
    pub fn put_back(&mut self) {
        self.at = self.at.saturating_sub(1);
    }

    /// Whether the engine has said that nothing follows the batch.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Forgets that the end was seen, so that records added since are found (tailable cursors).
    pub fn resume(&mut self) {
        self.ended = false;
    }

    /// For engines: the direction.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// For engines: the id to continue after.
    pub fn position(&self) -> Option<RecordId> {
        self.last
    }

    /// For engines: replaces the (used up) batch. `fill` appends the next ids in order, at most as
    /// many as it is told; fewer mean that the end was reached.
    pub fn refill(&mut self, fill: impl FnOnce(&mut Vec<RecordId>, usize)) {
        let wanted = (self.batch.len() * 2).clamp(BATCH_FIRST, BATCH_MAX);
        self.batch.clear();
        self.at = 0;
        fill(&mut self.batch, wanted);
        self.ended = self.batch.len() < wanted;
        if let Some(last) = self.batch.last() {
            self.last = Some(*last);
        }
    }
}

/// One entry of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry<'s> {
    /// The key's bytes, without the record id.
    pub key: &'s [u8],
    /// What the key leaves out of the values' types.
    pub type_bits: &'s [u8],
    /// The record.
    pub record: RecordId,
}

/// A walk over a range of an index.
///
/// Entries are ordered by key bytes, then record id. The range is `low <= key < high` in plain byte
/// order of the key alone; inclusive and exclusive bounds are made by the KeyString discriminators,
/// so the engine need not know of them. An empty `high` means no upper bound.
#[derive(Clone, Debug)]
pub struct IndexScan {
    direction: Direction,
    low: Vec<u8>,
    high: Vec<u8>,
    /// The last entry that was put into the batch: its key bytes and id.
    last: Option<(Vec<u8>, RecordId)>,
    bytes: Vec<u8>,
    entries: Vec<BufferedEntry>,
    at: usize,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct BufferedEntry {
    start: u32,
    key_len: u32,
    bits_len: u32,
    record: RecordId,
}

impl IndexScan {
    /// A walk over `low <= key < high`.
    pub fn new(direction: Direction, low: Vec<u8>, high: Vec<u8>) -> Self {
        IndexScan {
            direction,
            low,
            high,
            last: None,
            bytes: Vec::new(),
            entries: Vec::new(),
            at: 0,
            ended: false,
        }
    }

    /// The next entry of the batch; `None`: ask the engine to fill it, unless [`Self::ended`].
    #[inline]
    pub fn next_buffered(&mut self) -> Option<IndexEntry<'_>> {
        let entry = *self.entries.get(self.at)?;
        self.at += 1;
        let start = entry.start as usize;
        let key_end = start + entry.key_len as usize;
        Some(IndexEntry {
            key: &self.bytes[start..key_end],
            type_bits: &self.bytes[key_end..key_end + entry.bits_len as usize],
            record: entry.record,
        })
    }

    /// Puts the entry that was just taken back, to be taken again.
    pub fn put_back(&mut self) {
        self.at = self.at.saturating_sub(1);
    }

    /// Whether the engine has said that nothing follows the batch.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Narrows the rest of the walk: forward to keys from `key` on, backward to keys below it. Drops
    /// the batch. For skipping between intervals and distinct keys.
    pub fn skip_to(&mut self, key: Vec<u8>) {
        match self.direction {
            Direction::Forward => self.low = key,
            Direction::Backward => self.high = key,
        }
        self.last = None;
        self.entries.clear();
        self.at = 0;
        self.ended = false;
    }

    /// For engines: the direction.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// For engines: the range.
    pub fn range(&self) -> (&[u8], &[u8]) {
        (&self.low, &self.high)
    }

    /// For engines: the entry to continue after, in the scan's direction.
    pub fn position(&self) -> Option<(&[u8], RecordId)> {
        self.last.as_ref().map(|(key, id)| (key.as_slice(), *id))
    }

    /// For engines: replaces the (used up) batch. `fill` pushes the next entries in order, until
    /// [`IndexBatch::push`] says that there is no room or it has pushed as many as it is told; if
    /// it stops before, the end was reached.
    pub fn refill(&mut self, fill: impl FnOnce(&mut IndexBatch<'_>, usize)) {
        let wanted = (self.entries.len() * 2).clamp(BATCH_FIRST, BATCH_MAX);
        self.entries.clear();
        self.bytes.clear();
        self.at = 0;
        let mut batch = IndexBatch { bytes: &mut self.bytes, entries: &mut self.entries, wanted };
        fill(&mut batch, wanted);
        self.ended = batch.has_room();
        if let Some(entry) = self.entries.last() {
            let start = entry.start as usize;
            let (key, id) = self.last.get_or_insert_with(|| (Vec::new(), entry.record));
            key.clear();
            key.extend_from_slice(&self.bytes[start..start + entry.key_len as usize]);
            *id = entry.record;
        }
    }
}

/// Where an engine puts a batch's entries.
pub struct IndexBatch<'s> {
    bytes: &'s mut Vec<u8>,
    entries: &'s mut Vec<BufferedEntry>,
    wanted: usize,
}

impl IndexBatch<'_> {
    /// Adds an entry; key and type bits are copied. Answers whether there is room for another one.
    pub fn push(&mut self, key: &[u8], type_bits: &[u8], record: RecordId) -> bool {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(type_bits);
        self.entries.push(BufferedEntry {
            start,
            key_len: key.len() as u32,
            bits_len: type_bits.len() as u32,
            record,
        });
        self.has_room()
    }

    fn has_room(&self) -> bool {
        self.entries.len() < self.wanted && self.bytes.len() < BATCH_BYTES
    }
}
