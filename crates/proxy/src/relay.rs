//! A driver's connection, request by request, on its own thread.
//!
//! A request goes to the server, and its replies to the driver, before the next request is read. So the server sees
//! what it would see from the driver itself, and nothing is queued here.

use crate::driver::{Driver, Ended};
use crate::hello::{Hello, HelloReply};
use crate::lifeline::{Doing, Lifeline};
use crate::pool::{Pool, Session};
use crate::request::{Kind, Request, more_to_come};
use kauri_base::ErrorCode;
use kauri_base::log::{self, Attr};
use kauri_bson::doc;
use kauri_client::ClientError;
use kauri_wire::{Header, MsgWriter, ReplyWriter, opcode};
use std::sync::Arc;

/// Why a connection ends.
enum End {
    /// The driver disconnected or sent an invalid message, or the server ended an idle session.
    Between(Ended),
    /// The driver disconnected with a request or a reply in flight.
    Within,
    /// The proxy ends.
    Stopping,
    /// No session could be had.
    Unreachable(ClientError),
    /// The session broke with a request on its way.
    Broken(ClientError),
}

/// The failure of a request.
enum Fault {
    /// The session broke, and the driver has not got anything yet.
    Session(ClientError),
    Final(End),
}

/// The identity of a driver's connection.
pub struct Identity {
    pub id: u64,
    pub remote: String,
    /// The address by which the driver has reached the proxy.
    pub local: String,
}

/// See the module's head.
pub struct Relay {
    identity: Identity,
    lifeline: Arc<Lifeline>,
    pool: Arc<Pool>,
    session: Option<Session>,
}

impl Relay {
    pub fn new(identity: Identity, lifeline: Arc<Lifeline>, pool: Arc<Pool>) -> Self {
        Relay { identity, lifeline, pool, session: None }
    }

    /// Serves the driver until it goes, or something breaks.
    pub fn run(mut self) {
        let mut driver = Driver::new(Arc::clone(&self.lifeline));
        let end = loop {
            if self.lifeline.is_stopping() {
                break End::Stopping;
            }
            let upstream = self.session.as_ref().map(|session| session.connection.sign_of_life());
            let passed = match driver.receive(upstream) {
                Ok(message) => self.pass(message),
                Err(ended) => Err(End::Between(ended)),
            };
            if let Err(end) = passed {
                break end;
            }
        };
        let clean =
            matches!(end, End::Between(Ended::Driver | Ended::Malformed(_)) | End::Stopping);
        if let Some(session) = self.session.take().filter(|_| clean) {
            self.lifeline.doing(Doing::Silent);
            self.pool.give_back(session);
        }
        // Not before: who reads it may count on the session.
        self.log_end(&end);
    }

    /// Passes a request on, and all replies back.
    fn pass(&mut self, message: &[u8]) -> Result<(), End> {
        let request = Request::of(message);
        if request.kind == Kind::Upgrade {
            let reply = refusal(&request).filter(|_| request.wants_reply);
            let sent = reply.map_or(Ok(()), |reply| self.lifeline.socket.write_all(&reply));
            return sent.map_err(|_| End::Between(Ended::Driver));
        }
        let hello = match request.kind {
            Kind::Hello => Hello::of(&request),
            _ => None,
        };
        if self.session.is_none() {
            if let Some(hello) = hello.as_ref().filter(|_| request.wants_reply)
                && self.resume(&request, hello, message)?
            {
                return Ok(());
            }
            let session = self.pool.open().map_err(End::Unreachable)?;
            self.hold(session);
        }
        self.note(&request, hello.as_ref());
        self.exchange(&request, message).map_err(|fault| match fault {
            Fault::Session(_) if self.lifeline.is_driver_gone() => End::Within,
            Fault::Session(error) => End::Broken(error),
            Fault::Final(end) => end,
        })
    }

    /// Sends a driver's first hello on an idle session: one with the same key, or one without a key. A dead session
    /// is replaced, because a hello can be repeated. False: there is none.
    fn resume(&mut self, request: &Request<'_>, hello: &Hello, said: &[u8]) -> Result<bool, End> {
        let short = hello.key.as_ref().and(hello.without_client.as_deref());
        for (key, said) in [(hello.key.as_ref(), short), (None, Some(said))] {
            let Some(said) = said else { continue };
            while let Some(session) = self.pool.take(key) {
                self.hold(session);
                match key {
                    Some(_) => self.spoil_if(hello.is_personal),
                    None => self.note(request, Some(hello)),
                }
                match self.exchange(request, said) {
                    Ok(()) => {
                        let session = self.session.as_mut();
                        let begun = session.map_or(Ok(()), |session| self.pool.begun(session));
                        return begun.map(|()| true).map_err(End::Broken);
                    }
                    Err(Fault::Final(end)) => return Err(end),
                    Err(Fault::Session(_)) if self.lifeline.is_driver_gone() => {
                        return Err(End::Within);
                    }
                    Err(Fault::Session(_)) => {}
                }
            }
        }
        self.session = None;
        Ok(false)
    }

    fn hold(&mut self, session: Session) {
        self.lifeline.attach(Arc::clone(&session.hang_up));
        self.session = Some(session);
    }

    fn spoil_if(&mut self, spoiled: bool) {
        if let Some(session) = &mut self.session {
            session.is_personal |= spoiled;
        }
    }

    /// Keeps in mind what the session is going to remember.
    fn note(&mut self, request: &Request<'_>, hello: Option<&Hello>) {
        let Some(session) = &mut self.session else { return };
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

    /// Sends a request on the session, and forwards its replies to the driver.
    fn exchange(&mut self, request: &Request<'_>, said: &[u8]) -> Result<(), Fault> {
        let Some(session) = &mut self.session else { return Ok(()) };
        // What the driver has said reaches the server, even if it goes at once.
        self.lifeline.doing(Doing::Silent);
        session.connection.send_message(said).map_err(Fault::Session)?;
        session.is_unsettled |= !request.wants_reply;
        self.lifeline.doing(match request.kind {
            _ if !request.wants_reply => Doing::Idle,
            Kind::Hello => Doing::Hello,
            _ => Doing::Request,
        });
        let (mut more, mut fault): (_, fn(ClientError) -> Fault) =
            (request.wants_reply, Fault::Session);
        while more {
            let reply = session.connection.receive_message().map_err(fault)?;
            fault = |error| Fault::Final(End::Broken(error));
            session.is_unsettled = false;
            more = request.allows_exhaust && more_to_come(reply);
            let mut changed = None;
            if request.kind == Kind::Hello {
                let look = HelloReply::of(reply, &self.identity.local);
                session.is_personal |= !look.ok;
                changed = look.changed;
            }
            if !more {
                // From here on the driver may go, and the session is free.
                self.lifeline.doing(Doing::Silent);
            }
            let sent = self.lifeline.socket.write_all(changed.as_deref().unwrap_or(reply));
            let end = || if more { End::Within } else { End::Between(Ended::Driver) };
            sent.map_err(|_| Fault::Final(end()))?;
        }
        session.connection.trim();
        self.lifeline.doing(Doing::Idle);
        Ok(())
    }

    fn log_end(&self, end: &End) {
        let attr =
            Attr::new().str("remote", &self.identity.remote).num("connectionId", self.identity.id);
        let ctx = format!("conn{}", self.identity.id);
        match end {
            End::Unreachable(error) => {
                let attr = attr.str("error", error.to_string());
                let message = "Cannot reach the server; the driver's connection is closed";
                log::warning("NETWORK", 6_300_103, &ctx, message, attr);
            }
            End::Broken(error) => {
                let attr = attr.str("error", error.to_string());
                let message =
                    "The session with the server failed; the driver's connection is closed";
                log::warning("NETWORK", 6_300_104, &ctx, message, attr);
            }
            End::Between(Ended::Upstream) => {
                let message = "The server ended the session; the driver's connection is closed";
                log::info("NETWORK", 6_300_105, &ctx, message, attr);
            }
            End::Between(Ended::Malformed(claimed)) => {
                let attr = attr.num("length", claimed);
                let message = "The driver sent a message of invalid length; the driver's connection is closed";
                log::info("NETWORK", 6_300_106, &ctx, message, attr);
            }
            End::Within => {
                let message = "The driver disconnected before the reply; the session with the server is closed";
                log::info("NETWORK", 6_300_107, &ctx, message, attr);
            }
            End::Between(Ended::Driver) | End::Stopping => {
                log::info("NETWORK", 22944, &ctx, "Connection ended", attr);
            }
        }
    }
}

/// The reply to a driver that requests another transport: its connection is not a session of the server.
fn refusal(request: &Request<'_>) -> Option<Vec<u8>> {
    let code = ErrorCode::IllegalOperation;
    let body = doc! {
        "ok" => 0.0,
        "errmsg" => "clients of a proxy cannot switch transports",
        "code" => code.number(),
        "codeName" => code.name()
    };
    let header = Header::parse(&request.plain)?;
    let mut plain = Vec::new();
    if header.op_code == opcode::QUERY {
        let writer = ReplyWriter::begin(&mut plain, 0, header.request_id, 0, 0, 1);
        plain.extend_from_slice(body.as_bytes());
        writer.finish(&mut plain).ok()?;
    } else {
        let writer = MsgWriter::begin(&mut plain, 0, header.request_id, 0);
        plain.extend_from_slice(body.as_bytes());
        writer.finish(&mut plain).ok()?;
    }
    Some(plain)
}
