//! `serverStatus`: status and counters of the server.
//!
//! A few fields are always present. The others are sections that a request enables and disables by name
//! (`{serverStatus: 1, metrics: 0}`; `none: 1` for only the named ones).

mod locks;
mod metrics;
mod sections;
mod transport;

use crate::cmds::repl_set::describe;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::server::{Server, VERSION};
use crate::set;
use kauri_bson::{Doc, DocWriter, Value};
use kauri_transport::ServiceStats;
use kauri_transport::upgrade::RdmaService;

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: false,
    ..Command::new("serverStatus", "returns the status and counters of the server", run)
};

/// The sources of the figures, and which ones are requested.
pub struct Source<'a> {
    /// The server.
    pub server: &'a Server,
    /// Counters and histograms of its transports.
    pub transport: &'a ServiceStats,
    /// Its RDMA service.
    pub rdma: &'a RdmaService,
    /// The request, whose fields switch sections on and off.
    pub body: Doc<'a>,
}

impl<'a> Source<'a> {
    /// The server that this command runs on, with the default sections.
    pub fn of(invocation: &'a Invocation<'_>) -> Source<'a> {
        Source {
            server: invocation.server,
            transport: invocation.transport,
            rdma: invocation.session.upgrade.rdma(),
            body: Doc::EMPTY,
        }
    }
}

/// A section: its name, whether it is included by default, and its writer.
struct Section {
    name: &'static str,
    by_default: bool,
    write: fn(&Source<'_>, &mut DocWriter<'_>),
}

const fn section(name: &'static str, write: fn(&Source<'_>, &mut DocWriter<'_>)) -> Section {
    Section { name, by_default: true, write }
}

const SECTIONS: &[Section] = &[
    section("asserts", sections::asserts),
    section("catalogStats", sections::catalog_stats),
    section("connections", transport::connections),
    section("electionMetrics", sections::nothing),
    section("extra_info", sections::extra_info),
    section("featureCompatibilityVersion", sections::feature_compatibility),
    section("flowControl", sections::flow_control),
    section("globalLock", locks::global_lock),
    section("indexBuilds", sections::index_builds),
    section("locks", locks::locks),
    section("logicalSessionRecordCache", sections::logical_sessions),
    section("mem", sections::memory),
    section("metrics", metrics::metrics),
    Section { name: "mirroredReads", by_default: false, write: sections::mirrored_reads },
    section("network", transport::network),
    section("operationMemory", sections::operation_memory),
    section("opLatencies", sections::op_latencies),
    section("opcounters", sections::op_counters),
    section("opcountersRepl", sections::op_counters_of_replication),
    section("profiler", sections::profiler),
    section("security", sections::nothing),
    section("sharedMemory", transport::shared_memory),
    section("rdma", transport::rdma),
    section("storageEngine", sections::storage_engine),
    section("transactions", sections::transactions),
    section("transportStages", transport::stages),
    section("transportWorkers", transport::workers),
];

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let mut bytes = Vec::with_capacity(8 * 1024);
        {
            let mut out = DocWriter::new(&mut bytes);
            let body = invocation.body;
            write(&Source { body, ..Source::of(invocation) }, &mut out);
        }
        invocation.reply.put_all(Doc::from_bytes(&bytes)?);
        Ok(())
    })
}

/// Writes the sections that are asked for.
pub fn write(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let body = source.body;
    write_identity(source, out);
    for section in SECTIONS.iter().filter(|s| wanted(body, s.name, s.by_default)) {
        (section.write)(source, &mut out.document(section.name));
    }
    if let Some(member) = source.server.member.as_ref().filter(|_| wanted(body, "repl", true)) {
        let view = member.view();
        let mut repl = out.document("repl");
        describe::write(&mut repl, member, &view, "isWritablePrimary");
        set::reply::write_topology_version(&mut repl, source.server);
    }
    if let Some(member) = source.server.member.as_ref().filter(|_| wanted(body, "oplog", false)) {
        let progress = member.progress();
        let mut oplog = out.document("oplog");
        oplog.put("earliestOptime", progress.first.optime.timestamp);
        oplog.put("latestOptime", progress.written.optime.timestamp);
    }
    let engine = source.server.backend.engine();
    if wanted(body, engine.name(), true) {
        engine.write_status(&mut out.document(engine.name()));
    }
}

fn wanted(body: Doc<'_>, name: &str, by_default: bool) -> bool {
    match body.get(name) {
        Some(toggle) => toggle.value().truthy(),
        None if body.value("all").truthy() => true,
        None if body.value("none").truthy() => false,
        None => by_default,
    }
}

fn write_identity(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let server = source.server;
    let now_ms = server.clock.unix_ms();
    let up_ms = now_ms.saturating_sub(server.start.started_ms).max(0);
    out.put("host", &server.start.host);
    out.put("version", VERSION);
    out.put("process", "mongod");
    out.put_value("service", &Value::array([Value::from("shard")]));
    out.put("pid", i64::from(server.start.pid));
    out.put("uptime", (up_ms / 1000) as f64);
    out.put("uptimeMillis", up_ms);
    out.put("uptimeEstimate", up_ms / 1000);
    out.put("localTime", Value::DateTime(now_ms));
}
