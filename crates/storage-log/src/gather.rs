//! Decides whether the next sync waits for more commits (group commit).
//!
//! Assume that the same number of clients wait as before, and each commits again as soon as it is woken. A sync
//! that starts for the first of them makes all others wait for a second sync. So the flusher waits until as many
//! commits are pending as at the last sync, at most half as long as a sync takes, as long as this succeeds. After
//! an unsuccessful wait it stops waiting for a while, longer each time.
//!
//! This module must only know numbers and times.

use std::time::Duration;

/// No sync is put off for longer, however long syncs take.
const PATIENCE_MAX: Duration = Duration::from_millis(5);
/// Number of syncs without a delay after many unsuccessful waits.
const PAUSE_MAX: u32 = 256;

/// See the module's head.
#[derive(Default)]
pub struct Gather {
    /// Number of waiters when the last sync ended.
    under_way: usize,
    /// Average duration of a sync.
    sync: Duration,
    /// Number of syncs without a delay from now on.
    pausing: u32,
    /// Number of syncs without a delay after the last unsuccessful wait.
    pause: u32,
}

impl Gather {
    /// A sync took this long, and this many waited when it ended, for it or for a later one.
    pub fn synced(&mut self, took: Duration, under_way: usize) {
        self.under_way = under_way;
        self.sync = if self.sync.is_zero() { took } else { (self.sync * 7 + took) / 8 };
    }

    /// For how many, and how long at most, the next sync is to wait; `None` if it isn't.
    pub fn wanted(&mut self) -> Option<(usize, Duration)> {
        if self.pausing > 0 {
            self.pausing -= 1;
            return None;
        }
        (self.under_way > 1).then(|| (self.under_way, (self.sync / 2).min(PATIENCE_MAX)))
    }

    /// Says whether as many came as were waited for.
    pub fn waited(&mut self, all_came: bool) {
        self.pause = if all_came { 0 } else { (self.pause * 2).clamp(1, PAUSE_MAX) };
        self.pausing = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(200);

    fn after_sync(under_way: usize) -> Gather {
        let mut gather = Gather::default();
        gather.synced(SYNC, under_way);
        gather
    }

    #[test]
    fn one_alone_waits_for_nobody() {
        assert_eq!(Gather::default().wanted(), None);
        assert_eq!(after_sync(0).wanted(), None);
        assert_eq!(after_sync(1).wanted(), None);
    }

    #[test]
    fn as_many_as_were_under_way_are_waited_for_half_as_long_as_a_sync_takes() {
        let mut gather = after_sync(64);
        assert_eq!(gather.wanted(), Some((64, SYNC / 2)));
        gather.waited(true);
        gather.synced(SYNC * 9, 63);
        assert_eq!(gather.wanted(), Some((63, SYNC)));
    }

    #[test]
    fn patience_has_a_bound() {
        let mut gather = Gather::default();
        gather.synced(Duration::from_secs(1), 2);
        assert_eq!(gather.wanted(), Some((2, PATIENCE_MAX)));
    }

    #[test]
    fn who_has_waited_in_vain_does_so_ever_more_seldom_and_at_once_after_success() {
        let mut gather = after_sync(2);
        let mut waits = Vec::new();
        for round in 0..2000 {
            if gather.wanted().is_some() {
                waits.push(round);
                gather.waited(false);
            }
        }
        let pauses: Vec<_> = waits.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256, 256, 256, 256]);
        while gather.wanted().is_none() {}
        gather.waited(true);
        assert!(gather.wanted().is_some());
    }
}
