//! Deadlines of waits.

use std::io;
use std::time::{Duration, Instant};

/// A moment; without one it is for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// For ever.
    pub const NEVER: Deadline = Deadline(None);

    /// So long from now on; `None` is for ever, and so is what the clock can't count.
    pub fn after(time: Option<Duration>) -> Self {
        Deadline(time.and_then(|time| Instant::now().checked_add(time)))
    }

    /// The one of two that comes first.
    pub fn or_earlier(self, other: Deadline) -> Self {
        match (self.0, other.0) {
            (Some(one), Some(other)) => Deadline(Some(one.min(other))),
            (one, other) => Deadline(one.or(other)),
        }
    }

    /// The end of one of `parts` equal parts of the remaining time.
    pub fn part(self, parts: usize) -> Self {
        let parts = u32::try_from(parts).unwrap_or(u32::MAX).max(1);
        let now = Instant::now();
        Deadline(self.0.map(|end| now + end.saturating_duration_since(now) / parts))
    }

    /// The remaining time, never zero; `None` is forever.
    pub fn left(self) -> io::Result<Option<Duration>> {
        let Some(end) = self.0 else { return Ok(None) };
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_deadline_is_the_earlier_one_and_a_part_of_it_comes_before_it() {
        let [far, farther] = [HOUR, 2 * HOUR].map(|time| Deadline::after(Some(time)));
        for (one, other, earlier) in [
            (far, farther, far),
            (farther, far, far),
            (far, Deadline::NEVER, far),
            (Deadline::NEVER, far, far),
            (Deadline::NEVER, Deadline::NEVER, Deadline::NEVER),
        ] {
            assert_eq!(one.or_earlier(other), earlier);
        }
        let third = farther.part(3).left().unwrap().unwrap();
        assert!(third > HOUR / 2 && third <= 2 * HOUR / 3);
        assert_eq!(Deadline::NEVER.part(2), Deadline::NEVER);
    }

    #[test]
    fn what_is_over_leaves_nothing() {
        let over = Deadline::after(Some(Duration::ZERO));
        for deadline in [over, over.part(2)] {
            assert_eq!(deadline.left().unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        for endless in
            [Deadline::NEVER, Deadline::after(None), Deadline::after(Some(Duration::MAX))]
        {
            assert_eq!(endless.left().unwrap(), None);
        }
    }
}
