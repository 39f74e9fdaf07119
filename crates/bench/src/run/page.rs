//! The results of a run as one HTML page: measured servers and method, plots and tables for each workload, the
//! meaning of the figures, all settings. The page is self-contained.
//!
//! Invariant: all text from a run file or a server is escaped. This module must not know how anything was measured.

use super::overview;
use super::page_plots::{latencies, phases_plot, ratios, threads_plot, throughput};
use super::phase::{Counted, Figures, KINDS, kind_name};
use super::phases;
use super::plan::{Plan, Workload};
use super::report::{median, rate};
use super::rounds::{Row, Run};
use crate::html;
use crate::plots::escaped;
use std::time::Duration;

const WHAT_FIGURES_MEAN: [(&str, &str); 9] = [
    (
        "op/s",
        "operations that ended, a second: the median of the rounds, and the least and the most of them",
    ),
    (
        "times",
        "op/s beside the first server's in the same round: the median of these ratios, the least and the most. What \
      disturbs the machine disturbs both, so this is steadier than op/s",
    ),
    (
        "p50, p95, p99, p99.9",
        "so many operations of a hundred took no longer, in microseconds: medians of the rounds",
    ),
    ("max", "the longest operation of all rounds"),
    (
        "p50 due, p99 due",
        "the same, counted from when an operation was due by the pace that was asked for, not from when \
      it could begin: what waits behind a stall is not forgotten (coordinated omission)",
    ),
    (
        "server CPU",
        "processor time of the server's process for an operation; only where it runs beside the client",
    ),
    ("client CPU", "processor time of the load generator for an operation"),
    ("errors", "operations whose reply was not what it should be; there should be none"),
    ("count", "operations that counted, in all rounds"),
];

/// What plots and tables call a case: the server, and processes and threads where there are several numbers of
/// them.
pub(super) fn case_label(plan: &Plan, row: &Row) -> String {
    let server = plan.servers.get(row.case.server).map_or("", |one| one.label.as_str());
    let numbers = plan.numbers_text(row.case.numbers());
    numbers.map_or(server.to_owned(), |numbers| format!("{server}, {numbers}"))
}

/// The least, the median and the most; none if there are none.
pub(super) fn spread(of: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let of: Vec<f64> = of.collect();
    let least = of.iter().copied().reduce(f64::min)?;
    let most = of.iter().copied().reduce(f64::max)?;
    Some([least, median(of), most])
}

/// This row's throughput beside the first server's, round by round.
pub(super) fn beside_first<'r>(run: &'r Run, row: &'r Row) -> impl Iterator<Item = f64> + 'r {
    let first = run.rows.iter().find(|one| one.case == row.case.of_first_server());
    let firsts = first.map(|first| first.rounds.as_slice()).unwrap_or_default();
    row.rounds.iter().zip(firsts).map(|(own, other)| own.per_s() / other.per_s().max(1e-9))
}

fn servers(plan: &Plan, run: &Run) -> String {
    let none = || "-".to_owned();
    let rows: Vec<Vec<String>> = plan
        .servers
        .iter()
        .zip(&run.observed)
        .map(|(server, found)| {
            vec![
                server.label.clone(),
                found.transport.clone(),
                found.topology.name().to_owned(),
                found.version.clone(),
                found.engine.clone().unwrap_or_else(none),
                found.medium.clone().unwrap_or_else(none),
                found.memory_limit_mb.map_or_else(none, |mb| format!("{mb} MB")),
                server.uri_text.clone(),
            ]
        })
        .collect();
    let head =
        ["server", "transport", "topology", "version", "engine", "medium", "memory", "address"];
    html::table(&head, head.len(), &rows)
}

fn range(spread: Option<[f64; 3]>, text: impl Fn(f64) -> String) -> [String; 2] {
    spread.map_or(["-".to_owned(), "-".to_owned()], |all| {
        let [least, middle, most] = all.map(text);
        [middle, format!("{least} to {most}")]
    })
}

fn micros_each(row: &Row, time: impl Fn(&Figures) -> Option<Duration>) -> String {
    let each = |figures: &Figures| {
        Some(time(figures)?.as_secs_f64() * 1e6 / figures.operations().max(1) as f64)
    };
    let known: Option<Vec<f64>> = row.rounds.iter().map(each).collect();
    known
        .filter(|known| !known.is_empty())
        .map_or("-".to_owned(), |us| format!("{:.1}", median(us)))
}

fn cases_table(plan: &Plan, run: &Run, rows: &[&Row]) -> String {
    let line = |row: &&Row| {
        let [per_s, per_s_range] = range(spread(row.rounds.iter().map(Figures::per_s)), rate);
        let [times, times_range] =
            range(spread(beside_first(run, row)), |times| format!("{times:.2}"));
        let errors: u64 = row.rounds.iter().map(Figures::errors).sum();
        let count: u64 = row.rounds.iter().map(Figures::operations).sum();
        let mut cells = vec![case_label(plan, row), per_s, per_s_range, times, times_range];
        cells.push(micros_each(row, |figures| figures.server_cpu));
        cells.push(micros_each(row, |figures| Some(figures.client_cpu)));
        cells.extend([count.to_string(), errors.to_string()]);
        cells
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    let head = [
        "server",
        "op/s",
        "from, to",
        "times",
        "from, to",
        "server CPU, us",
        "client CPU, us",
        "count",
        "errors",
    ];
    html::table(&head, 1, &lines)
}

/// One kind of operation of a case.
fn kind_cells(counted: &[&Counted]) -> Vec<String> {
    let of = |figure: &dyn Fn(&Counted) -> u64| {
        let ns = median(counted.iter().map(|one| figure(one) as f64).collect());
        format!("{:.1}", ns / 1000.0)
    };
    let is_paced = counted.iter().any(|one| one.intended.count() > 0);
    let due = |part: f64| match is_paced {
        true => of(&|one| one.intended.percentile_ns(part)),
        false => "-".to_owned(),
    };
    let mut cells: Vec<String> =
        [0.5, 0.95, 0.99, 0.999].map(|part| of(&|one| one.latency.percentile_ns(part))).into();
    let longest = counted.iter().map(|one| one.latency.max_ns()).max().unwrap_or(0);
    cells.push(format!("{:.1}", longest as f64 / 1000.0));
    cells.extend([due(0.5), due(0.99)]);
    cells.push(counted.iter().map(|one| one.latency.count()).sum::<u64>().to_string());
    cells.push(counted.iter().map(|one| one.errors).sum::<u64>().to_string());
    cells
}

/// Of one kind what each round counted; nothing if there was none of it.
pub(super) fn counted_of(row: &Row, kind: usize) -> Option<Vec<&Counted>> {
    let counted: Vec<_> = row.rounds.iter().filter_map(|one| one.kinds.get(kind)).collect();
    counted.iter().any(|one| one.latency.count() > 0).then_some(counted)
}

fn kinds_table(plan: &Plan, rows: &[&Row]) -> String {
    let mut lines = Vec::new();
    for (at, kind) in KINDS.iter().enumerate() {
        for row in rows {
            let Some(counted) = counted_of(row, at) else { continue };
            let mut cells = vec![kind_name(*kind).to_owned(), case_label(plan, row)];
            cells.extend(kind_cells(&counted));
            lines.push(cells);
        }
    }
    let head = [
        "operation",
        "server",
        "p50",
        "p95",
        "p99",
        "p99.9",
        "max",
        "p50 due",
        "p99 due",
        "count",
        "errors",
    ];
    html::table(&head, 2, &lines)
}

fn in_words(workload: &Workload) -> String {
    let pace =
        workload.target.map(|target| format!("; {target} operations a second were asked for"));
    let settings = workload.properties.iter().map(|(name, value)| format!("{name}={value}"));
    format!("{}{}", settings.collect::<Vec<_>>().join(", "), pace.unwrap_or_default())
}

/// What is asked, in shares of all operations.
fn mix(workload: &Workload) -> String {
    const KINDS: [(&str, &str, f64); 5] = [
        ("readproportion", "reads", 0.95),
        ("updateproportion", "updates", 0.05),
        ("insertproportion", "inserts", 0.0),
        ("scanproportion", "scans", 0.0),
        ("readmodifywriteproportion", "reads with the update of what was read", 0.0),
    ];
    let share = |(property, words, otherwise): (&str, &str, f64)| {
        let of = |(name, value): (&str, &str)| (name == property).then(|| value.parse().ok())?;
        let share: f64 = workload.properties.iter().find_map(of).unwrap_or(otherwise);
        (share > 0.0).then(|| format!("{:.0} % {words}", share * 100.0))
    };
    KINDS.into_iter().filter_map(share).collect::<Vec<_>>().join(", ")
}

fn section(plan: &Plan, run: &Run, place: usize, workload: &Workload) -> String {
    let rows: Vec<&Row> = run
        .rows
        .iter()
        .filter(|row| row.case.workload == place && !row.rounds.is_empty())
        .collect();
    let mut out = format!("<h2>{}: {}</h2>\n", escaped(&workload.label), mix(workload));
    out += &format!("<p class=\"note\">YCSB's properties: {}</p>\n", escaped(in_words(workload)));
    if rows.is_empty() {
        return out + "<p class=\"reason\">not measured: it was stopped before</p>\n";
    }
    out += "<div class=\"plots\">\n";
    out += &throughput(plan, &rows);
    out += &threads_plot(plan, &rows);
    for kind in 0..KINDS.len() {
        out += &phases_plot(plan, &rows, kind);
        out += &latencies(plan, &rows, kind);
    }
    out += &ratios(plan, run, &rows);
    out += "</div>\n";
    out += &cases_table(plan, run, &rows);
    out + &kinds_table(plan, &rows)
}

fn counts(of: &[usize]) -> String {
    of.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ")
}

fn how(plan: &Plan) -> String {
    format!(
        "<p>{} workload(s) of YCSB on {} server(s), or addresses of one. They take turns: in each of {} rounds each is \
         measured once for {}, after {} s that don't count, by {} client process(es) of {} thread(s), each with a connection of its own and one \
         operation at a time; every other round goes the other way round. So what disturbs the machine disturbs all \
         alike, and ratios within a round say most. Whiskers and <i>from, to</i> span all rounds.</p>\n",
        plan.workloads.len(),
        plan.servers.len(),
        plan.rounds,
        plan.length.text(),
        plan.warm_up.as_secs_f64(),
        counts(&plan.processes),
        counts(&plan.threads),
    )
}

fn wrong(run: &Run) -> String {
    let rounds = || run.rows.iter().flat_map(|row| &row.rounds);
    let errors: u64 = rounds().map(Figures::errors).sum();
    let mut out = String::new();
    if run.stopped {
        out += "<p class=\"reason\"><b>It was stopped before its end: these are the results so far.</b></p>\n";
    }
    if errors > 0 {
        out += &format!(
            "<p class=\"reason\"><b>{errors} operations went wrong</b>, among them:</p>\n<ul>\n"
        );
        let shown = rounds().flat_map(|figures| &figures.shown).take(10);
        shown.for_each(|why| out += &format!("<li class=\"reason\">{}</li>\n", escaped(why)));
        out += "</ul>\n";
    }
    out
}

/// The page. It ends with the text that is appended, as a terminal would show it.
pub fn html(plan: &Plan, run: &Run, about: &[(&str, String)], appended: Option<&str>) -> String {
    let mut out = html::head(&plan.name);
    out += &how(plan);
    out += &wrong(run);
    out += &html::definitions(about.iter().map(|(name, value)| (*name, value.clone())));
    out += "<h2>Servers, as they were found</h2>\n";
    out += &servers(plan, run);
    for one in &plan.left_out {
        out += &format!("<p class=\"reason\">Left out: {}</p>\n", escaped(&one.why));
    }
    out += &overview::section(plan, run);
    for (place, workload) in plan.workloads.iter().enumerate() {
        out += &section(plan, run, place, workload);
    }
    let by_phase = phases::lines(plan, run);
    if !by_phase.is_empty() {
        out += "<h2>Phase by phase</h2>\n";
        out += &html::table(&phases::HEAD, phases::LEFT, &by_phase);
    }
    out += "<h2>What the figures mean</h2>\n";
    out += &html::definitions(
        WHAT_FIGURES_MEAN.iter().map(|(name, text)| (*name, (*text).to_owned())),
    );
    out += "<h2>Settings</h2>\n";
    let settings = [
        ("rounds", plan.rounds.to_string()),
        ("client processes", counts(&plan.processes)),
        ("threads of each", counts(&plan.threads)),
        ("each", plan.length.text()),
        ("phases of each", plan.phases.to_string()),
        ("warm-up, seconds", plan.warm_up.as_secs_f64().to_string()),
        ("seed", plan.seed.to_string()),
    ];
    out += &html::definitions(settings.into_iter());
    if let Some(text) = appended {
        out += "<h2>Measured beside it</h2>\n";
        out += &html::preformatted(text);
    }
    out + "</body>\n</html>\n"
}
