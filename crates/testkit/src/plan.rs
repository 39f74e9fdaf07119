//! Units: from the data that was read to the changes.

use crate::dice::Dice;
use crate::model::Change;
use crate::schema::{CATALOG, FIELDS, IndexDef, TableDef};
use crate::world::World;
use kauri_base::{CollectionId, IndexId, RecordId};
use kauri_conformance::inspect::{Reader, Stored};
use kauri_conformance::table::{Table, doc, number};
use kauri_storage::{
    Access, CommitTicket, Committer, Direction, OpKind, RecordScan, StorageError, Transaction,
    WriteUnit,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const TABLES_MAX: usize = 4;
const INDEXES_MAX: usize = 3;
/// Longest text of a document.
const TEXT_MAX: u64 = 12 << 10;
/// Bytes of documents from which a unit counts as large: more than a segment of the engine, where
/// those are made as small as crash tests make them.
const LARGE_BYTES: usize = 64 << 10;

/// A unit that is ready to be committed.
pub struct Plan {
    pub(crate) unit: WriteUnit<'static>,
    changes: Vec<Planned>,
    after: After,
}

enum Planned {
    /// The document that operation number so-and-so inserts.
    Inserted(usize, Arc<[u8]>),
    Known(Change),
}

/// What the commit of a unit means for the catalog.
enum After {
    Nothing,
    /// A new collection, whose catalog document operation number so-and-so inserts.
    Created(TableDef, usize),
    Redefined(TableDef),
    Dropped(CollectionId),
}

/// The result of a commit.
pub enum Outcome {
    /// Done.
    Committed(CommitTicket),
    /// To be planned anew.
    Outdated,
    /// Refused for good.
    Duplicate,
    /// Refused until there is room.
    NoSpace,
}

impl Plan {
    pub(crate) fn new() -> Plan {
        Plan { unit: WriteUnit::new(), changes: Vec::new(), after: After::Nothing }
    }

    pub(crate) fn insert(&mut self, table: &Table, doc: Vec<u8>) -> usize {
        let op = table.insert_in(&mut self.unit, &doc);
        self.changes.push(Planned::Inserted(op, doc.into()));
        op
    }

    pub(crate) fn update(&mut self, table: &Table, id: RecordId, old: &Stored, doc: Vec<u8>) {
        table.update_in(&mut self.unit, id, old, &doc);
        self.changes.push(Planned::Known(Change::Put(table.id, id, doc.into())));
    }

    pub(crate) fn delete(&mut self, table: &Table, id: RecordId, old: &Stored) {
        table.delete_in(&mut self.unit, id, old);
        self.changes.push(Planned::Known(Change::Remove(table.id, id)));
    }

    /// Appends it to the replicated log, where it is pending.
    pub fn append(mut self, world: &World) -> Result<Outcome, StorageError> {
        let planned = self.changes;
        outcome(world.append(&mut self.unit, |unit| changes(planned, unit)))
    }

    /// Adds it to a transaction, as one of its statements. Whether the transaction can go on.
    pub fn write(mut self, transaction: &mut Transaction) -> Result<bool, StorageError> {
        match transaction.write(&mut self.unit) {
            Ok(Access::Ready(())) => Ok(true),
            // What it read may be newer than what the transaction sees.
            Ok(Access::WouldBlock(_))
            | Err(
                StorageError::WriteConflict
                | StorageError::StaleCatalog(_)
                | StorageError::DuplicateKey { .. }
                | StorageError::SnapshotUnavailable(_)
                | StorageError::SnapshotTooOld,
            ) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Commits it. Failures of the medium are errors.
    pub fn commit(mut self, world: &World) -> Result<Outcome, StorageError> {
        let planned = self.changes;
        let documents = planned.len();
        let result = world.commit(&mut self.unit, |unit| changes(planned, unit));
        let ticket = match outcome(result)? {
            Outcome::Committed(ticket) => ticket,
            other => return Ok(other),
        };
        if documents > 1 {
            world.counts.multi_document.one();
        }
        if bytes(&self.unit) > LARGE_BYTES {
            world.counts.large.one();
        }
        match self.after {
            After::Nothing => {}
            After::Created(mut def, op) => {
                world.counts.collections.one();
                def.record = self.unit.ops[op].record;
                world.created(def);
            }
            After::Redefined(def) => world.redefined(def),
            After::Dropped(id) => {
                world.counts.collections.one();
                world.dropped(id);
            }
        }
        Ok(Outcome::Committed(ticket))
    }
}

/// What planned changes came to, once inserts have their ids.
fn changes(planned: Vec<Planned>, unit: &WriteUnit<'_>) -> Vec<Change> {
    let change = |planned| match planned {
        Planned::Known(change) => change,
        Planned::Inserted(op, doc) => {
            let op = &unit.ops[op];
            Change::Put(op.collection, op.record, doc)
        }
    };
    planned.into_iter().map(change).collect()
}

/// Bytes of a unit's documents.
fn bytes(unit: &WriteUnit<'_>) -> usize {
    let len = |op: &kauri_storage::WriteOp<'_>| match &op.kind {
        OpKind::Insert { doc } | OpKind::Update { doc, .. } => doc.len(),
        _ => 0,
    };
    unit.ops.iter().map(len).sum()
}

/// The meaning of the engine's answer for a writer. Failures of the medium are errors.
pub fn outcome(result: Result<CommitTicket, StorageError>) -> Result<Outcome, StorageError> {
    match result {
        Ok(ticket) => Ok(Outcome::Committed(ticket)),
        Err(StorageError::WriteConflict | StorageError::StaleCatalog(_)) => Ok(Outcome::Outdated),
        Err(StorageError::DuplicateKey { .. }) => Ok(Outcome::Duplicate),
        Err(StorageError::OutOfDiskSpace) => Ok(Outcome::NoSpace),
        Err(error) => Err(error),
    }
}

/// Commits what transactions have written, and notes what that changes.
struct Noting<'w>(&'w World);

impl Committer for Noting<'_> {
    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        let change = |op: &kauri_storage::WriteOp<'_>| match &op.kind {
            OpKind::Insert { doc } | OpKind::Update { doc, .. } => {
                Some(Change::Put(op.collection, op.record, doc.as_ref().into()))
            }
            OpKind::Delete { .. } => Some(Change::Remove(op.collection, op.record)),
            _ => None,
        };
        let result = self.0.commit(unit, |unit| unit.ops.iter().filter_map(change).collect());
        if result.is_ok() {
            self.0.counts.transactions.one();
            if bytes(unit) > LARGE_BYTES {
                self.0.counts.large.one();
            }
        }
        result
    }
}

/// Commits a transaction.
pub fn commit_transaction(
    world: &World,
    transaction: Transaction,
) -> Result<Outcome, StorageError> {
    outcome(transaction.commit_with(&Noting(world)))
}

/// A record from somewhere in the collection, often the last one.
fn pick(
    world: &World,
    table: &Table,
    dice: &Dice,
) -> Result<Option<(RecordId, Stored)>, StorageError> {
    let Some(store) = world.engine.record_store(table.id) else { return Ok(None) };
    let mut reader = Reader::new(&*world.engine);
    let last = reader.next_id(&*store, &mut RecordScan::new(Direction::Backward))?;
    let last = last.map_or(0, |id| id.0);
    let from = RecordId(if dice.percent(10) { last.saturating_sub(1) } else { dice.below(last) });
    let mut scan = RecordScan::after(Direction::Forward, from);
    while let Some(id) = reader.next_id(&*store, &mut scan)? {
        if let Some(record) = reader.get(&*store, id)? {
            return Ok(Some((id, record)));
        }
    }
    Ok(None)
}

fn new_doc(world: &World, dice: &Dice, plenty: bool) -> Vec<u8> {
    let length = match dice.below(20) {
        0 if !plenty => dice.below(TEXT_MAX),
        1..6 if !plenty => 900,
        _ => dice.below(200),
    };
    let unique = if dice.percent(8) { world.old_unique(dice.bits()) } else { world.new_unique() };
    let text = format!("{:x}-", dice.bits());
    let text = text.repeat(length as usize / text.len() + 1);
    doc(dice.below(6) as i64, unique, &text[..length as usize])
}

/// A unit of documents that takes more than a segment.
pub fn large(world: &World, dice: &Dice) -> Option<Plan> {
    let tables = world.tables();
    let def = dice.pick(&tables)?;
    let mut plan = Plan::new();
    plan.unit.expect_definition(def.id, def.number);
    let table = def.table(&world.engine);
    while bytes(&plan.unit) <= LARGE_BYTES {
        let text = "large ".repeat(1500 + dice.below(600) as usize);
        plan.insert(&table, doc(dice.below(6) as i64, world.new_unique(), &text));
    }
    Some(plan)
}

/// A unit of documents, in one collection or several.
pub fn documents(world: &World, dice: &Dice) -> Result<Option<Plan>, StorageError> {
    let tables = world.tables();
    let mut plan = Plan::new();
    let mut touched = BTreeSet::new();
    let plenty = world.document_bytes() > world.document_bytes_max;
    let ops = if dice.percent(30) { 2 + dice.below(10) } else { 1 };
    for _ in 0..ops {
        // The first ones are written to more than the last, so that some rest for long.
        let choice = dice.below(tables.len() as u64 + 1) as usize;
        let Some(def) = dice.pick(&tables[..choice.max(1).min(tables.len())]) else {
            return Ok(None);
        };
        plan.unit.expect_definition(def.id, def.number);
        let table = def.table(&world.engine);
        let known = if dice.percent(60) || plenty { pick(world, &table, dice)? } else { None };
        match known.filter(|(id, _)| touched.insert((def.id, *id))) {
            Some((id, old)) if dice.percent(if plenty { 70 } else { 30 }) => {
                plan.delete(&table, id, &old);
            }
            Some((id, old)) => {
                let mut new = new_doc(world, dice, plenty);
                if dice.percent(50) {
                    // Some keys stay as they are.
                    new = doc(number(&new, "k"), number(&old.doc, "u"), "updated");
                }
                plan.update(&table, id, &old, new);
            }
            None => drop(plan.insert(&table, new_doc(world, dice, plenty))),
        }
    }
    Ok(Some(plan))
}

/// A unit that creates or drops a collection, or drops an index.
pub fn definition(world: &World, dice: &Dice) -> Result<Option<Plan>, StorageError> {
    let tables = world.tables();
    if tables.len() < TABLES_MAX && (tables.len() < 2 || dice.percent(50)) {
        return Ok(Some(create_collection(world, dice)));
    }
    let Some(def) = dice.pick(&tables) else { return Ok(None) };
    let complete = def.indexes.iter().filter(|index| index.ready);
    let complete: Vec<_> = complete.map(|index| index.index.spec.id).collect();
    match dice.pick(&complete) {
        Some(index) if dice.percent(50) => drop_index(world, def.clone(), *index),
        _ if tables.len() > 1 => drop_collection(world, def),
        _ => Ok(None),
    }
}

/// A unit that creates a collection, with up to two indexes and some documents.
pub(crate) fn create_collection(world: &World, dice: &Dice) -> Plan {
    let mut plan = Plan::new();
    let mut def = TableDef::new(world.new_store());
    for field in 0..dice.below(INDEXES_MAX as u64) as usize {
        def.add_index(field, field == 1, true);
    }
    let op = plan.insert(&world.catalog, def.encode());
    let table = def.table(&world.engine);
    table.create_in(&mut plan.unit);
    plan.changes.push(Planned::Known(Change::Create(def.id)));
    for _ in 0..dice.below(3) {
        plan.insert(&table, new_doc(world, dice, true));
    }
    plan.after = After::Created(def, op);
    plan
}

/// A unit that drops a collection.
pub(crate) fn drop_collection(world: &World, def: &TableDef) -> Result<Option<Plan>, StorageError> {
    let Some(old) = catalog_document(world, def)? else { return Ok(None) };
    let mut plan = Plan::new();
    plan.unit.expect_definition(def.id, def.number);
    plan.delete(&world.catalog, def.record, &old);
    plan.unit.push(def.id, RecordId(0), OpKind::DropStore);
    plan.changes.push(Planned::Known(Change::Drop(def.id)));
    plan.after = After::Dropped(def.id);
    Ok(Some(plan))
}

/// The catalog's document of a collection, as it is read now.
fn catalog_document(world: &World, def: &TableDef) -> Result<Option<Stored>, StorageError> {
    let Some(store) = world.engine.record_store(CATALOG) else { return Ok(None) };
    Reader::new(&*world.engine).get(&*store, def.record)
}

/// A unit that puts a changed definition in place of the current one.
pub(crate) fn redefine(world: &World, def: TableDef) -> Result<Option<Plan>, StorageError> {
    let Some(old) = catalog_document(world, &def)? else { return Ok(None) };
    let mut plan = Plan::new();
    plan.unit.expect_definition(def.id, def.number);
    plan.update(&world.catalog, def.record, &old, def.encode());
    plan.unit.push(def.id, RecordId(0), OpKind::ChangeDefinition);
    plan.after = After::Redefined(def);
    Ok(Some(plan))
}

/// A unit that drops an index.
pub fn drop_index(
    world: &World,
    mut def: TableDef,
    index: IndexId,
) -> Result<Option<Plan>, StorageError> {
    let id = def.id;
    def.remove_index(index);
    let plan = redefine(world, def)?;
    Ok(plan.map(|mut plan| {
        plan.unit.push(id, RecordId(0), OpKind::DropIndex { index });
        plan
    }))
}

/// A unit that begins an index build. Answers it with the index.
pub fn begin_build(
    world: &World,
    dice: &Dice,
) -> Result<Option<(Plan, CollectionId, IndexDef)>, StorageError> {
    let tables = world.tables();
    let Some(mut def) = dice.pick(&tables).cloned() else { return Ok(None) };
    if def.indexes.len() >= INDEXES_MAX {
        return Ok(None);
    }
    let field = dice.below(FIELDS.len() as u64) as usize;
    let id = def.id;
    let index = def.add_index(field, field == 1, false);
    let Some(mut plan) = redefine(world, def)? else { return Ok(None) };
    let (spec, generator) = (index.index.spec, index.index.generator.clone());
    plan.unit.push(id, RecordId(0), OpKind::CreateIndex { spec, generator });
    Ok(Some((plan, id, index)))
}

/// A unit that ends an index build.
pub fn end_build(
    world: &World,
    mut def: TableDef,
    index: IndexId,
) -> Result<Option<Plan>, StorageError> {
    let Some(building) = def.index_mut(index) else { return Ok(None) };
    building.ready = true;
    redefine(world, def)
}

/// A unit that fills a new index for these records, as they are read now.
pub fn backfill(
    world: &World,
    def: &TableDef,
    index: &IndexDef,
    records: &[RecordId],
) -> Result<Plan, StorageError> {
    let mut plan = Plan::new();
    let table = def.table(&world.engine);
    if let Some(store) = world.engine.record_store(def.id) {
        let mut reader = Reader::new(&*world.engine);
        for id in records {
            if let Some(record) = reader.get(&*store, *id)? {
                table.backfill_in(&mut plan.unit, &index.index, *id, &record);
            }
        }
    }
    Ok(plan)
}
