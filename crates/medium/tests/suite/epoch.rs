//! Epoch guards and deferred closures.

use kauri_medium::{EpochDomain, Guard, SegmentCache, SegmentStorer, SegmentWriter};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

fn counter() -> (Arc<AtomicUsize>, impl Fn() -> Box<dyn FnOnce() + Send>) {
    let count = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&count);
    let closure = move || -> Box<dyn FnOnce() + Send> {
        let count = Arc::clone(&shared);
        Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })
    };
    (count, closure)
}

#[test]
fn a_closure_waits_only_for_guards_that_were_inside() {
    let domain = EpochDomain::new();
    let (count, closure) = counter();
    let (mut before, mut idle, mut after) =
        (domain.register(), domain.register(), domain.register());
    before.enter();
    domain.defer(closure());
    assert_eq!(domain.collect(), 0);
    // Later guards do not matter.
    for _ in 0..3 {
        after.enter();
        assert_eq!(domain.collect(), 0);
        idle.enter();
        idle.leave();
    }
    assert_eq!((count.load(Ordering::Relaxed), domain.pending()), (0, 1));
    before.leave();
    assert_eq!(domain.collect(), 1);
    assert_eq!((count.load(Ordering::Relaxed), domain.pending()), (1, 0));
    assert!(after.is_entered());
}

#[test]
fn guards_are_sent_and_domains_shared() {
    fn sent<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    sent::<Guard>();
    shared::<Arc<EpochDomain>>();
    shared::<SegmentCache>();
    sent::<SegmentWriter>();
    shared::<SegmentStorer>();
}

#[test]
fn a_nested_entry_keeps_the_older_epoch() {
    let domain = EpochDomain::new();
    let (count, closure) = counter();
    let mut guard = domain.register();
    guard.enter();
    domain.defer(closure());
    domain.collect();
    guard.enter();
    domain.collect();
    assert_eq!(count.load(Ordering::Relaxed), 0);
    guard.leave();
    guard.enter();
    domain.collect();
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn closures_run_in_order_and_may_defer_more() {
    let domain = EpochDomain::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..200 {
        let (order, domain) = (Arc::clone(&order), Arc::downgrade(&domain));
        let inner = Arc::clone(&order);
        domain.upgrade().unwrap().defer(Box::new(move || {
            order.lock().unwrap().push(number);
            if let Some(domain) = domain.upgrade() {
                domain.defer(Box::new(move || inner.lock().unwrap().push(1000 + number)));
                assert_eq!(domain.collect(), 0, "one at a time");
            }
        }));
    }
    while domain.collect() > 0 {}
    let order = order.lock().unwrap();
    let first: Vec<i32> = order.iter().copied().filter(|n| *n < 1000).collect();
    let second: Vec<i32> = order.iter().copied().filter(|n| *n >= 1000).collect();
    assert_eq!(first, (0..200).collect::<Vec<_>>());
    assert_eq!(second, (1000..1200).collect::<Vec<_>>());
}

#[test]
fn remaining_closures_run_when_the_domain_is_dropped() {
    let domain = EpochDomain::new();
    let (count, closure) = counter();
    let mut guard = domain.register();
    guard.enter();
    domain.defer(closure());
    domain.collect();
    drop(domain);
    assert_eq!(count.load(Ordering::Relaxed), 0, "the guard keeps the domain");
    drop(guard);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_guard_counts_after_a_move_to_another_thread() {
    let domain = EpochDomain::new();
    let (count, closure) = counter();
    let mut guard = domain.register();
    guard.enter();
    domain.defer(closure());
    let (sender, receiver) = mpsc::channel();
    let elsewhere = thread::spawn(move || {
        receiver.recv().unwrap();
        drop(guard);
    });
    domain.collect();
    assert_eq!(count.load(Ordering::Relaxed), 0);
    sender.send(()).unwrap();
    elsewhere.join().unwrap();
    domain.collect();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    // Its slot is given to the next guard.
    let guards: Vec<_> = (0..3).map(|_| domain.register()).collect();
    assert!(guards.iter().all(|guard| !guard.is_entered()));
}

#[test]
fn the_wait_for_quiescence_times_out() {
    let domain = EpochDomain::new();
    assert!(domain.wait_quiescent(Duration::ZERO));
    let mut guard = domain.register();
    guard.enter();
    assert!(!domain.wait_quiescent(Duration::from_millis(1)));
    let waiting = Arc::new(AtomicBool::new(false));
    let waiter = {
        let (domain, waiting) = (Arc::clone(&domain), Arc::clone(&waiting));
        thread::spawn(move || {
            waiting.store(true, Ordering::Relaxed);
            domain.wait_quiescent(Duration::from_secs(60))
        })
    };
    while !waiting.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    guard.leave();
    assert!(waiter.join().unwrap());
}
