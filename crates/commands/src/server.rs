//! What all commands share: catalog, cursors, parameters, counters.

use crate::cmds::auto_compact::AutoCompact;
use crate::cursors::CursorManager;
use crate::fsync_lock::FsyncLock;
use crate::oplog::Own;
use crate::ops::Operations;
use crate::parameters::Parameters;
use crate::profiler::Profiler;
use crate::profiling::Profiling;
use crate::registry::Role;
use crate::sessions::Sessions;
use crate::spilling::SpillSettings;
use kauri_base::failpoint::FailPoints;
use kauri_base::work::MemoryBudget;
use kauri_base::{Clock, RandomSource, Result, limits};
use kauri_bson::{DocBuf, DocWriter, Value};
use kauri_catalog::{Catalog, OperationUsage};
pub use kauri_machine::{Machine, ProcessMemory};
use kauri_member::{Member, MemberState};
use kauri_query::exec::Totals;
pub use kauri_query::plan::PlanCache;
use kauri_storage::Backend;
use kauri_transport::WorkerHandle;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The version reported to clients.
pub const VERSION: &str = "8.0.28";
/// The same as an array.
pub const VERSION_ARRAY: [i32; 4] = [8, 0, 28, 0];
/// Newest wire protocol version spoken.
pub const MAX_WIRE_VERSION: i32 = 25;
/// `featureCompatibilityVersion`: that of all data.
pub const FEATURE_COMPATIBILITY: &str = "8.0";

/// The start of the server: its options.
pub struct StartInfo {
    /// The command line.
    pub argv: Vec<String>,
    /// The options as parsed (`getCmdLineOpts`).
    pub parsed: DocBuf,
    /// `host:port` as clients may reach it.
    pub host: String,
    /// `host:port` by which other members of a set reach it, unless a configuration says otherwise.
    pub member_host: String,
    /// The port of the first TCP listener.
    pub port: u16,
    /// The data directory.
    pub dbpath: String,
    /// When, in milliseconds since 1970.
    pub started_ms: i64,
    /// The process.
    pub pid: u32,
    /// Git revision of the build.
    pub revision: &'static str,
    /// The machine.
    pub machine: Machine,
}

/// Whether a `host:port` is this server. May look names up, and so blocks for a while.
pub type HostProbe = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The reply to a `hello`, or why there is none.
pub type Greeting = Pin<Box<dyn Future<Output = std::result::Result<DocBuf, String>> + Send>>;

/// Says `hello` to the server at a `host:port`, on this worker.
pub type Greeter = Arc<dyn Fn(&WorkerHandle, &str) -> Greeting + Send + Sync>;

/// Reads the memory use of the process.
pub type MemoryProbe = Box<dyn Fn() -> ProcessMemory + Send + Sync>;

/// Writes figures of the machine (`getDiagnosticData`).
pub type SystemProbe = Box<dyn Fn(&mut DocWriter<'_>) + Send + Sync>;

/// Asks the process to end (`shutdown`); the argument is the time to wait for operations in seconds.
pub type ShutdownHook = Box<dyn Fn(u64) + Send + Sync>;

/// Goes on in a new log file (`logRotate`); takes the client's comment, as JSON.
pub type RotateHook = Box<dyn Fn(Option<&str>) -> kauri_base::Result<()> + Send + Sync>;

/// See the module's head.
pub struct Server {
    /// The backend of all operations.
    pub backend: Arc<Backend>,
    /// Databases, collections, indexes.
    pub catalog: Arc<Catalog>,
    /// Open cursors.
    pub cursors: CursorManager,
    /// Plans that were found good, and index filters.
    pub plans: Arc<PlanCache>,
    /// Identifies this process in `topologyVersion`.
    pub process_id: [u8; 12],
    /// Running operations.
    pub operations: Operations,
    /// `getParameter`, `setParameter`.
    pub parameters: Parameters,
    /// Locks around operations; none unless they are asked for.
    #[cfg(feature = "lock-experiment")]
    pub locks: crate::locks::Locks,
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
    /// The profiler's settings.
    pub profiling: Profiling,
    /// The profiler.
    pub profiler: Profiler,
    /// The member of a replica set that this server is (`--replSet`).
    pub member: Option<Arc<Member>>,
    /// Tells which host of a set's configuration this server is.
    pub is_self: HostProbe,
    /// Asks the servers that are to begin a set. `None`: they are not asked.
    pub greet: Option<Greeter>,
    /// The start of the server.
    pub start: StartInfo,
    /// Reads the memory use of the process.
    pub memory: MemoryProbe,
    /// Writes figures of the machine.
    pub system: SystemProbe,
    /// Memory of operations, and its limits.
    pub operation_memory: Arc<MemoryBudget>,
    /// Counts commands and documents.
    pub counters: Counters,
    /// Counts operations and their times.
    pub usage: OperationUsage,
    /// Asks the process to end.
    pub shutdown: ShutdownHook,
    /// Goes on in a new log file.
    pub rotate_log: RotateHook,
    /// `fsync` with `lock`.
    pub fsync_lock: Arc<FsyncLock>,
    /// `autoCompact`.
    pub auto_compact: AutoCompact,
    /// Threshold of slow operations, in milliseconds (`slowms`).
    pub slow_ms: AtomicI64,
    /// Whether the process is ending.
    pub stopping: AtomicBool,
}

/// Number of runs and failures of a command.
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

    /// Counts that a run which is counted already has failed.
    pub fn count_failure(&self, number: usize) {
        if let Some(counter) = self.0.get(number) {
            counter.failed.fetch_add(1, Ordering::Relaxed);
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
    /// By command; runs of `find` on the express path are counted in `query` only.
    pub commands: CommandCounters,
    pub unknown_commands: AtomicU64,
    pub insert: AtomicU64,
    pub query: AtomicU64,
    pub update: AtomicU64,
    pub delete: AtomicU64,
    pub getmore: AtomicU64,
    pub command: AtomicU64,
    pub docs_inserted: AtomicU64,
    /// Without those of [`Counters::found_by_id`].
    pub docs_returned: AtomicU64,
    pub docs_updated: AtomicU64,
    pub docs_deleted: AtomicU64,
    pub ttl_deleted: AtomicU64,
    pub ttl_passes: AtomicU64,
    /// Documents that the express path's finds have given, each by its key in the index on `_id`.
    pub found_by_id: AtomicU64,
    /// Keys and documents that other plans have examined.
    pub keys_scanned: AtomicU64,
    pub docs_scanned: AtomicU64,
    /// Operations whose plan sorts.
    pub sorts: AtomicU64,
    pub asserts_user: AtomicU64,
    pub memory_waits: AtomicU64,
    pub write_conflicts: AtomicU64,
    /// Commands and statements that were executed before.
    pub retried_commands: AtomicU64,
    pub retried_statements: AtomicU64,
    /// By [`kauri_wire::Compressor::id`].
    pub compression: [CompressionCounts; 4],
}

/// Bytes of messages through one compressor: requests and replies, compressed and uncompressed.
#[derive(Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CompressionCounts {
    pub requests_packed: AtomicU64,
    pub requests_plain: AtomicU64,
    pub replies_plain: AtomicU64,
    pub replies_packed: AtomicU64,
}

impl Counters {
    /// Counts what an operation's plan has examined.
    pub fn count_plan(&self, plan: &Totals) {
        self.keys_scanned.fetch_add(plan.keys_examined, Ordering::Relaxed);
        self.docs_scanned.fetch_add(plan.docs_examined, Ordering::Relaxed);
        if plan.sorts {
            self.sorts.fetch_add(1, Ordering::Relaxed);
        }
    }
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

    /// The role of this server.
    pub fn role(&self) -> Role {
        let Some(member) = &self.member else { return Role::Standalone };
        match member.standing() {
            (MemberState::Primary, true) => Role::Primary,
            // A new primary has not applied everything yet.
            (MemberState::Primary, false) | (MemberState::Secondary, _) => Role::Secondary,
            (MemberState::Arbiter, _) => Role::Arbiter,
            _ => Role::Recovering,
        }
    }

    /// The collections of `local` that this server makes, and does not store.
    pub fn own_collections(&self) -> Own<'_> {
        Own { member: self.member.as_ref(), engine: self.backend.engine() }
    }

    /// Whether this server makes changes of its own accord.
    pub fn accepts_writes(&self) -> bool {
        matches!(self.role(), Role::Standalone | Role::Primary)
    }

    /// Most bytes of a batch of a cursor that goes on: as MongoDB's, and less where memory is limited, since a reply is
    /// held whole.
    pub fn reply_bytes_max(&self) -> usize {
        reply_bytes_max(self.start.machine.memory_limit_bytes)
    }
}

/// Default memory limits of operations for a server with this memory (0: unknown): of one operation, and of all
/// together, in bytes. The rest is for the cache, the indexes and the connections.
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
