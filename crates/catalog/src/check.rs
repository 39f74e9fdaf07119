//! Checks a collection: every document is well-formed, every index has exactly the keys of the documents in order,
//! and the counts are right.
//!
//! Writers continue during a check. A suspected fault is checked again in a held snapshot, which shows records and
//! entries of one moment, and counts only if the snapshot has it, too. Like a build ([`crate::IndexBuild`]), a
//! check proceeds in steps and holds nothing between two steps.
//!
//! Its time is linear in records and entries. The keys of each record are generated once and looked up in the
//! index, and [`EntrySums`] reveal further entries of the index. Only then entries are compared with their records.

use crate::collection::Collection;
use crate::dropped::is_dropped;
use crate::entry_sums::EntrySums;
use crate::index::Index;
use kauri_base::{Access, RandomSource, RecordId, Result, Ticket, limits};
use kauri_bson::keygen::Keys;
use kauri_bson::{Doc, DocBuf};
use kauri_storage::{Direction, Entered, IndexScan, RecordScan, RecoveryUnit, StorageError};
use std::sync::Arc;

/// Records or entries per step.
const STEP_ITEMS: usize = 64;
/// Entries whose sums are right that one step passes.
const STEP_ENTRIES_PASSED: usize = 1024;
/// Most findings of a kind that are kept one by one.
pub const FINDINGS_MAX: usize = 100;

/// A fault of an index.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// A document's key is not in the index.
    Missing {
        /// The index.
        index: String,
        /// The record.
        record: RecordId,
        /// The document's `_id`, in a document of its own.
        id: DocBuf,
    },
    /// The index has a key that its record does not have.
    Extra {
        /// The index.
        index: String,
        /// The record.
        record: RecordId,
    },
    /// Two records share a key of a unique index.
    Duplicate {
        /// The index.
        index: String,
        /// The second of the records.
        record: RecordId,
    },
    /// Entries are not in order.
    Disorder {
        /// The index.
        index: String,
    },
    /// A document cannot be read.
    Corrupt {
        /// The record.
        record: RecordId,
        /// Why.
        reason: String,
    },
}

/// The result for one index.
#[derive(Clone, Debug)]
pub struct IndexReport {
    /// Its name.
    pub name: String,
    /// Its entries.
    pub keys: u64,
    /// Whether all is well with it.
    pub valid: bool,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Documents.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Documents that cannot be read or are no BSON.
    pub invalid: u64,
    /// The indexes, the one on `_id` first.
    pub indexes: Vec<IndexReport>,
    /// The faults, at most [`FINDINGS_MAX`] of each kind.
    pub findings: Vec<Finding>,
}

/// The result of a step.
pub enum CheckStep {
    /// There is more to do.
    Again,
    /// Wait for the ticket, then go on.
    Blocked(Ticket),
    /// The check is over.
    Done,
}

/// The progress of a check.
pub struct Progress {
    /// The current object.
    pub name: &'static str,
    /// Records or entries of it so far.
    pub done: u64,
    /// The total.
    pub total: u64,
}

enum Phase {
    Records(RecordScan),
    /// The entries of an index are counted and their order is checked.
    Entries(usize, IndexScan, Option<(Vec<u8>, RecordId)>),
    /// Entries without a matching record are compared with their records.
    Extra(usize, IndexScan),
    Done,
}

/// A check in progress.
pub struct CollectionCheck {
    collection: Arc<Collection>,
    indexes: Vec<Arc<Index>>,
    phase: Phase,
    keys: Keys,
    /// For each index.
    sums: Vec<EntrySums>,
    report: Report,
    /// Suspects to check again before the scan continues.
    again: Vec<Suspect>,
}

/// An index entry that did not match its record, or another entry, at the first check.
struct Suspect {
    index: usize,
    record: RecordId,
    kind: SuspectKind,
    /// Snapshots that could not show the collection.
    lost: usize,
}

enum SuspectKind {
    Missing,
    Extra(Vec<u8>),
    /// Another record has this key too.
    Twin(Vec<u8>, RecordId),
}

/// Maximum number of consecutive snapshots that changes of the collection's definition may end.
const LOST_MAX: usize = 100;

impl CollectionCheck {
    /// The check of this collection's documents and ready indexes.
    pub fn new(collection: Arc<Collection>, random: &dyn RandomSource) -> Self {
        let indexes: Vec<_> = collection.indexes.iter().filter(|i| i.ready).cloned().collect();
        let reports = indexes.iter().map(|index| IndexReport {
            name: index.name().to_owned(),
            keys: 0,
            valid: true,
        });
        let report = Report { indexes: reports.collect(), ..Report::default() };
        let sums = indexes.iter().map(|_| EntrySums::new(random)).collect();
        CollectionCheck {
            collection,
            indexes,
            phase: Phase::Records(RecordScan::new(Direction::Forward)),
            keys: Keys::default(),
            sums,
            report,
            again: Vec::new(),
        }
    }

    /// The result so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The progress; nothing after the end.
    pub fn progress(&self) -> Option<Progress> {
        let entries = |position: usize, name| {
            let done = self.report.indexes.get(position).map_or(0, |index| index.keys);
            let index = self.indexes.get(position);
            Progress {
                name,
                done,
                total: index.map_or(0, |index| index.data.entries().unwrap_or(0)),
            }
        };
        match &self.phase {
            Phase::Records(_) => Some(Progress {
                name: "Validate: scanning collection",
                done: self.report.records,
                total: self.collection.store.stats().map_or(0, |stats| stats.records),
            }),
            Phase::Entries(position, ..) => {
                Some(entries(*position, "Validate: scanning index entries"))
            }
            Phase::Extra(position, _) => {
                Some(entries(*position, "Validate: comparing index entries with documents"))
            }
            Phase::Done => None,
        }
    }

    /// Checks the next records or entries. `ru` is not entered, before or after.
    pub fn step(&mut self, ru: &mut dyn RecoveryUnit) -> Result<CheckStep> {
        let Some(mut suspect) = self.again.pop() else {
            return self.step_entered(&*Entered::new(ru));
        };
        ru.hold_snapshot()?;
        let looked = self.look_again(&*Entered::new(ru), &suspect);
        ru.release_snapshot();
        match looked {
            Ok(Access::Ready(finding)) => {
                if let Some(finding) = finding {
                    self.find(suspect.index, finding);
                }
            }
            Ok(Access::WouldBlock(ticket)) => {
                self.again.push(suspect);
                return Ok(CheckStep::Blocked(ticket));
            }
            Err(StorageError::SnapshotUnavailable(_) | StorageError::SnapshotTooOld)
                if suspect.lost < LOST_MAX =>
            {
                // No snapshot can show what is gone.
                self.collection.stats()?;
                self.indexes[suspect.index].bytes()?;
                suspect.lost += 1;
                self.again.push(suspect);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(CheckStep::Again)
    }

    fn suspect(&mut self, index: usize, record: RecordId, kind: SuspectKind) {
        self.again.push(Suspect { index, record, kind, lost: 0 });
    }

    fn step_entered(&mut self, ru: &dyn RecoveryUnit) -> Result<CheckStep> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Records(mut scan) => {
                let step = self.records(ru, &mut scan)?;
                self.phase = match step {
                    CheckStep::Done => self.index_phase(0),
                    _ => Phase::Records(scan),
                };
                Ok(self.unless_over(step))
            }
            Phase::Entries(position, mut scan, mut last) => {
                let step = self.entries(ru, position, &mut scan, &mut last)?;
                self.phase = match step {
                    CheckStep::Done if self.sums[position].differs() => {
                        Phase::Extra(position, all_entries())
                    }
                    CheckStep::Done => self.index_phase(position + 1),
                    _ => Phase::Entries(position, scan, last),
                };
                Ok(self.unless_over(step))
            }
            Phase::Extra(position, mut scan) => {
                let step = self.extra(ru, position, &mut scan)?;
                self.phase = match step {
                    CheckStep::Done => self.index_phase(position + 1),
                    _ => Phase::Extra(position, scan),
                };
                Ok(self.unless_over(step))
            }
            Phase::Done => Ok(CheckStep::Done),
        }
    }

    fn index_phase(&self, position: usize) -> Phase {
        if position < self.indexes.len() {
            Phase::Entries(position, all_entries(), None)
        } else {
            Phase::Done
        }
    }

    fn unless_over(&self, step: CheckStep) -> CheckStep {
        match step {
            CheckStep::Done if !matches!(self.phase, Phase::Done) => CheckStep::Again,
            other => other,
        }
    }

    fn records(&mut self, ru: &dyn RecoveryUnit, scan: &mut RecordScan) -> Result<CheckStep> {
        let collection = self.collection.clone();
        for _ in 0..STEP_ITEMS {
            let Some(id) = scan.next_buffered() else {
                if scan.ended() {
                    return Ok(CheckStep::Done);
                }
                if let Access::WouldBlock(ticket) = collection.fill(ru, scan)? {
                    return Ok(CheckStep::Blocked(ticket));
                }
                continue;
            };
            match collection.get(ru, id) {
                Ok(Access::Ready(Some(record))) => {
                    self.record(ru, id, record.doc)?;
                    if !self.again.is_empty() {
                        return Ok(CheckStep::Again);
                    }
                }
                Ok(Access::Ready(None)) => {}
                Ok(Access::WouldBlock(ticket)) => {
                    scan.put_back();
                    return Ok(CheckStep::Blocked(ticket));
                }
                Err(error) if is_dropped(&error) => return Err(error),
                Err(error) => {
                    self.report.invalid += 1;
                    self.corrupt(id, error.message());
                }
            }
        }
        Ok(CheckStep::Again)
    }

    fn record(&mut self, ru: &dyn RecoveryUnit, id: RecordId, doc: Doc<'_>) -> Result<()> {
        self.report.records += 1;
        self.report.bytes += doc.as_bytes().len() as u64;
        if let Err(error) = kauri_bson::validate(doc.as_bytes(), limits::DOCUMENT_DEPTH_MAX) {
            self.report.invalid += 1;
            self.corrupt(id, error.message());
            return Ok(());
        }
        for (position, index) in self.indexes.clone().iter().enumerate() {
            if !matches!(self.has_all_keys(ru, index, id, doc)?, Access::Ready(true)) {
                self.suspect(position, id, SuspectKind::Missing);
            }
            let sums = &mut self.sums[position];
            self.keys.iter().for_each(|key| sums.add(key.bytes, id));
        }
        Ok(())
    }

    fn has_all_keys(
        &mut self,
        ru: &dyn RecoveryUnit,
        index: &Index,
        id: RecordId,
        doc: Doc<'_>,
    ) -> std::result::Result<Access<bool>, StorageError> {
        // A document without keys of its own is refused when it is written.
        if index.keys.generate_into(doc, &mut self.keys).is_err() {
            self.keys = Keys::default();
            return Ok(Access::Ready(false));
        }
        for key in self.keys.iter() {
            match has_entry(ru, index, key.bytes, id)? {
                Access::Ready(true) => {}
                other => return Ok(other),
            }
        }
        Ok(Access::Ready(true))
    }

    fn entries(
        &mut self,
        ru: &dyn RecoveryUnit,
        position: usize,
        scan: &mut IndexScan,
        last: &mut Option<(Vec<u8>, RecordId)>,
    ) -> Result<CheckStep> {
        let index = self.indexes[position].clone();
        for _ in 0..STEP_ITEMS {
            let Some(entry) = scan.next_buffered() else {
                if scan.ended() {
                    return Ok(CheckStep::Done);
                }
                if let Access::WouldBlock(ticket) = index.fill(ru, scan)? {
                    return Ok(CheckStep::Blocked(ticket));
                }
                continue;
            };
            let (key, record) = (entry.key.to_vec(), entry.record);
            self.report.indexes[position].keys += 1;
            self.sums[position].subtract(&key, record);
            self.order(position, &index, last.as_ref(), &key, record);
            *last = Some((key, record));
            if !self.again.is_empty() {
                return Ok(CheckStep::Again);
            }
        }
        Ok(CheckStep::Again)
    }

    fn extra(
        &mut self,
        ru: &dyn RecoveryUnit,
        position: usize,
        scan: &mut IndexScan,
    ) -> Result<CheckStep> {
        let collection = self.collection.clone();
        let index = self.indexes[position].clone();
        let mut compared = 0;
        for _ in 0..STEP_ENTRIES_PASSED {
            if compared == STEP_ITEMS {
                break;
            }
            let Some(entry) = scan.next_buffered() else {
                if scan.ended() {
                    return Ok(CheckStep::Done);
                }
                if let Access::WouldBlock(ticket) = index.fill(ru, scan)? {
                    return Ok(CheckStep::Blocked(ticket));
                }
                continue;
            };
            if !self.sums[position].differs_at(entry.key, entry.record) {
                continue;
            }
            compared += 1;
            let agrees = match collection.get(ru, entry.record) {
                Ok(Access::WouldBlock(ticket)) => {
                    scan.put_back();
                    return Ok(CheckStep::Blocked(ticket));
                }
                Err(error) if is_dropped(&error) => return Err(error),
                Ok(Access::Ready(None)) => false,
                Ok(Access::Ready(Some(found))) => {
                    // One that has no keys, or can't be read, is reported with the records.
                    let made = index.keys.generate_into(found.doc, &mut self.keys);
                    made.is_err() || self.keys.contains(entry.key)
                }
                Err(_) => true,
            };
            if !agrees {
                let (key, record) = (entry.key.to_vec(), entry.record);
                self.suspect(position, record, SuspectKind::Extra(key));
                return Ok(CheckStep::Again);
            }
        }
        Ok(CheckStep::Again)
    }

    fn order(
        &mut self,
        position: usize,
        index: &Index,
        last: Option<&(Vec<u8>, RecordId)>,
        key: &[u8],
        record: RecordId,
    ) {
        let Some((last_key, last_record)) = last else { return };
        if (last_key.as_slice(), *last_record) >= (key, record) {
            self.find(position, Finding::Disorder { index: index.name().to_owned() });
        } else if last_key == key && index.definition().unique {
            self.suspect(position, record, SuspectKind::Twin(key.to_vec(), *last_record));
        }
    }

    /// The fault, if the unit's snapshot has it, too.
    fn look_again(
        &mut self,
        ru: &dyn RecoveryUnit,
        suspect: &Suspect,
    ) -> std::result::Result<Access<Option<Finding>>, StorageError> {
        debug_assert!(ru.is_held(), "records and entries are to be of one moment");
        let (collection, record) = (self.collection.clone(), suspect.record);
        let index = self.indexes[suspect.index].clone();
        let found = match collection.store.get(ru, record)? {
            Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
            Access::Ready(found) => found,
        };
        let name = || index.name().to_owned();
        let finding = match (&suspect.kind, found) {
            (SuspectKind::Missing, None) => None,
            (SuspectKind::Missing, Some(found)) => {
                match self.has_all_keys(ru, &index, record, found.doc)? {
                    Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
                    Access::Ready(true) => None,
                    Access::Ready(false) => {
                        let id = DocBuf::build(|w| w.put_value("_id", &found.doc.value("_id")));
                        Some(Finding::Missing { index: name(), record, id })
                    }
                }
            }
            (SuspectKind::Extra(key), found) => {
                let agrees = found.is_some_and(|found| {
                    index.keys.generate_into(found.doc, &mut self.keys).is_ok()
                        && self.keys.contains(key)
                });
                match has_entry(ru, &index, key, record)? {
                    Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
                    Access::Ready(there) => {
                        (there && !agrees).then(|| Finding::Extra { index: name(), record })
                    }
                }
            }
            (SuspectKind::Twin(key, other), _) => {
                let mut both = true;
                for record in [*other, record] {
                    match has_entry(ru, &index, key, record)? {
                        Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
                        Access::Ready(there) => both &= there,
                    }
                }
                both.then(|| Finding::Duplicate { index: name(), record })
            }
        };
        Ok(Access::Ready(finding))
    }

    fn corrupt(&mut self, record: RecordId, reason: &str) {
        self.keep(Finding::Corrupt { record, reason: reason.to_owned() });
    }

    fn find(&mut self, position: usize, finding: Finding) {
        self.report.indexes[position].valid = false;
        self.keep(finding);
    }

    fn keep(&mut self, finding: Finding) {
        let kind = std::mem::discriminant(&finding);
        let same = self.report.findings.iter().filter(|f| std::mem::discriminant(*f) == kind);
        if same.count() < FINDINGS_MAX {
            self.report.findings.push(finding);
        }
    }
}

/// A scan of an index as a whole.
fn all_entries() -> IndexScan {
    IndexScan::new(Direction::Forward, Vec::new(), Vec::new())
}

/// Whether the index has this key for this record.
fn has_entry(
    ru: &dyn RecoveryUnit,
    index: &Index,
    key: &[u8],
    record: RecordId,
) -> std::result::Result<Access<bool>, StorageError> {
    let mut scan = IndexScan::of_entry(key, record);
    loop {
        if let Some(entry) = scan.next_buffered() {
            return Ok(Access::Ready(entry.key == key && entry.record == record));
        }
        if scan.ended() {
            return Ok(Access::Ready(false));
        }
        if let Access::WouldBlock(ticket) = index.data.fill(ru, &mut scan)? {
            return Ok(Access::WouldBlock(ticket));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{IndexDefinition, IndexKeys, IndexUsage};
    use kauri_base::IndexId;
    use kauri_storage::ephemeral::EphemeralEngine;
    use kauri_storage::{SortedDataInterface, StorageEngine};
    use std::sync::atomic::{AtomicU64, Ordering};

    const KEY: &[u8] = b"k";
    const RECORDS: u64 = 80_000;

    /// An index with one key of all records, which counts the entries that it gives.
    #[derive(Default)]
    struct Equal {
        given: AtomicU64,
    }

    impl SortedDataInterface for Equal {
        fn id(&self) -> IndexId {
            IndexId(1)
        }

        fn find(
            &self,
            _: &dyn RecoveryUnit,
            _: &[u8],
        ) -> std::result::Result<Access<Option<RecordId>>, StorageError> {
            Ok(Access::Ready(Some(RecordId(0))))
        }

        fn fill(
            &self,
            _: &dyn RecoveryUnit,
            scan: &mut IndexScan,
        ) -> std::result::Result<Access<()>, StorageError> {
            let next = scan.position().map_or(0, |(_, record)| record.0 + 1);
            scan.refill(|batch, wanted| {
                for record in (next..RECORDS).take(wanted) {
                    self.given.fetch_add(1, Ordering::Relaxed);
                    batch.push(KEY, &[], RecordId(record));
                }
            });
            Ok(Access::Ready(()))
        }

        fn entries(&self) -> Result<u64, StorageError> {
            Ok(RECORDS)
        }

        fn bytes(&self) -> Result<u64, StorageError> {
            Ok(0)
        }
    }

    #[test]
    fn an_entry_is_found_without_reading_others_of_its_key() {
        let data = Arc::new(Equal::default());
        let spec = IndexDefinition::id_index_spec();
        let keys = IndexKeys::new(IndexDefinition::from_spec(spec.as_doc()).unwrap());
        let usage = Arc::new(IndexUsage { accesses: AtomicU64::new(0), since_ms: 0 });
        let index = Index { id: IndexId(1), keys, ready: true, data: data.clone(), usage };
        let mut ru = EphemeralEngine::new().recovery_unit();
        ru.enter();
        for (record, is_there) in [(0, true), (1, true), (RECORDS - 1, true), (RECORDS, false)] {
            let before = data.given.load(Ordering::Relaxed);
            let found = has_entry(&*ru, &index, KEY, RecordId(record)).unwrap();
            assert!(matches!(found, Access::Ready(there) if there == is_there), "{record}");
            let given = data.given.load(Ordering::Relaxed) - before;
            assert!(given <= 4, "{given} entries for record {record}");
        }
    }
}
