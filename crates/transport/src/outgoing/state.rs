//! What the handle of an outgoing session and its task share.

use super::handle::OutgoingOptions;
use crate::executor::WorkerHandle;
use crate::rdma::Dialer;
use kauri_wire::Header;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Why a request has no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OutgoingError {
    /// There is no session with the server.
    Unreachable(String),
    /// The session ended before anything of the request was sent. It may be sent again.
    NotSent(String),
    /// The session ended after the request was sent. Whether the server has acted on it is not known.
    Lost(String),
    /// The request's deadline came first.
    TimedOut {
        /// Whether the server may have acted on it.
        sent: bool,
    },
    /// The request is no message.
    Invalid(&'static str),
    /// The server answered what the handshake does not allow.
    Refused(String),
}

impl OutgoingError {
    /// Whether the server may have acted on the request.
    pub fn may_have_acted(&self) -> bool {
        matches!(self, OutgoingError::Lost(_) | OutgoingError::TimedOut { sent: true })
    }
}

impl fmt::Display for OutgoingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutgoingError::Unreachable(why) => write!(f, "cannot connect: {why}"),
            OutgoingError::NotSent(why) | OutgoingError::Lost(why) => {
                write!(f, "connection lost: {why}")
            }
            OutgoingError::TimedOut { .. } => f.write_str("the deadline has passed"),
            OutgoingError::Invalid(why) => write!(f, "the request can't be sent: {why}"),
            OutgoingError::Refused(why) => write!(f, "the handshake failed: {why}"),
        }
    }
}

impl std::error::Error for OutgoingError {}

/// Where a request is.
#[derive(Debug)]
pub(super) enum Slot {
    Queued(Option<Waker>),
    Sent(Option<Waker>),
    Answered(Vec<u8>),
    /// Nobody waits for its reply.
    Abandoned,
}

/// A message that waits to be sent; with an id it is a request that has a slot.
pub(super) struct Unsent {
    pub id: Option<i32>,
    pub bytes: Vec<u8>,
}

/// A place among those that wait. It is left when this is dropped.
pub(super) struct Waiter {
    shared: Arc<Shared>,
    key: Option<u64>,
}

impl Waiter {
    pub fn new(shared: &Arc<Shared>) -> Waiter {
        Waiter { shared: Arc::clone(shared), key: None }
    }

    /// Has this waker woken when something has changed.
    pub fn wait(&mut self, state: &mut State, waker: &Waker) {
        let key = *self.key.get_or_insert_with(|| {
            state.next_waiter += 1;
            state.next_waiter
        });
        state.waiting.insert(key, waker.clone());
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shared.lock().waiting.remove(&key);
        }
    }
}

/// Whom a message that has come concerns.
pub(super) enum Concerned {
    /// Its receiver, if somebody waits.
    One(Option<Waker>),
    /// Those who wait for room.
    Waiting,
}

/// How far the session is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Connecting,
    Open { transport: &'static str, remote: Arc<str> },
    Unreachable(String),
    Ended(String),
}

/// What the handle wants of the task for a change of the transport.
pub(super) enum Change {
    /// The parameters of a request for RDMA by this device.
    Prepare { dialer: Arc<Dialer>, random: u64 },
    /// The change by the server's answer.
    Begin(Vec<u8>),
}

/// A change of the transport that the handle asks the task for.
#[derive(Default)]
pub(super) struct Upgrade {
    pub wanted: Option<Change>,
    /// Parameters, or nothing.
    pub result: Option<Result<Vec<u8>, String>>,
    pub waker: Option<Waker>,
}

pub(super) struct State {
    pub phase: Phase,
    unsent: VecDeque<Unsent>,
    /// Bytes of `unsent`, and of the message that is being sent.
    unsent_bytes: usize,
    in_flight: BTreeMap<i32, Slot>,
    /// Messages for who takes them in order.
    received: VecDeque<Vec<u8>>,
    /// Bytes of answers and messages that nobody has taken.
    untaken_bytes: usize,
    next_id: i32,
    task: Option<Waker>,
    receiver: Option<Waker>,
    /// Requests that wait for room, and whoever waits for the session to be open.
    waiting: BTreeMap<u64, Waker>,
    next_waiter: u64,
    pub upgrade: Upgrade,
    pub when_ended: Option<Box<dyn FnOnce() + Send>>,
    pub closing: bool,
}

pub(super) struct Shared {
    pub worker: WorkerHandle,
    pub options: OutgoingOptions,
    state: Mutex<State>,
}

impl Shared {
    pub fn new(worker: WorkerHandle, options: OutgoingOptions) -> Arc<Shared> {
        let state = State {
            phase: Phase::Connecting,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            in_flight: BTreeMap::new(),
            received: VecDeque::new(),
            untaken_bytes: 0,
            next_id: 0,
            task: None,
            receiver: None,
            waiting: BTreeMap::new(),
            next_waiter: 0,
            upgrade: Upgrade::default(),
            when_ended: None,
            closing: false,
        };
        Arc::new(Shared { worker, options, state: Mutex::new(state) })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle has changed something that the task has to see.
    pub fn call_task(&self, mut state: MutexGuard<'_, State>) {
        let waker = state.task.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Something has changed for whoever waits for room or for the session to be open.
    pub fn call_waiting(&self, mut state: MutexGuard<'_, State>) {
        let wakers = std::mem::take(&mut state.waiting);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }

    /// The session is over: everybody who waits learns.
    pub fn end(&self, phase: Phase) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Ended(_) | Phase::Unreachable(_)) {
            return;
        }
        state.phase = phase;
        state.unsent = VecDeque::new();
        state.unsent_bytes = 0;
        let mut wakers: Vec<_> = std::mem::take(&mut state.waiting).into_values().collect();
        for slot in state.in_flight.values_mut() {
            if let Slot::Queued(waker) | Slot::Sent(waker) = slot {
                wakers.extend(waker.take());
            }
        }
        wakers.extend(state.receiver.take());
        wakers.extend(state.upgrade.waker.take());
        let when_ended = state.when_ended.take();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if let Some(call) = when_ended {
            call();
        }
    }
}

impl State {
    /// Why there is no session, if there is none any more.
    pub fn ended(&self) -> Option<&Phase> {
        match &self.phase {
            Phase::Connecting | Phase::Open { .. } => None,
            over => Some(over),
        }
    }

    /// Takes a message to be sent, if there is room. A request gets an id, which is put into its header.
    pub fn enqueue(
        &mut self,
        bytes: &mut Vec<u8>,
        is_request: bool,
        options: &OutgoingOptions,
    ) -> Option<Option<i32>> {
        let fits =
            self.unsent_bytes == 0 || self.unsent_bytes + bytes.len() <= options.unsent_bytes_max;
        if !fits || is_request && self.in_flight.len() >= options.requests_max {
            return None;
        }
        let id = is_request.then(|| self.take_id());
        if let (Some(id), Some(place)) = (id, bytes.get_mut(4..8)) {
            place.copy_from_slice(&id.to_le_bytes());
            self.in_flight.insert(id, Slot::Queued(None));
        }
        self.unsent_bytes += bytes.len();
        self.unsent.push_back(Unsent { id, bytes: std::mem::take(bytes) });
        Some(id)
    }

    fn take_id(&mut self) -> i32 {
        loop {
            // Positive, and of no request that is in flight.
            self.next_id = if self.next_id == i32::MAX { 1 } else { self.next_id + 1 };
            if !self.in_flight.contains_key(&self.next_id) {
                return self.next_id;
            }
        }
    }

    /// The reply to a request. `None`: not yet, and the waker is kept.
    pub fn take_answer(
        &mut self,
        id: i32,
        waker: &Waker,
    ) -> Option<Result<Vec<u8>, OutgoingError>> {
        let over = self.ended().cloned();
        match (self.in_flight.get_mut(&id), over) {
            (Some(Slot::Answered(_)), _) => {}
            (Some(Slot::Queued(kept) | Slot::Sent(kept)), None) => {
                *kept = Some(waker.clone());
                return None;
            }
            (Some(slot), Some(over)) => {
                let sent = !matches!(slot, Slot::Queued(_));
                self.in_flight.remove(&id);
                return Some(Err(over.error(sent)));
            }
            _ => return Some(Err(OutgoingError::Invalid("the request was taken back"))),
        }
        let Some(Slot::Answered(bytes)) = self.in_flight.remove(&id) else { return None };
        self.untaken_bytes -= bytes.len();
        Some(Ok(bytes))
    }

    /// Nobody waits for a request any more. Whether it was sent.
    pub fn abandon(&mut self, id: i32) -> bool {
        let over = self.ended().is_some();
        match self.in_flight.get_mut(&id) {
            Some(slot @ Slot::Sent(_)) if !over => {
                *slot = Slot::Abandoned;
                return true;
            }
            Some(Slot::Queued(_)) => {
                if let Some(at) = self.unsent.iter().position(|unsent| unsent.id == Some(id))
                    && let Some(unsent) = self.unsent.remove(at)
                {
                    self.unsent_bytes -= unsent.bytes.len();
                }
                self.in_flight.remove(&id);
                return false;
            }
            Some(Slot::Answered(bytes)) => self.untaken_bytes -= bytes.len(),
            _ => {}
        }
        self.in_flight.remove(&id);
        true
    }

    /// The next message in order.
    pub fn take_received(&mut self, waker: &Waker) -> Option<Result<Vec<u8>, OutgoingError>> {
        if let Some(bytes) = self.received.pop_front() {
            self.untaken_bytes -= bytes.len();
            return Some(Ok(bytes));
        }
        if let Some(over) = self.ended() {
            return Some(Err(over.error(true)));
        }
        self.receiver = Some(waker.clone());
        None
    }

    /// Whether nothing is in flight, on its way, or untaken.
    pub fn is_quiet(&self) -> bool {
        self.unsent_bytes == 0 && self.in_flight.is_empty() && self.received.is_empty()
    }

    // For the task.

    pub fn note_task(&mut self, waker: &Waker) {
        if !self.task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.task = Some(waker.clone());
        }
    }

    /// The next message to send. From here on its request counts as sent.
    pub fn next_unsent(&mut self) -> Option<Vec<u8>> {
        let unsent = self.unsent.pop_front()?;
        if let Some(slot) = unsent.id.and_then(|id| self.in_flight.get_mut(&id))
            && let Slot::Queued(waker) = slot
        {
            *slot = Slot::Sent(waker.take());
        }
        Some(unsent.bytes)
    }

    pub fn note_sent(&mut self, bytes: usize) {
        self.unsent_bytes -= bytes;
    }

    /// Whether so much is untaken that nothing more is received.
    pub fn is_full(&self, options: &OutgoingOptions) -> bool {
        self.untaken_bytes >= options.untaken_bytes_max
    }

    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Hands over a message that has come.
    pub fn deliver(&mut self, message: &[u8], in_order: bool) -> Result<Concerned, &'static str> {
        let header = Header::parse(message).ok_or("a message without a header")?;
        match self.in_flight.get_mut(&header.response_to) {
            Some(slot @ Slot::Sent(_)) => {
                let before = std::mem::replace(slot, Slot::Answered(message.to_vec()));
                self.untaken_bytes += message.len();
                Ok(Concerned::One(if let Slot::Sent(waker) = before { waker } else { None }))
            }
            Some(Slot::Abandoned) => {
                self.in_flight.remove(&header.response_to);
                Ok(Concerned::Waiting)
            }
            Some(Slot::Queued(_)) => Err("the server answered a request before it was sent"),
            Some(Slot::Answered(_)) => Err("the server answered a request twice"),
            None if in_order => {
                self.received.push_back(message.to_vec());
                self.untaken_bytes += message.len();
                Ok(Concerned::One(self.receiver.take()))
            }
            None => Err("the server answered what was not asked"),
        }
    }
}

impl Phase {
    /// What a request ends with, once this is so.
    pub fn error(&self, sent: bool) -> OutgoingError {
        match self {
            Phase::Unreachable(why) => OutgoingError::Unreachable(why.clone()),
            Phase::Ended(why) if sent => OutgoingError::Lost(why.clone()),
            Phase::Ended(why) => OutgoingError::NotSent(why.clone()),
            Phase::Connecting | Phase::Open { .. } => OutgoingError::NotSent(String::new()),
        }
    }
}
