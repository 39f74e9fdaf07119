//! Drivers' connections that move to another server of a set: between two requests, without the driver's noticing.
//!
//! Invariants:
//! - A request whose outcome is unknown is never sent again: only a hello is, and a request that was not sent.
//! - The session with the new server remembers what the old one did: the driver's first hello is repeated there. A
//!   session that may hold more ends the driver's connection instead.
//! - A request about a cursor goes to the server that has it, as long as the session lives.

use super::{End, Fault, Relay};
use crate::hello::{Hello, HelloReply, Key};
use crate::pool::{Pool, Session};
use crate::request::{Kind, Request};
use kauri_bson::DocBuf;
use kauri_client::ClientError;
use kauri_client::outgoing::lost;
use kauri_transport::{WorkerHandle, monotonic_ns};
use std::sync::Arc;
use std::time::Duration;

/// How often a request moves at most.
pub const MOVES_MAX: usize = 3;
/// Largest hello that is kept to be repeated.
const INTRODUCTION_BYTES_MAX: usize = 4096;
/// Maximum time for the reply to a repeated hello, if the connection string sets none.
const REPLY_TIME: Duration = Duration::from_secs(10);

/// The hello that a session remembers.
pub struct Introduction {
    key: Key,
    message: Vec<u8>,
}

impl Introduction {
    /// A session that remembers it: an idle one, or a new one.
    pub async fn open(
        &self,
        pool: &Arc<Pool>,
        worker: &WorkerHandle,
    ) -> Result<Session, ClientError> {
        if let Some(session) = pool.take(Some(&self.key), worker) {
            return Ok(session);
        }
        let mut session = pool.open(worker).await?;
        let limit = pool.reply_limit(&session).unwrap_or(REPLY_TIME);
        let end_ns = monotonic_ns().saturating_add(limit.as_nanos() as u64);
        let reply = session.outgoing.request(self.message.clone(), Some(end_ns)).await;
        let reply = reply.map_err(lost)?;
        session.is_personal = !HelloReply::of(&reply, "").ok;
        session.key = Some(self.key.clone());
        Ok(session)
    }
}

impl Relay<'_> {
    /// Keeps a hello that sessions remember.
    pub fn introduce(&mut self, hello: Option<&Hello>, message: &[u8]) {
        if self.common.pool.members.is_none() || message.len() > INTRODUCTION_BYTES_MAX {
            return;
        }
        if let (Some(Hello { key: Some(key), is_personal: false, .. }), None) =
            (hello, &self.driver.introduction)
        {
            let introduction = Introduction { key: key.clone(), message: message.to_vec() };
            self.driver.introduction = Some(introduction);
        }
    }

    /// What a new session is told before the driver's request. A hello that sessions remember tells itself.
    pub fn introduction(&self, hello: Option<&Hello>) -> Option<&Introduction> {
        let tells_itself = hello.is_some_and(|hello| hello.key.is_some());
        self.driver.introduction.as_ref().filter(|_| !tells_itself)
    }

    /// Leaves a session whose server is not followed any more.
    pub fn leave_past(&mut self, request: &Request<'_>) -> Result<(), End> {
        let pool = &self.common.pool;
        let Some(session) = self.driver.session.take_if(|session| pool.is_past(session)) else {
            return Ok(());
        };
        if request.kind == Kind::Cursor && session.outgoing.ended().is_none() {
            self.driver.session = Some(session);
            return Ok(());
        }
        let is_untold = session.key.is_some() && self.driver.introduction.is_none();
        if session.is_personal || is_untold {
            return Err(End::Moved);
        }
        pool.give_back(session);
        Ok(())
    }

    /// Has the set know of a session that failed. `acted`: the server may have acted on the request.
    pub fn note_lost(&mut self, error: ClientError, acted: bool) -> Fault {
        let session = self.driver.session.as_ref();
        let host = session.and_then(|session| session.host.as_ref());
        let (Some(members), Some(host)) = (&self.common.pool.members, host) else {
            return Fault::Session(error);
        };
        members.note_failure(host, &error);
        if acted { Fault::Session(error) } else { Fault::Moved }
    }

    /// Has the set know of a reply to hello. Fails if it is not to be passed on.
    pub fn note_member(&mut self, reply: Option<DocBuf>) -> Result<(), Fault> {
        let session = self.driver.session.as_ref();
        let host = session.and_then(|session| session.host.as_ref());
        let (Some(members), Some(host), Some(reply)) = (&self.common.pool.members, host, reply)
        else {
            return Ok(());
        };
        match (members.note_hello(host, reply.as_doc()), self.driver.gets_more) {
            (true, _) => Ok(()),
            (false, true) => Err(Fault::Final(End::Moved)),
            (false, false) => Err(Fault::Moved),
        }
    }

    /// Has the set know of a reply to another command.
    pub fn note_reply(&self, reply: &[u8]) {
        let session = self.driver.session.as_ref();
        let host = session.and_then(|session| session.host.as_ref());
        if let (Some(members), Some(host)) = (&self.common.pool.members, host) {
            members.note_reply(host, reply);
        }
    }
}
