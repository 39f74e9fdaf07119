//! Building an index over a collection that goes on being written.
//!
//! The index exists, not ready, before the build begins, so every write from then on keeps its keys;
//! the build adds the keys of the records as it finds them, in units that name the versions they
//! were made from. A record that changes in between makes its unit conflict, and is read again: its
//! own write has already put the right keys.
//!
//! The build holds nothing between two steps. Whoever drives it waits for tickets and yields.

use crate::collection::Collection;
use crate::index::Index;
use kauri_base::{Access, CommitSeq, IndexId, RecordId, Result, Ticket};
use kauri_bson::keygen::Keys;
use kauri_storage::{
    Committer, Direction, OpKind, RecordScan, RecoveryUnit, StorageError, WriteUnit,
};
use std::sync::Arc;

/// Records whose keys go into one unit.
const UNIT_RECORDS: usize = 128;

/// What a step came to.
pub enum BuildStep {
    /// There is more to do.
    Again,
    /// Wait for the ticket, then go on.
    Blocked(Ticket),
    /// The collection's definition changed: resolve it again and go on with that.
    Stale,
    /// All records have been indexed.
    Done,
}

/// The progress of one build of one or more indexes of a collection.
pub struct IndexBuild {
    ids: Vec<IndexId>,
    scan: RecordScan,
    /// Records still to do before the scan goes on (they conflicted).
    again: Vec<RecordId>,
    keys: Keys,
    done: u64,
}

impl IndexBuild {
    /// The build of these indexes.
    pub fn new(ids: Vec<IndexId>) -> Self {
        IndexBuild {
            ids,
            scan: RecordScan::new(Direction::Forward),
            again: Vec::new(),
            keys: Keys::default(),
            done: 0,
        }
    }

    /// Records indexed so far.
    pub fn records_done(&self) -> u64 {
        self.done
    }

    /// Indexes the next records. `ru` is not entered, before or after.
    pub fn step(
        &mut self,
        collection: &Collection,
        committer: &dyn Committer,
        ru: &mut dyn RecoveryUnit,
    ) -> Result<BuildStep> {
        let indexes: Vec<Arc<Index>> =
            self.ids.iter().filter_map(|id| collection.index_by_id(*id)).cloned().collect();
        let mut unit = WriteUnit::new();
        let mut records: Vec<RecordId> = Vec::with_capacity(UNIT_RECORDS);
        ru.enter();
        let gathered = self.gather(collection, &indexes, ru, &mut unit, &mut records);
        ru.leave();
        // A commit may wait for room that readers hold back, so none is inside any more.
        match gathered? {
            Some(ticket) => Ok(BuildStep::Blocked(ticket)),
            None => self.commit(collection, committer, unit, records),
        }
    }

    /// Makes the keys of the next records; a ticket if one of them is not at hand.
    fn gather(
        &mut self,
        collection: &Collection,
        indexes: &[Arc<Index>],
        ru: &dyn RecoveryUnit,
        unit: &mut WriteUnit<'_>,
        records: &mut Vec<RecordId>,
    ) -> Result<Option<Ticket>> {
        let one_by_one = !self.again.is_empty();
        let limit = if one_by_one { 1 } else { UNIT_RECORDS };
        while records.len() < limit {
            let id = match self.again.pop() {
                Some(id) => id,
                None => match self.scan.next_buffered() {
                    Some(id) => id,
                    None if self.scan.ended() => break,
                    None => match collection.store.fill(ru, &mut self.scan)? {
                        Access::Ready(()) => continue,
                        Access::WouldBlock(ticket) => {
                            self.again.append(records);
                            return Ok(Some(ticket));
                        }
                    },
                },
            };
            match collection.store.get(ru, id)? {
                Access::Ready(Some(record)) => {
                    self.add_keys(unit, collection, indexes, id, record.version, record.doc)?;
                    records.push(id);
                }
                Access::Ready(None) => {}
                Access::WouldBlock(ticket) => {
                    self.again.push(id);
                    self.again.append(records);
                    return Ok(Some(ticket));
                }
            }
            if one_by_one {
                break;
            }
        }
        Ok(None)
    }

    fn commit(
        &mut self,
        collection: &Collection,
        committer: &dyn Committer,
        mut unit: WriteUnit<'_>,
        records: Vec<RecordId>,
    ) -> Result<BuildStep> {
        if unit.is_empty() {
            let ended = self.scan.ended() && self.again.is_empty();
            return Ok(if ended { BuildStep::Done } else { BuildStep::Again });
        }
        unit.expect_definition(collection.id, collection.definition);
        match committer.commit(&mut unit) {
            Ok(_) => {
                self.done += records.len() as u64;
                Ok(BuildStep::Again)
            }
            Err(StorageError::WriteConflict) => {
                self.again.extend(records);
                Ok(BuildStep::Again)
            }
            Err(StorageError::StaleCatalog(_)) => {
                self.again.extend(records);
                Ok(BuildStep::Stale)
            }
            Err(error) => Err(collection.explain_commit_error(error)),
        }
    }

    fn add_keys(
        &mut self,
        unit: &mut WriteUnit<'_>,
        collection: &Collection,
        indexes: &[Arc<Index>],
        id: RecordId,
        seen: CommitSeq,
        doc: kauri_bson::Doc<'_>,
    ) -> Result<()> {
        unit.push(collection.id, id, OpKind::Backfill { seen });
        for index in indexes {
            index.keys.generate_into(doc, &mut self.keys)?;
            for key in self.keys.iter() {
                unit.key(index.id, true, index.definition().unique, key.bytes, key.type_bits);
            }
        }
        Ok(())
    }
}
