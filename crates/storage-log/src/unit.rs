//! The recovery unit: a guard that keeps memory in place, and the commit sequence that was visible when the unit
//! was entered, or that of its held snapshot.

use crate::btree::Likely;
use crate::collection::Collection;
use crate::core::Core;
use crate::read;
use crate::snapshots::Hold;
use kauri_base::CommitSeq;
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_medium::Guard;
use kauri_storage::{RecoveryUnit, StorageError, WriteSet};
use std::any::Any;

/// See the module's head.
pub struct LogUnit {
    core: Arc<Core>,
    guard: Guard,
    snapshot: CommitSeq,
    held: Option<Box<Held>>,
}

/// The view of a unit that holds a snapshot.
pub struct Held {
    /// The snapshot.
    pub hold: Hold,
    /// A transaction's uncommitted changes.
    pub write_set: WriteSet,
}

impl LogUnit {
    /// A unit that has not entered.
    pub fn new(core: Arc<Core>) -> Self {
        let guard = core.domain.register();
        LogUnit { core, guard, snapshot: CommitSeq(0), held: None }
    }

    /// The snapshot that it holds, if it does.
    #[inline]
    pub fn held(&self) -> Option<&Held> {
        self.held.as_deref()
    }

    /// Whether the last read of a collection (by way of a dropped or newer index, if `index` says so) was valid for
    /// the held snapshot.
    pub fn check(&self, held: &Held, store: &Collection, index: bool) -> Result<(), StorageError> {
        self.core.snapshots.check(held.hold)?;
        let changed = store.changed.load(Ordering::Acquire) >= held.hold.number;
        if changed || index || store.is_dropped() {
            return Err(StorageError::SnapshotUnavailable(store.id));
        }
        Ok(())
    }

    /// This engine's unit behind the trait object, entered.
    #[inline]
    pub fn of(ru: &dyn RecoveryUnit) -> Result<&LogUnit, StorageError> {
        match ru.as_any().downcast_ref::<LogUnit>() {
            Some(unit) if unit.guard.is_entered() => Ok(unit),
            Some(_) => Err(StorageError::Io("the recovery unit has not entered".to_owned())),
            None => Err(StorageError::Io("the recovery unit of another engine".to_owned())),
        }
    }

    /// Has the processor fetch what a record that is about to be asked for likely needs: without effect but for time.
    #[inline]
    pub fn fetch_ahead(&self, store: &Collection, likely: Likely) {
        match likely {
            Likely::One(record) => {
                read::fetch_lines(&self.core, store.slots.load(&self.guard, record));
            }
            Likely::Guess(record) => {
                read::fetch_header(&self.core, store.slots.load(&self.guard, record));
            }
            Likely::Among(records) => store.slots.prefetch(&self.guard, records),
        }
    }

    /// The guard that keeps memory in place.
    #[inline]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }
}

impl Core {
    /// Holds the current state.
    pub fn hold(&self) -> Result<Hold, StorageError> {
        let (seq, number) = self.head.hold(|seq| self.snapshots.add(seq));
        let hold = Hold { seq, number };
        // Units that have their number already are applied without waiting for anything.
        let mut turns = 0u32;
        while self.visible().0 < hold.seq {
            turns += 1;
            if turns < 64 {
                kauri_base::sync::hint::spin_loop();
            } else if let Err(error) = self.check_alive() {
                self.release(hold);
                return Err(error);
            } else {
                kauri_base::sync::thread::yield_now();
            }
        }
        Ok(hold)
    }

    /// Ends a hold.
    pub fn release(&self, hold: Hold) {
        self.head.release();
        self.snapshots.remove(hold.seq, &self.segments);
    }
}

impl RecoveryUnit for LogUnit {
    fn enter(&mut self) {
        self.guard.enter();
        self.snapshot = match &self.held {
            None => self.core.visible(),
            Some(held) => held.hold.into(),
        };
    }

    fn leave(&mut self) {
        self.guard.leave();
    }

    fn is_entered(&self) -> bool {
        self.guard.is_entered()
    }

    fn snapshot(&self) -> CommitSeq {
        self.snapshot
    }

    fn hold_snapshot(&mut self) -> Result<CommitSeq, StorageError> {
        self.release_snapshot();
        let hold = self.core.hold()?;
        self.held = Some(Box::new(Held { hold, write_set: WriteSet::default() }));
        Ok(hold.into())
    }

    fn release_snapshot(&mut self) {
        if let Some(held) = self.held.take() {
            self.core.release(held.hold);
        }
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

impl Drop for LogUnit {
    fn drop(&mut self) {
        self.release_snapshot();
    }
}
