//! How far user writes are with the kernel, and which threads are at it.
//!
//! Locks: `sealing`, `syncing`, then what is stored; the head's comes behind them.

use crate::format::segment::Position;
use crate::lock;
use crate::open_segment::OpenSegment;
use crate::throttle::Throttle;
use crate::try_lock;
use kauri_base::sync::atomic::{AtomicU64, Ordering};
use kauri_base::sync::{Mutex, MutexGuard};

/// See the module's head.
pub struct Flushing {
    stored: Mutex<Stored>,
    /// Up to which commit that was asked for by threads that did not wait for it.
    asked: AtomicU64,
    sealing: Mutex<()>,
    syncing: Mutex<()>,
}

/// What has been stored.
pub struct Stored {
    /// The last commit.
    seq: u64,
    /// The place behind it.
    position: Position,
    /// Full segments that aren't sealed.
    full: Vec<OpenSegment>,
    throttle: Throttle,
}

impl Flushing {
    /// Everything up to this commit and place is with the kernel.
    pub fn new(seq: u64, position: Position) -> Self {
        let stored = Stored { seq, position, full: Vec::new(), throttle: Throttle::default() };
        Flushing {
            stored: Mutex::new(stored),
            asked: AtomicU64::new(0),
            sealing: Mutex::new(()),
            syncing: Mutex::new(()),
        }
    }

    /// Held while bytes are given to the kernel.
    pub fn lock(&self) -> MutexGuard<'_, Stored> {
        lock(&self.stored)
    }

    /// As [`Flushing::lock`], if no thread has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Stored>> {
        try_lock(&self.stored)
    }

    /// Held while full segments are sealed.
    pub fn lock_sealing(&self) -> MutexGuard<'_, ()> {
        lock(&self.sealing)
    }

    /// Held while a drain runs.
    pub fn lock_syncing(&self) -> MutexGuard<'_, ()> {
        lock(&self.syncing)
    }

    /// Leaves word that everything up to this commit is to be stored.
    pub fn ask(&self, seq: u64) {
        self.asked.fetch_max(seq, Ordering::SeqCst);
    }

    /// Forgets that more than this was asked: there is no more.
    pub fn forget_asked(&self, seq: u64) {
        self.asked.fetch_min(seq, Ordering::SeqCst);
    }

    /// As if that had been asked up to this commit and no further.
    #[cfg(test)]
    pub fn set_asked(&self, seq: u64) {
        self.asked.store(seq, Ordering::Relaxed);
    }

    /// Up to which commit that was asked.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Stored {
    /// The last commit, and the place behind it.
    pub fn end(&self) -> (u64, Position) {
        (self.seq, self.position)
    }

    /// Everything up to this commit and place is stored. Answers how many bytes, roughly, that is more.
    pub fn advance(&mut self, seq: u64, position: Position, segment_bytes: u32) -> u64 {
        let bytes = bytes_between(self.position, position, segment_bytes);
        (self.seq, self.position) = (seq, position);
        bytes
    }

    /// What was behind this commit and place is gone; there are no full segments.
    pub fn cut(&mut self, seq: u64, position: Position) {
        (self.seq, self.position) = (seq, position);
        self.throttle = Throttle::default();
    }

    /// Full segments that are stored and to be sealed; the head may hold more where nobody stores.
    pub fn full(&mut self) -> &mut Vec<OpenSegment> {
        &mut self.full
    }

    /// What acknowledgements wait for.
    pub fn throttle(&mut self) -> &mut Throttle {
        &mut self.throttle
    }
}

/// Bytes of the log between two places of one stream, roughly.
fn bytes_between(from: Position, to: Position, segment_bytes: u32) -> u64 {
    if from.epoch == to.epoch {
        return u64::from(to.offset.saturating_sub(from.offset));
    }
    u64::from(segment_bytes.saturating_sub(from.offset)) + u64::from(to.offset)
}
