//! The report as text: a table for each experiment. The first words of a line name its case.

use super::requests::Operation;
use super::rows::{At, ClientsRow, ModelRow, Report, SizeRow};
use super::size_text;
use super::stages::STAGES;
use crate::columns::aligned;
use std::fmt::Write as _;

/// A figure with so many digits behind the point, or `-`.
pub(super) fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Cells, or one with the reason in place of all of them.
fn cells(measured: Option<Vec<String>>, rounds: &Result<Vec<impl Sized>, String>) -> Vec<String> {
    match (measured, rounds) {
        (Some(cells), _) => cells,
        (None, Err(why)) => vec![format!("not measured: {why}")],
        (None, Ok(_)) => vec!["not measured".to_owned()],
    }
}

/// A table. A row that could not be measured has its case's cells and the reason.
pub struct Table {
    /// Above its columns.
    pub head: Vec<&'static str>,
    /// The columns that name the case.
    pub left: usize,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// As text. Reasons would widen a column, so they stand behind the other rows.
    fn text(self) -> String {
        let Table { head, left, rows } = self;
        let (whole, short): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.len() == head.len());
        let mut all = vec![head.iter().map(|&cell| cell.to_owned()).collect()];
        all.extend(whole);
        let mut out = aligned(&all, &(0..left).collect::<Vec<_>>());
        for row in short {
            let _ = writeln!(out, "{}", row.join("  "));
        }
        out
    }
}

fn case_cells(report: &Report, at: At, operation: Operation, bytes: u64) -> Vec<String> {
    let place = report.place(at).to_owned();
    vec![place, operation.name().to_owned(), size_text(bytes), at.way.label.to_owned()]
}

fn latency_line(report: &Report, row: &SizeRow) -> Vec<String> {
    let mut line = case_cells(report, row.case.at, row.case.operation, row.case.bytes);
    let measured = row.measured().map(|_| {
        let per_s = row.median(|r| r.latency.count() as f64 / r.wall.as_secs_f64().max(1e-9));
        vec![
            figure(row.percentile_us(0.5), 1),
            figure(row.percentile_us(0.99), 1),
            figure(row.mean_us(), 1),
            figure(per_s, 0),
            figure(report.size_ratio(row), 2),
            figure(row.server_cpu_us(), 1),
            figure(row.client_cpu_us(), 1),
            figure(row.share_percent(row.server_cpu_us()), 0),
            figure(row.share_percent(row.client_cpu_us()), 0),
        ]
        .into_iter()
        .chain(of_set(report.has_set, [figure(row.secondary_us(0.5), 1)]))
        .collect()
    });
    line.extend(cells(measured, &row.rounds));
    line
}

fn stage_line(report: &Report, row: &SizeRow) -> Vec<String> {
    let mut line = vec!["stages".to_owned()];
    line.extend(case_cells(report, row.case.at, row.case.operation, row.case.bytes));
    let measured = row.window().map(|window| {
        let mut measured: Vec<String> =
            window.stages.a_request_us().iter().map(|us| figure(Some(*us), 1)).collect();
        let requests = window.stages.requests.max(1) as f64;
        measured.push(figure(Some(window.stages.sum_us() / requests), 1));
        measured.push(figure(Some(window.cycle_us()), 1));
        measured.push(format!("{:+.2}", window.deviation_percent()));
        measured.push(if row.adds_up() == Some(true) { "yes" } else { "NO" }.to_owned());
        measured
    });
    line.extend(cells(measured, &row.rounds));
    line
}

fn model_line(report: &Report, row: &ModelRow) -> Vec<String> {
    let mut line = vec!["model".to_owned(), report.place(row.case.at).to_owned()];
    line.extend([row.case.name.clone(), size_text(row.case.bytes)]);
    line.push(row.case.at.way.label.to_owned());
    let measured = row.measured().map(|_| {
        vec![
            figure(row.seconds(), 4),
            figure(row.mb_per_s(), 0),
            figure(report.model_ratio(row), 2),
        ]
        .into_iter()
        .chain(of_set(report.has_set, [figure(row.secondary_seconds(), 4)]))
        .collect()
    });
    line.extend(cells(measured, &row.rounds));
    line
}

fn clients_line(report: &Report, row: &ClientsRow) -> Vec<String> {
    let case = &row.case;
    let mut line = vec!["clients".to_owned()];
    line.extend(case_cells(report, case.at, case.operation, case.bytes));
    line.push(format!("{} x {}", case.clients, case.threads));
    let measured = row.measured().map(|_| {
        vec![
            figure(row.median(|round| round.per_s), 0),
            figure(row.percentile_us(0.5), 1),
            figure(row.percentile_us(0.99), 1),
            figure(row.mean_us(), 1),
            figure(report.clients_ratio(row), 2),
            figure(row.server_cpu_us(), 1),
        ]
        .into_iter()
        .chain(of_set(report.has_set, [figure(row.spread_per_s(), 0), figure(row.capacity(), 2)]))
        .collect()
    });
    line.extend(cells(measured, &row.rounds));
    line
}

/// Cells that only a replica set's tables have.
fn of_set<C, const N: usize>(has_set: bool, cells: [C; N]) -> Vec<C> {
    if has_set { cells.into() } else { Vec::new() }
}

const CASE: [&str; 4] = ["place", "operation", "size", "transport"];

/// Latency and processor time by size.
pub fn latency(report: &Report) -> Table {
    let figures = [
        &CASE[..],
        &["p50 us", "p99 us", "mean us", "a second", "faster than TCP", "server CPU us"],
        &["client CPU us", "server %", "client %"],
    ];
    let rows = report.sizes.iter().map(|row| latency_line(report, row)).collect();
    let head = [figures.concat(), of_set(report.has_set, ["secondary p50 us"])].concat();
    Table { head, left: CASE.len(), rows }
}

/// The server's stages by size. A member of a set has other sessions, too, whose stages are in its sums.
pub fn stages(report: &Report) -> Table {
    let titles = STAGES.map(|(_, _, title)| title);
    let head = [&["stages"], &CASE[..], &titles, &["sum", "cycle us", "off %", "adds up"]];
    let sizes = report.sizes.iter().filter(|_| !report.has_set);
    let rows = sizes.map(|row| stage_line(report, row)).collect();
    Table { head: head.concat(), left: CASE.len() + 1, rows }
}

/// Models.
pub fn models(report: &Report) -> Table {
    let head = ["models", "place", "model", "size", "transport", "seconds", "MB/s"];
    let rows = report.models.iter().map(|row| model_line(report, row)).collect();
    let head = [&head[..], &["faster than TCP"]].concat();
    let head = [head, of_set(report.has_set, ["secondary seconds"])].concat();
    Table { head, left: 5, rows }
}

/// Several clients.
pub fn clients(report: &Report) -> Table {
    let figures = ["a second", "p50 us", "p99 us", "mean us", "times TCP's", "server CPU us"];
    let head = [&["clients"], &CASE[..], &["clients x threads"], &figures].concat();
    let spread = ["a second, all members", "times the primary's"];
    let head = [head, of_set(report.has_set, spread)].concat();
    let rows = report.clients.iter().map(|row| clients_line(report, row)).collect();
    Table { head, left: CASE.len() + 2, rows }
}

/// All tables, those without rows left out.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for place in &report.places {
        let _ = writeln!(out, "{}: {}", place.name, place.file_system);
    }
    let tables = [latency, stages, models, clients].map(|table| table(report));
    for table in tables.into_iter().filter(|table| !table.rows.is_empty()) {
        let _ = write!(out, "\n{}", table.text());
    }
    out
}
