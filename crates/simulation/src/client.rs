//! A client's connection: transfers commands and replies in pieces and with pauses.

use crate::history::{History, Moment};
use crate::node::Network;
use kauri_bson::{Doc, DocBuf, DocWriter};
use kauri_testkit::Dice;
use kauri_transport::WorkerHandle;
use kauri_transport::fake::FakeClient;
use kauri_wire::{Message, MsgWriter};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Maximum time of a command on a running server: a slower one is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module's head.
pub struct Client {
    /// Choices of this client.
    pub dice: Dice,
    /// The observations of all clients.
    pub history: Arc<History>,
    network: Arc<Network>,
    worker: WorkerHandle,
    /// It may connect while others may not.
    alone: bool,
    pipe: Option<FakeClient>,
    requests: i32,
    asked_life: u32,
}

impl Client {
    /// A client on this worker; not connected yet. `alone`: it may connect while others may not.
    pub fn new(
        network: &Arc<Network>,
        history: &Arc<History>,
        worker: &WorkerHandle,
        dice: Dice,
        alone: bool,
    ) -> Client {
        Client {
            dice,
            history: history.clone(),
            network: network.clone(),
            worker: worker.clone(),
            alone,
            pipe: None,
            requests: 0,
            asked_life: 0,
        }
    }

    /// Waits a while, at most so long.
    pub async fn pause(&self, at_most: Duration) {
        let ns = self.dice.below(at_most.as_nanos() as u64);
        self.worker.sleep(Duration::from_nanos(ns)).await;
    }

    /// Gives the connection up, with what may be under way on it.
    pub fn disconnect(&mut self) {
        self.pipe = None;
    }

    /// Counts an operation that was answered well.
    pub fn count(&self, what: &'static str) {
        *self.history.facts().counts.entry(what).or_default() += 1;
    }

    /// The next moment, and the server's present life.
    pub fn moment(&self) -> (Moment, u32) {
        let mut facts = self.history.facts();
        (facts.tick(), facts.life)
    }

    /// The server's present life.
    pub fn life(&self) -> u32 {
        self.history.facts().life
    }

    /// The life of the server that the last command was sent to.
    pub fn asked_life(&self) -> u32 {
        self.asked_life
    }

    /// Waits for a connection to a server that lets this client in.
    pub async fn connects(&mut self) {
        if self.pipe.as_ref().is_some_and(FakeClient::is_closed) {
            self.pipe = None;
        }
        while self.pipe.is_none() {
            self.pipe = self.network.connect(self.alone);
            match &self.pipe {
                Some(pipe) if self.dice.percent(20) => {
                    pipe.set_window(64 + self.dice.below(4096) as usize);
                }
                Some(_) => {}
                None => self.pause(Duration::from_millis(5)).await,
            }
        }
    }

    /// Runs a command on `database`. `None`: the connection ended first, and the outcome is unknown.
    pub async fn run(&mut self, database: &str, command: DocBuf) -> Option<DocBuf> {
        self.connects().await;
        let life = self.life();
        self.asked_life = life;
        let bytes = self.message(database, &command);
        self.send(&bytes).await;
        let received = self.receive(&command).await;
        if received.is_none() && self.life() == life {
            let command = kauri_bson::shell_text(command.as_doc());
            self.history.fault(format!("the server ends the connection: {command}"));
        }
        let reply = received.and_then(|bytes| self.reply(&bytes, &command));
        if reply.is_none() {
            self.pipe = None;
        }
        reply
    }

    fn message(&mut self, database: &str, command: &DocBuf) -> Vec<u8> {
        self.requests += 1;
        let mut message = Vec::new();
        let writer = MsgWriter::begin(&mut message, self.requests, 0, 0);
        {
            let mut body = DocWriter::new(&mut message);
            body.put_all(command.as_doc());
            body.put("$db", database);
        }
        if let Err(error) = writer.finish(&mut message) {
            self.history.fault(format!("a message that can't be written: {error:?}"));
        }
        message
    }

    /// At once, or in two parts.
    async fn send(&self, bytes: &[u8]) {
        let cut =
            if self.dice.percent(10) { self.dice.below(bytes.len() as u64) as usize } else { 0 };
        let (first, second) = bytes.split_at(cut);
        if let Some(pipe) = &self.pipe {
            if cut > 0 {
                pipe.send(first);
                self.pause(Duration::from_micros(300)).await;
            }
            pipe.send(second);
        }
    }

    /// The reply's message, unless it takes too long.
    async fn receive(&self, command: &DocBuf) -> Option<Vec<u8>> {
        let pipe = self.pipe.as_ref()?;
        let mut patience = pin!(self.worker.sleep(PATIENCE));
        let received = poll_fn(|cx| {
            if let Poll::Ready(received) = pipe.poll_receive(cx) {
                return Poll::Ready(Ok(received));
            }
            patience.as_mut().poll(cx).map(Err)
        });
        match received.await {
            Ok(received) => received,
            Err(()) => {
                self.history.fault(format!("stuck: {}", kauri_bson::shell_text(command.as_doc())));
                None
            }
        }
    }

    fn reply(&self, bytes: &[u8], command: &DocBuf) -> Option<DocBuf> {
        // Without the server's own number of the message, which is the process's.
        self.history.facts().mix(bytes.get(8..).unwrap_or_default());
        let parsed = Message::parse(bytes).ok().and_then(|(header, message)| {
            let Message::Msg(reply) = message else { return None };
            let doc = Doc::from_bytes(reply.body).ok()?.to_buf();
            (header.response_to == self.requests).then_some(doc)
        });
        if parsed.is_none() {
            let command = kauri_bson::shell_text(command.as_doc());
            self.history.fault(format!("a reply to something else than {command}"));
        }
        parsed
    }
}
