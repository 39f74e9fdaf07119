//! The results of a run, as a table and as JSON.
//!
//! | field | holds |
//! |---|---|
//! | `schema` | `kauri-bench-run-1` |
//! | `about` | machine and system, text by name |
//! | `name`, `rounds`, `seed`, `warmUpSeconds`, `seconds` or `operations`, `phases`, `stopped` | of the run; `stopped`: interrupted |
//! | `servers` | `label`, `uri`, and the observed `transport`, `topology`, `version`, `engine`, `medium`, `memoryLimitMB` |
//! | `leftOut` | `label` and `why` of missing optional servers |
//! | `workloads` | `label`, `target`, `properties` |
//! | `rows` | a row for each workload, number of client processes, number of threads of each, and server: `workload`, `processes`, `threads`, `server`, `rounds` |
//! | `rows.rounds` | `seconds`, `operations`, `errors`, `operationsPerSecond`, `serverCpuMicros`, `clientCpuMicros` (of an operation), `wrong` (some of the wrong replies), `kinds`, and with several phases `phases` |
//! | `rows.rounds.phases` | for each that was begun `seconds`, `operations`, `operationsPerSecond`, `kinds` |
//! | `kinds` | by YCSB's names: `count`, `errors`, `meanMicros`, `p50Micros`, `p95Micros`, `p99Micros`, `p999Micros`, `maxMicros`, with a pace the same in `intended` |

use super::phase::{Counted, Figures, KINDS, Kinds, Length, kind_name};
use super::plan::Plan;
use super::rounds::{Row, Run};
use crate::columns::aligned;
use crate::histogram::Histogram;
use kauri_bson::extjson::{Format, doc_to_json};
use kauri_bson::{DocBuf, DocWriter};
use std::time::Duration;

/// See the module's head.
pub const SCHEMA: &str = "kauri-bench-run-1";

/// Percentiles that are reported: a name, and the part of all.
const PERCENTILES: [(&str, f64); 4] =
    [("p50Micros", 0.5), ("p95Micros", 0.95), ("p99Micros", 0.99), ("p999Micros", 0.999)];

pub(super) fn micros(ns: f64) -> f64 {
    ns / 1000.0
}

fn histogram(out: &mut DocWriter<'_>, latency: &Histogram) {
    out.put("count", latency.count() as i64);
    out.put("meanMicros", micros(latency.mean_ns()));
    for (name, part) in PERCENTILES {
        out.put(name, micros(latency.percentile_ns(part) as f64));
    }
    out.put("maxMicros", micros(latency.max_ns() as f64));
}

/// Of an operation, in microseconds.
fn a_piece(time: Duration, figures: &Figures) -> f64 {
    time.as_secs_f64() * 1e6 / figures.operations().max(1) as f64
}

fn round(out: &mut DocWriter<'_>, figures: &Figures, length: Length) {
    out.put("seconds", figures.wall.as_secs_f64());
    out.put("operations", figures.operations() as i64);
    out.put("errors", figures.errors() as i64);
    out.put("operationsPerSecond", figures.per_s());
    if let Some(cpu) = figures.server_cpu {
        out.put("serverCpuMicros", a_piece(cpu, figures));
    }
    out.put("clientCpuMicros", a_piece(figures.client_cpu, figures));
    let mut wrong = out.array("wrong");
    figures.shown.iter().for_each(|why| wrong.push(why.as_str()));
    drop(wrong);
    kinds(out, &figures.kinds);
    if figures.phases.is_empty() {
        return;
    }
    let mut phases = out.array("phases");
    for (time, counted) in figures.timed_phases(length) {
        let mut phase = phases.document();
        let operations = count_of(counted);
        phase.put("seconds", time.as_secs_f64());
        phase.put("operations", operations as i64);
        phase.put("operationsPerSecond", operations as f64 / time.as_secs_f64());
        kinds(&mut phase, counted);
    }
}

/// All operations of these.
/// Operations a second, in three digits or more.
pub fn rate(per_s: f64) -> String {
    let digits = if per_s < 9.995 { 2 } else { usize::from(per_s < 99.95) };
    format!("{per_s:.digits$}")
}

pub(super) fn count_of(kinds: &Kinds) -> u64 {
    kinds.iter().map(|counted| counted.latency.count()).sum()
}

fn kinds(out: &mut DocWriter<'_>, counted: &Kinds) {
    let mut kinds = out.document("kinds");
    for (kind, counted) in asked(counted) {
        let mut entry = kinds.document(kind);
        histogram(&mut entry, &counted.latency);
        entry.put("errors", counted.errors as i64);
        if counted.intended.count() > 0 {
            histogram(&mut entry.document("intended"), &counted.intended);
        }
    }
}

/// The kinds of which there were any.
pub(super) fn asked(kinds: &Kinds) -> impl Iterator<Item = (&'static str, &Counted)> {
    let all = KINDS.iter().map(|kind| kind_name(*kind)).zip(kinds);
    all.filter(|(_, counted)| counted.latency.count() > 0)
}

/// The report as a document.
pub fn document(plan: &Plan, run: &Run, about: &[(&str, String)]) -> DocBuf {
    DocBuf::build(|out| {
        out.put("schema", SCHEMA);
        {
            let mut out = out.document("about");
            about.iter().for_each(|(name, value)| out.put(name, value.as_str()));
        }
        out.put("name", plan.name.as_str());
        out.put("rounds", plan.rounds as i32);
        out.put("seed", plan.seed as i64);
        out.put("warmUpSeconds", plan.warm_up.as_secs_f64());
        match plan.length {
            Length::Time(time) => out.put("seconds", time.as_secs_f64()),
            Length::Operations(count) => out.put("operations", count as i64),
        }
        out.put("phases", plan.phases as i32);
        out.put("stopped", run.stopped);
        servers(out, plan, run);
        let mut left_out = out.array("leftOut");
        for one in &plan.left_out {
            let mut entry = left_out.document();
            entry.put("label", one.label.as_str());
            entry.put("why", one.why.as_str());
        }
        drop(left_out);
        let mut workloads = out.array("workloads");
        for workload in &plan.workloads {
            let mut entry = workloads.document();
            entry.put("label", workload.label.as_str());
            if let Some(target) = workload.target {
                entry.put("target", target);
            }
            let mut properties = entry.document("properties");
            workload.properties.iter().for_each(|(name, value)| properties.put(name, value));
        }
        drop(workloads);
        let mut rows = out.array("rows");
        for row in &run.rows {
            let mut entry = rows.document();
            let [workload, server] = labels(plan, row);
            entry.put("workload", workload);
            entry.put("processes", row.case.processes as i32);
            entry.put("threads", row.case.threads as i32);
            entry.put("server", server);
            let mut rounds = entry.array("rounds");
            for figures in &row.rounds {
                round(&mut rounds.document(), figures, plan.length);
            }
        }
    })
}

fn servers(out: &mut DocWriter<'_>, plan: &Plan, run: &Run) {
    let mut servers = out.array("servers");
    for (server, observed) in plan.servers.iter().zip(&run.observed) {
        let mut entry = servers.document();
        entry.put("label", server.label.as_str());
        entry.put("uri", server.uri_text.as_str());
        entry.put("transport", observed.transport.as_str());
        entry.put("topology", observed.topology.name());
        entry.put("version", observed.version.as_str());
        for (name, told) in [("engine", &observed.engine), ("medium", &observed.medium)] {
            told.iter().for_each(|told| entry.put(name, told.as_str()));
        }
        if let Some(limit) = observed.memory_limit_mb {
            entry.put("memoryLimitMB", limit as i64);
        }
    }
}

pub(super) fn labels<'p>(plan: &'p Plan, row: &Row) -> [&'p str; 2] {
    let workload = plan.workloads.get(row.case.workload).map_or("", |one| one.label.as_str());
    let server = plan.servers.get(row.case.server).map_or("", |one| one.label.as_str());
    [workload, server]
}

/// The report as JSON text.
pub fn text(plan: &Plan, run: &Run, about: &[(&str, String)]) -> String {
    doc_to_json(document(plan, run, about).as_doc(), Format::Relaxed) + "\n"
}

/// The middle of these, the lower of two; 0 if there are none.
pub(super) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// The report as a table: a line for each case and kind of operation, medians of the rounds, and the ratio to
/// the first server: the median of the rounds' own ratios. CPU times are an operation's, of whatever kind.
pub fn table(plan: &Plan, run: &Run) -> String {
    let head = [
        "workload",
        "processes",
        "threads",
        "server",
        "op/s",
        "times",
        "operation",
        "count",
        "errors",
        "p50 us",
        "p95",
        "p99",
        "p50 due",
        "p99 due",
        "server CPU us",
        "client",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in &run.rows {
        let first = run.rows.iter().find(|one| one.case == row.case.of_first_server());
        for (at, kind) in KINDS.iter().enumerate() {
            let counted: Vec<&Counted> =
                row.rounds.iter().filter_map(|figures| figures.kinds.get(at)).collect();
            if counted.iter().all(|one| one.latency.count() == 0) {
                continue;
            }
            lines.push(line(plan, row, first, kind_name(*kind), &counted));
        }
    }
    let mut left = [0, 3, 6];
    // Where there is one process always, nobody asks how many.
    if plan.processes.iter().all(|processes| *processes == 1) {
        lines.iter_mut().for_each(|line| drop(line.remove(1)));
        left = [0, 2, 5];
    }
    aligned(&lines, &left)
}

fn line(
    plan: &Plan,
    row: &Row,
    first: Option<&Row>,
    kind: &str,
    counted: &[&Counted],
) -> Vec<String> {
    let [workload, server] = labels(plan, row);
    let of =
        |figure: &dyn Fn(&Counted) -> f64| median(counted.iter().map(|one| figure(one)).collect());
    let us =
        |part: f64| format!("{:.1}", of(&|one| micros(one.latency.percentile_ns(part) as f64)));
    let due = |part: f64| match counted.iter().any(|one| one.intended.count() > 0) {
        true => format!("{:.1}", of(&|one| micros(one.intended.percentile_ns(part) as f64))),
        false => "-".to_owned(),
    };
    let ratios = first.map(|first| {
        let pairs = row.rounds.iter().zip(&first.rounds);
        median(pairs.map(|(own, other)| own.per_s() / other.per_s().max(1e-9)).collect())
    });
    let cpu: Option<Vec<f64>> =
        row.rounds.iter().map(|one| one.server_cpu.map(|cpu| a_piece(cpu, one))).collect();
    let own = row.rounds.iter().map(|one| a_piece(one.client_cpu, one));
    vec![
        workload.to_owned(),
        row.case.processes.to_string(),
        row.case.threads.to_string(),
        server.to_owned(),
        rate(median(row.rounds.iter().map(Figures::per_s).collect())),
        ratios.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        kind.to_owned(),
        counted.iter().map(|one| one.latency.count()).sum::<u64>().to_string(),
        counted.iter().map(|one| one.errors).sum::<u64>().to_string(),
        us(0.5),
        us(0.95),
        us(0.99),
        due(0.5),
        due(0.99),
        cpu.map_or("-".to_owned(), |cpu| format!("{:.1}", median(cpu))),
        format!("{:.1}", median(own.collect())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_at_least() {
        let rates = [3.256, 9.999, 42.06, 99.96, 18_441.4].map(rate);
        assert_eq!(rates, ["3.26", "10.0", "42.1", "100", "18441"]);
    }
}
