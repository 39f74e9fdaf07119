//! The recovery unit: a guard that keeps memory in place, and the sequence number that was visible
//! when it was entered.

use crate::core::Core;
use kauri_base::CommitSeq;
use kauri_medium::Guard;
use kauri_storage::{RecoveryUnit, StorageError};
use std::any::Any;
use std::sync::Arc;

/// See the module's head.
pub struct LogUnit {
    core: Arc<Core>,
    guard: Guard,
    snapshot: CommitSeq,
}

impl LogUnit {
    /// A unit that has not entered.
    pub fn new(core: Arc<Core>) -> Self {
        let guard = core.domain.register();
        LogUnit { core, guard, snapshot: CommitSeq(0) }
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

    /// What keeps memory in place.
    #[inline]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }
}

impl RecoveryUnit for LogUnit {
    fn enter(&mut self) {
        self.guard.enter();
        self.snapshot = self.core.visible();
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

    fn as_any(&self) -> &dyn Any {
        self
    }
}
