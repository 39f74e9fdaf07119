//! A connection handle of C.
//!
//! Invariants:
//! - Used by one call at a time: the lock is only tried. Constant data is outside of the lock.
//! - Replies match requests: each `receive` returns the reply to the oldest request in flight.
//! - After a failure that leaves the stream in an unknown state, every call returns that failure.

use crate::failure::{Failure, Result, Status};
use kauri_bson::Doc;
use kauri_client::{Connection, Sequence, Transport, Uri};
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// The target of `kauri_connection_t`.
pub struct Handle {
    transport: Transport,
    fallback: Option<CString>,
    session: Mutex<Session>,
}

/// Threads of C have it in common, which no compiler checks there.
const _: fn() = || {
    fn shared_and_sent<T: Send + Sync>() {}
    shared_and_sent::<Handle>();
};

/// A connection and its state.
pub struct Session {
    connection: Connection,
    /// The ids of the requests whose replies have not been received.
    in_flight: VecDeque<i32>,
    failed: Option<Failure>,
}

/// A reply, where it was received: `kauri_bson_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct View {
    pub data: *const u8,
    pub length: usize,
}

impl View {
    pub const NOTHING: View = View { data: std::ptr::null(), length: 0 };
}

/// Milliseconds as C gives them: 0 is none.
fn limit(timeout_ms: u32) -> Option<Duration> {
    (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into()))
}

/// For C, where a zero byte would end it.
fn text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

impl Handle {
    pub fn connect(uri: &str, timeout_ms: u32) -> Result<Handle> {
        let mut uri: Uri = uri.parse()?;
        if let Some(timeout) = limit(timeout_ms) {
            uri.connect_timeout = timeout;
        }
        let connection = Connection::open(&uri)?;
        Ok(Handle {
            transport: connection.transport(),
            fallback: connection.fallback().map(text),
            session: Mutex::new(Session { connection, in_flight: VecDeque::new(), failed: None }),
        })
    }

    pub fn transport(&self) -> Transport {
        self.transport
    }

    pub fn fallback(&self) -> Option<&CStr> {
        self.fallback.as_deref()
    }

    /// The session, if no other thread uses it.
    pub fn enter(&self) -> Result<MutexGuard<'_, Session>> {
        self.session.try_lock().map_err(|busy| match busy {
            TryLockError::WouldBlock => in_use(),
            TryLockError::Poisoned(_) => Failure::panicked(),
        })
    }

    /// Excludes all later calls, if no call is active: then the handle can be freed.
    pub fn lock_for_ever(&self) -> Result<()> {
        match self.session.try_lock() {
            Ok(session) => std::mem::forget(session),
            Err(TryLockError::Poisoned(session)) => std::mem::forget(session),
            Err(TryLockError::WouldBlock) => return Err(in_use()),
        }
        Ok(())
    }
}

fn in_use() -> Failure {
    Failure::new(Status::InUse, "another thread is within a call on this connection")
}

impl Session {
    fn usable(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Remembers a failure that stays.
    fn settled<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(failure) = &result
            && failure.status.is_final()
        {
            self.failed = Some(failure.clone());
        }
        result
    }

    pub fn set_timeout(&mut self, timeout_ms: u32) -> Result<()> {
        self.usable()?;
        let set = self.connection.set_timeout(limit(timeout_ms));
        self.settled(set.map_err(Failure::from))
    }

    pub fn check(&self) -> Result<()> {
        self.usable()?;
        match self.connection.has_ended() {
            true => Err(Failure::new(Status::Io, "the server has ended the connection")),
            false => Ok(()),
        }
    }

    pub fn send(&mut self, command: Doc<'_>, sequences: &[Sequence<'_>]) -> Result<()> {
        self.usable()?;
        let sent = self.connection.send_request(command, sequences);
        let id = self.settled(sent.map_err(Failure::from))?;
        self.in_flight.push_back(id);
        Ok(())
    }

    /// The next reply, and the failure in it.
    pub fn receive(&mut self) -> Result<(View, Option<Failure>)> {
        self.usable()?;
        let Some(id) = self.in_flight.front().copied() else {
            return Err(Failure::new(Status::OutOfOrder, "no request is in flight"));
        };
        let received = match self.connection.receive_borrowed() {
            Ok((answered, reply)) if answered == id => {
                let bytes = reply.as_bytes();
                let view = View { data: bytes.as_ptr(), length: bytes.len() };
                Ok((view, Failure::of_reply(reply)))
            }
            Ok((answered, _)) => {
                let what = format!("an answer to request {answered} instead of {id}");
                Err(Failure::new(Status::Protocol, what))
            }
            Err(error) => Err(error.into()),
        };
        let received = self.settled(received)?;
        self.in_flight.pop_front();
        Ok(received)
    }

    pub fn command(&mut self, command: Doc<'_>) -> Result<(View, Option<Failure>)> {
        self.usable()?;
        if !self.in_flight.is_empty() {
            let why = format!("{} replies are to be received first", self.in_flight.len());
            return Err(Failure::new(Status::OutOfOrder, why));
        }
        self.send(command, &[])?;
        self.receive()
    }

    pub fn trim(&mut self) -> Result<()> {
        self.usable()?;
        if self.in_flight.is_empty() {
            self.connection.trim();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocWriter, doc};
    use kauri_wire::MsgWriter;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A server that answers one hello.
    fn greeted() -> Handle {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut header = [0; 16];
            stream.read_exact(&mut header).unwrap();
            let [length, id, ..] = header.as_chunks::<4>().0 else { panic!() };
            let mut rest = vec![0; i32::from_le_bytes(*length) as usize - header.len()];
            stream.read_exact(&mut rest).unwrap();
            let mut reply = Vec::new();
            let writer = MsgWriter::begin(&mut reply, 1, i32::from_le_bytes(*id), 0);
            DocWriter::new(&mut reply).put("ok", 1.0);
            writer.finish(&mut reply).unwrap();
            stream.write_all(&reply).unwrap();
            stream
        });
        let uri = format!("mongodb://127.0.0.1:{port}/?sharedMemory=off&rdma=off");
        let handle = Handle::connect(&uri, 0).unwrap();
        server.join().unwrap();
        handle
    }

    #[test]
    fn a_panic_ends_its_connection() {
        let handle = greeted();
        let panicking = || {
            let _session = handle.enter().unwrap();
            panic!("planted");
        };
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        for _ in 0..2 {
            let failure = handle.enter().err().unwrap();
            assert_eq!(failure.status, Status::Internal);
            assert_eq!(failure.message, Failure::panicked().message);
        }
        assert!(handle.lock_for_ever().is_ok());
        assert_eq!(handle.enter().err().unwrap().status, Status::InUse);
    }

    #[test]
    fn a_connection_is_used_by_one_at_a_time() {
        let handle = greeted();
        let session = handle.enter().unwrap();
        assert_eq!(handle.enter().err().unwrap().status, Status::InUse);
        assert_eq!(handle.lock_for_ever().unwrap_err().status, Status::InUse);
        drop(session);
        // The server has gone by now.
        let mut session = handle.enter().unwrap();
        assert_eq!(session.check().unwrap_err().status, Status::Io);
        let ping = doc! { "ping" => 1, "$db" => "admin" };
        let first = session.command(ping.as_doc()).unwrap_err();
        assert_eq!(first.status, Status::Io);
        assert_eq!(session.receive().err().unwrap().message, first.message);
        drop(session);
        assert!(handle.lock_for_ever().is_ok());
        assert_eq!(handle.enter().err().unwrap().status, Status::InUse);
    }

    #[test]
    fn a_reason_with_a_zero_byte_is_told() {
        assert_eq!(text("no\0device").to_str(), Ok("no device"));
    }
}
