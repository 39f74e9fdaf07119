//! Counters and stage histograms, kept per worker and summed on demand.
//!
//! Each worker writes only its own, with plain loads and stores, so counting costs the hot path almost nothing. A
//! reader sees a recent value of each number.

use crate::arrivals::ArrivalsSnapshot;
use crate::establishment::{EstablishmentCounts, EstablishmentLimiter};
use crate::executor::WorkerHandle;
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::rdma::RdmaRefusal;
use crate::ring::RingCounts;
use crate::upgrade::{FastTransport, UpgradeStats};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A number that one thread changes and any thread reads.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    pub fn sub(&self, n: u64) {
        self.0.store(self.get().wrapping_sub(n), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The stages of a request's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// From the beginning of the read that brought its first byte until its last byte was there.
    Source,
    /// In the service: from the complete message to the complete reply, waits included.
    Process,
    /// Until the transport had taken the whole reply.
    Sink,
    /// Readable, but not yet its turn on the worker.
    Other,
    /// Not part of a request: from the end of the one before to the first sign of this one.
    IdleWait,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Stage; 5] =
        [Stage::Source, Stage::Process, Stage::Sink, Stage::Other, Stage::IdleWait];

    /// The name in `serverStatus`.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Source => "source",
            Stage::Process => "process",
            Stage::Sink => "sink",
            Stage::Other => "other",
            Stage::IdleWait => "idleWait",
        }
    }
}

/// Counters of a worker's rings of one transport.
#[derive(Default)]
pub(crate) struct RingStats {
    pub frames_in: Counter,
    pub frames_out: Counter,
    pub credits_in: Counter,
    pub credits_out: Counter,
    pub pieces_in: Counter,
    pub pieces_out: Counter,
}

impl RingStats {
    /// Adds the traffic of an end since `before`.
    pub fn add(&self, now: RingCounts, before: RingCounts) {
        self.frames_in.add(now.frames_in - before.frames_in);
        self.frames_out.add(now.frames_out - before.frames_out);
        self.credits_in.add(now.credits_in - before.credits_in);
        self.credits_out.add(now.credits_out - before.credits_out);
        self.pieces_in.add(now.pieces_in - before.pieces_in);
        self.pieces_out.add(now.pieces_out - before.pieces_out);
    }
}

/// The counters of a worker.
pub(crate) struct WorkerStats {
    pub waits: Counter,
    pub ticks: Counter,
    pub polls: Counter,
    pub spins: Counter,
    pub spin_hits: Counter,
    pub receives: Counter,
    pub sends: Counter,
    pub sends_together: Counter,
    /// Sessions that went on elsewhere.
    pub moved: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub logical_in: Counter,
    pub logical_out: Counter,
    pub requests: Counter,
    pub active: Counter,
    shared_memory: RingStats,
    rdma: RingStats,
    stages: [Histogram; 5],
}

impl WorkerStats {
    /// Goes up whenever the worker looks for something to do.
    pub(crate) fn turns(&self) -> u64 {
        self.ticks.get() + self.waits.get() + self.spins.get()
    }

    pub fn new() -> Self {
        WorkerStats {
            waits: Counter::default(),
            ticks: Counter::default(),
            polls: Counter::default(),
            spins: Counter::default(),
            spin_hits: Counter::default(),
            receives: Counter::default(),
            sends: Counter::default(),
            sends_together: Counter::default(),
            moved: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            logical_in: Counter::default(),
            logical_out: Counter::default(),
            requests: Counter::default(),
            active: Counter::default(),
            shared_memory: RingStats::default(),
            rdma: RingStats::default(),
            stages: std::array::from_fn(|_| Histogram::new()),
        }
    }

    pub fn rings(&self, transport: FastTransport) -> &RingStats {
        match transport {
            FastTransport::SharedMemory => &self.shared_memory,
            FastTransport::Rdma => &self.rdma,
        }
    }

    pub fn record(&self, stage: Stage, duration_ns: u64) {
        if let Some(histogram) = self.stages.get(stage as usize) {
            histogram.record(duration_ns);
        }
    }

    pub fn snapshot(&self, id: usize, sessions: usize) -> WorkerSnapshot {
        WorkerSnapshot {
            id,
            sessions: sessions as u64,
            active: self.active.get(),
            requests: self.requests.get(),
            waits: self.waits.get(),
            ticks: self.ticks.get(),
            polls: self.polls.get(),
            spins: self.spins.get(),
            spin_hits: self.spin_hits.get(),
            receives: self.receives.get(),
            sends: self.sends.get(),
            sends_together: self.sends_together.get(),
            moved: self.moved.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
        }
    }
}

/// One worker's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSnapshot {
    /// Its number.
    pub id: usize,
    /// Sessions that live on it.
    pub sessions: u64,
    /// Of these, how many have a request in progress.
    pub active: u64,
    /// Requests received.
    pub requests: u64,
    /// Calls of epoll_wait.
    pub waits: u64,
    /// Ticks.
    pub ticks: u64,
    /// Tasks polled.
    pub polls: u64,
    /// Looks for events while spinning.
    pub spins: u64,
    /// Times that spinning found something.
    pub spin_hits: u64,
    /// Calls of receive.
    pub receives: u64,
    /// Sends.
    pub sends: u64,
    /// Sends that went with others in one system call.
    pub sends_together: u64,
    /// Sessions that went on on another worker, where their packets arrive.
    pub moved: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

/// `serverStatus`: `connections`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Open sessions, without those that wait to be established.
    pub current: u64,
    /// Number of further sessions that may be accepted.
    pub available: u64,
    /// Sessions ever accepted.
    pub total_created: u64,
    /// Connections closed at once because there were too many.
    pub rejected: u64,
    /// Sessions with a request in progress.
    pub active: u64,
}

/// `serverStatus`: `network`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NetworkCounts {
    /// Bytes of requests, uncompressed.
    pub bytes_in: u64,
    /// Bytes of replies, uncompressed.
    pub bytes_out: u64,
    /// Bytes received.
    pub physical_bytes_in: u64,
    /// Bytes sent.
    pub physical_bytes_out: u64,
    /// Requests received.
    pub requests: u64,
}

/// `serverStatus`: `sharedMemory`, and most of `rdma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "see `UpgradeCounts` and `RingCounts`")]
pub struct FastTransportCounts {
    pub sessions: u64,
    pub offered: u64,
    pub switched: u64,
    pub withdrawn: u64,
    pub refused: u64,
    pub failed: u64,
    pub frames_in: u64,
    pub frames_out: u64,
    pub credits_in: u64,
    pub credits_out: u64,
    pub pieces_in: u64,
    pub pieces_out: u64,
}

/// The counters of the whole service. Shared by the session manager and reports.
pub struct ServiceStats {
    workers: Vec<WorkerHandle>,
    pub(crate) connections: AtomicUsize,
    pub(crate) connections_max: AtomicUsize,
    pub(crate) created: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) upgrades: Arc<UpgradeStats>,
    pub(crate) establishment: Arc<EstablishmentLimiter>,
}

impl ServiceStats {
    pub(crate) fn new(
        workers: &[WorkerHandle],
        connections_max: usize,
        establishment: Arc<EstablishmentLimiter>,
    ) -> Self {
        ServiceStats {
            workers: workers.to_vec(),
            connections: AtomicUsize::new(0),
            connections_max: AtomicUsize::new(connections_max),
            created: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            upgrades: Arc::default(),
            establishment,
        }
    }

    /// Connections that waited to be established, or were refused for it.
    pub fn establishment(&self) -> EstablishmentCounts {
        self.establishment.counts()
    }

    /// Connections now and ever.
    pub fn connections(&self) -> ConnectionCounts {
        let all = self.connections.load(Ordering::Relaxed) as u64;
        let max = self.connections_max.load(Ordering::Relaxed) as u64;
        ConnectionCounts {
            current: all.saturating_sub(self.establishment.counts().queued),
            available: max.saturating_sub(all),
            total_created: self.created.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            active: self.workers.iter().map(|w| w.shared.stats.active.get()).sum(),
        }
    }

    /// Bytes and requests.
    pub fn network(&self) -> NetworkCounts {
        let mut sum = NetworkCounts::default();
        for stats in self.workers.iter().map(|w| &w.shared.stats) {
            sum.bytes_in = sum.bytes_in.wrapping_add(stats.logical_in.get());
            sum.bytes_out = sum.bytes_out.wrapping_add(stats.logical_out.get());
            sum.physical_bytes_in += stats.bytes_in.get();
            sum.physical_bytes_out += stats.bytes_out.get();
            sum.requests += stats.requests.get();
        }
        sum
    }

    /// Memory of large messages that are arriving.
    pub fn arrivals(&self) -> ArrivalsSnapshot {
        self.workers.first().map(|worker| worker.shared.arrivals.snapshot()).unwrap_or_default()
    }

    /// Sessions over a transport that they have changed over to, and what went through their rings.
    pub fn fast_transport(&self, transport: FastTransport) -> FastTransportCounts {
        let upgrades = self.upgrades.of(transport);
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut sum = FastTransportCounts {
            sessions: now(&upgrades.sessions),
            offered: now(&upgrades.offered),
            switched: now(&upgrades.switched),
            withdrawn: now(&upgrades.withdrawn),
            refused: now(&upgrades.refused),
            failed: now(&upgrades.failed),
            ..FastTransportCounts::default()
        };
        for stats in self.workers.iter().map(|w| &w.shared.stats) {
            let rings = stats.rings(transport);
            sum.frames_in += rings.frames_in.get();
            sum.frames_out += rings.frames_out.get();
            sum.credits_in += rings.credits_in.get();
            sum.credits_out += rings.credits_out.get();
            sum.pieces_in += rings.pieces_in.get();
            sum.pieces_out += rings.pieces_out.get();
        }
        sum
    }

    /// Requests for RDMA that were refused, by reason.
    pub fn rdma_refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.upgrades.rdma_refusals.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        RdmaRefusal::NAMES.into_iter().zip(counts)
    }

    /// Each worker's own counters.
    pub fn workers(&self) -> Vec<WorkerSnapshot> {
        self.workers.iter().map(WorkerHandle::stats).collect()
    }

    /// The times of requests in a stage.
    pub fn stage(&self, stage: Stage) -> HistogramSnapshot {
        let mut sum = HistogramSnapshot::default();
        for worker in &self.workers {
            if let Some(histogram) = worker.shared.stats.stages.get(stage as usize) {
                histogram.merge_into(&mut sum);
            }
        }
        sum
    }
}
