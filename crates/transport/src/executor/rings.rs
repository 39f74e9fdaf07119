//! The rings that a worker polls, because they received data recently.
//!
//! A ring that its session waits for is either *hot*, and polled whenever the worker looks for events, or *asleep*:
//! then its peer signals a descriptor that epoll watches. Before the worker sleeps, all hot rings fall asleep, so
//! an idle ring costs nothing.

use super::io::IoSource;
use crate::sys::{Event, monotonic_ns};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Maximum number of rings per look. If more are hot, the others are polled the next time.
const HOT_MAX: usize = 64;
/// Times that the worker may sleep without anything having come before a ring is hot no more.
const IDLE_SLEEPS_MAX: u32 = 64;

/// The worker's requirements of a ring.
pub(crate) trait Polled {
    /// Whether there are unread immediates.
    fn has_arrivals(&self) -> bool;
    /// From now on the peer signals immediates. False: there are some already.
    fn fall_asleep(&self) -> bool;
    /// Whether nothing has arrived since `fall_asleep`.
    fn is_asleep(&self) -> bool;
}

/// A session's ring as its worker sees it.
pub(crate) struct RingWatch {
    ring: Rc<dyn Polled>,
    /// Told when something has come.
    pub io: Rc<IoSource>,
    hot: Cell<bool>,
    idle_sleeps: Cell<u32>,
}

impl RingWatch {
    pub fn new(ring: Rc<dyn Polled>, io: Rc<IoSource>) -> Rc<Self> {
        Rc::new(RingWatch { ring, io, hot: Cell::new(false), idle_sleeps: Cell::new(0) })
    }

    /// Wakes the session if it waits for an arrival.
    fn look(&self) -> bool {
        let comes = self.io.is_awaited() && self.ring.has_arrivals();
        if comes {
            let event = Event { key: 0, readable: true, writable: true, closed: false };
            self.io.dispatch(event, monotonic_ns());
        }
        comes
    }
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct HotRings {
    rings: RefCell<Vec<Rc<RingWatch>>>,
    /// Where the next look begins.
    next: Cell<usize>,
}

impl HotRings {
    /// For a session that is about to wait for its ring, or has heard something from it.
    pub fn touch(&self, watch: &Rc<RingWatch>) {
        watch.idle_sleeps.set(0);
        if !watch.hot.replace(true) {
            self.rings.borrow_mut().push(Rc::clone(watch));
        }
    }

    /// For a ring that ends.
    pub fn forget(&self, watch: &Rc<RingWatch>) {
        if watch.hot.replace(false) {
            self.rings.borrow_mut().retain(|known| !Rc::ptr_eq(known, watch));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rings.borrow().is_empty()
    }

    /// Wakes sessions that wait for arrivals. Whether there were any.
    pub fn look(&self) -> bool {
        let rings = self.rings.borrow();
        if rings.is_empty() {
            return false;
        }
        let begin = if self.next.get() < rings.len() { self.next.get() } else { 0 };
        let (before, from) = rings.split_at(begin);
        let some = from.iter().chain(before).take(HOT_MAX);
        let came = some.fold(false, |any, watch| watch.look() | any);
        self.next.set(begin + HOT_MAX.min(rings.len()));
        came
    }

    /// Called before the worker sleeps: all awaited rings fall asleep. False if something has arrived; the sessions
    /// were woken.
    pub fn fall_asleep(&self) -> bool {
        let mut came = false;
        let mut rings = self.rings.borrow_mut();
        let crowded = rings.len() > HOT_MAX;
        rings.retain(|watch| {
            if !watch.io.is_awaited() {
                return true;
            }
            if !watch.ring.is_asleep() && !watch.ring.fall_asleep() {
                watch.look();
                came = true;
                return true;
            }
            let idle = watch.idle_sleeps.get() + 1;
            watch.idle_sleeps.set(idle);
            let stays = idle <= IDLE_SLEEPS_MAX && !crowded;
            watch.hot.set(stays);
            stays
        });
        !came
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::io::READ;
    use std::task::{Context, Waker};

    #[derive(Default)]
    struct Fake {
        arrived: Cell<bool>,
        asleep: Cell<bool>,
    }

    impl Polled for Fake {
        fn has_arrivals(&self) -> bool {
            self.arrived.get()
        }

        fn fall_asleep(&self) -> bool {
            self.asleep.set(!self.arrived.get());
            self.asleep.get()
        }

        fn is_asleep(&self) -> bool {
            self.asleep.get()
        }
    }

    fn hot(count: usize, awaited: bool) -> (HotRings, Vec<(Rc<Fake>, Rc<RingWatch>)>) {
        let hot = HotRings::default();
        let rings = (0..count).map(|_| {
            let fake = Rc::new(Fake::default());
            let io = Rc::new(IoSource::new(Default::default()));
            if awaited {
                assert!(io.poll_ready(&mut Context::from_waker(Waker::noop()), READ).is_pending());
            }
            let watch = RingWatch::new(fake.clone(), io);
            hot.touch(&watch);
            (fake, watch)
        });
        let rings = rings.collect();
        (hot, rings)
    }

    #[test]
    fn a_look_is_bounded_and_all_get_their_turn() {
        let (hot, rings) = hot(5 * HOT_MAX, true);
        for (fake, watch) in &rings {
            fake.arrived.set(true);
            let looks = (1..=5).find(|_| hot.look());
            assert!(looks.is_some(), "it was not found in five looks");
            fake.arrived.set(false);
            watch.io.exhausted(READ);
        }
        rings.iter().for_each(|(fake, _)| fake.arrived.set(true));
        hot.look();
        assert_eq!(rings.iter().filter(|(_, watch)| watch.io.is_ready(READ)).count(), HOT_MAX);
    }

    #[test]
    fn all_that_are_awaited_fall_asleep_unless_something_has_come() {
        let (hot, rings) = hot(2 * HOT_MAX, true);
        assert!(hot.fall_asleep());
        assert!(rings.iter().all(|(fake, _)| fake.asleep.get()));
        assert!(hot.is_empty(), "more than are looked into");
        let (fake, watch) = &rings[7];
        hot.touch(watch);
        fake.asleep.set(false);
        fake.arrived.set(true);
        assert!(!hot.fall_asleep());
        assert!(watch.io.is_ready(READ), "its session was told");
    }

    #[test]
    fn an_idle_ring_is_hot_no_more_and_a_busy_one_is_left_alone() {
        let (idle, _rings) = hot(1, true);
        (0..=IDLE_SLEEPS_MAX).for_each(|_| assert!(idle.fall_asleep()));
        assert!(idle.is_empty());
        let (busy, rings) = hot(1, false);
        rings[0].0.arrived.set(true);
        assert!(busy.fall_asleep(), "nobody waits for it");
        assert!(!busy.look() && !busy.is_empty() && !rings[0].0.asleep.get());
    }
}
