//! `dbStats`: sizes and counts of a database.

use super::coll_stats::read_scale;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_query::pipeline::views;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    aliases: &["dbstats"],
    ..Command::read("dbStats", "returns sizes and counts of a database", run)
};

#[derive(Default)]
struct Sums {
    collections: i64,
    records: u64,
    bytes: u64,
    storage_bytes: u64,
    indexes: i64,
    index_bytes: u64,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("dbStats");
        let (mut scale, mut free_storage) = (1, false);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "scale" => scale = args.given(elem, read_scale)?.unwrap_or(1),
                "freeStorage" => {
                    free_storage = args.given(elem, Args::safe_bool)?.unwrap_or(false);
                }
                _ => args.other(elem)?,
            }
        }
        let catalog = &invocation.server.catalog;
        let mut sums = Sums::default();
        for collection in catalog.collections_of(invocation.db) {
            let stats = collection.stats()?;
            sums.collections += 1;
            sums.records += stats.records;
            sums.bytes += stats.bytes;
            sums.storage_bytes += stats.storage_bytes;
            sums.indexes += collection.indexes.iter().filter(|i| i.ready).count() as i64;
            sums.index_bytes += collection.index_bytes()?;
        }
        let views = views::definitions(catalog, invocation.db);
        sums.records += views.len() as u64;
        sums.bytes += views.iter().map(|view| view.as_doc().as_bytes().len() as u64).sum::<u64>();
        let views = views.len() as i64;
        if views > 0 {
            // `system.views`, which clients count too.
            sums.collections += 1;
            sums.indexes += 1;
        }
        let space = invocation.server.backend.engine().space();
        let scaled = |bytes: u64| bytes as f64 / scale as f64;
        let average = sums.bytes as f64 / sums.records.max(1) as f64;
        let out = &mut invocation.reply;
        out.put("db", invocation.db);
        out.put("collections", sums.collections);
        out.put("views", views);
        out.put("objects", sums.records as i64);
        out.put("avgObjSize", average);
        out.put("dataSize", scaled(sums.bytes));
        out.put("storageSize", scaled(sums.storage_bytes));
        if free_storage {
            out.put("freeStorageSize", 0.0);
        }
        out.put("indexes", sums.indexes);
        out.put("indexSize", scaled(sums.index_bytes));
        if free_storage {
            out.put("indexFreeStorageSize", 0.0);
        }
        out.put("totalSize", scaled(sums.storage_bytes + sums.index_bytes));
        if free_storage {
            out.put("totalFreeStorageSize", 0.0);
        }
        out.put("scaleFactor", scale);
        out.put("fsUsedSize", scaled(space.fs_used));
        out.put("fsTotalSize", scaled(space.fs_total));
        Ok(())
    })
}
