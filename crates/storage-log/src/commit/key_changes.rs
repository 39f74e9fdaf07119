//! What a record's change means for the indexes of its collection, where only the documents are known: units of a
//! replicated log.

use crate::address::Slot;
use crate::collection::Collection;
use crate::core::Core;
use crate::index::Index;
use crate::read::{self, Lookup};
use kauri_base::sync::Arc;
use kauri_base::{Access, RecordId};
use kauri_bson::Doc;
use kauri_medium::Guard;
use kauri_storage::StorageError;
use std::collections::BTreeMap;

/// A key that an index gets (with its type bits) or loses.
pub struct KeyChange {
    /// The index.
    pub index: Arc<Index>,
    /// The key.
    pub key: Vec<u8>,
    /// The type bits; none if the index loses it.
    pub bits: Option<Vec<u8>>,
}

impl Core {
    /// The key changes by a document that becomes another one. The indexes that exist now: who calls keeps others from
    /// defining some (`Registry::lock_ddl`).
    pub(super) fn key_changes(
        &self,
        store: &Collection,
        record: u64,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Vec<KeyChange>, StorageError> {
        let indexes: Vec<Arc<Index>> = {
            let maps = self.registry.read();
            maps.indexes.values().filter(|i| i.collection == store.id).cloned().collect()
        };
        let mut keys = Vec::new();
        for index in indexes {
            let generate = |doc: Option<&[u8]>| match doc {
                Some(bytes) => generate(&index, store, record, bytes),
                None => Ok(BTreeMap::new()),
            };
            let (before, after) = (generate(old)?, generate(new)?);
            let removed = before.keys().filter(|key| !after.contains_key(*key));
            keys.extend(removed.map(|key| KeyChange {
                index: index.clone(),
                key: key.clone(),
                bits: None,
            }));
            let added = after.into_iter().filter(|(key, bits)| before.get(key) != Some(bits));
            keys.extend(added.map(|(key, bits)| KeyChange {
                index: index.clone(),
                key,
                bits: Some(bits),
            }));
        }
        Ok(keys)
    }

    /// A copy of a document, the current one or that at a place, and its version. Waits for what is not in memory.
    pub(super) fn document(
        &self,
        store: &Collection,
        record: u64,
        at: Option<Slot>,
        guard: &mut Guard,
    ) -> Result<Option<(u64, Vec<u8>)>, StorageError> {
        loop {
            guard.enter();
            let slot = at.unwrap_or_else(|| store.slots.load(guard, record));
            let found = read::document_at(self, guard, store, RecordId(record), slot);
            let found = found.map(|access| {
                access.map(|found| match found {
                    Lookup::Found((header, bytes)) => Some((header.seq, bytes.to_vec())),
                    Lookup::Nothing => None,
                })
            });
            guard.leave();
            match found? {
                Access::Ready(found) => return Ok(found),
                Access::WouldBlock(ticket) => {
                    ticket.wait().map_err(|error| StorageError::Io(error.to_string()))?;
                }
            }
        }
    }
}

/// The keys of a document.
fn generate(
    index: &Index,
    store: &Collection,
    record: u64,
    bytes: &[u8],
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, StorageError> {
    let corrupt = |error: kauri_base::Error| StorageError::Corruption {
        collection: Some(store.id),
        record: Some(RecordId(record)),
        message: error.message().to_owned(),
    };
    let mut keys = BTreeMap::new();
    let doc = Doc::from_bytes(bytes).map_err(corrupt)?;
    let mut emit = |key: &[u8], bits: &[u8]| drop(keys.insert(key.to_vec(), bits.to_vec()));
    index.generator.generate(doc, &mut emit).map_err(corrupt)?;
    Ok(keys)
}
