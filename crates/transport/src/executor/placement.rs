//! Decides where a worker runs. With one request at a time, the kernel places it. With several requests at a time,
//! it is pinned to a core of its own and lets the clients on that core run first.
//!
//! A client that waits for each reply and its worker are fastest on one core, and the kernel moves them there.
//! Under load the kernel balances cores, which may leave two workers on one core and their clients on the other for
//! seconds: every message crosses cores.
//!
//! A client with several connections that shares the worker's core is preempted after its first request, when the
//! worker wakes. If the client may send its other requests first, the worker gets more requests per wake, with
//! fewer context switches.

use crate::sys;

/// Ticks from one decision to the next.
const TICKS: u32 = 4096;
/// A worker that polls at least this many tasks per two ticks is pinned to its core.
const STAYS_FROM: u32 = 4;
/// A worker that polls at most this many per two ticks is unpinned.
const LEAVES_AT: u32 = 3;

/// The placement of one worker. Used on its own thread.
pub(super) struct Placement {
    /// Its own core, and all permitted cores; none if it is never pinned.
    cores: Option<Cores>,
    stays: bool,
    /// It lets others finish because of that.
    lets_finish: bool,
    ticks: u32,
    polls: u32,
}

/// The cores of a worker.
#[derive(Clone)]
pub(super) struct Cores {
    pub own: usize,
    pub all: Vec<usize>,
}

impl Placement {
    pub fn new(cores: Option<Cores>) -> Self {
        Placement { cores, stays: false, lets_finish: false, ticks: 0, polls: 0 }
    }

    /// Records a tick with this many polls. Whether the placement has changed.
    #[inline]
    pub fn note_tick(&mut self, polls: usize) -> bool {
        self.ticks += 1;
        self.polls = self.polls.saturating_add(polls as u32);
        let due = self.ticks == TICKS;
        if due {
            self.decide();
        }
        due
    }

    /// Whether the worker stays on its core.
    pub fn stays(&self) -> bool {
        self.stays
    }

    #[cold]
    fn decide(&mut self) {
        let each_two = self.polls / (TICKS / 2);
        (self.ticks, self.polls) = (0, 0);
        let Some(cores) = &self.cores else { return };
        let stays = match self.stays {
            false => each_two >= STAYS_FROM,
            true => each_two > LEAVES_AT,
        };
        if stays != self.stays {
            let own = [cores.own];
            // Who may not say where and when it runs runs as the kernel likes.
            let _ = sys::run_on_cores(if stays { &own } else { &cores.all });
            // One that was started with another policy keeps that.
            if stays || self.lets_finish {
                self.lets_finish = sys::let_others_finish(stays) && stays;
            }
            self.stays = stays;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On how many cores this thread may run after a while of so many polls in two ticks.
    fn after(placement: &mut Placement, each_two: usize) -> usize {
        for tick in 0..TICKS as usize {
            placement.note_tick(each_two / 2 + (each_two * tick) % 2);
        }
        sys::allowed_cores().unwrap().len()
    }

    #[test]
    fn a_worker_stays_on_its_core_while_it_has_several_requests_at_a_time() {
        let all = sys::allowed_cores().unwrap();
        let (count, own) = (all.len(), *all.last().unwrap());
        let mut placement = Placement::new(Some(Cores { own, all }));
        assert_eq!(after(&mut placement, 2), count, "one at a time");
        assert_eq!(after(&mut placement, 3), count, "hardly more");
        assert_eq!(after(&mut placement, 4), 1);
        assert_eq!(sys::allowed_cores().unwrap(), [own]);
        assert!(!sys::let_others_finish(true), "it does");
        assert_eq!(after(&mut placement, 20), 1);
        assert_eq!(after(&mut placement, 4), 1, "as before");
        assert_eq!(after(&mut placement, 3), count);
        assert!(!sys::let_others_finish(false), "no longer");
        // One that was started so stays so.
        assert!(sys::let_others_finish(true));
        assert_eq!((after(&mut placement, 4), after(&mut placement, 3)), (1, count));
        assert!(!sys::let_others_finish(true));
        let mut placement = Placement::new(None);
        assert_eq!(after(&mut placement, 20), count, "it has none");
    }
}
