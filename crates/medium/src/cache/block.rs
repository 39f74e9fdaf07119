//! The state of one block of a segment: one byte, changed by compare-and-swap only.
//!
//! ```text
//!            begin_load           finish_load            tick
//!   EMPTY ───────────────▶ LOADING ─────────▶ RESIDENT ───────▶ EVICTING
//!     ▲  ◀─────────────────┘  fail_load        ▲  ▲ └◀── look ───┘ │
//!     │ └──────────── appended ────────────────┘  └─── settle ─────┤
//!     └──────────────── dropped ──────────── DROPPING ◀── settle ──┘
//! ```
//!
//! - A reader (inside its guard) may read the block's bytes if it saw RESIDENT, or changed EVICTING back to
//!   RESIDENT.
//! - The thread that changed the state to LOADING or DROPPING owns the bytes until it ends that state.
//! - TRACKED means that the clock has the block: its name is in the clock's ring, or in a batch of marked blocks
//!   whose `settle` is deferred until all current readers have left. There is at most one such name. So a block is
//!   never marked again before it is settled, and a `settle` cannot act on a later mark, whose readers may still be
//!   active. Only the owner of the name clears TRACKED (`tick`, `settle`, `dropped`); every other change keeps it.
//! - REF is set by readers. The clock clears it, and so does a reader that found only dead data. A block is evicted
//!   if no reader used it between two visits of the clock.
//! - AWAITED is set by a load with a waiter, and cleared by the first read. Until then the block is not evicted;
//!   otherwise readers with little memory could evict each other's blocks forever.
//!
//! Orderings: the end of LOADING and of DROPPING releases the changes of the bytes; every `look` acquires. All
//! other changes are read-modify-writes, which continue the release sequence.

use crate::sync::{AtomicU8, Ordering};

const STATE: u8 = 0b111;
const EMPTY: u8 = 0;
const LOADING: u8 = 1;
const RESIDENT: u8 = 2;
const EVICTING: u8 = 3;
const DROPPING: u8 = 4;
const TRACKED: u8 = 1 << 3;
const REF: u8 = 1 << 4;
const AWAITED: u8 = 1 << 5;

/// See the module's head.
pub(crate) struct Block(AtomicU8);

/// The clock's action for the name that it just took from its ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tick {
    /// Back into the ring.
    Keep,
    /// Into a batch of marked blocks, to be settled.
    Settle,
    /// Forget it: the block has no memory.
    Forget,
}

/// The result for a marked block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// No reader used it: the caller discards the bytes and calls [`Block::dropped`].
    Dropping,
    /// It stays in memory, and its name returns to the ring.
    Kept,
    /// It was emptied when the segment was recycled.
    Gone,
}

/// Whether the caller has to put the block's name into the clock's ring.
pub(crate) type Untracked = bool;

impl Block {
    pub(crate) fn new() -> Self {
        Block(AtomicU8::new(EMPTY))
    }

    /// Whether the reader may read the bytes now.
    #[inline]
    pub(crate) fn look(&self) -> bool {
        let seen = self.0.load(Ordering::Acquire);
        seen & (STATE | REF) == RESIDENT | REF || self.look_closer(seen)
    }

    fn look_closer(&self, mut seen: u8) -> bool {
        loop {
            let wanted = match seen & STATE {
                // Seen resident inside a guard is enough; the chance is the clock's business.
                RESIDENT => {
                    let _ = self.swap(seen, (seen | REF) & !AWAITED);
                    return true;
                }
                EVICTING => (seen & TRACKED) | RESIDENT | REF,
                _ => return false,
            };
            match self.swap(seen, wanted) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Clears REF: no reader will use the block again. A hint, like REF itself.
    pub(crate) fn fade(&self) {
        let seen = self.0.load(Ordering::Relaxed);
        if seen & (STATE | REF) == RESIDENT | REF {
            let _ = self.swap(seen, seen & !REF);
        }
    }

    /// Like [`Block::look`], but without a mark of use: the block may be evicted as before.
    pub(crate) fn peek(&self) -> bool {
        self.0.load(Ordering::Acquire) & STATE == RESIDENT
    }

    /// Whether it holds bytes; a hint, since nothing keeps it so.
    pub(crate) fn is_resident(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed) & STATE, RESIDENT | EVICTING)
    }

    /// Whether a thread is about to make it EMPTY: soon, because only a system call is left.
    pub(crate) fn is_dropping(&self) -> bool {
        self.0.load(Ordering::Relaxed) & STATE == DROPPING
    }

    /// EMPTY → LOADING. The caller has the bytes for itself if it answers true.
    pub(crate) fn begin_load(&self) -> bool {
        self.change(|seen| (seen & STATE == EMPTY).then_some((seen & TRACKED) | LOADING)).is_some()
    }

    /// LOADING → RESIDENT.
    pub(crate) fn finish_load(&self, awaited: bool) -> Untracked {
        let awaited = if awaited { AWAITED } else { 0 };
        let before = self.change(|_| Some(TRACKED | RESIDENT | awaited));
        before.is_some_and(|seen| seen & TRACKED == 0)
    }

    /// LOADING → EMPTY.
    pub(crate) fn fail_load(&self) {
        self.change(|seen| Some((seen & TRACKED) | EMPTY));
    }

    /// EMPTY → RESIDENT, by the appender before it publishes bytes in this block.
    pub(crate) fn appended(&self) -> Untracked {
        let before = self.change(|_| Some(TRACKED | RESIDENT));
        before.is_some_and(|seen| seen & TRACKED == 0)
    }

    /// A visit of the clock. Marks the block if no reader has used it since the last visit and it `may_go`. A block
    /// whose reader has not come yet stays if the clock has `patience` with it.
    pub(crate) fn tick(&self, patience: bool, may_go: impl Fn() -> bool) -> Tick {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let (wanted, tick) = match seen & STATE {
                EMPTY => (EMPTY, Tick::Forget),
                RESIDENT if seen & REF != 0 => (seen & !REF, Tick::Keep),
                RESIDENT if seen & AWAITED != 0 && patience => return Tick::Keep,
                RESIDENT if may_go() => (EVICTING | TRACKED, Tick::Settle),
                _ => return Tick::Keep,
            };
            match self.swap(seen, wanted) {
                Ok(()) => return tick,
                Err(now) => seen = now,
            }
        }
    }

    /// After all readers at the moment of marking have left: EVICTING → DROPPING, unless a reader has used it since
    /// or it may not go after all.
    pub(crate) fn settle(&self, may_go: bool) -> Settled {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let (wanted, settled) = match seen & STATE {
                EVICTING if may_go => (DROPPING | TRACKED, Settled::Dropping),
                EVICTING => (RESIDENT | TRACKED, Settled::Kept),
                EMPTY => (EMPTY, Settled::Gone),
                _ => return Settled::Kept,
            };
            match self.swap(seen, wanted) {
                Ok(()) => return settled,
                Err(now) => seen = now,
            }
        }
    }

    /// DROPPING → EMPTY, after the bytes were discarded.
    pub(crate) fn dropped(&self) {
        self.0.store(EMPTY, Ordering::Release);
    }

    /// → EMPTY, when the whole segment is being recycled and no reader can access it. Returns whether it held
    /// memory.
    pub(crate) fn empty(&self) -> bool {
        let before = self.change(|seen| Some((seen & TRACKED) | EMPTY));
        before.is_some_and(|seen| seen & STATE != EMPTY)
    }

    /// Swaps in what `wanted` makes of the current value; answers the value before, or None if
    /// `wanted` declined.
    fn change(&self, wanted: impl Fn(u8) -> Option<u8>) -> Option<u8> {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            match self.swap(seen, wanted(seen)?) {
                Ok(()) => return Some(seen),
                Err(now) => seen = now,
            }
        }
    }

    #[inline]
    fn swap(&self, seen: u8, wanted: u8) -> Result<(), u8> {
        self.0.compare_exchange(seen, wanted, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }
}
