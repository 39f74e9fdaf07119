//! What a commit answers, and when it may be acknowledged.

use kauri_base::{CommitSeq, Ticket};

/// When a commit may be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The commit survives the death of the process.
    Written,
    /// The commit survives a power loss.
    Durable,
}

/// A commit that is visible, and the tickets to wait for before acknowledging it.
#[derive(Clone)]
pub struct CommitTicket {
    /// Its position in the commit sequence.
    pub seq: CommitSeq,
    written: Option<Ticket>,
    durable: Option<Ticket>,
}

impl CommitTicket {
    /// `None`: nothing to wait for.
    pub fn new(seq: CommitSeq, written: Option<Ticket>, durable: Option<Ticket>) -> Self {
        CommitTicket { seq, written, durable }
    }

    /// The ticket for this durability; `None` if it is reached already.
    pub fn ticket(&self, durability: Durability) -> Option<&Ticket> {
        match durability {
            Durability::Written => self.written.as_ref(),
            Durability::Durable => self.durable.as_ref(),
        }
    }

    /// Blocks the thread until then. For tests and tools.
    pub fn wait(&self, durability: Durability) -> kauri_base::Result<()> {
        self.ticket(durability).map_or(Ok(()), Ticket::wait)
    }
}
