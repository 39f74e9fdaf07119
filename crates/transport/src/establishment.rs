//! Limits how many connections are established a second, for servers that storms of connections would keep from
//! their work (`ingressConnectionEstablishment…`).
//!
//! A bucket fills with tokens at the rate that is set, up to what so many seconds add. A connection takes one. Where
//! there is none it queues: it borrows a token and begins when that is due. A connection that finds the queue full is
//! closed. One whose client leaves the queue gives its token back.
//!
//! Invariant: tokens that are borrowed are those of the queue, so the queue's bound bounds the wait.

use crate::contract::SessionEnd;
use crate::executor::WorkerHandle;
use crate::liveness::Liveness;
use crate::sys::monotonic_ns;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// What is limited, and how far. By default there is no limit, and no queue either.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EstablishmentRate {
    /// Connections a second.
    pub per_second: f64,
    /// So many seconds' connections may come at once after a quiet time.
    pub burst_seconds: f64,
    /// Most connections that wait.
    pub queue_max: u64,
}

impl Default for EstablishmentRate {
    fn default() -> Self {
        EstablishmentRate { per_second: f64::from(i32::MAX), burst_seconds: f64::MAX, queue_max: 0 }
    }
}

/// What becomes of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Admission {
    Now,
    /// It queues until then.
    At(u64),
    Refused,
}

/// The tokens, at the times that the caller tells. In nanoseconds, any start.
struct Bucket {
    rate: EstablishmentRate,
    /// Below zero: borrowed.
    tokens: f64,
    filled_ns: u64,
    queued: u64,
}

/// What sums of fractions may lack to a whole token.
const ROUNDING: f64 = 1e-6;

impl Bucket {
    fn new(rate: EstablishmentRate, now_ns: u64) -> Bucket {
        let mut bucket = Bucket { rate, tokens: 0.0, filled_ns: now_ns, queued: 0 };
        bucket.tokens = bucket.capacity();
        bucket
    }

    /// One at least: else nothing would ever be admitted.
    fn capacity(&self) -> f64 {
        (self.rate.per_second * self.rate.burst_seconds).max(1.0)
    }

    fn fill(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
        self.tokens = (self.tokens + passed * self.rate.per_second).min(self.capacity());
        self.filled_ns = self.filled_ns.max(now_ns);
    }

    fn set_rate(&mut self, rate: EstablishmentRate, now_ns: u64) {
        self.fill(now_ns);
        self.rate = rate;
        self.tokens = self.tokens.min(self.capacity());
    }

    fn admit(&mut self, now_ns: u64) -> Admission {
        self.fill(now_ns);
        if self.tokens >= 1.0 - ROUNDING {
            self.tokens -= 1.0;
            return Admission::Now;
        }
        if self.queued >= self.rate.queue_max {
            return Admission::Refused;
        }
        self.tokens -= 1.0;
        self.queued += 1;
        let wait_ns = -self.tokens / self.rate.per_second * 1e9;
        Admission::At(now_ns.saturating_add(wait_ns.ceil() as u64))
    }

    /// A connection leaves the queue, and has used its token or not.
    fn leave(&mut self, has_begun: bool) {
        self.queued = self.queued.saturating_sub(1);
        if !has_begun {
            self.tokens = (self.tokens + 1.0).min(self.capacity());
        }
    }
}

/// `serverStatus`: `connections.queuedForEstablishment` and `connections.establishmentRateLimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EstablishmentCounts {
    /// Connections in the queue.
    pub queued: u64,
    /// Connections closed because the queue was full.
    pub rejected: u64,
    /// Connections whose client left the queue.
    pub interrupted: u64,
}

/// See the module's head.
pub struct EstablishmentLimiter {
    enabled: AtomicBool,
    bucket: Mutex<Bucket>,
    rejected: AtomicU64,
    interrupted: AtomicU64,
}

impl Default for EstablishmentLimiter {
    fn default() -> Self {
        EstablishmentLimiter {
            enabled: AtomicBool::new(false),
            bucket: Mutex::new(Bucket::new(EstablishmentRate::default(), monotonic_ns())),
            rejected: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
        }
    }
}

impl EstablishmentLimiter {
    /// Switches it on or off. Connections that wait go on waiting.
    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Changes the rate, for connections that come from now on.
    pub fn change_rate(&self, change: impl FnOnce(&mut EstablishmentRate)) {
        let mut bucket = self.lock();
        let mut rate = bucket.rate;
        change(&mut rate);
        bucket.set_rate(rate, monotonic_ns());
    }

    /// What it has done.
    pub fn counts(&self) -> EstablishmentCounts {
        EstablishmentCounts {
            queued: self.lock().queued,
            rejected: self.rejected.load(Ordering::Relaxed),
            interrupted: self.interrupted.load(Ordering::Relaxed),
        }
    }

    /// Admits a connection: at once, or with a wait before it. `Err`: it is to be closed.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<Option<Queued>, Full> {
        if !self.enabled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.lock().admit(monotonic_ns()) {
            Admission::Now => Ok(None),
            Admission::At(at_ns) => {
                Ok(Some(Queued { limiter: Arc::clone(self), at_ns, has_begun: false }))
            }
            Admission::Refused => {
                self.rejected.fetch_add(1, Ordering::Relaxed);
                Err(Full)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no token, and no place in the queue.
pub(crate) struct Full;

/// A connection's place in the queue.
pub(crate) struct Queued {
    limiter: Arc<EstablishmentLimiter>,
    at_ns: u64,
    has_begun: bool,
}

impl Queued {
    /// Waits for its turn, on the session's task. `Err`: the client or the server has ended the session.
    pub async fn wait(
        mut self,
        worker: &WorkerHandle,
        liveness: &Liveness,
    ) -> Result<(), SessionEnd> {
        let mut sleep = worker.sleep_until_ns(self.at_ns);
        poll_fn(|cx| {
            if liveness.is_draining() {
                return Poll::Ready(Err(SessionEnd::Cancelled));
            }
            if liveness.is_peer_closed() {
                self.limiter.interrupted.fetch_add(1, Ordering::Relaxed);
                return Poll::Ready(Err(SessionEnd::PeerClosed));
            }
            Pin::new(&mut sleep).poll(cx).map(Ok)
        })
        .await?;
        self.has_begun = true;
        Ok(())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.limiter.lock().leave(self.has_begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn bucket(per_second: f64, burst_seconds: f64, queue_max: u64) -> Bucket {
        Bucket::new(EstablishmentRate { per_second, burst_seconds, queue_max }, 0)
    }

    fn admitted(bucket: &mut Bucket, now_ns: u64, attempts: usize) -> usize {
        (0..attempts).filter(|_| bucket.admit(now_ns) == Admission::Now).count()
    }

    #[test]
    fn a_burst_is_admitted_and_then_the_rate() {
        let mut bucket = bucket(10.0, 2.0, 0);
        assert_eq!(admitted(&mut bucket, 0, 100), 20);
        assert_eq!(admitted(&mut bucket, SECOND_NS / 10, 100), 1);
        assert_eq!(admitted(&mut bucket, SECOND_NS, 100), 9);
        // No more than the burst is saved up.
        assert_eq!(admitted(&mut bucket, 1_000 * SECOND_NS, 100), 20);
        // A time before the last adds nothing.
        assert_eq!(admitted(&mut bucket, 999 * SECOND_NS, 100), 0);
    }

    #[test]
    fn any_rhythm_of_attempts_gets_the_rate() {
        for step_ns in [1_000_000, 3_333_333, 7_000_000, 99_999_999, 100_000_000] {
            let mut bucket = bucket(10.0, 0.1, 0);
            let times = (0..).map(|n| n * step_ns).take_while(|now_ns| *now_ns < 100 * SECOND_NS);
            let all: usize = times.map(|now_ns| admitted(&mut bucket, now_ns, 1)).sum();
            // One is there at the beginning; an attempt may come a step after its token.
            let least = 100 * SECOND_NS / (SECOND_NS / 10 + step_ns);
            assert!(all as u64 >= least && all <= 1_001, "{step_ns}: {all}");
        }
    }

    #[test]
    fn the_queue_goes_on_at_the_rate_and_is_bounded() {
        let mut bucket = bucket(10.0, 0.1, 3);
        assert_eq!(bucket.admit(0), Admission::Now);
        for place in 1..=3 {
            assert_eq!(bucket.admit(0), Admission::At(place * SECOND_NS / 10));
        }
        assert_eq!(bucket.admit(0), Admission::Refused);
        // The first has begun: there is a place again, behind the others.
        bucket.leave(true);
        assert_eq!(bucket.admit(SECOND_NS / 10), Admission::At(4 * SECOND_NS / 10));
        assert_eq!(bucket.admit(SECOND_NS / 10), Admission::Refused);
        (0..3).for_each(|_| bucket.leave(true));
        assert_eq!(bucket.queued, 0);
        assert_eq!(bucket.admit(4 * SECOND_NS / 10), Admission::At(SECOND_NS / 2));
        bucket.leave(true);
        assert_eq!(bucket.admit(6 * SECOND_NS / 10), Admission::Now);
    }

    #[test]
    fn one_that_leaves_the_queue_gives_its_token_back() {
        let mut bucket = bucket(1.0, 1.0, 2);
        assert_eq!(bucket.admit(0), Admission::Now);
        assert_eq!(bucket.admit(0), Admission::At(SECOND_NS));
        bucket.leave(false);
        assert_eq!(bucket.admit(0), Admission::At(SECOND_NS));
        bucket.leave(false);
        assert_eq!(bucket.admit(SECOND_NS), Admission::Now);
        assert_eq!(bucket.admit(SECOND_NS), Admission::At(2 * SECOND_NS));
    }

    #[test]
    fn without_a_rate_all_are_admitted_and_a_lower_one_acts_at_once() {
        let mut bucket = Bucket::new(EstablishmentRate::default(), 0);
        assert_eq!(admitted(&mut bucket, 0, 100_000), 100_000);
        let rate = EstablishmentRate { per_second: 20.0, burst_seconds: 1.0, queue_max: 1 };
        bucket.set_rate(rate, 0);
        assert_eq!(admitted(&mut bucket, 0, 100), 20);
        assert_eq!(bucket.queued, 1);
        // A burst of less than one connection admits one.
        bucket.leave(true);
        bucket.set_rate(EstablishmentRate { burst_seconds: 1e-9, ..rate }, 60 * SECOND_NS);
        assert_eq!(admitted(&mut bucket, 60 * SECOND_NS, 1), 1);
    }
}
