//! Copies a collection's documents into a new collection, for `convertToCapped`, `cloneCollectionAsCapped` and
//! `renameCollection` across databases.
//!
//! A frozen source ([`Frozen`]) takes no writes during the copy. Otherwise the copy has each document in its state
//! at the time it was copied.

use crate::invocation::Invocation;
use kauri_base::{Access, CollectionId, RecordId, Result, Ticket};
use kauri_bson::DocBuf;
use kauri_catalog::{Catalog, Collection, Namespace};
use kauri_query::write::insert::{InsertOptions, insert};
use kauri_query::write::{Bypass, WriteOutcome};
use kauri_storage::{Backend, CommitTicket, Direction, RecordScan, RecoveryUnit, Scope};
use std::sync::Arc;

const BATCH_DOCS: usize = 1000;
const BATCH_BYTES: usize = 4 * 1024 * 1024;

enum Gathered {
    Full,
    Ended,
    Blocked(Ticket),
}

/// Copies all documents in insertion order. Fails if either collection is dropped meanwhile.
pub async fn documents(
    invocation: &mut Invocation<'_>,
    from: &Collection,
    to: &Temporary,
) -> Result<Option<CommitTicket>> {
    let catalog = invocation.server.catalog.clone();
    let options = InsertOptions { into: Some(to.id), ..InsertOptions::ordered(Bypass::ALL) };
    let mut scan = RecordScan::new(Direction::Forward);
    let mut again: Option<RecordId> = None;
    let mut outcome = WriteOutcome::default();
    let mut batch: Vec<DocBuf> = Vec::new();
    loop {
        let reader = invocation.op.scope().enter();
        let gathered = gather(from, &*reader, &mut scan, &mut again, &mut batch);
        drop(reader);
        let ended = match gathered? {
            Gathered::Blocked(ticket) => {
                invocation.op.wait(ticket).await?;
                continue;
            }
            Gathered::Full => false,
            Gathered::Ended => true,
        };
        let docs: Vec<_> = batch.iter().map(DocBuf::as_doc).collect();
        insert(&mut invocation.op, &catalog, &to.ns, &docs, &options, &mut outcome).await?;
        if let Some((_, error)) = outcome.errors.pop() {
            return Err(error);
        }
        batch.clear();
        if ended {
            return Ok(outcome.ticket);
        }
        invocation.op.yield_now().await?;
    }
}

fn gather(
    from: &Collection,
    ru: &dyn RecoveryUnit,
    scan: &mut RecordScan,
    again: &mut Option<RecordId>,
    batch: &mut Vec<DocBuf>,
) -> Result<Gathered> {
    let mut bytes: usize = batch.iter().map(|doc| doc.as_bytes().len()).sum();
    while batch.len() < BATCH_DOCS && bytes < BATCH_BYTES {
        let id = match again.take().or_else(|| scan.next_buffered()) {
            Some(id) => id,
            None if scan.ended() => return Ok(Gathered::Ended),
            None => match from.fill(ru, scan)? {
                Access::Ready(()) => continue,
                Access::WouldBlock(ticket) => return Ok(Gathered::Blocked(ticket)),
            },
        };
        match from.get(ru, id)? {
            Access::Ready(Some(record)) => {
                bytes += record.doc.as_bytes().len();
                batch.push(record.doc.to_buf());
            }
            Access::Ready(None) => {}
            Access::WouldBlock(ticket) => {
                *again = Some(id);
                return Ok(Gathered::Blocked(ticket));
            }
        }
    }
    Ok(Gathered::Full)
}

/// A collection that takes no writes until this is dropped.
pub struct Frozen {
    backend: Arc<Backend>,
    catalog: Arc<Catalog>,
    /// The collection, in the definition that is frozen.
    pub collection: Arc<Collection>,
}

impl Frozen {
    /// Freezes a collection.
    pub fn new(
        scope: &mut Scope,
        catalog: &Arc<Catalog>,
        collection: &Collection,
    ) -> Result<Frozen> {
        let collection = catalog.freeze(scope, collection)?;
        Ok(Frozen { backend: scope.backend().clone(), catalog: catalog.clone(), collection })
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let now = self.catalog.collection(self.collection.ns.as_str());
        if let Some(now) = now.filter(|c| c.id == self.collection.id && c.frozen) {
            // Nobody else changes the definition of a frozen collection.
            let _ = self.catalog.thaw(&mut self.backend.scope(), &now);
        }
    }
}

/// A collection that is dropped unless it's kept: the copy in the making.
pub struct Temporary {
    backend: Arc<Backend>,
    catalog: Arc<Catalog>,
    /// Its name.
    pub ns: Namespace,
    /// Its number.
    pub id: CollectionId,
    kept: bool,
}

impl Temporary {
    /// This collection, which was just made.
    pub fn new(backend: &Arc<Backend>, catalog: &Arc<Catalog>, made: &Collection) -> Temporary {
        let (backend, catalog, ns) = (backend.clone(), catalog.clone(), made.ns.clone());
        Temporary { backend, catalog, ns, id: made.id, kept: false }
    }

    /// It has got its final name.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            let _ = self.catalog.drop_collection_of(&mut self.backend.scope(), &self.ns, self.id);
        }
    }
}

/// A name for a temporary collection: `tmp` and five characters, then its purpose.
pub fn temporary_name(
    invocation: &Invocation<'_>,
    database: &str,
    what: &str,
) -> Result<Namespace> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    loop {
        let mut random = invocation.server.random.next_u64();
        let mut name = String::from("tmp");
        for _ in 0..5 {
            let letter = LETTERS[(random % LETTERS.len() as u64) as usize];
            name.push(char::from(letter));
            random /= LETTERS.len() as u64;
        }
        let ns = Namespace::new(database, &format!("{name}.{what}"))?;
        if invocation.server.catalog.collection(ns.as_str()).is_none() {
            return Ok(ns);
        }
    }
}
