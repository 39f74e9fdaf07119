//! The operations that are running, for `currentOp` and `killOp`.

use kauri_base::operation::OperationState;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is told of a running operation.
pub struct Running {
    /// Its shared state.
    pub state: Arc<OperationState>,
    /// The connection.
    pub connection: u64,
    /// The client's address.
    pub client: String,
    /// `appName`.
    pub app_name: String,
    /// The database.
    pub db: String,
    /// The command document, cut to a bounded size.
    pub command: kauri_bson::DocBuf,
    /// The command's name.
    pub name: &'static str,
    /// Monotonic nanoseconds at its start.
    pub started_ns: u64,
    /// The logical session, if it has one.
    pub lsid: Option<[u8; 16]>,
}

/// All of them. Only operations that may take long are entered: those that suspend.
#[derive(Default)]
pub struct Operations {
    next: AtomicU64,
    running: Mutex<BTreeMap<u64, Running>>,
}

impl Operations {
    /// A new `opid`.
    pub fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Enters an operation until the guard is dropped.
    pub fn enter(self: &Operations, running: Running) -> Entered<'_> {
        let id = running.state.id;
        self.lock().insert(id, running);
        Entered { operations: self, id }
    }

    /// Asks an operation to end; false if it is not running.
    pub fn kill(&self, id: u64, code: kauri_base::ErrorCode) -> bool {
        match self.lock().get(&id) {
            Some(running) => {
                running.state.kill(code);
                true
            }
            None => false,
        }
    }

    /// Kills all operations for which `doomed` holds.
    pub fn kill_where(&self, code: kauri_base::ErrorCode, doomed: impl Fn(&Running) -> bool) {
        for running in self.lock().values().filter(|r| doomed(r)) {
            running.state.kill(code);
        }
    }

    /// Looks at each.
    pub fn for_each(&self, mut look: impl FnMut(&Running)) {
        self.lock().values().for_each(&mut look);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the operation when it ends.
pub struct Entered<'a> {
    operations: &'a Operations,
    id: u64,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.operations.lock().remove(&self.id);
    }
}
