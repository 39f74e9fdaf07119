//! An ordered set of byte-string keys with record ids, in memory: the index behind
//! [`kauri_storage::SortedDataInterface`].
//!
//! A B+tree of 4 KB pages. A page keeps what its keys begin with only once, the first four bytes
//! of each key's rest in an array that is searched without touching the keys, and bounds between
//! pages as short as they can be. Keys that are too long for a page are kept beside it.
//!
//! | module | holds |
//! |---|---|
//! | `cell` | an entry as bytes |
//! | `node` | a page of entries |
//! | `course` | guesses of a key's record |
//! | `places` | guesses of a record's leaf |
//! | `items` | entries on their way from nodes to nodes |
//! | `overflow` | long keys |
//! | `tree` | nodes as a tree |
//! | `bulk` | a tree from entries in order |
//! | `scan` | reading |
//!
//! One lock for readers and writers, held only while memory is worked on, never across a call that
//! waits. No caller holds a place in the tree between two calls: a scan comes back with the last key
//! that it saw. So the lock may give way to optimistic locks of single nodes.
//!
//! Knows nothing of records, documents or the log.

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

/// What can be said of an entry's record before the entry has come from memory, where records ascend with keys.
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

    /// Of entries in order, each once. Others are put in their place, slower.
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

    /// The first record with exactly this key. `likely` hears before, while the tree waits for memory, what can be
    /// said of it; so whoever wants the record can have its memory fetched meanwhile.
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
