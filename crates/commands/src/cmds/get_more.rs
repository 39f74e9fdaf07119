//! `getMore`: the next batch of a cursor.

use crate::args::{Args, fields};
use crate::cursors::{Cursor, Tailing};
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use crate::reply::{BatchLimit, fill_batch, while_running};
use kauri_base::{Result, bail};
use kauri_bson::Value;
use kauri_catalog::Namespace;
use kauri_query::exec::Ended;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Read,
    api_v1: true,
    ..Command::new("getMore", "retrieves more results from an existing cursor", run)
};

/// How long an await-data cursor waits for data unless told otherwise.
const AWAIT_DATA_DEFAULT: Duration = Duration::from_secs(1);
/// How often it looks.
const AWAIT_DATA_STEP: Duration = Duration::from_millis(5);

struct Request {
    id: i64,
    ns: Namespace,
    /// `batchSize`: documents; `None` for as many as fit.
    docs: Option<u64>,
    wait: Option<Duration>,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let request = parse(invocation)?;
        let server = invocation.server;
        let mut cursor = server.cursors.check_out(request.id, &request.ns, invocation.op.lsid)?;
        invocation.op.account().take_over(&cursor.account);
        cursor.account = invocation.op.account().clone();
        if request.wait.is_some() && cursor.tailing != Tailing::AwaitData {
            server.cursors.check_in(cursor);
            bail!(BadValue, "cannot set maxTimeMS on getMore command for a non-awaitData cursor");
        }
        if let Some(left) = cursor.time_left {
            invocation.op.set_deadline(left);
        }
        let result = answer(invocation, cursor, &request).await;
        if result.is_err() {
            server.cursors.close(request.id);
        }
        result
    })
}

/// Writes the next batch, and keeps the cursor if there is more.
async fn answer(
    invocation: &mut Invocation<'_>,
    mut cursor: Box<Cursor>,
    request: &Request,
) -> Result<()> {
    let server = invocation.server;
    let until = match cursor.tailing {
        Tailing::AwaitData => {
            let wait = request.wait.unwrap_or(AWAIT_DATA_DEFAULT);
            Some(server.clock.monotonic() + wait)
        }
        _ => None,
    };
    let limit = BatchLimit { docs: request.docs, bytes: server.reply_bytes_max(), more: true };
    let (mut reply, batch) = loop {
        if let Some(collection) = &cursor.collection {
            server.catalog.check_current(collection)?;
        }
        if cursor.tailing != Tailing::No {
            cursor.executor.resume();
        }
        let mut reply = invocation.reply.document("cursor");
        let mut array = reply.array("nextBatch");
        let (op, executor) = (&mut invocation.op, &mut cursor.executor);
        let filled = fill_batch(op, executor, &mut array, limit).await;
        let batch = filled.map_err(|error| while_running("getMore", &request.ns, error))?;
        drop(array);
        if cursor.executor.used_disk() {
            invocation.op.state().note_disk_use();
        }
        let now = server.clock.monotonic();
        if batch.docs > 0 || until.is_none_or(|until| now >= until) {
            break (reply, batch);
        }
        drop(reply);
        invocation.reply.clear();
        // Whoever is to bring the data needs the lock.
        invocation.op.release_lock();
        invocation.worker.sleep(AWAIT_DATA_STEP).await;
        invocation.op.retake_lock().await;
        invocation.op.check_for_interrupt()?;
    };
    server.counters.docs_returned.fetch_add(batch.docs, Ordering::Relaxed);
    cursor.returned += batch.docs;
    cursor.batches += 1;
    cursor.time_left = cursor.time_left.and(invocation.op.time_left());
    let over = batch.ended == Ended::Exhausted && cursor.tailing == Tailing::No;
    let kept = if over {
        server.cursors.close(request.id);
        false
    } else {
        server.cursors.check_in(cursor)
    };
    reply.put("id", if kept { request.id } else { 0 });
    reply.put("ns", request.ns.as_str());
    drop(reply);
    invocation.more_to_come = kept && invocation.exhaust_allowed;
    Ok(())
}

fn parse(invocation: &Invocation<'_>) -> Result<Request> {
    let args = Args::new("getMore");
    let id = match invocation.target()?.value() {
        Value::Int64(id) => id,
        Value::Null => return Err(args.missing("getMore")),
        _ => return Err(args.wrong_type(invocation.target()?, &["long"])),
    };
    let mut collection = None;
    let mut docs = None;
    let mut wait = None;
    for elem in fields(invocation.body) {
        match elem.key() {
            "collection" => collection = Some(args.string(elem)?),
            "batchSize" => {
                docs = Some(args.count(elem)?).filter(|n| *n > 0);
            }
            "maxTimeMS" => {
                let ms = crate::concerns::max_time_ms(elem)?;
                wait = Some(Duration::from_millis(ms));
            }
            "term" if elem.ty() != kauri_bson::Type::Int64 => {
                return Err(args.wrong_type(elem, &["long"]));
            }
            "term" | "lastKnownCommittedOpTime" | "includeQueryStatsMetrics" => {}
            _ => args.other(elem)?,
        }
    }
    let Some(collection) = collection else { return Err(args.missing("collection")) };
    let ns = Namespace::new(invocation.db, &collection)?;
    Ok(Request { id, ns, docs, wait })
}
