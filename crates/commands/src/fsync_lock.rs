//! `fsync` with `lock`: blocks writers and changes of the engine's files until it is unlocked as often as it was
//! locked.
//!
//! Invariants:
//! - A writer registers itself before it checks for a lock; a lock announces itself before it checks for writers.
//!   So at least one sees the other: when no writer is registered, none commits until the lock is released.
//! - Writes of the express path are not registered. They commit without a pause after their check. The engine
//!   refuses a write that is too late, and that write goes to dispatch.
//! - The files are unlocked before writers are admitted, even if the caller has gone while the engine was still
//!   locking.

use kauri_storage::{HeldFiles, StorageEngine, StorageError};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module's head.
#[derive(Default)]
pub struct FsyncLock {
    /// Locks in force, and those on their way.
    announced: AtomicI64,
    /// Writers at work.
    writers: AtomicI64,
    /// One per active lock.
    held: Mutex<Vec<HeldFiles>>,
}

/// A writer at work.
pub struct Writer<'l>(&'l FsyncLock);

/// A lock that is being taken. Dropping it releases it.
pub struct Locking(Arc<FsyncLock>);

/// A lock with locked files. Dropping it releases it, the files first.
pub struct Still {
    files: HeldFiles,
    locking: Locking,
}

impl FsyncLock {
    /// Whether writers are kept out.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.announced.load(Ordering::SeqCst) > 0
    }

    /// Whether a lock is in force: no writer is at work, and the files are still.
    pub fn is_in_force(&self) -> bool {
        !self.held().is_empty()
    }

    /// Admits a writer, unless it is locked.
    pub fn admit(&self) -> Option<Writer<'_>> {
        self.writers.fetch_add(1, Ordering::SeqCst);
        let writer = Writer(self);
        (!self.is_locked()).then_some(writer)
    }

    /// Blocks new writers from now on. Active ones continue.
    pub fn announce(self: &Arc<Self>) -> Locking {
        self.announced.fetch_add(1, Ordering::SeqCst);
        Locking(self.clone())
    }

    /// Ends one lock. Answers how many are left; `None` if there was none.
    pub fn unlock(&self) -> Option<usize> {
        let mut held = self.held();
        let files = held.pop()?;
        drop(files);
        self.announced.fetch_sub(1, Ordering::SeqCst);
        Some(held.len())
    }

    fn held(&self) -> MutexGuard<'_, Vec<HeldFiles>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Locking {
    /// Whether writers that were admitted before are still at work.
    pub fn has_writers(&self) -> bool {
        self.0.writers.load(Ordering::SeqCst) > 0
    }

    /// Blocks until the engine's files are still.
    pub fn hold_files(self, engine: &dyn StorageEngine) -> Result<Still, StorageError> {
        Ok(Still { files: engine.hold_files()?, locking: self })
    }
}

impl Still {
    /// The lock is in force. Answers how many are.
    pub fn complete(self) -> usize {
        let Still { files, locking } = self;
        let lock = locking.0.clone();
        // It is ended by `unlock` from here on.
        lock.announced.fetch_add(1, Ordering::SeqCst);
        drop(locking);
        let mut held = lock.held();
        held.push(files);
        held.len()
    }
}

impl Drop for Locking {
    fn drop(&mut self) {
        self.0.announced.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn still(lock: &Arc<FsyncLock>, let_go: impl FnOnce() + Send + 'static) -> Still {
        Still { files: HeldFiles::new(let_go), locking: lock.announce() }
    }

    fn lock(lock: &Arc<FsyncLock>) -> usize {
        still(lock, || ()).complete()
    }

    #[test]
    fn a_lock_that_nobody_waits_for_lets_the_files_go_before_writers_come() {
        let of = Arc::<FsyncLock>::default();
        let seen = Arc::new(AtomicI64::new(-1));
        let (lock, told) = (of.clone(), seen.clone());
        drop(still(&of, move || told.store(lock.is_locked().into(), Ordering::SeqCst)));
        assert_eq!(seen.load(Ordering::SeqCst), 1, "still locked when the files are let go");
        assert!(!of.is_locked());
    }

    #[test]
    fn a_lock_sees_the_writers_before_it_and_keeps_others_out() {
        let of = Arc::<FsyncLock>::default();
        let writer = of.admit().expect("it is open");
        let locking = of.announce();
        assert!(locking.has_writers());
        assert!(of.admit().is_none());
        drop(writer);
        assert!(!locking.has_writers(), "one that was refused is not counted");
        drop(locking);
        assert!(of.admit().is_some(), "the lock was given up");
    }

    #[test]
    fn it_is_unlocked_as_often_as_it_was_locked() {
        let of = Arc::<FsyncLock>::default();
        assert_eq!(of.unlock(), None);
        assert_eq!((lock(&of), lock(&of)), (1, 2));
        let on_its_way = of.announce();
        assert_eq!((of.unlock(), of.unlock(), of.unlock()), (Some(1), Some(0), None));
        assert!(of.is_locked(), "a lock that is on its way is not unlocked");
        drop(on_its_way);
        assert!(!of.is_locked());
    }
}
