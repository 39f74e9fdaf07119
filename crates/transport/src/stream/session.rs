//! A session over a byte stream: the socket of a TCP or a Unix domain connection.
//!
//! Receiving: an idle session owns no buffer. When there is data to read, it takes a pooled buffer. Whole messages
//! are leased from there, several in a row if they came in one read. Only a message that is incomplete when the
//! socket is empty moves into memory of its own. That memory grows with the bytes received, never with the length
//! that the peer claims.
//!
//! A read that returns less than requested has emptied the socket, so no second read is needed: epoll reports later
//! arrivals (edge-triggered).

use super::channel::Channel;
use super::crossing::Crossing;
use super::inbox::Inbox;
use super::preamble::Stranger;
use super::socket::StreamSocket;
use crate::contract::{Departure, Lease, Session, SessionEnd, SessionInfo};
use crate::executor::io::{IoSource, READ, WRITE};
use crate::executor::local::Local;
use crate::executor::outbox::Slot;
use crate::executor::slab::Key;
use crate::liveness::Liveness;
use crate::reply::ReplyBuf;
use crate::ring::RingError;
use crate::shared_memory::sys::send_with_descriptors;
use crate::sys::{SIGN_OF_LIFE, incoming_core, monotonic_ns, peek, set_tcp_options};
use crate::upgrade::{FastTransport, Offer};
use kauri_base::limits::MESSAGE_BYTES_MAX;
use kauri_base::log::{self, Attr};
use kauri_wire::{HEADER_BYTES, checked_length, claimed_length};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Requests at most this long move out of a pooled buffer when those run short.
const MOVED_BYTES_MAX: usize = 16 * 1024;
/// Replies longer than this are not worth waiting for others.
const POSTED_BYTES_MAX: usize = 16 * 1024;
/// Nor is any if fewer sessions than these have something to do.
const COMPANY_MIN: usize = 2;

pub(crate) struct StreamSession<C: Channel = StreamSocket> {
    info: Arc<SessionInfo>,
    pub(super) liveness: Arc<Liveness>,
    pub(super) channel: Arc<C>,
    pub(super) local: Rc<Local>,
    pub(super) io: Rc<IoSource>,
    io_key: Key,
    pub(super) inbox: Inbox,
    /// When reading of the message that the inbox begins with began; 0: not yet, or it came along.
    first_byte_ns: u64,
    /// And when the worker had learned that there was something to read. Later events bring the rest.
    learned_ns: u64,
    /// The ring, once the client was offered one.
    pub(super) crossing: Option<Crossing>,
    /// The place to which a reply in the outbox returns, if there is one.
    slot: Option<Rc<Slot>>,
    posted: bool,
    /// Whether the channel was open when both directions were last waited for.
    pub(super) was_open: bool,
}

/// Whether the same may be tried again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The source of received bytes.
enum Way {
    Stream,
    Ring,
}

impl StreamSession {
    /// A session over the bare socket.
    pub fn open(
        fd: OwnedFd,
        local: &Rc<Local>,
        info: Arc<SessionInfo>,
        liveness: Arc<Liveness>,
    ) -> io::Result<Self> {
        Self::over(fd, (), local, info, liveness)
    }
}

impl<C: Channel> StreamSession<C> {
    /// A session over a channel.
    pub fn over(
        fd: OwnedFd,
        state: C::State,
        local: &Rc<Local>,
        info: Arc<SessionInfo>,
        liveness: Arc<Liveness>,
    ) -> io::Result<Self> {
        let channel = Arc::new(C::open(fd, state, Arc::clone(&local.shared)));
        if C::plain(&channel).is_none() {
            info.upgrade.keep_to_stream();
        }
        let io = Rc::new(IoSource::new(Arc::clone(&liveness)));
        let io_key = local.watch(channel.fd(), Rc::clone(&io))?;
        Ok(StreamSession {
            info,
            liveness,
            channel,
            local: Rc::clone(local),
            io,
            io_key,
            inbox: Inbox::default(),
            first_byte_ns: 0,
            learned_ns: 0,
            crossing: None,
            slot: None,
            posted: false,
            was_open: false,
        })
    }

    /// Puts a short reply into the outbox, if others are there or are likely to follow. Whether it did.
    fn post(&mut self, cx: &Context<'_>, reply: &mut ReplyBuf) -> bool {
        let Some(socket) = C::plain(&self.channel) else { return false };
        let outbox = &self.local.outbox;
        let fits = reply.goes_together() && reply.unsent().len() <= POSTED_BYTES_MAX;
        let company = outbox.has_some() || self.local.runnable() >= COMPANY_MIN;
        let plain = self.crossing.is_none() && !self.info.upgrade.is_prepared();
        if !fits || !company || !plain || !outbox.is_open() {
            return false;
        }
        let slot = self.slot.get_or_insert_default();
        outbox.post(socket, reply.lend(), slot, cx.waker());
        self.posted = true;
        true
    }

    /// The result of the reply in the outbox: its memory is back in `reply`.
    fn poll_posted(&mut self, reply: &mut ReplyBuf) -> Poll<io::Result<usize>> {
        match self.slot.as_ref().and_then(|slot| slot.take()) {
            Some((memory, sent)) => {
                self.posted = false;
                reply.restore(memory);
                Poll::Ready(sent)
            }
            None => Poll::Pending,
        }
    }

    /// Notes what a send of `wanted` bytes came to. False: the connection is broken.
    fn note_sent(&self, wanted: usize, sent: io::Result<usize>, reply: &mut ReplyBuf) -> bool {
        match sent {
            Ok(count) => {
                reply.note_sent(count);
                if count < wanted || self.channel.keeps() {
                    self.io.exhausted(WRITE);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.io.exhausted(WRITE),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
        true
    }

    /// Ready when there is something to receive, or the end of it.
    fn poll_way(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<Result<Way, SessionEnd>> {
        let Some(crossing) = &self.crossing else { return self.poll_stream(cx) };
        match crossing.poll_readable(cx, wanted) {
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(Way::Ring)),
            Poll::Ready(Err(error)) => return self.without_ring(cx, wanted, error),
            Poll::Pending => {}
        }
        if self.io.poll_ready(cx, READ).is_pending() {
            return Poll::Pending;
        }
        // What was said through the ring before is still to be read.
        match crossing.look_to_the_end() {
            Ok(true) => return Poll::Ready(Ok(Way::Ring)),
            // The next completion wakes the session.
            Ok(false) if crossing.awaits_pieces() => return Poll::Pending,
            Ok(false) => {}
            Err(error) => return self.without_ring(cx, wanted, error),
        }
        match peek(self.channel.fd()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.io.exhausted(READ);
                self.poll_way(cx, wanted)
            }
            _ if !crossing.is_used() => {
                // The client goes on here, or has gone.
                self.crossing = None;
                self.info.upgrade.withdraw();
                Poll::Ready(Ok(Way::Stream))
            }
            Ok(1..) => {
                self.log_malformed("bytes on the stream of a session that has left it");
                Poll::Ready(Err(SessionEnd::Malformed))
            }
            Ok(0) | Err(_) => Poll::Ready(Err(SessionEnd::PeerClosed)),
        }
    }

    /// The same without a ring.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Way, SessionEnd>> {
        let mut events = READ;
        // The peer may wait for what the channel keeps before it sends more.
        if self.channel.keeps() {
            if self.io.is_ready(WRITE) && self.flush().is_err() {
                return Poll::Ready(Err(SessionEnd::PeerClosed));
            }
            if self.channel.keeps() {
                events |= WRITE;
            }
        }
        self.io.poll_ready(cx, events).map(|()| Ok(Way::Stream))
    }

    /// Sends what the channel keeps, as far as that goes now.
    fn flush(&self) -> io::Result<()> {
        let sent = self.channel.send(&[]);
        if self.channel.keeps() {
            self.io.exhausted(WRITE);
        }
        match sent {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// A ring that fails before its client has used it leaves the session on its stream.
    fn without_ring(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        error: RingError,
    ) -> Poll<Result<Way, SessionEnd>> {
        let end = self.end_by(error);
        let used = self.crossing.as_ref().is_none_or(Crossing::is_used);
        if used || !matches!(error, RingError::Fabric(_)) {
            return Poll::Ready(Err(end));
        }
        self.crossing = None;
        self.info.upgrade.withdraw();
        self.poll_way(cx, wanted)
    }

    /// The session ends by its ring.
    fn end_by(&self, error: RingError) -> SessionEnd {
        let RingError::Fabric(why) = error else {
            self.log_malformed(&error.to_string());
            return SessionEnd::Malformed;
        };
        if self.liveness.is_peer_closed() {
            // What it did not wait for has nowhere to go.
            return SessionEnd::PeerClosed;
        }
        if let Some(crossing) = &self.crossing {
            crossing.note_failed();
        }
        let attr = Attr::new()
            .str("error", why)
            .str("remote", &self.info.remote)
            .num("connectionId", self.info.id);
        log::warning("NETWORK", 7_100_022, &self.ctx(), "RDMA session failed", attr);
        SessionEnd::PeerClosed
    }

    fn log_malformed(&self, error: &str) {
        let attr = Attr::new()
            .str("error", error)
            .str("remote", &self.info.remote)
            .num("connectionId", self.info.id);
        let msg = "Error receiving request from client. Ending connection from remote";
        log::info("NETWORK", 22_988, &self.ctx(), msg, attr);
    }

    /// Receives through the ring. There is something.
    fn receive_from_ring(&mut self, needed: usize) {
        let Some(crossing) = &self.crossing else { return };
        self.inbox.make_room(needed, &self.local);
        crossing.receive(&mut self.inbox.bytes);
    }

    /// Sends the reply that offers another transport, with its descriptors. After a failure the session continues
    /// unchanged.
    fn send_offer(&mut self, mut offer: Box<Offer>, reply: &[u8]) -> io::Result<usize> {
        let Some(socket) = C::plain(&self.channel) else { return self.channel.send(reply) };
        if self.inbox.unread().len() > claimed_length(self.inbox.unread()).unwrap_or(0) as usize {
            // Something is in flight behind the request: it would be torn between the two ways.
            self.info.upgrade.withdraw();
            return socket.send(reply);
        }
        if offer.transport == FastTransport::Rdma {
            // Nothing else tells of a peer whose host has gone.
            let _ = set_tcp_options(socket.fd(), &SIGN_OF_LIFE);
        }
        let descriptors = std::mem::take(&mut offer.descriptors);
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let stats = &self.info.upgrade.stats;
        let sent =
            Crossing::open(*offer, &self.local, &self.liveness, stats).and_then(|crossing| {
                let sent = match descriptors.is_empty() {
                    true => socket.send(reply)?,
                    false => send_with_descriptors(socket.fd(), reply, &descriptors)?,
                };
                self.crossing = Some(crossing);
                Ok(sent)
            });
        sent.or_else(|_| {
            self.info.upgrade.withdraw();
            socket.send(reply)
        })
    }

    /// The length of the message that the inbox begins with, as far as it is known.
    fn message_length(&self) -> Result<Option<usize>, SessionEnd> {
        let unread = self.inbox.unread();
        let Some(claimed) = claimed_length(unread) else { return Ok(None) };
        let length = checked_length(claimed);
        if length.is_some_and(|length| length <= unread.len()) {
            return Ok(length);
        }
        let stranger = if C::IS_OUTGOING { None } else { Stranger::recognise(unread) };
        match stranger {
            Some(stranger) => self.turn_away(stranger),
            None if length.is_some() => return Ok(length),
            None => self.log_bad_length(claimed),
        }
        Err(SessionEnd::Malformed)
    }

    fn turn_away(&self, stranger: Stranger) {
        // What the client does not take of these few bytes it does not get.
        let _ = self.channel.send(stranger.response().as_bytes());
        let attr = Attr::new()
            .str("error", stranger.error())
            .str("remote", &self.info.remote)
            .num("connectionId", self.info.id);
        let msg = "Error receiving request from client. Ending connection from remote";
        log::info("NETWORK", 22_988, &self.ctx(), msg, attr);
    }

    fn log_bad_length(&self, claimed: i32) {
        let attr = Attr::new()
            .num("msgLen", claimed)
            .num("min", HEADER_BYTES)
            .num("max", MESSAGE_BYTES_MAX)
            .str("remote", &self.info.remote)
            .num("connectionId", self.info.id);
        log::info("NETWORK", 4_615_638, &self.ctx(), "recv(): message mstLen is invalid.", attr);
    }

    fn log_slow(&self, length: usize) {
        let attr = Attr::new()
            .num("msgLen", length)
            .num("received", self.inbox.unread().len())
            .str("remote", &self.info.remote)
            .num("connectionId", self.info.id);
        let msg = "Client sends a large message too slowly while other clients wait for memory. Ending connection";
        log::info("NETWORK", 7_100_009, &self.ctx(), msg, attr);
    }

    fn ctx(&self) -> String {
        format!("conn{}", self.info.id)
    }

    /// One read into the inbox. Ok(0) is the end of the stream.
    fn receive(&mut self, needed: usize) -> io::Result<usize> {
        self.inbox.make_room(needed, &self.local);
        let room = self.inbox.bytes.capacity() - self.inbox.bytes.len();
        let received = self.channel.receive(&mut self.inbox.bytes);
        match &received {
            Ok(count) if !self.channel.is_drained(*count, room) => {}
            _ => self.io.exhausted(READ),
        }
        received
    }

    /// When the worker learned of what came last.
    fn newest_event_ns(&self) -> u64 {
        match &self.crossing {
            Some(crossing) if crossing.is_used() => crossing.ready_ns(),
            _ => self.io.ready_ns(),
        }
    }

    fn lend(&mut self, length: usize) -> Lease {
        let last_byte_ns = monotonic_ns();
        // Zero: it came whole with the message before it.
        let first_byte_ns = if self.first_byte_ns == 0 { last_byte_ns } else { self.first_byte_ns };
        let ready_ns = if self.first_byte_ns == 0 { last_byte_ns } else { self.learned_ns };
        self.first_byte_ns = 0;
        if self.inbox.pooled && length <= MOVED_BYTES_MAX && self.local.pool.crowded() {
            self.inbox.move_out(self.inbox.unread().len(), &self.local);
        }
        let range = self.inbox.start..self.inbox.start + length;
        Lease { range, ready_ns: ready_ns.min(first_byte_ns), first_byte_ns, last_byte_ns }
    }
}

impl<C: Channel> Session for StreamSession<C> {
    fn info(&self) -> &Arc<SessionInfo> {
        &self.info
    }

    fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease, SessionEnd>> {
        loop {
            let known = match self.message_length() {
                Ok(known) => known,
                Err(end) => return Poll::Ready(Err(end)),
            };
            if let Some(length) = known
                && self.inbox.unread().len() >= length
            {
                return Poll::Ready(Ok(self.lend(length)));
            }
            if self.liveness.is_draining() {
                return Poll::Ready(Err(SessionEnd::Cancelled));
            }
            let needed = known.unwrap_or(HEADER_BYTES);
            if self.inbox.poll_room(needed, cx.waker(), &self.local).is_pending() {
                // A client that goes wakes the session, too.
                let _ = self.io.poll_ready(cx, READ);
                return match self.liveness.is_peer_closed() {
                    true => Poll::Ready(Err(SessionEnd::PeerClosed)),
                    false => Poll::Pending,
                };
            }
            let wanted = needed.saturating_sub(self.inbox.unread().len());
            let way = match self.poll_way(cx, wanted) {
                Poll::Ready(Ok(way)) => way,
                Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
                Poll::Pending => {
                    if self.inbox.is_empty() {
                        self.inbox.release(&self.local);
                    } else if self.inbox.pooled {
                        self.inbox.move_out(needed, &self.local);
                    }
                    if self.inbox.poll_slow(cx, &self.local) {
                        self.log_slow(needed);
                        return Poll::Ready(Err(SessionEnd::Malformed));
                    }
                    return Poll::Pending;
                }
            };
            if self.first_byte_ns == 0 {
                self.first_byte_ns = monotonic_ns();
                self.learned_ns = self.newest_event_ns();
            }
            if let Way::Ring = way {
                self.receive_from_ring(needed);
                continue;
            }
            match self.receive(needed) {
                Ok(0) => return Poll::Ready(Err(SessionEnd::PeerClosed)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.inbox.is_empty() {
                        self.first_byte_ns = 0;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Poll::Ready(Err(SessionEnd::PeerClosed)),
            }
        }
    }

    fn request(&self, lease: &Lease) -> &[u8] {
        self.inbox.bytes.get(lease.range.clone()).unwrap_or_default()
    }

    fn release(&mut self, lease: Lease) {
        self.inbox.start = lease.range.end;
        self.inbox.end_message();
        if self.inbox.is_empty() {
            self.inbox.release(&self.local);
        }
    }

    fn reply_buf(&mut self, size_hint: usize) -> ReplyBuf {
        let early = match &self.crossing {
            Some(crossing) if crossing.is_switched() => crossing.early(),
            _ => Arc::clone(&self.channel) as Arc<dyn crate::reply::SendNow>,
        };
        ReplyBuf::new(self.local.pool.take_reply(size_hint), Some(early))
    }

    fn poll_sink(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut ReplyBuf,
    ) -> Poll<Result<(), SessionEnd>> {
        if self.posted {
            if self.liveness.is_dropped() {
                return Poll::Ready(Err(SessionEnd::Cancelled));
            }
            let sent = ready!(self.poll_posted(reply));
            if !self.note_sent(reply.unsent().len(), sent, reply) {
                return Poll::Ready(Err(SessionEnd::PeerClosed));
            }
        } else if !reply.is_whole() {
            return Poll::Ready(Err(SessionEnd::ReplyLength));
        } else if !self.channel.is_open() {
            // What completes the handshake is received.
            return Poll::Pending;
        } else if self.io.is_ready(WRITE) && self.post(cx, reply) {
            return Poll::Pending;
        }
        while !reply.unsent().is_empty()
            || self.channel.keeps()
            || self.crossing.as_ref().is_some_and(Crossing::keeps)
        {
            if self.liveness.is_dropped() {
                return Poll::Ready(Err(SessionEnd::Cancelled));
            }
            if let Some(crossing) = self.crossing.as_ref().filter(|c| c.is_switched()) {
                if self.liveness.is_peer_closed() {
                    return Poll::Ready(Err(SessionEnd::PeerClosed));
                }
                match crossing.poll_send(cx, reply.unsent()) {
                    Poll::Ready(Ok(count)) => reply.note_sent(count),
                    Poll::Ready(Err(v)) => return Poll::Ready(Err(self.end_by(v))),
                    Poll::Pending => return Poll::Pending,
                }
                continue;
            }
            if self.io.poll_ready(cx, WRITE).is_pending() {
                return Poll::Pending;
            }
            let wanted = reply.unsent().len();
            let sent = match self.info.upgrade.take() {
                Some(offer) => self.send_offer(offer, reply.unsent()),
                None => self.channel.send(reply.unsent()),
            };
            if !self.note_sent(wanted, sent, reply) {
                return Poll::Ready(Err(SessionEnd::PeerClosed));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn recycle(&mut self, reply: ReplyBuf) {
        if self.info.upgrade.take().is_some() {
            // Its answer was not sent.
            self.info.upgrade.withdraw();
        }
        self.local.pool.give_reply(reply.into_memory());
    }

    fn arrives_on(&self) -> Option<usize> {
        let plain = self.crossing.is_none();
        if plain { incoming_core(self.channel.fd()) } else { None }
    }

    fn depart(&mut self) -> Option<Departure> {
        let plain = self.crossing.is_none() && !self.info.upgrade.is_prepared();
        let ending = self.liveness.is_peer_closed() || self.liveness.is_draining();
        if !plain || ending || self.posted || !self.inbox.is_empty() {
            return None;
        }
        if self.channel.keeps() {
            return None;
        }
        let fd = self.channel.fd().try_clone_to_owned().ok()?;
        self.local.epoll.remove(self.channel.fd()).ok()?;
        let state = self.channel.take_state();
        let (info, liveness) = (Arc::clone(&self.info), Arc::clone(&self.liveness));
        Some(Departure(Box::new(move |local| {
            let session = StreamSession::<C>::over(fd, state, local, info, liveness)?;
            Ok(Box::new(session) as Box<dyn Session>)
        })))
    }

    fn close(&mut self) {
        match (&mut self.crossing, C::plain(&self.channel)) {
            (Some(crossing), Some(socket)) if !self.liveness.is_peer_closed() => {
                crossing.close(socket);
            }
            _ => self.channel.shutdown(),
        }
    }
}

impl<C: Channel> Drop for StreamSession<C> {
    fn drop(&mut self) {
        self.inbox.release(&self.local);
        self.local.unwatch(self.io_key);
    }
}

#[cfg(test)]
mod tests;
