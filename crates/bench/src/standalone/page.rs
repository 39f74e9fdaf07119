//! The report as one self-contained HTML page: plots and tables with the paper's numbers.

use super::paper;
use super::requests::Operation;
use super::rows::{At, Report, Row, SizeRow};
use super::stages::STAGES;
use super::table::{self, Table, figure};
use super::way::WAYS;
use super::{size_text, way::Way};
use crate::html::{self, STYLE, legend};
use crate::plots::{self, Bar, Line, Lines, colour, escaped, stage_colour};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The place of a transport in their table, which decides on its colour.
fn position(way: &Way) -> usize {
    WAYS.iter().position(|other| other == way).unwrap_or(0)
}

/// The transports of these rows, and whether any row of theirs could be measured.
fn way_legend(rows: impl Iterator<Item = (&'static Way, bool)>) -> String {
    let mut measured = BTreeMap::new();
    rows.for_each(|(way, is)| *measured.entry(position(way)).or_insert(false) |= is);
    let named = |(at, is): (usize, bool)| {
        let way = WAYS.get(at)?;
        let name = if is { way.label.to_owned() } else { format!("{} (not measured)", way.label) };
        Some((name, colour(at)))
    };
    legend(measured.into_iter().filter_map(named))
}

fn html_table(table: &Table) -> String {
    html::table(&table.head, table.left, &table.rows)
}

/// A table of the paper's numbers.
fn paper_table(head: &[&'static str], left: usize, rows: Vec<Vec<String>>) -> String {
    html_table(&Table { head: head.to_vec(), left, rows })
}

fn paper_words(words: &[&str]) -> String {
    words.iter().map(|text| format!("<p>{}</p>\n", escaped(text))).collect()
}

/// The distinct values of a case's part, in order.
fn distinct<T: Ord, C, R>(rows: &[Row<C, R>], part: impl Fn(&C) -> T) -> Vec<T> {
    rows.iter().map(|row| part(&row.case)).collect::<BTreeSet<T>>().into_iter().collect()
}

fn places(report: &Report) -> impl Iterator<Item = (usize, &str)> {
    report.places.iter().map(|place| place.name.as_str()).enumerate()
}

fn operations<C, R>(
    rows: &[Row<C, R>],
    operation: impl Fn(&C) -> Operation,
) -> impl Iterator<Item = Operation> {
    Operation::ALL
        .into_iter()
        .filter(move |one| rows.iter().any(|row| operation(&row.case) == *one))
}

fn capital(operation: Operation) -> &'static str {
    match operation {
        Operation::Put => "Put",
        Operation::Get => "Get",
        Operation::Mixed => "half Put, half Get",
    }
}

fn stage_bar(row: &SizeRow) -> Option<Bar> {
    let stages = row.window()?.stages.a_request_us();
    let parts = stages.iter().enumerate().map(|(at, us)| (*us, stage_colour(at))).collect();
    let label = row.case.at.way.label;
    let share = row.share_percent(row.server_cpu_us());
    let name = share.map_or(label.to_owned(), |share| format!("{label}, {share:.0} %"));
    Some(Bar { name, parts, spread: None })
}

/// The paper's Source has waiting in it.
fn paper_stage_bars(stages: &paper::Stages) -> Vec<Bar> {
    let bar = |(name, us): (&&str, &[f64; 4])| {
        let parts = us.iter().enumerate().map(|(at, us)| (*us, stage_colour(at + 1))).collect();
        Bar { name: (*name).to_owned(), parts, spread: None }
    };
    paper::NETWORKS.iter().zip(&stages.us).map(bar).collect()
}

fn stages_section(report: &Report) -> String {
    let mut out = "<h2>Stages and processor time (the paper's section 4.2, Figures 6 to 9)</h2>\n\
        <p>Where a request's time goes, as the server sees it: waiting for a request, <b>Source</b> (receiving it), \
        <b>Process</b> (the database), <b>Sink</b> (giving the reply away), <b>Other</b> (its turn on the worker). \
        Together they are the client's cycle: its time from request to request, with one connection and one request at \
        a time. The paper counts waiting as Source. Waiting holds the way to the client and back and the client's own \
        time. Behind a transport's name: how much of one core the server's process used.</p>\n"
        .to_owned();
    out += &legend(
        STAGES.iter().enumerate().map(|(at, stage)| (stage.2.to_owned(), stage_colour(at))),
    );
    out += "<div class=\"plots\">\n";
    let sizes = distinct(&report.sizes, |case| case.bytes);
    let ends: BTreeSet<u64> = sizes.first().into_iter().chain(sizes.last()).copied().collect();
    for (place, name) in places(report) {
        for bytes in &ends {
            for operation in operations(&report.sizes, |case| case.operation) {
                let of = |row: &&SizeRow| {
                    let case = row.case;
                    (case.at.place, case.bytes, case.operation) == (place, *bytes, operation)
                };
                let bars: Vec<Bar> = report.sizes.iter().filter(of).filter_map(stage_bar).collect();
                let title = format!("{}, {}, {name}", capital(operation), size_text(*bytes));
                out += &plots::bars(&title, "microseconds a request", &bars);
                let theirs = paper::STAGES.iter().filter(|stages| {
                    (stages.place, stages.bytes, stages.operation) == (name, *bytes, operation)
                });
                for stages in theirs {
                    let title = format!("The paper: {}, {}", title, stages.figure);
                    let bars = paper_stage_bars(stages);
                    out += &plots::bars(&title, "microseconds a request", &bars);
                }
            }
        }
    }
    out += "</div>\n<h3>All sizes</h3>\n<p>Microseconds a request, all rounds together. <i>Off</i> is by how much the \
        stages' sum differs from the cycles that the client measured. They <i>add up</i> if the sum lies between the \
        least and the most that the client's clock allows for the server's time, in every round.</p>\n";
    out += &html_table(&table::stages(report));
    out += "<div class=\"paper\"><b>The paper's numbers</b>, microseconds (Source with waiting)\n";
    let rows = paper::STAGES.iter().flat_map(|stages| {
        paper::NETWORKS.iter().zip(&stages.us).map(|(network, us)| {
            let mut row = vec![stages.figure.to_owned(), stages.operation.name().to_owned()];
            row.extend([size_text(stages.bytes), (*network).to_owned()]);
            row.extend(us.iter().map(|us| figure(Some(*us), 1)));
            row.push(figure(Some(us.iter().sum()), 1));
            row
        })
    });
    let head =
        ["figure", "operation", "size", "network", "Source", "Process", "Sink", "Other", "sum"];
    out += &paper_table(&head, 4, rows.collect());
    out + &paper_words(paper::STAGE_WORDS) + "</div>\n"
}

fn log2(bytes: u64) -> f64 {
    (bytes as f64).log2()
}

fn sizes_section(report: &Report) -> String {
    let mut out = "<h2>Latency by size (section 4.3, Figures 10 and 11)</h2>\n<p>One client, one connection, one request \
        at a time. Drawn through: median; dashed: p99; both axes by powers.</p>\n"
        .to_owned();
    out += &way_legend(report.sizes.iter().map(|row| (row.case.at.way, row.measured().is_some())));
    out += "<div class=\"plots\">\n";
    let sizes = distinct(&report.sizes, |case| case.bytes);
    let marks: Vec<_> = sizes.iter().map(|bytes| (log2(*bytes), size_text(*bytes))).collect();
    for (place, name) in places(report) {
        for operation in operations(&report.sizes, |case| case.operation) {
            let mut lines = Vec::new();
            for (at, way) in WAYS.iter().enumerate() {
                let of = |row: &&SizeRow| {
                    row.case.at == At { place, way } && row.case.operation == operation
                };
                for (fraction, dashed) in [(0.5, false), (0.99, true)] {
                    let point =
                        |row: &SizeRow| Some((log2(row.case.bytes), row.percentile_us(fraction)?));
                    let points = report.sizes.iter().filter(of).filter_map(point).collect();
                    lines.push(Line { colour: colour(at), dashed, points });
                }
            }
            out += &plots::lines(&Lines {
                title: format!("{}, {name}", capital(operation)),
                x_title: "size of a document",
                y_title: "microseconds",
                marks: marks.clone(),
                log: true,
                lines: &lines,
            });
        }
    }
    out += "</div>\n<h3>All figures</h3>\n<p>Medians of the rounds; processor time a request, and as a part of one core.</p>\n";
    out += &html_table(&table::latency(report));
    out += "<div class=\"paper\"><b>The paper's numbers</b>\n";
    let latency = &paper::LATENCY;
    let mut row = vec![latency.operation.name().to_owned(), size_text(latency.bytes)];
    row.extend(latency.us.iter().map(|us| figure(Some(*us), 1)));
    let last = latency.us.last().copied().unwrap_or(f64::NAN);
    row.extend(latency.us.iter().take(2).map(|us| figure(Some(us / last), 2)));
    let head =
        ["operation", "size", "1GigE us", "IPoIB us", "RDMA us", "RDMA to 1GigE", "RDMA to IPoIB"];
    out += &paper_table(&head, 2, vec![row]);
    out + &paper_words(paper::SIZE_WORDS) + "</div>\n"
}

fn models_section(report: &Report) -> String {
    let mut out = "<h2>Models (section 4.3, Figure 12)</h2>\n<p>Files in GridFS's layout (<code>fs.files</code>, \
        <code>fs.chunks</code> of 255 KB), read one chunk after the other by <code>{files_id, n}</code> into the client's \
        memory; sizes in units of 2^20 bytes. Every reading's length and checksum are compared with the file's; that is \
        not part of the time.</p>\n<div class=\"plots\">\n"
        .to_owned();
    for (place, name) in places(report) {
        let mut bars = Vec::new();
        for row in report.models.iter().filter(|row| row.case.at.place == place) {
            let colour = colour(position(row.case.at.way));
            let name = format!("{} {}", size_text(row.case.bytes), row.case.at.way.label);
            bars.extend(row.seconds().map(|seconds| Bar {
                name,
                parts: vec![(seconds * 1e3, colour)],
                spread: None,
            }));
        }
        out += &plots::bars(&format!("Reading a model, {name}"), "milliseconds", &bars);
    }
    out += "</div>\n";
    out += &html_table(&table::models(report));
    out += "<div class=\"paper\"><b>The paper's numbers</b>: one server only as ratios; seconds are those of its replica set\n";
    let rows = paper::MODELS.iter().map(|model| {
        let mut row = vec![model.name.to_owned(), size_text(model.megabytes << 20)];
        row.extend(model.speed_up.iter().map(|times| figure(Some(*times), 2)));
        row.push(figure(Some(model.replica_set_ms / 1e3), 3));
        let rate = (model.megabytes << 20) as f64 / 1e3 / model.replica_set_ms;
        row.push(figure(Some(rate), 0));
        row.extend(model.replica_set_speed_up.iter().map(|times| figure(Some(*times), 2)));
        row
    });
    let head = [
        "model",
        "size",
        "RDMA to 1GigE",
        "RDMA to IPoIB",
        "replica set, RDMA: seconds",
        "MB/s of it",
        "there to 1GigE",
        "there to IPoIB",
    ];
    out + &paper_table(&head, 2, rows.collect()) + "</div>\n"
}

fn clients_section(report: &Report) -> String {
    let mut out = "<h2>Several clients (section 4.5, Figures 12 and 13)</h2>\n<p>Client processes of one or two threads, a \
        connection for each thread, one request at a time on each, against one server (the paper: client nodes, a replica \
        set of four nodes). Mean latency as there. Drawn through: one thread each; dashed: two.</p>\n"
        .to_owned();
    out +=
        &way_legend(report.clients.iter().map(|row| (row.case.at.way, row.measured().is_some())));
    out += "<div class=\"plots\">\n";
    let counts = distinct(&report.clients, |case| case.clients);
    let marks: Vec<_> = counts.iter().map(|n| (*n as f64, n.to_string())).collect();
    let threads = distinct(&report.clients, |case| case.threads);
    for (place, name) in places(report) {
        for bytes in distinct(&report.clients, |case| case.bytes) {
            for operation in operations(&report.clients, |case| case.operation) {
                let mut lines = Vec::new();
                for (at, way) in WAYS.iter().enumerate() {
                    for (order, threads) in threads.iter().enumerate() {
                        let rows = report.clients.iter().filter(|row| {
                            let case = row.case;
                            (case.at, case.bytes, case.operation, case.threads)
                                == (At { place, way }, bytes, operation, *threads)
                        });
                        let points =
                            rows.filter_map(|row| Some((row.case.clients as f64, row.mean_us()?)));
                        let points = points.collect();
                        lines.push(Line { colour: colour(at), dashed: order > 0, points });
                    }
                }
                out += &plots::lines(&Lines {
                    title: format!("{}, {}, {name}", capital(operation), size_text(bytes)),
                    x_title: "clients",
                    y_title: "microseconds, mean",
                    marks: marks.clone(),
                    log: false,
                    lines: &lines,
                });
            }
        }
    }
    out += "</div>\n";
    out += &html_table(&table::clients(report));
    out += "<div class=\"paper\"><b>The paper's numbers</b>, four clients, replica set\n";
    let rows = paper::CLIENTS.iter().map(|clients| {
        let mut row = vec![clients.operation.name().to_owned(), size_text(clients.bytes)];
        row.push(format!("4 x {}", clients.threads));
        row.push(clients.us.map_or("only in a plot".to_owned(), |us| figure(Some(us), 0)));
        row.extend(clients.speed_up.iter().map(|times| figure(Some(*times), 2)));
        row
    });
    let head =
        ["operation", "size", "clients x threads", "RDMA us", "RDMA to 1GigE", "RDMA to IPoIB"];
    out + &paper_table(&head, 3, rows.collect()) + "</div>\n"
}

/// The page.
pub fn html(report: &Report) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>Kauri: one server, every transport</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>One server, every transport</h1>\n<p>The experiments of <i>RDMA Optimization on MongoDB</i> (sections 4.2 and \
         4.3, and the clients of 4.5) on Kauri. The paper's numbers stand in boxes of this page's sections as far as its \
         text says them; its machines and networks are others, so compare ratios.</p>\n<dl>\n"
    );
    let places = report.places.iter().map(|place| (&place.name, &place.file_system));
    let about = report.about.iter().map(|(name, value)| (name, value));
    for (name, value) in about.chain(places) {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(value));
    }
    out += "</dl>\n";
    if !report.sizes.is_empty() {
        out += &sizes_section(report);
        out += &stages_section(report);
    }
    if !report.models.is_empty() {
        out += &models_section(report);
    }
    if !report.clients.is_empty() {
        out += &clients_section(report);
    }
    out + "</body>\n</html>\n"
}
