//! The report as JSON.
//!
//! | field | holds |
//! |---|---|
//! | `schema` | `kauri-bench-standalone-1` |
//! | `about` | what it was measured with and on, text by name |
//! | `places` | `name`, `fileSystem` |
//! | `sizes` | a row for each place, operation, size and transport: `place`, `operation`, `bytes`, `transport`, then either `notMeasured` (why) or `rounds`, `requests`, `p50Micros`, `p99Micros`, `meanMicros`, `requestsPerSecond`, `timesFasterThanTcp`, `serverCpuMicros`, `clientCpuMicros` (a request's), `serverCpuPercent`, `clientCpuPercent` (of one core), `stagesMicros` (`waiting`, `source`, `process`, `sink`, `other`), `stagesSumMicros`, `cycleMicros`, `deviationPercent`, `stagesAddUp` |
//! | `models` | `place`, `model`, `bytes`, `transport`, then `notMeasured` or `rounds`, `seconds`, `megabytesPerSecond` (of 10^6), `timesFasterThanTcp`, `checksumVerified` |
//! | `clients` | as `sizes`, with `clients`, `threads` (of each), then `notMeasured` or `rounds`, `requestsPerSecond`, `p50Micros`, `p99Micros`, `meanMicros`, `timesTcpsThroughput`, `serverCpuMicros` |
//!
//! Of a replica set (`replicaSet` is true) rows of Gets and models have `secondaryP50Micros`, `secondarySeconds` and
//! `allMembersRequestsPerSecond`, too, and no stages: a member's other sessions are in its sums.
//!
//! Latencies and rates are medians of the rounds; stages and processor time are those of all rounds together.

use super::requests::Operation;
use super::rows::{At, ClientsRow, ModelRow, Report, SizeRow};
use super::stages::STAGES;
use kauri_bson::extjson::{Format, doc_to_json};
use kauri_bson::{DocBuf, DocWriter};

/// See the module's head.
pub const SCHEMA: &str = "kauri-bench-standalone-1";

fn put(out: &mut DocWriter<'_>, name: &str, value: Option<f64>) {
    if let Some(value) = value {
        out.put(name, value);
    }
}

/// Writes why there is nothing to tell; otherwise how many rounds there are, and true.
fn begin<R>(out: &mut DocWriter<'_>, rounds: &Result<Vec<R>, String>) -> bool {
    match rounds {
        Ok(rounds) if !rounds.is_empty() => out.put("rounds", rounds.len() as i32),
        Ok(_) => out.put("notMeasured", "no round was made"),
        Err(why) => out.put("notMeasured", why.as_str()),
    }
    rounds.as_ref().is_ok_and(|rounds| !rounds.is_empty())
}

fn case(out: &mut DocWriter<'_>, report: &Report, at: At, operation: Operation, bytes: u64) {
    out.put("place", report.place(at));
    out.put("operation", operation.name());
    out.put("bytes", bytes as i64);
    out.put("transport", at.way.name);
}

fn size_row(out: &mut DocWriter<'_>, report: &Report, row: &SizeRow) {
    case(out, report, row.case.at, row.case.operation, row.case.bytes);
    if !begin(out, &row.rounds) {
        return;
    }
    out.put("requests", row.requests() as i64);
    put(out, "p50Micros", row.percentile_us(0.5));
    put(out, "p99Micros", row.percentile_us(0.99));
    put(out, "meanMicros", row.mean_us());
    let per_s = row.median(|r| r.latency.count() as f64 / r.wall.as_secs_f64().max(1e-9));
    put(out, "requestsPerSecond", per_s);
    put(out, "timesFasterThanTcp", report.size_ratio(row));
    put(out, "secondaryP50Micros", row.secondary_us(0.5));
    put(out, "serverCpuMicros", row.server_cpu_us());
    put(out, "clientCpuMicros", row.client_cpu_us());
    put(out, "serverCpuPercent", row.share_percent(row.server_cpu_us()));
    put(out, "clientCpuPercent", row.share_percent(row.client_cpu_us()));
    let Some(window) = row.window().filter(|_| !report.has_set) else { return };
    {
        let mut stages = out.document("stagesMicros");
        let figures = STAGES.iter().zip(window.stages.a_request_us());
        figures.for_each(|((_, name, _), us)| stages.put(name, us));
    }
    out.put("stagesSumMicros", window.stages.sum_us() / window.stages.requests.max(1) as f64);
    out.put("cycleMicros", window.cycle_us());
    out.put("deviationPercent", window.deviation_percent());
    out.put("stagesAddUp", row.adds_up() == Some(true));
}

fn model_row(out: &mut DocWriter<'_>, report: &Report, row: &ModelRow) {
    out.put("place", report.place(row.case.at));
    out.put("model", row.case.name.as_str());
    out.put("bytes", row.case.bytes as i64);
    out.put("transport", row.case.at.way.name);
    if begin(out, &row.rounds) {
        put(out, "seconds", row.seconds());
        put(out, "megabytesPerSecond", row.mb_per_s());
        put(out, "timesFasterThanTcp", report.model_ratio(row));
        put(out, "secondarySeconds", row.secondary_seconds());
        // A reading whose checksum is wrong is none.
        out.put("checksumVerified", true);
    }
}

fn clients_row(out: &mut DocWriter<'_>, report: &Report, row: &ClientsRow) {
    case(out, report, row.case.at, row.case.operation, row.case.bytes);
    out.put("clients", row.case.clients as i32);
    out.put("threads", row.case.threads as i32);
    if begin(out, &row.rounds) {
        put(out, "requestsPerSecond", row.median(|round| round.per_s));
        put(out, "p50Micros", row.percentile_us(0.5));
        put(out, "p99Micros", row.percentile_us(0.99));
        put(out, "meanMicros", row.mean_us());
        put(out, "timesTcpsThroughput", report.clients_ratio(row));
        put(out, "allMembersRequestsPerSecond", row.spread_per_s());
        put(out, "serverCpuMicros", row.server_cpu_us());
    }
}

/// The report as a document.
pub fn document(report: &Report) -> DocBuf {
    DocBuf::build(|out| {
        out.put("schema", SCHEMA);
        if report.has_set {
            out.put("replicaSet", true);
        }
        {
            let mut about = out.document("about");
            report.about.iter().for_each(|(name, value)| about.put(name, value.as_str()));
        }
        let mut places = out.array("places");
        for place in &report.places {
            let mut entry = places.document();
            entry.put("name", place.name.as_str());
            entry.put("fileSystem", place.file_system.as_str());
        }
        drop(places);
        let mut sizes = out.array("sizes");
        report.sizes.iter().for_each(|row| size_row(&mut sizes.document(), report, row));
        drop(sizes);
        let mut models = out.array("models");
        report.models.iter().for_each(|row| model_row(&mut models.document(), report, row));
        drop(models);
        let mut clients = out.array("clients");
        report.clients.iter().for_each(|row| clients_row(&mut clients.document(), report, row));
    })
}

/// The same as text.
pub fn text(report: &Report) -> String {
    doc_to_json(document(report).as_doc(), Format::Relaxed) + "\n"
}
