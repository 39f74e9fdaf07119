//! `fsync` and `fsyncUnlock`: makes everything durable, and with `lock` keeps writers waiting until
//! it's unlocked as often as it was locked.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Error, bail};
use kauri_storage::StorageEngine;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// `fsync`.
pub const COMMAND: Command =
    Command { admin_only: true, ..Command::new("fsync", "makes all writes durable", run) };

/// `fsyncUnlock`.
pub const UNLOCK: Command = Command {
    admin_only: true,
    ..Command::new("fsyncUnlock", "lets writers go on after fsync with lock", unlock)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("fsync");
        let mut lock = false;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "lock" => lock = args.given(elem, Args::safe_bool)?.unwrap_or(false),
                "fsyncLockAcquisitionTimeoutMillis" => {
                    if !elem.value().is_nullish() && elem.ty() != kauri_bson::Type::Int32 {
                        return Err(args.wrong_type(elem, &["int"]));
                    }
                }
                "async" | "forBackup" => {
                    let _ = args.given(elem, Args::safe_bool)?;
                }
                _ => args.other(elem)?,
            }
        }
        let server = invocation.server;
        if lock {
            server.fsync_locks.fetch_add(1, Ordering::AcqRel);
        }
        if let Err(error) = sync(server.catalog.engine()).await {
            if lock {
                server.fsync_locks.fetch_sub(1, Ordering::AcqRel);
            }
            return Err(error);
        }
        let out = &mut invocation.reply;
        if lock {
            out.put("info", "now locked against writes, use db.fsyncUnlock() to unlock");
            out.put("lockCount", server.fsync_locks.load(Ordering::Acquire));
            out.put("seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
        } else {
            out.put("numFiles", 1);
        }
        Ok(())
    })
}

fn unlock<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        // Not strict, as in MongoDB: who wants to unlock is let.
        let locks = &invocation.server.fsync_locks;
        let take = |n: i64| (n > 0).then(|| n - 1);
        let Ok(before) = locks.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) else {
            bail!(IllegalOperation, "fsyncUnlock called when not locked");
        };
        invocation.reply.put("info", "fsyncUnlock completed");
        invocation.reply.put("lockCount", before - 1);
        Ok(())
    })
}

#[derive(Default)]
struct Synced {
    result: Option<kauri_base::Result<()>>,
    waker: Option<Waker>,
}

/// Syncs on a thread of its own, since that blocks, and waits for it here.
async fn sync(engine: &Arc<dyn StorageEngine>) -> kauri_base::Result<()> {
    let shared = Arc::new(Mutex::new(Synced::default()));
    let (engine, done) = (engine.clone(), shared.clone());
    std::thread::Builder::new()
        .name("fsync".to_owned())
        .spawn(move || {
            let result = engine.sync().map_err(Error::from);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.result = Some(result);
            if let Some(waker) = done.waker.take() {
                waker.wake();
            }
        })
        .map_err(|e| Error::bad_value(format!("cannot start a thread: {e}")))?;
    poll_fn(|cx| {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                shared.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
