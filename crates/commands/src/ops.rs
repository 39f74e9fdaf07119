//! The operations that are running, for `currentOp` and `killOp`.

use kauri_base::operation::OperationState;
use kauri_base::work;
use kauri_base::{limits, log};
use kauri_bson::{Doc, DocBuf, DocWriter, Value};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What is told of a running operation.
#[derive(Default)]
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
    /// The command document's bytes, cut to a bounded size.
    pub command: Vec<u8>,
    /// The command's name.
    pub name: &'static str,
    /// Monotonic nanoseconds at its start.
    pub started_ns: u64,
    /// The logical session, if it has one.
    pub lsid: Option<[u8; 16]>,
}

/// Appends what is kept of a command: all of a short one. Of a long one the short fields that come first,
/// then `$truncated`.
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

/// What is kept of the command that opened a cursor.
pub fn command_of_cursor(body: Doc<'_>) -> DocBuf {
    let mut bytes = Vec::new();
    keep_command(body, limits::CURSOR_COMMAND_BYTES_KEPT_MAX, &mut bytes);
    Doc::from_bytes(&bytes).unwrap_or(Doc::EMPTY).to_buf()
}

/// An operation as `currentOp` shows it.
pub fn describe(running: &Running, host: &str, now_ms: i64) -> DocBuf {
    let elapsed_ns = kauri_transport::monotonic_ns().saturating_sub(running.started_ns);
    let command = Doc::from_bytes(&running.command).unwrap_or(Doc::EMPTY);
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
        out.put("waitingForLock", running.state.waits_for_lock());
        out.put("lockStats", Doc::EMPTY);
        out.put("waitingForFlowControl", false);
        out.put("flowControlStats", Doc::EMPTY);
    })
}

/// Where a connection's operations run, one after the other. What is told of them is written over and
/// over into the same memory.
#[derive(Default)]
pub struct Seat(Mutex<Occupant>);

#[derive(Default)]
struct Occupant {
    running: Running,
    is_running: bool,
}

impl Seat {
    /// Enters an operation until the guard is dropped. `fill` writes over what was told of the last
    /// one.
    pub fn enter(self: &Arc<Seat>, fill: impl FnOnce(&mut Running)) -> Entered {
        let mut occupant = self.lock();
        fill(&mut occupant.running);
        occupant.is_running = true;
        drop(occupant);
        Entered(self.clone())
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
    /// How many there may be before those are cleared away whose connection has gone.
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
    pub fn seat(&self) -> Arc<Seat> {
        let seat = Arc::new(Seat::default());
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

    /// Looks at each.
    pub fn for_each(&self, mut look: impl FnMut(&Running)) {
        // Not while holding the list: connections come and go meanwhile.
        let seats: Vec<_> = {
            let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
            seats.all.iter().filter_map(Weak::upgrade).collect()
        };
        for seat in seats {
            // An operation of the same worker leaves its seat by this lock.
            let _staying = work::stay();
            let occupant = seat.lock();
            if occupant.is_running {
                look(&occupant.running);
            }
        }
    }
}

/// Its operation has left the seat when it is dropped.
pub struct Entered(Arc<Seat>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.lock().is_running = false;
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
