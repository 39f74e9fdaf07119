//! The running operations, for `currentOp` and `killOp`.

use crate::registry::{Asked, Command};
use kauri_base::operation::OperationState;
use kauri_base::work;
use kauri_base::{limits, log};
use kauri_bson::{Doc, DocBuf, DocWriter, Value};
use kauri_catalog::OperationKind;
use kauri_transport::SessionInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What is told at most of a running operation's command. Short ones alone keep their memory afterwards.
pub const RUNNING_COMMAND_BYTES_MAX: usize = 16 * limits::COMMAND_BYTES_KEPT_MAX;

/// What is told of a connection.
#[derive(Default)]
pub struct Peer {
    /// Its number.
    pub connection: u64,
    /// The client's address.
    pub client: String,
    /// `appName`.
    pub app_name: String,
    /// The metadata of the handshake, once it came.
    pub metadata: Option<DocBuf>,
}

/// The reported state of a running operation.
#[derive(Default)]
pub struct Running {
    /// Its shared state.
    pub state: Arc<OperationState>,
    /// The database.
    pub db: String,
    /// The command document's bytes, cut to a bounded size.
    pub command: Vec<u8>,
    /// The command's name.
    pub name: &'static str,
    /// The namespace.
    pub ns: String,
    /// The command's kind.
    pub kind: OperationKind,
    /// Monotonic nanoseconds at its start.
    pub started_ns: u64,
    /// The logical session, if it has one.
    pub lsid: Option<[u8; 16]>,
}

/// Appends the stored form of a command: all of a short one; of a long one the first short fields, then
/// `$truncated`.
pub fn keep_command(body: Doc<'_>, bytes_max: usize, out: &mut Vec<u8>) {
    if body.as_bytes().len() <= bytes_max {
        out.extend_from_slice(body.as_bytes());
        return;
    }
    let field_bytes_max = bytes_max / 4;
    let mut writer = DocWriter::new(out);
    for elem in body.iter() {
        if writer.len() >= bytes_max - field_bytes_max {
            break;
        }
        if elem.key().len() + elem.value_bytes().len() < field_bytes_max {
            writer.put_elem(elem);
        }
    }
    writer.put("$truncated", true);
}

/// The stored form of the command that opened a cursor.
pub fn command_of_cursor(body: Doc<'_>) -> DocBuf {
    let mut bytes = Vec::new();
    keep_command(body, limits::CURSOR_COMMAND_BYTES_KEPT_MAX, &mut bytes);
    Doc::from_bytes(&bytes).unwrap_or(Doc::EMPTY).to_buf()
}

/// An operation as `currentOp` shows it.
pub fn describe(peer: &Peer, running: &Running, host: &str, now_ms: i64) -> DocBuf {
    let elapsed_ns = kauri_transport::monotonic_ns().saturating_sub(running.started_ns);
    let command = Doc::from_bytes(&running.command).unwrap_or(Doc::EMPTY);
    DocBuf::build(|out| {
        put_peer(out, peer, host, now_ms, true);
        out.put("opid", running.state.id as i32);
        if let Some(id) = running.lsid {
            let uuid = Value::Binary { subtype: 4, bytes: id.as_slice().into() };
            out.document("lsid").put_value("id", &uuid);
        }
        out.put("secs_running", (elapsed_ns / 1_000_000_000) as i64);
        out.put("microsecs_running", (elapsed_ns / 1000) as i64);
        out.put("op", running.kind.op());
        out.put("ns", &running.ns);
        out.put("redacted", false);
        out.put("command", command);
        out.put("numYields", running.state.yields() as i32);
        out.put("killPending", running.state.is_killed());
        out.put("locks", Doc::EMPTY);
        out.put("waitingForLock", waits_for_lock(&running.state));
        out.put("lockStats", Doc::EMPTY);
        out.put("waitingForFlowControl", false);
        out.put("flowControlStats", Doc::EMPTY);
    })
}

/// A connection without an operation, as `currentOp` shows it.
pub fn describe_idle(peer: &Peer, host: &str, now_ms: i64) -> DocBuf {
    DocBuf::build(|out| put_peer(out, peer, host, now_ms, false))
}

fn put_peer(out: &mut DocWriter<'_>, peer: &Peer, host: &str, now_ms: i64, active: bool) {
    let mut time = String::new();
    log::write_iso_date(&mut time, now_ms);
    out.put("type", "op");
    out.put("host", host);
    out.put("desc", format!("conn{}", peer.connection));
    out.put("connectionId", peer.connection as i32);
    out.put("client", &peer.client);
    if !peer.app_name.is_empty() {
        out.put("appName", &peer.app_name);
    }
    if let Some(metadata) = &peer.metadata {
        out.put("clientMetadata", metadata);
    }
    out.put("active", active);
    out.put("currentOpTime", &time);
    out.put_value("effectiveUsers", &Value::array([]));
    out.put("threaded", true);
}

/// Whether an operation waits for a lock.
#[cfg(feature = "lock-experiment")]
pub(crate) fn waits_for_lock(state: &OperationState) -> bool {
    state.waits_for_lock()
}

/// Always false: there are none.
#[cfg(not(feature = "lock-experiment"))]
pub(crate) const fn waits_for_lock(_: &OperationState) -> bool {
    false
}

/// The place of a connection's operations, one after the other. Their reported state reuses the same memory.
#[derive(Default)]
pub struct Seat(Mutex<Occupant>);

#[derive(Default)]
struct Occupant {
    peer: Peer,
    running: Running,
    is_running: bool,
}

/// An operation that is about to run, or to wait.
pub(crate) struct Entering<'r> {
    pub state: Arc<OperationState>,
    pub command: &'static Command,
    pub asked: Asked<'r>,
    pub started_ns: u64,
    pub lsid: Option<[u8; 16]>,
}

impl Seat {
    /// Enters an operation until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Seat>, entering: Entering<'_>) -> Entered {
        let mut occupant = self.lock();
        let running = &mut occupant.running;
        running.state = entering.state;
        running.db.clear();
        running.db.push_str(entering.asked.db);
        running.command.clear();
        keep_command(entering.asked.body, RUNNING_COMMAND_BYTES_MAX, &mut running.command);
        running.name = entering.command.name;
        running.ns = entering.command.namespace(entering.asked);
        running.kind = entering.command.kind;
        running.started_ns = entering.started_ns;
        running.lsid = entering.lsid;
        occupant.is_running = true;
        drop(occupant);
        Entered(self.clone())
    }

    /// Notes what the client's handshake says of it.
    pub fn introduce(&self, app_name: &str, metadata: &DocBuf) {
        let peer = &mut self.lock().peer;
        peer.app_name = app_name.to_owned();
        peer.metadata = Some(metadata.clone());
    }

    fn lock(&self) -> MutexGuard<'_, Occupant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operations of all connections.
#[derive(Default)]
pub struct Operations {
    next: AtomicU64,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    all: Vec<Weak<Seat>>,
    /// Number of places at which those of ended connections are removed.
    clear_at: usize,
}

/// Below this, seats of connections that have gone may stay.
const SEATS_MIN: usize = 64;

impl Operations {
    /// A new `opid`.
    pub fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A seat for a connection; gone when the connection drops it.
    pub fn seat(&self, session: &SessionInfo) -> Arc<Seat> {
        let peer =
            Peer { connection: session.id, client: session.remote.clone(), ..Peer::default() };
        let seat = Arc::new(Seat(Mutex::new(Occupant { peer, ..Occupant::default() })));
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if seats.all.len() >= seats.clear_at.max(SEATS_MIN) {
            seats.all.retain(|seat| seat.strong_count() > 0);
            seats.clear_at = 2 * seats.all.len();
        }
        seats.all.push(Arc::downgrade(&seat));
        seat
    }

    /// Asks an operation to end; false if it is not running.
    pub fn kill(&self, id: u64, code: kauri_base::ErrorCode) -> bool {
        let mut found = false;
        self.for_each(|running| {
            if running.state.id == id {
                running.state.kill(code);
                found = true;
            }
        });
        found
    }

    /// Kills all operations for which `doomed` holds.
    pub fn kill_where(&self, code: kauri_base::ErrorCode, doomed: impl Fn(&Running) -> bool) {
        self.for_each(|running| {
            if doomed(running) {
                running.state.kill(code);
            }
        });
    }

    /// Visits each.
    pub fn for_each(&self, mut look: impl FnMut(&Running)) {
        self.for_each_connection(|_, running| running.into_iter().for_each(&mut look));
    }

    /// Looks at each connection and the operation that runs there.
    pub fn for_each_connection(&self, mut look: impl FnMut(&Peer, Option<&Running>)) {
        // Not while holding the list: connections come and go meanwhile.
        let seats: Vec<_> = {
            let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
            seats.all.iter().filter_map(Weak::upgrade).collect()
        };
        for seat in seats {
            // An operation of the same worker leaves its seat by this lock.
            let _staying = work::stay();
            let occupant = seat.lock();
            look(&occupant.peer, occupant.is_running.then_some(&occupant.running));
        }
    }
}

/// Dropping it means that the operation has ended.
pub struct Entered(Arc<Seat>);

impl Drop for Entered {
    fn drop(&mut self) {
        let mut occupant = self.0.lock();
        occupant.is_running = false;
        if occupant.running.command.capacity() > limits::COMMAND_BYTES_KEPT_MAX {
            occupant.running.command = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::doc;

    #[test]
    fn what_is_kept_of_a_command_has_a_limit() {
        let kept = |body: &DocBuf| {
            let mut out = Vec::new();
            keep_command(body.as_doc(), 1024, &mut out);
            assert!(out.len() <= 1024 + 20, "{}", out.len());
            Doc::from_bytes(&out).unwrap().to_buf()
        };
        let short = doc! { "find" => "c", "filter" => doc! { "a" => 1 } };
        assert_eq!(kept(&short), short);
        let long = doc! { "insert" => "c", "documents" => "x".repeat(5000), "ordered" => false };
        let rest = doc! { "insert" => "c", "ordered" => false, "$truncated" => true };
        assert_eq!(kept(&long), rest);
        let many = DocBuf::build(|out| (0..100_000).for_each(|n| out.put(&format!("f{n}"), n)));
        assert!(kept(&many).as_doc().value("$truncated").truthy());
    }
}
