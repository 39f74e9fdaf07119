//! The table of server parameters: names, defaults, bounds.
//!
//! It has the parameters that take effect, the read-only ones, and the few that may be set without an effect
//! ([`WITHOUT_EFFECT`]).

use crate::parameters::{Kind, Parameter};
use crate::server::FEATURE_COMPATIBILITY;
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

/// The granularities of locks: see `locks`.
#[cfg(feature = "lock-experiment")]
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
        ("diagnosticDataCollectionEnabled", p(true.into(), Kind::Bool)),
        ("disableLogicalSessionCacheRefresh", p(false.into(), Kind::Bool).startup_only()),
        ("enableTestCommands", p(false.into(), Kind::Bool).startup_only()),
        (
            "featureCompatibilityVersion",
            p(doc! { "version" => FEATURE_COMPATIBILITY }.into(), Kind::Fixed),
        ),
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
        ("internalQueryExecYieldIterations", p(1000.into(), Kind::Fixed)),
        ("internalQueryExecYieldPeriodMS", p(10.into(), Kind::Fixed)),
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
        #[cfg(feature = "lock-experiment")]
        ("lockGranularity", p("document".into(), Kind::Choice(LOCK_GRANULARITIES)).startup_only()),
        #[cfg(feature = "lock-experiment")]
        ("lockYielding", p("on".into(), Kind::Choice(&["on", "off"])).startup_only()),
        ("logicalSessionRefreshMillis", p(300_000.into(), Kind::Int(1, INT)).startup_only()),
        ("maxIndexBuildMemoryUsageMegabytes", p(200.0.into(), Kind::Double(50.0, 1e9))),
        ("maxSessions", p((limits::LOGICAL_SESSIONS_MAX as i32).into(), Kind::Fixed)),
        ("notablescan", p(false.into(), Kind::Bool)),
        ("periodicNoopIntervalSecs", p(10.into(), Kind::Int(1, INT)).startup_only()),
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
    let quiet = p(false.into(), Kind::Bool).with_hook(Arc::new(|value| {
        kauri_base::log::set_quiet(value.truthy());
        Ok(())
    }));
    all.insert("quiet", quiet);
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
    let components = p(default_verbosity().into(), Kind::Verbosity);
    let components = components.with_hook(Arc::new(|value| {
        let mut levels = Levels::new();
        read_levels(value.as_document().unwrap_or(Doc::EMPTY), "", &mut levels)?;
        kauri_base::log::set_verbosity(effective(&levels, ""));
        kauri_base::log::set_component_verbosity(own_levels(&levels));
        Ok(())
    }));
    all.insert("logComponentVerbosity", components);
    all
}

/// Parameters that may be set and change nothing, and why that is right: on a standalone server they promise nothing
/// that is not so anyway.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("KeysRotationIntervalSec", "clusters rotate the keys that sign their times; there are none"),
    ("ShardingTaskExecutorPoolReplicaSetMatching", "is about connections to shards"),
    ("disableLogicalSessionCacheRefresh", "sessions are in memory alone, so none is refreshed"),
    ("logicalSessionRefreshMillis", "sessions are in memory alone, so none is refreshed"),
    ("maxIndexBuildMemoryUsageMegabytes", "a build adds keys as it reads and sorts none in memory"),
    ("periodicNoopIntervalSecs", "there is no oplog to write into"),
    ("transactionLifetimeLimitSeconds", "transactions need a replica set, and are refused"),
];

/// The names of components in log lines, where they are not the parameter's in capitals.
const NAMES_IN_LINES: &[(&str, &str)] = &[
    ("accessControl", "ACCESS"),
    ("network.asio", "ASIO"),
    ("network.bridge", "BRIDGE"),
    ("network.connectionPool", "CONNPOOL"),
    ("replication", "REPL"),
    ("storage.journal", "JOURNAL"),
    ("storage.recovery", "RECOVERY"),
    ("storage.wt", "WT"),
    ("transaction", "TXN"),
];

/// The effective level of a component: its own, or its parent's.
fn effective(levels: &Levels, component: &str) -> u8 {
    let own = levels.get(component).copied().unwrap_or(-1);
    match u8::try_from(own) {
        Ok(level) => level,
        Err(_) if component.is_empty() => 0,
        Err(_) => effective(levels, component.rsplit_once('.').map_or("", |(parent, _)| parent)),
    }
}

/// The levels of components for which one is set, of them or of a parent below the root.
fn own_levels(levels: &Levels) -> BTreeMap<String, u8> {
    let is_set = |component: &&&str| {
        let mut parts = component.match_indices('.').map(|(end, _)| &component[..end]);
        parts.any(|parent| levels.get(parent).is_some_and(|level| *level >= 0))
            || levels.get(**component).is_some_and(|level| *level >= 0)
    };
    let in_lines = |component: &str| {
        let named = NAMES_IN_LINES.iter().find(|(name, _)| *name == component);
        named.map_or_else(|| component.to_uppercase(), |(_, line)| (*line).to_owned())
    };
    let set = LOG_COMPONENTS.iter().filter(is_set);
    set.map(|component| (in_lines(component), effective(levels, component))).collect()
}

/// `logComponentVerbosity` with this level at the root (`logLevel`).
pub fn with_root(components: &Value<'static>, level: i64) -> Result<Value<'static>> {
    change_verbosity(components, &doc! { "verbosity" => level }.into())
}

/// The level at the root of `logComponentVerbosity`.
pub fn root_of(components: &Value<'static>) -> i32 {
    let root = components.as_document().map(|doc| doc.value("verbosity"));
    root.and_then(|level| level.to_i64_saturating()).unwrap_or(0).clamp(0, 5) as i32
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Parameters;
    use kauri_base::log::{Severity, enabled};
    use std::collections::BTreeSet;

    /// Parameters that are read where they are needed, or that get a hook when the server is put together.
    const READ: &[&str] = &[
        "allowDiskUseByDefault",
        "automationServiceDescriptor",
        "clientCursorMonitorFrequencySecs",
        "cursorTimeoutMillis",
        "diagnosticDataCollectionEnabled",
        "enableTestCommands",
        "internalDocumentSourceBucketAutoMaxMemoryBytes",
        "internalDocumentSourceDensifyMaxMemoryBytes",
        "internalDocumentSourceGroupMaxMemoryBytes",
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        "internalQueryMaxAllowedDensifyDocs",
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        "localLogicalSessionTimeoutMinutes",
        #[cfg(feature = "lock-experiment")]
        "lockGranularity",
        #[cfg(feature = "lock-experiment")]
        "lockYielding",
        "notablescan",
        "ttlMonitorEnabled",
        "ttlMonitorSleepSecs",
    ];

    #[test]
    fn a_parameter_that_may_be_set_has_an_effect_or_a_reason() {
        let settable: BTreeSet<&str> = Parameters::default().without_hook().into_iter().collect();
        let reasons = WITHOUT_EFFECT.iter().map(|(name, why)| {
            assert!(!why.is_empty());
            *name
        });
        let known: BTreeSet<&str> = READ.iter().copied().chain(reasons).collect();
        assert_eq!(settable, known);
    }

    #[test]
    fn a_component_has_a_level_of_its_own() {
        let parameters = Parameters::default();
        let set = |name, value: Value<'static>| parameters.set(&[(name, value)]).unwrap();
        let is_on = |level, component| enabled(Severity::Debug(level), component);
        set("logComponentVerbosity", doc! { "command" => 2, "network" => 1 }.into());
        assert!(is_on(2, "COMMAND") && !is_on(3, "COMMAND"));
        assert!(is_on(1, "NETWORK") && is_on(1, "ASIO") && !is_on(2, "ASIO"));
        assert!(!is_on(1, "STORAGE") && !is_on(1, "WT"));
        // The level of all is the level of those without one of their own.
        set("logLevel", 1.into());
        assert!(is_on(1, "STORAGE") && !is_on(2, "STORAGE") && is_on(2, "COMMAND"));
        let components = parameters.get("logComponentVerbosity").unwrap().value;
        assert_eq!(root_of(&components), 1);
        let quiet =
            doc! { "verbosity" => 0, "command" => -1, "network" => doc! { "verbosity" => 0 } };
        set("logComponentVerbosity", quiet.into());
        assert_eq!(parameters.number("logLevel"), 0);
        assert!(!is_on(1, "COMMAND") && !is_on(1, "NETWORK") && !is_on(1, "ASIO"));
    }
}
