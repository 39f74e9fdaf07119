//! Refuses messages that raft-rs must not be given.
//!
//! raft-rs trusts its peers: a commit point beyond the log, an answer about entries that were never sent, or an entry
//! in the place of a committed one ends the process. A member's own faults may produce them, and a log that became
//! shorter in a power loss does. Here such a message costs its sender an error.
//!
//! Invariant: [`check`] only reads.

use crate::codec::{Envelope, Kind, Message};
use crate::entry::Membership;
use std::fmt;

/// Why a message is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It comes from another set.
    OtherSet,
    /// It is for another member, or from no member.
    Misaddressed,
    /// An answer from a member that the membership lacks.
    NotAMember,
    /// It was sent by, or to, an earlier start of a member's process. Harmless.
    Stale,
    /// A second leader in one term.
    SecondLeader,
    /// It speaks of entries that the log lacks, or of a term that cannot be.
    OutOfRange,
    /// It contradicts a committed entry: the logs of this set have diverged.
    Diverged,
    /// Nobody sends this.
    Impossible,
}

impl Refused {
    /// Whether it may happen in a set without faults.
    pub fn is_harmless(self) -> bool {
        matches!(self, Refused::Stale | Refused::NotAMember)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::OtherSet => "the message is from a member of another set",
            Refused::Misaddressed => "the message is for another member",
            Refused::NotAMember => "the sender is not a member",
            Refused::Stale => "the message is from before a restart",
            Refused::SecondLeader => "the term has another leader",
            Refused::OutOfRange => "the message speaks of entries that do not exist",
            Refused::Diverged => "the message contradicts a committed entry",
            Refused::Impossible => "the message has a form that no member sends",
        })
    }
}

impl std::error::Error for Refused {}

/// What a check needs to know of the receiver.
pub struct View<'a> {
    /// The set.
    pub set: u64,
    /// The receiver.
    pub id: u64,
    /// The number of its start.
    pub boot: u64,
    /// Its term.
    pub term: u64,
    /// Whether it leads.
    pub leads: bool,
    /// The leader of its term; 0 if unknown.
    pub leader: u64,
    /// Its first index: earlier entries are not known any more, and were committed.
    pub first: u64,
    /// Its last index.
    pub last: u64,
    /// Its commit point.
    pub committed: u64,
    /// The membership.
    pub membership: &'a Membership,
    /// The newest start of the sender that the receiver knows of.
    pub known_boot: u64,
    /// The term of an entry of its log.
    pub term_of: &'a dyn Fn(u64) -> Option<u64>,
}

/// Whether the envelope may be taken in.
pub fn check(envelope: &Envelope, view: &View<'_>) -> Result<(), Refused> {
    if envelope.set != view.set {
        return Err(Refused::OtherSet);
    }
    if envelope.to != view.id || envelope.from == view.id || envelope.from == 0 {
        return Err(Refused::Misaddressed);
    }
    if envelope.from_boot == 0 || envelope.term == 0 {
        return Err(Refused::Impossible);
    }
    if envelope.from_boot < view.known_boot {
        return Err(Refused::Stale);
    }
    if envelope.to_boot != 0 && envelope.to_boot != view.boot {
        return Err(if envelope.to_boot < view.boot {
            Refused::Stale
        } else {
            Refused::Impossible
        });
    }
    match &envelope.message {
        None => Ok(()),
        Some(message) => check_message(envelope, message, view),
    }
}

fn check_message(envelope: &Envelope, message: &Message, view: &View<'_>) -> Result<(), Refused> {
    // A question before an election is about the term after the sender's, and its answer repeats that.
    let newest = match message.kind {
        Kind::PreVote => envelope.term + 1,
        Kind::PreVoted => u64::MAX,
        _ => envelope.term,
    };
    if message.term == 0 || message.term > newest || message.log_term > message.term {
        return Err(Refused::OutOfRange);
    }
    let asks = matches!(message.kind, Kind::Append | Kind::Vote | Kind::PreVote);
    // raft-rs takes 0 for the term of any entry that it lacks.
    if asks && (message.index == 0) != (message.log_term == 0) {
        return Err(Refused::Impossible);
    }
    if message.kind.is_answer() && !view.membership.contains(envelope.from) {
        return Err(Refused::NotAMember);
    }
    let is_current = message.term == view.term;
    if is_current && message.kind.is_leaders() {
        let other = view.leads || (view.leader != 0 && view.leader != envelope.from);
        if other {
            return Err(Refused::SecondLeader);
        }
    }
    match message.kind {
        Kind::Append => check_append(message, view),
        Kind::Appended if view.leads && is_current => {
            let index = if message.reject { message.hint } else { message.index };
            if index > view.last { Err(Refused::OutOfRange) } else { Ok(()) }
        }
        Kind::Heartbeat if message.term >= view.term && message.commit > view.last => {
            Err(Refused::OutOfRange)
        }
        Kind::Vote | Kind::PreVote
            if message.commit > message.index || message.commit_term > message.log_term =>
        {
            Err(Refused::OutOfRange)
        }
        Kind::TakeOver if !is_current || view.leader != envelope.from => Err(Refused::Stale),
        _ => Ok(()),
    }
}

fn check_append(message: &Message, view: &View<'_>) -> Result<(), Refused> {
    if message.term < view.term {
        return Ok(());
    }
    let entries = message.entries.iter().map(|entry| (entry.index, entry.term));
    for (index, term) in std::iter::once((message.index, message.log_term)).chain(entries) {
        if index > view.committed {
            break;
        }
        if index + 1 >= view.first && (view.term_of)(index) != Some(term) {
            return Err(Refused::Diverged);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A late message may begin before the log of its receiver, who has purged what it tells of.
    #[test]
    fn entries_before_the_log_are_taken_for_those_that_were_there() {
        let membership = Membership::of([1, 2, 3]);
        let view = View {
            set: 7,
            id: 2,
            boot: 1,
            term: 3,
            leads: false,
            leader: 1,
            first: 10,
            last: 20,
            committed: 20,
            membership: &membership,
            known_boot: 1,
            term_of: &|index| (9..=20).contains(&index).then_some(2),
        };
        let check = |index, log_term| {
            let message = Message { index, log_term, ..Message::new(Kind::Append, 3) };
            let envelope = Envelope {
                set: 7,
                from: 1,
                to: 2,
                from_boot: 1,
                to_boot: 1,
                term: 3,
                last: 30,
                durable: 0,
                durable_commit: 0,
                lost_power: false,
                message: Some(message),
            };
            check(&envelope, &view)
        };
        assert_eq!((check(5, 1), check(8, 2)), (Ok(()), Ok(())));
        assert_eq!((check(9, 2), check(9, 1)), (Ok(()), Err(Refused::Diverged)));
        assert_eq!((check(20, 1), check(21, 1)), (Err(Refused::Diverged), Ok(())));
    }
}
