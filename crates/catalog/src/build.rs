//! Builds an index while the collection is written.
//!
//! The index exists, not ready, before the build begins. From then on every write adds all the keys of its
//! document. So the build handles only versions and records from before. It adds their keys in units that name the
//! versions that the keys were made from. If a record changes in between, its unit conflicts; the build reads the
//! record again and finds that it is newer. So the build ends, however many clients write.
//!
//! The build holds nothing between two steps. Its caller waits for tickets and yields.

use crate::collection::Collection;
use crate::dropped::is_dropped;
use crate::index::Index;
use kauri_base::{Access, CommitSeq, Error, IndexId, RecordId, Result, Ticket};
use kauri_bson::keygen::Keys;
use kauri_storage::{Direction, OpKind, RecordScan, RecoveryUnit, Scope, StorageError, WriteUnit};
use std::sync::Arc;

/// Records whose keys go into one unit.
const UNIT_RECORDS: usize = 128;
/// Bytes of keys with which a unit is long enough.
const UNIT_KEY_BYTES: usize = 4 * 1024 * 1024;

/// The result of a step.
pub enum BuildStep {
    /// There is more to do.
    Again,
    /// Wait for the ticket, then go on.
    Blocked(Ticket),
    /// The collection's definition changed, or it is gone: resolve it again and go on with that.
    Stale,
    /// All records have been indexed.
    Done,
}

/// The progress of one build of one or more indexes of a collection.
pub struct IndexBuild {
    ids: Vec<IndexId>,
    /// The commit that made the indexes.
    since: CommitSeq,
    /// The last record that was there when the build began; `None` before that.
    last: Option<RecordId>,
    scan: RecordScan,
    /// Records still to do before the scan goes on (they conflicted).
    again: Vec<RecordId>,
    /// Whether the scan has passed the last record.
    ended: bool,
    keys: Keys,
    done: u64,
    /// Whether the leader of the replica set builds the index, too, and decides whether it can be.
    follows: bool,
    /// Of a build that follows: why a document was left out.
    failure: Option<Error>,
}

impl IndexBuild {
    /// The build of these indexes, which this commit made.
    pub fn new(ids: Vec<IndexId>, since: CommitSeq) -> Self {
        IndexBuild {
            ids,
            since,
            last: None,
            scan: RecordScan::new(Direction::Forward),
            again: Vec::new(),
            ended: false,
            keys: Keys::default(),
            done: 0,
            follows: false,
            failure: None,
        }
    }

    /// The build of an index of the leader's on a member that follows: of all documents, whatever their versions.
    /// Duplicates are no error. A document that cannot be indexed is left out, and noted.
    pub(crate) fn following(id: IndexId) -> Self {
        IndexBuild { follows: true, ..IndexBuild::new(vec![id], CommitSeq(u64::MAX)) }
    }

    /// Why a build that follows has left out a document.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Records indexed so far.
    pub fn records_done(&self) -> u64 {
        self.done
    }

    /// Indexes the next records. The reader is not entered, before or after.
    pub fn step(&mut self, collection: &Collection, scope: &mut Scope) -> Result<BuildStep> {
        let indexes: Vec<Arc<Index>> =
            self.ids.iter().filter_map(|id| collection.index_by_id(*id)).cloned().collect();
        let mut unit = WriteUnit::new();
        let mut records: Vec<RecordId> = Vec::with_capacity(UNIT_RECORDS);
        let reader = scope.enter();
        let gathered = self.gather(collection, &indexes, &*reader, &mut unit, &mut records);
        drop(reader);
        // A commit may wait for room that readers hold back, so none is inside any more.
        match gathered {
            Ok(Some(ticket)) => Ok(BuildStep::Blocked(ticket)),
            Ok(None) => self.commit(collection, scope, unit, records),
            Err(error) if is_dropped(&error) => Ok(BuildStep::Stale),
            Err(error) => Err(error),
        }
    }

    /// Generates the keys of the next records; returns a ticket if one of them is not in memory.
    fn gather(
        &mut self,
        collection: &Collection,
        indexes: &[Arc<Index>],
        ru: &dyn RecoveryUnit,
        unit: &mut WriteUnit<'_>,
        records: &mut Vec<RecordId>,
    ) -> Result<Option<Ticket>> {
        let last = match self.last {
            Some(last) => last,
            None => match last_record(collection, ru)? {
                Access::Ready(last) => *self.last.insert(last),
                Access::WouldBlock(ticket) => return Ok(Some(ticket)),
            },
        };
        let one_by_one = !self.again.is_empty();
        let limit = if one_by_one { 1 } else { UNIT_RECORDS };
        while records.len() < limit && unit.all_key_bytes() < UNIT_KEY_BYTES {
            let id = match self.again.pop() {
                Some(id) => id,
                None if self.ended => break,
                None => match self.scan.next_buffered() {
                    Some(id) if id > last => {
                        self.ended = true;
                        break;
                    }
                    Some(id) => id,
                    None if self.scan.ended() => {
                        self.ended = true;
                        break;
                    }
                    None => match collection.fill(ru, &mut self.scan)? {
                        Access::Ready(()) => continue,
                        Access::WouldBlock(ticket) => {
                            self.again.append(records);
                            return Ok(Some(ticket));
                        }
                    },
                },
            };
            match collection.get(ru, id)? {
                Access::Ready(Some(record)) if record.version > self.since => {}
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
        scope: &mut Scope,
        mut unit: WriteUnit<'_>,
        records: Vec<RecordId>,
    ) -> Result<BuildStep> {
        if unit.is_empty() {
            let ended = self.ended && self.again.is_empty();
            return Ok(if ended { BuildStep::Done } else { BuildStep::Again });
        }
        unit.expect_definition(collection.id, collection.definition);
        match scope.commit(&mut unit) {
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
            if !self.follows {
                index.keys.generate_new(doc, &mut self.keys)?;
            } else if let Err(error) = index.keys.generate_into(doc, &mut self.keys) {
                self.failure.get_or_insert(error);
                continue;
            }
            let unique = index.definition().unique && !self.follows;
            for key in self.keys.iter() {
                unit.key(index.id, true, unique, key.bytes, key.type_bits);
            }
        }
        Ok(())
    }
}

/// The last existing record; 0 if there is none.
fn last_record(collection: &Collection, ru: &dyn RecoveryUnit) -> Result<Access<RecordId>> {
    let mut scan = RecordScan::new(Direction::Backward);
    let filled = collection.fill(ru, &mut scan)?;
    Ok(filled.map(|()| scan.next_buffered().unwrap_or(RecordId(0))))
}
