//! The ring of a session that has left its byte stream, or has an offer to leave it.
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
use crate::ring::{PROBE_BYTES, RingCounts, RingError};
use crate::shared_memory::SharedFabric;
use crate::shared_memory::bell::Bell;
use crate::stream::socket::StreamSocket;
use crate::sys::{monotonic_ns, peek};
use crate::upgrade::{FastTransport, Offer, ServerEnd, ServerFabric, UpgradeCounts, UpgradeStats};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Maximum time that the rest of a session waits for its peer: devices give up sooner.
const LINGER_NS_MAX: u64 = 10_000_000_000;

/// The server's end of a ring, for its session and for replies that leave early.
pub(crate) struct RingSocket {
    end: Mutex<CountedEnd>,
    transport: FastTransport,
    /// The reason of a failure. Kept for the next check.
    error: Mutex<Option<RingError>>,
    broken: AtomicBool,
    /// Whether there is nothing to do at this end before something comes.
    idle: AtomicBool,
    /// Whether the end has taken something over that is not sent yet.
    keeps: AtomicBool,
    /// Whether a look for one direction may have found something for the other one.
    changed: AtomicBool,
    worker: Arc<WorkerShared>,
}

/// An end, and the part of its traffic that the worker has counted.
struct CountedEnd {
    end: ServerEnd,
    counted: RingCounts,
}

impl RingSocket {
    fn lock(&self) -> MutexGuard<'_, CountedEnd> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the end something that changes nothing.
    fn ask<R>(&self, what: impl FnOnce(&mut ServerEnd) -> R) -> R {
        what(&mut self.lock().end)
    }

    /// Counts what `work` moves through the ring. Whatever changes the end goes this way.
    fn counted<R>(&self, work: impl FnOnce(&mut ServerEnd) -> R) -> R {
        let mut guard = self.lock();
        let result = work(&mut guard.end);
        let (now, before) = (guard.end.counts(), guard.counted);
        if now != before {
            guard.counted = now;
            self.worker.stats.rings(self.transport).add(now, before);
        }
        self.idle.store(guard.end.is_idle(), Ordering::Relaxed);
        self.keeps.store(guard.end.keeps(), Ordering::Relaxed);
        result
    }

    /// Sends as much as there is credit for; with `ahead` the end takes over more, to be sent by later calls.
    fn send(&self, first: &[u8], second: &[u8], ahead: bool) -> usize {
        if self.broken.load(Ordering::Relaxed) {
            return 0;
        }
        let sent = self.counted(|end| {
            let mut sent = end.send(first, second);
            let rest = |sent: usize| {
                let of_second = sent.saturating_sub(first.len());
                [first.get(sent..), second.get(of_second..)].map(Option::unwrap_or_default)
            };
            if sent == first.len() + second.len() && !end.keeps() {
                return sent;
            }
            // There may be credit that we have not heard of.
            let looked = end.look();
            if looked.as_ref().is_ok_and(|event| event.readable) {
                self.changed.store(true, Ordering::Relaxed);
            }
            if let Some(error) = looked.err().or(end.failure().map(RingError::Fabric)) {
                self.note(error);
                return sent;
            }
            let [a, b] = rest(sent);
            sent += end.send(a, b);
            if ahead {
                let [a, b] = rest(sent);
                sent += end.keep(a, b);
            }
            sent
        });
        self.worker.stats.bytes_out.add(sent as u64);
        sent
    }

    /// Whether the peer has all that was sent, or will never have it.
    fn is_flushed(&self) -> bool {
        self.ask(|end| end.fabric().rdma().is_none_or(|fabric| fabric.is_flushed()))
    }

    /// Whether the peer may still have to read from this end's memory.
    fn owns_pieces(&self) -> bool {
        self.ask(|end| matches!(end.fabric(), ServerFabric::Dialed(_)) && end.owns_pieces())
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
        self.send(first, second, true)
    }
}

/// Times that a client falls asleep before it empties its bell: each time rings it once at most.
const SLEEPS_A_RESET: u32 = 32;

/// Shared memory, polled by the worker.
struct Arrivals {
    ring: Arc<RingSocket>,
    sleeps: Cell<u32>,
}

impl Arrivals {
    fn of(&self, ask: impl FnOnce(&SharedFabric) -> bool) -> bool {
        self.ring.ask(|end| match end.fabric() {
            ServerFabric::Shared(fabric) => ask(fabric),
            ServerFabric::Rdma(_) | ServerFabric::Dialed(_) => false,
        })
    }
}

impl Polled for Arrivals {
    fn has_arrivals(&self) -> bool {
        self.of(SharedFabric::has_immediate)
    }

    fn fall_asleep(&self) -> bool {
        self.sleeps.set(self.sleeps.get().wrapping_add(1));
        let resets = self.sleeps.get().is_multiple_of(SLEEPS_A_RESET);
        self.of(|fabric| {
            if resets && let Bell::Socket(_) = fabric.bell() {
                fabric.bell().reset();
            }
            fabric.fall_asleep()
        })
    }

    fn is_asleep(&self) -> bool {
        self.of(SharedFabric::is_asleep)
    }
}

/// The way in which a session learns of arrivals.
enum News {
    /// The worker polls its ring, or its bell rings.
    Watched { watch: Rc<RingWatch>, io_key: Key },
    /// The worker takes its completions.
    Delivered(Arc<Mailbox>),
}

/// The rest of an ended session over RDMA.
struct Lingering {
    ring: Arc<RingSocket>,
    stream: Arc<StreamSocket>,
    _rdma: Option<RdmaMembership>,
    deadline_ns: u64,
}

impl Lingers for Lingering {
    fn is_done(&self, now_ns: u64) -> bool {
        if now_ns >= self.deadline_ns {
            return true;
        }
        if !self.ring.is_flushed() {
            return false;
        }
        if !self.ring.owns_pieces() {
            return true;
        }
        // The peer ends the session when it has read them.
        self.stream.shutdown();
        match peek(self.stream.fd()) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
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
    /// Whether this is the client's end, which probes first.
    is_client: bool,
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
            ServerFabric::Dialed(fabric) => Err(Arc::clone(fabric.base().mailbox())),
        };
        let socket = Arc::new(RingSocket {
            end: Mutex::new(CountedEnd { end, counted: RingCounts::default() }),
            transport,
            error: Mutex::default(),
            broken: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            keeps: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            worker: Arc::clone(&local.shared),
        });
        let news = match bell {
            Ok((io_key, io)) => {
                let ring = Rc::new(Arrivals { ring: Arc::clone(&socket), sleeps: Cell::new(0) });
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
            is_client: false,
            used: Cell::new(false),
            stats: Arc::clone(stats),
        })
    }

    /// The client's end: probes. It has switched when the probe comes back.
    pub fn open_as_client(
        offer: Offer,
        local: &Rc<Local>,
        liveness: &Arc<Liveness>,
        stats: &Arc<UpgradeStats>,
    ) -> io::Result<Self> {
        let mut crossing = Crossing::open(offer, local, liveness, stats)?;
        crossing.is_client = true;
        let probe = crossing.probe;
        crossing.socket.counted(|end| end.probe(probe));
        Ok(crossing)
    }

    /// Keeps no memory that it can do without until something comes.
    pub fn rest(&self) {
        self.socket.ask(|end| {
            if let ServerFabric::Shared(fabric) = end.fabric() {
                fabric.rest();
            }
        });
    }

    /// Whether a look for one direction may have found something for the other one since the last call.
    pub fn take_changed(&self) -> bool {
        self.socket.changed.swap(false, Ordering::Relaxed)
    }

    /// Ends the session: its stream ends after the peer has received everything through the ring, so that the end
    /// does not overtake it.
    pub fn close(&mut self, stream: &Arc<StreamSocket>) {
        self.socket.counted(|end| {
            if let Some(fabric) = end.fabric().rdma() {
                fabric.finish();
            }
        });
        if self.socket.is_flushed() && !self.socket.owns_pieces() {
            return stream.shutdown();
        }
        self.local.completions.linger(Box::new(Lingering {
            ring: Arc::clone(&self.socket),
            stream: Arc::clone(stream),
            _rdma: self.rdma.take(),
            deadline_ns: monotonic_ns() + LINGER_NS_MAX,
        }));
    }

    /// What it goes through.
    pub fn transport(&self) -> FastTransport {
        self.socket.transport
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

    /// Ready when bytes of the stream have arrived, of which `wanted` are needed.
    pub fn poll_readable(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<Result<(), RingError>> {
        self.touch();
        if self.hears_nothing() {
            return self.wait(cx, READ);
        }
        // What nobody waits for is not fetched: it would hold memory that all share.
        let mut failure = None;
        let readable = self.look_and(|end| {
            end.fetch(wanted, cx.waker());
            failure = end.failure();
        })?;
        match failure {
            _ if readable => Poll::Ready(Ok(())),
            Some(why) => Poll::Ready(Err(RingError::Fabric(why))),
            None => self.wait(cx, READ),
        }
    }

    /// Whether there is nothing to do and nothing has arrived, as far as is visible without polling the ring.
    fn hears_nothing(&self) -> bool {
        let idle = self.socket.idle.load(Ordering::Relaxed) && self.socket.check().is_ok();
        match &self.news {
            News::Watched { .. } => false,
            News::Delivered(mailbox) => idle && !mailbox.has_news(),
        }
    }

    fn touch(&self) {
        if let News::Watched { watch, .. } = &self.news {
            self.local.rings.touch(watch);
        }
    }

    /// The worker notices arrivals after the last poll.
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

    /// Processes arrivals. Whether there are bytes of the stream.
    pub fn look(&self) -> Result<bool, RingError> {
        self.look_and(|_| ())
    }

    /// The same, and `then` does something more with the end if it is in order.
    fn look_and(&self, then: impl FnOnce(&mut ServerEnd)) -> Result<bool, RingError> {
        self.stop_waiting();
        self.socket.check()?;
        let event = self.socket.counted(|end| {
            let event = end.look();
            self.used.set(end.counts().frames_in > 0);
            if event.is_ok() {
                then(end);
            }
            event
        })?;
        if event.credit {
            self.socket.changed.store(true, Ordering::Relaxed);
        }
        if let Some(probe) = event.probe {
            if self.switched.get() || probe != self.probe {
                return Err(RingError::Probe);
            }
            // Before the client learns of it, who may ask at once, on another worker.
            self.counts().switched.fetch_add(1, Ordering::Relaxed);
            self.switched.set(true);
            if !self.is_client {
                self.socket.counted(|end| end.probe(probe));
            }
        }
        if event.readable && !self.switched.get() {
            return Err(RingError::Probe);
        }
        Ok(event.readable)
    }

    /// The same after an event on the stream, which may overtake arrivals through the ring.
    pub fn look_to_the_end(&self) -> Result<bool, RingError> {
        if let News::Delivered(_) = &self.news {
            self.local.completions.look_through();
        }
        self.look()
    }

    /// Whether something is still to be fetched that came before the end of the stream.
    pub fn awaits_pieces(&self) -> bool {
        self.socket.ask(|end| end.awaits_pieces())
    }

    /// Receives into the spare capacity of `buffer`.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> usize {
        let received = self.socket.counted(|end| end.receive(buffer));
        self.local.shared.stats.bytes_in.add(received as u64);
        received
    }

    /// Whether something of a reply was taken that is not sent yet.
    pub fn keeps(&self) -> bool {
        self.socket.keeps.load(Ordering::Relaxed)
    }

    /// Ready when some of `bytes` have been taken, how many; without any when all is sent that was taken before.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, RingError>> {
        self.stop_waiting();
        let sent = self.socket.send(bytes, &[], false);
        self.socket.check()?;
        if sent > 0 || (bytes.is_empty() && !self.keeps()) {
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
            self.socket.ask(|end| {
                if let ServerFabric::Shared(fabric) = end.fabric() {
                    // The client has the same descriptor: closing it here is not its end. It fails for none.
                    let _ = self.local.epoll.remove(fabric.bell().as_fd());
                }
            });
            self.local.unwatch(*io_key);
        }
        self.counts().sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
