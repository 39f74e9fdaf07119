//! Computed figures and reports from fabricated measurements.

use super::requests::Operation;
use super::rows::{
    At, ClientsCase, ClientsRound, ModelCase, ModelRound, Place, Report, Round, Row, SizeCase,
};
use super::stages::{STAGES, StageTimes, Window};
use super::way::{Listener, WAYS};
use super::{json, page, size_text, table};
use crate::histogram::Histogram;
use kauri_bson::{Doc, Value};
use std::time::Duration;

const WHY: &str = "no device here";

fn latency(micros: u64) -> Histogram {
    let mut histogram = Histogram::default();
    (0..100).for_each(|_| histogram.record(micros * 1000));
    histogram
}

/// So many requests whose stages take `micros` each, in the cycles of a client.
fn window(micros: f64, requests: i64, cycle_us: f64) -> Window {
    let wall_us = cycle_us * requests as f64;
    let stages = StageTimes { total_us: [micros * requests as f64; STAGES.len()], requests };
    Window { stages, wall_us, least_us: wall_us - 3.0, most_us: wall_us + 3.0 }
}

fn round(micros: u64) -> Round {
    Round {
        latency: latency(micros),
        wall: Duration::from_micros(micros * 100),
        window: window(micros as f64 / 5.0, 100, micros as f64),
        server_cpu: Some(Duration::from_micros(micros * 25)),
        client_cpu: None,
        secondary: None,
    }
}

/// By every way but the last, which is not there; each way is twice as fast as the one before it.
fn by_way<R>(way: usize, rounds: impl Fn(u64) -> Vec<R>) -> Result<Vec<R>, String> {
    if way + 1 == WAYS.len() { Err(WHY.to_owned()) } else { Ok(rounds(8000 >> way)) }
}

fn report() -> Report {
    let place = |name: &str| Place { name: name.to_owned(), file_system: format!("{name}fs (x)") };
    let mut report = Report {
        about: vec![("machine".to_owned(), "a <fast> one".to_owned())],
        places: vec![place("disk"), place("memory")],
        ..Report::default()
    };
    for place in 0..2 {
        for (number, way) in WAYS.iter().enumerate() {
            let at = At { place, way };
            for bytes in [1 << 10, 1 << 20] {
                for operation in Operation::ALL {
                    let rounds =
                        by_way(number, |us| vec![round(us), round(us * 100), round(us / 2)]);
                    report.sizes.push(Row { case: SizeCase { at, operation, bytes }, rounds });
                }
            }
            let case = ModelCase { at, name: "vgg16".to_owned(), bytes: 528 << 20 };
            let wall = Duration::from_micros;
            let rounds = by_way(number, |us| {
                vec![ModelRound {
                    wall: wall(us),
                    server_cpu: None,
                    client_cpu: None,
                    secondary: None,
                }]
            });
            report.models.push(Row { case, rounds });
            for threads in [1, 2] {
                let operation = Operation::Get;
                let case = ClientsCase { at, operation, bytes: 1 << 10, clients: 4, threads };
                let rounds = by_way(number, |us| {
                    let per_s = 1e6 / us as f64;
                    vec![ClientsRound {
                        latency: latency(us),
                        per_s,
                        server_cpu: None,
                        spread_per_s: None,
                    }]
                });
                report.clients.push(Row { case, rounds });
            }
        }
    }
    report
}

#[test]
fn medians_ratios_and_shares() {
    let report = report();
    let [tcp, second] = [0, 6].map(|at| &report.sizes[at]);
    assert_eq!(second.case.at.way, &WAYS[1]);
    let near = |value: Option<f64>, expected: f64| {
        let value = value.unwrap();
        assert!((value / expected - 1.0).abs() < 0.01, "{value} for {expected}");
    };
    // 4000, 400,000 and 2000.
    near(second.percentile_us(0.5), 4000.0);
    near(report.size_ratio(second), 2.0);
    near(report.size_ratio(tcp), 1.0);
    near(report.model_ratio(&report.models[2]), 4.0);
    near(report.models[0].mb_per_s(), 553.648 / 0.008);
    near(report.clients_ratio(&report.clients[4]), 4.0);
    // A quarter of each request, in all rounds together.
    near(tcp.share_percent(tcp.server_cpu_us()), 25.0);
    assert_eq!(tcp.client_cpu_us(), None);
    assert_eq!(tcp.requests(), 300);
    // All rounds together: of 8000, 800,000 and 4000 us.
    let window = tcp.window().unwrap();
    assert_eq!((window.stages.requests, window.wall_us), (300, 81_200_000.0));
    let missing = &report.sizes[18];
    assert_eq!((missing.measured().is_none(), report.size_ratio(missing)), (true, None));
    // Only the last way may be missing.
    assert_eq!(report.failed(), 0);
    let mut worse = report.clone();
    worse.models[1].rounds = Err("broken".to_owned());
    worse.clients[1].rounds = Ok(Vec::new());
    assert_eq!(worse.failed(), 2);
}

#[test]
fn stages_add_up_within_what_the_clients_clock_allows() {
    let sound = window(2.0, 1000, 10.0);
    assert!(sound.adds_up());
    assert_eq!((sound.cycle_us(), sound.stages.a_request_us()), (10.0, [2.0; 5]));
    assert!(sound.deviation_percent().abs() < 1e-9);
    let with_sum = |sum_us: f64| {
        let mut window = sound;
        window.stages.total_us = [sum_us - 100.0, 100.0, 0.0, 0.0, 0.0];
        window
    };
    for (sum_us, adds_up) in
        [(9_995.0, false), (9_997.0, true), (10_003.0, true), (10_005.0, false), (200.0, false)]
    {
        assert_eq!(with_sum(sum_us).adds_up(), adds_up, "{sum_us}");
    }
    assert!((with_sum(9_900.0).deviation_percent() + 1.0).abs() < 1e-9);
    // Two rounds together add up although their cycles differ; a row does only if each round does.
    let both = sound.plus(&window(4.0, 500, 20.0));
    assert_eq!((both.stages.requests, both.wall_us), (1500, 20_000.0));
    assert!(both.adds_up());
    let mut report = report();
    assert_eq!(report.sizes[0].adds_up(), Some(true));
    report.sizes[0].rounds.as_mut().unwrap()[1].window.stages.total_us[2] += 50.0;
    assert_eq!(report.sizes[0].adds_up(), Some(false));
    assert_eq!(table::text(&report).matches(" NO\n").count(), 1);
}

#[test]
fn every_row_is_in_the_text_and_on_the_page() {
    let report = report();
    let tables = [table::latency, table::stages, table::models, table::clients];
    let tables = tables.map(|table| table(&report));
    let counts: Vec<usize> = tables.iter().map(|table| table.rows.len()).collect();
    assert_eq!(counts, [48, 48, 8, 16]);
    let text = table::text(&report);
    let html = page::html(&report);
    assert_eq!(text.matches(&format!("not measured: {WHY}\n")).count(), 12 + 12 + 2 + 4);
    assert_eq!(html.matches(&format!("not measured: {WHY}</td>")).count(), 12 + 12 + 2 + 4);
    for row in tables.iter().flat_map(|table| &table.rows) {
        let cells: Vec<String> = row.iter().map(|cell| format!(">{cell}</td>")).collect();
        let found = html.lines().any(|line| {
            let mut rest = line;
            cells.iter().all(|cell| match rest.find(cell) {
                Some(at) => {
                    rest = &rest[at + cell.len()..];
                    true
                }
                None => false,
            })
        });
        assert!(found, "{row:?} is not on the page");
    }
    // The paper's numbers, and what would break the page.
    for number in ["9307.6", "778.4", "1079.02", "6.69", "0.868", "22.68", "13200"] {
        assert!(html.contains(number), "{number} is not on the page");
    }
    assert!(html.contains("a &lt;fast&gt; one") && !html.contains("<fast>"));
    // It asks for nothing from elsewhere: the only address is that of the format's name.
    assert_eq!(html.matches("http").count(), html.matches("xmlns=\"http://www.w3.org/").count());
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    // Sizes: an operation a place; stages: an operation a size a place, and the paper's two; models and
    // clients: one a place.
    assert_eq!(html.matches("<svg").count(), 6 + 12 + 2 + 2 + 2);
    assert!(!html.contains("no plot"));
}

#[test]
fn a_page_without_measurements_has_no_empty_sections() {
    let html = page::html(&Report::default());
    assert_eq!((html.matches("<h2").count(), html.matches("<svg").count()), (0, 0));
    let mut report = report();
    report.sizes.iter_mut().for_each(|row| row.rounds = Err(WHY.to_owned()));
    report.models.clear();
    report.clients.clear();
    let html = page::html(&report);
    assert!(html.contains("nothing measured") && html.contains("(not measured)"));
}

#[test]
fn json_has_every_row_with_its_units() {
    let report = report();
    let document = json::document(&report);
    let document = document.as_doc();
    assert_eq!(document.value("schema"), Value::from(json::SCHEMA));
    let rows = |name: &str| -> Vec<Doc<'_>> {
        let list = document.get(name).and_then(|list| list.as_doc()).unwrap();
        list.iter().filter_map(|row| row.as_doc()).collect()
    };
    let (sizes, models, clients) = (rows("sizes"), rows("models"), rows("clients"));
    assert_eq!((sizes.len(), models.len(), clients.len()), (48, 8, 16));
    for (rows, fields) in [
        (&sizes, &["p50Micros", "cycleMicros", "stagesSumMicros", "serverCpuPercent"][..]),
        (&models, &["seconds", "megabytesPerSecond", "checksumVerified"][..]),
        (&clients, &["requestsPerSecond", "meanMicros", "timesTcpsThroughput"][..]),
    ] {
        for row in rows {
            let missing = row.value("transport") == Value::from("rdma");
            assert_eq!(row.value("notMeasured") == Value::from(WHY), missing, "{row:?}");
            for field in fields {
                assert_eq!(row.get(field).is_none(), missing, "{field} of {row:?}");
            }
        }
    }
    let stages = sizes[0].get("stagesMicros").and_then(|stages| stages.as_doc()).unwrap();
    let sum: f64 = stages.iter().filter_map(|stage| stage.value().as_f64_lossy()).sum();
    let told = sizes[0].value("stagesSumMicros").as_f64_lossy().unwrap();
    assert_eq!(stages.count(), STAGES.len());
    assert!((sum / told - 1.0).abs() < 1e-9, "{sum} and {told}");
    assert_eq!(sizes[0].value("stagesAddUp"), Value::Bool(true));
    assert_eq!(rows("places")[1].value("fileSystem"), Value::from("memoryfs (x)"));
}

#[test]
fn every_way_has_a_connection_string() {
    let mut to = Listener {
        host: "127.0.0.1".to_owned(),
        port: 4,
        socket: "/tmp/a/mongodb-4.sock".into(),
        spin_micros: 7,
        ring_bytes: 65536,
    };
    let mut names: Vec<&str> = WAYS.iter().map(|way| way.name).collect();
    for way in WAYS {
        let uri = way.uri(&to).unwrap();
        assert_eq!((uri.spin, uri.ring_bytes), (Duration::from_micros(7), 65536));
        assert_eq!(super::way::Way::parse(way.name), Some(way));
    }
    names.dedup();
    assert_eq!(names.len(), WAYS.len());
    assert_eq!(super::way::Way::parse("pigeon"), None);
    assert!(WAYS[0].connection_string(&to).starts_with("mongodb://127.0.0.1:4/?"));
    assert!(WAYS[1].connection_string(&to).starts_with("mongodb://%2Ftmp%2Fa%2Fmongodb-4.sock/?"));
    to.host = "::1".to_owned();
    assert!(WAYS[0].connection_string(&to).starts_with("mongodb://[::1]:4/?"));
    assert!(WAYS[0].uri(&to).is_ok());
}

#[test]
fn sizes_are_said_in_their_units() {
    let texts = [1000, 1024, 255 << 10, 1 << 20, 528 << 20].map(size_text);
    assert_eq!(texts, ["1000 B", "1 KB", "255 KB", "1 MB", "528 MB"]);
}

#[test]
fn a_sets_report_has_reads_of_secondaries_and_no_stages() {
    let mut report = report();
    let without = (table::text(&report), json::document(&report));
    assert!(!without.0.contains("secondary") && without.0.contains("adds up"));
    assert!(without.1.as_doc().get("replicaSet").is_none());
    report.has_set = true;
    for row in &mut report.sizes {
        let is_get = row.case.operation == Operation::Get;
        let rounds = row.rounds.iter_mut().flatten().filter(|_| is_get);
        rounds.for_each(|round| round.secondary = Some(latency(70)));
    }
    for round in report.models.iter_mut().flat_map(|row| row.rounds.iter_mut().flatten()) {
        round.secondary = Some(Duration::from_millis(250));
    }
    for round in report.clients.iter_mut().flat_map(|row| row.rounds.iter_mut().flatten()) {
        round.spread_per_s = Some(round.per_s * 3.0);
    }
    let text = table::text(&report);
    assert!(!text.contains("adds up"), "{text}");
    let lines = |words: &str| text.lines().filter(|line| line.contains(words)).collect::<Vec<_>>();
    assert!(lines("secondary p50 us").len() == 1 && lines("secondary seconds").len() == 1);
    assert!(lines("times the primary's").len() == 1);
    for line in lines(" get ").iter().filter(|line| !line.starts_with("clients")) {
        let last: f64 = line.split_whitespace().last().unwrap_or("-").parse().unwrap_or(0.0);
        assert!(line.contains("not measured") || (last - 70.0).abs() < 5.0, "{line}");
    }
    for line in lines("model ").iter().filter(|line| line.starts_with("model ")) {
        assert!(line.ends_with("0.2500") || line.contains("not measured"), "{line}");
    }
    for line in lines("clients ").iter().skip(1) {
        assert!(line.ends_with("3.00") || line.contains("not measured"), "{line}");
    }
    let json = json::text(&report);
    for name in ["replicaSet", "secondaryP50Micros", "secondarySeconds", "allMembersRequests"] {
        assert!(json.contains(name), "{name}");
    }
    assert!(!json.contains("stagesMicros"), "{json}");
}
