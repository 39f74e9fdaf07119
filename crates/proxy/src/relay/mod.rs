//! A driver's connection, request by request, on its worker.
//!
//! A request goes to the server, and its replies to the driver, before the next request is read. So the server sees
//! what it would see from the driver itself, and nothing is queued here.

use crate::hello::{Hello, HelloReply};
use crate::pool::{Pool, Session};
use crate::request::{Kind, Request, more_to_come};
use kauri_base::ErrorCode;
use kauri_base::log::{self, Attr};
use kauri_bson::doc;
use kauri_client::ClientError;
use kauri_client::outgoing::lost;
use kauri_transport::outgoing::OutgoingError;
use kauri_transport::{
    ClientState, Liveness, Outcome, ReplyBuf, SessionInfo, SessionManager, WorkerHandle,
};
use kauri_wire::{Header, MsgWriter, ReplyWriter, opcode};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;

mod moving;

use moving::{Introduction, MOVES_MAX};

/// Why a connection ends.
pub enum End {
    /// The driver disconnected with a request or a reply in flight.
    Within,
    /// The proxy ends.
    Stopping,
    /// No session could be had.
    Unreachable(ClientError),
    /// The session broke with a request on its way.
    Broken(ClientError),
    /// The server is not followed any more, and the session can't be left for another one.
    Moved,
}

/// The failure of a request.
pub enum Fault {
    /// The session broke, and the driver has not got anything yet.
    Session(ClientError),
    /// The server is not followed any more: nothing was passed on that the driver may not ask again.
    Moved,
    Final(End),
}

/// What there is of a driver between its requests.
#[derive(Default)]
pub struct Driver {
    pub session: Option<Session>,
    /// What a session with another server of a set has to be told first.
    pub introduction: Option<Introduction>,
    /// A request is on its way, or one of its replies.
    in_flight: bool,
    /// The request that is handled has got a reply, and gets another.
    pub gets_more: bool,
    end: Option<End>,
}

impl ClientState for Driver {}

/// What the connections of a proxy have in common.
pub struct Common {
    pub pool: Arc<Pool>,
    pub manager: OnceLock<Weak<SessionManager>>,
    /// Replies to handshakes are no longer waited for.
    pub is_stopping: AtomicBool,
}

/// A request of a driver.
pub struct Relay<'a> {
    pub common: &'a Common,
    pub driver: &'a mut Driver,
    pub info: &'a SessionInfo,
    pub liveness: &'a Liveness,
    pub worker: &'a WorkerHandle,
    pub reply: &'a mut ReplyBuf,
}

impl Relay<'_> {
    /// Passes a request on, and its reply back; called again for each further reply.
    pub async fn run(mut self, message: &[u8]) -> Outcome {
        let passed = match self.driver.gets_more {
            true => {
                self.next_reply(&Request::of(message)).await.map_err(|fault| self.end_by(fault))
            }
            false => self.pass(message).await,
        };
        passed.unwrap_or_else(|end| {
            self.driver.end = Some(end);
            Outcome::Close
        })
    }

    async fn pass(&mut self, message: &[u8]) -> Result<Outcome, End> {
        let request = Request::of(message);
        if request.kind == Kind::Upgrade {
            if !request.wants_reply {
                return Ok(Outcome::NoReply);
            }
            let refused = refuse(&request, self.reply.buffer());
            return Ok(refused.map_or(Outcome::Close, |()| Outcome::Reply));
        }
        let hello = match request.kind {
            Kind::Hello => Hello::of(&request),
            _ => None,
        };
        self.introduce(hello.as_ref(), message);
        let mut moves_left = MOVES_MAX;
        loop {
            self.leave_past(&request)?;
            if self.driver.session.is_none() {
                if let Some(hello) = hello.as_ref().filter(|_| request.wants_reply)
                    && let Some(outcome) = self.resume(&request, hello, message).await?
                {
                    return Ok(outcome);
                }
                self.driver.session = Some(self.open(&request, hello.as_ref()).await?);
            }
            self.note(&request, hello.as_ref());
            match self.exchange(&request, message).await {
                Err(Fault::Moved) if moves_left > 0 => moves_left -= 1,
                passed => return passed.map_err(|fault| self.end_by(fault)),
            }
        }
    }

    fn end_by(&self, fault: Fault) -> End {
        match fault {
            Fault::Moved => End::Moved,
            Fault::Session(_) if self.liveness.is_peer_closed() => End::Within,
            Fault::Session(error) => End::Broken(error),
            Fault::Final(end) => end,
        }
    }

    async fn open(&self, request: &Request<'_>, hello: Option<&Hello>) -> Result<Session, End> {
        let opening = async {
            match self.introduction(hello) {
                Some(introduction) => introduction.open(&self.common.pool, self.worker).await,
                None => self.common.pool.open(self.worker).await,
            }
        };
        let is_waiting = self.common.pool.members.is_some();
        let has_left = || is_waiting && self.liveness.is_peer_closed();
        let opened = unless(opening, || self.is_over(request) || has_left()).await;
        let end = if has_left() { End::Within } else { End::Stopping };
        opened.ok_or(end)?.map_err(End::Unreachable)
    }

    /// Sends a driver's first hello on an idle session: one with the same key, or one without a key. A dead session
    /// is replaced, because a hello can be repeated. `None`: there is no such session.
    async fn resume(
        &mut self,
        request: &Request<'_>,
        hello: &Hello,
        said: &[u8],
    ) -> Result<Option<Outcome>, End> {
        let short = hello.key.as_ref().and(hello.without_client.as_deref());
        for (key, said) in [(hello.key.as_ref(), short), (None, Some(said))] {
            let Some(said) = said else { continue };
            while let Some(session) = self.common.pool.take(key, self.worker) {
                let session = self.driver.session.insert(session);
                match key {
                    Some(_) => session.is_personal |= hello.is_personal,
                    None => self.note(request, Some(hello)),
                }
                match self.exchange(request, said).await {
                    Ok(outcome) => return Ok(Some(outcome)),
                    Err(Fault::Final(end)) => return Err(end),
                    Err(Fault::Session(_)) if self.liveness.is_peer_closed() => {
                        return Err(End::Within);
                    }
                    Err(Fault::Session(_) | Fault::Moved) => self.driver.session = None,
                }
            }
        }
        Ok(None)
    }

    /// Keeps in mind what the session is going to remember.
    fn note(&mut self, request: &Request<'_>, hello: Option<&Hello>) {
        let Some(session) = &mut self.driver.session else { return };
        match (request.kind, hello) {
            (Kind::Hello, Some(hello)) => {
                // Without a reply nobody knows whether it was taken; a second one may have changed something.
                let unknown =
                    hello.key.is_some() && (session.key.is_some() || !request.wants_reply);
                session.is_personal |= unknown || hello.is_personal;
                if session.key.is_none() {
                    session.key.clone_from(&hello.key);
                }
            }
            (Kind::Hello, None) | (Kind::Personal, _) => session.is_personal = true,
            _ => {}
        }
    }

    /// Sends a request on the session, and waits for the first reply, if one comes.
    async fn exchange(&mut self, request: &Request<'_>, said: &[u8]) -> Result<Outcome, Fault> {
        let Some(session) = &self.driver.session else { return Ok(Outcome::Close) };
        self.driver.in_flight = true;
        // What the driver has said reaches the server, even if it goes at once.
        let sending = session.outgoing.send(said.to_vec());
        let sent = unless(sending, || self.liveness.is_cancelled()).await;
        let sent = sent.ok_or(Fault::Final(End::Stopping))?;
        if let Err(error) = sent {
            let acted = error.may_have_acted();
            return Err(self.note_lost(lost(error), acted));
        }
        if let Some(session) = &mut self.driver.session {
            session.is_unsettled |= !request.wants_reply;
        }
        if !request.wants_reply {
            self.attach();
            self.driver.in_flight = false;
            return Ok(Outcome::NoReply);
        }
        self.next_reply(request).await
    }

    /// From now on the driver is disconnected when the session ends.
    fn attach(&mut self) {
        // A driver of a set stays when its session ends: its next request goes to another server.
        if self.common.pool.members.is_some() {
            return;
        }
        if let (Some(session), Some(manager)) =
            (&mut self.driver.session, self.common.manager.get())
        {
            session.attach(manager, self.info.id);
        }
    }

    /// Waits for a reply, and makes it the driver's.
    async fn next_reply(&mut self, request: &Request<'_>) -> Result<Outcome, Fault> {
        let reply = match self.received(request).await? {
            Ok(reply) => reply,
            Err(error) => {
                return Err(match (self.note_lost(lost(error), true), self.driver.gets_more) {
                    (Fault::Session(error), true) => Fault::Final(End::Broken(error)),
                    (fault, _) => fault,
                });
            }
        };
        let more = request.allows_exhaust && more_to_come(&reply);
        let Some(session) = &mut self.driver.session else { return Ok(Outcome::Close) };
        (session.is_unsettled, session.is_resumed) = (false, false);
        let mut changed = None;
        if request.kind == Kind::Hello {
            let look = HelloReply::of(&reply, &self.info.local);
            session.is_personal |= !look.ok;
            changed = look.changed;
            self.note_member(look.of_member)?;
        } else {
            self.note_reply(&reply);
        }
        let reply = changed.unwrap_or(reply);
        let buffer = self.reply.buffer();
        match reply.len() <= buffer.capacity() {
            true => buffer.extend_from_slice(&reply),
            false => *buffer = reply,
        }
        self.attach();
        (self.driver.gets_more, self.driver.in_flight) = (more, more);
        Ok(if more { Outcome::Exhaust } else { Outcome::Reply })
    }

    /// The next message of the server, if it comes in time and the driver waits for it.
    async fn received(
        &self,
        request: &Request<'_>,
    ) -> Result<Result<Vec<u8>, OutgoingError>, Fault> {
        let Some(session) = &self.driver.session else { return Err(Fault::Final(End::Within)) };
        let mut receive = session.outgoing.receive();
        let limit = self.common.pool.reply_limit(session);
        let mut limit = limit.map(|limit| self.worker.sleep(limit));
        poll_fn(|cx| {
            // First: what came before the end is the driver's.
            if let Poll::Ready(received) = Pin::new(&mut receive).poll(cx) {
                return Poll::Ready(Ok(received));
            }
            if self.liveness.is_peer_closed() {
                return Poll::Ready(Err(Fault::Final(End::Within)));
            }
            if self.is_over(request) {
                return Poll::Ready(Err(Fault::Final(End::Stopping)));
            }
            let limit = limit.as_mut().map(|limit| Pin::new(limit).poll(cx));
            match limit {
                Some(Poll::Ready(())) => {
                    Poll::Ready(Ok(Err(OutgoingError::TimedOut { sent: true })))
                }
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Whether the proxy ends and does not wait for this request.
    fn is_over(&self, request: &Request<'_>) -> bool {
        let is_hello = request.kind == Kind::Hello;
        self.liveness.is_cancelled() || is_hello && self.common.is_stopping.load(Ordering::Relaxed)
    }
}

/// Waits for `what`, unless it is given up before. The session's task is woken when that changes.
async fn unless<T>(what: impl Future<Output = T>, is_given_up: impl Fn() -> bool) -> Option<T> {
    let mut what = pin!(what);
    poll_fn(|cx| match what.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if is_given_up() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

impl Driver {
    /// The connection has ended: its session ends, too, or becomes idle.
    pub fn leave(mut self, common: &Common, info: &SessionInfo) {
        let session = self.session.take();
        let has_ended = session.as_ref().is_some_and(|session| session.outgoing.ended().is_some());
        let is_stopping = common.is_stopping.load(Ordering::Relaxed);
        match self.end {
            None if self.in_flight && !is_stopping => log_end(&End::Within, info),
            None if self.in_flight => {}
            None if has_ended && !is_stopping && common.pool.members.is_none() => {
                let message = "The server ended the session; the driver's connection is closed";
                log::info("NETWORK", 6_300_105, &ctx(info), message, attr(info));
            }
            None => {
                if let Some(session) = session {
                    common.pool.give_back(session);
                }
            }
            Some(end) => log_end(&end, info),
        }
    }
}

fn ctx(info: &SessionInfo) -> String {
    format!("conn{}", info.id)
}

fn attr(info: &SessionInfo) -> Attr {
    Attr::new().str("remote", &info.remote).num("connectionId", info.id)
}

fn log_end(end: &End, info: &SessionInfo) {
    match end {
        End::Unreachable(error) => {
            let attr = attr(info).str("error", error.to_string());
            let message = "Cannot reach the server; the driver's connection is closed";
            log::warning("NETWORK", 6_300_103, &ctx(info), message, attr);
        }
        End::Broken(error) => {
            let attr = attr(info).str("error", error.to_string());
            let message = "The session with the server failed; the driver's connection is closed";
            log::warning("NETWORK", 6_300_104, &ctx(info), message, attr);
        }
        End::Moved => {
            let message =
                "Another server of the set is followed; the driver's connection is closed";
            log::info("NETWORK", 6_300_110, &ctx(info), message, attr(info));
        }
        End::Within => {
            let message =
                "The driver disconnected before the reply; the session with the server is closed";
            log::info("NETWORK", 6_300_107, &ctx(info), message, attr(info));
        }
        End::Stopping => {}
    }
}

/// Writes the reply to a driver that requests another transport: its connection is not a session of the server.
fn refuse(request: &Request<'_>, reply: &mut Vec<u8>) -> Option<()> {
    let code = ErrorCode::IllegalOperation;
    let body = doc! {
        "ok" => 0.0,
        "errmsg" => "clients of a proxy cannot switch transports",
        "code" => code.number(),
        "codeName" => code.name()
    };
    let header = Header::parse(&request.plain)?;
    if header.op_code == opcode::QUERY {
        let writer = ReplyWriter::begin(reply, 0, header.request_id, 0, 0, 1);
        reply.extend_from_slice(body.as_bytes());
        return writer.finish(reply).ok();
    }
    let writer = MsgWriter::begin(reply, 0, header.request_id, 0);
    reply.extend_from_slice(body.as_bytes());
    writer.finish(reply).ok()
}
