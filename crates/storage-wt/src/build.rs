//! Attaches an index when the catalog is read.
//!
//! Index tables outlive the process, so a complete one needs no work. An index that was created on existing records
//! may have been unfinished when the process ended, and the engine cannot tell. It is built again from the records,
//! into a new table, and is complete from then on.

use crate::core::{Core, failed};
use crate::index_write::{self, Added, Scratch};
use crate::registry::{IndexState, StoreState};
use crate::rows::IndexRow;
use crate::store::split;
use crate::sys::{Session, Use};
use kauri_base::{CollectionId, RecordId};
use kauri_bson::Doc;
use kauri_storage::{IndexSpec, KeyGenerator, StorageError};
use std::sync::Arc;

/// Entries that one transaction adds, about.
const BATCH: usize = 1000;

impl Core {
    /// See [`kauri_storage::StorageEngine::attach_index`].
    pub fn attach_index(
        self: &Arc<Self>,
        collection: CollectionId,
        spec: IndexSpec,
        generator: &dyn KeyGenerator,
    ) -> Result<(), StorageError> {
        let (store, known) = {
            let registry = self.read();
            let store = registry.stores.get(&collection).cloned();
            (store, registry.indexes.get(&spec.id).cloned())
        };
        let store = store.ok_or(StorageError::StaleCatalog(collection))?;
        let is_it = |i: &&Arc<IndexState>| i.collection == collection && i.unique == spec.unique;
        if known.as_ref().filter(is_it).is_some_and(|index| index.complete) {
            return Ok(());
        }
        let mut session = self.session().map_err(failed)?;
        let row = IndexRow {
            id: spec.id,
            collection,
            unique: spec.unique,
            mixed: false,
            complete: true,
            ident: String::new(),
        };
        let index = Arc::new(self.create_index(&mut session, row).map_err(failed)?);
        let built = self.build(&mut session, &store, &index, generator);
        let noted = built.and_then(|()| {
            session.begin().map_err(failed)?;
            self.rows.put_index(&mut session, &index).map_err(failed)?;
            session.commit().map_err(failed)
        });
        drop(session);
        match noted {
            Ok(()) => {
                let old = self.write().indexes.insert(spec.id, index);
                old.into_iter().for_each(|old| self.discard_index(old));
            }
            Err(error) => {
                self.discard_index(index);
                self.forget_index(known)?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// What could not be built is no index any more.
    fn forget_index(self: &Arc<Self>, known: Option<Arc<IndexState>>) -> Result<(), StorageError> {
        let Some(index) = known else { return Ok(()) };
        let mut session = self.session().map_err(failed)?;
        self.rows.remove_index(&mut session, index.id).map_err(failed)?;
        drop(session);
        self.write().indexes.remove(&index.id);
        self.discard_index(index);
        Ok(())
    }

    fn build(
        self: &Arc<Self>,
        session: &mut Session,
        store: &StoreState,
        index: &IndexState,
        generator: &dyn KeyGenerator,
    ) -> Result<(), StorageError> {
        let mut scratch = Scratch::default();
        let mut last = 0;
        loop {
            // Read in one transaction, written in the next: nobody else writes at this time.
            let batch = read_batch(session, store, generator, &mut last)?;
            if batch.is_empty() {
                return Ok(());
            }
            session.begin().map_err(failed)?;
            for (id, key, type_bits) in batch {
                let entry = (&key[..], &type_bits[..]);
                let added = match index.unique {
                    true => index_write::add_unique(session, index, entry, id, &mut scratch),
                    false => index_write::add(session, index, entry, id, &mut scratch),
                };
                match added {
                    Ok(Added::Grown(entries, bytes)) => {
                        index.entries.change(entries);
                        index.bytes.change(bytes);
                    }
                    Ok(Added::Duplicate(_)) => {
                        session.rollback();
                        return Err(corrupt(store, id, "a duplicate key in a unique index"));
                    }
                    Err(code) => {
                        session.rollback();
                        return Err(failed(code));
                    }
                }
            }
            session.commit().map_err(failed)?;
        }
    }
}

type Entry = (RecordId, Vec<u8>, Vec<u8>);

/// The entries of the records after `last`, which is moved on.
fn read_batch(
    session: &mut Session,
    store: &StoreState,
    generator: &dyn KeyGenerator,
    last: &mut i64,
) -> Result<Vec<Entry>, StorageError> {
    let mut batch = Vec::new();
    let cursor = session.cursor(&store.table, Use::Scan).map_err(failed)?;
    let mut more = match cursor.near_record(*last).map_err(failed)? {
        None => false,
        Some(std::cmp::Ordering::Greater) => true,
        Some(_) => cursor.next().map_err(failed)?,
    };
    while more && batch.len() < BATCH {
        *last = cursor.record().map_err(failed)?;
        let id = RecordId(*last as u64);
        let (_, doc) = split(cursor.value().map_err(failed)?);
        let doc = Doc::from_bytes(doc).map_err(|error| corrupt(store, id, error.message()))?;
        generator
            .generate(doc, &mut |key, bits| batch.push((id, key.to_vec(), bits.to_vec())))
            .map_err(|error| corrupt(store, id, error.message()))?;
        more = cursor.next().map_err(failed)?;
        if !more {
            break;
        }
    }
    cursor.reset();
    Ok(batch)
}

fn corrupt(store: &StoreState, id: RecordId, message: &str) -> StorageError {
    StorageError::Corruption {
        collection: Some(store.id),
        record: Some(id),
        message: message.to_owned(),
    }
}
