//! Committing a unit.
//!
//! 1. *Plan* ([`plan`]), without any latch: find the stores and indexes, compute the documents' CRCs,
//!    see that each record that is changed is in the version that was seen, and note where it is.
//! 2. Take the latches of all collections of the unit, in the order of their ids.
//! 3. *Check* ([`check`]): definitions, that the noted places still hold, unique keys.
//! 4. *Append* under the head's mutex: this gives the unit its commit sequence. Where the log is memory
//!    the unit is durable when this ends.
//! 5. *Apply* ([`apply`]): switch addresses, change indexes and counters.
//! 6. Publish the sequence number, in order; give the latches up.
//!
//! Steps 2 to 6 do no I/O. What they lack (a record that the cleaner just moved out of memory, room
//! in prepared segments) makes them give everything up, get it, and begin anew.

mod apply;
mod bury;
mod check;
mod pending;
mod plan;
#[cfg(test)]
mod tests;

use crate::core::Core;
use crate::format::record::{
    COMMIT_PAYLOAD_BYTES, CommitPayload, FLAG_ALONE, Kind, RecordHeader, unit_crc,
};
use crate::format::segment::HORIZON_BYTES;
use crate::lock;
use crate::segments::Purpose;
use kauri_base::log::{self, Attr};
use kauri_base::sync::atomic::Ordering;
use kauri_medium::Guard;
use kauri_storage::{CommitTicket, LogPosition, OpKind, StorageError, WriteUnit};
use plan::Plan;

/// What a commit works with. Kept, since it holds a guard and grown vectors.
pub struct Scratch {
    guard: Guard,
    plan: Plan,
}

/// How many are kept.
const SCRATCH_MAX: usize = 64;
/// A plan with room for more steps than this is not kept.
const SCRATCH_STEPS_MAX: usize = 4096;

/// Why a step could not be done without giving the latches up.
enum Again {
    /// A record is elsewhere than noted.
    Plan,
    /// There is no room in the prepared segments, of which there have been this many.
    Room(u64),
    /// The unit is refused.
    Refused(StorageError),
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
        self.check_alive()?;
        let ddl = unit.ops.iter().any(|op| is_ddl(&op.kind)).then(|| lock(&self.registry.ddl));
        let mut scratch = self.take_scratch();
        scratch.guard.enter();
        let result = self.commit_with(unit, pending, &mut scratch);
        scratch.guard.leave();
        self.keep_scratch(scratch);
        drop(ddl);
        result
    }

    /// See [`kauri_storage::StorageEngine::check`].
    pub fn check(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        self.check_alive()?;
        let mut scratch = self.take_scratch();
        scratch.guard.enter();
        let result = self.check_with(unit, &mut scratch);
        scratch.guard.leave();
        self.keep_scratch(scratch);
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
                Err(Again::Plan | Again::Room(_)) => {}
            }
        }
    }

    fn take_scratch(&self) -> Scratch {
        lock(&self.scratch)
            .pop()
            .unwrap_or_else(|| Scratch { guard: self.domain.register(), plan: Plan::default() })
    }

    fn keep_scratch(&self, mut scratch: Scratch) {
        scratch.plan.clear();
        if scratch.plan.capacity() > SCRATCH_STEPS_MAX {
            scratch.plan = Plan::default();
        }
        let mut kept = lock(&self.scratch);
        if kept.len() < SCRATCH_MAX {
            kept.push(scratch);
        }
    }

    fn commit_with(
        &self,
        unit: &mut WriteUnit<'_>,
        pending: Option<LogPosition>,
        scratch: &mut Scratch,
    ) -> Result<u64, StorageError> {
        if pending.is_none() {
            // What a replicated log has decided is not refused.
            self.check_memory(unit)?;
        }
        let plan = &mut scratch.plan;
        plan.make(self, unit)?;
        plan.pending = pending;
        loop {
            plan.look_up(self, unit, &mut scratch.guard)?;
            match self.commit_planned(unit, plan, &scratch.guard) {
                Ok(seq) => return Ok(seq),
                Err(Again::Plan) => {}
                Err(Again::Room(prepared_ever)) => {
                    // Nothing may be pinned while segments are opened: the cleaner waits for guards.
                    scratch.guard.leave();
                    let purpose = plan.purpose();
                    let made = self.make_room(purpose, prepared_ever);
                    scratch.guard.enter();
                    made?;
                }
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
            plan.holds = lock(&self.head).holds().1;
            plan.apply(self, unit, guard, 0);
            return Ok(self.visible.load(Ordering::Acquire));
        }
        // From here on the sequence has a number that somebody has to publish.
        let unpublished = Unpublished(self);
        let seq = match self.append(unit, plan) {
            Err(Again::Room(prepared_ever)) => {
                std::mem::forget(unpublished);
                return Err(Again::Room(prepared_ever));
            }
            result => result?,
        };
        match plan.pending {
            None => plan.apply(self, unit, guard, seq),
            Some(position) => plan.apply_pending(self, unit, guard, (seq, position)),
        }
        std::mem::forget(unpublished);
        self.publish(seq)?;
        drop(latches);
        Ok(seq)
    }

    /// Appends the unit's records and gives it its sequence number.
    fn append(&self, unit: &WriteUnit<'_>, plan: &mut Plan) -> Result<u64, Again> {
        let records = plan.records();
        let pending = plan.pending;
        let with_commit = records > 1 || pending.is_some();
        let mut head = lock(&self.head);
        let direct = self.cache.is_direct();
        let durable = if direct { head.seq() } else { self.acks.durable() };
        let mark = head.wants_mark(durable, self.options.mark_interval_bytes);
        // In the order in which they are appended: it decides which segments they need.
        let before = mark.then_some(HORIZON_BYTES as u32);
        let after = with_commit.then_some(COMMIT_PAYLOAD_BYTES);
        if !head.fits(before.into_iter().chain(plan.payload_lens()).chain(after)) {
            return Err(Again::Room(head.prepared_ever()));
        }
        if mark {
            let horizon = self.horizon_at(&head);
            head.mark(&horizon).map_err(|error| self.broken(error))?;
        }
        let seq = head.next_seq();
        (plan.holding, plan.holds) = head.holds();
        let flags = if with_commit { 0 } else { FLAG_ALONE };
        let mut crcs = 0;
        for (step, op) in plan.logged_steps(unit) {
            let header = step.header(op, pending.is_some(), flags, seq);
            let payload = match &op.kind {
                OpKind::Insert { doc } | OpKind::Update { doc, .. } => &doc[..],
                _ => &[],
            };
            let (address, crc) =
                head.append(&header, payload).map_err(|error| self.broken(error))?;
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
            let appended = head.append(&header, &payload);
            (plan.commit_at, _) = appended.map_err(|error| self.broken(error))?;
            plan.commit_len = COMMIT_PAYLOAD_BYTES;
        }
        head.publish("commit.fence").map_err(|error| self.broken(error))?;
        // Where segments or memory are scarce the acknowledgement is left to `flush` and its throttle.
        if direct && self.scarcity() == 0.0 {
            self.acks.reach(seq);
        }
        if head.asks_for_preparation() {
            self.ahead_kick.kick();
        }
        Ok(seq)
    }

    /// A unit that was begun can't be appended: the log would have half of it, so it ends here.
    fn broken(&self, error: StorageError) -> Again {
        Again::Refused(self.fail("appending to the log", error))
    }

    /// Makes the commit visible, after all before it. Fails if one before it never will be.
    fn publish(&self, seq: u64) -> Result<(), StorageError> {
        let mut turns = 0u32;
        while self.visible.load(Ordering::Acquire) != seq - 1 {
            turns += 1;
            if turns < 64 {
                kauri_base::sync::hint::spin_loop();
            } else {
                self.check_alive()?;
                kauri_base::sync::thread::yield_now();
            }
        }
        self.visible.store(seq, Ordering::Release);
        Ok(())
    }

    /// Gets another segment for user writes, cleaning if there is none left.
    fn make_room(&self, purpose: Purpose, prepared_ever: u64) -> Result<(), StorageError> {
        self.check_alive()?;
        let made = match self.prepare(purpose, prepared_ever) {
            Err(StorageError::OutOfDiskSpace) => self.clean_for(purpose, prepared_ever),
            result => result,
        };
        if purpose == Purpose::Write {
            match &made {
                Ok(()) => self.tell_room(true),
                Err(StorageError::OutOfDiskSpace) => self.tell_room(false),
                Err(_) => {}
            }
        }
        made
    }

    /// Tells the log when room for writes runs out, and when there is some again.
    fn tell_room(&self, has_room: bool) {
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
            log::info("STORAGE", 6_200_031, "-", "There is room for data again", attr);
            return;
        }
        let message = "There is no room left for data: inserts and updates are refused. Delete documents, which \
                       is admitted, make room on the file system, or raise --maxSizeGB";
        log::warning("STORAGE", 6_200_030, "-", message, attr);
    }
}

/// Ends the engine if a commit that has a sequence number is given up half-way: no later one could
/// ever become visible.
struct Unpublished<'c>(&'c Core);

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        self.0.fail("committing", "a commit ended half-way");
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
