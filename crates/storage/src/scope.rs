//! The scope of an operation: one reader, and one path for its changes.
//!
//! Plans, cursors and statements borrow the scope from their operation. A transaction or a replicated operation is
//! another scope, so plans, cursors and statements need no change for them.
//!
//! Invariants:
//! - The reader is left whenever the operation waits and before it commits, because a commit may wait for space
//!   that readers keep from reuse.
//! - Between two slices of work a scope holds nothing except a snapshot that was requested.

use crate::backend::Backend;
use crate::commit_ticket::CommitTicket;
use crate::engine::RecoveryUnit;
use crate::error::StorageError;
use crate::unit::WriteUnit;
use kauri_base::{OperationContext, Ticket};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module's head.
pub struct Scope {
    backend: Arc<Backend>,
    /// Made when it is first asked for. Never locked; a mutex, since a reader is not `Sync`.
    reader: Mutex<Option<Box<dyn RecoveryUnit>>>,
    has_committed: bool,
}

impl Backend {
    /// The scope of a new operation.
    pub fn scope(self: &Arc<Self>) -> Scope {
        Scope { backend: self.clone(), reader: Mutex::new(None), has_committed: false }
    }
}

impl Scope {
    /// The backend.
    #[inline]
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// Enters the reader.
    #[inline]
    pub fn enter(&mut self) -> Entered<'_> {
        Entered::new(self.reader())
    }

    /// The reader, not entered.
    #[inline]
    pub fn reader(&mut self) -> &mut dyn RecoveryUnit {
        self.parts().1
    }

    /// The reader and the backend.
    #[inline]
    pub fn parts(&mut self) -> (&Arc<Backend>, &mut dyn RecoveryUnit) {
        let Scope { backend, reader, .. } = self;
        let reader = reader.get_mut().unwrap_or_else(PoisonError::into_inner);
        (backend, &mut **reader.get_or_insert_with(|| backend.reader()))
    }

    /// Commits what the operation changes, as [`crate::StorageEngine::commit`] does. The reader has been left.
    #[inline]
    pub fn commit(&mut self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        debug_assert!(!self.is_entered());
        let ticket = self.backend.commit(unit)?;
        self.has_committed = true;
        Ok(ticket)
    }

    /// Whether the operation has committed anything.
    pub fn has_committed(&self) -> bool {
        self.has_committed
    }

    /// After a conflict with a transaction's claim: the ticket to wait for before the unit is computed again.
    pub fn in_the_way(&self, unit: &WriteUnit<'_>) -> Option<Ticket> {
        self.backend.engine().claims()?.ticket(unit)
    }

    /// Gives the reader up, and the snapshot that it may hold.
    pub fn close(&mut self) {
        *self.reader.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn is_entered(&mut self) -> bool {
        let reader = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
        reader.as_ref().is_some_and(|reader| reader.is_entered())
    }
}

/// A reader that is entered until this is dropped, also by a panic or by the end of an operation that is suspended.
pub struct Entered<'r>(&'r mut dyn RecoveryUnit);

impl<'r> Entered<'r> {
    /// Enters it.
    #[inline]
    pub fn new(reader: &'r mut dyn RecoveryUnit) -> Entered<'r> {
        reader.enter();
        Entered(reader)
    }
}

impl<'r> Deref for Entered<'r> {
    type Target = dyn RecoveryUnit + 'r;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A running operation: its context (deadline, kill, yields) and its scope.
pub struct Operation {
    context: OperationContext,
    scope: Scope,
}

impl Operation {
    /// An operation with this context.
    pub fn new(context: OperationContext, backend: &Arc<Backend>) -> Operation {
        Operation { context, scope: backend.scope() }
    }

    /// An operation that is neither listed nor killable, for tests and background work.
    pub fn detached(backend: &Arc<Backend>) -> Operation {
        Operation::new(OperationContext::detached(backend.clock().clone()), backend)
    }

    /// The scope.
    #[inline]
    pub fn scope(&mut self) -> &mut Scope {
        &mut self.scope
    }

    /// The backend.
    #[inline]
    pub fn backend(&self) -> &Arc<Backend> {
        self.scope.backend()
    }

    /// Its context and its reader.
    #[inline]
    pub fn split(&mut self) -> (&mut OperationContext, &mut dyn RecoveryUnit) {
        (&mut self.context, self.scope.reader())
    }
}

impl Deref for Operation {
    type Target = OperationContext;

    fn deref(&self) -> &OperationContext {
        &self.context
    }
}

impl DerefMut for Operation {
    fn deref_mut(&mut self) -> &mut OperationContext {
        &mut self.context
    }
}
