//! Implements the storage interface.

use crate::core::Core;
use crate::options::Options;
use crate::recovery;
use crate::store::Store;
use crate::unit::LogUnit;
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_base::{CollectionId, CommitSeq, IndexId};
use kauri_bson::DocWriter;
use kauri_medium::Directory;
use kauri_storage::{
    Claims, CommitTicket, HeldFiles, IndexSpec, KeyGenerator, LogCopy, Maintenance, MemoryRoom,
    PendingLog, RecordStore, RecoveryUnit, ReplicatedLog, SortedDataInterface, Space,
    StorageEngine, StorageError, WriteUnit,
};

/// An open log-structured engine.
///
/// Its owner calls [`PmLog::close`] at the end of a clean shutdown. Dropping it without that is like a crash: the
/// next opening recovers.
pub struct PmLog {
    core: Arc<Core>,
}

impl PmLog {
    /// Opens a directory, creates the engine's files if it is empty, and recovers the log.
    pub fn open(directory: Arc<dyn Directory>, options: Options) -> kauri_base::Result<PmLog> {
        Ok(PmLog { core: recovery::open(directory, options)? })
    }

    /// Makes everything durable and leaves the directory cleanly shut down. Maintenance has ended before, and no
    /// thread commits any more.
    pub fn close(&self) -> Result<(), StorageError> {
        self.core.close()
    }

    /// One round of cleaning, if needed; returns whether it changed anything. For simulations and tests: a server
    /// runs [`StorageEngine::maintenance`].
    pub fn clean_once(&self) -> Result<bool, StorageError> {
        self.core.clean_once()
    }

    /// Ends a record that can't be read; see [`crate::repair`].
    pub(crate) fn bury_damaged(
        &self,
        collection: CollectionId,
        record: kauri_base::RecordId,
    ) -> Result<bool, StorageError> {
        self.core.bury_damaged(collection, record)
    }

    /// One round of the flusher and of the preparer. For simulations and tests.
    pub fn flush_round(&self) -> Result<(), StorageError> {
        self.core.flush_round()
    }
}

impl StorageEngine for PmLog {
    fn name(&self) -> &'static str {
        crate::format::ENGINE_NAME
    }

    fn recovery_unit(&self) -> Box<dyn RecoveryUnit> {
        Box::new(LogUnit::new(self.core.clone()))
    }

    fn record_store(&self, id: CollectionId) -> Option<Arc<dyn RecordStore>> {
        let collection = self.core.registry.store(id)?;
        Some(Arc::new(Store { core: self.core.clone(), collection }))
    }

    fn index(&self, id: IndexId) -> Option<Arc<dyn SortedDataInterface>> {
        let index = self.core.registry.read().indexes.get(&id).cloned()?;
        Some(index)
    }

    fn stores(&self) -> Vec<CollectionId> {
        let mut ids: Vec<_> = self.core.registry.read().stores.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    fn attach_index(
        &self,
        collection: CollectionId,
        spec: IndexSpec,
        generator: Arc<dyn KeyGenerator>,
    ) -> Result<(), StorageError> {
        let mut results = self.core.attach_indexes(collection, &[(spec, generator)]);
        results.pop().unwrap_or(Err(StorageError::StaleCatalog(collection)))
    }

    fn attach_indexes(
        &self,
        collection: CollectionId,
        indexes: &[(IndexSpec, Arc<dyn KeyGenerator>)],
    ) -> Vec<Result<(), StorageError>> {
        self.core.attach_indexes(collection, indexes)
    }

    fn definition_number(&self, id: CollectionId) -> Option<u64> {
        let store = self.core.registry.store(id)?;
        Some(store.definition.load(Ordering::Acquire))
    }

    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        self.core.commit(unit)
    }

    fn check(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        self.core.check(unit)
    }

    fn claims(&self) -> Option<&Arc<Claims>> {
        Some(&self.core.claims)
    }

    fn replicated_log(&self) -> Result<&dyn ReplicatedLog, StorageError> {
        Ok(&*self.core)
    }

    fn pending_log(&self) -> Result<&dyn PendingLog, StorageError> {
        Ok(&*self.core)
    }

    fn newest(&self) -> Option<CommitTicket> {
        Some(self.core.acks.tickets(self.core.visible().0))
    }

    fn visible(&self) -> CommitSeq {
        self.core.visible()
    }

    fn flush(&self) {
        self.core.flush();
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.core.sync_to(self.core.head.last(), "sync.drain")?;
        self.core.sync_marks();
        Ok(())
    }

    fn hold_files(&self) -> Result<HeldFiles, StorageError> {
        self.core.hold_files()?;
        let core = self.core.clone();
        Ok(HeldFiles::new(move || core.let_files_go()))
    }

    fn copy_log(&self) -> Result<Box<dyn LogCopy>, StorageError> {
        self.core.copy_log()
    }

    fn set_memory(&self, room: MemoryRoom) {
        self.core.set_memory(room);
    }

    fn is_full(&self) -> bool {
        self.core.memory.is_full()
    }

    fn maintenance(&self) -> Vec<Maintenance> {
        // The server is about to work: what was to be attached has been.
        self.core.start.end();
        let core = || self.core.clone();
        let (flusher, flusher_waker, preparer, preparer_waker) = (core(), core(), core(), core());
        let (cleaner, cleaner_waker) = (core(), core());
        vec![
            Maintenance {
                name: "log-flusher",
                run: Box::new(move |stop| flusher.run_flusher(stop)),
                wake: Box::new(move || flusher_waker.acks.wake_flusher()),
            },
            Maintenance {
                name: "log-preparer",
                run: Box::new(move |stop| preparer.run_preparer(stop)),
                wake: Box::new(move || preparer_waker.preparer.wake()),
            },
            Maintenance {
                name: "log-cleaner",
                run: Box::new(move |stop| cleaner.run_cleaner(stop)),
                wake: Box::new(move || cleaner_waker.cleaner.wake()),
            },
        ]
    }

    fn write_status(&self, out: &mut DocWriter<'_>) {
        self.core.write_status(out);
    }

    fn space(&self) -> Space {
        let (fs_total, fs_used) = self.core.directory.space().unwrap_or_default();
        Space { used: self.core.directory.medium().len(), fs_total, fs_used }
    }
}
