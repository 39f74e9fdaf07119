//! Model-checks signalling and sleeping under every interleaving, weak memory included. The source of the
//! signals is compiled against a model checker's atomics.

#[path = "../src/shared_memory/signal.rs"]
mod signal;

/// The types that the source is compiled against.
mod sync {
    pub use loom::sync::atomic;
}

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// One direction: a ring of two bytes, a slot for each, the sleeping flags, and the signalled event.
struct Way {
    ring: [AtomicU32; 2],
    slots: [AtomicU32; 2],
    sleeps: AtomicU32,
    event: Mutex<bool>,
    signalled: Condvar,
}

impl Way {
    fn new() -> Arc<Self> {
        Arc::new(Way {
            ring: [AtomicU32::new(0), AtomicU32::new(0)],
            slots: [AtomicU32::new(0), AtomicU32::new(0)],
            sleeps: AtomicU32::new(0),
            event: Mutex::new(false),
            signalled: Condvar::new(),
        })
    }

    fn tell(&self, n: usize, value: u32) {
        self.ring[n].store(value, Ordering::Relaxed);
        if signal::tell(&self.slots[n], &self.sleeps, 7) {
            *self.event.lock().unwrap() = true;
            self.signalled.notify_one();
        }
    }

    /// Sleeps until the ring has data, as workers and clients do.
    fn hear(&self, n: usize) -> u32 {
        loop {
            if let Some(immediate) = signal::hear(&self.slots[n]) {
                assert_eq!(immediate, 7);
                return self.ring[n].load(Ordering::Relaxed);
            }
            if !signal::fall_asleep(&self.sleeps, &self.slots[n]) {
                assert!(signal::has_come(&self.slots[n]));
                continue;
            }
            let mut event = self.event.lock().unwrap();
            while !*event {
                event = self.signalled.wait(event).unwrap();
            }
            *event = false;
            drop(event);
            signal::wake_up(&self.sleeps);
        }
    }
}

#[test]
fn signalled_data_is_received_completely_and_no_wake_is_lost() {
    loom::model(|| {
        let way = Way::new();
        let teller = Arc::clone(&way);
        let told = thread::spawn(move || {
            teller.tell(0, 1);
            teller.tell(1, 2);
        });
        assert_eq!(way.hear(0), 1);
        assert_eq!(way.hear(1), 2);
        told.join().unwrap();
    });
}

#[test]
fn a_request_and_its_reply() {
    loom::model(|| {
        let (there, back) = (Way::new(), Way::new());
        let (requests, replies) = (Arc::clone(&there), Arc::clone(&back));
        let server = thread::spawn(move || {
            let request = requests.hear(0);
            replies.tell(0, request + 1);
        });
        there.tell(0, 5);
        assert_eq!(back.hear(0), 6);
        server.join().unwrap();
    });
}

#[test]
fn an_awake_receiver_is_not_signalled() {
    loom::model(|| {
        let way = Way::new();
        let teller = Arc::clone(&way);
        let told = thread::spawn(move || teller.tell(0, 1));
        while !signal::has_come(&way.slots[0]) {
            thread::yield_now();
        }
        assert!(!signal::is_asleep(&way.sleeps));
        told.join().unwrap();
        assert!(!*way.event.lock().unwrap());
        assert_eq!(way.hear(0), 1);
    });
}

#[test]
fn one_sleep_is_signalled_once() {
    loom::model(|| {
        let way = Way::new();
        assert!(signal::fall_asleep(&way.sleeps, &way.slots[0]));
        assert!(signal::is_asleep(&way.sleeps));
        assert!(signal::tell(&way.slots[0], &way.sleeps, 7), "it sleeps");
        assert!(!signal::tell(&way.slots[1], &way.sleeps, 7), "it was signalled");
        assert!(!signal::fall_asleep(&way.sleeps, &way.slots[0]), "there is something to hear");
        assert!(!signal::is_asleep(&way.sleeps));
    });
}
