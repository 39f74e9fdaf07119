//! Implements the storage interface.

use crate::core::{Core, failed};
use crate::index::Index;
use crate::open::{self, ENGINE_NAME, Options};
use crate::store::Store;
use crate::sys::{self, Statistic};
use crate::unit::WtUnit;
use kauri_base::{CollectionId, IndexId};
use kauri_bson::DocWriter;
use kauri_storage::{
    Claims, CommitTicket, HeldFiles, IndexSpec, KeyGenerator, Maintenance, RecordStore,
    RecoveryUnit, SortedDataInterface, Space, StorageEngine, StorageError, WriteUnit,
};
use std::path::Path;
use std::sync::Arc;

/// An open WiredTiger database. Dropping it closes it in order.
pub struct WiredTiger {
    core: Arc<Core>,
}

/// Bytes that WiredTiger has given to the medium since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Data files.
    pub block_bytes: u64,
    /// The journal.
    pub log_bytes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
}

impl WiredTiger {
    /// Opens a directory, making it one of this engine if it is empty.
    pub fn open(directory: &Path, options: Options) -> kauri_base::Result<WiredTiger> {
        Ok(WiredTiger { core: open::open(directory, options)? })
    }

    /// Writes a checkpoint and leaves the directory cleanly shut down. Maintenance has ended before, and no thread
    /// commits any more.
    pub fn close(&self) -> Result<(), StorageError> {
        self.core.close()
    }

    /// Writes a checkpoint.
    pub fn checkpoint(&self) -> Result<(), StorageError> {
        self.core.session().and_then(|mut session| session.checkpoint()).map_err(failed)
    }

    /// The figures so far.
    pub fn figures(&self) -> Figures {
        Figures {
            block_bytes: self.core.statistic(Statistic::BlockBytesWritten),
            log_bytes: self.core.statistic(Statistic::LogBytesWritten),
            checkpoints: self.core.statistic(Statistic::Checkpoints),
        }
    }
}

impl Drop for WiredTiger {
    fn drop(&mut self) {
        if let Err(error) = self.core.close() {
            crate::status::log_message(-1, &format!("closing failed: {error}"));
        }
    }
}

impl StorageEngine for WiredTiger {
    fn name(&self) -> &'static str {
        ENGINE_NAME
    }

    fn may_block(&self) -> bool {
        true
    }

    fn recovery_unit(&self) -> Box<dyn RecoveryUnit> {
        Box::new(WtUnit::new(self.core.clone()))
    }

    fn record_store(&self, id: CollectionId) -> Option<Arc<dyn RecordStore>> {
        let state = self.core.read().stores.get(&id).cloned()?;
        Some(Arc::new(Store { core: self.core.clone(), state }))
    }

    fn index(&self, id: IndexId) -> Option<Arc<dyn SortedDataInterface>> {
        let state = self.core.read().indexes.get(&id).cloned()?;
        Some(Arc::new(Index { state }))
    }

    fn stores(&self) -> Vec<CollectionId> {
        let mut ids: Vec<_> = self.core.read().stores.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    fn attach_index(
        &self,
        collection: CollectionId,
        spec: IndexSpec,
        generator: Arc<dyn KeyGenerator>,
    ) -> Result<(), StorageError> {
        self.core.attach_index(collection, spec, &*generator)
    }

    fn definition_number(&self, id: CollectionId) -> Option<u64> {
        self.core.read().stores.get(&id).map(|store| store.definition.get())
    }

    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        self.core.commit(unit)
    }

    fn newest(&self) -> Option<CommitTicket> {
        Some(self.core.acks.tickets(self.core.sequence.visible()))
    }

    fn check(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        self.core.check(unit)
    }

    fn claims(&self) -> Option<&Arc<Claims>> {
        Some(&self.core.claims)
    }

    fn flush(&self) {
        // A failure is what the tickets answer then.
        let _ = self.core.flush_log(false);
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.core.flush_log(true)
    }

    fn hold_files(&self) -> Result<HeldFiles, StorageError> {
        self.core.hold_files()?;
        let core = self.core.clone();
        Ok(HeldFiles::new(move || core.let_files_go()))
    }

    fn maintenance(&self) -> Vec<Maintenance> {
        let (core, waker) = (self.core.clone(), self.core.clone());
        vec![Maintenance {
            name: "wt-journal",
            run: Box::new(move |stop| core.run_flusher(stop)),
            wake: Box::new(move || waker.acks.kick()),
        }]
    }

    fn write_status(&self, out: &mut DocWriter<'_>) {
        self.core.write_status(out);
    }

    fn space(&self) -> Space {
        let (fs_total, fs_used) = sys::space(&self.core.directory).unwrap_or_default();
        let journal = self.core.directory.join("journal");
        let used = directory_bytes(&self.core.directory) + directory_bytes(&journal);
        Space { used, fs_total, fs_used }
    }
}

/// The sizes of the files that lie in this directory.
fn directory_bytes(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let sizes = entries.flatten().filter_map(|entry| entry.metadata().ok());
    sizes.filter(|file| file.is_file()).map(|file| file.len()).sum()
}
