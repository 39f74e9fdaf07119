//! Positions in record stores and indexes.
//!
//! A scan belongs to its operation, not to the engine. It stores its position as an id or key, and a batch of
//! entries that the engine copied into it. No lock, epoch or pin outlives the call that filled the batch, so a scan
//! may live as long as a cursor. Entries of the batch may be outdated when they are used: the caller reads each
//! record again and trusts only that result.

use crate::error::StorageError;
use kauri_base::{Access, RecordId};
use std::cmp::Ordering;
use std::iter::Peekable;

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

    /// Returns the id that was just taken, so that it is taken again (its record was not in memory).
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

    /// For engines: replaces the (used up) batch. `fill` appends the next ids in order, at most the given number;
    /// fewer mean the end.
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

    /// Puts further ids behind the batch, as many as go into one. `ids` follow it in order, and after
    /// them comes nothing.
    pub(crate) fn extend(&mut self, ids: &mut dyn Iterator<Item = RecordId>) {
        let room = BATCH_MAX.saturating_sub(self.batch.len()).max(1);
        let before = self.batch.len();
        self.batch.extend(ids.take(room));
        self.ended = self.batch.len() - before < room;
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
    /// The type information that the key does not have.
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
    /// The last entry of the batch: its key bytes and id.
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

    /// A scan over the entries of one key, starting at this record. Earlier entries of the key are not read.
    pub fn of_entry(key: &[u8], record: RecordId) -> Self {
        let mut high = key.to_vec();
        high.push(0);
        let mut scan = IndexScan::new(Direction::Forward, key.to_vec(), high);
        scan.last = record.0.checked_sub(1).map(|before| (key.to_vec(), RecordId(before)));
        scan
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

    /// For engines: a scan of the rest of this one, behind the batch.
    pub fn rest(&self) -> IndexScan {
        let mut rest = IndexScan::new(self.direction, self.low.clone(), self.high.clone());
        rest.last.clone_from(&self.last);
        rest
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
    /// [`IndexBatch::push`] reports no space or the given number is reached; stopping earlier means the end.
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

/// The destination of a batch's entries.
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

/// An entry that a patch changes: its key, its record, and its type bits, or `None` if the entry is removed.
pub type PatchEntry<'p> = (&'p [u8], RecordId, Option<&'p [u8]>);

impl IndexScan {
    /// For engines: fills the batch with what `source` fills into a scan, corrected by `patch`, which
    /// has the rest of this scan's range (see [`IndexScan::rest_bounds`]) in its direction, and without
    /// those that `skip` says are not there.
    pub fn refill_patched<'p>(
        &mut self,
        patch: impl Iterator<Item = PatchEntry<'p>>,
        skip: impl Fn(RecordId) -> bool,
        mut source: impl FnMut(&mut IndexScan) -> Result<Access<()>, StorageError>,
    ) -> Result<Access<()>, StorageError> {
        let mut rest = self.rest();
        let mut patch = patch.peekable();
        let mut blocked = None;
        self.refill(|batch, _| {
            loop {
                while rest.at == rest.entries.len() && !rest.ended {
                    match source(&mut rest) {
                        Ok(Access::Ready(())) => {}
                        other => {
                            blocked = Some(other);
                            return;
                        }
                    }
                }
                match push_next(&mut rest, &mut patch, &skip, batch) {
                    Some(true) => {}
                    Some(false) | None => return,
                }
            }
        });
        match blocked {
            None => Ok(Access::Ready(())),
            Some(outcome) => {
                self.ended = false;
                // What is there already is not lost by waiting.
                if self.entries.is_empty() { outcome } else { Ok(Access::Ready(())) }
            }
        }
    }

    /// For engines: the bounds of the rest of the range, in the order of (key, record): `(first, whether it is
    /// included)` and `(last, …)`; no upper bound if that is `None`.
    pub fn rest_bounds(&self) -> (((&[u8], RecordId), bool), Option<(&[u8], RecordId)>) {
        let high = (!self.high.is_empty()).then_some((&self.high[..], RecordId(0)));
        match (&self.last, self.direction) {
            (None, _) => (((&self.low, RecordId(0)), true), high),
            (Some((key, id)), Direction::Forward) => (((key, *id), false), high),
            (Some((key, id)), Direction::Backward) => {
                (((&self.low, RecordId(0)), true), Some((key, *id)))
            }
        }
    }
}

/// Pushes the next of both, if it is there. Answers whether there is room for more; `None` at the end
/// of both.
fn push_next<'p>(
    rest: &mut IndexScan,
    patch: &mut Peekable<impl Iterator<Item = PatchEntry<'p>>>,
    skip: &impl Fn(RecordId) -> bool,
    batch: &mut IndexBatch<'_>,
) -> Option<bool> {
    let direction = rest.direction;
    let entry = rest.next_buffered();
    let order = match (&entry, patch.peek()) {
        (None, None) => return None,
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(entry), Some((key, record, _))) => {
            let order = (entry.key, entry.record).cmp(&(*key, *record));
            if direction == Direction::Forward { order } else { order.reverse() }
        }
    };
    let mut room = true;
    if let (Some(entry), Ordering::Less) = (&entry, order) {
        if !skip(entry.record) {
            room = batch.push(entry.key, entry.type_bits, entry.record);
        }
        return Some(room);
    }
    let is_there = entry.is_some();
    if let Some((key, record, Some(bits))) = patch.next() {
        room = batch.push(key, bits, record);
    }
    if is_there && order == Ordering::Greater {
        rest.put_back();
    }
    Some(room)
}
