//! The documents that an update or delete changes: found, passed to the statement while their bytes are borrowed,
//! and changed.
//!
//! The statement adds its changes to a unit. The unit commits after the reader has left, because a commit may wait
//! for space that readers keep from reuse. A conflicting document is read again separately. So a concurrently
//! changed document is changed from its newest version or, if it no longer matches, left alone.
//!
//! A statement on many documents must not change a document twice because its own change moved the document within
//! the index that it reads. So where an index is used, the record ids are collected first.
//!
//! If an index or the collection is dropped before the statement has changed anything, the statement starts again
//! and resolves the name again. After its first change it reads no index: it continues with the collected records,
//! each from its newest version and only if it still matches. So dropping indexes never ends it, and no document is
//! changed twice. Only a drop of the collection is an error then, because another collection's records are not the
//! collected ones.

use super::WriteOutcome;
use super::existing_for_write;
use super::retry::{Attempt, Retry, sort_out};
use crate::exec::{Ended, Flow, PlanExecutor, QueryEnv};
use crate::namespaces::Namespaces;
use crate::plan::{self, Query};
use kauri_base::{Access, CollectionId, CommitSeq, ErrorCode, RecordId, Result};
use kauri_bson::{Doc, DocBuf};
use kauri_catalog::dropped::{REPLANS_MAX, is_dropped};
use kauri_catalog::{Collection, Namespace};
use kauri_storage::{Operation, RecoveryUnit, WriteUnit};
use std::sync::Arc;

/// Documents of a statement on many that go into one unit at most.
const UNIT_DOCS_MAX: usize = 128;
/// Bytes of new documents and keys that go into one unit, unless one target has more: a unit is one entry of a set's
/// log, which readers get as one document.
const UNIT_BYTES_MAX: usize = 1024 * 1024;

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

/// What the statement makes of a target.
#[derive(Default)]
pub struct Effect {
    /// Whether it changes: then it has added an operation to the unit.
    pub changed: bool,
    /// Bytes of its new document.
    pub bytes: usize,
    /// The document as the client wants to see it (find-and-modify).
    pub shown: Option<DocBuf>,
}

/// A statement: adds what becomes of a target to the unit.
pub type Statement<'b> =
    dyn FnMut(Target<'_>, &mut WriteUnit<'static>) -> Result<Effect> + Send + 'b;

/// What a statement came to.
#[derive(Default)]
pub struct Reached {
    /// Targets.
    pub matched: u64,
    /// Targets that have changed.
    pub changed: u64,
    /// What the statement showed last.
    pub shown: Option<DocBuf>,
    /// The collection that was searched, and its definition; `None` if there was none.
    pub searched: Option<(CollectionId, u64)>,
}

impl Reached {
    fn add(&mut self, effect: Effect) {
        self.matched += 1;
        self.changed += u64::from(effect.changed);
        if effect.shown.is_some() {
            self.shown = effect.shown;
        }
    }
}

/// Which documents, and how many.
pub struct Targets<'r> {
    /// What the name is looked up in.
    pub catalog: &'r dyn Namespaces,
    /// The collection's name.
    pub ns: &'r Namespace,
    /// What they match, in which order.
    pub query: &'r Query,
    /// The operation's surroundings.
    pub env: &'r QueryEnv,
    /// All of them, or only the first.
    pub multi: bool,
    /// The collection has to be this one: if the name means another, there are no targets.
    pub only: Option<CollectionId>,
}

/// Targets whose changes wait to be committed together.
#[derive(Default)]
struct Batch {
    unit: WriteUnit<'static>,
    effects: Vec<(RecordId, Effect)>,
    bytes: usize,
}

impl Batch {
    /// Answers whether there was room for the target.
    fn take(&mut self, target: Target<'_>, statement: &mut Statement<'_>) -> Result<bool> {
        let record = target.record;
        let ops = self.unit.ops.len();
        match statement(target, &mut self.unit) {
            Ok(effect) => {
                let bytes = self.bytes + effect.bytes;
                if !self.effects.is_empty() && bytes + self.unit.all_key_bytes() > UNIT_BYTES_MAX {
                    self.unit.truncate(ops);
                    return Ok(false);
                }
                self.bytes = bytes;
                self.effects.push((record, effect));
                Ok(true)
            }
            Err(error) => {
                self.unit.truncate(ops);
                Err(error)
            }
        }
    }

    fn is_full(&self) -> bool {
        self.effects.len() >= UNIT_DOCS_MAX
    }
}

impl Targets<'_> {
    /// Changes the targets; `reached` tells what was done, also when an error ends it half-way.
    pub async fn change(
        &self,
        op: &mut Operation,
        statement: &mut Statement<'_>,
        reached: &mut Reached,
        outcome: &mut WriteOutcome,
    ) -> Result<()> {
        let mut replans = 0;
        loop {
            let done = match self.multi {
                true => self.all(op, statement, reached, outcome).await,
                false => self.first(op, statement, reached, outcome).await,
            };
            match done {
                Err(error) if is_dropped(&error) => {
                    if reached.changed > 0 || replans == REPLANS_MAX {
                        outcome.cut_short.matched += reached.matched;
                        outcome.cut_short.changed += reached.changed;
                        return Err(error);
                    }
                    replans += 1;
                    *reached = Reached::default();
                    self.catalog.catch_up();
                    op.yield_now().await?;
                }
                done => return done,
            }
        }
    }

    /// The collection of the name; noted as the one that is searched.
    fn search(&self, reached: &mut Reached) -> Result<Option<Arc<Collection>>> {
        let is_meant = |c: &Arc<Collection>| self.only.is_none_or(|id| id == c.id);
        let found = existing_for_write(self.catalog, self.ns)?.filter(is_meant);
        reached.searched = found.as_ref().map(|found| (found.id, found.definition));
        Ok(found)
    }

    async fn first(
        &self,
        op: &mut Operation,
        statement: &mut Statement<'_>,
        reached: &mut Reached,
        outcome: &mut WriteOutcome,
    ) -> Result<()> {
        loop {
            let Some(collection) = self.search(reached)? else { return Ok(()) };
            let mut batch = Batch::default();
            let mut executor = self.executor(op, &collection, outcome).await?;
            let walked = executor
                .for_each(op, &mut |row| {
                    batch.take(target(&collection, row), statement)?;
                    Ok(Flow::Stop)
                })
                .await;
            outcome.looked(&executor);
            walked?;
            if batch.effects.is_empty() {
                return Ok(());
            }
            match self.commit(op, &collection, &mut batch, reached, outcome)? {
                None => return Ok(()),
                Some(retry) => retry.wait(op).await?,
            }
        }
    }

    async fn all(
        &self,
        op: &mut Operation,
        statement: &mut Statement<'_>,
        reached: &mut Reached,
        outcome: &mut WriteOutcome,
    ) -> Result<()> {
        let Some(mut collection) = self.search(reached)? else { return Ok(()) };
        let by_id_order = collection.indexes.len() <= 1 && self.query.sort.is_none();
        let mut executor = self.executor(op, &collection, outcome).await?;
        let mut later: Vec<RecordId> = Vec::new();
        loop {
            let mut batch = Batch::default();
            let walked = executor
                .for_each(op, &mut |row| {
                    if !by_id_order {
                        later.push(row.record);
                        return Ok(Flow::Continue);
                    }
                    if !batch.take(target(&collection, row), statement)? {
                        later.push(row.record);
                        return Ok(Flow::Stop);
                    }
                    Ok(if batch.is_full() { Flow::Stop } else { Flow::Continue })
                })
                .await;
            // What was gathered before an error is done, as if each had been done by itself.
            let records: Vec<RecordId> = batch.effects.iter().map(|(record, _)| *record).collect();
            if self.commit(op, &collection, &mut batch, reached, outcome)?.is_some() {
                later.extend(records);
            }
            if walked.is_err() && by_id_order {
                self.one_by_one(op, &mut collection, later, statement, reached, outcome).await?;
                return walked.map(drop);
            }
            if !matches!(walked, Ok(Ended::Stopped)) {
                outcome.looked(&executor);
            }
            if walked? == Ended::Exhausted {
                break;
            }
            outcome.pause(op).await?;
        }
        self.one_by_one(op, &mut collection, later, statement, reached, outcome).await
    }

    /// Each record by itself, from its newest version, if it still matches.
    async fn one_by_one(
        &self,
        op: &mut Operation,
        collection: &mut Arc<Collection>,
        records: Vec<RecordId>,
        statement: &mut Statement<'_>,
        reached: &mut Reached,
        outcome: &mut WriteOutcome,
    ) -> Result<()> {
        for record in records {
            loop {
                let mut batch = Batch::default();
                let reader = op.scope().enter();
                let step = self.one(collection, &*reader, record, statement, &mut batch);
                drop(reader);
                if let Access::WouldBlock(ticket) = step? {
                    op.wait(ticket).await?;
                    continue;
                }
                if batch.effects.is_empty() {
                    break;
                }
                match self.commit(op, collection, &mut batch, reached, outcome)? {
                    None => break,
                    Some(retry) => retry.wait(op).await?,
                }
                match existing_for_write(self.catalog, self.ns)? {
                    Some(current) if current.id == collection.id => *collection = current,
                    _ => return Err(self.catalog.gone_error(collection)),
                }
            }
            outcome.pause(op).await?;
        }
        Ok(())
    }

    /// Takes one record into the batch, unless it is gone or no longer matches.
    fn one(
        &self,
        collection: &Arc<Collection>,
        ru: &dyn RecoveryUnit,
        record: RecordId,
        statement: &mut Statement<'_>,
        batch: &mut Batch,
    ) -> Result<Access<()>> {
        let found = match collection.get(ru, record)? {
            Access::Ready(Some(found)) => found,
            Access::Ready(None) => return Ok(Access::Ready(())),
            Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
        };
        if let Some(filter) = &self.query.filter
            && !filter.matches(found.doc, &crate::match_cx(self.env))?
        {
            return Ok(Access::Ready(()));
        }
        let target = Target { collection, record, version: found.version, doc: found.doc };
        batch.take(target, statement)?;
        Ok(Access::Ready(()))
    }

    /// Commits a batch. `Some` if it has to be done again, one by one: something has changed, or one
    /// of several documents cannot be.
    fn commit(
        &self,
        op: &mut Operation,
        collection: &Collection,
        batch: &mut Batch,
        reached: &mut Reached,
        outcome: &mut WriteOutcome,
    ) -> Result<Option<Retry>> {
        if !batch.unit.is_empty() {
            if let Some(numbered) = &outcome.numbered {
                let shown = batch.effects.first().and_then(|(_, effect)| effect.shown.as_ref());
                batch.unit.numbered = Some(numbered.one(None, shown.map(|shown| shown.as_doc())));
            }
            let result = op.scope().commit(&mut batch.unit);
            match sort_out(op, &batch.unit, collection, result) {
                Ok(Attempt::Committed(ticket)) => outcome.committed(ticket, batch.bytes),
                Ok(Attempt::Again(retry)) => return Ok(Some(retry)),
                Err(error)
                    if error.code() == ErrorCode::DuplicateKey && batch.unit.ops.len() > 1 =>
                {
                    return Ok(Some(Retry::default()));
                }
                Err(error) => return Err(error),
            }
        }
        std::mem::take(&mut batch.effects).into_iter().for_each(|(_, effect)| reached.add(effect));
        Ok(None)
    }

    async fn executor(
        &self,
        op: &mut Operation,
        collection: &Arc<Collection>,
        outcome: &mut WriteOutcome,
    ) -> Result<PlanExecutor> {
        outcome.is_running = false;
        let root = plan::plan(op, Some(collection), self.query, self.env).await?.root;
        outcome.is_running = true;
        Ok(PlanExecutor::new(root, self.env.clone()))
    }
}

fn target<'g>(collection: &'g Arc<Collection>, row: &'g crate::exec::Row<'_>) -> Target<'g> {
    Target { collection, record: row.record, version: row.version, doc: row.doc() }
}
