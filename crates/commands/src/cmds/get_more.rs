//! `getMore`: the next batch of a cursor.

use super::internal_fields::refuse_term;
use crate::args::{Args, fields};
use crate::cursors::{Cursor, Tailing};
use crate::fail_command;
use crate::invocation::Invocation;
use crate::read_concern::Level;
use crate::registry::{Command, OpCounter, Run, Target};
use crate::reply::{BatchLimit, executor_error, fill_batch};
use kauri_base::{Result, Ticket, bail};
use kauri_bson::Value;
use kauri_catalog::{Namespace, OperationKind};
use kauri_query::exec::Ended;
use kauri_storage::Watch;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    target: Target::Field("collection"),
    in_transaction: true,
    waits_for_data: true,
    kind: OperationKind::GetMore,
    op_counter: OpCounter::GetMore,
    has_plan: true,
    reads_anywhere: true,
    ..Command::read("getMore", "retrieves more results from an existing cursor", run)
};

/// Default wait of an await-data cursor for data.
const AWAIT_DATA_DEFAULT: Duration = Duration::from_secs(1);

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
            fail_command::lift_limit(server, &invocation.op);
        }
        let failed = fail_command::check_get_more(server)
            .and_then(|()| fail_command::check_time(server, &invocation.op));
        let result = match failed {
            Ok(()) => answer(invocation, cursor, &request).await,
            Err(error) => Err(error),
        };
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
    if cursor.is_majority {
        invocation.read_concern.level = Level::Majority;
    }
    let until = match cursor.tailing {
        Tailing::AwaitData => {
            let wait = request.wait.unwrap_or(AWAIT_DATA_DEFAULT);
            Some(server.clock.monotonic() + wait)
        }
        _ => None,
    };
    invocation.figures.originating = Some(cursor.command.clone());
    invocation.figures.cursor_id = Some(request.id);
    let limit = BatchLimit { docs: request.docs, bytes: server.reply_bytes_max(), more: true };
    let (mut reply, batch) = loop {
        // Before the collection is read, so that no commit falls in between.
        let watched = cursor.collection.as_ref().filter(|_| until.is_some());
        let watch = watched.map(|collection| server.backend.watch(collection.id));
        let more = cursor.log.as_ref().map(|log| log.after(log.readable()));
        let watch =
            (watch.is_some() || more.is_some() && until.is_some()).then(|| change_of(watch, more));
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
        if filled.is_err() {
            invocation.figures.plan = Some(cursor.take_examined());
        }
        let batch = filled.map_err(|error| executor_error("getMore", &request.ns, error))?;
        drop(array);
        if cursor.executor.used_disk() {
            invocation.op.state().note_disk_use();
        }
        let left = until.map(|until| until.saturating_sub(server.clock.monotonic()));
        let (Some(watch), Some(left)) = (watch, left.filter(|left| !left.is_zero())) else {
            break (reply, batch);
        };
        if batch.docs > 0 {
            break (reply, batch);
        }
        drop(reply);
        invocation.reply.clear();
        // Whoever is to bring the data needs the lock.
        #[cfg(feature = "lock-experiment")]
        invocation.op.release_lock();
        let time_is_up = invocation.worker.sleep(left);
        invocation.op.wait_for(either(watch, time_is_up)).await?;
        #[cfg(feature = "lock-experiment")]
        invocation.op.retake_lock().await;
    };
    server.counters.docs_returned.fetch_add(batch.docs, Ordering::Relaxed);
    invocation.figures.plan = Some(cursor.take_examined());
    invocation.figures.returned = Some(batch.docs);
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
    invocation.figures.cursor_exhausted = !kept;
    reply.put("id", if kept { request.id } else { 0 });
    reply.put("ns", request.ns.as_str());
    drop(reply);
    invocation.more_to_come = kept && invocation.exhaust_allowed;
    Ok(())
}

/// Ready when there may be more of a collection, or of the log.
async fn change_of(watch: Option<Watch>, more: Option<Ticket>) {
    if let Some(watch) = watch {
        watch.await;
    } else if let Some(more) = more {
        // It has no errors.
        let _ = more.await;
    }
}

/// Ready when one of the two is.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Pending => other.as_mut().poll(cx),
        ready => ready,
    })
    .await
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
    let (mut wait, mut of_term) = (None, None);
    for elem in fields(invocation.body) {
        match elem.key() {
            "collection" => collection = Some(args.namespace(elem)?),
            "batchSize" => {
                docs = Some(args.count(elem)?).filter(|n| *n > 0);
            }
            "maxTimeMS" => {
                let ms = crate::concerns::max_time_ms(elem)?;
                wait = Some(Duration::from_millis(ms));
            }
            "term" => match elem.value() {
                Value::Int64(term) => of_term = Some(term),
                _ => return Err(args.wrong_type(elem, &["long"])),
            },
            _ => args.other(elem)?,
        }
    }
    let Some(collection) = collection else { return Err(args.missing("collection")) };
    let ns = Namespace::new(invocation.db, &collection)?;
    // Members of a set send theirs with a look at the oplog; elsewhere it means nothing.
    if let Some(term) = of_term.filter(|_| ns.as_str() == "local.oplog.rs") {
        refuse_term(term)?;
    }
    Ok(Request { id, ns, docs, wait })
}
