//! Tasks, timers, wakes across threads, and the end of a tick.

use crate::common::PATIENCE;
use kauri_transport::{ExecutorOptions, ServiceExecutor, sys, yield_now};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

fn executor(workers: usize) -> Arc<ServiceExecutor> {
    ServiceExecutor::start(&ExecutorOptions { workers, ..Default::default() }).unwrap()
}

#[test]
fn tasks_run_on_their_worker() {
    let executor = executor(3);
    let (report, reported) = channel();
    for worker in executor.workers() {
        let report = report.clone();
        let home = worker.clone();
        worker.spawn(async move {
            let outer = std::thread::current().id();
            home.spawn({
                let report = report.clone();
                async move { report.send((outer, std::thread::current().id())).unwrap() }
            });
        });
    }
    let threads: Vec<_> = (0..3).map(|_| reported.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(threads.iter().all(|(outer, inner)| outer == inner));
    let distinct: std::collections::HashSet<_> = threads.iter().map(|(outer, _)| outer).collect();
    assert_eq!(distinct.len(), 3);
}

/// The cores on which each of an executor's workers may run after it has had several tasks at a time.
fn cores_of_busy_workers(workers: usize, own_cores: bool) -> Vec<Vec<usize>> {
    let options = ExecutorOptions { workers, own_cores, ..Default::default() };
    let executor = ServiceExecutor::start(&options).unwrap();
    let (report, reported) = channel();
    for worker in executor.workers() {
        let (report, home) = (report.clone(), worker.clone());
        // All three begin in one tick, because a single task does not make the worker busy.
        worker.spawn(async move {
            for task in 0..3 {
                let (report, id) = (report.clone(), home.id());
                home.spawn(async move {
                    for _ in 0..10_000 {
                        yield_now().await;
                    }
                    report.send((id, task, sys::allowed_cores().unwrap())).unwrap();
                });
            }
        });
    }
    let mut all: Vec<_> =
        (0..3 * workers).map(|_| reported.recv_timeout(PATIENCE).unwrap()).collect();
    all.sort();
    all.into_iter().filter(|(_, task, _)| *task == 0).map(|(_, _, cores)| cores).collect()
}

#[test]
fn busy_workers_stay_on_their_own_cores_if_there_are_enough() {
    let cores = sys::allowed_cores().unwrap();
    let count = cores.len();
    let each_alone: Vec<_> = cores.iter().map(|&core| vec![core]).collect();
    assert_eq!(cores_of_busy_workers(count, true), each_alone);
    assert_eq!(cores_of_busy_workers(count, false), vec![cores.clone(); count]);
    assert_eq!(cores_of_busy_workers(count + 1, true), vec![cores; count + 1]);
}

#[test]
fn sleeps_end_in_the_order_of_their_deadlines_and_not_early() {
    let executor = executor(1);
    let worker = &executor.workers()[0];
    let (report, reported) = channel();
    let start = Instant::now();
    for ms in [40u64, 10, 25, 0] {
        let (report, sleep) = (report.clone(), worker.sleep(Duration::from_millis(ms)));
        worker.spawn(async move {
            sleep.await;
            report.send((ms, start.elapsed())).unwrap();
        });
    }
    for expected in [0, 10, 25, 40] {
        let (ms, took) = reported.recv_timeout(PATIENCE).unwrap();
        assert_eq!(ms, expected);
        assert!(took >= Duration::from_millis(ms), "{took:?} for {ms} ms");
    }
}

#[test]
fn a_dropped_sleep_wakes_no_task() {
    let executor = executor(1);
    let worker = executor.workers()[0].clone();
    let (report, reported) = channel();
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    executor.workers()[0].spawn(async move {
        let mut short = Some(Box::pin(worker.sleep(Duration::from_millis(5))));
        let mut long = Box::pin(worker.sleep(Duration::from_millis(60)));
        poll_fn(|cx| {
            counted.fetch_add(1, Ordering::SeqCst);
            if let Some(sleep) = &mut short {
                assert!(sleep.as_mut().poll(cx).is_pending());
            }
            short = None;
            long.as_mut().poll(cx)
        })
        .await;
        report.send(()).unwrap();
    });
    reported.recv_timeout(PATIENCE).unwrap();
    assert_eq!(polls.load(Ordering::SeqCst), 2, "at the beginning and at the end");
}

/// An event that one thread sets and a task awaits.
#[derive(Default)]
struct Flag {
    set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Flag {
    fn raise(&self) {
        self.set.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn raised(&self) {
        poll_fn(|cx| {
            *self.waker.lock().unwrap() = Some(cx.waker().clone());
            if self.set.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[test]
fn wakes_from_other_threads_are_never_lost() {
    let executor = executor(2);
    let (ping, pong) = (Arc::new(Flag::default()), Arc::new(Flag::default()));
    let (report, reported) = channel();
    const ROUNDS: usize = 20_000;
    // Two workers wake each other in turn and sleep in between.
    for (worker, (mine, theirs)) in executor.workers().iter().zip([(&ping, &pong), (&pong, &ping)])
    {
        let (mine, theirs) = (Arc::clone(mine), Arc::clone(theirs));
        let report = report.clone();
        worker.spawn(async move {
            for _ in 0..ROUNDS {
                mine.raised().await;
                theirs.raise();
            }
            report.send(()).unwrap();
        });
    }
    ping.raise();
    for _ in 0..2 {
        reported.recv_timeout(PATIENCE).unwrap();
    }
    let foreign = Arc::clone(&ping);
    let waiting = Arc::clone(&ping);
    executor.workers()[0].spawn(async move {
        waiting.raised().await;
        report.send(()).unwrap();
    });
    std::thread::spawn(move || foreign.raise()).join().unwrap();
    reported.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn one_tick_end_serves_all_tasks_and_woken_tasks_run_at_once() {
    let executor = executor(1);
    let waiting: Arc<Mutex<Vec<Waker>>> = Arc::default();
    let hooks = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(AtomicBool::new(false));
    executor.on_tick_end({
        let (waiting, hooks, done) = (Arc::clone(&waiting), Arc::clone(&hooks), Arc::clone(&done));
        Arc::new(move || {
            hooks.fetch_add(1, Ordering::SeqCst);
            done.store(true, Ordering::SeqCst);
            std::mem::take(&mut *waiting.lock().unwrap()).into_iter().for_each(Waker::wake);
        })
    });
    let worker = executor.workers()[0].clone();
    let (report, reported) = channel();
    let all_at_once = {
        let worker = worker.clone();
        let (waiting, done) = (Arc::clone(&waiting), Arc::clone(&done));
        async move {
            // Ten tasks of one tick wait for one hook.
            for _ in 0..10 {
                let (inner, waiting, done) =
                    (worker.clone(), Arc::clone(&waiting), Arc::clone(&done));
                let report = report.clone();
                worker.spawn(async move {
                    inner.want_tick_end();
                    let waits_before = inner.stats().waits;
                    let mut polls = 0;
                    poll_fn(|cx| {
                        polls += 1;
                        if done.load(Ordering::SeqCst) {
                            return Poll::Ready(());
                        }
                        waiting.lock().unwrap().push(cx.waker().clone());
                        Poll::Pending
                    })
                    .await;
                    report.send((polls, inner.stats().waits - waits_before)).unwrap();
                });
            }
        }
    };
    worker.spawn(all_at_once);
    for _ in 0..10 {
        let (polls, waits) = reported.recv_timeout(PATIENCE).unwrap();
        assert_eq!(polls, 2);
        assert_eq!(waits, 0, "no look at epoll between the hook and the woken task");
    }
    assert_eq!(hooks.load(Ordering::SeqCst), 1);
}

#[test]
fn a_tick_without_requests_has_no_end() {
    let executor = executor(1);
    let hooks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&hooks);
    executor.on_tick_end(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    let (report, reported) = channel();
    executor.workers()[0].spawn(async move {
        for _ in 0..100 {
            yield_now().await;
        }
        report.send(()).unwrap();
    });
    reported.recv_timeout(PATIENCE).unwrap();
    assert_eq!(hooks.load(Ordering::SeqCst), 0);
}

#[test]
fn a_task_that_is_always_ready_starves_no_other() {
    let executor = executor(1);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    executor.workers()[0].spawn(async move {
        while !stopped.load(Ordering::SeqCst) {
            yield_now().await;
        }
    });
    let (report, reported) = channel();
    let sleep = executor.workers()[0].sleep(Duration::from_millis(5));
    executor.workers()[0].spawn(async move {
        sleep.await;
        report.send(()).unwrap();
    });
    reported.recv_timeout(PATIENCE).unwrap();
    stop.store(true, Ordering::SeqCst);
}

#[test]
fn a_panicking_task_takes_no_other_with_it() {
    let executor = executor(1);
    executor.workers()[0].spawn(async { panic!("on purpose") });
    executor.on_tick_end(Arc::new(|| panic!("a hook, on purpose")));
    let worker = executor.workers()[0].clone();
    let (report, reported) = channel();
    executor.workers()[0].spawn(async move {
        worker.want_tick_end();
        yield_now().await;
        report.send(()).unwrap();
    });
    reported.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn spinning_is_switched_at_run_time_and_counted() {
    let executor = executor(1);
    let worker = &executor.workers()[0];
    let nap = |report: std::sync::mpsc::Sender<()>| {
        let sleep = worker.sleep(Duration::from_millis(3));
        worker.spawn(async move {
            sleep.await;
            report.send(()).unwrap();
        });
    };
    let (report, reported) = channel();
    nap(report.clone());
    reported.recv_timeout(PATIENCE).unwrap();
    assert_eq!(worker.stats().spins, 0);
    executor.set_spin_us(20_000);
    assert_eq!(executor.spin_us(), 20_000);
    nap(report.clone());
    reported.recv_timeout(PATIENCE).unwrap();
    nap(report);
    reported.recv_timeout(PATIENCE).unwrap();
    let stats = worker.stats();
    assert!(stats.spins > 0 && stats.spin_hits > 0, "{stats:?}");
}

#[test]
fn shutdown_drops_tasks_where_they_wait() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let executor = executor(2);
    let drops = Arc::new(AtomicUsize::new(0));
    let (report, reported) = channel();
    for worker in executor.workers() {
        let (dropped, report) = (Dropped(Arc::clone(&drops)), report.clone());
        worker.spawn(async move {
            let _dropped = dropped;
            report.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        reported.recv_timeout(PATIENCE).unwrap();
    }
    executor.shutdown();
    assert_eq!(drops.load(Ordering::SeqCst), 2);
    let late = Dropped(Arc::clone(&drops));
    executor.workers()[0].spawn(async move { drop(late) });
    assert_eq!(drops.load(Ordering::SeqCst), 3, "a late task is dropped, not leaked");
}
