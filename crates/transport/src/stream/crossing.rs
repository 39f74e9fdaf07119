//! The ring of a session that has left its byte stream, or has been offered to.
//!
//! ```text
//! Offered -> Switched     the client's probe came and was answered
//! Offered, Switched -> (stream again)   the client goes on with the stream, having sent nothing here
//! ```

use crate::executor::io::{IoSource, READ, WRITE};
use crate::executor::local::Local;
use crate::executor::rings::{Polled, RingWatch};
use crate::executor::shared::WorkerShared;
use crate::executor::slab::Key;
use crate::liveness::Liveness;
use crate::reply::SendNow;
use crate::ring::{PROBE_BYTES, Violation};
use crate::shared_memory::{Offer, SharedEnd};
use crate::upgrade::UpgradeStats;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// The server's end of a ring, for its session and for replies that leave early.
pub(crate) struct RingSocket {
    end: Mutex<SharedEnd>,
    /// The peer has broken the rules. Kept for whoever looks next.
    violation: Mutex<Option<Violation>>,
    broken: AtomicBool,
    worker: Arc<WorkerShared>,
}

impl RingSocket {
    fn end(&self) -> MutexGuard<'_, SharedEnd> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what `work` moves through the ring.
    fn counted<R>(&self, work: impl FnOnce(&mut SharedEnd) -> R) -> R {
        let mut end = self.end();
        let before = end.counts();
        let result = work(&mut end);
        let after = end.counts();
        let stats = &self.worker.stats;
        stats.ring_frames_in.add(after.frames_in - before.frames_in);
        stats.ring_frames_out.add(after.frames_out - before.frames_out);
        stats.ring_credits_in.add(after.credits_in - before.credits_in);
        stats.ring_credits_out.add(after.credits_out - before.credits_out);
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
            if let Err(violation) = end.look() {
                self.note(violation);
                return sent;
            }
            let of_second = sent.saturating_sub(first.len());
            let rest = (first.get(sent..).unwrap_or_default(), second.get(of_second..));
            sent + end.send(rest.0, rest.1.unwrap_or_default())
        });
        self.worker.stats.bytes_out.add(sent as u64);
        sent
    }

    fn note(&self, violation: Violation) {
        *self.violation.lock().unwrap_or_else(PoisonError::into_inner) = Some(violation);
        self.broken.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), Violation> {
        if !self.broken.load(Ordering::Relaxed) {
            return Ok(());
        }
        let violation = *self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        violation.map_or(Ok(()), Err)
    }
}

impl SendNow for RingSocket {
    fn send_now(&self, first: &[u8], second: &[u8]) -> usize {
        self.send(first, second)
    }
}

struct Arrivals(Arc<RingSocket>);

impl Polled for Arrivals {
    fn has_arrivals(&self) -> bool {
        self.0.end().fabric().has_immediate()
    }

    fn fall_asleep(&self) -> bool {
        self.0.end().fabric().fall_asleep()
    }

    fn is_asleep(&self) -> bool {
        self.0.end().fabric().is_asleep()
    }
}

/// See the module's head. It belongs to one session.
pub(crate) struct Crossing {
    socket: Arc<RingSocket>,
    watch: Rc<RingWatch>,
    io_key: Key,
    local: Rc<Local>,
    probe: [u8; PROBE_BYTES as usize],
    switched: Cell<bool>,
    /// Whether bytes of the stream have come through the ring: there is no way back.
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
        let io = Rc::new(IoSource::new(Arc::clone(liveness)));
        let Offer { mut end, probe, .. } = offer;
        let io_key = local.watch(end.fabric().bell().as_fd(), Rc::clone(&io))?;
        let socket = Arc::new(RingSocket {
            end: Mutex::new(end),
            violation: Mutex::default(),
            broken: AtomicBool::new(false),
            worker: Arc::clone(&local.shared),
        });
        stats.sessions.fetch_add(1, Ordering::Relaxed);
        Ok(Crossing {
            watch: RingWatch::new(Rc::new(Arrivals(Arc::clone(&socket))), io),
            socket,
            io_key,
            local: Rc::clone(local),
            probe,
            switched: Cell::new(false),
            used: Cell::new(false),
            stats: Arc::clone(stats),
        })
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
        self.watch.io.ready_ns()
    }

    /// Ready when there are bytes of the stream here.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<Result<(), Violation>> {
        self.local.rings.touch(&self.watch);
        if self.look()? {
            return Poll::Ready(Ok(()));
        }
        self.wait(cx, READ)
    }

    /// What comes after the last look is noticed by the worker.
    fn wait<R>(&self, cx: &mut Context<'_>, wanted: u8) -> Poll<R> {
        self.watch.io.exhausted(READ | WRITE);
        let _pending = self.watch.io.poll_ready(cx, wanted);
        Poll::Pending
    }

    /// Takes note of what has come. Whether there are bytes of the stream.
    pub fn look(&self) -> Result<bool, Violation> {
        self.watch.io.stop_waiting();
        self.socket.check()?;
        let event = self.socket.counted(SharedEnd::look)?;
        if let Some(probe) = event.probe {
            if self.switched.get() || probe != self.probe {
                return Err(Violation::Probe);
            }
            self.socket.end().probe(probe);
            self.switched.set(true);
            self.stats.switched.fetch_add(1, Ordering::Relaxed);
        }
        if event.readable && !self.switched.get() {
            return Err(Violation::Probe);
        }
        self.used.set(self.used.get() || event.readable);
        Ok(event.readable)
    }

    /// Receives into the spare capacity of `buffer`.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> usize {
        let received = self.socket.counted(|end| end.receive(buffer));
        self.local.shared.stats.bytes_in.add(received as u64);
        received
    }

    /// Ready when some of `bytes` have been taken; how many.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Violation>> {
        self.watch.io.stop_waiting();
        let sent = self.socket.send(bytes, &[]);
        self.socket.check()?;
        if sent > 0 {
            return Poll::Ready(Ok(sent));
        }
        self.local.rings.touch(&self.watch);
        self.wait(cx, WRITE)
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        self.local.rings.forget(&self.watch);
        // The client has the same descriptor: closing it here is not its end. It fails for none.
        let _ = self.local.epoll.remove(self.socket.end().fabric().bell().as_fd());
        self.local.unwatch(self.io_key);
        self.stats.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}
