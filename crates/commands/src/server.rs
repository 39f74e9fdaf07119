//! What all commands share: the catalog, cursors, parameters, counters.

use crate::cursors::CursorManager;
use crate::locks::Locks;
use crate::ops::Operations;
use crate::parameters::Parameters;
use crate::profiling::Profiling;
use crate::sessions::Sessions;
use crate::spilling::SpillSettings;
use kauri_base::failpoint::FailPoints;
use kauri_base::work::MemoryBudget;
use kauri_base::{Clock, RandomSource, Result, limits};
use kauri_bson::{DocBuf, Value};
use kauri_catalog::{Catalog, OperationUsage};
pub use kauri_query::plan::PlanCache;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The version that clients are told.
pub const VERSION: &str = "7.0.14";
/// The same as an array.
pub const VERSION_ARRAY: [i32; 4] = [7, 0, 14, 0];
/// Newest wire protocol version spoken.
pub const MAX_WIRE_VERSION: i32 = 21;

/// How the server was started.
pub struct StartInfo {
    /// The command line.
    pub argv: Vec<String>,
    /// The options as parsed (`getCmdLineOpts`).
    pub parsed: DocBuf,
    /// `host:port` as clients may reach it.
    pub host: String,
    /// The port of the first TCP listener.
    pub port: u16,
    /// Where the data lies.
    pub dbpath: String,
    /// When, in milliseconds since 1970.
    pub started_ms: i64,
    /// The process.
    pub pid: u32,
    /// Git revision of the build.
    pub revision: &'static str,
    /// What it runs on.
    pub machine: Machine,
}

/// The machine that the server runs on, as `hostInfo` tells it.
#[derive(Clone, Default)]
pub struct Machine {
    /// The host's name.
    pub hostname: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// Memory that the process may use (a container's limit), in bytes.
    pub memory_limit_bytes: u64,
    /// The distribution and its version.
    pub os_name: String,
    /// The kernel's version.
    pub os_version: String,
    /// Bytes of a memory page.
    pub page_bytes: u64,
    /// Files that the process may have open.
    pub open_files_max: u64,
    /// The CPU's model and features as the kernel tells them.
    pub cpu: String,
}

/// Memory of the process, in bytes.
#[derive(Clone, Copy, Default)]
pub struct ProcessMemory {
    /// In RAM.
    pub resident: u64,
    /// Mapped.
    pub mapped: u64,
}

/// Looks at the memory of the process.
pub type MemoryProbe = Box<dyn Fn() -> ProcessMemory + Send + Sync>;

/// Asks the process to end (`shutdown`); the argument is the time to wait for operations in seconds.
pub type ShutdownHook = Box<dyn Fn(u64) + Send + Sync>;

/// Goes on in a new log file (`logRotate`).
pub type RotateHook = Box<dyn Fn() -> kauri_base::Result<()> + Send + Sync>;

/// See the module's head.
pub struct Server {
    /// Databases, collections, indexes.
    pub catalog: Arc<Catalog>,
    /// Open cursors.
    pub cursors: CursorManager,
    /// Plans that were found good, and index filters.
    pub plans: Arc<PlanCache>,
    /// Tells this process from others in `topologyVersion`.
    pub process_id: [u8; 12],
    /// Running operations.
    pub operations: Operations,
    /// `getParameter`, `setParameter`.
    pub parameters: Parameters,
    /// Locks around operations; none unless they are asked for.
    pub locks: Locks,
    /// Failpoints of tests.
    pub fail_points: FailPoints,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// What operations may put into temporary files.
    pub spilling: SpillSettings,
    /// Randomness.
    pub random: Arc<dyn RandomSource>,
    /// Logical sessions.
    pub sessions: Sessions,
    /// Levels of the profiler.
    pub profiling: Profiling,
    /// How the server was started.
    pub start: StartInfo,
    /// Looks at the memory of the process.
    pub memory: MemoryProbe,
    /// What operations may hold in memory, and do.
    pub operation_memory: Arc<MemoryBudget>,
    /// Counts commands and documents.
    pub counters: Counters,
    /// Counts operations and their times.
    pub usage: OperationUsage,
    /// Asks the process to end.
    pub shutdown: ShutdownHook,
    /// Goes on in a new log file.
    pub rotate_log: RotateHook,
    /// Whether `fsync` with `lock` is in force, and how often.
    pub fsync_locks: AtomicI64,
    /// Operations that take at least so many milliseconds are logged (`slowms`).
    pub slow_ms: AtomicI64,
    /// Whether the process is ending.
    pub stopping: AtomicBool,
}

/// How often a command ran and failed.
#[derive(Default)]
pub struct CommandCounter {
    /// Runs.
    pub total: AtomicU64,
    /// Runs that failed.
    pub failed: AtomicU64,
}

/// A counter for each command, by its number.
pub struct CommandCounters(Vec<CommandCounter>);

impl Default for CommandCounters {
    fn default() -> Self {
        CommandCounters(crate::cmds::ALL.iter().map(|_| CommandCounter::default()).collect())
    }
}

impl CommandCounters {
    /// Counts a run.
    pub fn count(&self, number: usize, failed: bool) {
        if let Some(counter) = self.0.get(number) {
            counter.total.fetch_add(1, Ordering::Relaxed);
            if failed {
                counter.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Runs and failures of each command, in the order of `cmds::ALL`.
    pub fn read(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|counter| {
            (counter.total.load(Ordering::Relaxed), counter.failed.load(Ordering::Relaxed))
        })
    }
}

/// `opcounters`, `metrics.document` and the like.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Counters {
    /// By command; without the runs of `find` on the express path, which `query` counts.
    pub commands: CommandCounters,
    pub unknown_commands: AtomicU64,
    pub insert: AtomicU64,
    pub query: AtomicU64,
    pub update: AtomicU64,
    pub delete: AtomicU64,
    pub getmore: AtomicU64,
    pub command: AtomicU64,
    pub docs_inserted: AtomicU64,
    pub docs_returned: AtomicU64,
    pub docs_updated: AtomicU64,
    pub docs_deleted: AtomicU64,
    pub ttl_deleted: AtomicU64,
    pub ttl_passes: AtomicU64,
    pub asserts_user: AtomicU64,
    pub memory_waits: AtomicU64,
    pub write_conflicts: AtomicU64,
    /// By [`kauri_wire::Compressor::id`].
    pub compression: [CompressionCounts; 4],
}

/// Bytes of messages through one compressor: requests as they came and as they were, replies as they were
/// and as they went.
#[derive(Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CompressionCounts {
    pub requests_packed: AtomicU64,
    pub requests_plain: AtomicU64,
    pub replies_plain: AtomicU64,
    pub replies_packed: AtomicU64,
}

impl Server {
    /// Has what parameters set follow their changes.
    pub fn follow_parameters(&self) {
        self.spilling.follow(&self.parameters);
        let plans = self.plans.clone();
        let hook = move |value: &Value<'_>| -> Result<()> {
            plans.refuse_scans(value.truthy());
            Ok(())
        };
        self.parameters.on_change("notablescan", Arc::new(hook));
    }

    /// Whether something is in force that every command has to be looked at for: failpoints, a
    /// shutdown.
    pub fn is_special(&self) -> bool {
        self.fail_points.any_active() || self.stopping.load(Ordering::Relaxed)
    }

    /// Most bytes of a batch of a cursor that goes on: as MongoDB's, and less where memory is limited, since a reply is
    /// held whole.
    pub fn reply_bytes_max(&self) -> usize {
        reply_bytes_max(self.start.machine.memory_limit_bytes)
    }
}

/// What operations may hold by default where the server may have so much memory (0: unknown): one of them, and
/// all together, in bytes. The rest is for the cache, the indexes and the connections.
pub fn operation_memory_limits(memory: u64) -> (u64, u64) {
    const MB: u64 = 1 << 20;
    if memory == 0 {
        return (0, 0);
    }
    let one = (memory / 8).max(64 * MB);
    (one, one.max(memory / 4))
}

/// 0 stands for memory of unknown size.
fn reply_bytes_max(memory: u64) -> usize {
    const LEAST: u64 = 1 << 20;
    const DIVISOR: u64 = 32;
    let most = limits::REPLY_BYTES_MAX as u64;
    if memory == 0 { most as usize } else { (memory / DIVISOR).clamp(LEAST, most) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_a_small_part_of_little_memory() {
        let most = limits::REPLY_BYTES_MAX;
        for (memory, bytes) in
            [(0, most), (8 << 20, 1 << 20), (160 << 20, 5 << 20), (8 << 30, most)]
        {
            assert_eq!(reply_bytes_max(memory), bytes);
        }
    }

    #[test]
    fn operations_may_hold_a_part_of_the_memory() {
        const MB: u64 = 1 << 20;
        for (memory, one, all) in
            [(0, 0, 0), (160, 64, 64), (1024, 128, 256), (4096, 512, 1024), (24_576, 3072, 6144)]
        {
            assert_eq!(operation_memory_limits(memory * MB), (one * MB, all * MB), "{memory}");
        }
    }
}
