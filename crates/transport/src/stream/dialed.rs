//! Stream sessions that this process has opened: their channel, and the client's part of a change to shared memory or
//! RDMA.

use super::channel::Channel;
use super::crossing::Crossing;
use super::session::StreamSession;
use super::socket::StreamSocket;
use crate::contract::Session;
use crate::executor::io::{READ, WRITE};
use crate::executor::shared::WorkerShared;
use crate::outgoing::PeerSession;
use crate::rdma::{Dialer, Dialing};
use crate::reply::SendNow;
use crate::ring::RingEnd;
use crate::shared_memory::accept_parts;
use crate::shared_memory::sys::receive_with_descriptors;
use crate::sys::{SIGN_OF_LIFE, set_tcp_options};
use crate::upgrade::{FastTransport, Offer, ServerFabric, UpgradeStats};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Descriptors that a server may send beside its bytes. One that sends more ends its session.
const BESIDE_MAX: usize = 8;

/// A bare socket, and the descriptors that come beside its bytes.
pub(crate) struct DialedSocket {
    socket: Arc<StreamSocket>,
    takes_beside: AtomicBool,
    beside: Mutex<Vec<OwnedFd>>,
    /// A connection over RDMA that the server has not answered yet.
    dialing: Mutex<Option<Dialing>>,
}

impl DialedSocket {
    /// Descriptors that came beside what was received. No more are taken.
    fn take_beside(&self) -> Vec<OwnedFd> {
        self.takes_beside.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.beside.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn dialing(&self) -> MutexGuard<'_, Option<Dialing>> {
        self.dialing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SendNow for DialedSocket {
    fn send_now(&self, first: &[u8], second: &[u8]) -> usize {
        self.socket.send_now(first, second)
    }
}

impl Channel for DialedSocket {
    const IS_OUTGOING: bool = true;

    /// Whether descriptors may come beside the bytes.
    type State = bool;

    fn open(fd: OwnedFd, takes_beside: bool, worker: Arc<WorkerShared>) -> Self {
        DialedSocket {
            socket: Arc::new(StreamSocket::new(fd, worker)),
            takes_beside: AtomicBool::new(takes_beside),
            beside: Mutex::default(),
            dialing: Mutex::default(),
        }
    }

    fn take_state(&self) -> bool {
        self.takes_beside.load(Ordering::Relaxed)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    fn plain(this: &Arc<Self>) -> Option<&Arc<StreamSocket>> {
        Some(&this.socket)
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        if !self.takes_beside.load(Ordering::Relaxed) {
            return self.socket.receive(buffer);
        }
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        let receive = |fd: BorrowedFd<'_>| receive_with_descriptors(fd, buffer, &mut beside);
        let received = self.socket.receive_by(receive)?;
        if beside.len() > BESIDE_MAX {
            beside.clear();
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(received)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.send(bytes)
    }

    fn shutdown(&self) {
        self.socket.shutdown();
    }
}

impl<C: Channel> StreamSession<C> {
    /// See [`PeerSession::await_both`].
    pub(super) fn wait_in_both_directions(&mut self) -> bool {
        self.io.await_also(READ | WRITE);
        let is_open = self.channel.is_open();
        let opens = is_open && !std::mem::replace(&mut self.was_open, is_open);
        opens || self.crossing.as_ref().is_some_and(Crossing::take_changed)
    }
}

impl StreamSession<DialedSocket> {
    fn cross(&mut self, answer: &[u8]) -> Result<(), String> {
        let dialing = self.channel.dialing().take();
        let (transport, shape, fabric, probe) = match dialing {
            Some(dialing) => {
                let (shape, fabric, probe) = dialing.accept_parts(answer)?;
                (FastTransport::Rdma, shape, ServerFabric::Dialed(fabric), probe)
            }
            None => {
                let accepted = accept_parts(answer, self.channel.take_beside());
                let accepted = accepted.map_err(|error| error.to_string())?;
                let fabric = ServerFabric::Shared(accepted.fabric);
                (FastTransport::SharedMemory, accepted.shape, fabric, accepted.probe)
            }
        };
        if !self.inbox.is_empty() {
            return Err("bytes behind the answer".to_owned());
        }
        let end = RingEnd::new(shape, fabric);
        let offer = Offer { transport, end, probe, descriptors: Vec::new(), rdma: None };
        let stats = Arc::new(UpgradeStats::default());
        let crossing = Crossing::open_as_client(offer, &self.local, &self.liveness, &stats);
        self.crossing = Some(crossing.map_err(|error| error.to_string())?);
        if transport == FastTransport::Rdma {
            // Nothing else tells of a server whose host has gone.
            let _ = set_tcp_options(self.channel.fd(), &SIGN_OF_LIFE);
        }
        Ok(())
    }
}

impl PeerSession for StreamSession<DialedSocket> {
    fn await_both(&mut self) -> bool {
        self.wait_in_both_directions()
    }

    fn rest(&mut self) {
        self.crossing.iter().for_each(Crossing::rest);
    }

    fn prepare_rdma(&mut self, dialer: &Dialer, random: u64) -> Result<Vec<u8>, String> {
        let Ok(address) = self.info().local.parse::<SocketAddr>() else {
            return Err("the connection is not TCP's".to_owned());
        };
        let dialing = dialer.prepare_on(&self.local, address.ip(), random);
        let dialing = dialing.map_err(|error| error.to_string())?;
        let request = dialing.request();
        *self.channel.dialing() = Some(dialing);
        Ok(request)
    }

    fn begin_upgrade(&mut self, answer: &[u8]) -> Result<(), String> {
        self.cross(answer)
    }

    fn poll_upgraded(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        let Some(crossing) = &self.crossing else {
            return Poll::Ready(Err("the session has no ring".to_owned()));
        };
        if crossing.is_switched() {
            return Poll::Ready(Ok(()));
        }
        let failed = match crossing.poll_readable(cx, 0) {
            _ if crossing.is_switched() => return Poll::Ready(Ok(())),
            // Bytes cannot come before the probe.
            Poll::Ready(Ok(())) => "bytes before the probe".to_owned(),
            Poll::Ready(Err(error)) => error.to_string(),
            Poll::Pending if self.io.poll_ready(cx, READ).is_pending() => return Poll::Pending,
            Poll::Pending => "the server ended the change".to_owned(),
        };
        self.crossing = None;
        Poll::Ready(Err(failed))
    }

    fn abandon_upgrade(&mut self) {
        self.crossing = None;
    }

    fn transport(&self) -> &'static str {
        match &self.crossing {
            Some(crossing) if crossing.is_switched() => crossing.transport().name(),
            _ => self.info().transport,
        }
    }
}
