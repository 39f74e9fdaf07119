//! The entries of an index: an ordered set of (key, record id) with type bits.

use kauri_base::RecordId;
use kauri_storage::{Direction, IndexScan};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

type Entries = BTreeMap<(Vec<u8>, RecordId), Box<[u8]>>;

/// See the module's head. Usable from many threads.
#[derive(Default)]
pub struct KeySet {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: Entries,
    bytes: u64,
}

impl KeySet {
    /// No entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// From entries in order, each once.
    pub fn from_sorted<'a>(entries: impl Iterator<Item = (&'a [u8], RecordId, &'a [u8])>) -> Self {
        let set = KeySet::new();
        {
            let mut inner = set.write();
            let mut bytes = 0;
            inner.entries = entries
                .map(|(key, id, bits)| {
                    bytes += cost(key, bits);
                    ((key.to_vec(), id), Box::from(bits))
                })
                .collect();
            inner.bytes = bytes;
        }
        set
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry; if it is there, it gets these type bits.
    pub fn insert(&self, key: &[u8], id: RecordId, type_bits: &[u8]) {
        let mut inner = self.write();
        inner.bytes += cost(key, type_bits);
        if let Some(old) = inner.entries.insert((key.to_vec(), id), type_bits.into()) {
            inner.bytes -= cost(key, &old);
        }
    }

    /// Removes an entry, if it is there.
    pub fn remove(&self, key: &[u8], id: RecordId) {
        let mut inner = self.write();
        if let Some(old) = inner.entries.remove(&(key.to_vec(), id)) {
            inner.bytes -= cost(key, &old);
        }
    }

    /// The first record with exactly this key.
    pub fn first(&self, key: &[u8]) -> Option<RecordId> {
        self.find_other(key, |_| true)
    }

    /// The first record with exactly this key that `wanted` accepts.
    pub fn find_other(
        &self,
        key: &[u8],
        mut wanted: impl FnMut(RecordId) -> bool,
    ) -> Option<RecordId> {
        let inner = self.read();
        inner
            .entries
            .range((key.to_vec(), RecordId(0))..)
            .take_while(|((k, _), _)| k == key)
            .map(|((_, id), _)| *id)
            .find(|id| wanted(*id))
    }

    /// Fills a scan's batch.
    pub fn fill(&self, scan: &mut IndexScan) {
        let direction = scan.direction();
        let (low, high) = scan.range();
        let mut start = Bound::Included((low.to_vec(), RecordId(0)));
        let mut end = match high {
            [] => Bound::Unbounded,
            high => Bound::Excluded((high.to_vec(), RecordId(0))),
        };
        if !high.is_empty() && low >= high {
            scan.refill(|_, _| {});
            return;
        }
        if let Some((key, id)) = scan.position() {
            let position = Bound::Excluded((key.to_vec(), id));
            let outside = match direction {
                Direction::Forward => !high.is_empty() && key >= high,
                Direction::Backward => key < low,
            };
            if outside {
                scan.refill(|_, _| {});
                return;
            }
            match direction {
                Direction::Forward => start = position,
                Direction::Backward => end = position,
            }
        }
        let inner = self.read();
        scan.refill(|batch, _| {
            let mut range = inner.entries.range((start, end));
            loop {
                let next = match direction {
                    Direction::Forward => range.next(),
                    Direction::Backward => range.next_back(),
                };
                let Some(((key, id), bits)) = next else { return };
                if !batch.push(key, bits, *id) {
                    return;
                }
            }
        });
    }

    /// Entries.
    pub fn entries(&self) -> u64 {
        self.read().entries.len() as u64
    }

    /// Bytes of memory, roughly.
    pub fn bytes(&self) -> u64 {
        self.read().bytes
    }
}

fn cost(key: &[u8], type_bits: &[u8]) -> u64 {
    (key.len() + type_bits.len() + 64) as u64
}
