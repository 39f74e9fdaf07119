//! Which stores and indexes there are, with their tables and counts.

use crate::sys::Table;
use kauri_base::{CollectionId, IndexId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A number that commits change by differences.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// What it stands at.
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
    /// The snapshots that had been held when its definition changed last: those can't show it.
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
    /// Its keys stand alone (see `keys`), except for those that are exempt.
    pub unique: bool,
    /// There may be keys with ids in a unique index.
    pub mixed: AtomicBool,
    /// `mixed` has been stored.
    pub mixed_stored: AtomicBool,
    /// It was empty with its collection, or has been built whole when it was attached. Otherwise the
    /// engine can't tell whether its build has ended.
    pub complete: bool,
    /// Entries.
    pub entries: Count,
    /// Bytes of keys, type bits and ids.
    pub bytes: Count,
    /// The snapshots that had been held when it was created: those can't show it.
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
