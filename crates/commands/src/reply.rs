//! Shapes that several replies share: cursors, write errors.

use crate::cursors::{Cursor, Tailing};
use crate::invocation::Invocation;
use crate::read_concern::Level;
use kauri_base::{Error, Result, bail, limits, work};
use kauri_bson::{ArrayWriter, Doc, DocWriter};
use kauri_catalog::dropped::is_dropped;
use kauri_catalog::{Collection, Namespace};
use kauri_member::oplog::LogPlace;
use kauri_query::exec::{Ended, Flow, PlanExecutor, Row};
use kauri_storage::Operation;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The limits of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimit {
    /// Documents; `None` for as many as fit.
    pub docs: Option<u64>,
    /// Bytes, unless it is a single document.
    pub bytes: usize,
    /// Whether the client can request more, so that a batch ends early if the memory of operations is short.
    pub more: bool,
}

impl BatchLimit {
    /// Whether a batch of `bytes` bytes has no space for a document of `next` bytes.
    fn is_reached(&self, bytes: usize, next: usize) -> bool {
        bytes + next > self.bytes
            || self.more && bytes + next > limits::SHORT_BATCH_BYTES && work::memory_is_short()
    }
}

/// The result of filling a batch.
pub struct Batch {
    /// Documents in it.
    pub docs: u64,
    /// Why it ended.
    pub ended: Ended,
}

/// Pulls rows into an array until the limit or the size of a reply.
pub async fn fill_batch(
    op: &mut Operation,
    executor: &mut PlanExecutor,
    array: &mut ArrayWriter<'_>,
    limit: BatchLimit,
) -> Result<Batch> {
    let most = limit.docs.unwrap_or(u64::MAX);
    if most == 0 {
        return Ok(Batch { docs: 0, ended: Ended::Stopped });
    }
    let mut docs = 0;
    let ended = executor
        .for_each(op, &mut |row: &Row<'_>| {
            let doc = row.doc();
            check_size(doc)?;
            if docs > 0 && limit.is_reached(array.len(), doc.as_bytes().len() + 16) {
                return Ok(Flow::StopBefore);
            }
            array.push_doc(doc);
            docs += 1;
            Ok(if docs >= most { Flow::Stop } else { Flow::Continue })
        })
        .await?;
    Ok(Batch { docs, ended })
}

/// Refuses a document that is larger than what may pass through a server: a pipeline can make one.
fn check_size(doc: Doc<'_>) -> Result<()> {
    let bytes = doc.as_bytes().len();
    if bytes > limits::DOCUMENT_INTERNAL_BYTES_MAX {
        bail!(
            BSONObjectTooLarge,
            "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and {}(16MB)",
            limits::DOCUMENT_INTERNAL_BYTES_MAX
        );
    }
    Ok(())
}

/// The properties of a new cursor.
pub struct NewCursor {
    /// The namespace.
    pub ns: Namespace,
    /// The collection, to notice a drop.
    pub collection: Option<Arc<Collection>>,
    /// Its behaviour at the end.
    pub tailing: Tailing,
    /// The replicated log, if it follows that.
    pub log: Option<Arc<LogPlace>>,
    /// `noCursorTimeout`.
    pub no_timeout: bool,
    /// `batchSize`, or the default.
    pub first_batch: u64,
    /// No cursor is to stay, however much there is.
    pub single_batch: bool,
}

/// Runs a plan's first batch into the reply and keeps the cursor if there is more.
pub async fn open_cursor(
    invocation: &mut Invocation<'_>,
    mut executor: PlanExecutor,
    new: NewCursor,
) -> Result<()> {
    let server = invocation.server;
    let mut cursor = invocation.reply.document("cursor");
    let batch = {
        let mut array = cursor.array("firstBatch");
        // Nobody can ask for what an only batch leaves out.
        let bytes =
            if new.single_batch { limits::REPLY_BYTES_MAX } else { server.reply_bytes_max() };
        let more = !new.single_batch;
        let limit = BatchLimit { docs: Some(new.first_batch), bytes, more };
        let filled = fill_batch(&mut invocation.op, &mut executor, &mut array, limit).await;
        invocation.figures.plan = Some(executor.totals());
        filled.map_err(|error| executor_error(invocation.name, &new.ns, error))?
    };
    server.counters.docs_returned.fetch_add(batch.docs, Ordering::Relaxed);
    // A tailable cursor on an empty collection has no place to go on from: it is dead from the start.
    let is_dead = match &new.collection {
        Some(collection) if new.tailing != Tailing::No => collection.stats()?.records == 0,
        // The log is never empty.
        _ => new.log.is_none(),
    };
    let over = batch.ended == Ended::Exhausted && is_dead;
    let keep = !over && !new.single_batch;
    let id = if keep { server.cursors.new_id() } else { 0 };
    cursor.put("id", id);
    cursor.put("ns", new.ns.as_str());
    drop(cursor);
    let figures = &mut invocation.figures;
    figures.returned = Some(batch.docs);
    figures.cursor_id = keep.then_some(id);
    figures.cursor_exhausted = !keep;
    if keep {
        let cursor = Cursor {
            id,
            ns: new.ns,
            collection: new.collection,
            executor,
            tailing: new.tailing,
            log: new.log,
            lsid: invocation.op.lsid,
            no_timeout: new.no_timeout,
            time_left: invocation.op.time_left(),
            command: Arc::new(crate::ops::command_of_cursor(invocation.body)),
            examined: figures.plan.as_ref().map_or((0, 0), Cursor::examined_by),
            returned: batch.docs,
            batches: 1,
            is_majority: invocation.read_concern.level != Level::Local,
            created_ms: server.clock.unix_ms(),
            single_batch: false,
            account: invocation.op.account().clone(),
            holders: None,
        };
        server.cursors.insert(cursor, &invocation.client.cursors)?;
    }
    Ok(())
}

/// Adds the command's context to an error of a running plan, for example `PlanExecutor error during aggregation ::
/// caused by ::`. MongoDB notices a drop between two runs, so that error stays unchanged.
pub fn executor_error(command: &str, ns: &Namespace, error: Error) -> Error {
    match command {
        _ if is_dropped(&error) => error,
        "find" => error.context(format_args!("Executor error during find command: {ns}")),
        "aggregate" => error.context("PlanExecutor error during aggregation"),
        "getMore" => error.context("Executor error during getMore"),
        "distinct" => error.context("Executor error during distinct command"),
        "findAndModify" => error.context("Plan executor error during findAndModify"),
        _ => error,
    }
}

/// `writeErrors: […]`, if there are any.
pub fn write_errors(out: &mut DocWriter<'_>, errors: &[(usize, Error)]) {
    if errors.is_empty() {
        return;
    }
    let mut list = out.array("writeErrors");
    let mut bytes = 0;
    for (index, error) in errors {
        let mut entry = list.document();
        entry.put("index", *index as i32);
        entry.put("code", error.code().number());
        if let Some(extra) = error.extra().and_then(|e| Doc::from_bytes(e).ok()) {
            entry.put_all(extra);
        }
        // A reply of a hundred thousand errors must still fit into a message.
        bytes += error.message().len();
        entry
            .put("errmsg", if bytes <= limits::REPLY_BYTES_MAX / 4 { error.message() } else { "" });
    }
}
