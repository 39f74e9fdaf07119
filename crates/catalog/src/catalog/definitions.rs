//! Changes of a collection's definition: options, indexes, whether writes are accepted. Each change creates a new
//! version of the collection, under the rules of the module above.

use super::*;

impl Catalog {
    /// The collection of this UUID, whatever its database.
    pub fn collection_of_uuid(&self, uuid: &[u8; 16]) -> Option<Arc<Collection>> {
        read(&self.collections).values().find(|c| c.uuid == *uuid).cloned()
    }

    /// Gives the UUID back unless a collection has it.
    pub(super) fn check_uuid_free(&self, uuid: [u8; 16]) -> Result<[u8; 16]> {
        if let Some(other) = self.collection_of_uuid(&uuid) {
            bail!(NamespaceExists, "Collection {} has the same UUID.", other.ns);
        }
        Ok(uuid)
    }

    /// Changes a collection's options (`collMod`).
    pub fn change_options(
        &self,
        scope: &mut Scope,
        collection: &Collection,
        options: CollectionOptions,
    ) -> Result<CommitTicket> {
        let mut unit = WriteUnit::new();
        self.commit_definition(scope, &mut unit, collection, options, IndexSet::of(collection))
    }

    /// Replaces the definition of one index without touching its keys (`collMod`: expiry, hidden). Its usage
    /// counters start at 0.
    pub fn change_index(
        &self,
        scope: &mut Scope,
        collection: &Collection,
        index: &Index,
        spec: DocBuf,
    ) -> Result<CommitTicket> {
        let keys = index.keys.redefined(IndexDefinition::from_spec(spec.as_doc())?);
        let mut indexes = IndexSet::of(collection);
        for slot in &mut indexes.usable {
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
        self.commit_definition(scope, &mut unit, collection, collection.options.clone(), indexes)
    }

    /// Adds indexes, not ready yet: from here on writes keep them up, and they have to be
    /// backfilled and then made ready. Their definitions have been checked.
    pub fn add_indexes(
        &self,
        scope: &mut Scope,
        collection: &Collection,
        specs: &[DocBuf],
    ) -> Result<(Vec<IndexId>, CommitTicket)> {
        collection.check_takes_documents()?;
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
        let mut indexes = IndexSet::of(collection);
        let mut stored = indexes.stored();
        stored.extend(added.iter().map(|(id, k)| (*id, false, k.definition.spec.clone())));
        self.put_definition(&mut unit, &ddl, collection, &collection.options, &stored)?;
        let ticket = scope.commit(&mut unit)?;
        self.counters_committed(&mut ddl, &unit, counters, &ticket, next_collection, next_index);
        for (id, keys) in added {
            indexes.usable.push(self.index(id, keys, false)?);
        }
        self.replace(&mut ddl, collection, collection.options.clone(), indexes, &ticket)?;
        Ok((ids, ticket))
    }

    /// Makes indexes that were backfilled ready to serve, and drops others in the same unit.
    pub fn indexes_ready(
        &self,
        scope: &mut Scope,
        collection: &Collection,
        ready: &[IndexId],
        replaced: &[IndexId],
    ) -> Result<CommitTicket> {
        let mut unit = WriteUnit::new();
        for id in replaced {
            unit.push(collection.id, RecordId(0), OpKind::DropIndex { index: *id });
        }
        let mut indexes = IndexSet::of(collection);
        indexes.usable.retain(|index| !replaced.contains(&index.id));
        for index in indexes.usable.iter_mut().filter(|index| ready.contains(&index.id)) {
            *index = ready_copy(index);
        }
        self.commit_definition(scope, &mut unit, collection, collection.options.clone(), indexes)
    }

    /// Drops indexes.
    pub fn drop_indexes(
        &self,
        scope: &mut Scope,
        collection: &Collection,
        ids: &[IndexId],
    ) -> Result<CommitTicket> {
        let mut unit = WriteUnit::new();
        // The engine may not know one that can't be used.
        for id in ids.iter().filter(|id| self.backend.engine().index(**id).is_some()) {
            unit.push(collection.id, RecordId(0), OpKind::DropIndex { index: *id });
        }
        let mut kept = IndexSet::of(collection);
        kept.usable.retain(|index| !ids.contains(&index.id));
        kept.unusable.retain(|index| !ids.contains(&index.id));
        self.commit_definition(scope, &mut unit, collection, collection.options.clone(), kept)
    }

    /// Lets the collection take no more writes and no other change of definition, until it's
    /// thawed, dropped or renamed away. Not stored: a restart thaws it.
    pub fn freeze(&self, scope: &mut Scope, collection: &Collection) -> Result<Arc<Collection>> {
        self.set_frozen(scope, collection, true)
    }

    /// Lets a frozen collection take writes again.
    pub fn thaw(&self, scope: &mut Scope, collection: &Collection) -> Result<Arc<Collection>> {
        self.set_frozen(scope, collection, false)
    }

    fn set_frozen(
        &self,
        scope: &mut Scope,
        collection: &Collection,
        frozen: bool,
    ) -> Result<Arc<Collection>> {
        if frozen {
            collection.check_writable()?;
        }
        let mut ddl = self.lock_ddl();
        let indexes = IndexSet::of(collection);
        let stored = indexes.stored();
        let mut unit = WriteUnit::new();
        self.put_definition(&mut unit, &ddl, collection, &collection.options, &stored)?;
        let ticket = scope.commit(&mut unit)?;
        ddl.places.replaced(collection.ns.as_str(), ticket.seq);
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
