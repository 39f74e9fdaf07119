//! The usable and unusable indexes of a definition, and how startup determines them.

use super::*;
use crate::index::UnusableIndex;
use kauri_base::log::{self, Attr};
use kauri_storage::{KeyGenerator, StorageError};

/// See the module's head.
#[derive(Clone, Default)]
pub(super) struct IndexSet {
    pub usable: Vec<Arc<Index>>,
    pub unusable: Vec<Arc<UnusableIndex>>,
}

impl From<Arc<Index>> for IndexSet {
    fn from(index: Arc<Index>) -> IndexSet {
        IndexSet { usable: vec![index], unusable: Vec::new() }
    }
}

impl IndexSet {
    /// The indexes of a collection.
    pub fn of(collection: &Collection) -> IndexSet {
        IndexSet { usable: collection.indexes.clone(), unusable: collection.unusable.clone() }
    }

    /// As they are stored.
    pub fn stored(&self) -> Vec<(IndexId, bool, DocBuf)> {
        let usable = self.usable.iter().map(|i| (i.id, i.ready, i.definition().spec.clone()));
        usable.chain(self.unusable.iter().map(|i| (i.id, true, i.spec.clone()))).collect()
    }
}

impl Catalog {
    /// Parses stored definitions and attaches the indexes to the engine. An unusable index is set aside with a
    /// warning. An interrupted build that cannot be finished is left out. On a member an index that is not ready may
    /// have duplicates: the leader decides what becomes of it.
    pub(super) fn load_indexes(
        &self,
        collection: CollectionId,
        ns: &Namespace,
        stored: Vec<(IndexId, bool, DocBuf)>,
    ) -> Result<IndexSet> {
        let mut found = IndexSet::default();
        let mut set_aside = |id, ready, spec: DocBuf, why: Error| {
            let index = UnusableIndex::new(id, spec, why);
            // Nothing goes without the index on `_id`.
            if index.name == "_id_" {
                return Err(index.error(ns));
            }
            if ready {
                warn(ns, &index);
                found.unusable.push(Arc::new(index));
            }
            Ok(())
        };
        let stored_indexes = stored.len();
        let mut known = Vec::new();
        for (id, ready, spec) in stored {
            let keys = match IndexDefinition::from_spec(spec.as_doc()) {
                Ok(definition) => IndexKeys::new(definition),
                Err(why) => {
                    set_aside(id, ready, spec, why)?;
                    continue;
                }
            };
            if ready {
                keys.set_complete();
            }
            known.push((id, keys, ready));
        }
        let wanted: Vec<(IndexSpec, Arc<dyn KeyGenerator>)> = known
            .iter()
            .map(|(id, keys, ready)| {
                let generator: Arc<dyn KeyGenerator> = keys.clone();
                let unique = keys.definition.unique && (*ready || !self.is_member);
                (IndexSpec { id: *id, unique }, generator)
            })
            .collect();
        let built = self.backend.engine().attach_indexes(collection, &wanted);
        let mut usable = Vec::new();
        for ((id, keys, ready), built) in known.into_iter().zip(built) {
            match (built, keys.failure()) {
                (Ok(()), _) => {
                    keys.set_complete();
                    usable.push(self.index(id, keys, ready)?);
                }
                (Err(error @ StorageError::NeedsMemory { .. }), _) => return Err(error.into()),
                (Err(_), Some(why)) => {
                    set_aside(id, ready, keys.definition.spec.clone(), why.clone())?;
                }
                // A unique index whose build had not ended may still meet duplicates.
                (Err(_), None) if !ready => {}
                (Err(error), None) => return Err(error.into()),
            }
        }
        found.usable = usable;
        if found.usable.len() + found.unusable.len() < stored_indexes {
            self.lock_ddl().left_out = true;
        }
        Ok(found)
    }
}

pub(super) fn warn(ns: &Namespace, index: &UnusableIndex) {
    let attr = Attr::new()
        .str("namespace", ns.as_str())
        .str("index", &index.name)
        .str("error", index.error(ns).message());
    let message =
        "Index is unusable: its collection is read-only until the index is dropped (dropIndexes)";
    log::warning("INDEX", 6_200_032, log::STARTUP_CTX, message, attr);
}
