//! Model-checks acknowledgements and their waiters under every interleaving, weak memory included. The source
//! of the acknowledgements is compiled against a model checker's atomics and locks.

// The models use a part of the source.
#![allow(dead_code)]

#[path = "../src/acks.rs"]
mod acks;

/// No engine: no thread blocks on a ticket in these models.
struct NoEngine;

impl acks::Flush for NoEngine {
    fn make_written(&self) {}

    fn make_durable(&self, _seq: u64) {}
}

/// The types that the source is compiled against.
mod sync {
    use atomic::{AtomicBool, Ordering};
    pub use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub use std::sync::{Arc, PoisonError, Weak};

    /// The standard library's type, visible to the model checker.
    pub struct OnceLock<T> {
        is_set: AtomicBool,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub fn new() -> Self {
            OnceLock { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
        }

        pub fn set(&self, value: T) -> Result<(), T> {
            self.value.set(value)?;
            self.is_set.store(true, Ordering::Release);
            Ok(())
        }

        pub fn get(&self) -> Option<&T> {
            self.is_set.load(Ordering::Acquire).then(|| self.value.get()).flatten()
        }
    }
}

use acks::Acks;
use kauri_base::Ticket;
use kauri_storage::Durability;
use loom::thread;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use sync::atomic::{AtomicU64, Ordering};

fn lock<T>(mutex: &sync::Mutex<T>) -> sync::MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// A waiting thread; the model checker fails the test if it is never woken.
#[derive(Default)]
struct Sleeper {
    woken: sync::Mutex<bool>,
    wakes: sync::Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *lock(&self.woken) = true;
        self.wakes.notify_one();
    }
}

fn wait(ticket: Ticket) -> kauri_base::Result<()> {
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(sleeper.clone());
    let mut ticket = pin!(ticket);
    loop {
        if let Poll::Ready(result) = ticket.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        let mut woken = lock(&sleeper.woken);
        while !*woken {
            woken = sleeper.wakes.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// Acknowledgements, and the real progress of the medium.
struct Model {
    acks: Arc<Acks>,
    truth: AtomicU64,
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model { acks: Acks::new(Weak::<NoEngine>::new(), 0), truth: AtomicU64::new(0) })
    }

    /// Waits, and checks that the acknowledgement is true.
    fn wait(&self, seq: u64, durability: Durability) -> bool {
        let result = self.acks.tickets(seq).ticket(durability).cloned().map_or(Ok(()), wait);
        if result.is_ok() {
            let truth = self.truth.load(Ordering::Relaxed);
            assert!(truth >= seq, "{seq} is acknowledged at {truth}");
        }
        result.is_ok()
    }
}

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Memory that is durable when published: the publisher looks for waiters without their lock.
#[test]
fn a_waiter_for_memory_is_woken() {
    explore(3, || {
        let model = Model::new();
        let other = model.clone();
        let waiter = thread::spawn(move || assert!(other.wait(1, Durability::Durable)));
        for seq in 1..=2 {
            model.truth.store(seq, Ordering::Relaxed);
            model.acks.reach(seq);
        }
        waiter.join().unwrap();
    });
}

#[test]
fn two_waiters_for_memory_are_woken() {
    explore(2, || {
        let model = Model::new();
        let waiters =
            [(1, Durability::Written), (2, Durability::Durable)].map(|(seq, durability)| {
                let other = model.clone();
                thread::spawn(move || assert!(other.wait(seq, durability)))
            });
        for seq in 1..=2 {
            model.truth.store(seq, Ordering::Relaxed);
            model.acks.reach(seq);
        }
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// A drain succeeds, the next one fails: waiters of the first succeed, waiters of the second get the failure.
#[test]
fn a_waiter_for_a_drain_gets_its_result() {
    explore(2, || {
        let model = Model::new();
        let waiters = [1, 2].map(|seq| {
            let other = model.clone();
            thread::spawn(move || assert_eq!(other.wait(seq, Durability::Durable), seq == 1))
        });
        model.truth.store(1, Ordering::Relaxed);
        model.acks.set_stored(1);
        model.acks.set_durable(1);
        assert!(model.acks.end(acks::End::Failed("a failure".to_owned())));
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// A thread that collects a group of commits is woken by the last of them and by no earlier one. The model
/// checker has no time, so a missed wake fails the test.
#[test]
fn a_group_commit_waits_for_all_its_members() {
    explore(2, || {
        let model = Model::new();
        let waiters = [1, 2, 3].map(|seq| {
            let other = model.clone();
            thread::spawn(move || assert!(other.wait(seq, Durability::Durable)))
        });
        model.acks.wait_for_wake(Duration::MAX);
        assert!(model.acks.gather(3, Duration::MAX), "woken before all were there");
        model.truth.store(3, Ordering::Relaxed);
        model.acks.set_durable(3);
        assert_eq!(model.acks.under_way(), 3);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}
