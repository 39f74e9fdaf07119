//! The table: operations per second of both engines, their ratio, and whether the ratio meets the goal.

use super::driver::Figures;
use super::mix::Workload;
use super::{Medium, Plan};
use crate::columns::aligned;
use crate::compare::median;
use crate::engine::Kind;
use std::fmt::Write as _;

/// In scans pmlog may be slower by this part.
const SCAN_GOAL: f64 = 0.9;
/// Fewer rounds make a figure void.
const ROUNDS_MIN: usize = 3;
/// What the paper had for WiredTiger on persistent memory against flash.
const PAPER_PM_TO_SSD: f64 = 2.0;

/// One engine's figures.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Operations a second: the median of the slices.
    pub rate: f64,
    /// Microseconds.
    pub p50_us: f64,
    /// Microseconds.
    pub p99_us: f64,
    /// Operations in all slices.
    pub operations: u64,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// pmlog with WiredTiger, on one medium.
    Engines(Medium),
    /// WiredTiger on persistent memory with WiredTiger on flash.
    Media,
}

/// One comparison.
#[derive(Clone, Debug)]
pub struct Row {
    /// Engines, or a server.
    pub level: &'static str,
    /// What is compared.
    pub compared: Compared,
    /// The cache as a part of the data.
    pub ratio: f64,
    /// The workload.
    pub workload: Workload,
    /// pmlog; or WiredTiger on persistent memory.
    pub one: Cell,
    /// WiredTiger; or WiredTiger on flash. `None` if it was not measured.
    pub other: Option<Cell>,
    /// The median of the rounds' ratios.
    pub times: Option<f64>,
    /// Why the row means nothing.
    pub void: Option<String>,
}

impl Row {
    /// What the ratio should be at least.
    pub fn goal(&self) -> f64 {
        match (self.compared, self.workload) {
            (Compared::Media, _) => PAPER_PM_TO_SSD,
            (_, Workload::E) => SCAN_GOAL,
            _ => 1.0,
        }
    }

    /// Whether it is, where there is a ratio that counts.
    pub fn is_met(&self) -> Option<bool> {
        match (self.void.is_none(), self.compared) {
            (true, Compared::Engines(_)) => self.times.map(|times| times >= self.goal()),
            _ => None,
        }
    }

    fn what(&self) -> String {
        match self.compared {
            Compared::Engines(medium) => medium.name().to_owned(),
            Compared::Media => "wT pm/flash".to_owned(),
        }
    }
}

fn cell(figures: &Figures) -> Cell {
    let us = |fraction| figures.latency.percentile_ns(fraction) as f64 / 1000.0;
    Cell {
        rate: median(figures.slices.iter().map(|slice| slice.rate())),
        p50_us: us(0.5),
        p99_us: us(0.99),
        operations: figures.slices.iter().map(|slice| slice.operations).sum(),
    }
}

/// Why a comparison means nothing.
fn void(plan: &Plan, workload: Workload, one: &Figures, other: &Figures) -> Option<String> {
    let rounds = one.slices.len().min(other.slices.len());
    if rounds < ROUNDS_MIN || one.slices.len() != other.slices.len() {
        return Some(format!("{rounds} rounds"));
    }
    let count = |figures: &Figures| figures.slices.iter().map(|s| s.operations).sum::<u64>();
    let least = count(one).min(count(other));
    if least < plan.operations_min(workload) {
        return Some(format!("{least} operations"));
    }
    // Between two slices of one side there is one of the other.
    let mut turns: Vec<(usize, bool)> = one.turns.iter().map(|turn| (*turn, true)).collect();
    turns.extend(other.turns.iter().map(|turn| (*turn, false)));
    turns.sort_unstable();
    let apart = turns.chunks(2).all(|pair| pair.iter().filter(|(_, first)| *first).count() == 1);
    (!apart).then(|| "no turns".to_owned())
}

/// The rows of one workload.
pub fn rows(
    plan: &Plan,
    level: &'static str,
    ratio: f64,
    workload: Workload,
    figures: &[Figures],
) -> Vec<Row> {
    let of = |kind: Kind, medium: Medium| {
        figures.iter().find(|figures| figures.kind == kind && figures.medium == medium)
    };
    let row = |compared: Compared, one: &Figures, other: Option<&Figures>| {
        let times = other.map(|other| {
            let pairs = one.slices.iter().zip(&other.slices);
            median(pairs.map(|(one, other)| one.rate() / other.rate().max(1e-9)))
        });
        let void = other.and_then(|other| void(plan, workload, one, other));
        Row {
            level,
            compared,
            ratio,
            workload,
            one: cell(one),
            other: other.map(cell),
            times,
            void,
        }
    };
    let mut rows = Vec::new();
    for medium in plan.media.iter().copied() {
        match (of(Kind::PmLog, medium), of(Kind::WiredTiger, medium)) {
            (Some(pmlog), wiredtiger) => {
                rows.push(row(Compared::Engines(medium), pmlog, wiredtiger));
            }
            (None, Some(wiredtiger)) => {
                rows.push(row(Compared::Engines(medium), wiredtiger, None));
            }
            (None, None) => {}
        }
    }
    let media = (of(Kind::WiredTiger, Medium::Pm), of(Kind::WiredTiger, Medium::Flash));
    if let (Some(pm), Some(flash)) = media {
        rows.push(row(Compared::Media, pm, Some(flash)));
    }
    rows
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// The table as text, sorted by what is compared.
pub fn render(rows: &[Row]) -> String {
    let heads = [
        "level", "medium", "cache", "workload", "pmlog/s", "wT/s", "times", "goal", "", "p99 us",
        "wT p99",
    ];
    let mut sorted: Vec<&Row> = rows.iter().collect();
    let place = |row: &Row| match row.compared {
        Compared::Engines(medium) => medium as usize,
        Compared::Media => usize::MAX,
    };
    sorted.sort_by_key(|row| (row.level, place(row)));
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    for row in sorted {
        let verdict = match (&row.void, row.is_met()) {
            (Some(_), _) => "VOID",
            (None, Some(true)) => "met",
            (None, Some(false)) => "MISSED",
            (None, None) => "",
        };
        let other = |figure: fn(&Cell) -> f64| {
            row.other.as_ref().map_or("-".to_owned(), |cell| number(figure(cell)))
        };
        lines.push(vec![
            row.level.to_owned(),
            row.what(),
            format!("{}", row.ratio),
            row.workload.letter().to_string(),
            number(row.one.rate),
            other(|cell| cell.rate),
            row.times.map_or("-".to_owned(), |times| format!("{times:.2}")),
            format!(">= {}", row.goal()),
            verdict.to_owned(),
            number(row.one.p99_us),
            other(|cell| cell.p99_us),
        ]);
    }
    let mut out = aligned(&lines, &[0, 1, 8]);
    out.push_str(&verdict(rows));
    out
}

fn verdict(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        if let Some(void) = &row.void {
            let place = (row.level, row.what(), row.ratio, row.workload.letter());
            let _ = writeln!(out, "VOID {place:?}: {void}");
        }
    }
    let count = |met| rows.iter().filter(|row| row.is_met() == Some(met)).count();
    let _ = writeln!(out, "pmlog ahead (scans: at most 10 % behind): {}", count(true));
    let _ = writeln!(out, "MISSED: {}", count(false));
    let media = |level| {
        let of_media = |row: &&Row| row.compared == Compared::Media && row.level == level;
        let times: Vec<f64> = rows.iter().filter(of_media).filter_map(|row| row.times).collect();
        (!times.is_empty()).then(|| median(times))
    };
    for level in ["engine", "server"] {
        if let Some(times) = media(level) {
            let _ = writeln!(
                out,
                "{level}: WiredTiger on persistent memory {times:.2} times as fast as on flash \
                 (median; the paper: {PAPER_PM_TO_SSD})"
            );
        }
    }
    out
}

fn json_cell(cell: Option<&Cell>) -> String {
    cell.map_or("null".to_owned(), |cell| {
        format!(
            "{{\"perSecond\":{:.1},\"p50us\":{:.2},\"p99us\":{:.2},\"operations\":{}}}",
            cell.rate, cell.p50_us, cell.p99_us, cell.operations
        )
    })
}

/// The table as a JSON array, an object a line.
pub fn json(rows: &[Row]) -> String {
    let object = |row: &Row| {
        let (one, other) = match row.compared {
            Compared::Engines(_) => ("pmlog", "wiredTiger"),
            Compared::Media => ("wiredTigerOnPm", "wiredTigerOnFlash"),
        };
        let or_null = |text: Option<String>| text.unwrap_or_else(|| "null".to_owned());
        format!(
            "{{\"level\":\"{}\",\"compared\":\"{}\",\"cache\":{},\"workload\":\"{}\",\
             \"{one}\":{},\"{other}\":{},\"times\":{},\"goal\":{},\"met\":{},\"void\":{}}}",
            row.level,
            row.what(),
            row.ratio,
            row.workload.letter(),
            json_cell(Some(&row.one)),
            json_cell(row.other.as_ref()),
            or_null(row.times.map(|times| format!("{times:.3}"))),
            row.goal(),
            or_null(row.is_met().map(|met| met.to_string())),
            or_null(row.void.as_ref().map(|void| format!("\"{void}\""))),
        )
    };
    format!("[{}]\n", rows.iter().map(object).collect::<Vec<_>>().join(",\n "))
}
