//! The table of server parameters: names, defaults, bounds.
//!
//! In it are those that this server acts on, those that tell something of it, and the few that
//! clients ask for or set whose machinery (journal, diagnostic files, key rotation) it doesn't have.

use crate::parameters::{Kind, Parameter};
use kauri_base::{Result, bail, limits};
use kauri_bson::{Doc, DocBuf, DocWriter, Value, array, doc};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Components of log lines, as dotted paths.
const LOG_COMPONENTS: &[&str] = &[
    "accessControl",
    "assert",
    "command",
    "control",
    "deprecation",
    "executor",
    "ftdc",
    "geo",
    "globalIndex",
    "index",
    "migration",
    "network",
    "network.asio",
    "network.bridge",
    "network.connectionPool",
    "processHealth",
    "query",
    "query.optimizer",
    "query.ce",
    "queryStats",
    "replication",
    "replication.election",
    "replication.heartbeats",
    "replication.initialSync",
    "replication.rollback",
    "resharding",
    "sharding",
    "sharding.migration",
    "sharding.rangeDeleter",
    "storage",
    "storage.journal",
    "storage.recovery",
    "storage.wt",
    "tenantMigration",
    "test",
    "tracking",
    "transaction",
    "write",
];

/// How much a lock covers: see `locks`.
const LOCK_GRANULARITIES: &[&str] = &["global", "database", "collection", "document"];

const INT: i32 = i32::MAX;
const LONG: i64 = i64::MAX;

/// All parameters with their defaults.
pub fn all() -> BTreeMap<&'static str, Parameter> {
    let p = |value: Value<'static>, kind| Parameter::new(value, kind);
    let session_minutes = limits::LOGICAL_SESSION_IDLE_MINUTES;
    let mut all = BTreeMap::from([
        ("allowDiskUseByDefault", p(true.into(), Kind::Bool)),
        ("authSchemaVersion", p(5.into(), Kind::Fixed)),
        ("authenticationMechanisms", p(array![], Kind::Fixed)),
        ("automationServiceDescriptor", p("".into(), Kind::Text(64))),
        ("clientCursorMonitorFrequencySecs", p(4.into(), Kind::Int(1, INT))),
        ("cursorTimeoutMillis", p((limits::CURSOR_IDLE_MS as i64).into(), Kind::Long(1, LONG))),
        ("diagnosticDataCollectionEnabled", p(false.into(), Kind::Bool)),
        ("disableLogicalSessionCacheRefresh", p(false.into(), Kind::Bool).startup_only()),
        ("enableTestCommands", p(false.into(), Kind::Bool).startup_only()),
        ("featureCompatibilityVersion", p(doc! { "version" => "7.0" }.into(), Kind::Fixed)),
        (
            "internalDocumentSourceBucketAutoMaxMemoryBytes",
            p((limits::SORT_BYTES_MAX as i64).into(), Kind::Long(1, LONG)),
        ),
        (
            "internalDocumentSourceDensifyMaxMemoryBytes",
            p((limits::DENSIFY_BYTES_MAX as i64).into(), Kind::Long(1, LONG)),
        ),
        (
            "internalDocumentSourceGroupMaxMemoryBytes",
            p((limits::GROUP_BYTES_MAX as i64).into(), Kind::Long(1, LONG)),
        ),
        (
            "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
            p((limits::SORT_BYTES_MAX as i64).into(), Kind::Long(1, LONG)),
        ),
        ("internalQueryExecYieldIterations", p(1000.into(), Kind::Int(-1, INT))),
        ("internalQueryExecYieldPeriodMS", p(10.into(), Kind::Int(0, INT))),
        ("internalQueryFrameworkControl", p("trySbeRestricted".into(), Kind::Fixed)),
        (
            "internalQueryMaxAllowedDensifyDocs",
            p(limits::DENSIFY_DOCS_MAX.into(), Kind::Int(0, INT)),
        ),
        (
            "internalQueryMaxBlockingSortMemoryUsageBytes",
            p((limits::SORT_BYTES_MAX as i64).into(), Kind::Long(0, LONG)),
        ),
        ("journalCommitInterval", p(100.into(), Kind::Fixed)),
        ("KeysRotationIntervalSec", p(7_776_000.into(), Kind::Int(1, INT)).startup_only()),
        (
            "localLogicalSessionTimeoutMinutes",
            p(session_minutes.into(), Kind::Int(1, INT)).startup_only(),
        ),
        ("lockGranularity", p("document".into(), Kind::Choice(LOCK_GRANULARITIES)).startup_only()),
        ("lockYielding", p("on".into(), Kind::Choice(&["on", "off"])).startup_only()),
        ("logicalSessionRefreshMillis", p(300_000.into(), Kind::Int(1, INT)).startup_only()),
        ("maxIndexBuildMemoryUsageMegabytes", p(200.0.into(), Kind::Double(50.0, 1e9))),
        ("maxSessions", p((limits::LOGICAL_SESSIONS_MAX as i32).into(), Kind::Fixed)),
        ("notablescan", p(false.into(), Kind::Bool)),
        ("periodicNoopIntervalSecs", p(10.into(), Kind::Int(1, INT)).startup_only()),
        ("quiet", p(false.into(), Kind::Bool)),
        (
            "ShardingTaskExecutorPoolReplicaSetMatching",
            p("automatic".into(), Kind::Choice(&["automatic", "disabled", "matchPrimaryNode"])),
        ),
        ("transactionLifetimeLimitSeconds", p(60.into(), Kind::Int(1, INT))),
        ("ttlMonitorEnabled", p(true.into(), Kind::Bool)),
        ("ttlMonitorSleepSecs", p(60.into(), Kind::Int(1, INT))),
    ]);
    let level = p(0.into(), Kind::Int(0, 5)).with_hook(Arc::new(|value| {
        let level = value.to_i64_saturating().unwrap_or(0).clamp(0, 5) as u8;
        kauri_base::log::set_verbosity(level);
        Ok(())
    }));
    all.insert("logLevel", level);
    let kb = (limits::LOG_ATTRIBUTE_BYTES_MAX / 1024) as i32;
    let log_size = p(kb.into(), Kind::Int(0, INT)).with_hook(Arc::new(|value| {
        let kb = value.to_i64_saturating().and_then(|kb| usize::try_from(kb).ok()).unwrap_or(0);
        kauri_base::log::set_attribute_bytes_max(kb.saturating_mul(1024));
        Ok(())
    }));
    all.insert("maxLogSizeKB", log_size);
    let keys = limits::INDEX_KEYS_PER_DOCUMENT_MAX as i32;
    let keys = p(keys.into(), Kind::Int(0, INT)).with_hook(Arc::new(|value| {
        let keys = value.to_i64_saturating().and_then(|keys| usize::try_from(keys).ok());
        kauri_catalog::set_keys_per_document_max(keys.unwrap_or(usize::MAX));
        Ok(())
    }));
    all.insert("indexMaxNumGeneratedKeysPerDocument", keys);
    all.insert("logComponentVerbosity", p(default_verbosity().into(), Kind::Verbosity));
    all
}

/// Each component's verbosity, -1 for that of its parent.
type Levels = BTreeMap<String, i32>;

fn default_verbosity() -> DocBuf {
    let mut levels: Levels = LOG_COMPONENTS.iter().map(|c| ((*c).to_owned(), -1)).collect();
    levels.insert(String::new(), 0);
    write_levels(&levels)
}

fn write_levels(levels: &Levels) -> DocBuf {
    fn write(out: &mut DocWriter<'_>, levels: &Levels, component: &str) {
        out.put("verbosity", levels.get(component).copied().unwrap_or(-1));
        let prefix = if component.is_empty() { String::new() } else { format!("{component}.") };
        for child in LOG_COMPONENTS {
            if let Some(name) = child.strip_prefix(prefix.as_str())
                && !name.contains('.')
            {
                write(&mut out.document(name), levels, child);
            }
        }
    }
    DocBuf::build(|out| write(out, levels, ""))
}

fn read_levels(doc: Doc<'_>, component: &str, levels: &mut Levels) -> Result<()> {
    for elem in doc {
        if elem.key() == "verbosity" {
            levels.insert(component.to_owned(), level(&elem.value())?);
            continue;
        }
        let child = if component.is_empty() {
            elem.key().to_owned()
        } else {
            format!("{component}.{}", elem.key())
        };
        if !LOG_COMPONENTS.contains(&child.as_str()) {
            bail!(BadValue, "Invalid component name {component}.{}", elem.key());
        }
        match elem.value() {
            Value::Document(inner) => read_levels(inner.as_doc(), &child, levels)?,
            value => drop(levels.insert(child, level(&value)?)),
        }
    }
    Ok(())
}

fn level(value: &Value<'_>) -> Result<i32> {
    let number = if value.is_nan() { None } else { value.to_i64_saturating() };
    match number.map(i32::try_from) {
        // Below zero: that of the parent.
        Some(Ok(level)) => Ok(level.max(-1)),
        _ => bail!(
            BadValue,
            "Expected a number for the verbosity of a log component, got {}",
            kauri_bson::shell_value(value)
        ),
    }
}

/// `logComponentVerbosity` after a change; components that are not named stay as they are.
pub fn change_verbosity(now: &Value<'static>, change: &Value<'_>) -> Result<Value<'static>> {
    let Some(change) = change.as_document() else {
        bail!(TypeMismatch, "log component verbosity is not a BSON object: {}", change.type_name());
    };
    let mut levels = Levels::new();
    read_levels(now.as_document().unwrap_or(Doc::EMPTY), "", &mut levels)?;
    read_levels(change, "", &mut levels)?;
    Ok(write_levels(&levels).into())
}
