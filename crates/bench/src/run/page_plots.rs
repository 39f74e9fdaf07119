//! The plots of a run's page; a server has the same colour everywhere.

use super::page::{beside_first, case_label, counted_of, spread};
use super::phase::{Counted, Figures, KINDS, kind_name};
use super::plan::Plan;
use super::report::median;
use super::rounds::{Row, Run};
use crate::plots::{self, Bar, Line, Lines, colour};

/// Percentiles that are drawn, and where: each step leaves a tenth, or so, of the slower ones.
const DRAWN: [(f64, f64, &str); 5] = [
    (0.5, 0.0, "50"),
    (0.9, 1.0, "90"),
    (0.95, 1.5, "95"),
    (0.99, 2.5, "99"),
    (0.999, 3.5, "99.9"),
];

/// With the servers' names: each plot may be taken from the page.
fn named(plan: &Plan, plot: &Lines<'_>) -> String {
    let names = plan.servers.iter().enumerate().map(|(at, one)| (one.label.clone(), colour(at)));
    plots::with_legend(&plots::lines(plot), &names.collect::<Vec<_>>())
}

/// Operations a second of each case, with their spread.
pub(super) fn throughput(plan: &Plan, rows: &[&Row]) -> String {
    let bar = |row: &&Row| {
        let [least, middle, most] = spread(row.rounds.iter().map(Figures::per_s))?;
        let parts = vec![(middle, colour(row.case.server))];
        Some(Bar { name: case_label(plan, row), parts, spread: Some((least, most)) })
    };
    let bars: Vec<Bar> = rows.iter().filter_map(bar).collect();
    plots::bars("Throughput", "operations a second; more is better", &bars)
}

/// Throughput by the number of threads, if there are several: a plot for each number of processes.
pub(super) fn threads_plot(plan: &Plan, rows: &[&Row]) -> String {
    if plan.threads.len() < 2 {
        return String::new();
    }
    plan.processes.iter().map(|processes| threads_plot_of(plan, rows, *processes)).collect()
}

fn threads_plot_of(plan: &Plan, rows: &[&Row], processes: usize) -> String {
    let line = |server: usize| {
        let of = rows.iter().filter(|row| row.case.server == server);
        let of = of.filter(|row| row.case.processes == processes);
        let point = |row: &&Row| {
            let per_s = median(row.rounds.iter().map(Figures::per_s).collect());
            (row.case.threads as f64, per_s)
        };
        let mut points: Vec<_> = of.map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { colour: colour(server), dashed: false, points }
    };
    let lines: Vec<Line> = (0..plan.servers.len()).map(line).collect();
    let mut threads = plan.threads.clone();
    threads.sort_unstable();
    named(
        plan,
        &Lines {
            title: match plan.processes.len() {
                1 => "Throughput by threads".to_owned(),
                _ => format!("Throughput by threads, processes: {processes}"),
            },
            x_title: "threads",
            y_title: "operations a second",
            marks: threads.iter().map(|count| (*count as f64, count.to_string())).collect(),
            log: false,
            lines: &lines,
        },
    )
}

/// Latencies of one kind of operation: a plot for each number of processes and threads.
pub(super) fn latencies(plan: &Plan, rows: &[&Row], kind: usize) -> String {
    let Some(name) = KINDS.get(kind).map(|kind| kind_name(*kind)) else { return String::new() };
    let mut out = String::new();
    for numbers in plan.numbers() {
        let of = rows.iter().filter(|row| row.case.numbers() == numbers);
        let line = |row: &&Row| {
            let counted = counted_of(row, kind)?;
            let point = |(part, x, _): (f64, f64, &str)| {
                let ns = counted.iter().map(|one| one.latency.percentile_ns(part) as f64);
                (x, median(ns.collect()) / 1000.0)
            };
            let points = DRAWN.map(point).to_vec();
            Some(Line { colour: colour(row.case.server), dashed: false, points })
        };
        let lines: Vec<Line> = of.filter_map(line).collect();
        if lines.is_empty() {
            continue;
        }
        let title = match plan.numbers_text(numbers) {
            None => format!("{name}, latency"),
            Some(numbers) => format!("{name}, latency, {numbers}"),
        };
        out += &named(
            plan,
            &Lines {
                title,
                x_title: "percent of the operations that took no longer",
                y_title: "microseconds",
                marks: DRAWN.map(|(_, x, text)| (x, text.to_owned())).to_vec(),
                log: true,
                lines: &lines,
            },
        );
    }
    out
}

/// A kind's mean time and 99th percentile (dashed) in each phase, if there are several: a plot for each number of
/// processes and threads.
pub(super) fn phases_plot(plan: &Plan, rows: &[&Row], kind: usize) -> String {
    let Some(name) = KINDS.get(kind).map(|kind| kind_name(*kind)) else { return String::new() };
    if plan.phases < 2 {
        return String::new();
    }
    let mut out = String::new();
    for numbers in plan.numbers() {
        let of = rows.iter().filter(|row| row.case.numbers() == numbers);
        let lines: Vec<Line> = of.flat_map(|row| by_phase(plan, row, kind)).collect();
        if lines.iter().all(|line| line.points.is_empty()) {
            continue;
        }
        let title = match plan.numbers_text(numbers) {
            None => format!("{name} by phase"),
            Some(numbers) => format!("{name} by phase, {numbers}"),
        };
        out += &named(
            plan,
            &Lines {
                title,
                x_title: "phase",
                y_title: "microseconds: mean, and 99th percentile (dashed)",
                marks: (1..=plan.phases).map(|n| (n as f64, n.to_string())).collect(),
                log: true,
                lines: &lines,
            },
        );
    }
    out
}

/// The two lines of a server, each point the median of the rounds.
fn by_phase(plan: &Plan, row: &Row, kind: usize) -> [Line; 2] {
    let line = |dashed: bool, figure: fn(&Counted) -> f64| {
        let point = |phase: usize| {
            let begun = row.rounds.iter().filter_map(|round| round.phases.get(phase)?.get(kind));
            let begun: Vec<f64> =
                begun.filter(|counted| counted.latency.count() > 0).map(figure).collect();
            let known = !begun.is_empty();
            known.then(|| ((phase + 1) as f64, median(begun) / 1000.0))
        };
        let points = (0..plan.phases).filter_map(point).collect();
        Line { colour: colour(row.case.server), dashed, points }
    };
    [
        line(false, |counted| counted.latency.mean_ns()),
        line(true, |counted| counted.latency.percentile_ns(0.99) as f64),
    ]
}

/// Each round's ratio to the first server, if there are several servers and rounds.
pub(super) fn ratios(plan: &Plan, run: &Run, rows: &[&Row]) -> String {
    if plan.servers.len() < 2 || plan.rounds < 2 {
        return String::new();
    }
    let mut out = String::new();
    for numbers in plan.numbers() {
        let line = |row: &&Row| {
            let points = (1..).map(f64::from).zip(beside_first(run, row)).collect();
            Line { colour: colour(row.case.server), dashed: row.case.server == 0, points }
        };
        let of = rows.iter().filter(|row| row.case.numbers() == numbers);
        let lines: Vec<Line> = of.map(line).collect();
        // Of many rounds some are named.
        let step = plan.rounds.div_ceil(10);
        let marks = (1..=plan.rounds).filter(|n| (n - 1) % step == 0 || *n == plan.rounds);
        let title = match plan.numbers_text(numbers) {
            None => "Times the first server's throughput".to_owned(),
            Some(numbers) => format!("Times the first server's throughput, {numbers}"),
        };
        out += &named(
            plan,
            &Lines {
                title,
                x_title: "round",
                y_title: "times",
                marks: marks.map(|n| (n as f64, n.to_string())).collect(),
                log: false,
                lines: &lines,
            },
        );
    }
    out
}
