//! The results per phase of measurements with several phases, which show a server's warm-up: mean, 95th and 99th
//! percentile of each kind of operation.
//!
//! Invariant: a phase's figures are the medians of the rounds that have begun it. This module must not know how
//! phases are measured.

use super::phase::{Counted, KINDS, Kinds, kind_name};
use super::plan::Plan;
use super::report::{count_of, labels, median, micros, rate};
use super::rounds::{Row, Run};
use crate::columns::aligned;
use std::time::Duration;

/// Columns of the tables, of which the first ones are text.
pub const HEAD: [&str; 11] = [
    "workload",
    "server",
    "operation",
    "processes",
    "threads",
    "phase",
    "op/s",
    "count",
    "mean us",
    "p95",
    "p99",
];
/// How many.
pub const LEFT: usize = 3;

/// A line for each phase and kind of operation of each case; none if measurements are not divided.
pub fn lines(plan: &Plan, run: &Run) -> Vec<Vec<String>> {
    run.rows.iter().flat_map(|row| of_row(plan, row)).collect()
}

/// The lines as a text.
pub fn table(plan: &Plan, run: &Run) -> String {
    let lines = lines(plan, run);
    let head = std::iter::once(HEAD.map(str::to_owned).to_vec());
    match lines.is_empty() {
        true => String::new(),
        false => aligned(&head.chain(lines).collect::<Vec<_>>(), &[0, 1, 2]),
    }
}

fn of_row(plan: &Plan, row: &Row) -> Vec<Vec<String>> {
    let rounds: Vec<Vec<(Duration, &Kinds)>> =
        row.rounds.iter().map(|figures| figures.timed_phases(plan.length).collect()).collect();
    let mut lines = Vec::new();
    for phase in 0..plan.phases {
        let begun: Vec<_> = rounds.iter().filter_map(|phases| phases.get(phase)).collect();
        let per_s = begun.iter().map(|(time, kinds)| count_of(kinds) as f64 / time.as_secs_f64());
        let per_s = rate(median(per_s.collect()));
        for (at, kind) in KINDS.iter().enumerate() {
            let counted: Vec<&Counted> =
                begun.iter().filter_map(|(_, kinds)| kinds.get(at)).collect();
            let count: u64 = counted.iter().map(|one| one.latency.count()).sum();
            if count > 0 {
                let [workload, server] = labels(plan, row);
                let us = |figure: &dyn Fn(&Counted) -> f64| {
                    let all = counted.iter().filter(|one| one.latency.count() > 0);
                    format!("{:.1}", micros(median(all.map(|one| figure(one)).collect())))
                };
                lines.push(vec![
                    workload.to_owned(),
                    server.to_owned(),
                    kind_name(*kind).to_owned(),
                    row.case.processes.to_string(),
                    row.case.threads.to_string(),
                    (phase + 1).to_string(),
                    per_s.clone(),
                    count.to_string(),
                    us(&|one| one.latency.mean_ns()),
                    us(&|one| one.latency.percentile_ns(0.95) as f64),
                    us(&|one| one.latency.percentile_ns(0.99) as f64),
                ]);
            }
        }
    }
    lines
}
