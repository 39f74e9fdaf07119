//! The TTL monitor: every `ttlMonitorSleepSecs` it deletes documents whose date in the field of a TTL index is more
//! than `expireAfterSeconds` in the past.
//!
//! It deletes by the index, like any delete, some thousands at a time. Failures are logged; the next run tries
//! again. Of a replica set only the primary deletes.

use super::LOOK;
use crate::server::Server;
use kauri_base::Result;
use kauri_base::log::{self, Attr};
use kauri_bson::{DocBuf, Value};
use kauri_catalog::{Catalog, Collection, Index};
use kauri_matcher::{Matcher, ParseCx, Place};
use kauri_query::exec::QueryEnv;
use kauri_query::plan::{Hint, Query};
use kauri_query::write::WriteOutcome;
use kauri_query::write::delete::delete;
use kauri_query::write::targets::Targets;
use kauri_storage::Operation;
use kauri_transport::WorkerHandle;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Documents that one statement deletes at most.
const BATCH_DOCS: u64 = 5_000;

/// Runs until the server stops.
pub async fn run(server: Arc<Server>, worker: WorkerHandle) {
    let mut last = server.clock.monotonic();
    while !server.stopping.load(Ordering::Acquire) {
        worker.sleep(LOOK).await;
        let every = server.parameters.number("ttlMonitorSleepSecs").max(1) as u64;
        let now = server.clock.monotonic();
        if now.saturating_sub(last) < Duration::from_secs(every) {
            continue;
        }
        last = now;
        // Secondaries have the deletes of the primary.
        if server.accepts_writes() && server.parameters.flag("ttlMonitorEnabled") {
            pass(&server, || worker.want_tick_end()).await;
        }
    }
}

/// Deletes expired documents. `committed` is called after each commit, to have it written.
pub async fn pass(server: &Server, committed: impl Fn()) {
    for collection in server.catalog.all_collections() {
        for index in collection.indexes.iter().filter(|index| index.ready) {
            if !server.accepts_writes() {
                return;
            }
            let Some(seconds) = index.definition().expire_after_seconds else { continue };
            if index.definition().pattern.len() != 1 {
                continue;
            }
            match expire(server, &collection, index, seconds, &committed).await {
                Ok(0) => {}
                Ok(deleted) => report(&collection, index, deleted),
                Err(error) => {
                    let attr = Attr::new()
                        .str("namespace", collection.ns.as_str())
                        .str("index", index.name())
                        .str("error", error.message());
                    log::warning(
                        "INDEX",
                        22541,
                        "TTLMonitor",
                        "Deletion of expired documents failed",
                        attr,
                    );
                }
            }
        }
    }
    server.counters.ttl_passes.fetch_add(1, Ordering::Relaxed);
}

async fn expire(
    server: &Server,
    collection: &Collection,
    index: &Index,
    seconds: i64,
    committed: &impl Fn(),
) -> Result<u64> {
    let now_ms = server.clock.unix_ms();
    let env = QueryEnv::new(now_ms, server.random.clone());
    let filter = filter(index, now_ms.saturating_sub(seconds.saturating_mul(1000)));
    let matcher = Matcher::parse(filter.as_doc(), &ParseCx::new(Place::Find))?;
    let query = Query {
        filter: Some(Arc::new(matcher)),
        limit: BATCH_DOCS,
        // The planner doesn't take a hidden index, not even if it's told to.
        hint: (!index.definition().hidden).then(|| Hint::Name(index.name().to_owned())),
        ..Query::default()
    };
    let targets = Targets {
        catalog: &server.catalog,
        ns: &collection.ns,
        query: &query,
        env: &env,
        multi: true,
        // Nothing of a collection that has taken the name since.
        only: Some(collection.id),
    };
    let mut op = Operation::detached(&server.backend);
    let mut deleted = 0;
    loop {
        if server.stopping.load(Ordering::Acquire) || !server.accepts_writes() {
            return Ok(deleted);
        }
        let Some(_writer) = server.fsync_lock.admit() else { return Ok(deleted) };
        if !is_current(&server.catalog, collection, index) {
            return Ok(deleted);
        }
        let mut outcome = WriteOutcome::default();
        #[cfg(feature = "lock-experiment")]
        server.locks.lock_to_write(&mut op, &collection.ns).await;
        let batch = delete(&mut op, &targets, &mut outcome).await;
        #[cfg(feature = "lock-experiment")]
        op.release_lock();
        let batch = batch?;
        if outcome.ticket.is_some() {
            committed();
        }
        deleted += batch;
        server.counters.ttl_deleted.fetch_add(batch, Ordering::Relaxed);
        if batch < BATCH_DOCS {
            return Ok(deleted);
        }
        op.yield_now().await?;
    }
}

/// Whether the index still says that documents expire, and when.
fn is_current(catalog: &Catalog, collection: &Collection, index: &Index) -> bool {
    let now = catalog.collection(collection.ns.as_str()).filter(|now| now.id == collection.id);
    let found = now.as_ref().and_then(|now| now.index_by_id(index.id));
    let seconds = |index: &Index| index.definition().expire_after_seconds;
    found.is_some_and(|found| seconds(found) == seconds(index))
}

/// Documents with a date in the field at or before `until_ms`; within the index's own filter, if it
/// has one, so that the index can serve.
fn filter(index: &Index, until_ms: i64) -> DocBuf {
    let field = index.definition().key.as_doc().first().map_or("", |e| e.key());
    DocBuf::build(|out| {
        let mut all = out.array("$and");
        let mut dates = all.document();
        let mut range = dates.document(field);
        range.put("$gte", Value::DateTime(i64::MIN));
        range.put("$lte", Value::DateTime(until_ms));
        drop(range);
        drop(dates);
        if let Value::Document(partial) =
            index.definition().spec.as_doc().value("partialFilterExpression")
        {
            all.push_doc(partial.as_doc());
        }
    })
}

fn report(collection: &Collection, index: &Index, deleted: u64) {
    let attr = Attr::new()
        .str("namespace", collection.ns.as_str())
        .str("index", index.name())
        .num("numDeleted", deleted);
    log::info("INDEX", 5479200, "TTLMonitor", "Deleted expired documents", attr);
}
