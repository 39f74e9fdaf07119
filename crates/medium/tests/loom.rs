//! Model-checks the cache's safety protocols under every interleaving, weak memory included. The sources of the
//! epochs and of the block states are compiled against a model checker's atomics.
//!
//! A block's bytes are a cell that fails the test if a read races with a write.

// Each model uses its part of the sources.
#![allow(dead_code)]

#[path = "../src/cache/block.rs"]
mod block;
#[path = "../src/epoch.rs"]
mod epoch;

/// The types that the sources are compiled against.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

use block::{Block, Settled, Tick};
use epoch::{EpochDomain, Guard};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use sync::{AtomicU64, Ordering};

/// The contents of a resident block.
const CONTENTS: u64 = 7;

struct Bytes(UnsafeCell<u64>);

impl Bytes {
    fn new(value: u64) -> Self {
        Bytes(UnsafeCell::new(value))
    }

    fn check(&self) {
        // The model checker fails the test if this races with a write.
        self.0.with(|bytes| assert_eq!(read(bytes), CONTENTS));
    }

    fn write(&self, value: u64) {
        self.0.with_mut(|bytes| write(bytes, value));
    }
}

#[allow(unsafe_code)]
fn read(bytes: *const u64) -> u64 {
    // SAFETY: the pointer is a cell's, given out for this call, and races are what the test finds.
    unsafe { *bytes }
}

#[allow(unsafe_code)]
fn write(bytes: *mut u64, value: u64) {
    // SAFETY: as above.
    unsafe { *bytes = value }
}

#[allow(unsafe_code)]
// SAFETY: used as the cache uses its memory; races are what the test finds.
unsafe impl Sync for Bytes {}

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A pointer to bytes that are unlinked, then destroyed after the last reader.
#[test]
fn an_unlinked_object_is_destroyed_after_its_last_reader() {
    explore(6, || {
        let domain = EpochDomain::new();
        let shared = Arc::new((AtomicU64::new(1), Bytes::new(CONTENTS)));
        let mut guard = domain.register();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..2 {
                    guard.enter();
                    if shared.0.load(Ordering::Acquire) == 1 {
                        shared.1.check();
                    }
                    guard.leave();
                }
            })
        };
        shared.0.store(0, Ordering::Release);
        let destroyed = Arc::clone(&shared);
        domain.defer(Box::new(move || destroyed.1.write(0)));
        domain.collect();
        domain.collect();
        reader.join().unwrap();
        domain.collect();
        assert_eq!(domain.pending(), 0);
    });
}

/// One thread collects while another unlinks and defers. A closure deferred after the guards were read waits
/// for the next collection.
#[test]
fn a_collection_runs_only_earlier_closures() {
    explore(3, || {
        let domain = EpochDomain::new();
        let shared = Arc::new((AtomicU64::new(1), Bytes::new(CONTENTS)));
        domain.defer(Box::new(|| ()));
        let mut guard = domain.register();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                guard.enter();
                if shared.0.load(Ordering::Acquire) == 1 {
                    shared.1.check();
                }
                guard.leave();
            })
        };
        let unlinker = {
            let (domain, shared) = (Arc::clone(&domain), Arc::clone(&shared));
            thread::spawn(move || {
                shared.0.store(0, Ordering::Release);
                domain.defer(Box::new(move || shared.1.write(0)));
            })
        };
        domain.collect();
        reader.join().unwrap();
        unlinker.join().unwrap();
    });
}

/// Recycling: readers that find no data below the end do not read, in two grace periods.
#[test]
fn a_recycled_segment_is_reused_when_its_readers_have_left() {
    explore(2, || {
        let domain = EpochDomain::new();
        let shared = Arc::new((AtomicU64::new(1), Bytes::new(CONTENTS)));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let mut guard = domain.register();
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    guard.enter();
                    if shared.0.load(Ordering::Acquire) > 0 {
                        shared.1.check();
                    }
                    guard.leave();
                })
            })
            .collect();
        let (outer, closing) = (Arc::clone(&domain), Arc::clone(&shared));
        domain.defer(Box::new(move || {
            closing.0.store(0, Ordering::Release);
            outer.defer(Box::new(move || {
                closing.1.write(0);
                // The next life of the segment.
                closing.1.write(CONTENTS);
                closing.0.store(1, Ordering::Release);
            }));
        }));
        domain.collect();
        domain.collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        while domain.collect() > 0 {}
        assert_eq!(domain.pending(), 0);
    });
}

struct Cached {
    block: Block,
    bytes: Bytes,
}

impl Cached {
    fn resident() -> Arc<Self> {
        let block = Block::new();
        assert!(block.appended());
        Arc::new(Cached { block, bytes: Bytes::new(CONTENTS) })
    }

    /// A reader that loads missing data.
    fn read(&self, guard: &mut Guard) {
        guard.enter();
        if self.block.look() {
            self.bytes.check();
        } else if self.block.begin_load() {
            self.bytes.write(CONTENTS);
            self.block.finish_load(false);
        }
        guard.leave();
    }

    /// A reader that uses only resident data.
    fn peek(&self, guard: &mut Guard) {
        guard.enter();
        if self.block.peek() {
            self.bytes.check();
        }
        guard.leave();
    }

    /// The clock's work, on the name that it has taken from its ring.
    fn tick(self: &Arc<Self>, domain: &EpochDomain) {
        if self.block.tick(false, || true) == Tick::Settle {
            let cached = Arc::clone(self);
            domain.defer(Box::new(move || {
                if cached.block.settle(true) == Settled::Dropping {
                    cached.bytes.write(0);
                    cached.block.dropped();
                }
            }));
        }
    }
}

/// One thread reads twice in this way while the clock evicts the block.
fn discard_beside(read: fn(&Cached, &mut Guard)) {
    explore(5, move || {
        let domain = EpochDomain::new();
        let cached = Cached::resident();
        let mut guard = domain.register();
        let reader = {
            let cached = Arc::clone(&cached);
            thread::spawn(move || {
                read(&cached, &mut guard);
                read(&cached, &mut guard);
            })
        };
        cached.tick(&domain);
        domain.collect();
        domain.collect();
        reader.join().unwrap();
    });
}

#[test]
fn a_block_is_discarded_after_its_last_reader() {
    discard_beside(Cached::read);
}

/// A peek revives no block, and eviction waits for it as for any reader.
#[test]
fn a_block_is_discarded_after_its_last_peek() {
    discard_beside(Cached::peek);
}

/// A revived block is marked again: settling the first mark must not settle the second.
#[test]
fn a_revived_block_is_settled_once_per_mark() {
    explore(2, || {
        let domain = EpochDomain::new();
        let cached = Cached::resident();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let mut guard = domain.register();
                let cached = Arc::clone(&cached);
                thread::spawn(move || cached.read(&mut guard))
            })
            .collect();
        cached.tick(&domain);
        domain.collect();
        if domain.pending() == 0 {
            cached.tick(&domain);
            cached.tick(&domain);
            domain.collect();
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// The appender writes beyond the end, then publishes; a reader keeps below the end.
#[test]
fn appended_bytes_are_seen_whole() {
    explore(6, || {
        let domain = EpochDomain::new();
        let cached = Arc::new(Cached { block: Block::new(), bytes: Bytes::new(0) });
        let end = Arc::new(AtomicU64::new(0));
        let mut guard = domain.register();
        let reader = {
            let (cached, end) = (Arc::clone(&cached), Arc::clone(&end));
            thread::spawn(move || {
                guard.enter();
                if end.load(Ordering::Acquire) > 0 {
                    assert!(cached.block.look());
                    cached.bytes.check();
                }
                guard.leave();
            })
        };
        cached.bytes.write(CONTENTS);
        cached.block.appended();
        end.store(1, Ordering::Release);
        reader.join().unwrap();
    });
}

/// One reader loads a block and uses it, another finds it.
#[test]
fn loaded_bytes_are_seen_whole() {
    explore(6, || {
        let domain = EpochDomain::new();
        let cached = Arc::new(Cached { block: Block::new(), bytes: Bytes::new(0) });
        let mut guard = domain.register();
        let reader = {
            let cached = Arc::clone(&cached);
            thread::spawn(move || {
                guard.enter();
                if cached.block.peek() {
                    cached.bytes.check();
                }
                if cached.block.look() {
                    cached.bytes.check();
                }
                guard.leave();
            })
        };
        let mut guard = domain.register();
        cached.read(&mut guard);
        cached.read(&mut guard);
        reader.join().unwrap();
    });
}
