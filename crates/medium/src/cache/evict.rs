//! Decides which blocks to evict: a clock over the resident blocks. The evictor's thread, or a thread that finds
//! the budget exceeded, advances it by a bounded number of blocks at a time.
//!
//! The clock's ring is a queue of names, not a walk over the states of all blocks: with a small budget over a large
//! log, nearly all blocks are empty.

use super::Pressure;
use super::block::Tick;
use super::table::{BlockId, Table, add, get};
use crate::EpochDomain;
use crate::sync::lock;
use kauri_base::sync::atomic::{AtomicBool, Ordering};
use kauri_base::sync::{Arc, Mutex, OnceLock};
use std::collections::VecDeque;
use std::thread::{self, Thread};
use std::time::Duration;

/// Names per step: some 40 us.
const STEP_TICKS_MAX: usize = 4096;
/// Blocks marked in one step: they share one deferral and, as neighbours, system calls. More than the largest
/// request loads.
const STEP_MARKS_MAX: u64 = 1024;
/// Fruitless rounds after which the clock is stuck: one round clears all REF bits.
const ROUNDS_FRUITLESS_MAX: usize = 2;
/// Number of later loads for which a loaded block waits for the reader that requested it: more than concurrent
/// waiting readers.
const PATIENCE_LOADS: u32 = 1024;
/// Once the budget is exceeded, blocks are taken until this part of it is free.
const ROOM_DIVISOR: u64 = 32;
/// Beyond the budget by this part of it, a thread that adds to it helps the evictor's thread.
const HELP_DIVISOR: u64 = 16;
/// How long the thread waits for readers to leave before it checks again.
const GRACE_WAIT: Duration = Duration::from_millis(1);
/// How long it waits when nothing can be evicted.
const STUCK_WAIT: Duration = Duration::from_millis(20);
/// Interval of checks for deferred closures without other work.
const IDLE_WAIT: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Clock {
    ring: VecDeque<BlockId>,
    /// Ticks since the last mark.
    fruitless: usize,
}

pub(super) struct Evictor {
    table: Arc<Table>,
    domain: Arc<EpochDomain>,
    clock: Mutex<Clock>,
    stuck: AtomicBool,
    /// Whether a thread is there to do the work.
    threaded: bool,
    thread: OnceLock<Thread>,
    closed: AtomicBool,
}

impl Evictor {
    pub(super) fn new(table: Arc<Table>, domain: Arc<EpochDomain>, threaded: bool) -> Self {
        Evictor {
            table,
            domain,
            clock: Mutex::default(),
            stuck: AtomicBool::new(false),
            threaded,
            thread: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Bytes that will be resident beyond `limit` when all marked blocks are gone.
    fn excess(&self, limit: u64) -> u64 {
        let resident = get(&self.table.counters.resident);
        resident.saturating_sub(get(&self.table.counters.evicting)).saturating_sub(limit)
    }

    fn budget(&self) -> u64 {
        get(&self.table.counters.budget)
    }

    fn over_budget(&self) -> bool {
        get(&self.table.counters.resident) > self.budget()
    }

    pub(super) fn pressure(&self) -> Pressure {
        match (self.over_budget(), self.stuck.load(Ordering::Relaxed)) {
            (false, _) => Pressure::None,
            (true, false) => Pressure::Evicting,
            (true, true) => Pressure::Stuck,
        }
    }

    /// Called after blocks became resident or the budget changed. Does a bounded amount of the evictor's work if
    /// there is no thread, or if the thread does not keep up.
    pub(super) fn relieve(&self) {
        if !self.over_budget() {
            return;
        }
        if self.threaded {
            self.kick();
            self.help();
        } else {
            self.step();
            self.domain.collect();
        }
    }

    /// Marks some blocks if the evictor's thread doesn't keep up. Giving them back is left to it.
    fn help(&self) {
        let budget = self.budget();
        if self.excess(budget + budget / HELP_DIVISOR) > 0 {
            self.step();
        }
    }

    /// Called by a thread that may take its time, before it loads more.
    pub(super) fn make_room(&self) {
        self.help();
        if get(&self.table.counters.evicting) > 0 && self.over_budget() {
            self.domain.collect();
        }
    }

    fn kick(&self) {
        // Before the thread has begun there is nothing to wake: it begins by looking.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Moves the clock, marking blocks, until enough are marked or its bounded work is done. Answers
    /// whether it makes sense to go on at once.
    fn step(&self) -> bool {
        let budget = self.budget();
        if self.excess(budget) == 0 {
            self.stuck.store(false, Ordering::Relaxed);
            return false;
        }
        let block_bytes = self.table.block_bytes as u64;
        let wanted = self.excess(budget - budget / ROOM_DIVISOR).div_ceil(block_bytes);
        let mut batch = Vec::new();
        let mut clock = lock(&self.clock);
        let clock = &mut *clock;
        self.table.take_arrivals(&mut clock.ring);
        for _ in 0..STEP_TICKS_MAX {
            if batch.len() as u64 >= wanted.min(STEP_MARKS_MAX) {
                break;
            }
            let Some(name) = clock.ring.pop_front() else { break };
            clock.fruitless += 1;
            let Some(segment) = self.table.get(name.segment) else { continue };
            let patience = self.table.loads_since(&name) < PATIENCE_LOADS;
            match segment.tick(name.block, patience) {
                Tick::Keep => clock.ring.push_back(name),
                Tick::Forget => {}
                Tick::Settle => {
                    batch.push(name);
                    clock.fruitless = 0;
                }
            }
        }
        let stuck = clock.fruitless > ROUNDS_FRUITLESS_MAX * clock.ring.len();
        self.stuck.store(stuck && batch.is_empty(), Ordering::Relaxed);
        if !batch.is_empty() {
            batch.sort_unstable_by_key(|name| (name.segment, name.block));
            add(&self.table.counters.evicting, batch.len() as u64 * block_bytes);
            let table = Arc::clone(&self.table);
            self.domain.defer(Box::new(move || table.settle(&batch)));
        }
        !stuck && self.excess(budget) > 0
    }

    /// The thread's work, until [`Evictor::close`].
    pub(super) fn run(&self) {
        let thread = self.thread.get_or_init(thread::current);
        self.domain.add_collector(thread.clone());
        while !self.closed.load(Ordering::Acquire) {
            let more = self.step();
            self.domain.collect();
            if more {
                continue;
            }
            // An unpark since the last park makes this return at once.
            thread::park_timeout(if self.stuck.load(Ordering::Relaxed) {
                STUCK_WAIT
            } else if self.domain.pending() > 0 {
                GRACE_WAIT
            } else {
                IDLE_WAIT
            });
        }
        self.domain.remove_collector(thread);
    }

    /// Ends the thread's work.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.kick();
    }
}
