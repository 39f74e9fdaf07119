//! Sends replies that become ready together in one system call.
//!
//! A separate send wakes its client at once. The client takes the core, sends one more request, and returns the
//! core for the next reply. So the replies of a tick are collected here: replies to requests that arrived together,
//! and replies that one commit released. At the end of the tick they are sent in one system call; then their
//! sessions continue.
//!
//! No reply is delayed for long. The outbox is sent when later work has taken as long as a reply may be delayed,
//! and before a task is polled whose last poll took that long. So a reply is delayed by at most that time plus one
//! poll of a task that was short before.
//!
//! The outbox owns a reply's memory from [`Outbox::post`] until the session takes it back from the [`Slot`]. A
//! session that ends in between leaves the memory here.

use super::sys::SendRing;
use crate::stream::socket::StreamSocket;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// The place for a sent reply's memory, with the number of bytes sent.
#[derive(Default)]
pub(crate) struct Slot(RefCell<Option<(Vec<u8>, io::Result<usize>)>>);

impl Slot {
    /// The result of the send; `None`: it was not tried yet.
    pub fn take(&self) -> Option<(Vec<u8>, io::Result<usize>)> {
        self.0.borrow_mut().take()
    }
}

/// A reply to be sent.
struct Parcel {
    socket: Arc<StreamSocket>,
    memory: Vec<u8>,
    start: usize,
    slot: Rc<Slot>,
    waker: Waker,
}

impl Parcel {
    fn unsent(&self) -> &[u8] {
        self.memory.get(self.start..).unwrap_or_default()
    }

    fn finish(self, sent: io::Result<usize>) {
        *self.slot.0.borrow_mut() = Some((self.memory, sent));
        self.waker.wake();
    }
}

enum Ring {
    NotYet,
    Open(Box<SendRing>),
    /// The kernel won't have it, or it has failed.
    Not,
}

pub(crate) struct Outbox {
    parcels: RefCell<Vec<Parcel>>,
    ring: RefCell<Ring>,
    /// Maximum delay of replies; 0: none are collected.
    held_max_ns: Cell<u64>,
    /// When the first of the current replies was posted, and the last read of the clock; 0: no replies.
    held_since_ns: Cell<u64>,
    looked_ns: Cell<u64>,
    /// Whether replies have left in this tick.
    has_sent: Cell<bool>,
}

impl Outbox {
    /// Closed, until it is opened.
    pub fn new() -> Self {
        Outbox {
            parcels: RefCell::default(),
            ring: RefCell::new(Ring::NotYet),
            held_max_ns: Cell::new(0),
            held_since_ns: Cell::new(0),
            looked_ns: Cell::new(0),
            has_sent: Cell::new(false),
        }
    }

    /// Takes replies from now on, to hold them back so long, if the kernel lets several be sent at once.
    pub fn open(&self, held_max_ns: u64) {
        self.held_max_ns.set(held_max_ns);
    }

    /// Whether replies may be posted.
    pub fn is_open(&self) -> bool {
        self.held_max_ns.get() > 0
    }

    /// Whether a reply lies here.
    pub fn has_some(&self) -> bool {
        !self.parcels.borrow().is_empty()
    }

    /// Takes a reply that is to be sent from `start` on. When it was tried, `slot` has it and the task is
    /// woken.
    pub fn post(
        &self,
        socket: &Arc<StreamSocket>,
        (memory, start): (Vec<u8>, usize),
        slot: &Rc<Slot>,
        waker: &Waker,
    ) {
        let (socket, slot) = (Arc::clone(socket), Rc::clone(slot));
        let parcel = Parcel { socket, memory, start, slot, waker: waker.clone() };
        self.parcels.borrow_mut().push(parcel);
    }

    /// The last read of the clock; 0: no replies are waiting.
    pub fn looked_ns(&self) -> u64 {
        self.looked_ns.get()
    }

    /// After each poll with waiting replies: sends them if their time is over. Returns the delay.
    pub fn note_time(&self, now_ns: u64) -> u64 {
        let held_max_ns = self.held_max_ns.get();
        if self.has_some() {
            if self.held_since_ns.get() == 0 {
                self.held_since_ns.set(now_ns);
            }
            self.looked_ns.set(now_ns);
            if now_ns.saturating_sub(self.held_since_ns.get()) > held_max_ns {
                self.flush();
            }
        }
        held_max_ns
    }

    /// Sends the rest. Whether any replies were sent in this tick.
    pub fn end_tick(&self) -> bool {
        self.flush();
        self.has_sent.take()
    }

    /// Sends all that lies here.
    pub fn flush(&self) {
        self.held_since_ns.set(0);
        self.looked_ns.set(0);
        let mut parcels = self.parcels.borrow_mut();
        let mut results = Vec::new();
        if parcels.len() > 1 {
            self.send_together(&parcels, &mut results);
        }
        let mut results = results.into_iter();
        for parcel in parcels.drain(..) {
            self.has_sent.set(true);
            let sent = match results.next() {
                Some(result) => parcel.socket.note_sent(result),
                None => parcel.socket.send(parcel.unsent()),
            };
            parcel.finish(sent);
        }
    }

    /// A send that was not tried returns `Interrupted`; so does every send without io_uring.
    fn send_together(&self, parcels: &[Parcel], results: &mut Vec<io::Result<usize>>) {
        let mut ring = self.ring.borrow_mut();
        if let Ring::NotYet = *ring {
            *ring = SendRing::new().map_or(Ring::Not, |ring| Ring::Open(Box::new(ring)));
        }
        if let Ring::Open(open) = &mut *ring {
            parcels.iter().for_each(|parcel| parcel.socket.note_send_together());
            let sends: Vec<_> = parcels.iter().map(|p| (p.socket.fd(), p.unsent())).collect();
            if open.send_all(&sends, results).is_err() {
                *ring = Ring::Not;
            }
        }
        if let Ring::Not = *ring {
            self.held_max_ns.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::shared::WorkerShared;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn without_io_uring_replies_go_one_by_one_and_no_more_are_taken() {
        let outbox = Outbox::new();
        outbox.open(u64::MAX);
        *outbox.ring.borrow_mut() = Ring::Not;
        let worker = Arc::new(WorkerShared::new(0).unwrap());
        let mut peers = Vec::new();
        for n in 0..3u8 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let socket = Arc::new(StreamSocket::new(ours.into(), Arc::clone(&worker)));
            let slot = Rc::new(Slot::default());
            outbox.post(&socket, (vec![8, n, n], 1), &slot, Waker::noop());
            peers.push((slot, theirs));
        }
        assert!(outbox.end_tick());
        assert!(!outbox.is_open());
        for (n, (slot, mut peer)) in peers.into_iter().enumerate() {
            let (memory, sent) = slot.take().unwrap();
            assert_eq!((memory, sent.unwrap()), (vec![8, n as u8, n as u8], 2));
            let mut received = Vec::new();
            peer.read_to_end(&mut received).unwrap();
            assert_eq!(received, [n as u8; 2]);
        }
    }
}
