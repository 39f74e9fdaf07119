//! The documents that an update or delete is about, one after the other, each handed to the
//! statement while its bytes are at hand.
//!
//! The statement commits within the call. What conflicts is read again on its own afterwards, so a
//! document that others change at the same time is updated from its newest version or, if it no
//! longer matches, left alone.
//!
//! A statement on many documents must not meet a document a second time because its own change moved
//! the document along the index that it reads: where an index may be read, the record ids are
//! gathered first.

use super::existing_for_write;
use crate::exec::{Flow, PlanExecutor, QueryEnv, Row};
use crate::plan::{self, Query};
use kauri_base::{Access, CommitSeq, OperationContext, RecordId, Result};
use kauri_bson::Doc;
use kauri_catalog::{Catalog, Collection, Namespace};
use std::sync::Arc;

/// A document to be changed.
pub struct Target<'g> {
    /// Its collection, in the definition that the change has to be computed from.
    pub collection: &'g Arc<Collection>,
    /// Its record.
    pub record: RecordId,
    /// The version that was read.
    pub version: CommitSeq,
    /// The document.
    pub doc: Doc<'g>,
}

/// What the statement says of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Dealt with.
    Done,
    /// Something has changed meanwhile; to be handed over again if it still matches.
    Conflict,
}

/// Which documents, and how many.
pub struct Targets<'r> {
    /// The catalog.
    pub catalog: &'r Catalog,
    /// The collection's name.
    pub ns: &'r Namespace,
    /// What they match, in which order.
    pub query: &'r Query,
    /// The operation's surroundings.
    pub env: &'r QueryEnv,
    /// All of them, or only the first.
    pub multi: bool,
}

type Body<'b> = dyn FnMut(Target<'_>) -> Result<Verdict> + Send + 'b;

impl Targets<'_> {
    /// Hands each target to `body`. True if there was any.
    pub async fn for_each(&self, op: &mut OperationContext, body: &mut Body<'_>) -> Result<bool> {
        if self.multi { self.all(op, body).await } else { self.first(op, body).await }
    }

    async fn first(&self, op: &mut OperationContext, body: &mut Body<'_>) -> Result<bool> {
        loop {
            let Some(collection) = existing_for_write(self.catalog, self.ns)? else {
                return Ok(false);
            };
            let mut executor = self.executor(op, &collection).await?;
            let mut verdict = None;
            executor
                .for_each(op, &mut |row| {
                    verdict = Some(body(target(&collection, row))?);
                    Ok(Flow::Stop)
                })
                .await?;
            match verdict {
                None => return Ok(false),
                Some(Verdict::Done) => return Ok(true),
                Some(Verdict::Conflict) => op.yield_now().await?,
            }
        }
    }

    async fn all(&self, op: &mut OperationContext, body: &mut Body<'_>) -> Result<bool> {
        let Some(mut collection) = existing_for_write(self.catalog, self.ns)? else {
            return Ok(false);
        };
        let by_id_order = collection.indexes.len() <= 1 && self.query.sort.is_none();
        let mut executor = self.executor(op, &collection).await?;
        let mut later: Vec<RecordId> = Vec::new();
        let mut any = false;
        executor
            .for_each(op, &mut |row| {
                if by_id_order && body(target(&collection, row))? == Verdict::Done {
                    any = true;
                } else {
                    later.push(row.record);
                }
                Ok(Flow::Continue)
            })
            .await?;
        let mut ru = self.catalog.engine().recovery_unit();
        for record in later {
            loop {
                ru.enter();
                let step = self.one(&collection, &*ru, record, body);
                ru.leave();
                match step? {
                    Access::WouldBlock(ticket) => {
                        ticket.await?;
                        op.check_for_interrupt()?;
                    }
                    Access::Ready(None) => break,
                    Access::Ready(Some(Verdict::Done)) => {
                        any = true;
                        break;
                    }
                    Access::Ready(Some(Verdict::Conflict)) => {
                        op.yield_now().await?;
                        match existing_for_write(self.catalog, self.ns)? {
                            Some(current) if current.id == collection.id => collection = current,
                            _ => return Ok(any),
                        }
                    }
                }
            }
            if op.should_yield() {
                op.yield_now().await?;
            }
        }
        Ok(any)
    }

    /// One record on its own: `None` if it is gone or no longer matches.
    fn one(
        &self,
        collection: &Arc<Collection>,
        ru: &dyn kauri_storage::RecoveryUnit,
        record: RecordId,
        body: &mut Body<'_>,
    ) -> Result<Access<Option<Verdict>>> {
        let found = match collection.store.get(ru, record)? {
            Access::Ready(Some(found)) => found,
            Access::Ready(None) => return Ok(Access::Ready(None)),
            Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
        };
        if let Some(filter) = &self.query.filter
            && !filter.matches(found.doc, &crate::match_cx(self.env))?
        {
            return Ok(Access::Ready(None));
        }
        let target = Target { collection, record, version: found.version, doc: found.doc };
        body(target).map(|verdict| Access::Ready(Some(verdict)))
    }

    async fn executor(
        &self,
        op: &mut OperationContext,
        collection: &Arc<Collection>,
    ) -> Result<PlanExecutor> {
        let root = plan::plan(op, self.catalog, Some(collection), self.query, self.env).await?.root;
        let ru = self.catalog.engine().recovery_unit();
        Ok(PlanExecutor::new(root, ru, self.env.clone()))
    }
}

fn target<'g>(collection: &'g Arc<Collection>, row: &'g Row<'_>) -> Target<'g> {
    Target { collection, record: row.record, version: row.version, doc: row.doc() }
}
