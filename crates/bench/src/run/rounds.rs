//! The turns: each server once per round in each case, in reverse order in every other round.
//!
//! Invariants: records are loaded once per server and workload, whatever the server's number of addresses. A server
//! that is unreachable or does not match ends the run before anything is loaded. This module must not know the
//! format of reports.

use super::failed;
use super::observe::{Observed, observe};
use super::phase::{Figures, Measurement, SoFar, TOLD_EACH, load};
use super::plan::{LeftOut, Plan, Server, Workload};
use super::processes::Program;
use crate::workload::CoreWorkload;
use kauri_base::Result;
use kauri_transport::monotonic_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};

/// What is being done, for who waits.
#[derive(Clone, Copy)]
pub enum Progress<'p> {
    /// A server is being filled. Told every few seconds, and at the end.
    Loading {
        /// Which.
        server: &'p str,
        /// With this workload's records.
        workload: &'p str,
        /// How many it has so far.
        records: u64,
        /// Whether these are all.
        done: bool,
    },
    /// A measurement goes on. Told every few seconds.
    Measuring {
        /// Of this case.
        case: &'p Case,
        /// In this round.
        round: usize,
        /// How far it is.
        so_far: SoFar,
    },
    /// A measurement is over.
    Measured {
        /// Of this case.
        case: &'p Case,
        /// In this round.
        round: usize,
        /// What came of it.
        figures: &'p Figures,
    },
}

/// What one row of the report is of: places in the plan's lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// The workload's place.
    pub workload: usize,
    /// The number of client processes.
    pub processes: usize,
    /// The number of threads of each.
    pub threads: usize,
    /// The server's place.
    pub server: usize,
}

impl Case {
    /// Client processes, and threads of each.
    pub fn numbers(&self) -> (usize, usize) {
        (self.processes, self.threads)
    }

    /// The first server's of the same workload and numbers.
    pub fn of_first_server(&self) -> Case {
        Case { server: 0, ..self.clone() }
    }
}

/// A case and its measurements, round by round.
#[derive(Clone)]
pub struct Row {
    /// What was measured.
    pub case: Case,
    /// Whole rounds only, but for one that was stopped.
    pub rounds: Vec<Figures>,
}

/// What came of a run.
pub struct Run {
    /// What was found of each server.
    pub observed: Vec<Observed>,
    /// In the plan's order.
    pub rows: Vec<Row>,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}

fn look(server: &Server) -> Result<Observed> {
    let observed = observe(&server.label, &server.uri)?;
    server.expected.check(&server.label, &observed)?;
    Ok(observed)
}

/// What the servers are, each of them as asked for.
pub fn look_at_all(plan: &Plan) -> Result<Vec<Observed>> {
    plan.servers.iter().map(look).collect()
}

/// Leaves out of the plan what may be missing, and is.
pub fn leave_out(plan: &mut Plan) {
    let left_out = &mut plan.left_out;
    plan.servers.retain(|server| {
        let missing = server.optional.then(|| look(server).err()).flatten();
        left_out.extend(
            missing
                .iter()
                .map(|why| LeftOut { label: server.label.clone(), why: why.message().to_owned() }),
        );
        missing.is_none()
    });
}

/// For each server the place of the first that is the same.
fn same_servers(observed: &[Observed]) -> Vec<usize> {
    let first = |at: usize| {
        let of = observed.get(at).and_then(|one| one.process.as_ref());
        let same = |one: &Observed| of.is_some() && one.process.as_ref() == of;
        observed.iter().position(same).unwrap_or(at)
    };
    (0..observed.len()).map(first).collect()
}

/// Runs it all; client processes beside this one are `program`. Ends early, with what there is, when `stop` is
/// set.
pub fn run(
    plan: &Plan,
    program: &Program,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Run> {
    if plan.servers.is_empty() {
        return Err(failed("the run", "all of its servers were left out"));
    }
    let observed = look_at_all(plan)?;
    let same = same_servers(&observed);
    let mut rows = Vec::new();
    for (place, workload) in plan.workloads.iter().enumerate() {
        let loaded = filled(plan, workload, &same, stop, progress)?;
        for (processes, threads) in plan.numbers() {
            let cases = (0..plan.servers.len()).map(|server| Row {
                case: Case { workload: place, processes, threads, server },
                rounds: Vec::new(),
            });
            let mut cases: Vec<Row> = cases.collect();
            let servers = Servers { program, observed: &observed, loaded: &loaded };
            take_turns(plan, &servers, &mut cases, stop, progress)?;
            rows.extend(cases);
        }
    }
    Ok(Run { observed, rows, stopped: stop.load(Ordering::Relaxed) })
}

/// Fills each server with the workload's records. For each of the plan's servers, what is asked of it.
fn filled(
    plan: &Plan,
    workload: &Workload,
    same: &[usize],
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Arc<CoreWorkload>>> {
    let mut all: Vec<Arc<CoreWorkload>> = Vec::new();
    for (place, server) in plan.servers.iter().enumerate() {
        let first = same.get(place).copied().unwrap_or(place);
        if let Some(there) = all.get(first) {
            all.push(Arc::clone(there));
            continue;
        }
        let own = Arc::new(CoreWorkload::new(workload.settings.clone()));
        let threads = plan.threads.iter().copied().max().unwrap_or(1);
        let loaded = AtomicU64::new(0);
        let mut tell = |done| {
            let (server, workload) = (&server.label, &workload.label);
            let records = loaded.load(Ordering::Relaxed);
            progress(Progress::Loading { server, workload, records, done });
        };
        let (ends, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (own, loaded, seed) = (&own, &loaded, plan.seed);
            let loading = scope.spawn(move || {
                // Dropped when it ends, however it does.
                let _ends = ends;
                load(server, own, threads, seed, stop, loaded)
            });
            while ended.recv_timeout(TOLD_EACH) == Err(RecvTimeoutError::Timeout) {
                tell(false);
            }
            loading.join().unwrap_or_else(|_| Err(failed(&server.label, "a thread panicked")))
        })?;
        tell(true);
        all.push(own);
    }
    Ok(all)
}

/// By the plan's servers: what was found, and what is asked; and what asks.
struct Servers<'s> {
    program: &'s Program,
    observed: &'s [Observed],
    loaded: &'s [Arc<CoreWorkload>],
}

fn take_turns(
    plan: &Plan,
    servers: &Servers<'_>,
    cases: &mut [Row],
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<()> {
    for round in 0..plan.rounds {
        let mut order: Vec<&mut Row> = cases.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for row in order {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let place = row.case.server;
            let (Some(server), Some(found), Some(asked), Some(workload)) = (
                plan.servers.get(place),
                servers.observed.get(place),
                servers.loaded.get(place),
                plan.workloads.get(row.case.workload),
            ) else {
                return Err(failed("the run", "a case that is not in the plan"));
            };
            let measurement = Measurement {
                server,
                pid: found.pid_here,
                transport: &found.transport,
                workload: asked,
                threads: row.case.threads,
                processes: row.case.processes,
                process: 0,
                target: workload.target,
                warm_up: plan.warm_up,
                length: plan.length,
                phases: plan.phases,
                seed: plan.seed.wrapping_add(round as u64 + 1),
                told_each: TOLD_EACH,
            };
            let case = &row.case;
            let mut tell = |so_far| progress(Progress::Measuring { case, round, so_far });
            let figures = match case.processes {
                1 => measurement.run(stop, || Ok(monotonic_ns()), &mut tell)?,
                _ => {
                    let properties = &workload.properties;
                    measurement.run_apart(servers.program, properties, stop, &mut tell)?
                }
            };
            progress(Progress::Measured { case: &row.case, round, figures: &figures });
            row.rounds.push(figures);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::observe::Topology;

    #[test]
    fn addresses_of_one_process_are_one_server() {
        let found = |process: Option<(&str, u32)>| Observed {
            transport: "tcp".to_owned(),
            fallback: None,
            topology: Topology::Standalone,
            version: String::new(),
            engine: None,
            medium: None,
            memory_limit_mb: None,
            process: process.map(|(host, pid)| (host.to_owned(), pid)),
            pid_here: None,
        };
        let all = [
            found(Some(("a", 1))),
            found(None),
            found(Some(("a", 1))),
            found(Some(("b", 1))),
            found(None),
            found(Some(("b", 1))),
        ];
        assert_eq!(same_servers(&all), [0, 1, 0, 3, 4, 3]);
    }
}
