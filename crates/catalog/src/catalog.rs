//! The catalog: databases, collections and indexes, and their creation and removal.
//!
//! It is stored as documents in record store 0: one per collection or view, and one for the counters that assign
//! ids. So a change of definition is a write unit like any other: atomic, and with the same durability.
//!
//! Invariants: the maps in memory match the last committed unit and change only under the `ddl` lock. That lock is
//! held over memory accesses and `commit` (which does not block), never over I/O or a wait. Ids are never reused.
//! Readers take an `Arc` of a definition and hold no lock. A member of a replica set that does not lead commits no
//! changes of its own: its maps match the last unit that it was told of ([`Catalog::applied`]).

mod applied;
mod current;
mod definitions;
mod indexes;
mod lead;
mod places;

pub use lead::InterruptedBuild;

use crate::collection::Collection;
use crate::index::{Index, IndexDefinition, IndexKeys, IndexUsage};
use crate::namespace::Namespace;
use crate::options::CollectionOptions;
use crate::stored::{self, Stored};
use crate::usage::OperationUsage;
use crate::view::View;
use indexes::IndexSet;
use kauri_base::{
    CollectionId, CommitSeq, Error, ErrorCode, IndexId, RecordId, Result, bail, limits, work,
};
use kauri_bson::DocBuf;
use kauri_storage::{Backend, CommitTicket, IndexSpec, Label, OpKind, Scope, WriteUnit};
use places::{Place, Places};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A collection's new name, and what goes with it.
pub struct Rename<'n> {
    /// The old name.
    pub from: &'n Namespace,
    /// The new name.
    pub to: &'n Namespace,
    /// The collection that has to have the old name still.
    pub source: Option<CollectionId>,
    /// Whether a collection of the new name is dropped.
    pub drop_target: bool,
    /// The collection that has to be there under the new name (and is dropped).
    pub replaces: Option<CollectionId>,
    /// Another collection that is dropped with the renaming, which has to be this one still.
    pub also_drop: Option<(&'n Namespace, CollectionId)>,
}

impl<'n> Rename<'n> {
    /// Nothing but the renaming.
    pub fn new(from: &'n Namespace, to: &'n Namespace) -> Self {
        Rename { from, to, source: None, drop_target: false, replaces: None, also_drop: None }
    }
}

/// The meaning of a name.
#[derive(Clone)]
pub enum Resolved {
    /// A collection.
    Collection(Arc<Collection>),
    /// A view.
    View(Arc<View>),
    /// Nothing.
    Nothing,
}

impl Resolved {
    /// Usage counters.
    pub fn usage(&self) -> Option<&Arc<OperationUsage>> {
        match self {
            Resolved::Collection(collection) => Some(&collection.usage),
            Resolved::View(view) => Some(&view.usage),
            Resolved::Nothing => None,
        }
    }
}

pub(crate) struct Ddl {
    places: Places,
    counters: Option<Place>,
    next_collection: u32,
    next_index: u32,
    /// Whether an interrupted index build is stored that this member could not attach.
    left_out: bool,
}

impl Ddl {
    fn set_counters(&mut self, place: Place, next_collection: u32, next_index: u32) {
        self.counters = Some(place);
        (self.next_collection, self.next_index) = (next_collection, next_index);
    }
}

/// See the module's head.
pub struct Catalog {
    backend: Arc<Backend>,
    /// Whether the server is a member of a replica set.
    is_member: bool,
    ddl: Mutex<Ddl>,
    collections: RwLock<HashMap<String, Arc<Collection>>>,
    views: RwLock<HashMap<String, Arc<View>>>,
    /// Whether index builds of the catalog's own end with an error.
    ending: AtomicBool,
}

impl Catalog {
    /// Reads the catalog of an engine that was just opened, attaches its indexes, and ends what the end of the process
    /// interrupted: for a server that is alone.
    pub fn open(backend: &Arc<Backend>) -> Result<Catalog> {
        let mut scope = backend.scope();
        let catalog = Catalog::new(backend, false);
        catalog.ensure_store(&mut scope)?;
        catalog.read(&mut scope)?;
        catalog.finish_index_builds(&mut scope)?;
        catalog.drop_temporary(&mut scope)?;
        Ok(catalog)
    }

    /// The same for a member of a replica set: commits nothing. The engine may be empty. The catalog then follows by
    /// [`Catalog::applied`] until [`Catalog::lead`].
    pub fn open_member(backend: &Arc<Backend>) -> Result<Catalog> {
        let mut scope = backend.scope();
        let catalog = Catalog::new(backend, true);
        if backend.engine().record_store(CollectionId::CATALOG).is_some() {
            catalog.read(&mut scope)?;
        }
        Ok(catalog)
    }

    fn new(backend: &Arc<Backend>, is_member: bool) -> Catalog {
        Catalog {
            backend: backend.clone(),
            is_member,
            ddl: Mutex::new(Ddl {
                places: Places::default(),
                counters: None,
                next_collection: 1,
                next_index: 1,
                left_out: false,
            }),
            collections: RwLock::default(),
            views: RwLock::default(),
            ending: AtomicBool::new(false),
        }
    }

    fn read(&self, scope: &mut Scope) -> Result<()> {
        for (record, version, stored) in stored::read_all(scope)? {
            self.load(Place { record, version }, stored)?;
        }
        Ok(())
    }

    fn load(&self, place: Place, stored: Stored) -> Result<()> {
        match stored {
            Stored::Counters { next_collection, next_index } => {
                self.lock_ddl().set_counters(place, next_collection, next_index);
            }
            Stored::View(view) => {
                let name = view.ns.as_str().to_owned();
                self.lock_ddl().places.insert(&name, place);
                write(&self.views).insert(name, Arc::new(view));
            }
            Stored::Collection { id, ns, uuid, options, indexes } => {
                let indexes = self.load_indexes(id, &ns, indexes)?;
                let collection = self.assemble(id, ns, uuid, options, indexes)?;
                let name = collection.ns.as_str().to_owned();
                self.lock_ddl().places.insert(&name, place);
                write(&self.collections).insert(name, Arc::new(collection));
            }
        }
        Ok(())
    }

    fn place_of(&self, ns: &Namespace) -> Result<RecordId> {
        match self.lock_ddl().places.get(ns.as_str()) {
            Some(place) => Ok(place.record),
            None => Err(namespace_not_found(ns)),
        }
    }

    /// The records of the counters and of these names.
    pub(crate) fn records_of(&self, names: &[String]) -> Vec<RecordId> {
        let ddl = self.lock_ddl();
        let named = names.iter().filter_map(|name| ddl.places.get(name));
        ddl.counters.into_iter().chain(named).map(|place| place.record).collect()
    }

    /// The collection of this full name.
    #[inline]
    pub fn collection(&self, full_name: &str) -> Option<Arc<Collection>> {
        read(&self.collections).get(full_name).cloned()
    }

    /// Resolves a name.
    pub fn resolve(&self, full_name: &str) -> Resolved {
        if let Some(collection) = self.collection(full_name) {
            return Resolved::Collection(collection);
        }
        match read(&self.views).get(full_name) {
            Some(view) => Resolved::View(view.clone()),
            None => Resolved::Nothing,
        }
    }

    /// The collection of this UUID in this database.
    pub fn collection_by_uuid(&self, database: &str, uuid: &[u8]) -> Option<Arc<Collection>> {
        read(&self.collections)
            .values()
            .find(|c| c.uuid == uuid && c.ns.database() == database)
            .cloned()
    }

    /// The database's collections by name.
    pub fn collections_of(&self, database: &str) -> Vec<Arc<Collection>> {
        let mut found: Vec<_> = read(&self.collections)
            .values()
            .filter(|c| c.ns.database() == database)
            .cloned()
            .collect();
        found.sort_by(|a, b| a.ns.cmp(&b.ns));
        found
    }

    /// All collections by name: an order that does not depend on the map's hashes, so that what is committed for
    /// each at a start, and TTL's deletes, are the same in every run of a simulation.
    pub fn all_collections(&self) -> Vec<Arc<Collection>> {
        let mut found: Vec<_> = read(&self.collections).values().cloned().collect();
        found.sort_by(|a, b| a.ns.cmp(&b.ns));
        found
    }

    /// The database's views by name.
    pub fn views_of(&self, database: &str) -> Vec<Arc<View>> {
        let mut found: Vec<_> =
            read(&self.views).values().filter(|v| v.ns.database() == database).cloned().collect();
        found.sort_by(|a, b| a.ns.cmp(&b.ns));
        found
    }

    /// All databases by name, with the number of their collections and views.
    pub fn databases(&self) -> BTreeMap<String, usize> {
        let mut names = BTreeMap::new();
        for collection in read(&self.collections).values() {
            *names.entry(collection.ns.database().to_owned()).or_default() += 1;
        }
        for view in read(&self.views).values() {
            *names.entry(view.ns.database().to_owned()).or_default() += 1;
        }
        names
    }

    /// Creates a collection. `NamespaceExists` if the name is taken.
    pub fn create_collection(
        &self,
        scope: &mut Scope,
        ns: &Namespace,
        options: CollectionOptions,
        id_index: Option<DocBuf>,
    ) -> Result<(Arc<Collection>, CommitTicket)> {
        self.create_collection_with(scope, ns, options, id_index, None)
    }

    /// The same with this UUID. `NamespaceExists` if the name or the UUID is taken.
    pub fn create_collection_with(
        &self,
        scope: &mut Scope,
        ns: &Namespace,
        options: CollectionOptions,
        id_index: Option<DocBuf>,
        uuid: Option<[u8; 16]>,
    ) -> Result<(Arc<Collection>, CommitTicket)> {
        self.check_free(ns)?;
        self.check_case(ns)?;
        let definition = IndexDefinition::from_spec(
            id_index.unwrap_or_else(IndexDefinition::id_index_spec).as_doc(),
        )?;
        let mut ddl = self.lock_ddl();
        self.check_free(ns)?;
        let uuid = match uuid {
            Some(uuid) => self.check_uuid_free(uuid)?,
            None => self.new_uuid(),
        };
        let id = CollectionId(ddl.next_collection);
        let index_id = IndexId(ddl.next_index);
        let keys = IndexKeys::new(definition);
        let mut unit = WriteUnit::new();
        unit.push(id, RecordId(0), OpKind::CreateStore);
        let mut stored = Vec::new();
        if ns.has_id_index() {
            unit.push(id, RecordId(0), create_index_op(index_id, &keys));
            stored.push((index_id, true, keys.definition.spec.clone()));
        }
        let text = stored::collection_doc(id, ns, &uuid, &options, &stored);
        let op = unit.insert(CollectionId::CATALOG, text.into_vec());
        let counters = self.put_counters(&mut unit, &ddl, id.0 + 1, index_id.0 + 1);
        let ticket = scope.commit(&mut unit)?;
        let place = Place { record: unit.ops[op].record, version: ticket.seq };
        ddl.places.insert(ns.as_str(), place);
        self.counters_committed(&mut ddl, &unit, counters, &ticket, id.0 + 1, index_id.0 + 1);
        let indexes = match ns.has_id_index() {
            true => self.index(index_id, keys, true)?.into(),
            false => Default::default(),
        };
        let collection = Arc::new(self.assemble(id, ns.clone(), uuid, options, indexes)?);
        write(&self.collections).insert(ns.as_str().to_owned(), collection.clone());
        Ok((collection, ticket))
    }

    /// Creates a view. `NamespaceExists` if the name is taken.
    pub fn create_view(&self, scope: &mut Scope, view: View) -> Result<CommitTicket> {
        let mut ddl = self.lock_ddl();
        self.check_free(&view.ns)?;
        let mut unit = WriteUnit::new();
        let op = unit.insert(CollectionId::CATALOG, stored::view_doc(&view).into_vec());
        let ticket = scope.commit(&mut unit)?;
        let place = Place { record: unit.ops[op].record, version: ticket.seq };
        let name = view.ns.as_str().to_owned();
        ddl.places.insert(&name, place);
        write(&self.views).insert(name, Arc::new(view));
        Ok(ticket)
    }

    /// Changes a view's definition.
    pub fn change_view(&self, scope: &mut Scope, view: View) -> Result<CommitTicket> {
        let mut ddl = self.lock_ddl();
        let name = view.ns.as_str().to_owned();
        let place = ddl.places.get(&name).ok_or_else(|| namespace_not_found(&view.ns))?;
        let mut unit = WriteUnit::new();
        let text = stored::view_doc(&view).into_vec();
        unit.update(CollectionId::CATALOG, place.record, place.version, text);
        self.note_old(&mut unit, &name, false);
        let ticket = scope.commit(&mut unit)?;
        ddl.places.replaced(&name, ticket.seq);
        write(&self.views).insert(name, Arc::new(view));
        Ok(ticket)
    }

    /// Drops a collection or view.
    pub fn drop_collection(&self, scope: &mut Scope, ns: &Namespace) -> Result<CommitTicket> {
        let mut ddl = self.lock_ddl();
        let mut unit = WriteUnit::new();
        if !self.add_drop(&mut unit, &ddl, ns.as_str(), false) {
            return Err(namespace_not_found(ns));
        }
        let ticket = scope.commit(&mut unit)?;
        self.forget(&mut ddl, ns.as_str());
        Ok(ticket)
    }

    /// Drops this collection, if it has the name still.
    pub fn drop_collection_of(
        &self,
        scope: &mut Scope,
        ns: &Namespace,
        id: CollectionId,
    ) -> Result<CommitTicket> {
        let mut ddl = self.lock_ddl();
        let mut unit = WriteUnit::new();
        let is_it = self.collection(ns.as_str()).is_some_and(|found| found.id == id);
        if !is_it || !self.add_drop(&mut unit, &ddl, ns.as_str(), false) {
            return Err(namespace_not_found(ns));
        }
        let ticket = scope.commit(&mut unit)?;
        self.forget(&mut ddl, ns.as_str());
        Ok(ticket)
    }

    /// Drops all views of a database. `None` if it has none.
    pub fn drop_views(&self, scope: &mut Scope, database: &str) -> Result<Option<CommitTicket>> {
        let mut ddl = self.lock_ddl();
        let views = self.views_of(database);
        if views.is_empty() {
            return Ok(None);
        }
        let mut unit = WriteUnit::new();
        for view in &views {
            self.add_drop(&mut unit, &ddl, view.ns.as_str(), false);
        }
        let ticket = scope.commit(&mut unit)?;
        for view in &views {
            self.forget(&mut ddl, view.ns.as_str());
        }
        Ok(Some(ticket))
    }

    /// Drops all collections and views of a database. `None` if it has none.
    pub fn drop_database(&self, scope: &mut Scope, database: &str) -> Result<Option<CommitTicket>> {
        let mut ddl = self.lock_ddl();
        let mut names: Vec<String> = Vec::new();
        names.extend(self.collections_of(database).iter().map(|c| c.ns.as_str().to_owned()));
        names.extend(self.views_of(database).iter().map(|v| v.ns.as_str().to_owned()));
        if names.is_empty() {
            return Ok(None);
        }
        let mut unit = WriteUnit::new();
        for name in &names {
            self.add_drop(&mut unit, &ddl, name, true);
        }
        let ticket = scope.commit(&mut unit)?;
        for name in &names {
            self.forget(&mut ddl, name);
        }
        Ok(Some(ticket))
    }

    /// Renames a collection, in one unit with all that goes with it.
    pub fn rename_collection(
        &self,
        scope: &mut Scope,
        rename: &Rename<'_>,
    ) -> Result<CommitTicket> {
        let (from, to) = (rename.from, rename.to);
        if from == to {
            bail!(IllegalOperation, "Can't rename a collection to itself");
        }
        to.check_length()?;
        self.check_case(to)?;
        let mut ddl = self.lock_ddl();
        let Some(source) = self.collection(from.as_str()) else {
            bail!(NamespaceNotFound, "Source collection {from} does not exist");
        };
        if rename.source.is_some_and(|id| id != source.id) {
            return Err(gone(from));
        }
        let mut unit = WriteUnit::new();
        match self.resolve(to.as_str()) {
            Resolved::Nothing if rename.replaces.is_none() => {}
            Resolved::Nothing => return Err(gone(to)),
            Resolved::View(_) => {
                bail!(NamespaceExists, "a view already exists with that name: {to}")
            }
            Resolved::Collection(_) if !rename.drop_target => {
                bail!(NamespaceExists, "target namespace exists");
            }
            Resolved::Collection(target) => {
                if rename.replaces.is_some_and(|id| id != target.id) {
                    return Err(gone(to));
                }
                self.add_drop(&mut unit, &ddl, to.as_str(), false);
            }
        }
        if let Some((name, id)) = rename.also_drop {
            if self.collection(name.as_str()).is_none_or(|c| c.id != id) {
                return Err(gone(name));
            }
            self.add_drop(&mut unit, &ddl, name.as_str(), false);
        }
        let place = ddl.places.get(from.as_str()).ok_or_else(|| namespace_not_found(from))?;
        let indexes = IndexSet::of(&source);
        let options = CollectionOptions { temp: false, ..source.options.clone() };
        let text = stored::collection_doc(source.id, to, &source.uuid, &options, &indexes.stored());
        unit.update(CollectionId::CATALOG, place.record, place.version, text.into_vec());
        self.note_old(&mut unit, from.as_str(), false);
        unit.push(source.id, RecordId(0), OpKind::ChangeDefinition);
        let ticket = scope.commit(&mut unit)?;
        let mut renamed = self.assemble(source.id, to.clone(), source.uuid, options, indexes)?;
        renamed.usage = source.usage.clone();
        // Readers must not find a moment in which neither name is there.
        let mut collections = write(&self.collections);
        for name in [Some(from), rename.also_drop.map(|(name, _)| name)].into_iter().flatten() {
            ddl.places.remove(name.as_str());
            collections.remove(name.as_str());
        }
        ddl.places.insert(to.as_str(), Place { version: ticket.seq, ..place });
        collections.insert(to.as_str().to_owned(), Arc::new(renamed));
        Ok(ticket)
    }

    /// Commits a changed definition of a collection. `StaleCatalog` if it is not the current one.
    fn commit_definition(
        &self,
        scope: &mut Scope,
        unit: &mut WriteUnit<'_>,
        collection: &Collection,
        options: CollectionOptions,
        indexes: IndexSet,
    ) -> Result<CommitTicket> {
        collection.check_writable()?;
        let mut ddl = self.lock_ddl();
        self.put_definition(unit, &ddl, collection, &options, &indexes.stored())?;
        let ticket = scope.commit(unit)?;
        self.replace(&mut ddl, collection, options, indexes, &ticket)?;
        Ok(ticket)
    }

    fn put_definition(
        &self,
        unit: &mut WriteUnit<'_>,
        ddl: &Ddl,
        collection: &Collection,
        options: &CollectionOptions,
        indexes: &[(IndexId, bool, DocBuf)],
    ) -> Result<()> {
        let place = ddl
            .places
            .get(collection.ns.as_str())
            .ok_or_else(|| namespace_not_found(&collection.ns))?;
        let text = stored::collection_doc(
            collection.id,
            &collection.ns,
            &collection.uuid,
            options,
            indexes,
        );
        unit.expect_definition(collection.id, collection.definition);
        unit.update(CollectionId::CATALOG, place.record, place.version, text.into_vec());
        self.note_old(unit, collection.ns.as_str(), false);
        unit.push(collection.id, RecordId(0), OpKind::ChangeDefinition);
        Ok(())
    }

    fn replace(
        &self,
        ddl: &mut Ddl,
        old: &Collection,
        options: CollectionOptions,
        indexes: IndexSet,
        ticket: &CommitTicket,
    ) -> Result<()> {
        ddl.places.replaced(old.ns.as_str(), ticket.seq);
        let mut collection = self.assemble(old.id, old.ns.clone(), old.uuid, options, indexes)?;
        collection.usage = old.usage.clone();
        write(&self.collections).insert(old.ns.as_str().to_owned(), Arc::new(collection));
        Ok(())
    }

    fn assemble(
        &self,
        id: CollectionId,
        ns: Namespace,
        uuid: [u8; 16],
        options: CollectionOptions,
        indexes: IndexSet,
    ) -> Result<Collection> {
        let gone = || Error::new(ErrorCode::InternalError, format!("no store for {ns}"));
        let store = self.backend.engine().record_store(id).ok_or_else(gone)?;
        let definition = self.backend.engine().definition_number(id).ok_or_else(gone)?;
        let IndexSet { usable: indexes, unusable } = indexes;
        let (frozen, usage) = (false, Arc::default());
        let label = Label { collection: id, uuid, name: ns.as_str().to_owned() };
        let label = self.is_member.then(|| Arc::new(label));
        Ok(Collection {
            id,
            ns,
            uuid,
            options,
            definition,
            store,
            indexes,
            unusable,
            frozen,
            usage,
            label,
        })
    }

    fn index(&self, id: IndexId, keys: Arc<IndexKeys>, ready: bool) -> Result<Arc<Index>> {
        if ready {
            keys.set_complete();
        }
        let data =
            self.backend.engine().index(id).ok_or_else(|| {
                Error::new(ErrorCode::InternalError, format!("no index {}", id.0))
            })?;
        Ok(Arc::new(Index { id, keys, ready, data, usage: Arc::new(self.new_usage()) }))
    }

    fn new_usage(&self) -> IndexUsage {
        IndexUsage { accesses: AtomicU64::new(0), since_ms: self.backend.now_ms() }
    }

    /// `of_database`: with all others of its database.
    fn add_drop(&self, unit: &mut WriteUnit<'_>, ddl: &Ddl, name: &str, of_database: bool) -> bool {
        let Some(place) = ddl.places.get(name) else { return false };
        unit.delete(CollectionId::CATALOG, place.record, place.version);
        self.note_old(unit, name, of_database);
        if let Some(collection) = self.collection(name) {
            unit.push(collection.id, RecordId(0), OpKind::DropStore);
        }
        true
    }

    /// Notes the definition of this name, which the unit's last operation changes or deletes, for the log of a set.
    fn note_old(&self, unit: &mut WriteUnit<'_>, name: &str, of_database: bool) {
        if !self.is_member {
            return;
        }
        let old = match self.resolve(name) {
            Resolved::Collection(old) => {
                let indexes = IndexSet::of(&old).stored();
                stored::collection_doc(old.id, &old.ns, &old.uuid, &old.options, &indexes)
            }
            Resolved::View(view) => stored::view_doc(&view),
            Resolved::Nothing => return,
        };
        let note = DocBuf::build(|out| {
            out.put_all(old.as_doc());
            if of_database {
                out.put(stored::OF_DATABASE, true);
            }
        });
        unit.note(note.as_doc().as_bytes());
    }

    fn forget(&self, ddl: &mut Ddl, name: &str) {
        ddl.places.remove(name);
        write(&self.collections).remove(name);
        write(&self.views).remove(name);
    }

    fn check_free(&self, ns: &Namespace) -> Result<()> {
        ns.check_length()?;
        match self.resolve(ns.as_str()) {
            Resolved::Nothing => Ok(()),
            Resolved::View(_) => bail!(NamespaceExists, "A view already exists. NS: {ns}"),
            Resolved::Collection(_) => {
                bail!(NamespaceExists, "Collection {ns} already exists.")
            }
        }
    }

    /// Two databases cannot have names that differ only in case, as in MongoDB.
    fn check_case(&self, ns: &Namespace) -> Result<()> {
        let name = ns.database();
        let clash = self
            .databases()
            .into_keys()
            .find(|other| other != name && other.eq_ignore_ascii_case(name));
        match clash {
            Some(other) => Err(Error::location(
                13297,
                format!(
                    "db already exists with different case already have: [{other}] trying to \
                     create [{name}]"
                ),
            )),
            None => Ok(()),
        }
    }

    fn put_counters(
        &self,
        unit: &mut WriteUnit<'_>,
        ddl: &Ddl,
        next_collection: u32,
        next_index: u32,
    ) -> usize {
        let text = stored::counters_doc(next_collection, next_index).into_vec();
        match ddl.counters {
            Some(place) => unit.update(CollectionId::CATALOG, place.record, place.version, text),
            None => unit.insert(CollectionId::CATALOG, text),
        }
    }

    fn counters_committed(
        &self,
        ddl: &mut Ddl,
        unit: &WriteUnit<'_>,
        op: usize,
        ticket: &CommitTicket,
        next_collection: u32,
        next_index: u32,
    ) {
        let place = Place { record: unit.ops[op].record, version: ticket.seq };
        ddl.set_counters(place, next_collection, next_index);
    }

    fn new_uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.backend.random().next_u64().to_le_bytes());
        uuid[8..].copy_from_slice(&self.backend.random().next_u64().to_le_bytes());
        uuid[6] = uuid[6] & 0x0F | 0x40;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        uuid
    }

    /// Takes the lock of definitions. Code under it is not suspended, because other tasks of the worker may need
    /// the lock.
    pub(crate) fn lock_ddl(&self) -> DdlGuard<'_> {
        let outside = work::leave_meter();
        let ddl = self.ddl.lock().unwrap_or_else(PoisonError::into_inner);
        DdlGuard { ddl, _outside: outside }
    }
}

/// See [`Catalog::lock_ddl`].
pub(crate) struct DdlGuard<'c> {
    ddl: MutexGuard<'c, Ddl>,
    _outside: work::Unmetered,
}

impl std::ops::Deref for DdlGuard<'_> {
    type Target = Ddl;

    fn deref(&self) -> &Ddl {
        &self.ddl
    }
}

impl std::ops::DerefMut for DdlGuard<'_> {
    fn deref_mut(&mut self) -> &mut Ddl {
        &mut self.ddl
    }
}

fn create_index_op(id: IndexId, keys: &Arc<IndexKeys>) -> OpKind<'static> {
    let spec = IndexSpec { id, unique: keys.definition.unique };
    OpKind::CreateIndex { spec, generator: keys.clone() }
}

fn ready_copy(index: &Arc<Index>) -> Arc<Index> {
    index.keys.set_complete();
    Arc::new(Index {
        id: index.id,
        keys: index.keys.clone(),
        ready: true,
        data: index.data.clone(),
        usage: index.usage.clone(),
    })
}

/// `NamespaceNotFound` as MongoDB words it for drops and the like.
pub fn namespace_not_found(_ns: &Namespace) -> Error {
    Error::new(ErrorCode::NamespaceNotFound, "ns not found")
}

fn gone(ns: &Namespace) -> Error {
    Error::new(
        ErrorCode::ConflictingOperationInProgress,
        format!("collection {ns} was dropped or replaced meanwhile"),
    )
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The UUID that `listCollections` gives for a database's `system.views`: made from the name, so
/// that it stays the same while nothing stores it.
pub fn system_views_uuid(database: &str) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (half, seed) in
        uuid.chunks_exact_mut(8).zip([0xCBF2_9CE4_8422_2325u64, 0x9E37_79B9_7F4A_7C15])
    {
        let hash = database
            .bytes()
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
        half.copy_from_slice(&hash.to_le_bytes());
    }
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}
