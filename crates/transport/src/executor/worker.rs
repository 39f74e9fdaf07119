//! A worker's loop: wait for events, run what is ready, end the tick, wait again.
//!
//! A *tick* polls each task that was ready when it began once. At its end, if a task asked for that,
//! the tick-end hooks run; what they wake runs in a further tick before the next look at epoll, so
//! that a deferred reply leaves in the same turn as the write that completed it. A task that is
//! always ready therefore costs the others one poll a turn, no more.

use super::local::Local;
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
/// Turns in a row that are the rings' alone, when there is always something.
const RING_TURNS_MAX: u32 = 16;
/// While there are rings to look into, epoll is asked once in so many looks: it costs a system call.
const SPINS_AN_EPOLL: u32 = 32;
/// The event key of the worker's own eventfd.
const EVENTFD_KEY: Key = u64::MAX;

pub(super) struct Worker {
    local: Rc<Local>,
    executor: Arc<ExecutorShared>,
    events: EventList,
    spin_time: SpinTime,
    /// When there was nothing left to do; 0: there was something all along.
    idle_since_ns: u64,
    /// Times in a row that rings had something and epoll was not asked.
    ring_turns: u32,
}

impl Worker {
    pub fn new(shared: Arc<WorkerShared>, executor: Arc<ExecutorShared>) -> io::Result<Self> {
        let local = Local::new(shared)?;
        local.epoll.add_readable(local.shared.event.as_fd(), EVENTFD_KEY)?;
        Ok(Worker {
            local,
            executor,
            events: EventList::new(EVENTS_MAX),
            spin_time: SpinTime::new(0),
            idle_since_ns: 0,
            ring_turns: 0,
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
        self.local.shared.stop.store(true, Ordering::Release);
        drop(self.local.shared.take_mail());
        self.local.drop_tasks();
        self.local.completions.let_all_go();
        Local::set_current(None);
    }

    /// Waits for events, mail or timers, and queues the tasks that they wake.
    fn wait(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.local.shared);
        let stats = &shared.stats;
        if self.looks_into_rings() && self.turn_to_rings() {
            return Ok(());
        }
        let mut polled = false;
        if self.local.runnable() == 0 {
            polled = self.spin()?;
        }
        if !polled {
            let sleeps = self.local.runnable() == 0
                && self.local.rings.fall_asleep(monotonic_ns())
                && self.local.completions.fall_asleep(monotonic_ns())
                && shared.fall_asleep();
            let timeout = if sleeps { self.until_next_timer() } else { Some(Duration::ZERO) };
            self.local.epoll.wait(&mut self.events, timeout)?;
            stats.waits.add(1);
            shared.wake_up();
        }
        let now_ns = monotonic_ns();
        if self.idle_since_ns > 0 {
            self.spin_time.came_after(now_ns - self.idle_since_ns);
            self.idle_since_ns = 0;
        }
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

    /// Whether there is something to look into besides epoll.
    fn looks_into_rings(&self) -> bool {
        !self.local.rings.is_empty() || !self.local.completions.is_empty()
    }

    /// Looks into the hot rings and the completion queues. Whether something came.
    fn look_into_rings(&self, now_ns: u64) -> bool {
        self.local.rings.look(now_ns) | self.local.completions.look(now_ns)
    }

    /// The same. True if something came there, so that epoll can wait; but not for long.
    fn turn_to_rings(&mut self) -> bool {
        let came = self.look_into_rings(monotonic_ns());
        self.ring_turns = if came { self.ring_turns + 1 } else { 0 };
        if self.ring_turns > RING_TURNS_MAX || self.local.shared.is_called() {
            self.ring_turns = 0;
            return false;
        }
        came
    }

    fn until_next_timer(&self) -> Option<Duration> {
        match self.local.shared.next_deadline_ns() {
            u64::MAX => None,
            deadline_ns => Some(Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns()))),
        }
    }

    /// Looks for events without sleeping for as long as the setting says and it pays. True if it found any,
    /// or anything else to do.
    fn spin(&mut self) -> io::Result<bool> {
        let spin_us = self.executor.spin_us.load(Ordering::Relaxed);
        if spin_us == 0 {
            return Ok(false);
        }
        self.idle_since_ns = monotonic_ns();
        let spin_ns = self.spin_time.allowed_ns(spin_us.saturating_mul(1000));
        if spin_ns == 0 {
            return Ok(false);
        }
        let shared = &self.local.shared;
        let end_ns = self.idle_since_ns.saturating_add(spin_ns);
        self.events.clear();
        let epoll_each = if self.looks_into_rings() { SPINS_AN_EPOLL } else { 1 };
        for spins in 1u32.. {
            shared.stats.spins.add(1);
            let now_ns = monotonic_ns();
            if self.look_into_rings(now_ns) {
                shared.stats.spin_hits.add(1);
                return Ok(true);
            }
            if spins.is_multiple_of(epoll_each) {
                self.local.epoll.wait(&mut self.events, Some(Duration::ZERO))?;
                shared.stats.waits.add(1);
            }
            if !self.events.is_empty() || shared.is_called() || shared.next_deadline_ns() <= now_ns
            {
                shared.stats.spin_hits.add(1);
                return Ok(true);
            }
            if now_ns >= end_ns {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    fn run_ready(&self) {
        let shared = &self.local.shared;
        for _ in 0..TICKS_MAX {
            let ready = self.local.runnable();
            if ready == 0 {
                return;
            }
            for _ in 0..ready {
                self.local.run_one();
            }
            shared.stats.ticks.add(1);
            shared.stats.polls.add(ready as u64);
            if !shared.tick_end_wanted.load(Ordering::Relaxed)
                || !shared.tick_end_wanted.swap(false, Ordering::AcqRel)
            {
                return;
            }
            self.executor.run_tick_end_hooks();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::io::{IoSource, READ};
    use crate::executor::rings::{Polled, RingWatch};
    use crate::executor::{ExecutorOptions, ServiceExecutor};
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::{Sender, channel};

    /// A ring in which there is always something.
    struct Busy;

    impl Polled for Busy {
        fn has_arrivals(&self) -> bool {
            true
        }

        fn fall_asleep(&self) -> bool {
            false
        }

        fn is_asleep(&self) -> bool {
            false
        }
    }

    async fn serves_a_busy_ring(local: Rc<Local>, served: Arc<AtomicU32>) {
        let watch = RingWatch::new(Rc::new(Busy), Rc::new(IoSource::new(Arc::default())));
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
        let options = ExecutorOptions { workers: 1, spin_us: 0 };
        let executor = ServiceExecutor::start(&options).unwrap();
        let (mut tells, socket) = UnixStream::pair().unwrap();
        let (report, reported) = channel();
        let served = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&served);
        executor.workers()[0].spawn(async move {
            let local = Local::current().unwrap();
            local.start(Box::pin(hears(Rc::clone(&local), socket, report)));
            local.start(Box::pin(serves_a_busy_ring(Rc::clone(&local), count)));
        });
        while served.load(Ordering::Relaxed) < 2 * RING_TURNS_MAX {
            std::thread::yield_now();
        }
        tells.write_all(&[1]).unwrap();
        reported.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}
