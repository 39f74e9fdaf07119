//! An ordered set of byte-string keys with record ids, in memory: the index behind
//! [`kauri_storage::SortedDataInterface`].
//!
//! A B+tree of 4 KB pages. A page stores the common prefix of its keys once. The first four bytes of each remaining
//! key are in an array that is searched without reading the keys. Bounds between pages are as short as possible.
//! Keys that are too long for a page are stored beside it.
//!
//! | module | holds |
//! |---|---|
//! | `cell` | an entry as bytes |
//! | `node` | a page of entries |
//! | `course` | predicted records of keys |
//! | `places` | predicted leaves of records |
//! | `items` | entries on their way between nodes |
//! | `overflow` | long keys |
//! | `tree` | nodes as a tree |
//! | `bulk` | a tree from sorted entries |
//! | `scan` | reading |
//!
//! One lock for readers and writers, held only during memory accesses, never across a call that waits. No caller
//! keeps a position in the tree between two calls: a scan continues from the last key that it returned. So
//! optimistic locks per node may replace the lock.
//!
//! The tree must not know records, documents or the log.

mod bulk;
mod cell;
mod course;
mod items;
mod node;
mod overflow;
mod places;
mod scan;
#[cfg(test)]
mod tests;
mod tree;

use course::Courses;
use kauri_base::RecordId;
use kauri_base::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use kauri_storage::IndexScan;
use node::Probe;
use std::ops::Range;
use tree::Tree;

/// See the module's head. Usable from many threads.
#[derive(Default)]
pub struct BTree {
    courses: Courses,
    tree: RwLock<Tree>,
}

/// A prediction of an entry's record before the entry has come from memory, if records ascend with keys.
pub enum Likely {
    /// Probably it is this one: keys are numbers without gaps, or as good as that.
    One(u64),
    /// Probably it is this one, but the tree has not been searched yet, and what that needs comes first.
    Guess(u64),
    /// Probably it is one of these, if there are any: a few.
    Among(Range<u64>),
}

/// Makes a tree of entries that come one by one, in order for it to be fast.
pub struct BTreeBuilder {
    bulk: bulk::Bulk,
    entries: u64,
}

impl BTreeBuilder {
    /// Nothing yet.
    #[allow(clippy::new_without_default, reason = "an empty one is no value to fall back to")]
    pub fn new() -> Self {
        BTreeBuilder { bulk: bulk::Bulk::new(), entries: 0 }
    }

    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], record: RecordId, type_bits: &[u8]) {
        self.bulk.push(key, record.0, type_bits);
        self.entries += 1;
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The tree.
    pub fn finish(self) -> BTree {
        BTree { courses: Courses::default(), tree: RwLock::new(self.bulk.finish()) }
    }
}

impl BTree {
    /// Without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a tree from sorted, distinct entries. Unsorted entries are inserted, which is slower.
    pub fn from_sorted<'a>(entries: impl Iterator<Item = (&'a [u8], RecordId, &'a [u8])>) -> Self {
        let mut builder = BTreeBuilder::new();
        for (key, record, type_bits) in entries {
            builder.push(key, record, type_bits);
        }
        builder.finish()
    }

    /// Calls `visit` for each entry in order, until it answers false.
    pub fn visit(&self, mut visit: impl FnMut(&[u8], RecordId, &[u8]) -> bool) {
        self.read().visit(|key, record, bits| visit(key, RecordId(record), bits));
    }

    fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry; if it is there, it gets these type bits.
    pub fn insert(&self, key: &[u8], record: RecordId, type_bits: &[u8]) {
        self.write().insert(key, record.0, type_bits);
    }

    /// Removes an entry, if it is there; whether it was.
    pub fn remove(&self, key: &[u8], record: RecordId) -> bool {
        self.write().remove(key, record.0)
    }

    /// Adds an entry with these type bits, or without any removes it.
    pub fn change(&self, key: &[u8], record: RecordId, type_bits: Option<&[u8]>) {
        match type_bits {
            Some(bits) => self.insert(key, record, bits),
            None => drop(self.remove(key, record)),
        }
    }

    /// The type bits of an entry, if it is there.
    pub fn get(&self, key: &[u8], record: RecordId) -> Option<Vec<u8>> {
        self.read().type_bits(key, record.0)
    }

    /// The first record with exactly this key. While the tree waits for memory, `likely` gets a prediction of the
    /// record, so that the caller can prefetch the record's memory.
    #[inline]
    pub fn first(&self, key: &[u8], mut likely: impl FnMut(Likely)) -> Option<RecordId> {
        let guess = self.courses.guess(key);
        if let Some(record) = guess {
            likely(Likely::Guess(record));
        }
        let record = self.read().first(key, guess, likely)?;
        self.courses.learn(key, record, guess);
        Some(RecordId(record))
    }

    /// The first record with exactly this key that `wanted` accepts; fast where the key comes behind all.
    #[inline]
    pub fn find_other(
        &self,
        key: &[u8],
        mut wanted: impl FnMut(RecordId) -> bool,
    ) -> Option<RecordId> {
        let tree = self.read();
        if tree.is_behind_all(&Probe::new(key, 0)) {
            return None;
        }
        tree.find_other(key, |record| wanted(RecordId(record))).map(RecordId)
    }

    /// Fills a scan's batch.
    pub fn fill(&self, scan: &mut IndexScan) {
        self.read().fill(scan);
    }

    /// Entries.
    pub fn entries(&self) -> u64 {
        self.read().len
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.read().bytes() as u64
    }
}
