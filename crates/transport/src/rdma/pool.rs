//! The server's memory for large messages: chunks that pieces are read into and written from. The pool is pinned
//! once and shared by all sessions. Peers cannot access it.
//!
//! Invariants:
//! - A chunk returns when the device is done with it. Received bytes are copied out on arrival. A send completes,
//!   or fails after the device has given up on the peer. A session has few chunks.
//! - Chunks that wait for a peer to consume them, which may take long, are at most half of all chunks.
//! - A chunk that the device may still use is never handed out.

use crate::ring::PIECE_BYTES_MAX;
use kauri_verbs::{Access, MemoryRegion, ProtectionDomain, RegionSlice, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pool {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In all.
    bytes: u64,
    free: Vec<MemoryRegion>,
    waiting: Vec<Waker>,
    exhausted: u64,
}

/// The counters of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolCounts {
    /// In all.
    pub bytes: u64,
    /// Of these, those that nobody uses.
    pub free_bytes: u64,
    /// Number of requests for a chunk while there was none.
    pub exhausted: u64,
}

impl Pool {
    /// A pool of this size, rounded down to whole chunks.
    pub fn new(domain: &ProtectionDomain, bytes: u64) -> Result<Pool> {
        let chunk = PIECE_BYTES_MAX as usize;
        let chunks = usize::try_from(bytes).unwrap_or(usize::MAX) / chunk;
        let mut free = Vec::with_capacity(chunks);
        if chunks > 0 {
            let mut rest = domain.register(chunks * chunk, Access::LOCAL_WRITE)?;
            while let Ok((one, more)) = rest.split_at(chunk) {
                free.push(one);
                rest = more;
                if free.len() == chunks {
                    break;
                }
            }
        }
        let bytes = (chunks * chunk) as u64;
        Ok(Pool { state: Mutex::new(State { bytes, free, ..State::default() }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free chunk; without one, `waker` is woken when there is one. A caller without a waker has an alternative,
    /// and gets no chunk while others wait.
    pub fn take(self: &Arc<Self>, waker: Option<&Waker>) -> Option<Chunk> {
        let mut state = self.lock();
        if (waker.is_some() || state.waiting.is_empty())
            && let Some(region) = state.free.pop()
        {
            return Some(Chunk { region: Some(region), pool: Arc::clone(self) });
        }
        state.exhausted += 1;
        if let Some(waker) = waker
            && !state.waiting.iter().any(|known| known.will_wake(waker))
        {
            state.waiting.push(waker.clone());
        }
        None
    }

    /// A chunk for what waits for its peer, as long as more than half of all are free.
    pub fn take_to_keep(self: &Arc<Self>) -> Option<Chunk> {
        let mut state = self.lock();
        let free_bytes = state.free.len() as u64 * u64::from(PIECE_BYTES_MAX);
        if !state.waiting.is_empty() || free_bytes * 2 <= state.bytes {
            return None;
        }
        let region = state.free.pop();
        region.map(|region| Chunk { region: Some(region), pool: Arc::clone(self) })
    }

    /// What there is.
    pub fn counts(&self) -> PoolCounts {
        let state = self.lock();
        PoolCounts {
            bytes: state.bytes,
            free_bytes: state.free.len() as u64 * u64::from(PIECE_BYTES_MAX),
            exhausted: state.exhausted,
        }
    }

    fn give(&self, mut region: MemoryRegion) {
        let mut state = self.lock();
        if region.bytes_mut().is_some() {
            state.free.push(region);
        } else {
            // A request still refers to it: a queue pair that could not be destroyed. It is nobody's any more.
            state.bytes -= u64::from(PIECE_BYTES_MAX);
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // All of them: one that has ended meanwhile would keep it from the others.
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A part of a pool, until it is dropped.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// There, until the drop.
    region: Option<MemoryRegion>,
    pool: Arc<Pool>,
}

impl Chunk {
    /// Its first bytes, for a request.
    pub fn part(&self, length: u32) -> Result<RegionSlice<'_>> {
        let none = kauri_verbs::Error::Argument("a chunk without memory");
        self.region.as_ref().ok_or(none)?.slice(0, length as usize)
    }

    /// The chunk with these bytes copied in, one part after the other. `None` if they are too long.
    pub fn filled(mut self, parts: [&[u8]; 2]) -> Option<Chunk> {
        let region = self.region.as_mut()?;
        let mut at = 0;
        for part in parts {
            region.write(at, part).ok()?;
            at += part.len();
        }
        Some(self)
    }

    /// Appends its first bytes.
    pub fn append_to(&self, length: u32, into: &mut Vec<u8>) -> Result<()> {
        self.region.as_ref().map_or(Ok(()), |region| region.append_to(0, length as usize, into))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            self.pool.give(region);
        }
    }
}
