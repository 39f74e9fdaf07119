//! `collStats`: sizes and counts of a collection.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::server::Server;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Value};
use kauri_catalog::{Collection, Namespace, Resolved};
use kauri_query::pipeline::views;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    aliases: &["collstats"],
    ..Command::read("collStats", "returns sizes and counts of a collection", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let args = Args::new("collStats");
        let mut scale = 1;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "scale" => scale = args.given(elem, read_scale)?.unwrap_or(1),
                _ => args.other(elem)?,
            }
        }
        let collection = match invocation.server.catalog.resolve(ns.as_str()) {
            Resolved::Collection(collection) => Some(collection),
            Resolved::Nothing => None,
            Resolved::View(_) => {
                bail!(CommandNotSupportedOnView, "Namespace {ns} is a view, not a collection")
            }
        };
        let server = invocation.server;
        write(server, &ns, collection.as_deref(), scale, &mut invocation.reply)
    })
}

/// `scale`: the divisor of sizes.
pub fn read_scale(args: &Args<'_>, elem: Elem<'_>) -> Result<i64> {
    let scale = args.long(elem)?;
    if scale < 1 {
        bail!(BadValue, "BSON field 'scale' value must be >= 1, actual value '{scale}'");
    }
    Ok(scale)
}

/// The smallest type that holds the number, as MongoDB has it here.
fn number(n: u64) -> Value<'static> {
    i32::try_from(n).map_or(Value::Int64(n as i64), Value::Int32)
}

/// The figures of a collection, of `system.views`, or of a collection that doesn't exist.
pub fn write(
    server: &Server,
    ns: &Namespace,
    collection: Option<&Collection>,
    scale: i64,
    out: &mut DocWriter<'_>,
) -> Result<()> {
    out.put("ns", ns.as_str());
    let Some(collection) = collection else {
        if server.own_collections().write_stats(ns, scale, out) {
            return Ok(());
        }
        if ns.collection() == "system.views" {
            return write_views(&views::definitions(&server.catalog, ns.database()), scale, out);
        }
        for name in ["size", "count", "numOrphanDocs", "storageSize", "totalSize", "nindexes"] {
            out.put(name, 0);
        }
        out.put("totalIndexSize", 0);
        out.put("indexDetails", Doc::EMPTY);
        out.put("indexSizes", Doc::EMPTY);
        out.put_value("scaleFactor", &number(scale as u64));
        return Ok(());
    };
    write_collection(collection, scale, out)
}

/// Those of `system.views`, which takes no place of its own: the catalog keeps views.
fn write_views(views: &[DocBuf], scale: i64, out: &mut DocWriter<'_>) -> Result<()> {
    let bytes: usize = views.iter().map(|view| view.as_doc().as_bytes().len()).sum();
    out.put_value("size", &number(bytes as u64 / scale.max(1) as u64));
    out.put_value("count", &number(views.len() as u64));
    if let Some(average) = bytes.checked_div(views.len()) {
        out.put_value("avgObjSize", &number(average as u64));
    }
    for name in ["numOrphanDocs", "storageSize", "freeStorageSize"] {
        out.put(name, 0);
    }
    out.put("capped", false);
    out.put("nindexes", i32::from(!views.is_empty()));
    out.array("indexBuilds");
    out.put("totalIndexSize", 0);
    out.put("totalSize", 0);
    {
        let mut sizes = out.document("indexSizes");
        if !views.is_empty() {
            sizes.put("_id_", 0);
        }
    }
    out.put_value("scaleFactor", &number(scale as u64));
    Ok(())
}

fn write_collection(collection: &Collection, scale: i64, out: &mut DocWriter<'_>) -> Result<()> {
    let scaled = |bytes: u64| number(bytes / scale.max(1) as u64);
    let (stats, index_bytes) = (collection.stats()?, collection.index_bytes()?);
    out.put_value("size", &scaled(stats.bytes));
    out.put_value("count", &number(stats.records));
    if let Some(average) = stats.bytes.checked_div(stats.records) {
        out.put_value("avgObjSize", &number(average));
    }
    out.put("numOrphanDocs", 0);
    out.put_value("storageSize", &scaled(stats.storage_bytes));
    out.put("freeStorageSize", 0);
    out.put("capped", collection.options.capped.is_some());
    if let Some(capped) = collection.options.capped {
        if capped.records_max > 0 {
            out.put_value("max", &number(capped.records_max));
        } else {
            out.put("max", 0);
        }
        out.put_value("maxSize", &scaled(capped.bytes_max));
    }
    out.put("nindexes", collection.indexes.iter().filter(|i| i.ready).count() as i32);
    {
        let mut builds = out.array("indexBuilds");
        collection.indexes.iter().filter(|i| !i.ready).for_each(|i| builds.push(i.name()));
    }
    out.put_value("totalIndexSize", &scaled(index_bytes));
    out.put_value("totalSize", &scaled(stats.storage_bytes + index_bytes));
    {
        let mut sizes = out.document("indexSizes");
        for index in &collection.indexes {
            sizes.put_value(index.name(), &scaled(index.bytes()?));
        }
    }
    out.put_value("scaleFactor", &number(scale as u64));
    if let Some((engine, figures)) = collection.store.engine_stats() {
        let mut section = out.document(engine);
        figures.iter().for_each(|(name, figure)| section.put(name, *figure as i64));
    }
    Ok(())
}
