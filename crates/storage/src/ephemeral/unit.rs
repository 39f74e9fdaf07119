//! The recovery unit: an arena of what was read through it.
//!
//! Invariant: the arena only grows while the unit is lent out, so that what [`EphemeralUnit::keep`]
//! returned lives as long as the borrow; only `leave`, which needs the unit exclusively, empties it.

use super::Shared;
use crate::engine::RecoveryUnit;
use crate::error::StorageError;
use kauri_base::CommitSeq;
use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

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
}

impl EphemeralUnit {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        EphemeralUnit {
            shared,
            snapshot: None,
            chunks: [const { OnceCell::new() }; CHUNKS],
            filling: Cell::new((0, 0)),
        }
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
        self.snapshot = Some(self.shared.read().seq);
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

    fn as_any(&self) -> &dyn Any {
        self
    }
}
