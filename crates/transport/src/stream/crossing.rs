//! The ring of a session that has left its byte stream, or has been offered to.
//!
//! ```text
//! Offered -> Switched     the client's probe came and was answered
//! Offered, Switched -> (stream again)   the client goes on with the stream, having sent nothing here
//! ```

use crate::executor::completions::Lingers;
use crate::executor::io::{IoSource, READ, WRITE};
use crate::executor::local::Local;
use crate::executor::rings::{Polled, RingWatch};
use crate::executor::shared::WorkerShared;
use crate::executor::slab::Key;
use crate::liveness::Liveness;
use crate::rdma::{Mailbox, RdmaMembership};
use crate::reply::SendNow;
use crate::ring::{PROBE_BYTES, RingError};
use crate::shared_memory::SharedFabric;
use crate::stats::RingStats;
use crate::stream::socket::StreamSocket;
use crate::sys::monotonic_ns;
use crate::upgrade::{FastTransport, Offer, ServerEnd, ServerFabric, UpgradeCounts, UpgradeStats};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// How long what is left of a session waits for its peer: devices give up sooner.
const LINGER_NS_MAX: u64 = 10_000_000_000;

/// The server's end of a ring, for its session and for replies that leave early.
pub(crate) struct RingSocket {
    end: Mutex<ServerEnd>,
    transport: FastTransport,
    /// Why it can't go on. Kept for whoever looks next.
    error: Mutex<Option<RingError>>,
    broken: AtomicBool,
    worker: Arc<WorkerShared>,
}

impl RingSocket {
    fn end(&self) -> MutexGuard<'_, ServerEnd> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what `work` moves through the ring.
    fn counted<R>(&self, work: impl FnOnce(&mut ServerEnd) -> R) -> R {
        let mut end = self.end();
        let before = end.counts();
        let result = work(&mut end);
        let after = end.counts();
        let RingStats { frames_in, frames_out, credits_in, credits_out, pieces_in, pieces_out } =
            self.worker.stats.rings(self.transport);
        frames_in.add(after.frames_in - before.frames_in);
        frames_out.add(after.frames_out - before.frames_out);
        credits_in.add(after.credits_in - before.credits_in);
        credits_out.add(after.credits_out - before.credits_out);
        pieces_in.add(after.pieces_in - before.pieces_in);
        pieces_out.add(after.pieces_out - before.pieces_out);
        result
    }

    fn send(&self, first: &[u8], second: &[u8]) -> usize {
        if self.broken.load(Ordering::Relaxed) {
            return 0;
        }
        let sent = self.counted(|end| {
            let sent = end.send(first, second);
            if sent == first.len() + second.len() {
                return sent;
            }
            // There may be credit that we have not heard of.
            let looked = end.look();
            if let Some(error) = looked.err().or(end.failure().map(RingError::Fabric)) {
                self.note(error);
                return sent;
            }
            let of_second = sent.saturating_sub(first.len());
            let rest = (first.get(sent..).unwrap_or_default(), second.get(of_second..));
            sent + end.send(rest.0, rest.1.unwrap_or_default())
        });
        self.worker.stats.bytes_out.add(sent as u64);
        sent
    }

    /// Whether the peer has all that was sent, or will never have it.
    fn is_flushed(&self) -> bool {
        match self.end().fabric() {
            ServerFabric::Shared(_) => true,
            ServerFabric::Rdma(fabric) => fabric.base().is_flushed(),
        }
    }

    fn note(&self, error: RingError) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.broken.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), RingError> {
        if !self.broken.load(Ordering::Relaxed) {
            return Ok(());
        }
        let error = *self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.map_or(Ok(()), Err)
    }
}

impl SendNow for RingSocket {
    fn send_now(&self, first: &[u8], second: &[u8]) -> usize {
        self.send(first, second)
    }
}

/// Shared memory, looked into by the worker.
struct Arrivals(Arc<RingSocket>);

impl Arrivals {
    fn of(&self, ask: impl FnOnce(&SharedFabric) -> bool) -> bool {
        match self.0.end().fabric() {
            ServerFabric::Shared(fabric) => ask(fabric),
            ServerFabric::Rdma(_) => false,
        }
    }
}

impl Polled for Arrivals {
    fn has_arrivals(&self) -> bool {
        self.of(SharedFabric::has_immediate)
    }

    fn fall_asleep(&self) -> bool {
        self.of(SharedFabric::fall_asleep)
    }

    fn is_asleep(&self) -> bool {
        self.of(SharedFabric::is_asleep)
    }
}

/// How a session learns that something has come.
enum News {
    /// The worker looks into its ring, or its bell is rung.
    Watched { watch: Rc<RingWatch>, io_key: Key },
    /// Its completions are taken by the worker.
    Delivered(Arc<Mailbox>),
}

/// What is left of a session over RDMA that has ended.
struct Lingering {
    ring: Arc<RingSocket>,
    stream: Arc<StreamSocket>,
    _rdma: Option<RdmaMembership>,
    deadline_ns: u64,
}

impl Lingers for Lingering {
    fn is_done(&self, now_ns: u64) -> bool {
        now_ns >= self.deadline_ns || self.ring.is_flushed()
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.stream.shutdown();
    }
}

/// See the module's head. It belongs to one session.
pub(crate) struct Crossing {
    socket: Arc<RingSocket>,
    news: News,
    local: Rc<Local>,
    rdma: Option<RdmaMembership>,
    probe: [u8; PROBE_BYTES as usize],
    switched: Cell<bool>,
    /// Whether anything but probes has come through the ring: there is no way back.
    used: Cell<bool>,
    stats: Arc<UpgradeStats>,
}

impl Crossing {
    pub fn open(
        offer: Offer,
        local: &Rc<Local>,
        liveness: &Arc<Liveness>,
        stats: &Arc<UpgradeStats>,
    ) -> io::Result<Self> {
        let Offer { transport, mut end, probe, rdma, .. } = offer;
        let bell = match end.fabric() {
            ServerFabric::Shared(fabric) => {
                let io = Rc::new(IoSource::new(Arc::clone(liveness)));
                Ok((local.watch(fabric.bell().as_fd(), Rc::clone(&io))?, io))
            }
            ServerFabric::Rdma(fabric) => Err(Arc::clone(fabric.base().mailbox())),
        };
        let socket = Arc::new(RingSocket {
            end: Mutex::new(end),
            transport,
            error: Mutex::default(),
            broken: AtomicBool::new(false),
            worker: Arc::clone(&local.shared),
        });
        let news = match bell {
            Ok((io_key, io)) => {
                let ring = Rc::new(Arrivals(Arc::clone(&socket)));
                News::Watched { watch: RingWatch::new(ring, io), io_key }
            }
            Err(mailbox) => News::Delivered(mailbox),
        };
        stats.of(transport).sessions.fetch_add(1, Ordering::Relaxed);
        Ok(Crossing {
            socket,
            news,
            local: Rc::clone(local),
            rdma,
            probe,
            switched: Cell::new(false),
            used: Cell::new(false),
            stats: Arc::clone(stats),
        })
    }

    /// Ends the session: its stream ends when the peer has all that was sent through the ring, so that
    /// the end does not overtake it.
    pub fn close(&mut self, stream: &Arc<StreamSocket>) {
        if let ServerFabric::Rdma(fabric) = self.socket.end().fabric() {
            fabric.base().finish();
        }
        if self.socket.is_flushed() {
            return stream.shutdown();
        }
        self.local.completions.linger(Box::new(Lingering {
            ring: Arc::clone(&self.socket),
            stream: Arc::clone(stream),
            _rdma: self.rdma.take(),
            deadline_ns: monotonic_ns() + LINGER_NS_MAX,
        }));
    }

    /// Whether replies go this way.
    pub fn is_switched(&self) -> bool {
        self.switched.get()
    }

    /// Whether there is no way back to the stream.
    pub fn is_used(&self) -> bool {
        self.used.get()
    }

    pub fn early(&self) -> Arc<dyn SendNow> {
        Arc::clone(&self.socket) as Arc<dyn SendNow>
    }

    pub fn ready_ns(&self) -> u64 {
        match &self.news {
            News::Watched { watch, .. } => watch.io.ready_ns(),
            News::Delivered(mailbox) => mailbox.taken_ns(),
        }
    }

    /// The session ends since what carries it has failed.
    pub fn note_failed(&self) {
        self.counts().failed.fetch_add(1, Ordering::Relaxed);
    }

    fn counts(&self) -> &UpgradeCounts {
        self.stats.of(self.socket.transport)
    }

    /// Ready when there are bytes of the stream here, of which so many are wanted.
    pub fn poll_readable(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<Result<(), RingError>> {
        self.touch();
        let readable = self.look()?;
        // What nobody waits for is not fetched: it would hold memory that all share.
        let mut end = self.socket.end();
        end.fetch(wanted, cx.waker());
        if readable {
            return Poll::Ready(Ok(()));
        }
        if let Some(why) = end.failure() {
            return Poll::Ready(Err(RingError::Fabric(why)));
        }
        drop(end);
        self.wait(cx, READ)
    }

    fn touch(&self) {
        if let News::Watched { watch, .. } = &self.news {
            self.local.rings.touch(watch);
        }
    }

    /// What comes after the last look is noticed by the worker.
    fn wait<R>(&self, cx: &mut Context<'_>, wanted: u8) -> Poll<R> {
        match &self.news {
            News::Watched { watch, .. } => {
                watch.io.exhausted(READ | WRITE);
                let _pending = watch.io.poll_ready(cx, wanted);
            }
            News::Delivered(mailbox) => mailbox.wake_by_next(cx),
        }
        Poll::Pending
    }

    fn stop_waiting(&self) {
        if let News::Watched { watch, .. } = &self.news {
            watch.io.stop_waiting();
        }
    }

    /// Takes note of what has come. Whether there are bytes of the stream.
    pub fn look(&self) -> Result<bool, RingError> {
        self.stop_waiting();
        self.socket.check()?;
        let (event, came) = self.socket.counted(|end| (end.look(), end.counts().frames_in > 0));
        self.used.set(self.used.get() || came);
        let event = event?;
        if let Some(probe) = event.probe {
            if self.switched.get() || probe != self.probe {
                return Err(RingError::Probe);
            }
            self.socket.end().probe(probe);
            self.switched.set(true);
            self.counts().switched.fetch_add(1, Ordering::Relaxed);
        }
        if event.readable && !self.switched.get() {
            return Err(RingError::Probe);
        }
        Ok(event.readable)
    }

    /// The same when the stream tells something, which may overtake what came through the ring.
    pub fn look_to_the_end(&self) -> Result<bool, RingError> {
        if let News::Delivered(_) = &self.news {
            self.local.completions.look_through(monotonic_ns());
        }
        self.look()
    }

    /// Whether something is still to be fetched that came before the end of the stream.
    pub fn awaits_pieces(&self) -> bool {
        self.socket.end().awaits_pieces()
    }

    /// Receives into the spare capacity of `buffer`.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> usize {
        let received = self.socket.counted(|end| end.receive(buffer));
        self.local.shared.stats.bytes_in.add(received as u64);
        received
    }

    /// Ready when some of `bytes` have been taken; how many.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, RingError>> {
        self.stop_waiting();
        let sent = self.socket.send(bytes, &[]);
        self.socket.check()?;
        if sent > 0 {
            return Poll::Ready(Ok(sent));
        }
        self.touch();
        self.wait(cx, WRITE)
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        if let News::Watched { watch, io_key } = &self.news {
            self.local.rings.forget(watch);
            if let ServerFabric::Shared(fabric) = self.socket.end().fabric() {
                // The client has the same descriptor: closing it here is not its end. It fails for none.
                let _ = self.local.epoll.remove(fabric.bell().as_fd());
            }
            self.local.unwatch(*io_key);
        }
        self.counts().sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
