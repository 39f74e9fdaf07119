//! A worker's loop: wait for events, run ready tasks, end the tick, wait again.
//!
//! A *tick* polls each task that was ready at its beginning once. At its end the replies in the outbox are sent
//! and, if a task requested it, the tick-end hooks run. Tasks that they wake run in a further tick before the next
//! look at epoll, so a deferred reply leaves in the same turn as the write that completed it. So a task that is
//! always ready costs others one poll per turn. Among the tasks that use up whole time slices
//! (`work::take_gave_way`), one gets a slice between two looks at events.

use super::local::{Local, Ran};
use super::placement::Placement;
use super::shared::WorkerShared;
use super::spin::SpinTime;
use super::{ExecutorShared, slab::Key};
use crate::sys::{EventList, monotonic_ns};
use kauri_base::log::{self, Attr};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Ticks in a row without a look at epoll, while tick-end hooks keep waking tasks.
const TICKS_MAX: usize = 4;
/// While there are rings to poll, epoll is called once in this many polls: it costs a system call.
const LOOKS_AN_EPOLL: u32 = 32;
/// The clock and other work are checked once in this many polls.
const LOOKS_A_CLOCK: u32 = 8;
/// The event key of the worker's own eventfd.
const EVENTFD_KEY: Key = u64::MAX;

pub(super) struct Worker {
    local: Rc<Local>,
    executor: Arc<ExecutorShared>,
    events: EventList,
    spin_time: SpinTime,
    placement: Placement,
    /// When there was nothing left to do; 0: there was something all along.
    idle_since_ns: u64,
    /// Polls of rings since the last call of epoll.
    looks: u32,
}

/// The result of polling.
enum Found {
    Nothing,
    /// Something in the rings: all else can wait.
    InRings,
    /// Events, or something else to do.
    Other,
}

impl Worker {
    pub fn new(
        shared: Arc<WorkerShared>,
        executor: Arc<ExecutorShared>,
        placement: Placement,
    ) -> io::Result<Self> {
        let local = Local::new(shared)?;
        local.epoll.add_readable(local.shared.event.as_fd(), EVENTFD_KEY)?;
        local.outbox.open(executor.replies_held_ns);
        Ok(Worker {
            local,
            executor,
            events: EventList::new(EVENTS_MAX),
            spin_time: SpinTime::new(0),
            placement,
            idle_since_ns: 0,
            looks: 0,
        })
    }

    pub fn run(mut self) {
        Local::set_current(Some(Rc::clone(&self.local)));
        while !self.local.shared.stop.load(Ordering::Acquire) {
            if let Err(error) = self.wait() {
                let attr = Attr::new().str("error", error.to_string());
                log::error("NETWORK", 7_100_002, "worker", "epoll failed; worker ends", attr);
                break;
            }
            self.run_ready();
        }
        drop(self.local.shared.take_last_mail());
        self.local.drop_tasks();
        self.local.completions.let_all_go();
        Local::set_current(None);
    }

    /// Waits for events, mail or timers, and queues the tasks that they wake.
    fn wait(&mut self) -> io::Result<()> {
        if self.looks_into_rings() && self.look_into_rings() && self.rings_come_first() {
            return Ok(());
        }
        let found = if self.local.runnable() == 0 { self.spin()? } else { Found::Nothing };
        if let Found::InRings = found {
            return Ok(());
        }
        let shared = Arc::clone(&self.local.shared);
        if let Found::Nothing = found {
            let sleeps = self.local.runnable() == 0
                && self.local.rings.fall_asleep()
                && self.local.completions.fall_asleep()
                && shared.fall_asleep();
            let timeout = if sleeps { self.until_next_timer() } else { Some(Duration::ZERO) };
            self.ask_epoll(timeout)?;
            shared.wake_up();
        }
        let now_ns = monotonic_ns();
        self.note_end_of_idling(now_ns);
        for event in self.events.iter() {
            if event.key == EVENTFD_KEY {
                shared.event.reset();
            } else {
                self.local.dispatch(event, now_ns);
            }
        }
        self.local.completions.take_reports();
        let mail = shared.take_mail();
        mail.wakes.into_iter().for_each(|task| self.local.push(task));
        for start in mail.starts {
            if let Some(future) = start(&self.local) {
                self.local.start(future);
            }
        }
        if shared.next_deadline_ns() <= now_ns {
            let due = shared.with_timers(|timers| timers.due(now_ns));
            due.into_iter().for_each(|waker| waker.wake());
        }
        Ok(())
    }

    /// Whether anything besides epoll must be polled.
    fn looks_into_rings(&self) -> bool {
        !self.local.rings.is_empty() || !self.local.completions.is_empty()
    }

    /// Polls the hot rings and the completion queues. Whether anything arrived.
    fn look_into_rings(&mut self) -> bool {
        self.looks += 1;
        self.local.rings.look() | self.local.completions.look()
    }

    /// Whether what came in rings is dealt with before anything else is looked for: not for long, and not
    /// before what others want.
    fn rings_come_first(&self) -> bool {
        self.looks < LOOKS_AN_EPOLL && !self.local.shared.is_called()
    }

    fn ask_epoll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.looks = 0;
        self.local.epoll.wait(&mut self.events, timeout)?;
        self.local.shared.stats.waits.add(1);
        Ok(())
    }

    fn note_end_of_idling(&mut self, now_ns: u64) {
        if self.idle_since_ns > 0 {
            self.spin_time.came_after(now_ns.saturating_sub(self.idle_since_ns));
            self.idle_since_ns = 0;
        }
    }

    fn until_next_timer(&self) -> Option<Duration> {
        match self.local.shared.next_deadline_ns() {
            u64::MAX => None,
            deadline_ns => Some(Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns()))),
        }
    }

    /// Looks for events without sleeping for as long as the setting says and it pays.
    fn spin(&mut self) -> io::Result<Found> {
        let spin_us = self.executor.spin_us.load(Ordering::Relaxed);
        if spin_us == 0 {
            return Ok(Found::Nothing);
        }
        self.idle_since_ns = monotonic_ns();
        let spin_ns = self.spin_time.allowed_ns(spin_us.saturating_mul(1000));
        if spin_ns == 0 {
            return Ok(Found::Nothing);
        }
        let shared = Arc::clone(&self.local.shared);
        let end_ns = self.idle_since_ns.saturating_add(spin_ns);
        self.events.clear();
        let rings = self.looks_into_rings();
        for spins in 1u32.. {
            shared.stats.spins.add(1);
            let came = rings && self.look_into_rings();
            if came && self.rings_come_first() {
                shared.stats.spin_hits.add(1);
                self.note_end_of_idling(monotonic_ns());
                return Ok(Found::InRings);
            }
            if !rings || self.looks >= LOOKS_AN_EPOLL {
                self.ask_epoll(Some(Duration::ZERO))?;
            } else if !came && !spins.is_multiple_of(LOOKS_A_CLOCK) {
                std::hint::spin_loop();
                continue;
            }
            let now_ns = monotonic_ns();
            let deadline_ns = shared.next_deadline_ns();
            if came || !self.events.is_empty() || shared.is_called() || deadline_ns <= now_ns {
                shared.stats.spin_hits.add(1);
                return Ok(Found::Other);
            }
            if now_ns >= end_ns {
                return Ok(Found::Nothing);
            }
            std::hint::spin_loop();
        }
        Ok(Found::Nothing)
    }

    fn run_ready(&mut self) {
        let shared = &self.local.shared;
        for tick in 0..TICKS_MAX {
            let ready = self.local.runnable();
            if ready == 0 {
                return;
            }
            let mut polls = 0;
            for _ in 0..ready {
                polls += u64::from(self.local.run_one() == Ran::Polled);
            }
            if tick == 0 {
                polls += u64::from(self.local.run_long() == Ran::Polled);
            }
            shared.stats.ticks.add(1);
            shared.stats.polls.add(polls);
            if self.placement.note_tick(ready) {
                shared.stays.store(self.placement.stays(), Ordering::Relaxed);
            }
            let sent = self.local.outbox.end_tick();
            let wanted = shared.tick_end_wanted.load(Ordering::Relaxed)
                && shared.tick_end_wanted.swap(false, Ordering::AcqRel);
            if wanted {
                self.executor.run_tick_end_hooks();
            } else if !sent {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::io::{IoSource, READ};
    use crate::executor::rings::{Polled, RingWatch};
    use crate::executor::{ExecutorOptions, ServiceExecutor};
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::{Sender, channel};

    /// A ring in which there is something at every so manieth look.
    struct Busy {
        each: u32,
        looks: Cell<u32>,
    }

    impl Polled for Busy {
        fn has_arrivals(&self) -> bool {
            self.looks.set(self.looks.get() + 1);
            self.looks.get().is_multiple_of(self.each)
        }

        fn fall_asleep(&self) -> bool {
            false
        }

        fn is_asleep(&self) -> bool {
            false
        }
    }

    async fn serves_a_busy_ring(local: Rc<Local>, each: u32, served: Arc<AtomicU32>) {
        let ring = Rc::new(Busy { each, looks: Cell::new(0) });
        let watch = RingWatch::new(ring, Rc::new(IoSource::new(Arc::default())));
        loop {
            local.rings.touch(&watch);
            poll_fn(|cx| watch.io.poll_ready(cx, READ)).await;
            watch.io.exhausted(READ);
            served.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn hears(local: Rc<Local>, socket: UnixStream, report: Sender<()>) {
        let source = Rc::new(IoSource::new(Arc::default()));
        local.watch(socket.as_fd(), Rc::clone(&source)).unwrap();
        poll_fn(|cx| source.poll_ready(cx, READ)).await;
        report.send(()).unwrap();
    }

    #[test]
    fn a_descriptor_is_looked_at_however_busy_rings_are() {
        for (each, spin_us) in [(1, 0), (1, 1_000_000), (4, 1_000_000)] {
            hears_beside_a_busy_ring(each, spin_us);
        }
    }

    fn hears_beside_a_busy_ring(each: u32, spin_us: u64) {
        let options = ExecutorOptions { workers: 1, spin_us, ..Default::default() };
        let executor = ServiceExecutor::start(&options).unwrap();
        let (mut tells, socket) = UnixStream::pair().unwrap();
        let (report, reported) = channel();
        let served = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&served);
        executor.workers()[0].spawn(async move {
            let local = Local::current().unwrap();
            local.start(Box::pin(hears(Rc::clone(&local), socket, report)));
            local.start(Box::pin(serves_a_busy_ring(Rc::clone(&local), each, count)));
        });
        while served.load(Ordering::Relaxed) < 2 * LOOKS_AN_EPOLL {
            std::thread::yield_now();
        }
        tells.write_all(&[1]).unwrap();
        reported.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}
