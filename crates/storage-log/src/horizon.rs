//! How far the log is durable and settled, and keeping the marks of it.

use crate::core::Core;
use crate::durability::Bound;
use crate::format::segment::Horizon;

impl Core {
    /// What is durable.
    pub fn horizon(&self) -> Horizon {
        let initialised = self.segments.initialised();
        if self.cache.is_direct() {
            return self.head.horizon(&self.durability, initialised);
        }
        self.durability.horizon(initialised)
    }

    /// Up to where the cleaner may go.
    pub fn bound(&self) -> Bound {
        Bound::new(self.horizon(), self.visible().0)
    }

    /// As [`Core::store_mark`], if the log is memory: there commits are durable without a sync.
    fn store_mark_of_memory(&self) {
        if self.cache.is_direct() {
            let _syncing = self.flushing.lock_syncing();
            self.store_mark();
        }
    }

    /// Stores a mark with the current horizon. With `syncing` held.
    pub fn store_mark(&self) {
        self.durability.store_mark(|| self.horizon());
    }

    /// The preparer's part, once per commit interval: if commits are durable without a sync, it stores the mark; it
    /// syncs the mark file if that is due. Does nothing while files are locked: their marks are synced.
    pub fn keep_marks(&self) {
        if !self.durability.has_marks() {
            return;
        }
        let Some(_work) = self.files.enter() else { return };
        self.store_mark_of_memory();
        if self.durability.is_mark_sync_due(self.options.clock.monotonic()) {
            self.sync_marks();
        }
    }

    /// Makes durable what marks describe.
    pub fn sync_marks(&self) {
        self.store_mark_of_memory();
        if self.durability.sync_marks(self.options.clock.monotonic()) {
            self.counters.mark_syncs.add(1);
        }
    }
}
