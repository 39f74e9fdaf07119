//! Keeps the server within the memory of its control groups and of the machine. The server does not start with too
//! little memory. When memory becomes scarce, the cache shrinks, then writes are throttled, then writes that need
//! memory are refused. Otherwise the kernel would kill the server. Memory of indexes is included; growth between
//! two checks is counted. Freed memory is returned to the kernel.
//!
//! Invariant: all of that ends when memory is available again.

use crate::allocator;
use kauri_base::log::{self, Attr};
use kauri_base::work::MemoryBudget;
use kauri_base::{Error, ErrorCode, Result};
use kauri_machine::{ControlGroups, Memory};
use kauri_storage::{MemoryRoom, StorageEngine};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

const CTX: &str = "memory";
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same in a control group, whose memory a few operations can use up within that time.
const LOOK_EVERY_LIMITED: Duration = Duration::from_millis(20);
/// The server's own memory: program, threads, sessions, reserve.
pub const BASE_BYTES: u64 = 96 << 20;
/// The smallest cache.
const CACHE_BYTES_MIN: u64 = 16 << 20;
/// Reserve for growth between two checks: this fraction of the limit, with a minimum.
const RESERVE_DIVISOR: u64 = 16;
const RESERVE_BYTES_MIN: u64 = 24 << 20;
/// The same of a machine's memory, which others use and give back, too.
const MACHINE_RESERVE_DIVISOR: u64 = 64;
const MACHINE_RESERVE_BYTES_MIN: u64 = 64 << 20;

/// Memory that there is, and what of it is kept free.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Watched {
    memory: Memory,
    reserve: u64,
}

impl Watched {
    fn of_group(memory: Memory) -> Watched {
        let reserve = (memory.limit / RESERVE_DIVISOR).max(RESERVE_BYTES_MIN);
        Watched { memory, reserve: reserve.min(memory.limit / 4) }
    }

    fn of_machine(memory: Memory) -> Watched {
        let reserve = (memory.limit / MACHINE_RESERVE_DIVISOR).max(MACHINE_RESERVE_BYTES_MIN);
        Watched { memory, reserve: reserve.min(memory.limit / 4) }
    }

    /// Memory that may be used before the reserve is touched.
    fn free(self) -> u64 {
        self.memory.left().saturating_sub(self.reserve)
    }
}

/// The tighter of both.
fn look(groups: &ControlGroups) -> Option<Watched> {
    let machine = kauri_machine::memory().map(Watched::of_machine);
    let group = groups.memory().map(Watched::of_group);
    machine.into_iter().chain(group).min_by_key(|watched| watched.free())
}

/// The state of the last check, for the next one.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Steering {
    cache_bytes_max: u64,
    room: MemoryRoom,
}

impl Steering {
    fn new(cache_bytes_max: u64) -> Steering {
        let room = MemoryRoom {
            cache_bytes: cache_bytes_max,
            scarcity: 0.0,
            full: false,
            free_bytes: u64::MAX,
        };
        Steering { cache_bytes_max, room }
    }

    /// The cache leaves twice the reserve free. Below one and a half reserves, writes are throttled; below one,
    /// they are refused.
    fn steer(&mut self, watched: Watched) -> MemoryRoom {
        let Watched { memory, reserve } = watched;
        let left = memory.left();
        let (short, ample) = (2 * reserve, 3 * reserve);
        let least = CACHE_BYTES_MIN.min(self.cache_bytes_max);
        let cache = self.room.cache_bytes.saturating_sub(short.saturating_sub(left));
        let cache = cache.saturating_add(left.saturating_sub(ample) / 4);
        let held_up = (reserve + reserve / 2).saturating_sub(left) as f64;
        // Refusing ends a little later than it begins.
        let least_left = if self.room.full { reserve + reserve / 4 } else { reserve };
        self.room = MemoryRoom {
            cache_bytes: cache.clamp(least, self.cache_bytes_max),
            scarcity: (held_up / (reserve as f64 / 2.0).max(1.0)).min(1.0),
            full: left < least_left,
            free_bytes: watched.free(),
        };
        self.room
    }
}

/// Fails if there is less memory than the server needs. The operator's options determine a part of the need.
pub fn check_start(limit: Option<u64>, cache: Option<u64>, pool: u64) -> Result<()> {
    let cache = cache.unwrap_or(CACHE_BYTES_MIN);
    let needed = BASE_BYTES + cache + pool;
    let mb = |bytes: u64| bytes.div_ceil(1 << 20);
    match limit {
        Some(limit) if limit < needed => Err(Error::new(
            ErrorCode::ExceededMemoryLimit,
            format!(
                "the control group limits the server's memory to {} MB, but the server needs at least {} MB: {} \
                 for itself, {} for the cache (--cacheSizeGB) and {} for large messages over RDMA \
                 (--rdmaPoolMB). Raise the limit or lower these options",
                limit >> 20,
                mb(needed),
                mb(BASE_BYTES),
                mb(cache),
                mb(pool)
            ),
        )),
        _ => Ok(()),
    }
}

/// The default cache size: half of the memory beyond 1 GB, and at least 256 MB, as in MongoDB; but never more than
/// half of all memory.
pub fn default_cache_bytes(limit: u64) -> u64 {
    const GB: u64 = 1 << 30;
    (limit.saturating_sub(GB) / 2).max((256 << 20).min(limit / 2))
}

/// Makes each worker return freed memory of its own heap.
type GiveBack = Box<dyn Fn() + Send + Sync>;
/// So much less than before must operations hold.
const FREED_BYTES: u64 = 4 << 20;

/// Minimum interval: busy operations need again what they have freed.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(1);

/// When workers have freed much: each keeps free pages for itself, which no other thread can give back.
struct Freed {
    most: u64,
    looks: u32,
    looks_between: u32,
}

impl Freed {
    fn new(look_every: Duration) -> Freed {
        let looks_between = GIVE_BACK_EVERY.div_duration_f64(look_every) as u32;
        Freed { most: 0, looks: 0, looks_between }
    }

    /// Whether operations, which held `most` since the last look and hold `used` now, have freed much since this
    /// was true, which is some time ago.
    fn is_due(&mut self, most: u64, used: u64) -> bool {
        self.most = self.most.max(most).max(used);
        self.looks = self.looks.saturating_add(1);
        let is_due = self.most - used >= FREED_BYTES && self.looks >= self.looks_between;
        if is_due {
            (self.most, self.looks) = (used, 0);
        }
        is_due
    }
}

/// Looks after an engine's memory until it is dropped.
pub struct MemoryWatch {
    workers: Arc<OnceLock<GiveBack>>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Begins.
    pub fn start(
        engine: &Arc<dyn StorageEngine>,
        cache_bytes_max: u64,
        operations: Arc<MemoryBudget>,
    ) -> Result<MemoryWatch> {
        let groups = ControlGroups::of_process();
        let limit = groups.limit();
        if let Some(limit) = limit {
            let attr = Attr::new().num("limitBytes", limit).num("cacheBytes", cache_bytes_max);
            log::info("CONTROL", 6_200_110, CTX, "Control group limits memory", attr);
        }
        let (stop, stopped) = mpsc::channel();
        let (engine, held) = (Arc::clone(engine), Arc::clone(&operations));
        let mut steering = Steering::new(cache_bytes_max);
        let mut see = move || {
            let Some(watched) = look(&groups) else { return };
            let before = steering.room;
            let room = steering.steer(watched);
            engine.set_memory(room);
            operations.set_scarce(room.scarcity > 0.0);
            tell(before, room, watched.memory);
        };
        // Indexes are made before the next look.
        see();
        let every = if limit.is_some() { LOOK_EVERY_LIMITED } else { LOOK_EVERY };
        if limit.is_some() {
            allocator::give_back_after(LOOK_EVERY_LIMITED);
        }
        let workers = Arc::new(OnceLock::<GiveBack>::new());
        let told = Arc::clone(&workers);
        let mut freed = Freed::new(every);
        let watch = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if freed.is_due(held.take_most_used(), held.used())
                    && let Some(give_back) = told.get()
                {
                    give_back();
                }
                allocator::give_back();
                see();
            }
        };
        let thread = std::thread::Builder::new().name("memory".to_owned()).spawn(watch);
        let thread = thread.map_err(|error| {
            Error::new(ErrorCode::InternalError, format!("cannot start a thread: {error}"))
        })?;
        Ok(MemoryWatch { workers, stop: Some(stop), thread: Some(thread) })
    }

    /// Calls this whenever operations have freed much.
    pub fn on_freed(&self, give_back: impl Fn() + Send + Sync + 'static) {
        let _ = self.workers.set(Box::new(give_back));
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Logs when writes begin or cease to be refused.
fn tell(before: MemoryRoom, room: MemoryRoom, memory: Memory) {
    let attr = Attr::new()
        .num("limitBytes", memory.limit)
        .num("usedBytes", memory.used)
        .num("cacheBytes", room.cache_bytes);
    match (before.full, room.full) {
        (false, true) => {
            let msg = "Memory limit nearly reached: writes that need memory are refused. Delete documents, \
                       drop indexes, or raise the limit";
            log::warning("CONTROL", 6_200_111, CTX, msg, attr);
        }
        (true, false) => {
            log::info(
                "CONTROL",
                6_200_112,
                CTX,
                "Memory is available again; writes are accepted",
                attr,
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn memory(used_mb: u64) -> Watched {
        Watched::of_group(Memory { limit: 512 * MB, used: used_mb * MB })
    }

    #[test]
    fn workers_return_memory_once_after_large_frees() {
        let mut freed = Freed::new(GIVE_BACK_EVERY / 4);
        let due = |&(most, used): &(u64, u64)| freed.is_due(most * MB, used * MB);
        let looks = [(0, 0), (20, 20), (4, 4), (4, 4), (4, 4), (4, 3), (20, 3), (3, 3), (3, 3)];
        let seen: Vec<_> = looks.iter().map(due).collect();
        assert_eq!(seen, [false, false, false, true, false, false, false, true, false]);
    }

    #[test]
    fn indexes_may_grow_up_to_the_reserve() {
        let free = |used_mb| Steering::new(200 * MB).steer(memory(used_mb)).free_bytes;
        assert_eq!((free(100), free(470), free(480), free(512)), (380 * MB, 10 * MB, 0, 0));
    }

    #[test]
    fn the_reserve_of_a_machine_is_smaller_than_of_a_control_group() {
        let machine = |limit_mb: u64| {
            let memory = Memory { limit: limit_mb * MB, used: 0 };
            Watched::of_machine(memory).reserve / MB
        };
        assert_eq!((machine(128), machine(1024), machine(32_768)), (32, 64, 512));
    }

    #[test]
    fn scarce_memory_shrinks_the_cache_then_throttles_then_refuses_writes() {
        // A reserve of 32 MB.
        let mut steering = Steering::new(200 * MB);
        let room = steering.steer(memory(100));
        assert_eq!((room.cache_bytes, room.scarcity, room.full), (200 * MB, 0.0, false));
        let room = steering.steer(memory(458));
        assert_eq!((room.cache_bytes, room.scarcity, room.full), (190 * MB, 0.0, false));
        let room = steering.steer(memory(472));
        assert_eq!((room.cache_bytes, room.scarcity, room.full), (166 * MB, 0.5, false));
        let room = steering.steer(memory(481));
        assert_eq!((room.cache_bytes, room.scarcity, room.full), (133 * MB, 1.0, true));
        for _ in 0..10 {
            steering.steer(memory(500));
        }
        assert_eq!(steering.room.cache_bytes, CACHE_BYTES_MIN);
        // What was refused is accepted when there is somewhat more than when it began.
        assert!(steering.steer(memory(475)).full);
        assert!(!steering.steer(memory(471)).full);
        assert_eq!(steering.steer(memory(448)).cache_bytes, CACHE_BYTES_MIN);
        for _ in 0..100 {
            steering.steer(memory(300));
        }
        let room = steering.room;
        assert_eq!((room.cache_bytes, room.full), (200 * MB, false), "it is as before");
    }

    #[test]
    fn too_little_memory_is_refused_with_the_minimum() {
        assert!(check_start(None, None, 0).is_ok());
        assert!(check_start(Some(112 * MB), None, 0).is_ok());
        let error = check_start(Some(100 * MB), None, 64 * MB).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ExceededMemoryLimit);
        assert!(
            error.to_string().contains("to 100 MB, but the server needs at least 176 MB"),
            "{error}"
        );
        let error = check_start(Some(1 << 30), Some(1 << 30), 0).unwrap_err();
        assert!(error.to_string().contains("1024 for the cache"), "{error}");
    }

    #[test]
    fn the_cache_is_sized_by_the_limit() {
        for (limit, cache) in [(200, 100), (500, 250), (1024, 256), (4096, 1536), (65_536, 32_256)]
        {
            assert_eq!(default_cache_bytes(limit * MB), cache * MB, "{limit}");
        }
    }
}
