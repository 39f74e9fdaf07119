//! The measurements: a row for each case, with its rounds or the reason for their absence.

use super::requests::Operation;
use super::stages::Window;
use super::way::Way;
use crate::compare::median;
use crate::histogram::Histogram;
use std::time::Duration;

/// A case and its rounds.
#[derive(Clone, Debug)]
pub struct Row<C, R> {
    /// What was measured.
    pub case: C,
    /// The rounds, or why there are none.
    pub rounds: Result<Vec<R>, String>,
}

impl<C, R> Row<C, R> {
    /// The rounds, if it could be measured.
    pub fn measured(&self) -> Option<&[R]> {
        self.rounds.as_deref().ok().filter(|rounds| !rounds.is_empty())
    }

    /// The median of a figure over the rounds.
    pub fn median(&self, figure: impl Fn(&R) -> f64) -> Option<f64> {
        self.measured().map(|rounds| median(rounds.iter().map(figure)))
    }

    /// The sum of a figure over the rounds.
    pub fn sum(&self, figure: impl Fn(&R) -> f64) -> Option<f64> {
        self.measured().map(|rounds| rounds.iter().map(figure).sum())
    }
}

/// A data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// `disk` or `memory`.
    pub name: String,
    /// Its file system: `ext4 on /dev/vda`.
    pub file_system: String,
}

/// Where and by what way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// The place, by its position in the report's.
    pub place: usize,
    /// The transport.
    pub way: &'static Way,
}

/// One client, one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SizeCase {
    pub at: At,
    pub operation: Operation,
    pub bytes: u64,
}

/// One measurement of it.
#[derive(Clone)]
pub struct Round {
    /// Of each request.
    pub latency: Histogram,
    /// How long it was measured.
    pub wall: Duration,
    /// The server's stages and the client's cycles meanwhile.
    pub window: Window,
    /// Processor time of the server's process.
    pub server_cpu: Option<Duration>,
    /// Processor time of the client's process.
    pub client_cpu: Option<Duration>,
    /// Latency of the same request to a secondary; of a replica set's Gets.
    pub secondary: Option<Histogram>,
}

/// See [`SizeCase`].
pub type SizeRow = Row<SizeCase, Round>;

/// Requests of which processor time is told.
fn cpu_us(cpu: impl Iterator<Item = Option<Duration>>, requests: u64) -> Option<f64> {
    let spent: Option<Duration> = cpu.sum();
    spent.map(|spent| spent.as_secs_f64() * 1e6 / requests.max(1) as f64)
}

impl Row<SizeCase, Round> {
    /// The median over rounds of a percentile of latency, in microseconds.
    pub fn percentile_us(&self, fraction: f64) -> Option<f64> {
        self.median(|round| round.latency.percentile_ns(fraction) as f64 / 1e3)
    }

    /// The same of a secondary.
    pub fn secondary_us(&self, fraction: f64) -> Option<f64> {
        self.measured()?.iter().all(|round| round.secondary.is_some()).then_some(())?;
        let of = |round: &Round| {
            round.secondary.as_ref().map_or(0.0, |latency| latency.percentile_ns(fraction) as f64)
        };
        self.median(|round| of(round) / 1e3)
    }

    /// The median over rounds of the mean latency, in microseconds.
    pub fn mean_us(&self) -> Option<f64> {
        self.median(|round| round.latency.mean_ns() / 1e3)
    }

    /// Requests of all rounds.
    pub fn requests(&self) -> u64 {
        self.measured().into_iter().flatten().map(|round| round.latency.count()).sum()
    }

    /// All rounds together, so that stages add up.
    pub fn window(&self) -> Option<Window> {
        let windows = self.measured()?.iter().map(|round| round.window);
        windows.reduce(|sum, window| sum.plus(&window))
    }

    /// Whether the stages add up in every round.
    pub fn adds_up(&self) -> Option<bool> {
        self.measured().map(|rounds| rounds.iter().all(|round| round.window.adds_up()))
    }

    /// The server's processor time for a request, in microseconds.
    pub fn server_cpu_us(&self) -> Option<f64> {
        cpu_us(self.measured()?.iter().map(|round| round.server_cpu), self.requests())
    }

    /// The client's processor time for a request, in microseconds.
    pub fn client_cpu_us(&self) -> Option<f64> {
        cpu_us(self.measured()?.iter().map(|round| round.client_cpu), self.requests())
    }

    /// The part of one core that takes so long for a request, in percent.
    pub fn share_percent(&self, cpu_us: Option<f64>) -> Option<f64> {
        let wall_us = self.sum(|round| round.wall.as_secs_f64() * 1e6)?;
        Some(cpu_us? * self.requests() as f64 / wall_us.max(1e-9) * 100.0)
    }
}

/// A model that is read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ModelCase {
    pub at: At,
    pub name: String,
    pub bytes: u64,
}

/// One reading of it.
#[derive(Clone, Copy, Debug)]
pub struct ModelRound {
    /// Until its last byte was in the client's memory.
    pub wall: Duration,
    /// Processor time of the server's process.
    pub server_cpu: Option<Duration>,
    /// Processor time of the client's process.
    pub client_cpu: Option<Duration>,
    /// The same from a secondary of a replica set.
    pub secondary: Option<Duration>,
}

/// See [`ModelCase`].
pub type ModelRow = Row<ModelCase, ModelRound>;

impl Row<ModelCase, ModelRound> {
    /// Seconds, the median.
    pub fn seconds(&self) -> Option<f64> {
        self.median(|round| round.wall.as_secs_f64())
    }

    /// The same from a secondary.
    pub fn secondary_seconds(&self) -> Option<f64> {
        self.measured()?.iter().all(|round| round.secondary.is_some()).then_some(())?;
        self.median(|round| round.secondary.unwrap_or_default().as_secs_f64())
    }

    /// Millions of bytes a second, the median.
    pub fn mb_per_s(&self) -> Option<f64> {
        self.seconds().map(|seconds| self.case.bytes as f64 / 1e6 / seconds.max(1e-9))
    }
}

/// Several client processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ClientsCase {
    pub at: At,
    pub operation: Operation,
    pub bytes: u64,
    pub clients: usize,
    /// Of each client, with a connection each.
    pub threads: usize,
}

/// One measurement of them.
#[derive(Clone)]
pub struct ClientsRound {
    /// Of all their requests.
    pub latency: Histogram,
    /// Requests a second, of all together.
    pub per_s: f64,
    /// Processor time of the server's process.
    pub server_cpu: Option<Duration>,
    /// Requests a second if the clients are spread over all members of a replica set with data; of Gets.
    pub spread_per_s: Option<f64>,
}

/// See [`ClientsCase`].
pub type ClientsRow = Row<ClientsCase, ClientsRound>;

impl Row<ClientsCase, ClientsRound> {
    /// The median over rounds of a percentile of latency, in microseconds.
    pub fn percentile_us(&self, fraction: f64) -> Option<f64> {
        self.median(|round| round.latency.percentile_ns(fraction) as f64 / 1e3)
    }

    /// The median over rounds of the mean latency, in microseconds.
    pub fn mean_us(&self) -> Option<f64> {
        self.median(|round| round.latency.mean_ns() / 1e3)
    }

    /// The median of requests a second of clients that are spread over the members.
    pub fn spread_per_s(&self) -> Option<f64> {
        self.measured()?.iter().all(|round| round.spread_per_s.is_some()).then_some(())?;
        self.median(|round| round.spread_per_s.unwrap_or_default())
    }

    /// How many times the primary's alone that is.
    pub fn capacity(&self) -> Option<f64> {
        Some(self.spread_per_s()? / self.median(|round| round.per_s)?.max(1e-9))
    }

    /// The server's processor time for a request, in microseconds.
    pub fn server_cpu_us(&self) -> Option<f64> {
        let requests = self.measured()?.iter().map(|round| round.latency.count()).sum();
        cpu_us(self.measured()?.iter().map(|round| round.server_cpu), requests)
    }
}

/// All of a run.
#[derive(Clone, Default)]
pub struct Report {
    /// What it was measured with and on: name and value.
    pub about: Vec<(String, String)>,
    /// Whether a place is a replica set.
    pub has_set: bool,
    /// The data directories.
    pub places: Vec<Place>,
    /// By size.
    pub sizes: Vec<SizeRow>,
    /// Models.
    pub models: Vec<ModelRow>,
    /// Several clients.
    pub clients: Vec<ClientsRow>,
}

impl Report {
    /// The name of a place.
    pub fn place(&self, at: At) -> &str {
        self.places.get(at.place).map_or("?", |place| place.name.as_str())
    }

    /// The row by which another one is divided: the same case by the first way.
    pub fn first_way<'r, C, R>(
        rows: &'r [Row<C, R>],
        row: &Row<C, R>,
        same: impl Fn(&C, &C) -> bool,
        way: impl Fn(&C) -> &'static Way,
    ) -> Option<&'r Row<C, R>> {
        let first = super::way::WAYS.first()?;
        rows.iter().find(|other| way(&other.case) == first && same(&other.case, &row.case))
    }

    /// How much faster than by the first way, by medians.
    pub fn size_ratio(&self, row: &SizeRow) -> Option<f64> {
        let same = |a: &SizeCase, b: &SizeCase| {
            (a.at.place, a.operation, a.bytes) == (b.at.place, b.operation, b.bytes)
        };
        let base = Self::first_way(&self.sizes, row, same, |case| case.at.way)?;
        Some(base.percentile_us(0.5)? / row.percentile_us(0.5)?.max(1e-9))
    }

    /// How much faster than by the first way, by medians.
    pub fn model_ratio(&self, row: &ModelRow) -> Option<f64> {
        let same = |a: &ModelCase, b: &ModelCase| a.at.place == b.at.place && a.name == b.name;
        let base = Self::first_way(&self.models, row, same, |case| case.at.way)?;
        Some(base.seconds()? / row.seconds()?.max(1e-9))
    }

    /// How many times the requests a second of the first way, by medians.
    pub fn clients_ratio(&self, row: &ClientsRow) -> Option<f64> {
        let key = |c: &ClientsCase| (c.at.place, c.operation, c.bytes, c.clients, c.threads);
        let same = |a: &ClientsCase, b: &ClientsCase| key(a) == key(b);
        let base = Self::first_way(&self.clients, row, same, |case| case.at.way)?;
        let per_s = |row: &ClientsRow| row.median(|round| round.per_s);
        Some(per_s(row)? / per_s(base)?.max(1e-9))
    }

    /// Rows that could not be measured though their transport needs nothing that a machine may lack.
    pub fn failed(&self) -> usize {
        let ways = [
            self.sizes
                .iter()
                .filter(|row| row.measured().is_none())
                .map(|r| r.case.at.way)
                .collect(),
            self.models
                .iter()
                .filter(|row| row.measured().is_none())
                .map(|r| r.case.at.way)
                .collect(),
            self.clients
                .iter()
                .filter(|row| row.measured().is_none())
                .map(|r| r.case.at.way)
                .collect(),
        ];
        let of = |ways: &Vec<&Way>| ways.iter().filter(|way| !way.needs_device).count();
        ways.iter().map(of).sum()
    }
}
