//! Which commits of this member's engine the set has acknowledged, and who waits for that.
//!
//! A ticket waits until the frame that closes a commit meets a [`Concern`]. The driver tells how far each is met. The
//! end of the leadership ends every wait with an error: what becomes of the commit is not known then.
//!
//! Invariants: what is reached only grows, within one leadership and beyond.

use kauri_base::ticket::TicketSource;
use kauri_base::waiters::ByNumber;
use kauri_base::{CommitSeq, Error, ErrorCode, Result, Ticket};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// What a write waits for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Concern {
    /// The set's commit point: `w: 1`.
    Committed,
    /// Durable on a majority: `w: "majority"`, `j: true`.
    Majority,
    /// This many members with data have it: `w: N`.
    Members {
        /// Number of members.
        count: usize,
        /// Whether it has to be durable on each.
        durable: bool,
    },
    /// Members with so many different values of each tag have it: a mode of the configuration.
    Tagged {
        /// Number of values by tag.
        values: BTreeMap<String, i32>,
        /// Whether it has to be durable on each.
        durable: bool,
    },
}

/// Bits of a commit sequence in a ticket's number. Above them is the concern's place.
const SEQ_BITS: u32 = 50;
/// Different concerns in use at most.
const CONCERNS_MAX: usize = 1 << 12;

struct Reached {
    concern: Concern,
    seq: u64,
    waiting: ByNumber,
}

struct State {
    concerns: Vec<Reached>,
    /// Why nobody may wait; `None` while the member leads.
    ended: Option<Error>,
}

/// See the module's head.
pub struct Acks {
    state: Mutex<State>,
}

impl Default for Acks {
    fn default() -> Self {
        let ended = Some(Error::new(ErrorCode::NotWritablePrimary, "not primary"));
        let reached = |concern| Reached { concern, seq: 0, waiting: ByNumber::default() };
        let concerns = vec![reached(Concern::Committed), reached(Concern::Majority)];
        Acks { state: Mutex::new(State { concerns, ended }) }
    }
}

impl Acks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ticket for this commit; `None` if it is acknowledged already.
    pub fn ticket(self: &Arc<Self>, seq: CommitSeq, concern: &Concern) -> Result<Option<Ticket>> {
        let mut state = self.lock();
        let place = match state.concerns.iter().position(|known| known.concern == *concern) {
            Some(place) => place,
            None if state.concerns.len() < CONCERNS_MAX => {
                let waiting = ByNumber::default();
                state.concerns.push(Reached { concern: concern.clone(), seq: 0, waiting });
                state.concerns.len() - 1
            }
            None => {
                let message = "too many different write concerns are in use";
                return Err(Error::new(ErrorCode::BadValue, message));
            }
        };
        if state.concerns.get(place).is_some_and(|known| known.seq >= seq.0) {
            return Ok(None);
        }
        drop(state);
        let source: Arc<dyn TicketSource> = self.clone();
        Ok(Some(Ticket::new(source, (place as u64) << SEQ_BITS | seq.0)))
    }

    /// Tells up to which commit each concern is met.
    pub fn reach(&self, reached: impl Fn(&Concern) -> u64) {
        let mut wakers = Vec::new();
        for known in &mut self.lock().concerns {
            known.seq = known.seq.max(reached(&known.concern));
            wakers.extend(known.waiting.take_reached(known.seq));
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The member leads: its commits may be waited for.
    pub fn begin(&self) {
        self.lock().ended = None;
    }

    /// The member leads no longer: every wait ends with this error.
    pub fn end(&self, why: Error) {
        let mut wakers = Vec::new();
        {
            let mut state = self.lock();
            state.ended = Some(why);
            for known in &mut state.concerns {
                wakers.extend(known.waiting.take_all());
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl TicketSource for Acks {
    fn poll_ticket(&self, number: u64, waker: &Waker) -> Poll<Result<()>> {
        let (place, seq) = ((number >> SEQ_BITS) as usize, number & ((1 << SEQ_BITS) - 1));
        let mut state = self.lock();
        let ended = state.ended.clone();
        let Some(known) = state.concerns.get_mut(place) else { return Poll::Ready(Ok(())) };
        match ended {
            _ if known.seq >= seq => Poll::Ready(Ok(())),
            Some(error) => Poll::Ready(Err(error)),
            None => {
                known.waiting.add(seq, waker);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(ticket: &Option<Ticket>) -> Poll<Result<()>> {
        let ticket = ticket.clone().expect("a ticket");
        let mut cx = std::task::Context::from_waker(Waker::noop());
        std::pin::pin!(ticket).as_mut().poll(&mut cx)
    }

    #[test]
    fn a_ticket_waits_for_its_concern_and_ends_with_the_leadership() {
        let acks = Arc::new(Acks::default());
        let two = Concern::Members { count: 2, durable: false };
        let ticket = |seq, concern: &Concern| acks.ticket(CommitSeq(seq), concern).expect("room");
        assert!(matches!(poll(&ticket(5, &two)), Poll::Ready(Err(_))), "it does not lead");
        acks.begin();
        let (by_two, by_majority) = (ticket(5, &two), ticket(5, &Concern::Majority));
        assert!(poll(&by_two).is_pending() && poll(&by_majority).is_pending());
        acks.reach(|concern| if *concern == two { 5 } else { 4 });
        assert_eq!(poll(&by_two), Poll::Ready(Ok(())));
        assert!(poll(&by_majority).is_pending());
        assert!(ticket(5, &two).is_none() && ticket(6, &two).is_some());
        acks.end(Error::new(ErrorCode::PrimarySteppedDown, "stepped down"));
        let code = |poll| match poll {
            Poll::Ready(Err::<(), Error>(error)) => Some(error.code()),
            _ => None,
        };
        assert_eq!(code(poll(&by_majority)), Some(ErrorCode::PrimarySteppedDown));
        assert_eq!(poll(&by_two), Poll::Ready(Ok(())), "what is reached stays reached");
    }
}
