//! A channel that transforms bytes, for tests: a toy cipher with a handshake, in place of TLS.
//!
//! Each side first sends a byte of a key. Then records follow: a length byte, and as many bytes, each changed by the
//! sum of both keys and its place in the stream. The socket is read in small pieces, so that records come in parts.

use super::channel::Channel;
use super::session::StreamSession;
use super::socket::StreamSocket;
use crate::contract::{
    ClientState, Handling, Lease, Outcome, RequestContext, ServiceEntryPoint, Session, SessionEnd,
    SessionInfo, Tried,
};
use crate::executor::local::Local;
use crate::executor::shared::WorkerShared;
use crate::executor::{ExecutorOptions, ServiceExecutor, WorkerHandle};
use crate::manager::{Origin, SessionManager};
use crate::outgoing::{Connect, Connecting, Outgoing, OutgoingOptions, PeerSession, session_info};
use crate::reply::{ReplyBuf, SendNow};
use crate::sys;
use kauri_wire::Header;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Bytes read from the socket at once, and given at once.
const READ_BYTES: usize = 701;
const GIVEN_BYTES: usize = 509;
const RECORD_BYTES: usize = 255;

#[derive(Default)]
pub(crate) struct CipherState {
    own_key: u8,
    peer_key: Option<u8>,
    said_key: bool,
    /// Received, and not a whole record yet.
    incoming: Vec<u8>,
    /// Received, and not given.
    plain: Vec<u8>,
    /// To be sent.
    outgoing: Vec<u8>,
    given: u8,
    taken: u8,
    emptied: bool,
}

impl CipherState {
    pub fn new(own_key: u8) -> CipherState {
        CipherState { own_key, ..CipherState::default() }
    }

    fn key(&self) -> Option<u8> {
        Some(self.own_key.wrapping_add(self.peer_key?))
    }

    fn decrypt(&mut self) {
        if self.peer_key.is_none() && !self.incoming.is_empty() {
            self.peer_key = Some(self.incoming.remove(0));
        }
        let Some(key) = self.key() else { return };
        while let Some(length) = self.incoming.first().map(|first| usize::from(*first))
            && self.incoming.len() > length
        {
            for byte in self.incoming.drain(..=length).skip(1) {
                self.plain.push(byte ^ key.wrapping_add(self.given));
                self.given = self.given.wrapping_add(1);
            }
        }
    }

    fn encrypt(&mut self, bytes: &[u8]) -> bool {
        let Some(key) = self.key() else { return false };
        self.outgoing.push(bytes.len() as u8);
        for byte in bytes {
            self.outgoing.push(byte ^ key.wrapping_add(self.taken));
            self.taken = self.taken.wrapping_add(1);
        }
        true
    }
}

pub(crate) struct Cipher {
    socket: StreamSocket,
    state: Mutex<CipherState>,
}

impl Cipher {
    /// Whether the socket takes more.
    fn flush(&self, state: &mut CipherState) -> io::Result<bool> {
        if !std::mem::replace(&mut state.said_key, true) {
            state.outgoing.push(state.own_key);
        }
        while !state.outgoing.is_empty() {
            match self.socket.send(&state.outgoing) {
                Ok(sent) => drop(state.outgoing.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl SendNow for Cipher {
    fn send_now(&self, first: &[u8], second: &[u8]) -> usize {
        let sent = self.send(first).unwrap_or(0);
        if sent < first.len() { sent } else { sent + self.send(second).unwrap_or(0) }
    }
}

impl Channel for Cipher {
    type State = CipherState;

    fn open(fd: OwnedFd, state: CipherState, worker: Arc<WorkerShared>) -> Self {
        Cipher { socket: StreamSocket::new(fd, worker), state: Mutex::new(state) }
    }

    fn take_state(&self) -> CipherState {
        std::mem::take(&mut self.state.lock().unwrap())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    fn plain(_: &Arc<Self>) -> Option<&Arc<StreamSocket>> {
        None
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let mut state = self.state.lock().unwrap();
        loop {
            self.flush(&mut state)?;
            if !state.plain.is_empty() {
                let room = (buffer.capacity() - buffer.len()).min(GIVEN_BYTES);
                let count = room.min(state.plain.len());
                buffer.extend(state.plain.drain(..count));
                return Ok(count);
            }
            let mut piece = Vec::with_capacity(READ_BYTES);
            let received = self.socket.receive(&mut piece);
            state.emptied = !received.as_ref().is_ok_and(|count| *count == piece.capacity());
            if received? == 0 {
                return Ok(0);
            }
            state.incoming.append(&mut piece);
            state.decrypt();
        }
    }

    fn is_drained(&self, _received: usize, _room: usize) -> bool {
        let state = self.state.lock().unwrap();
        state.emptied && state.plain.is_empty()
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state.lock().unwrap();
        let mut taken = 0;
        while self.flush(&mut state)? && taken < bytes.len() {
            let record = &bytes[taken..bytes.len().min(taken + RECORD_BYTES)];
            if !state.encrypt(record) {
                break;
            }
            taken += record.len();
        }
        if taken == 0 && !bytes.is_empty() {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(taken)
        }
    }

    fn keeps(&self) -> bool {
        let state = self.state.lock().unwrap();
        !state.said_key || !state.outgoing.is_empty()
    }

    fn is_open(&self) -> bool {
        self.state.lock().unwrap().peer_key.is_some()
    }

    fn shutdown(&self) {
        self.socket.shutdown();
    }
}

impl PeerSession for StreamSession<Cipher> {
    fn await_both(&mut self) -> bool {
        self.wait_in_both_directions()
    }
}

/// Answers each message with its own bytes; what is long goes early.
struct Echo;

struct Nothing;

impl ClientState for Nothing {}

impl ServiceEntryPoint for Echo {
    fn start_session(&self, _: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        Box::new(Nothing)
    }

    fn try_handle(
        &self,
        _: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
    ) -> Tried {
        let mut header = Header::parse(request).unwrap();
        header.response_to = header.request_id;
        reply.buffer().extend_from_slice(&header.to_bytes());
        reply.splice(&request[16..]);
        Tried::Done(Outcome::Reply)
    }

    fn handle_request<'a>(
        &'a self,
        _: RequestContext<'a>,
        _: &'a [u8],
        _: &'a mut ReplyBuf,
    ) -> Handling<'a> {
        unreachable!()
    }

    fn end_session(&self, _: &Arc<SessionInfo>, _: Box<dyn ClientState>) {}
}

/// Connects by a pair of sockets to sessions of this manager.
struct PairConnect(Arc<SessionManager>);

impl Connect for PairConnect {
    fn connect(&self, worker: &WorkerHandle) -> Connecting {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let origin = Origin {
            remote: String::new(),
            local: String::new(),
            transport: "unix",
            addresses: None,
            peer_user: Some(crate::shared_memory::sys::own_user()),
        };
        self.0.accept(origin, move |local, info, liveness| {
            let fd = theirs.into();
            let state = CipherState::new(200);
            let session = StreamSession::<Cipher>::over(fd, state, local, info, liveness)?;
            Ok(Box::new(session) as Box<dyn Session>)
        });
        let info = session_info("unix", String::new(), String::new(), worker.id());
        Box::pin(async move {
            let local = Local::current().unwrap();
            let state = CipherState::new(99);
            let session =
                StreamSession::<Cipher>::over(ours.into(), state, &local, info, Arc::default())?;
            Ok(Box::new(session) as Box<dyn PeerSession>)
        })
    }
}

fn message(bytes: usize, seed: u8) -> Vec<u8> {
    let header = Header { length: bytes as i32, request_id: 5, response_to: 0, op_code: 2013 };
    let body = (0..bytes - 16).map(|at| seed.wrapping_add((at / 3) as u8));
    header.to_bytes().into_iter().chain(body).collect()
}

#[test]
fn a_channel_that_transforms_bytes_carries_sessions_of_both_kinds() {
    let options = ExecutorOptions { workers: 2, replies_held_us: 100, ..Default::default() };
    let executor = ServiceExecutor::start(&options).unwrap();
    let manager = SessionManager::new(Arc::clone(&executor), Arc::new(Echo), 10);
    let worker = executor.workers()[0].clone();
    let connect = Arc::new(PairConnect(Arc::clone(&manager)));
    let outgoing = Outgoing::open(&worker, connect, OutgoingOptions::default());
    let (report, reported) = std::sync::mpsc::channel();
    worker.spawn(async move {
        let sizes = [16, 17, 300, 70_000, 20, 3_000_000, 16];
        // All at once: large ones fill the socket in both directions.
        let requests: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(at, size)| outgoing.request(message(*size, at as u8), None))
            .collect();
        for (at, (request, size)) in requests.into_iter().zip(sizes).enumerate() {
            let reply = request.await.unwrap();
            report.send(reply[16..] == message(size, at as u8)[16..]).unwrap();
        }
    });
    for _ in 0..7 {
        assert!(reported.recv_timeout(Duration::from_secs(60)).unwrap());
    }
    manager.shutdown(Duration::ZERO);
    executor.shutdown();
}

/// Tells the sessions of a worker what epoll reports.
fn dispatch(local: &Local) {
    let mut events = sys::EventList::new(8);
    local.epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.iter().for_each(|event| local.dispatch(event, 1));
}

fn source(session: &mut dyn Session, local: &Local) -> Poll<Result<Lease, SessionEnd>> {
    dispatch(local);
    session.poll_source(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_session_moves_with_what_its_channel_holds_and_stays_on_its_stream() {
    let new_local = || Local::new(Arc::new(WorkerShared::new(0).unwrap())).unwrap();
    let (here, there): (Rc<Local>, Rc<Local>) = (new_local(), new_local());
    here.outbox.open(u64::MAX);
    let (mut peer, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let info = session_info("unix", String::new(), String::new(), 0);
    let mut session: Box<dyn Session> = Box::new(
        StreamSession::<Cipher>::over(
            ours.into(),
            CipherState::new(7),
            &here,
            Arc::clone(&info),
            Arc::default(),
        )
        .unwrap(),
    );
    // The handshake is answered though no message has come.
    assert!(source(&mut *session, &here).is_pending());
    let mut key = [0];
    peer.read_exact(&mut key).unwrap();
    assert_eq!(key, [7]);
    let mut far = CipherState { peer_key: Some(7), ..CipherState::new(40) };
    let sent = message(40, 3);
    far.outgoing.push(40);
    assert!(far.encrypt(&sent[..30]) && far.encrypt(&sent[30..]));
    assert!(!far.outgoing.windows(16).any(|part| part == &sent[..16]));
    // One record, and a part of the next.
    peer.write_all(&far.outgoing[..36]).unwrap();
    assert!(source(&mut *session, &here).is_pending());
    assert!(session.depart().is_none(), "half a message");
    peer.write_all(&far.outgoing[36..]).unwrap();
    let Poll::Ready(Ok(lease)) = source(&mut *session, &here) else { panic!("no message") };
    assert_eq!(session.request(&lease), sent);
    session.release(lease);
    // Its replies do not leave with others', which go through bare sockets.
    (0..4).for_each(|_| here.push(0));
    let mut reply = session.reply_buf(0);
    reply.buffer().extend_from_slice(&sent);
    let sunk = session.poll_sink(&mut Context::from_waker(Waker::noop()), &mut reply);
    assert!(matches!(sunk, Poll::Ready(Ok(()))) && !here.outbox.has_some());
    let wanted = [1u32, 0].map(u32::to_le_bytes).concat();
    let random = kauri_base::clock::SeededRandom::new(1);
    let refused = info.upgrade.prepare("sharedMemory", &wanted, &random).unwrap_err();
    assert_eq!(refused.code().number(), 20);
    // A part of a record moves along.
    far.outgoing.clear();
    assert!(far.encrypt(&sent));
    peer.write_all(&far.outgoing[..9]).unwrap();
    let departure = session.depart().expect("nothing is under way");
    drop(session);
    let mut session = (departure.0)(&there).unwrap();
    assert!(source(&mut *session, &there).is_pending());
    peer.write_all(&far.outgoing[9..]).unwrap();
    let Poll::Ready(Ok(lease)) = source(&mut *session, &there) else { panic!("no message") };
    assert_eq!(session.request(&lease), sent);
    session.release(lease);
    // The reply before came through the cipher.
    let mut received = vec![0; 41];
    peer.read_exact(&mut received).unwrap();
    far.incoming = received;
    far.decrypt();
    assert_eq!(far.plain, sent);
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    let ended = source(&mut *session, &there);
    assert!(matches!(ended, Poll::Ready(Err(SessionEnd::PeerClosed))));
}
