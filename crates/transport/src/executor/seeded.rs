//! The seeded driver: the workers of a simulated process, without threads.
//!
//! It uses the same tasks, wakers, mailboxes, timers and ticks as the threads ([`super::worker`]). The owner of the
//! workers gives them turns one after the other and draws the order of their tasks, so a seed decides everything.
//! Time is the thread's virtual time ([`kauri_base::virtual_time`]).
//!
//! Invariant: outside of [`SeededWorkers::turn`] and [`SeededWorkers::die`] the thread counts as no worker, so a
//! wake from there goes through the mailbox, as from another thread.

use super::local::{Local, Ran};
use super::{ServiceExecutor, WorkerHandle};
use kauri_base::{Error, ErrorCode, Result, virtual_time};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Draws a number below the one given, which is not 0.
pub type Draw<'a> = &'a mut dyn FnMut(usize) -> usize;

/// See the module's head.
pub struct SeededWorkers {
    executor: Arc<ServiceExecutor>,
    locals: Vec<Rc<Local>>,
}

impl SeededWorkers {
    /// So many workers.
    pub fn new(count: usize) -> Result<Self> {
        let executor = ServiceExecutor::without_threads(count)?;
        let local = |worker: &WorkerHandle| Local::new(Arc::clone(&worker.shared));
        let locals = executor.workers().iter().map(local).collect::<std::io::Result<_>>();
        let locals = locals.map_err(|e| Error::new(ErrorCode::InternalError, e.to_string()))?;
        Ok(SeededWorkers { executor, locals })
    }

    /// The executor that sessions and tasks are given to.
    pub fn executor(&self) -> &Arc<ServiceExecutor> {
        &self.executor
    }

    /// The workers that have something to do now, by number.
    pub fn ready(&self) -> impl Iterator<Item = usize> {
        let now_ns = virtual_time::peek_ns();
        let is_ready = move |local: &Local| {
            let shared = &local.shared;
            local.runnable() > 0 || shared.is_called() || shared.next_deadline_ns() <= now_ns
        };
        self.locals.iter().enumerate().filter(move |(_, local)| is_ready(local)).map(|(at, _)| at)
    }

    /// The deadline of the first timer; `u64::MAX`: none.
    pub fn next_deadline_ns(&self) -> u64 {
        let deadlines = self.locals.iter().map(|local| local.shared.next_deadline_ns());
        deadlines.min().unwrap_or(u64::MAX)
    }

    /// One turn of a worker: takes its mail and due timers, polls each ready task once, in the drawn order, and
    /// ends the tick. Returns the number of polled tasks.
    pub fn turn(&self, worker: usize, draw: Draw<'_>) -> u64 {
        let Some(local) = self.locals.get(worker) else { return 0 };
        Local::set_current(Some(Rc::clone(local)));
        Self::receive(local);
        let mut polls = 0;
        let ready = local.runnable();
        for _ in 0..ready {
            local.bring_forward(draw);
            match local.run_one() {
                Ran::Nothing => break,
                Ran::Deferred => {}
                Ran::Polled => polls += 1,
            }
        }
        polls += u64::from(local.run_long() == Ran::Polled);
        let shared = &local.shared;
        shared.stats.ticks.add(1);
        shared.stats.polls.add(polls);
        if shared.tick_end_wanted.swap(false, Ordering::AcqRel) {
            self.executor.shared.run_tick_end_hooks();
        }
        Local::set_current(None);
        polls
    }

    /// Queues what mail and timers wake and start.
    fn receive(local: &Rc<Local>) {
        let mail = local.shared.take_mail();
        mail.wakes.into_iter().for_each(|task| local.push(task));
        for start in mail.starts {
            if let Some(future) = start(local) {
                local.start(future);
            }
        }
        let now_ns = virtual_time::peek_ns();
        if local.shared.next_deadline_ns() <= now_ns {
            let due = local.shared.with_timers(|timers| timers.due(now_ns));
            due.into_iter().for_each(|waker| waker.wake());
        }
    }

    /// The process dies: all its tasks are dropped at their await. Effects of the drops do not belong to the
    /// process; take the disk's image before.
    pub fn die(self) {
        for local in &self.locals {
            Local::set_current(Some(Rc::clone(local)));
            drop(local.shared.take_last_mail());
            local.drop_tasks();
            Local::set_current(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::yield_now;
    use std::sync::Mutex;
    use std::time::Duration;

    type Notes = Arc<Mutex<Vec<(usize, u64)>>>;

    /// Two workers with three tasks each, which sleep, yield, and wake each other's worker.
    fn run(seed: u64) -> Vec<(usize, u64)> {
        virtual_time::begin(seed);
        let notes = Notes::default();
        let workers = SeededWorkers::new(2).unwrap();
        let handles: Vec<_> = workers.executor().workers().to_vec();
        for task in 0..6 {
            let (home, other) = (handles[task % 2].clone(), handles[(task + 1) % 2].clone());
            let notes = Arc::clone(&notes);
            home.clone().spawn(async move {
                for round in 0..3 {
                    home.sleep(Duration::from_millis(1)).await;
                    yield_now().await;
                    notes.lock().unwrap().push((task, round));
                }
                let notes = Arc::clone(&notes);
                other.spawn(async move { notes.lock().unwrap().push((task, 3)) });
            });
        }
        let mut state = seed;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        loop {
            let ready: Vec<_> = workers.ready().collect();
            match ready.len() {
                0 if workers.next_deadline_ns() == u64::MAX => break,
                0 => virtual_time::advance_to(workers.next_deadline_ns()),
                count => drop(workers.turn(ready[draw(count)], &mut draw)),
            }
        }
        workers.die();
        virtual_time::end();
        Arc::try_unwrap(notes).unwrap().into_inner().unwrap()
    }

    #[test]
    fn everything_runs_to_its_end_in_an_order_that_the_seed_decides() {
        let runs: Vec<_> = (0..8).map(run).collect();
        for (seed, notes) in runs.iter().enumerate() {
            assert_eq!(notes.len(), 24);
            assert_eq!(*notes, run(seed as u64));
        }
        assert!(runs.iter().any(|notes| *notes != runs[0]));
    }

    #[test]
    fn hooks_run_at_the_end_of_a_tick_that_asked_for_them() {
        virtual_time::begin(1);
        let workers = SeededWorkers::new(1).unwrap();
        let ran = Arc::new(Mutex::new(0));
        let count = Arc::clone(&ran);
        workers.executor().on_tick_end(Arc::new(move || *count.lock().unwrap() += 1));
        let worker = workers.executor().workers()[0].clone();
        worker.clone().spawn(async move {
            yield_now().await;
            worker.want_tick_end();
        });
        let mut seen = Vec::new();
        while workers.ready().next().is_some() {
            workers.turn(0, &mut |_| 0);
            seen.push(*ran.lock().unwrap());
        }
        assert_eq!(seen, [0, 1]);
        workers.die();
        virtual_time::end();
    }

    #[test]
    fn what_a_dead_process_had_to_do_is_dropped() {
        virtual_time::begin(1);
        let workers = SeededWorkers::new(1).unwrap();
        let held = Arc::new(());
        let worker = workers.executor().workers()[0].clone();
        let (one, two) = (Arc::clone(&held), Arc::clone(&held));
        worker.spawn(async move {
            std::future::pending::<()>().await;
            drop(one);
        });
        workers.turn(0, &mut |_| 0);
        worker.spawn(async move { drop(two) });
        workers.die();
        assert_eq!(Arc::strong_count(&held), 1);
        virtual_time::end();
    }
}
