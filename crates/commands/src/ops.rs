//! The operations that are running, for `currentOp` and `killOp`.

use kauri_base::log;
use kauri_base::operation::OperationState;
use kauri_bson::{Doc, DocBuf, Value};
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

/// An operation as `currentOp` shows it.
pub fn describe(running: &Running, host: &str, now_ms: i64) -> DocBuf {
    let elapsed_ns = kauri_transport::monotonic_ns().saturating_sub(running.started_ns);
    let command = running.command.as_doc();
    let target = command.first().map(|e| e.value());
    let ns = match &target {
        Some(Value::String(name)) => format!("{}.{name}", running.db),
        _ => format!("{}.$cmd", running.db),
    };
    let kind = match running.name {
        "find" => "query",
        "getMore" => "getmore",
        "insert" => "insert",
        "update" => "update",
        "delete" => "remove",
        _ => "command",
    };
    let mut time = String::new();
    log::write_iso_date(&mut time, now_ms);
    DocBuf::build(|out| {
        out.put("type", "op");
        out.put("host", host);
        out.put("desc", format!("conn{}", running.connection));
        out.put("connectionId", running.connection as i32);
        out.put("client", &running.client);
        if !running.app_name.is_empty() {
            out.put("appName", &running.app_name);
        }
        out.put("active", true);
        out.put("currentOpTime", &time);
        out.put_value("effectiveUsers", &Value::array([]));
        out.put("threaded", true);
        out.put("opid", running.state.id as i32);
        if let Some(id) = running.lsid {
            let uuid = Value::Binary { subtype: 4, bytes: id.as_slice().into() };
            out.document("lsid").put_value("id", &uuid);
        }
        out.put("secs_running", (elapsed_ns / 1_000_000_000) as i64);
        out.put("microsecs_running", (elapsed_ns / 1000) as i64);
        out.put("op", kind);
        out.put("ns", &ns);
        out.put("redacted", false);
        out.put("command", command);
        out.put("numYields", running.state.yields() as i32);
        out.put("killPending", running.state.is_killed());
        out.put("locks", Doc::EMPTY);
        out.put("waitingForLock", false);
        out.put("lockStats", Doc::EMPTY);
        out.put("waitingForFlowControl", false);
        out.put("flowControlStats", Doc::EMPTY);
    })
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
