//! The recovery unit: an arena of the data that was read through it.
//!
//! Invariant: the arena only grows while the unit is borrowed, so a value that [`EphemeralUnit::keep`] returned
//! lives as long as the borrow. Only `leave`, which needs the unit exclusively, empties the arena.

use super::Shared;
use super::state::State;
use crate::engine::RecoveryUnit;
use crate::error::StorageError;
use crate::write_set::WriteSet;
use kauri_base::sync::{Arc, RwLockReadGuard};
use kauri_base::{CollectionId, CommitSeq, IndexId};
use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::ops::Deref;

/// Chunk `n` has room for `CHUNK_FIRST << n` documents, so this many are never used up.
const CHUNKS: usize = 40;
const CHUNK_FIRST: usize = 4;

type Chunk = Box<[OnceCell<Arc<[u8]>>]>;

pub(super) struct EphemeralUnit {
    shared: Arc<Shared>,
    snapshot: Option<CommitSeq>,
    chunks: [OnceCell<Chunk>; CHUNKS],
    /// The chunk being filled, and how many of its places are taken.
    filling: Cell<(usize, usize)>,
    held: Option<Held>,
}

struct Held {
    state: Arc<State>,
    write_set: WriteSet,
}

/// The state that a unit sees.
pub(super) enum View<'u> {
    Now(RwLockReadGuard<'u, Arc<State>>),
    Held(&'u State),
}

impl Deref for View<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        match self {
            View::Now(state) => state,
            View::Held(state) => state,
        }
    }
}

impl EphemeralUnit {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        EphemeralUnit {
            shared,
            snapshot: None,
            chunks: [const { OnceCell::new() }; CHUNKS],
            filling: Cell::new((0, 0)),
            held: None,
        }
    }

    /// The unit's view of a store.
    pub(super) fn store_view(&self, id: CollectionId) -> Result<View<'_>, StorageError> {
        let now = self.shared.read();
        let Some(held) = &self.held else { return Ok(View::Now(now)) };
        let definition = |state: &State| state.stores.get(&id).map(|store| store.definition);
        if definition(&now) != definition(&held.state) {
            return Err(StorageError::SnapshotUnavailable(id));
        }
        Ok(View::Held(&held.state))
    }

    /// The unit's view of an index.
    pub(super) fn index_view(&self, id: IndexId) -> Result<View<'_>, StorageError> {
        let now = self.shared.read();
        let Some(held) = &self.held else { return Ok(View::Now(now)) };
        let collection = |state: &State| state.indexes.get(&id).map(|index| index.collection);
        let (is, was) = (collection(&now), collection(&held.state));
        // A reader who asks for the lock again waits for a writer who waits for the reader.
        drop(now);
        match (is, was) {
            (Some(is), Some(was)) if is == was => drop(self.store_view(is)?),
            (None, None) => {}
            (is, was) => {
                let id = is.or(was).unwrap_or(CollectionId::CATALOG);
                return Err(StorageError::SnapshotUnavailable(id));
            }
        }
        Ok(View::Held(&held.state))
    }

    /// The write set, if there is anything in it.
    pub(super) fn writes(&self) -> Option<&WriteSet> {
        self.held.as_ref().map(|held| &held.write_set).filter(|writes| !writes.is_empty())
    }

    /// This engine's unit behind the trait object.
    pub(super) fn of(ru: &dyn RecoveryUnit) -> Result<&EphemeralUnit, StorageError> {
        let unit = ru
            .as_any()
            .downcast_ref::<EphemeralUnit>()
            .ok_or_else(|| StorageError::Io("the recovery unit of another engine".to_owned()))?;
        debug_assert!(unit.is_entered(), "a store is read through a unit that was not entered");
        Ok(unit)
    }

    /// Keeps `doc` until the unit is left.
    pub(super) fn keep(&self, doc: Arc<[u8]>) -> &[u8] {
        let (mut chunk, mut place) = self.filling.get();
        if place == CHUNK_FIRST << chunk {
            (chunk, place) = (chunk + 1, 0);
        }
        self.filling.set((chunk, place + 1));
        let places = self.chunks[chunk]
            .get_or_init(|| (0..CHUNK_FIRST << chunk).map(|_| OnceCell::new()).collect());
        places[place].get_or_init(|| doc)
    }
}

impl RecoveryUnit for EphemeralUnit {
    fn enter(&mut self) {
        let seq = match &self.held {
            Some(held) => held.state.seq,
            None => self.shared.read().seq,
        };
        self.snapshot = Some(seq);
    }

    fn leave(&mut self) {
        self.snapshot = None;
        self.filling.set((0, 0));
        // The first chunk is emptied but kept: most operations read a few documents only.
        if let Some(places) = self.chunks[0].get_mut() {
            for place in places.iter_mut() {
                place.take();
            }
        }
        for chunk in &mut self.chunks[1..] {
            if chunk.take().is_none() {
                break;
            }
        }
    }

    fn is_entered(&self) -> bool {
        self.snapshot.is_some()
    }

    fn snapshot(&self) -> CommitSeq {
        self.snapshot.unwrap_or_default()
    }

    fn hold_snapshot(&mut self) -> Result<CommitSeq, StorageError> {
        debug_assert!(!self.is_entered(), "a snapshot is held from outside");
        let state = self.shared.read().clone();
        let seq = state.seq;
        self.held = Some(Held { state, write_set: WriteSet::default() });
        Ok(seq)
    }

    fn release_snapshot(&mut self) {
        self.held = None;
    }

    fn write_set(&self) -> Option<&WriteSet> {
        self.held.as_ref().map(|held| &held.write_set)
    }

    fn write_set_mut(&mut self) -> Option<&mut WriteSet> {
        self.held.as_mut().map(|held| &mut held.write_set)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
