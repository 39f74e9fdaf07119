//! The catalog of a member that follows: its maps are brought to the state of each unit of the leader's that was
//! applied.
//!
//! The engine has applied the unit's records, those of the catalog and the stores that it created or dropped among
//! them. What no record tells of is of each member alone and is committed here, in units without records: indexes, and
//! the number of each definition that has changed. Indexes are created first and completed; then one unit drops
//! others and changes the numbers, and the maps change.
//!
//! Invariants:
//! - Units are applied one after the other, on one thread, and only while the member does not lead.
//! - The maps change once for a unit, so readers never find a moment in which neither name of a renamed collection is
//!   there.
//! - An index is *complete* when it has the keys of all documents. It is completed when it is added, before the next
//!   unit is applied; the engine keeps it up from then on. A leader that is deposed may have an incomplete one: it is
//!   completed when it is made ready. Whether it has duplicates is for the leader to decide, so they are no error here.

use super::*;
use crate::build::IndexBuild;
use crate::index::UnusableIndex;
use kauri_storage::{AppliedChange, AppliedKind};

/// A unit's effect on the catalog.
#[derive(Default)]
struct Effect {
    /// Names whose documents were deleted or replaced.
    gone: Vec<String>,
    views: Vec<(Place, View)>,
    collections: Vec<(Place, Definition)>,
}

/// A collection's stored definition, with what the member has of it already.
struct Definition {
    id: CollectionId,
    ns: Namespace,
    uuid: [u8; 16],
    options: CollectionOptions,
    before: Option<Arc<Collection>>,
    indexes: IndexSet,
    /// Indexes that are to be dropped.
    dropped: Vec<IndexId>,
}

type Documents = Vec<(RecordId, Option<(CommitSeq, Stored)>)>;

impl Catalog {
    /// A unit with these changes was applied: the catalog follows. Cheap unless the unit changes the catalog. Blocks
    /// while it reads catalog documents, and while it indexes the documents of a collection with a new index; that is
    /// interrupted by [`Catalog::end_builds`]. After an error nothing more may be applied.
    pub fn applied(&self, scope: &mut Scope, changes: &[AppliedChange]) -> Result<()> {
        let mut documents = Documents::new();
        let is_document =
            |c: &&AppliedChange| c.collection == CollectionId::CATALOG && c.record != RecordId(0);
        for change in changes.iter().filter(is_document) {
            let found = match change.kind {
                AppliedKind::Deleted => None,
                _ => stored::read_record(scope, change.record)?,
            };
            documents.push((change.record, found));
        }
        if documents.is_empty() {
            return Ok(());
        }
        let effect = self.effect_of(scope, documents)?;
        for (_, definition) in &effect.collections {
            self.complete_indexes(scope, definition)?;
        }
        self.publish(scope, effect)
    }

    /// The effect of these documents; creates new indexes.
    fn effect_of(&self, scope: &mut Scope, documents: Documents) -> Result<Effect> {
        let mut ddl = self.lock_ddl();
        let mut effect = Effect::default();
        for (record, found) in documents {
            let old = ddl.places.name_of(record).map(str::to_owned);
            let before = old.as_deref().map_or(Resolved::Nothing, |name| self.resolve(name));
            effect.gone.extend(old);
            // Without a document: the engine has dropped the store.
            let Some((version, stored)) = found else { continue };
            let place = Place { record, version };
            match (stored, before) {
                (Stored::Counters { next_collection, next_index }, _) => {
                    ddl.set_counters(place, next_collection, next_index);
                }
                (Stored::View(mut view), before) => {
                    if let Resolved::View(before) = before {
                        view.usage = before.usage.clone();
                    }
                    effect.views.push((place, view));
                }
                (Stored::Collection { id, ns, uuid, options, indexes }, before) => {
                    let before = match before {
                        Resolved::Collection(before) => Some(before),
                        _ => None,
                    };
                    let (indexes, dropped) =
                        self.follow_indexes(scope, before.as_deref(), (id, &ns), indexes)?;
                    let definition = Definition { id, ns, uuid, options, before, indexes, dropped };
                    effect.collections.push((place, definition));
                }
            }
        }
        Ok(effect)
    }

    /// The indexes of a collection as they are stored now, made of those that it has; creates new ones. Besides: those
    /// that are to be dropped.
    fn follow_indexes(
        &self,
        scope: &mut Scope,
        before: Option<&Collection>,
        (collection, ns): (CollectionId, &Namespace),
        stored: Vec<(IndexId, bool, DocBuf)>,
    ) -> Result<(IndexSet, Vec<IndexId>)> {
        let mut known = before.map(IndexSet::of).unwrap_or_default();
        let mut unit = WriteUnit::new();
        let mut usable = Vec::new();
        let mut unusable = Vec::new();
        for (id, ready, spec) in stored {
            if let Some(at) = known.unusable.iter().position(|i| i.id == id && i.spec == spec) {
                unusable.push(known.unusable.swap_remove(at));
                continue;
            }
            let old = known.usable.iter().position(|index| index.id == id);
            let old = old.map(|at| known.usable.swap_remove(at));
            match (keys_of(old.as_deref(), &spec), old) {
                (Ok(keys), None) => {
                    unit.push(collection, RecordId(0), create_index_op(id, &keys));
                    usable.push((id, keys, ready, None));
                }
                (Ok(keys), old) => usable.push((id, keys, ready, old)),
                (Err(why), _) => {
                    let index = UnusableIndex::new(id, spec, why);
                    if index.name == "_id_" {
                        return Err(index.error(ns));
                    }
                    // One that is not ready may yet be dropped.
                    if ready {
                        indexes::warn(ns, &index);
                        unusable.push(Arc::new(index));
                    }
                }
            }
        }
        if !unit.is_empty() {
            scope.commit(&mut unit)?;
        }
        let usable = usable.into_iter().map(|(id, keys, ready, old)| match old {
            Some(old) if old.ready == ready && Arc::ptr_eq(&old.keys, &keys) => Ok(old),
            old => self.followed_index(id, keys, ready, old.as_deref()),
        });
        let usable = usable.collect::<Result<_>>()?;
        let gone = known.usable.iter().map(|index| index.id);
        let gone = gone.chain(known.unusable.iter().map(|index| index.id));
        // The engine may not know one that can't be used.
        let dropped = gone.filter(|id| self.backend.engine().index(*id).is_some()).collect();
        Ok((IndexSet { usable, unusable }, dropped))
    }

    /// An index that is new or has changed. Its usage counters go on unless it was redefined.
    fn followed_index(
        &self,
        id: IndexId,
        keys: Arc<IndexKeys>,
        ready: bool,
        old: Option<&Index>,
    ) -> Result<Arc<Index>> {
        let gone = || Error::new(ErrorCode::InternalError, format!("no index {}", id.0));
        let data = self.backend.engine().index(id).ok_or_else(gone)?;
        let usage = match old.filter(|old| Arc::ptr_eq(&old.keys, &keys)) {
            Some(old) => old.usage.clone(),
            None => Arc::new(self.new_usage()),
        };
        Ok(Arc::new(Index { id, keys, ready, data, usage }))
    }

    /// Adds the keys of all documents to the indexes of a definition that are new, or about to be ready.
    fn complete_indexes(&self, scope: &mut Scope, definition: &Definition) -> Result<()> {
        let is_old = |id| definition.before.as_ref().is_some_and(|b| b.index_by_id(id).is_some());
        let due = definition.indexes.usable.iter();
        let due =
            due.filter(|index| !index.keys.is_complete() && (index.ready || !is_old(index.id)));
        for index in due {
            let indexes = definition.indexes.clone();
            let collection = Arc::new(self.assembled(definition, indexes)?);
            let mut build = IndexBuild::following(index.id);
            if !self.run_build(scope, &collection, &mut build, || None)? {
                return Err(collection.dropped_error());
            }
            match build.failure() {
                None => index.keys.set_complete(),
                Some(error) if index.ready => return Err(error.clone()),
                // The leader's build fails, too, and the index is dropped.
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn assembled(&self, definition: &Definition, indexes: IndexSet) -> Result<Collection> {
        let Definition { id, ns, uuid, options, .. } = definition;
        self.assemble(*id, ns.clone(), *uuid, options.clone(), indexes)
    }

    /// Commits what is left of the unit's effect; readers see all of it from now on.
    fn publish(&self, scope: &mut Scope, effect: Effect) -> Result<()> {
        let mut ddl = self.lock_ddl();
        let mut unit = WriteUnit::new();
        for (_, definition) in &effect.collections {
            for index in &definition.dropped {
                unit.push(definition.id, RecordId(0), OpKind::DropIndex { index: *index });
            }
            if definition.before.is_some() {
                unit.push(definition.id, RecordId(0), OpKind::ChangeDefinition);
            }
        }
        if !unit.is_empty() {
            scope.commit(&mut unit)?;
        }
        let mut new = Vec::new();
        for (place, definition) in effect.collections {
            let mut collection = self.assembled(&definition, definition.indexes.clone())?;
            if let Some(before) = &definition.before {
                collection.usage = before.usage.clone();
            }
            new.push((place, Arc::new(collection)));
        }
        let (mut collections, mut views) = (write(&self.collections), write(&self.views));
        for name in &effect.gone {
            ddl.places.remove(name);
            collections.remove(name);
            views.remove(name);
        }
        for (place, collection) in new {
            let name = collection.ns.as_str().to_owned();
            ddl.places.insert(&name, place);
            collections.insert(name, collection);
        }
        for (place, view) in effect.views {
            let name = view.ns.as_str().to_owned();
            ddl.places.insert(&name, place);
            views.insert(name, Arc::new(view));
        }
        Ok(())
    }
}

/// The key generation of an index that is stored with this definition now.
fn keys_of(old: Option<&Index>, spec: &DocBuf) -> Result<Arc<IndexKeys>> {
    let definition = match old.filter(|old| old.definition().spec == *spec) {
        Some(old) => return Ok(old.keys.clone()),
        None => IndexDefinition::from_spec(spec.as_doc())?,
    };
    Ok(match old {
        Some(old) => old.keys.redefined(definition),
        None => IndexKeys::new(definition),
    })
}
