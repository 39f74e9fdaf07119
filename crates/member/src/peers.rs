//! Links with the other members. The one place that opens any: a [`Dial`] decides how.
//!
//! Each peer has a queue and a task that sends it, in order. Frames' bodies are read from the log when they are sent.
//! What cannot be sent is dropped: consensus repeats what matters.

use crate::entry_log::Body;
use crate::message;
use kauri_bson::{DocWriter, Value};
use kauri_replication::codec::{Envelope, Kind};
use kauri_storage::StorageEngine;
use kauri_transport::WorkerHandle;
use kauri_transport::outgoing::Outgoing;
use kauri_wire::{MsgWriter, flags};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Messages that wait for a peer, at most.
const QUEUED_MAX: usize = 512;
/// Bytes of bodies in a message, if it has several.
const BODIES_BYTES: usize = 4 << 20;
/// How long the other end may take nothing.
const SENDING_MAX: Duration = Duration::from_secs(5);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// A link in the making, or why there is none.
pub type Dialing = Pin<Box<dyn Future<Output = Result<Box<dyn Link>, String>> + Send>>;

/// Whether a message is on its way; otherwise the link is over.
pub type Sending<'l> = Pin<Box<dyn Future<Output = bool> + Send + 'l>>;

/// A way to another member.
pub trait Link: Send + Sync {
    /// Sends a message, after those before it. Waits while too much is unsent.
    fn send(&self, bytes: Vec<u8>) -> Sending<'_>;

    /// Whether it is over.
    fn is_over(&self) -> bool;

    /// Nothing has been heard of the member for some time. Answers whether the link is given up for another: it may be
    /// cut where other ways are not.
    fn note_silence(&self) -> bool {
        false
    }
}

/// Sends a message to a member's server, as a command without a reply.
pub async fn send_by(session: &Outgoing, bytes: &[u8]) -> bool {
    match command(bytes) {
        Ok(command) => session.send(command).await.is_ok(),
        // Longer than a message can be. It is not sent, and the session is as it was.
        Err(_) => true,
    }
}

/// Opens links with other members.
pub trait Dial: Send + Sync {
    /// Begins to open a link with the member at `host` (`host:port`), on this worker.
    fn dial(&self, worker: &WorkerHandle, host: &str) -> Dialing;
}

enum Letter {
    Consensus(Box<Envelope>),
    Other(Vec<u8>),
}

#[derive(Default)]
struct State {
    letters: VecDeque<Letter>,
    waker: Option<Waker>,
    is_closed: bool,
    /// The link is to be given up.
    is_stale: bool,
    /// The same if it may be cut where others are not.
    is_silent: bool,
    /// The last attempt to connect failed, for this reason.
    error: Option<String>,
    /// Links that were lost.
    losses: u64,
}

/// Another member, and the link with it.
pub struct Peer {
    state: Arc<Mutex<State>>,
    /// Its address.
    pub host: String,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Letter {
    /// Whether it says nothing that `next` does not say, which is about to be sent as well.
    fn is_said_by(&self, next: &Letter) -> bool {
        let (Letter::Consensus(this), Letter::Consensus(next)) = (self, next) else { return false };
        let (Some(of), Some(by)) = (&this.message, &next.message) else { return false };
        let tells_commit =
            of.kind == Kind::Append && of.entries.is_empty() && of.context.is_empty();
        tells_commit
            && this.term == next.term
            && (by.kind == Kind::Append && by.index == of.index)
            && by.commit >= of.commit
    }
}

fn post(state: &Mutex<State>, letter: Letter) {
    let mut state = lock(state);
    if state.letters.back().is_some_and(|last| last.is_said_by(&letter)) {
        state.letters.pop_back();
    }
    if state.letters.len() < QUEUED_MAX && !state.is_closed {
        state.letters.push_back(letter);
    }
    let waker = state.waker.take();
    drop(state);
    waker.into_iter().for_each(Waker::wake);
}

/// Sends messages to another member, as long as its [`Peer`] is there.
pub struct Sender(Arc<Mutex<State>>);

impl Sender {
    /// As [`Peer::send_bytes`].
    pub fn send_bytes(&self, bytes: Vec<u8>) {
        post(&self.0, Letter::Other(bytes));
    }
}

impl Peer {
    /// A link of member `own` with the one at `host`, on this worker.
    pub fn open(
        worker: &WorkerHandle,
        dial: Arc<dyn Dial>,
        engine: Arc<dyn StorageEngine>,
        (own, host): (u64, &str),
    ) -> Peer {
        let peer = Peer { state: Arc::default(), host: host.to_owned() };
        let task = Task {
            own,
            state: peer.state.clone(),
            worker: worker.clone(),
            dial,
            engine,
            host: host.to_owned(),
            link: None,
        };
        worker.spawn(task.run());
        peer
    }

    /// Sends a message of consensus, with the bodies of its entries.
    pub fn send(&self, envelope: Envelope) {
        post(&self.state, Letter::Consensus(Box::new(envelope)));
    }

    /// Sends another message.
    pub fn send_bytes(&self, bytes: Vec<u8>) {
        post(&self.state, Letter::Other(bytes));
    }

    /// What sends messages from any thread.
    pub fn sender(&self) -> Sender {
        Sender(self.state.clone())
    }

    /// Nothing is heard of the member: the next message goes by another link.
    pub fn give_link_up(&self) {
        lock(&self.state).is_stale = true;
    }

    /// Nothing is heard of the member, not yet for long: perhaps it can be reached in another way.
    pub fn note_silence(&self) {
        lock(&self.state).is_silent = true;
    }

    /// Why there is no connection, if the last attempt failed.
    pub fn error(&self) -> Option<String> {
        lock(&self.state).error.clone()
    }

    /// Number of links that were lost, and whether the attempt after the last one failed.
    pub fn losses(&self) -> (u64, bool) {
        let state = lock(&self.state);
        (state.losses, state.error.is_some())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

struct Task {
    own: u64,
    state: Arc<Mutex<State>>,
    worker: WorkerHandle,
    dial: Arc<dyn Dial>,
    engine: Arc<dyn StorageEngine>,
    host: String,
    link: Option<Box<dyn Link>>,
}

impl Task {
    async fn run(mut self) {
        while let Some(letter) = self.next().await {
            if !self.connect().await {
                lock(&self.state).letters.clear();
                self.worker.sleep(RETRY).await;
                continue;
            }
            let sent = match letter {
                Letter::Consensus(envelope) => self.send_consensus(*envelope).await,
                Letter::Other(bytes) => self.send(bytes).await,
            };
            if !sent {
                if let Some(link) = self.link.take().filter(|link| !link.is_over()) {
                    link.note_silence();
                }
                lock(&self.state).losses += 1;
            }
        }
    }

    /// The next letter. `None`: the peer is gone from the set.
    async fn next(&mut self) -> Option<Letter> {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            if state.is_closed {
                return Poll::Ready(None);
            }
            match state.letters.pop_front() {
                Some(letter) => Poll::Ready(Some(letter)),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    async fn connect(&mut self) -> bool {
        if let Some(link) = &self.link {
            let (is_stale, is_silent) = {
                let mut state = lock(&self.state);
                (std::mem::take(&mut state.is_stale), std::mem::take(&mut state.is_silent))
            };
            let ends = |link: &dyn Link| (is_stale || is_silent) && link.note_silence();
            if !link.is_over() && !ends(&**link) && !is_stale {
                return true;
            }
            self.link = None;
            lock(&self.state).losses += 1;
        }
        let dialed = self.dial.dial(&self.worker, &self.host).await;
        let mut state = lock(&self.state);
        match dialed {
            Ok(link) => {
                state.error = None;
                // That was said of the link before.
                (state.is_stale, state.is_silent) = (false, false);
                self.link = Some(link);
                true
            }
            Err(why) => {
                state.error = Some(why);
                false
            }
        }
    }

    /// Sends a message, or several if its bodies are many: each is one that a leader might have sent.
    async fn send_consensus(&self, mut envelope: Envelope) -> bool {
        loop {
            let mut bodies: Vec<Body> = Vec::new();
            let mut rest = None;
            if let Some(of) = &mut envelope.message {
                let mut bytes = 0;
                for (position, entry) in of.entries.iter().enumerate() {
                    // Cut off or purged since: consensus will notice.
                    let Some(body) = read_body(&*self.engine, entry.index, entry.term) else {
                        return true;
                    };
                    bytes += message::body_bytes(&body);
                    if position > 0 && bytes > BODIES_BYTES {
                        rest = Some(position);
                        break;
                    }
                    bodies.push(body);
                }
            }
            let mut next = None;
            if let (Some(at), Some(of)) = (rest, &mut envelope.message) {
                let entries = of.entries.split_off(at);
                let mut after = envelope.clone();
                if let (Some(of), Some(message)) = (&envelope.message, &mut after.message)
                    && let Some(last) = of.entries.last()
                {
                    (message.index, message.log_term) = (last.index, last.term);
                    message.entries = entries;
                }
                next = Some(after);
            }
            if !self.send(message::encode_consensus(&envelope, &bodies)).await {
                return false;
            }
            match next {
                Some(after) => envelope = after,
                None => return true,
            }
        }
    }

    async fn send(&self, bytes: Vec<u8>) -> bool {
        let Some(link) = &self.link else { return false };
        for part in message::split(self.own, bytes) {
            let mut sending = link.send(part);
            let mut limit = self.worker.sleep(SENDING_MAX);
            let sent = poll_fn(|cx| match sending.as_mut().poll(cx) {
                Poll::Ready(sent) => Poll::Ready(sent),
                Poll::Pending => Pin::new(&mut limit).poll(cx).map(|()| false),
            });
            if !sent.await {
                return false;
            }
        }
        true
    }
}

fn read_body(engine: &dyn StorageEngine, index: u64, term: u64) -> Option<Body> {
    let body = engine.replicated_log().ok()?.read_frame(index).ok().flatten()?;
    (body.0.position.term == term).then_some(body)
}

/// The message as a command without a reply.
fn command(bytes: &[u8]) -> kauri_base::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() + 80);
    let writer = MsgWriter::begin(&mut out, 0, 0, flags::MORE_TO_COME);
    {
        let mut doc = DocWriter::new(&mut out);
        doc.put("replSetMessage", Value::Binary { subtype: 0, bytes: bytes.into() });
        doc.put("$db", "admin");
    }
    writer.finish(&mut out)?;
    Ok(out)
}
