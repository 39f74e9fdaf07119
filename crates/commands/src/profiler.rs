//! The profiler: stores documents about operations in `system.profile`.
//!
//! An operation puts its document into a queue and continues. A task on its worker stores the queued documents,
//! through the storage layer and not by a command, so a profile document is not profiled itself. A command that
//! names `system.profile` waits until earlier documents are stored.
//!
//! Invariants: the queue is bounded in bytes. A document without space, in the queue or on the medium, is dropped
//! and counted; so are all documents on a member of a replica set that is not primary. No operation fails or waits for
//! it.

use crate::profiling::PROFILE_COLLECTION;
use crate::server::Server;
use kauri_base::{Error, ErrorCode, Result, bail, limits};
use kauri_bson::DocBuf;
use kauri_catalog::{
    Capped, Catalog, Collection, CollectionOptions, KeyScratch, Namespace, Resolved,
};
use kauri_query::write::capped;
use kauri_query::write::retry::{Attempt, attempt};
use kauri_storage::{CommitTicket, Operation, WriteUnit};
use kauri_transport::WorkerHandle;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of a `system.profile` that was created by the profiler.
const COLLECTION_BYTES: u64 = 1024 * 1024;
/// Interval at which a reader checks whether earlier documents are stored.
const SETTLE_STEP: Duration = Duration::from_millis(1);

/// See the module's head.
#[derive(Default)]
pub struct Profiler {
    queue: Mutex<Queue>,
    taken_in: AtomicU64,
    /// Documents of those taken in that are stored, or left out after all.
    done: AtomicU64,
    written: AtomicU64,
    left_out: AtomicU64,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Whether a task stores the queue.
    is_served: bool,
}

struct Entry {
    database: String,
    document: DocBuf,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.database.len() + self.document.as_doc().as_bytes().len()
    }
}

impl Profiler {
    /// Takes a document in, to be stored soon.
    pub fn push(
        &self,
        server: &Arc<Server>,
        worker: &WorkerHandle,
        database: &str,
        document: DocBuf,
    ) {
        let entry = Entry { database: database.to_owned(), document };
        let begins = {
            let mut queue = self.lock();
            if queue.bytes + entry.bytes() > limits::PROFILE_QUEUE_BYTES_MAX {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
            queue.bytes += entry.bytes();
            queue.entries.push_back(entry);
            self.taken_in.fetch_add(1, Ordering::Release);
            !std::mem::replace(&mut queue.is_served, true)
        };
        if begins {
            worker.spawn(serve(server.clone(), worker.clone()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Entry> {
        let mut queue = self.lock();
        let entry = queue.entries.pop_front();
        match &entry {
            Some(entry) => queue.bytes -= entry.bytes(),
            None => queue.is_served = false,
        }
        entry
    }

    /// Whether there are documents that are not stored yet.
    pub fn is_busy(&self) -> bool {
        self.done.load(Ordering::Acquire) != self.taken_in.load(Ordering::Acquire)
    }

    /// Waits until the documents are stored that have been taken in by now.
    pub async fn settle(&self, worker: &WorkerHandle, op: &mut Operation) -> Result<()> {
        let until = self.taken_in.load(Ordering::Acquire);
        while self.done.load(Ordering::Acquire) < until {
            worker.sleep(SETTLE_STEP).await;
            op.check_for_interrupt()?;
        }
        Ok(())
    }

    /// Documents that were stored, and those that were left out.
    pub fn counts(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.left_out.load(Ordering::Relaxed))
    }
}

/// Stores documents until there are no more.
async fn serve(server: Arc<Server>, worker: WorkerHandle) {
    let profiler = &server.profiler;
    let mut op = Operation::detached(&server.backend);
    while let Some(entry) = profiler.next() {
        let stored = store(&server, &mut op, entry).await;
        #[cfg(feature = "lock-experiment")]
        op.release_lock();
        match stored {
            Ok(Some(_)) => {
                profiler.written.fetch_add(1, Ordering::Relaxed);
                worker.want_tick_end();
            }
            // Nobody asks for it any more.
            Ok(None) => {}
            Err(_) => drop(profiler.left_out.fetch_add(1, Ordering::Relaxed)),
        }
        profiler.done.fetch_add(1, Ordering::Release);
        if op.slice_is_over() {
            // Nobody can end it.
            let _ = op.yield_now().await;
        }
    }
}

/// Stores a document. `None`: the collection is gone, and its database is not profiled any more.
async fn store(server: &Server, op: &mut Operation, entry: Entry) -> Result<Option<CommitTicket>> {
    let Some(_writer) = server.fsync_lock.admit() else {
        bail!(ShutdownInProgress, "nothing is written while the data files are locked");
    };
    if server.stopping.load(Ordering::Acquire) {
        bail!(ShutdownInProgress, "the server is stopping");
    }
    if !server.accepts_writes() {
        bail!(NotWritablePrimary, "not primary");
    }
    let ns = Namespace::new(&entry.database, PROFILE_COLLECTION)?;
    let catalog = &server.catalog;
    #[cfg(feature = "lock-experiment")]
    server.locks.lock_to_write(op, &ns).await;
    let mut scratch = KeyScratch::default();
    loop {
        let is_wanted = server.profiling.of(&entry.database).level > 0;
        let collection = match catalog.resolve(ns.as_str()) {
            // A database that is not there, or not any more, is not made to be told of.
            Resolved::Nothing if !is_wanted || !has_database(catalog, &entry.database) => {
                return Ok(None);
            }
            _ => ensure_collection(catalog, op, &ns).await?.0,
        };
        let mut unit = WriteUnit::new();
        let document = Cow::Borrowed(entry.document.as_doc().as_bytes());
        collection.insert(&mut unit, document, &mut scratch)?;
        capped::make_room(op, &collection, &mut unit, &mut scratch).await?;
        match attempt(op, &mut unit, &collection)? {
            Attempt::Committed(ticket) => return Ok(Some(ticket)),
            Attempt::Again(retry) => retry.wait(op).await?,
        }
    }
}

fn has_database(catalog: &Catalog, name: &str) -> bool {
    !catalog.collections_of(name).is_empty() || !catalog.views_of(name).is_empty()
}

/// The database's `system.profile`, created if it does not exist, and the commit that created it.
pub async fn ensure_collection(
    catalog: &Catalog,
    op: &mut Operation,
    ns: &Namespace,
) -> Result<(Arc<Collection>, Option<CommitTicket>)> {
    loop {
        match catalog.resolve(ns.as_str()) {
            Resolved::Collection(found) if found.options.capped.is_some() => {
                return Ok((found, None));
            }
            Resolved::Nothing => {}
            _ => bail!(NamespaceExists, "{ns} exists but isn't capped"),
        }
        catalog.fetch_definitions(op, &[]).await?;
        let capped = Some(Capped { bytes_max: COLLECTION_BYTES, records_max: 0 });
        let options = CollectionOptions { capped, ..CollectionOptions::default() };
        match catalog.create_collection(op.scope(), ns, options, None) {
            Ok((collection, ticket)) => return Ok((collection, Some(ticket))),
            Err(error) if error.code() == ErrorCode::NamespaceExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Fails while the collection may not be dropped.
pub fn check_drop(server: &Server, ns: &Namespace) -> Result<()> {
    if ns.collection() == PROFILE_COLLECTION && server.profiling.of(ns.database()).level != 0 {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            "turn off profiling before dropping system.profile collection",
        ));
    }
    Ok(())
}
