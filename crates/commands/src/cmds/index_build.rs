//! Runs an index build from a command: steps, waits, yields, progress lines, and the cleanup after a failure.

use crate::invocation::Invocation;
use kauri_base::log::{self, Attr};
use kauri_base::{CommitSeq, Error, ErrorCode, IndexId, Result};
use kauri_catalog::build::BuildStep;
use kauri_catalog::{Catalog, Collection, IndexBuild, Namespace, Resolved};
use kauri_storage::{Backend, CommitTicket};
use std::sync::Arc;
use std::time::Duration;

/// Between two progress lines of a long build.
const PROGRESS_EVERY: Duration = Duration::from_secs(3);

/// Drops the indexes unless the build ends well, even if its future is dropped in the middle.
struct Abort<'c> {
    catalog: &'c Catalog,
    ns: Namespace,
    backend: &'c Arc<Backend>,
    ids: &'c [IndexId],
    armed: bool,
}

impl Drop for Abort<'_> {
    fn drop(&mut self) {
        // Others change the definition a finite number of times; one that is left stays unready and
        // is cleared away at the next start.
        for _ in 0..100 {
            if !self.armed {
                return;
            }
            let Some(collection) = self.catalog.collection(self.ns.as_str()) else { return };
            match self.catalog.drop_indexes(&mut self.backend.scope(), &collection, self.ids) {
                Err(error) if error.code() == ErrorCode::WriteConflict => {}
                _ => self.armed = false,
            }
        }
    }
}

/// Backfills indexes that this commit added to the collection and makes them ready.
pub async fn run(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    ids: &[IndexId],
    since: CommitSeq,
) -> Result<CommitTicket> {
    replace(invocation, ns, ids, since, &[]).await
}

/// As [`run`], dropping other indexes at the moment in which these become ready.
pub async fn replace(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    ids: &[IndexId],
    since: CommitSeq,
    replaced: &[IndexId],
) -> Result<CommitTicket> {
    let catalog = invocation.server.catalog.clone();
    let backend = invocation.op.backend().clone();
    let mut abort =
        Abort { backend: &backend, catalog: &catalog, ns: ns.clone(), ids, armed: true };
    let started = invocation.server.clock.monotonic();
    let mut said = started;
    let mut collection = current(&catalog, ns, ids)?;
    let mut build = IndexBuild::new(ids.to_vec(), since);
    loop {
        match build.step(&collection, invocation.op.scope())? {
            BuildStep::Done => break,
            BuildStep::Again => {}
            BuildStep::Stale => {
                catalog.catch_up();
                collection = current(&catalog, ns, ids)?;
            }
            BuildStep::Blocked(ticket) => invocation.op.wait(ticket).await?,
        }
        if invocation.op.slice_is_over() {
            invocation.op.yield_now().await?;
            let now = invocation.server.clock.monotonic();
            if now.saturating_sub(said) >= PROGRESS_EVERY {
                said = now;
                report("Index build: in progress", ns, build.records_done(), now - started);
            }
        }
    }
    let ticket = loop {
        let names = [ns.as_str().to_owned()];
        catalog.fetch_definitions(&mut invocation.op, &names).await?;
        match catalog.indexes_ready(invocation.op.scope(), &collection, ids, replaced) {
            Err(error) if error.code() == ErrorCode::WriteConflict => {
                invocation.op.yield_now().await?;
                collection = current(&catalog, ns, ids)?;
            }
            other => break other?,
        }
    };
    abort.armed = false;
    let took = invocation.server.clock.monotonic().saturating_sub(started);
    report("Index build: done building", ns, build.records_done(), took);
    Ok(ticket)
}

/// The collection in its present definition, if it still has the indexes.
fn current(catalog: &Catalog, ns: &Namespace, ids: &[IndexId]) -> Result<Arc<Collection>> {
    match catalog.resolve(ns.as_str()) {
        Resolved::Collection(collection)
            if ids.iter().all(|id| collection.index_by_id(*id).is_some()) =>
        {
            Ok(collection)
        }
        _ => Err(Error::new(
            ErrorCode::IndexBuildAborted,
            format!("Index build aborted: the collection or the index was dropped: {ns}"),
        )),
    }
}

fn report(message: &str, ns: &Namespace, records: u64, took: Duration) {
    let attr = Attr::new()
        .str("namespace", ns.as_str())
        .num("recordsIndexed", records)
        .num("durationMillis", took.as_millis());
    log::info("INDEX", 51602, "-", message, attr);
}
