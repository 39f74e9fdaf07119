//! Reads of collections and indexes that are dropped or replaced during the read.
//!
//! A [`Collection`] or [`Index`] may be dropped while a reader uses it. The engine then returns
//! `StorageError::Dropped`, never an empty result. This module converts that error into MongoDB's
//! (`QueryPlanKilled`), and lets a statement without an effect start again: [`is_dropped`] recognises the error,
//! [`crate::Catalog::catch_up`] makes sure that the name resolves to the current collection.
//!
//! This module must not know plans and statements: they know whether something had an effect.

use crate::collection::Collection;
use crate::index::Index;
use kauri_base::{Access, Error, ErrorCode, RecordId, Result};
use kauri_storage::{IndexScan, Record, RecordScan, RecordStoreStats, RecoveryUnit, StorageError};

/// How often a statement may start again before the client gets its error. Each repetition takes another change of
/// a definition in the middle of a read.
pub const REPLANS_MAX: u32 = 32;

/// Whether an error means that the read object was dropped.
pub fn is_dropped(error: &Error) -> bool {
    error.code() == ErrorCode::QueryPlanKilled
}

/// A UUID as text: `xxxxxxxx-xxxx-…`.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(36);
    for (position, byte) in uuid.iter().enumerate() {
        if matches!(position, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl Collection {
    /// The record's document as `ru` sees it.
    #[inline]
    pub fn get<'g>(
        &self,
        ru: &'g dyn RecoveryUnit,
        id: RecordId,
    ) -> Result<Access<Option<Record<'g>>>> {
        self.store.get(ru, id).map_err(|error| self.read_error(error))
    }

    /// Fills the scan's batch.
    #[inline]
    pub fn fill(&self, ru: &dyn RecoveryUnit, scan: &mut RecordScan) -> Result<Access<()>> {
        self.store.fill(ru, scan).map_err(|error| self.read_error(error))
    }

    /// Counts and sizes.
    pub fn stats(&self) -> Result<RecordStoreStats> {
        self.store.stats().map_err(|error| self.read_error(error))
    }

    /// The bytes of its indexes.
    pub fn index_bytes(&self) -> Result<u64> {
        self.indexes.iter().map(|index| index.bytes()).sum()
    }

    /// The client's error for a read that ends because the collection was dropped.
    pub fn dropped_error(&self) -> Error {
        let message = format!("collection dropped. UUID {}", uuid_text(&self.uuid));
        Error::new(ErrorCode::QueryPlanKilled, message)
    }

    #[cold]
    fn read_error(&self, error: StorageError) -> Error {
        match error {
            StorageError::Dropped { .. } => self.dropped_error(),
            error => error.into(),
        }
    }
}

impl Index {
    /// The first record that has exactly this key.
    #[inline]
    pub fn find(&self, ru: &dyn RecoveryUnit, key: &[u8]) -> Result<Access<Option<RecordId>>> {
        self.data.find(ru, key).map_err(|error| self.read_error(error))
    }

    /// Fills the scan's batch.
    #[inline]
    pub fn fill(&self, ru: &dyn RecoveryUnit, scan: &mut IndexScan) -> Result<Access<()>> {
        self.data.fill(ru, scan).map_err(|error| self.read_error(error))
    }

    /// Bytes it occupies.
    pub fn bytes(&self) -> Result<u64> {
        self.data.bytes().map_err(|error| self.read_error(error))
    }

    #[cold]
    fn read_error(&self, error: StorageError) -> Error {
        match error {
            StorageError::Dropped { .. } => {
                let message = format!("query plan killed :: index '{}' dropped", self.name());
                Error::new(ErrorCode::QueryPlanKilled, message)
            }
            error => error.into(),
        }
    }
}
