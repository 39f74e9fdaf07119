//! Stages about a collection: `$indexStats`, `$collStats`, `$planCacheStats`.

use super::source::Source;
use super::spec::Spec;
use super::{BuildCx, Constraints, ParseCx};
use crate::namespaces::Named;
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value};
use kauri_catalog::Namespace;
use std::sync::atomic::Ordering;

fn host(cx: &BuildCx) -> String {
    cx.server.as_ref().map(|server| server.host()).unwrap_or_default()
}

/// `$indexStats: {}`: usage of each index.
pub fn index_stats(elem: Elem<'_>) -> Result<Source> {
    if elem.ty() != Type::Document || !elem.as_doc().is_some_and(Doc::is_empty) {
        bail!(
            28803,
            "The $indexStats stage specification must be an empty object, found: {}",
            kauri_bson::shell_value(&elem.value())
        );
    }
    Ok(Source::new("$indexStats", elem.value(), Box::new(|cx| Ok(index_rows(cx)))))
}

fn index_rows(cx: &BuildCx) -> Vec<DocBuf> {
    let Some(collection) = &cx.collection else { return Vec::new() };
    let host = host(cx);
    let row = |index: &std::sync::Arc<kauri_catalog::Index>| {
        DocBuf::build(|out| {
            let definition = index.definition();
            out.put("name", definition.name.as_str());
            out.put("key", &definition.key);
            out.put("host", &host);
            {
                let mut accesses = out.document("accesses");
                let ops = index.usage.accesses.load(Ordering::Relaxed);
                accesses.put("ops", ops as i64);
                accesses.put_value("since", &Value::DateTime(index.usage.since_ms));
            }
            if !index.ready {
                out.put("building", true);
            }
            out.put("spec", &definition.spec);
        })
    };
    collection.indexes.iter().map(row).collect()
}

#[derive(Clone, Copy, Default)]
struct CollStats {
    /// With histograms or without.
    latency: Option<bool>,
    storage_scale: Option<i64>,
    count: bool,
    query_exec: bool,
}

/// `$collStats: {latencyStats, storageStats, count, queryExecStats}`.
pub fn coll_stats(elem: Elem<'_>, cx: &ParseCx) -> Result<Source> {
    let Some(doc) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
        bail!(
            5447000,
            "$collStats must take a nested object but found: {}",
            kauri_bson::shell::elem_to_string(elem)
        );
    };
    let Some(coll) = &cx.collection else {
        bail!(
            InvalidNamespace,
            "{{aggregate: 1}} is not valid for '$collStats'; a collection is required."
        );
    };
    let ns = Namespace::new(&cx.db, coll)?;
    let wanted = read_coll_stats(doc)?;
    let only_count = wanted.latency.is_none() && wanted.storage_scale.is_none();
    let produce = Box::new(move |cx: &BuildCx| coll_stats_rows(&ns, wanted, cx));
    Ok(Source {
        constraints: Constraints {
            not_in_api: !only_count,
            own_views: true,
            ..Constraints::SOURCE
        },
        ..Source::new("$collStats", elem.value(), produce)
    })
}

fn read_coll_stats(doc: Doc<'_>) -> Result<CollStats> {
    let fields = Spec::any("$collStats", doc);
    let mut wanted = CollStats::default();
    // A field may come twice, and once is enough to ask for something.
    for elem in doc {
        let name = elem.key();
        let options = match name {
            "targetAllNodes" => {
                fields.bool(name)?;
                continue;
            }
            "latencyStats" | "storageStats" | "count" | "queryExecStats" | "operationStats" => {
                match (elem.ty(), elem.as_doc()) {
                    (Type::Null | Type::Undefined, _) => continue,
                    (Type::Document, Some(options)) => options,
                    _ => return Err(fields.wrong_type(elem, &["object"])),
                }
            }
            other => bail!(40415, "BSON field '$collStats.{other}' is an unknown field."),
        };
        match name {
            "latencyStats" => {
                let options = Spec::new("$collStats.latencyStats", options, &["histograms"])?;
                wanted.latency = Some(options.flag("histograms")?.unwrap_or(false));
            }
            "storageStats" => wanted.storage_scale = Some(scale(options)?),
            _ => {
                if !options.is_empty() {
                    bail!(31170, "{name} argument must be an empty object");
                }
                wanted.count |= name == "count";
                wanted.query_exec |= name == "queryExecStats";
            }
        }
    }
    Ok(wanted)
}

fn scale(options: Doc<'_>) -> Result<i64> {
    let options = Spec::any("$collStats.storageStats", options);
    for name in ["verbose", "waitForLock", "numericOnly"] {
        options.bool(name)?;
    }
    let Some(elem) = options.get("scale") else { return Ok(1) };
    let value = elem.value();
    if !value.is_number() {
        return Err(options.wrong_type(elem, &["long", "int", "decimal", "double"]));
    }
    match super::truncated(&value) {
        Some(scale) if scale >= 1 => Ok(scale.min(i64::from(i32::MAX))),
        scale => bail!(
            BadValue,
            "BSON field 'scale' value must be >= 1, actual value '{}'",
            scale.unwrap_or(0)
        ),
    }
}

fn coll_stats_rows(ns: &Namespace, wanted: CollStats, cx: &BuildCx) -> Result<Vec<DocBuf>> {
    let of_collection = wanted.storage_scale.is_some() || wanted.count || wanted.query_exec;
    let resolved = cx.namespaces.resolve(ns.as_str());
    let views = match ns.collection() {
        "system.views" => cx.namespaces.views_of(ns.database()).len(),
        _ => 0,
    };
    let own = cx.server.as_ref().and_then(|server| server.own_count(ns));
    let usage = resolved.usage().cloned().unwrap_or_default();
    let collection = match resolved {
        Named::Collection(collection) => Some(collection),
        Named::View(_) if of_collection => {
            bail!(CommandNotSupportedOnView, "Namespace {ns} is a view, not a collection")
        }
        Named::Nothing if of_collection && views == 0 && own.is_none() => {
            bail!(
                NamespaceNotFound,
                "Unable to retrieve storageStats in $collStats stage :: caused by :: Collection \
                 [{ns}] not found."
            )
        }
        _ => None,
    };
    let stats = collection.as_ref().filter(|_| wanted.count).map(|c| c.stats()).transpose()?;
    let mut failed = None;
    let row = DocBuf::build(|out| {
        out.put("ns", ns.as_str());
        out.put("host", host(cx));
        out.put_value("localTime", &Value::DateTime(cx.env.now_ms));
        if let Some(histograms) = wanted.latency {
            usage.write_latencies(&mut out.document("latencyStats"), histograms);
        }
        if let Some(scale) = wanted.storage_scale {
            let out = &mut out.document("storageStats");
            if let Some(server) = &cx.server {
                failed = server.storage_stats(ns, collection.as_deref(), scale, out).err();
            }
        }
        let count = stats.map(|stats| stats.records);
        let count = count.or((wanted.count && views > 0).then_some(views as u64));
        if let Some(count) = count.or(own.filter(|_| wanted.count)) {
            match i32::try_from(count) {
                Ok(count) => out.put("count", count),
                Err(_) => out.put("count", count as i64),
            }
        }
        if wanted.query_exec {
            let mut stats = out.document("queryExecStats");
            let mut scans = stats.document("collectionScans");
            let (all, tailing) = collection.as_ref().map_or((0, 0), |c| c.usage.scans());
            scans.put("total", all as i64);
            scans.put("nonTailable", all.saturating_sub(tailing) as i64);
        }
    });
    failed.map_or(Ok(vec![row]), Err)
}

/// `$planCacheStats: {allHosts}`.
pub fn plan_cache_stats(elem: Elem<'_>) -> Result<Source> {
    let Some(doc) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
        bail!(
            FailedToParse,
            "$planCacheStats value must be an object. Found: {}",
            elem.ty().alias()
        );
    };
    let mut all_hosts = None;
    for option in doc {
        match option.value() {
            _ if option.key() != "allHosts" || all_hosts.is_some() => bail!(
                FailedToParse,
                "$planCacheStats parameters object may contain only 'allHosts' field. Found: {}",
                option.key()
            ),
            Value::Bool(flag) => all_hosts = Some(flag),
            _ => {
                return Err(Error::location(
                    13111,
                    format!("Field 'allHosts' must be a boolean, found: {}", option.ty().alias()),
                ));
            }
        }
    }
    if all_hosts == Some(true) {
        bail!(
            4503200,
            "$planCacheStats stage supports allHosts parameter only for sharded clusters"
        );
    }
    let produce = Box::new(|cx: &BuildCx| match &cx.collection {
        Some(collection) => {
            Ok(cx.env.plans.as_ref().map_or_else(Vec::new, |plans| plans.entries(collection)))
        }
        None => Err(Error::new(
            ErrorCode::from_number(50933),
            "collection does not exist for $planCacheStats",
        )),
    });
    let source = Source::new("$planCacheStats", elem.value(), produce);
    let constraints = Constraints { local_reads: true, ..source.constraints };
    Ok(Source { constraints, ..source })
}
