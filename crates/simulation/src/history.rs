//! The observations of the clients of a world.
//!
//! Moments are ascending numbers. An operation runs from the moment when it was sent to the moment when its reply
//! arrived; without a reply its outcome is unknown.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// When something happened, in the order of everything that happened.
pub type Moment = u64;

/// What is known about a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// It was acknowledged at this moment.
    Done(Moment),
    /// It was refused, without an effect.
    Refused,
    /// It has no reply, or a reply that does not determine its effect.
    Nothing,
}

/// A value appended to the list of a document.
#[derive(Clone, Debug)]
pub struct Append {
    /// The document.
    pub key: u64,
    /// The value; no other append has it.
    pub value: u64,
    /// When it was sent.
    pub sent: Moment,
    /// Its outcome.
    pub known: Known,
    /// Its acknowledgement promises that it survives a power loss.
    pub durable: bool,
    /// The life of the server that it was sent to.
    pub life: u32,
}

/// A list that was read.
#[derive(Clone, Debug)]
pub struct Read {
    /// The document.
    pub key: u64,
    /// Its list; empty without a document.
    pub list: Vec<u64>,
    /// When it was asked for, and answered.
    pub sent: Moment,
    #[allow(missing_docs)]
    pub answered: Moment,
    /// The life of the server that answered.
    pub life: u32,
    /// Nothing else was under way, at the beginning of a life or at the end of the run.
    pub alone: bool,
}

/// A document with a unique value: inserted and deleted.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The value.
    pub value: u64,
    /// Inserted, or deleted.
    pub insert: bool,
    /// When it was sent.
    pub sent: Moment,
    /// Its outcome.
    pub known: Known,
    /// Whether it changed something, if it was acknowledged: an insert with a duplicate, or a delete without a
    /// match, did not.
    pub effect: bool,
    /// The life of the server that it was sent to.
    pub life: u32,
}

/// The kind of a server's death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// In order, or with all that it had stored.
    Process,
    /// A power loss: data that is not durable may be lost.
    Power,
}

/// Everything that is known.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Facts {
    pub now: Moment,
    pub life: u32,
    pub appends: Vec<Append>,
    pub reads: Vec<Read>,
    pub claims: Vec<Claim>,
    /// Intervals in which no write that was sent in them may be acknowledged.
    pub locks: Vec<(Moment, Moment)>,
    /// The death of each life, by number, and its moment.
    pub deaths: Vec<(Death, Moment)>,
    /// Faults independent of other observations.
    pub faults: Vec<String>,
    /// Number of successful replies by kind of operation.
    pub counts: BTreeMap<&'static str, u64>,
    /// A hash of all replies, in order.
    pub hash: u64,
}

impl Facts {
    /// The next moment.
    pub fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// Mixes bytes into the hash of the run.
    pub fn mix(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.hash = (self.hash ^ u64::from_le_bytes(word))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29);
        }
    }
}

/// The facts, for clients to add to.
#[derive(Default)]
pub struct History(Mutex<Facts>);

impl History {
    /// The facts so far.
    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a fault.
    pub fn fault(&self, what: impl Into<String>) {
        let mut facts = self.facts();
        let what = format!("at {}: {}", facts.now, what.into());
        facts.faults.push(what);
    }
}
