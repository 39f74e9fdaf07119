//! What this server's member needs of the server: the catalog follows what is applied, and a new leader does what only a
//! leader may.

use crate::server::Server;
use crate::startup;
use kauri_base::{CommitSeq, Result};
use kauri_member::Host;
use kauri_storage::{AppliedChange, StorageError};
use std::sync::Arc;

/// Runs something long that may block, beside everything else.
pub type Aside = Box<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// See the module's head.
pub struct ServerHost {
    /// The server.
    pub server: Arc<Server>,
    /// Which run of the machine this is.
    pub machine_run: String,
    /// Has the process begin again, and says why.
    pub restart: Box<dyn Fn(&str) + Send + Sync>,
    /// For index builds that are resumed.
    pub aside: Aside,
}

impl Host for ServerHost {
    fn applied(
        &self,
        _: CommitSeq,
        changes: &[AppliedChange],
    ) -> std::result::Result<(), StorageError> {
        let backend = &self.server.backend;
        self.server
            .catalog
            .applied(&mut backend.scope(), changes)
            .map_err(|error| StorageError::Io(format!("the catalog: {error}")))?;
        backend.note_applied(changes);
        Ok(())
    }

    fn lead(&self) -> Result<()> {
        let interrupted = startup::lead(&self.server)?;
        if !interrupted.is_empty() {
            let server = self.server.clone();
            (self.aside)(Box::new(move || startup::resume_builds(&server, &interrupted)));
        }
        Ok(())
    }

    fn restart(&self, why: &str) {
        (self.restart)(why);
    }

    fn is_locked(&self) -> bool {
        self.server.fsync_lock.is_locked()
    }

    fn stops_producer(&self) -> bool {
        crate::fail_command::stops_producer(&self.server)
    }

    fn machine_run(&self) -> String {
        self.machine_run.clone()
    }

    fn aside(&self, work: Box<dyn FnOnce() + Send>) {
        (self.aside)(work);
    }

    fn is_self(&self, host: &str) -> bool {
        (self.server.is_self)(host)
    }
}
