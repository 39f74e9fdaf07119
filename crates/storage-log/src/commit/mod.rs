//! Commits a unit.
//!
//! 1. *Plan* ([`look_up`]), without latches: find stores and indexes, compute the documents' CRCs, check that each
//!    changed record still has the version that the unit saw, and note its place.
//! 2. Take the latches of all collections of the unit, in the order of their ids.
//! 3. *Check* ([`check`]): definitions, the noted places, unique keys.
//! 4. *Append* under the head's mutex: this assigns the commit sequence. If the log is memory, the unit is durable
//!    when this step ends.
//! 5. *Apply* ([`apply`]): switch addresses, change indexes and counters.
//! 6. Publish the commit sequence in order; release the latches.
//!
//! A follower's units ([`apply_frames`]) are in the log already: their step 4 only takes the number.
//!
//! Steps 2 to 6 do no I/O. If something is missing (a record that the cleaner just moved out of memory, space in
//! prepared segments), they release everything, obtain it, and start again.

mod apply;
mod apply_frames;
mod bury;
mod check;
mod key_changes;
mod look_up;
mod pending_log;
#[cfg(test)]
mod tests;

use crate::core::Core;
use crate::format::record::{
    COMMIT_PAYLOAD_BYTES, CommitPayload, FLAG_ALONE, Kind, RecordHeader, unit_crc,
};
use crate::head::{Append, Appended, Appender, NotAppended};
use crate::plan::{Plan, Scratch};
use crate::segments::Purpose;
use kauri_base::log::{self, Attr};
use kauri_medium::Guard;
use kauri_storage::{CommitTicket, LogPosition, OpKind, RoomWanted, StorageError, WriteUnit};

/// Why a step could not be done without giving the latches up.
enum Again {
    /// A record is elsewhere than noted.
    Plan,
    /// There is no room in the prepared segments, of which there have been this many.
    Room(u64),
    /// Files are held, so nothing is appended.
    Held,
    /// The unit is refused.
    Refused(StorageError),
}

impl From<NotAppended> for Again {
    #[inline]
    fn from(why: NotAppended) -> Self {
        match why {
            NotAppended::Room(prepared_ever) => Again::Room(prepared_ever),
            NotAppended::Held => Again::Held,
            NotAppended::Failed(error) => Again::Refused(error),
        }
    }
}

impl From<StorageError> for Again {
    fn from(error: StorageError) -> Self {
        Again::Refused(error)
    }
}

impl Core {
    /// See [`kauri_storage::StorageEngine::commit`].
    pub fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        self.commit_as(unit, None).map(|seq| self.acks.tickets(seq))
    }

    /// Commits a unit, or appends it as pending. Answers its number.
    fn commit_as(
        &self,
        unit: &mut WriteUnit<'_>,
        pending: Option<LogPosition>,
    ) -> Result<u64, StorageError> {
        loop {
            // Nothing may be pinned while segments are opened: the cleaner waits for guards.
            match self.commit_once(unit, pending)? {
                Ok(seq) => return Ok(seq),
                Err(RoomWanted { for_documents, before }) => {
                    let purpose = if for_documents { Purpose::Write } else { Purpose::Delete };
                    self.make_room(purpose, before)?;
                }
            }
        }
    }

    /// The same, unless there is no room.
    pub(crate) fn commit_once(
        &self,
        unit: &mut WriteUnit<'_>,
        pending: Option<LogPosition>,
    ) -> Result<Result<u64, RoomWanted>, StorageError> {
        self.check_alive()?;
        let ddl = unit.ops.iter().any(|op| is_ddl(&op.kind)).then(|| self.registry.lock_ddl());
        let mut scratch = self.scratches.take(&self.domain);
        scratch.guard.enter();
        let result = self.commit_with(unit, pending, &mut scratch);
        scratch.guard.leave();
        self.scratches.keep(scratch);
        drop(ddl);
        result
    }

    /// See [`kauri_storage::StorageEngine::check`].
    pub fn check(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        self.check_alive()?;
        let mut scratch = self.scratches.take(&self.domain);
        scratch.guard.enter();
        let result = self.check_with(unit, &mut scratch);
        scratch.guard.leave();
        self.scratches.keep(scratch);
        result
    }

    fn check_with(&self, unit: &WriteUnit<'_>, scratch: &mut Scratch) -> Result<(), StorageError> {
        self.check_memory(unit)?;
        let Scratch { plan, guard } = scratch;
        plan.make(self, unit)?;
        loop {
            plan.look_up(self, unit, guard)?;
            let latched = plan.latched();
            let latches = latched.latch();
            let checked = plan.check(self, unit, guard);
            drop(latches);
            match checked {
                Ok(()) => return Ok(()),
                Err(Again::Refused(error)) => return Err(error),
                Err(Again::Plan | Again::Room(_) | Again::Held) => {}
            }
        }
    }

    fn commit_with(
        &self,
        unit: &mut WriteUnit<'_>,
        pending: Option<LogPosition>,
        scratch: &mut Scratch,
    ) -> Result<Result<u64, RoomWanted>, StorageError> {
        if pending.is_none() {
            // What a replicated log has decided is not refused.
            self.check_memory(unit)?;
        }
        let plan = &mut scratch.plan;
        plan.make(self, unit)?;
        plan.pending = pending;
        // Early: what the head refuses would cost the looking up.
        if self.head.follows() && plan.records() > 0 {
            return Err(StorageError::NotPrimary);
        }
        loop {
            plan.look_up(self, unit, &mut scratch.guard)?;
            match self.commit_planned(unit, plan, &scratch.guard) {
                Ok(seq) => return Ok(Ok(seq)),
                Err(Again::Plan) => {}
                Err(Again::Room(before)) => {
                    let for_documents = plan.purpose() == Purpose::Write;
                    return Ok(Err(RoomWanted { for_documents, before }));
                }
                Err(Again::Held) => return Err(StorageError::FilesHeld),
                Err(Again::Refused(error)) => return Err(error),
            }
        }
    }

    fn commit_planned(
        &self,
        unit: &mut WriteUnit<'_>,
        plan: &mut Plan,
        guard: &Guard,
    ) -> Result<u64, Again> {
        let latched = plan.latched();
        let latches = latched.latch();
        plan.check(self, unit, guard)?;
        if plan.pending.is_some() {
            self.claims.claim(unit)?;
        } else if plan.records() == 0 {
            plan.holds = self.head.holds();
            plan.apply(self, unit, guard, 0);
            return Ok(self.visible().0);
        }
        let appended = self.append(unit, plan)?;
        match plan.pending {
            None => plan.apply(self, unit, guard, appended.seq),
            Some(position) => plan.apply_pending(self, unit, guard, (appended.seq, position)),
        }
        let seq = self.head.publish(appended)?;
        drop(latches);
        Ok(seq)
    }

    /// Appends the unit's records and gives it its sequence number.
    fn append(&self, unit: &WriteUnit<'_>, plan: &mut Plan) -> Result<Appended<'_>, Again> {
        let records = plan.records();
        let pending = plan.pending;
        let with_commit = records > 1 || pending.is_some();
        let flags = if with_commit { 0 } else { FLAG_ALONE };
        let lens = plan.payload_lens().chain(with_commit.then_some(COMMIT_PAYLOAD_BYTES));
        let mut head = self.begin(Append::Unit, lens)?;
        let seq = head.seq();
        let mut crcs = 0;
        for (step, op) in plan.logged_steps(unit) {
            let header = step.header(op, pending.is_some(), flags, seq);
            let payload = match &op.kind {
                OpKind::Insert { doc } | OpKind::Update { doc, .. } => &doc[..],
                _ => &[],
            };
            let (address, crc) = head.append(&header, payload)?;
            step.address = address;
            crcs = unit_crc(crcs, crc);
        }
        if with_commit {
            let LogPosition { term, index } = pending.unwrap_or_default();
            let payload = CommitPayload { count: records as u32, crc: crcs, term, index }.encode();
            let kind = if pending.is_some() { Kind::PendingCommit } else { Kind::Commit };
            let header = RecordHeader {
                kind,
                flags: 0,
                payload_len: payload.len() as u32,
                payload_crc: crc32c::crc32c(&payload),
                collection: 0,
                record: 0,
                seq,
            };
            (plan.commit_at, _) = head.append(&header, &payload)?;
            plan.commit_len = COMMIT_PAYLOAD_BYTES;
        }
        let appended = head.finish()?;
        (plan.holding, plan.holds) = (appended.holding, appended.holds);
        Ok(appended)
    }

    /// Begins to append a unit, or what closes or resolves units, whose records have payloads of these lengths.
    #[inline]
    pub(crate) fn begin(
        &self,
        what: Append,
        payload_lens: impl Iterator<Item = u32> + Clone,
    ) -> Result<Appender<'_>, NotAppended> {
        let acknowledges = self.cache.is_direct() && self.scarcity() == 0.0;
        self.head.begin(self.surroundings(acknowledges), what, payload_lens)
    }

    /// Obtains another segment for user writes, and cleans if none is free.
    pub(crate) fn make_room(
        &self,
        purpose: Purpose,
        prepared_ever: u64,
    ) -> Result<(), StorageError> {
        self.check_alive()?;
        let Some(_work) = self.files.enter() else { return Err(StorageError::FilesHeld) };
        let made = match self.prepare(purpose, prepared_ever) {
            Err(StorageError::OutOfDiskSpace) => self.clean_for(purpose, prepared_ever),
            result => result,
        };
        if purpose == Purpose::Write && made == Err(StorageError::OutOfDiskSpace) {
            self.tell_room(false);
        }
        made
    }

    /// Logs when disk space for writes runs out, and when it is available again.
    pub(crate) fn tell_room(&self, has_room: bool) {
        if !self.segments.note_room(has_room) {
            return;
        }
        let usage = self.segments.usage();
        let segment_bytes = u64::from(self.segments.segment_bytes());
        let mut attr = Attr::new()
            .str("place", self.directory.describe())
            .num("logBytes", u64::from(usage.count) * segment_bytes)
            .num("liveBytes", usage.live_bytes);
        if self.options.bytes_max > 0 {
            attr = attr.num("maxBytes", self.options.bytes_max);
        }
        if let Some((size, used)) = self.directory.space() {
            attr = attr.num("fileSystemFreeBytes", size.saturating_sub(used));
        }
        if has_room {
            log::info(
                "STORAGE",
                6_200_031,
                "-",
                "Disk space is available again; writes are accepted",
                attr,
            );
            return;
        }
        let message = "No disk space left for data: inserts and updates are refused. Delete documents (deletes are \
                       accepted), free disk space, or raise --maxSizeGB";
        log::warning("STORAGE", 6_200_030, "-", message, attr);
    }
}

fn is_ddl(kind: &OpKind<'_>) -> bool {
    matches!(
        kind,
        OpKind::CreateStore
            | OpKind::DropStore
            | OpKind::CreateIndex { .. }
            | OpKind::DropIndex { .. }
    )
}
