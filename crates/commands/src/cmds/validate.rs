//! `validate`: checks the documents and indexes of a collection.

use super::ddl;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{DocWriter, Value};
use kauri_catalog::check::{CheckStep, CollectionCheck, Finding, Report};
use kauri_catalog::{Collection, Resolved};
use std::sync::Arc;
use std::time::Duration;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    ..Command::new("validate", "checks the documents and indexes of a collection", run)
};

/// Interval of a check's progress lines.
const PROGRESS_EVERY: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Request {
    metadata: bool,
    repair: bool,
    fix_multikey: bool,
    conformance: bool,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let request = parse(invocation)?;
        let collection = match invocation.server.catalog.resolve(ns.as_str()) {
            Resolved::Collection(collection) => collection,
            Resolved::View(_) => {
                bail!(CommandNotSupportedOnView, "Cannot validate a view")
            }
            Resolved::Nothing => {
                let message = format!("Collection '{ns}' does not exist to validate.");
                return Err(Error::new(ErrorCode::NamespaceNotFound, message));
            }
        };
        ddl::log("Validating a collection", &ns);
        let report = check(invocation, &collection, &request).await?;
        write(&collection, &request, &report, &mut invocation.reply);
        Ok(())
    })
}

fn parse(invocation: &Invocation<'_>) -> Result<Request> {
    // Whatever is given for an option stands for true or false; what is no option is passed over.
    let flag = |name: &str| invocation.body.value(name).truthy();
    let request = Request {
        metadata: flag("metadata"),
        repair: flag("repair"),
        fix_multikey: flag("fixMultikey"),
        conformance: flag("checkBSONConformance"),
    };
    for other in ["background", "full", "repair", "checkBSONConformance", "enforceFastCount"] {
        if request.metadata && flag(other) {
            bail!(
                InvalidOptions,
                "Running validate with {{ metadata: true }} is not supported with any other options"
            );
        }
    }
    if request.conformance && request.repair {
        bail!(
            InvalidOptions,
            "Cannot run validate with both {{ checkBSONConformance: true }} and {{ repair: true }}"
        );
    }
    if flag("background") {
        bail!(
            CommandNotSupported,
            "Running validate command with {{ background: true }} is not supported on standalone \
             nodes"
        );
    }
    Ok(request)
}

async fn check(
    invocation: &mut Invocation<'_>,
    collection: &Arc<Collection>,
    request: &Request,
) -> Result<Report> {
    if request.metadata {
        return Ok(Report::default());
    }
    let mut check = CollectionCheck::new(collection.clone(), &*invocation.server.random);
    let clock = &invocation.server.clock;
    let mut told = clock.monotonic();
    loop {
        match check.step(invocation.op.scope().reader())? {
            CheckStep::Done => return Ok(check.report().clone()),
            CheckStep::Again => {}
            CheckStep::Blocked(ticket) => invocation.op.wait(ticket).await?,
        }
        if invocation.op.slice_is_over() {
            invocation.op.yield_now().await?;
            let now = clock.monotonic();
            if now.saturating_sub(told) >= PROGRESS_EVERY {
                told = now;
                tell_progress(&check);
            }
        }
    }
}

fn tell_progress(check: &CollectionCheck) {
    let Some(progress) = check.progress() else { return };
    let percent = progress.done.saturating_mul(100) / progress.total.max(1);
    let attr = Attr::new()
        .str("name", progress.name)
        .num("done", progress.done)
        .num("total", progress.total)
        .num("percent", percent);
    log::info("COMMAND", 51773, "-", "progress meter", attr);
}

fn write(collection: &Collection, request: &Request, report: &Report, out: &mut DocWriter<'_>) {
    let uuid = Value::Binary { subtype: 4, bytes: collection.uuid.as_slice().into() };
    out.put("ns", collection.ns.as_str());
    out.put_value("uuid", &uuid);
    if !request.metadata {
        out.put("nInvalidDocuments", report.invalid as i32);
        out.put("nNonCompliantDocuments", 0);
        out.put("nrecords", report.records as i32);
    }
    out.put("nIndexes", collection.indexes.iter().filter(|i| i.ready).count() as i32);
    {
        let mut keys = out.document("keysPerIndex");
        report.indexes.iter().for_each(|index| keys.put(&index.name, index.keys as i32));
    }
    {
        let mut details = out.document("indexDetails");
        for index in collection.indexes.iter().filter(|i| i.ready) {
            let found = report.indexes.iter().find(|r| r.name == index.name());
            let mut entry = details.document(index.name());
            entry.put("valid", found.is_none_or(|r| r.valid));
            entry.put("spec", &index.definition().spec);
        }
    }
    out.put("valid", report.findings.is_empty());
    out.put("repaired", false);
    out.put(
        "repairMode",
        match (request.repair, request.fix_multikey) {
            (true, _) => "FixErrors",
            (false, true) => "AdjustMultikey",
            (false, false) => "None",
        },
    );
    write_findings(request, report, out);
}

/// Warnings about requested but omitted checks.
fn warnings(request: &Request, report: &Report) -> impl Iterator<Item = &'static str> {
    let unchecked = "This server does not check the conformance of BSON beyond its structure.";
    let unrepaired =
        "Nothing was repaired. Start the server with --repair, which moves damaged records aside.";
    let is_unrepaired = request.repair && !report.findings.is_empty();
    let unchecked = request.conformance.then_some(unchecked);
    unchecked.into_iter().chain(is_unrepaired.then_some(unrepaired))
}

fn write_findings(request: &Request, report: &Report, out: &mut DocWriter<'_>) {
    out.put_value("warnings", &Value::array(warnings(request, report).map(Value::from)));
    {
        let mut errors = out.array("errors");
        for finding in &report.findings {
            errors.push(text(finding));
        }
    }
    {
        let mut extra = out.array("extraIndexEntries");
        for finding in &report.findings {
            if let Finding::Extra { index, record } = finding {
                let mut entry = extra.document();
                entry.put("indexName", index);
                entry.put("recordId", record.0 as i64);
            }
        }
    }
    {
        let mut missing = out.array("missingIndexEntries");
        for finding in &report.findings {
            if let Finding::Missing { index, record, id } = finding {
                let mut entry = missing.document();
                entry.put("indexName", index);
                entry.put("recordId", record.0 as i64);
                entry.put_value("idKey", &id.as_doc().value("_id"));
            }
        }
    }
    let mut corrupt = out.array("corruptRecords");
    for finding in &report.findings {
        if let Finding::Corrupt { record, .. } = finding {
            corrupt.push(record.0 as i64);
        }
    }
}

fn text(finding: &Finding) -> String {
    match finding {
        Finding::Missing { index, record, .. } => {
            format!("index {index} lacks a key of record {}", record.0)
        }
        Finding::Extra { index, record } => {
            format!("index {index} has a key that record {} does not have", record.0)
        }
        Finding::Duplicate { index, record } => {
            format!(
                "unique index {index} has a duplicate key; the duplicate belongs to record {}",
                record.0
            )
        }
        Finding::Disorder { index } => format!("entries of index {index} are not in order"),
        Finding::Corrupt { record, reason } => {
            format!("record {} cannot be read: {reason}", record.0)
        }
    }
}
