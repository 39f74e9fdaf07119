//! A connection handle of C.
//!
//! Invariants:
//! - Used by one call at a time: the lock is only tried. Constant data is outside of the lock.
//! - Replies match requests: each `receive` returns the reply to the oldest request in flight.
//! - After a failure that leaves the stream in an unknown state, every call returns that failure; but of a set the
//!   next request goes to a server that is selected anew, and replies that were not received are lost.

use crate::failure::{Failure, Result, Status};
use kauri_bson::Doc;
use kauri_client::set::Follower;
use kauri_client::{ClientError, Connection, Sequence, Transport, Uri};
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// The target of `kauri_connection_t`.
pub struct Handle {
    transport: Arc<AtomicI32>,
    fallback: Option<CString>,
    session: Mutex<Session>,
}

/// Transports and their numbers in C.
pub const TRANSPORTS: [(i32, Transport, &CStr); 4] = [
    (1, Transport::Tcp, c"tcp"),
    (2, Transport::Unix, c"unix"),
    (3, Transport::SharedMemory, c"sharedMemory"),
    (4, Transport::Rdma, c"rdma"),
];

fn number_of(transport: Transport) -> i32 {
    TRANSPORTS.iter().find(|(_, one, _)| *one == transport).map_or(0, |(number, ..)| *number)
}

/// The way to the server.
#[allow(clippy::large_enum_variant, reason = "one a handle")]
enum Link {
    /// One server.
    One(Connection),
    /// The primary of a set, or what its read preference selects.
    Set(Follower),
}

impl Link {
    fn open(uri: &Uri) -> Result<Link> {
        Ok(match &uri.set {
            Some(_) => Link::Set(Follower::open(uri)?),
            None => Link::One(Connection::open(uri)?),
        })
    }

    fn connection(&self) -> &Connection {
        match self {
            Link::One(connection) => connection,
            Link::Set(follower) => follower.connection(),
        }
    }

    fn set_timeout(&mut self, timeout: Option<Duration>) -> std::result::Result<(), ClientError> {
        match self {
            Link::One(connection) => connection.set_timeout(timeout),
            Link::Set(follower) => follower.set_timeout(timeout),
        }
    }

    fn send(
        &mut self,
        command: Doc<'_>,
        sequences: &[Sequence<'_>],
    ) -> std::result::Result<i32, ClientError> {
        match self {
            Link::One(connection) => connection.send_request(command, sequences),
            Link::Set(follower) => follower.send_request(command, sequences),
        }
    }

    fn receive(&mut self) -> std::result::Result<(i32, Doc<'_>), ClientError> {
        match self {
            Link::One(connection) => connection.receive_borrowed(),
            Link::Set(follower) => follower.receive_borrowed(),
        }
    }

    fn trim(&mut self) {
        match self {
            Link::One(connection) => connection.trim(),
            Link::Set(follower) => follower.trim(),
        }
    }
}

/// Threads of C have it in common, which no compiler checks there.
const _: fn() = || {
    fn shared_and_sent<T: Send + Sync>() {}
    shared_and_sent::<Handle>();
};

/// A connection and its state.
pub struct Session {
    link: Link,
    /// What the connection goes through, for those who don't hold the lock.
    transport: Arc<AtomicI32>,
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
            if let Some(set) = &mut uri.set {
                set.selection_timeout = set.selection_timeout.min(timeout);
            }
        }
        let link = Link::open(&uri)?;
        let transport = Arc::new(AtomicI32::new(number_of(link.connection().transport())));
        Ok(Handle {
            transport: Arc::clone(&transport),
            fallback: link.connection().fallback().map(text),
            session: Mutex::new(Session {
                link,
                transport,
                in_flight: VecDeque::new(),
                failed: None,
            }),
        })
    }

    /// The number of the transport.
    pub fn transport(&self) -> i32 {
        self.transport.load(Ordering::Relaxed)
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

    /// Remembers a failure that stays. Of a set none does.
    fn settled<T>(&mut self, result: Result<T>) -> Result<T> {
        let Err(failure) = &result else { return result };
        if !failure.status.is_final() {
            return result;
        }
        match &self.link {
            Link::One(_) => self.failed = Some(failure.clone()),
            Link::Set(_) => self.in_flight.clear(),
        }
        result
    }

    /// After a call that may have selected another server.
    fn note_transport(&self) {
        let number = number_of(self.link.connection().transport());
        self.transport.store(number, Ordering::Relaxed);
    }

    pub fn set_timeout(&mut self, timeout_ms: u32) -> Result<()> {
        self.usable()?;
        let set = self.link.set_timeout(limit(timeout_ms));
        self.settled(set.map_err(Failure::from))
    }

    pub fn check(&self) -> Result<()> {
        self.usable()?;
        match &self.link {
            Link::One(connection) if connection.has_ended() => {
                Err(Failure::new(Status::Io, "the server has ended the connection"))
            }
            // A set's next request goes to a server that is selected anew.
            Link::One(_) | Link::Set(_) => Ok(()),
        }
    }

    pub fn send(&mut self, command: Doc<'_>, sequences: &[Sequence<'_>]) -> Result<()> {
        self.usable()?;
        let sent = self.link.send(command, sequences);
        self.note_transport();
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
        let received = match self.link.receive() {
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
        self.note_transport();
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
            self.link.trim();
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

    /// A member of a set of two: it answers hellos as the primary while its number is in `primary`, and other commands
    /// with its number, or by closing if it is not the primary any more.
    fn member(number: i32, hosts: [u16; 2], listener: TcpListener, primary: Arc<AtomicI32>) {
        let answer = move |mut stream: std::net::TcpStream| {
            let host = |at: usize| format!("127.0.0.1:{}", hosts[at]);
            let all = [host(0), host(1)];
            loop {
                let mut header = [0; 16];
                if stream.read_exact(&mut header).is_err() {
                    return;
                }
                let [length, id, ..] = header.as_chunks::<4>().0 else { panic!() };
                let mut rest = vec![0; i32::from_le_bytes(*length) as usize - header.len()];
                stream.read_exact(&mut rest).unwrap();
                let is_hello = rest.windows(8).any(|name| name == b"isMaster");
                let is_primary = primary.load(Ordering::Relaxed) == number;
                if !is_hello && !is_primary {
                    return;
                }
                let mut reply = Vec::new();
                let writer = MsgWriter::begin(&mut reply, 1, i32::from_le_bytes(*id), 0);
                let mut body = DocWriter::new(&mut reply);
                body.put("ok", 1.0);
                body.put("number", number);
                if is_hello {
                    body.put("setName", "r");
                    body.put("ismaster", is_primary);
                    body.put("secondary", !is_primary);
                    let me = &all[number as usize];
                    body.put("me", me.as_str());
                    body.put("hosts", kauri_bson::array![all[0].as_str(), all[1].as_str()]);
                    body.put("maxWireVersion", 21);
                }
                drop(body);
                writer.finish(&mut reply).unwrap();
                stream.write_all(&reply).unwrap();
            }
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let answer = answer.clone();
                std::thread::spawn(move || answer(stream.unwrap()));
            }
        });
    }

    #[test]
    fn a_sets_handle_goes_on_after_a_failure() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = [0, 1].map(|at: usize| listeners[at].local_addr().unwrap().port());
        let primary = Arc::new(AtomicI32::new(0));
        for (number, listener) in (0..).zip(listeners) {
            member(number, ports, listener, Arc::clone(&primary));
        }
        let [one, other] = ports;
        let uri = format!(
            "mongodb://127.0.0.1:{one},127.0.0.1:{other}/?replicaSet=r&sharedMemory=off&rdma=off"
        );
        let handle = Handle::connect(&uri, 60_000).unwrap();
        let mut session = handle.enter().unwrap();
        // What may not be repeated, and a read, which is.
        let create = doc! { "create" => "c", "$db" => "test" };
        let find = doc! { "find" => "c", "$db" => "test" };
        session.command(create.as_doc()).unwrap();
        assert_eq!(session.last_number(), 0);
        primary.store(1, Ordering::Relaxed);
        session.send(create.as_doc(), &[]).unwrap();
        session.send(create.as_doc(), &[]).unwrap();
        assert_eq!(session.receive().unwrap_err().status, Status::Io);
        // The second reply is lost, too.
        assert_eq!(session.receive().unwrap_err().status, Status::OutOfOrder);
        session.check().unwrap();
        session.command(create.as_doc()).unwrap();
        assert_eq!(session.last_number(), 1);
        primary.store(0, Ordering::Relaxed);
        session.command(find.as_doc()).unwrap();
        assert_eq!(session.last_number(), 0);
        assert_eq!(handle.transport(), 1);
    }

    impl Session {
        /// Of the server that has sent the last reply.
        fn last_number(&self) -> i64 {
            let reply = self.link.connection().last_reply().unwrap();
            reply.value("number").to_i64_saturating().unwrap()
        }
    }

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
