//! The existing stores and indexes, with their tables and counts.

use crate::sys::Table;
use kauri_base::{CollectionId, IndexId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A number that commits change by differences.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Adds a difference.
    pub fn change(&self, by: i64) {
        self.0.fetch_add(by as u64, Ordering::AcqRel);
    }

    /// Adds one and answers the new value.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// A record store.
pub struct StoreState {
    /// Its collection.
    pub id: CollectionId,
    /// The table's name.
    pub ident: String,
    /// Its table.
    pub table: Table,
    /// The definition's number.
    pub definition: Count,
    /// The record id that was given last.
    pub last_id: Count,
    /// Records.
    pub records: Count,
    /// Their bytes.
    pub bytes: Count,
    /// Number of snapshots taken before the last change of its definition: those cannot show it.
    pub changed: AtomicU64,
    /// Readers get `Dropped`.
    pub dropped: AtomicBool,
}

/// An index.
pub struct IndexState {
    /// Its id.
    pub id: IndexId,
    /// Whose it is.
    pub collection: CollectionId,
    /// The table's name.
    pub ident: String,
    /// Its table.
    pub table: Table,
    /// Its keys are stored without ids (see `keys`), except exempt ones.
    pub unique: bool,
    /// There may be keys with ids in a unique index.
    pub mixed: AtomicBool,
    /// `mixed` has been stored.
    pub mixed_stored: AtomicBool,
    /// It was empty with its collection, or was built completely when it was attached. Otherwise the engine cannot
    /// tell whether its build has ended.
    pub complete: bool,
    /// Entries.
    pub entries: Count,
    /// Bytes of keys, type bits and ids.
    pub bytes: Count,
    /// Number of snapshots taken before it was created: those cannot show it.
    pub created: AtomicU64,
    /// Readers get `Dropped`.
    pub dropped: AtomicBool,
}

impl StoreState {
    /// Whether it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}

impl IndexState {
    /// Whether it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Whether a key may be there with its id though the index is unique.
    pub fn is_mixed(&self) -> bool {
        self.mixed.load(Ordering::Acquire)
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Registry {
    /// By collection.
    pub stores: HashMap<CollectionId, Arc<StoreState>>,
    /// By id.
    pub indexes: HashMap<IndexId, Arc<IndexState>>,
}
