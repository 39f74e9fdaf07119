//! Applies frames of a replicated log on a member that follows.
//!
//! The units are in the log already, under the leader's commit sequences. Each one becomes a write unit, with the
//! index keys that its documents mean here, and takes the steps of a commit, with the known places instead of an
//! append.

use super::Again;
use crate::address::Address;
use crate::core::Core;
use crate::format::record::Kind;
use crate::frames::FrameAt;
use crate::on_medium::corrupt;
use crate::plan::{Plan, Scratch};
use kauri_base::{CollectionId, CommitSeq, RecordId};
use kauri_medium::Guard;
use kauri_storage::{
    AppliedChange, AppliedKind, AppliedUnits, FrameRecord, LogPosition, OpKind, StorageError,
    WriteUnit,
};

/// A record of a frame, and where it is.
type Placed = (Address, FrameRecord);

impl Core {
    /// See [`kauri_storage::ReplicatedLog::apply_frame`].
    pub fn apply_next_frame(
        &self,
        units: &mut dyn AppliedUnits,
    ) -> Result<Option<LogPosition>, StorageError> {
        self.check_alive()?;
        let applying = self.frames.lock_applying();
        // A leader has applied its own.
        let next = self.frames.next_committed().filter(|_| self.head.follows());
        let Some(frame) = next else { return Ok(None) };
        if let Err(error) = self.apply_frame_at(&frame, units) {
            self.fail("applying a frame of the replicated log", &error);
            return Err(error);
        }
        self.frames.set_applied(frame.position);
        drop(applying);
        Ok(Some(frame.position))
    }

    fn apply_frame_at(
        &self,
        frame: &FrameAt,
        units: &mut dyn AppliedUnits,
    ) -> Result<(), StorageError> {
        let (_, records) = self.read_placed(frame)?;
        for unit in records.chunk_by(|(_, a), (_, b)| a.seq == b.seq) {
            let Some((_, first)) = unit.first() else { continue };
            let changes = self.apply_copied(first.seq, unit)?;
            units.applied(first.seq, &changes)?;
        }
        let appended = self.head.begin_applying(&self.acks);
        if appended.seq != frame.seq {
            return Err(corrupt(format!("frame {} lacks units", frame.position.index)));
        }
        self.head.publish(appended).map(drop)
    }

    fn apply_copied(
        &self,
        seq: CommitSeq,
        records: &[Placed],
    ) -> Result<Vec<AppliedChange>, StorageError> {
        // What indexes there are stays so until the unit is applied.
        let ddl = self.registry.lock_ddl();
        let mut scratch = self.scratches.take(&self.domain);
        let result = self.apply_copied_with(seq, records, &mut scratch);
        self.scratches.keep(scratch);
        drop(ddl);
        result
    }

    fn apply_copied_with(
        &self,
        seq: CommitSeq,
        records: &[Placed],
        scratch: &mut Scratch,
    ) -> Result<Vec<AppliedChange>, StorageError> {
        let mut unit = WriteUnit::new();
        let mut changes = Vec::new();
        let mut places = Vec::new();
        for (address, record) in records {
            let Some(kind) = Kind::from_number(record.kind).filter(|kind| *kind != Kind::Commit)
            else {
                continue;
            };
            let kind = self.add_copied(&mut unit, kind, record, &mut scratch.guard)?;
            let (collection, record) = (CollectionId(record.collection), RecordId(record.record));
            changes.push(AppliedChange { collection, record, kind });
            places.push(*address);
        }
        let Scratch { plan, guard } = scratch;
        guard.enter();
        let applied = self.apply_unit(seq, &mut unit, &places, (plan, &mut *guard));
        guard.leave();
        applied.map(|()| changes)
    }

    /// Adds a record to a unit, with its keys.
    fn add_copied<'r>(
        &self,
        unit: &mut WriteUnit<'r>,
        kind: Kind,
        record: &'r FrameRecord,
        guard: &mut Guard,
    ) -> Result<AppliedKind, StorageError> {
        let collection = CollectionId(record.collection);
        let id = RecordId(record.record);
        match kind {
            Kind::CreateStore => {
                unit.push(collection, RecordId(0), OpKind::CreateStore);
                return Ok(AppliedKind::StoreCreated);
            }
            Kind::DropStore => {
                unit.push(collection, RecordId(0), OpKind::DropStore);
                return Ok(AppliedKind::StoreDropped);
            }
            Kind::Put | Kind::Tombstone => {}
            kind => return Err(corrupt(format!("a frame has a record of kind {kind:?}"))),
        }
        // The unit itself may create it: then it has no indexes yet.
        let store = self.registry.store(collection);
        let old = match &store {
            Some(store) => self.document(store, id.0, None, guard)?,
            None => None,
        };
        let new = (kind == Kind::Put).then_some(&record.payload[..]);
        let applied = match (&old, new) {
            (None, Some(doc)) => {
                unit.push(collection, id, OpKind::Insert { doc: doc.into() });
                AppliedKind::Inserted
            }
            (Some((seen, _)), Some(doc)) => {
                unit.update(collection, id, CommitSeq(*seen), doc);
                AppliedKind::Updated
            }
            (Some((seen, _)), None) => {
                unit.delete(collection, id, CommitSeq(*seen));
                AppliedKind::Deleted
            }
            (None, None) => {
                return Err(StorageError::Corruption {
                    collection: Some(collection),
                    record: Some(id),
                    message: "a frame deletes it, and it does not exist".to_owned(),
                });
            }
        };
        if let Some(store) = &store {
            let old = old.as_ref().map(|(_, bytes)| &bytes[..]);
            for change in self.key_changes(store, id.0, old, new)? {
                let bits = change.bits.as_deref();
                let index = change.index.spec.id;
                unit.key(index, bits.is_some(), false, &change.key, bits.unwrap_or_default());
            }
        }
        Ok(applied)
    }

    /// Takes a commit's steps, with records that are in the log at these places.
    fn apply_unit(
        &self,
        seq: CommitSeq,
        unit: &mut WriteUnit<'_>,
        places: &[Address],
        (plan, guard): (&mut Plan, &mut Guard),
    ) -> Result<(), StorageError> {
        plan.make(self, unit)?;
        plan.copied = true;
        loop {
            plan.look_up(self, unit, guard)?;
            let latched = plan.latched();
            let latches = latched.latch();
            match plan.check(self, unit, guard) {
                Ok(()) => {}
                Err(Again::Refused(error)) => return Err(error),
                // The cleaner has moved a record.
                Err(Again::Plan | Again::Room(_) | Again::Held) => continue,
            }
            for (step, place) in plan.steps.iter_mut().zip(places) {
                step.address = *place;
            }
            let appended = self.head.begin_applying(&self.acks);
            if appended.seq != seq.0 {
                return Err(corrupt(format!("commit {} comes after {}", seq.0, appended.seq - 1)));
            }
            (plan.holding, plan.holds) = (appended.holding, appended.holds);
            plan.apply(self, unit, guard, seq.0);
            let published = self.head.publish(appended);
            drop(latches);
            return published.map(drop);
        }
    }
}
