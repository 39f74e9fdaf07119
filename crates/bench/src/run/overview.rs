//! All workloads side by side: a row per server, and per reference of the run file, such as a paper's numbers. The
//! figure is the mean of all operations, which is what papers report.

use super::page::{case_label, spread};
use super::phase::Figures;
use super::plan::{Plan, Reference};
use super::rounds::{Row, Run};
use crate::html;
use crate::plots::{self, Line, Lines, colour};

/// The mean time of an operation of any kind, in microseconds.
fn mean_us(figures: &Figures) -> f64 {
    let sum: f64 =
        figures.kinds.iter().map(|one| one.latency.mean_ns() * one.latency.count() as f64).sum();
    sum / 1000.0 / figures.operations().max(1) as f64
}

/// A line of the table and of the plot: for each workload its microseconds, where they are known.
struct Entry {
    label: String,
    is_reference: bool,
    us: Vec<Option<f64>>,
}

fn of_servers(plan: &Plan, run: &Run) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for row in run.rows.iter().filter(|row| !row.rounds.is_empty()) {
        let label = case_label(plan, row);
        let at = entries.iter().position(|entry| entry.label == label).unwrap_or_else(|| {
            let us = vec![None; plan.workloads.len()];
            entries.push(Entry { label, is_reference: false, us });
            entries.len() - 1
        });
        let us = middle(row);
        if let Some(cell) =
            entries.get_mut(at).and_then(|entry| entry.us.get_mut(row.case.workload))
        {
            *cell = us;
        }
    }
    entries
}

fn middle(row: &Row) -> Option<f64> {
    spread(row.rounds.iter().map(mean_us)).map(|[_, middle, _]| middle)
}

fn of_references(plan: &Plan) -> impl Iterator<Item = Entry> + '_ {
    plan.references.iter().map(|reference: &Reference| Entry {
        label: reference.label.clone(),
        is_reference: true,
        us: plan
            .workloads
            .iter()
            .map(|workload| {
                let of = |(name, us): &(String, f64)| (*name == workload.label).then_some(*us);
                reference.us.iter().find_map(of)
            })
            .collect(),
    })
}

fn cell(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us >= 1000.0 => format!("{us:.0}"),
        Some(us) => format!("{us:.1}"),
    }
}

/// The section; nothing if there is one workload and no reference.
pub(super) fn section(plan: &Plan, run: &Run) -> String {
    if plan.workloads.len() < 2 && plan.references.is_empty() {
        return String::new();
    }
    let mut entries = of_servers(plan, run);
    entries.extend(of_references(plan));
    let mut head = vec!["mean of an operation, us".to_owned()];
    head.extend(plan.workloads.iter().map(|workload| workload.label.clone()));
    let line = |entry: &Entry| {
        let mut cells = vec![entry.label.clone()];
        cells.extend(entry.us.iter().map(|us| cell(*us)));
        cells
    };
    let rows: Vec<_> = entries.iter().map(line).collect();
    let mut out = "<h2>All workloads</h2>\n".to_owned();
    if !plan.references.is_empty() {
        out += "<p class=\"note\">Dashed, and in the last rows: what others have measured, on their machines and networks; \
            compare ratios.</p>\n";
    }
    out += "<div class=\"plots\">\n";
    out += &plot(plan, &entries);
    out += "</div>\n";
    out + &html::table(&head, 1, &rows)
}

fn plot(plan: &Plan, entries: &[Entry]) -> String {
    let line = |(at, entry): (usize, &Entry)| {
        let points = (0..).map(f64::from).zip(&entry.us);
        let points = points.filter_map(|(x, us)| Some((x, (*us)?))).collect();
        Line { colour: colour(at), dashed: entry.is_reference, points }
    };
    let lines: Vec<Line> = entries.iter().enumerate().map(line).collect();
    let marks = (0..).map(f64::from).zip(plan.workloads.iter().map(|one| one.label.clone()));
    let names = entries.iter().enumerate().map(|(at, entry)| (entry.label.clone(), colour(at)));
    let svg = plots::lines(&Lines {
        title: "Mean time of an operation".to_owned(),
        x_title: "workload",
        y_title: "microseconds",
        marks: marks.collect(),
        log: true,
        lines: &lines,
    });
    plots::with_legend(&svg, &names.collect::<Vec<_>>())
}
