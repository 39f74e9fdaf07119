//! Changes of a collection's definition: options, indexes, whether it takes writes. Each makes a new
//! version of the collection, under the rules of the module above.

use super::*;

impl Catalog {
    /// Changes a collection's options (`collMod`).
    pub fn change_options(
        &self,
        collection: &Collection,
        options: CollectionOptions,
    ) -> Result<CommitTicket> {
        let mut unit = WriteUnit::new();
        self.commit_definition(&mut unit, collection, options, collection.indexes.clone())
    }

    /// Replaces the definition of one index without touching its keys (`collMod`: expiry, hidden). Its uses are
    /// counted anew.
    pub fn change_index(
        &self,
        collection: &Collection,
        index: &Index,
        spec: DocBuf,
    ) -> Result<CommitTicket> {
        let keys = index.keys.redefined(IndexDefinition::from_spec(spec.as_doc())?);
        let mut indexes = collection.indexes.clone();
        for slot in &mut indexes {
            if slot.id == index.id {
                *slot = Arc::new(Index {
                    id: index.id,
                    keys: keys.clone(),
                    ready: index.ready,
                    data: index.data.clone(),
                    usage: Arc::new(self.new_usage()),
                });
            }
        }
        let mut unit = WriteUnit::new();
        self.commit_definition(&mut unit, collection, collection.options.clone(), indexes)
    }

    /// Adds indexes, not ready yet: from here on writes keep them up, and they have to be
    /// backfilled and then made ready. Their definitions have been checked.
    pub fn add_indexes(
        &self,
        collection: &Collection,
        specs: &[DocBuf],
    ) -> Result<(Vec<IndexId>, CommitTicket)> {
        collection.check_writable()?;
        if collection.indexes.len() + specs.len() > limits::INDEXES_PER_COLLECTION_MAX {
            bail!(
                CannotCreateIndex,
                "add index fails, too many indexes for {} key:{}",
                collection.ns,
                specs.first().map(|s| kauri_bson::shell_text(s.as_doc())).unwrap_or_default()
            );
        }
        let mut ddl = self.lock_ddl();
        let mut unit = WriteUnit::new();
        let first = ddl.next_index;
        let mut ids = Vec::new();
        let mut added = Vec::new();
        for (position, spec) in specs.iter().enumerate() {
            let id = IndexId(first + position as u32);
            let keys = IndexKeys::new(IndexDefinition::from_spec(spec.as_doc())?);
            unit.push(collection.id, RecordId(0), create_index_op(id, &keys));
            ids.push(id);
            added.push((id, keys));
        }
        let next_index = first + specs.len() as u32;
        let next_collection = ddl.next_collection;
        let counters = self.put_counters(&mut unit, &ddl, next_collection, next_index);
        let mut stored = stored_indexes(&collection.indexes);
        stored.extend(added.iter().map(|(id, k)| (*id, false, k.definition.spec.clone())));
        self.put_definition(&mut unit, &ddl, collection, &collection.options, &stored)?;
        let ticket = self.committer.commit(&mut unit)?;
        self.counters_committed(&mut ddl, &unit, counters, &ticket, next_collection, next_index);
        let mut indexes = collection.indexes.clone();
        for (id, keys) in added {
            indexes.push(self.index(id, keys, false)?);
        }
        self.replace(&mut ddl, collection, collection.options.clone(), indexes, &ticket)?;
        Ok((ids, ticket))
    }

    /// Makes indexes that were backfilled ready to serve, and drops others in the same unit.
    pub fn indexes_ready(
        &self,
        collection: &Collection,
        ready: &[IndexId],
        replaced: &[IndexId],
    ) -> Result<CommitTicket> {
        let mut unit = WriteUnit::new();
        for id in replaced {
            unit.push(collection.id, RecordId(0), OpKind::DropIndex { index: *id });
        }
        let indexes = collection
            .indexes
            .iter()
            .filter(|i| !replaced.contains(&i.id))
            .map(|i| if ready.contains(&i.id) { ready_copy(i) } else { i.clone() })
            .collect();
        self.commit_definition(&mut unit, collection, collection.options.clone(), indexes)
    }

    /// Drops indexes.
    pub fn drop_indexes(&self, collection: &Collection, ids: &[IndexId]) -> Result<CommitTicket> {
        let mut unit = WriteUnit::new();
        for id in ids {
            unit.push(collection.id, RecordId(0), OpKind::DropIndex { index: *id });
        }
        let kept = collection.indexes.iter().filter(|i| !ids.contains(&i.id)).cloned().collect();
        self.commit_definition(&mut unit, collection, collection.options.clone(), kept)
    }

    /// Lets the collection take no more writes and no other change of definition, until it's
    /// thawed, dropped or renamed away. Not stored: a restart thaws it.
    pub fn freeze(&self, collection: &Collection) -> Result<Arc<Collection>> {
        self.set_frozen(collection, true)
    }

    /// Lets a frozen collection take writes again.
    pub fn thaw(&self, collection: &Collection) -> Result<Arc<Collection>> {
        self.set_frozen(collection, false)
    }

    fn set_frozen(&self, collection: &Collection, frozen: bool) -> Result<Arc<Collection>> {
        if frozen {
            collection.check_writable()?;
        }
        let mut ddl = self.lock_ddl();
        let indexes = collection.indexes.clone();
        let stored = stored_indexes(&indexes);
        let mut unit = WriteUnit::new();
        self.put_definition(&mut unit, &ddl, collection, &collection.options, &stored)?;
        let ticket = self.committer.commit(&mut unit)?;
        if let Some(place) = ddl.places.get_mut(collection.ns.as_str()) {
            place.version = ticket.seq;
        }
        let mut changed = self.assemble(
            collection.id,
            collection.ns.clone(),
            collection.uuid,
            collection.options.clone(),
            indexes,
        )?;
        changed.frozen = frozen;
        changed.usage = collection.usage.clone();
        let changed = Arc::new(changed);
        write(&self.collections).insert(collection.ns.as_str().to_owned(), changed.clone());
        Ok(changed)
    }
}
