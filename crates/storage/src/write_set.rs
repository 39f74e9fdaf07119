//! A transaction's write set: its uncommitted changes. Only the transaction's recovery unit sees these records and
//! index entries. The write set becomes the unit that the transaction commits.
//!
//! If a record changes more than once, the last document counts, and for each of its keys the last addition or
//! removal. New records have *provisional* ids above all real ids; the engine assigns real ids at the commit.
//!
//! Engines apply the write set to reads through [`WriteSet::record`], [`WriteSet::fill_records`] and
//! [`WriteSet::fill_index`]. Nothing is added while the recovery unit is borrowed, so documents may be borrowed
//! from the write set.

use crate::error::StorageError;
use crate::record::Record;
use crate::scan::{Direction, IndexScan, PatchEntry, RecordScan};
use crate::unit::{OpKind, WriteUnit};
use kauri_base::sync::Arc;
use kauri_base::{Access, CollectionId, CommitSeq, IndexId, RecordId};
use kauri_bson::Doc;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Ids from here on are provisional.
pub const PROVISIONAL: u64 = 1 << 62;

/// The accounted size of a record or key, besides its bytes.
const ENTRY_BYTES: usize = 128;

type Bytes = Arc<[u8]>;

/// See the module's head.
#[derive(Default)]
pub struct WriteSet {
    records: BTreeMap<(CollectionId, RecordId), WrittenRecord>,
    /// Per index the changed entries: the type bits of an added entry, or removal.
    entries: BTreeMap<IndexId, BTreeMap<(Bytes, RecordId), Option<Bytes>>>,
    definitions: Vec<(CollectionId, u64)>,
    inserted: u64,
    /// Operations that were added.
    added: u64,
    bytes: usize,
}

struct WrittenRecord {
    /// The version before the transaction; `None`: the record is new.
    base: Option<CommitSeq>,
    /// The version within the transaction: no commit has this number.
    version: CommitSeq,
    doc: Option<Bytes>,
    /// Whether each key is unique.
    keys: BTreeMap<(IndexId, Bytes), bool>,
}

/// Whether an id was given to an insert in a write set.
pub fn is_provisional(id: RecordId) -> bool {
    id.0 >= PROVISIONAL
}

impl WriteSet {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records that are changed.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// For engines: the write set's state of a record: none, deleted, or a document.
    pub fn record(
        &self,
        collection: CollectionId,
        id: RecordId,
    ) -> Result<Option<Option<Record<'_>>>, StorageError> {
        let Some(written) = self.records.get(&(collection, id)) else {
            return Ok(is_provisional(id).then_some(None));
        };
        let Some(doc) = &written.doc else { return Ok(Some(None)) };
        let doc = Doc::from_bytes(doc).map_err(|error| StorageError::Corruption {
            collection: Some(collection),
            record: Some(id),
            message: error.message().to_owned(),
        })?;
        Ok(Some(Some(Record { doc, version: written.version })))
    }

    /// For engines: fills a scan through `inner`, and with the ids of inserts in it, which come after
    /// all others.
    pub fn fill_records(
        &self,
        collection: CollectionId,
        scan: &mut RecordScan,
        inner: impl FnOnce(&mut RecordScan) -> Result<Access<()>, StorageError>,
    ) -> Result<Access<()>, StorageError> {
        let new = |from: Bound<RecordId>, to: Bound<RecordId>| {
            let with = |bound: Bound<RecordId>| bound.map(|id| (collection, id));
            self.records.range((with(from), with(to))).map(|((_, id), _)| *id)
        };
        let first = Bound::Included(RecordId(PROVISIONAL));
        let last = Bound::Included(RecordId(u64::MAX));
        let position = scan.position().filter(|id| is_provisional(*id));
        match (scan.direction(), position) {
            (Direction::Forward, Some(id)) => {
                scan.refill(|batch, wanted| {
                    batch.extend(new(Bound::Excluded(id), last).take(wanted));
                });
            }
            (Direction::Forward, None) => {
                if let Access::WouldBlock(ticket) = inner(scan)? {
                    return Ok(Access::WouldBlock(ticket));
                }
                if scan.ended() {
                    scan.extend(&mut new(first, last));
                }
            }
            (Direction::Backward, position) => {
                let last = position.map_or(last, Bound::Excluded);
                let before = scan.position().is_some_and(|id| !is_provisional(id));
                if before || new(first, last).next().is_none() {
                    return inner(scan);
                }
                scan.refill(|batch, wanted| batch.extend(new(first, last).rev().take(wanted)));
                scan.resume();
            }
        }
        Ok(Access::Ready(()))
    }

    /// For engines: fills a scan of an index through `inner` and applies the write set.
    pub fn fill_index(
        &self,
        index: IndexId,
        scan: &mut IndexScan,
        inner: impl FnMut(&mut IndexScan) -> Result<Access<()>, StorageError>,
    ) -> Result<Access<()>, StorageError> {
        let mut inner = inner;
        let Some(entries) = self.entries.get(&index) else { return inner(scan) };
        fn patch<'e>(
            ((key, id), bits): (&'e (Bytes, RecordId), &'e Option<Bytes>),
        ) -> PatchEntry<'e> {
            (key, *id, bits.as_deref())
        }
        let (low, high) = bounds(scan);
        if !is_range(&low, &high) {
            return inner(scan);
        }
        let entries = entries.range((low, high));
        match scan.direction() {
            Direction::Forward => scan.refill_patched(entries.map(patch), |_| false, inner),
            Direction::Backward => scan.refill_patched(entries.rev().map(patch), |_| false, inner),
        }
    }

    /// Adds what a unit changes. Writes provisional ids into its inserts. The unit is one that
    /// [`crate::Transaction::write`] has seen to be all right.
    pub(crate) fn add(&mut self, unit: &mut WriteUnit<'_>) {
        for (collection, number) in &unit.definitions {
            if !self.definitions.contains(&(*collection, *number)) {
                self.definitions.push((*collection, *number));
            }
        }
        for position in 0..unit.ops.len() {
            self.add_op(unit, position);
        }
    }

    fn add_op(&mut self, unit: &mut WriteUnit<'_>, position: usize) {
        let op = &mut unit.ops[position];
        let (base, doc) = match &op.kind {
            OpKind::Insert { doc } => {
                op.record = RecordId(PROVISIONAL + self.inserted);
                self.inserted += 1;
                (None, Some(Bytes::from(&doc[..])))
            }
            OpKind::Update { seen, doc } => (Some(*seen), Some(Bytes::from(&doc[..]))),
            OpKind::Delete { seen } => (Some(*seen), None),
            _ => return,
        };
        let (collection, id) = (op.collection, op.record);
        let base = if is_provisional(id) { None } else { base };
        self.added += 1;
        let version = CommitSeq(PROVISIONAL + self.added);
        let bytes = &mut self.bytes;
        let record = self.records.entry((collection, id)).or_insert_with(|| {
            *bytes += ENTRY_BYTES;
            WrittenRecord { base, version, doc: None, keys: BTreeMap::new() }
        });
        record.version = version;
        let len = |doc: &Option<Bytes>| doc.as_ref().map_or(0, |doc| doc.len());
        *bytes = *bytes + len(&doc) - len(&record.doc);
        record.doc = doc;
        let ended = record.doc.is_none() && record.base.is_none();
        let changes = unit.keys_of(position);
        // As in a unit: all removals come before all additions.
        for add in [false, true] {
            for change in changes.iter().filter(|change| change.add == add) {
                let key = Bytes::from(unit.key_bytes(change));
                let bits = add.then(|| Bytes::from(unit.type_bits(change)));
                let is_new = record.keys.insert((change.index, key.clone()), change.unique);
                if is_new.is_none() {
                    *bytes += key.len() + ENTRY_BYTES;
                }
                self.entries.entry(change.index).or_default().insert((key, id), bits);
            }
        }
        if ended {
            self.forget(collection, id);
        }
    }

    /// A record that was new has ended: nothing is left of it.
    fn forget(&mut self, collection: CollectionId, id: RecordId) {
        let Some(record) = self.records.remove(&(collection, id)) else { return };
        self.bytes -= ENTRY_BYTES;
        for (index, key) in record.keys.into_keys() {
            self.bytes -= key.len() + ENTRY_BYTES;
            if let Some(entries) = self.entries.get_mut(&index) {
                entries.remove(&(key, id));
            }
        }
    }

    /// The unit that commits it all.
    pub fn unit(&self) -> WriteUnit<'_> {
        let mut unit = WriteUnit::new();
        unit.definitions.clone_from(&self.definitions);
        for ((collection, id), record) in &self.records {
            let kind = match (&record.doc, record.base) {
                (Some(doc), None) => OpKind::Insert { doc: Cow::Borrowed(doc) },
                (Some(doc), Some(seen)) => OpKind::Update { seen, doc: Cow::Borrowed(doc) },
                (None, Some(seen)) => OpKind::Delete { seen },
                (None, None) => continue,
            };
            unit.push(*collection, *id, kind);
            for ((index, key), unique) in &record.keys {
                let entry = self.entries.get(index).and_then(|e| e.get(&(key.clone(), *id)));
                match entry {
                    Some(Some(bits)) => unit.key(*index, true, *unique, key, bits),
                    _ if record.base.is_some() => unit.key(*index, false, *unique, key, &[]),
                    _ => {}
                }
            }
        }
        unit
    }

    /// Records other than `id` that no longer have this key, with the version they had: so that a check
    /// of a unit that adds it knows that it is free.
    pub(crate) fn given_up(
        &self,
        collection: CollectionId,
        index: IndexId,
        key: &[u8],
    ) -> Option<(RecordId, CommitSeq)> {
        let key = Bytes::from(key);
        let entries = self.entries.get(&index)?;
        let of_key = (key.clone(), RecordId(0))..=(key, RecordId(PROVISIONAL));
        entries.range(of_key).find_map(|((_, id), bits)| {
            let base = self.records.get(&(collection, *id))?.base?;
            bits.is_none().then_some((*id, base))
        })
    }

    /// The version of a record before the transaction, if it existed.
    pub(crate) fn base(&self, collection: CollectionId, id: RecordId) -> Option<CommitSeq> {
        self.records.get(&(collection, id)).and_then(|record| record.base)
    }

    /// Whether a change that was computed from this version of a record saw the write set's current state of the
    /// record.
    pub(crate) fn is_current(
        &self,
        collection: CollectionId,
        id: RecordId,
        seen: CommitSeq,
    ) -> bool {
        match self.records.get(&(collection, id)) {
            Some(record) => record.doc.is_some() && record.version == seen,
            None => !is_provisional(id),
        }
    }
}

type EntryBound = Bound<(Bytes, RecordId)>;

/// The rest of a scan's range as bounds of a map.
pub fn bounds(scan: &IndexScan) -> (EntryBound, EntryBound) {
    let own = |(key, id): (&[u8], RecordId)| (Bytes::from(key), id);
    let ((low, included), high) = scan.rest_bounds();
    let low = if included { Bound::Included(own(low)) } else { Bound::Excluded(own(low)) };
    (low, high.map_or(Bound::Unbounded, |high| Bound::Excluded(own(high))))
}

/// Whether a map may be asked for a range with these bounds.
pub fn is_range(low: &EntryBound, high: &EntryBound) -> bool {
    match (low, high) {
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high)) => low < high,
        _ => true,
    }
}
