//! Statements of numbered writes are executed once (retryable writes).
//!
//! The statements of a unit and their results are in the data of the frame that closes the unit, so every member that
//! has applied the unit knows of them:
//!
//! - [`SetCommitter`] notes a unit's statements, while it keeps frames from being closed ([`Statements::close`]). So
//!   they are in the frame of their unit.
//! - A leader's [`Table`] has a statement with its commit, a follower's once the frame is applied, and one that starts
//!   reads the frames of the window.
//!
//! Invariant: two attempts of a session never commit at the same time, so no statement is executed twice.

pub mod encoding;
pub mod table;

use crate::checkpoint;
use crate::unit_notes::{self, UnitNotes};
use encoding::Executed;
use kauri_base::log::{self, Attr};
use kauri_base::{Clock, CollectionId, CommitSeq, work};
use kauri_storage::{
    CommitTicket, Committer, NumberedWrite, RoomWanted, StorageEngine, StorageError, WriteUnit,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use table::{Bounds, Done, SessionId, Table};

/// Room that a result leaves to the rest of its unit's bytes.
const RESERVE: usize = 64;
const SHARDS: usize = 4;
/// Memory of all tables.
const BOUNDS: Bounds =
    Bounds { result_bytes: (64 << 20) / SHARDS, other_bytes: (64 << 20) / SHARDS };

/// What is known of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Known {
    /// It was not executed.
    New,
    /// Its session commits at this moment: look again.
    Busy,
    /// It was executed.
    Done(Done),
}

/// Why a numbered write does not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotBegun {
    /// Its session has used this greater number since.
    Older(i64),
    /// So many sessions have written that no more can be remembered.
    NoRoom,
}

struct Shard {
    table: Table,
    /// Sessions that commit at this moment: one for each worker at most.
    busy: Vec<SessionId>,
}

/// See the module's head.
pub struct Statements {
    shards: [Mutex<Shard>; SHARDS],
    /// Read while a unit is committed and noted, written while a frame is closed.
    gate: RwLock<()>,
    /// Of units without a frame.
    noted: Mutex<Noted>,
}

/// What the next frame tells of its units.
#[derive(Default)]
struct Noted {
    statements: Vec<u8>,
    notes: UnitNotes,
    /// Bytes for units that are being committed.
    reserved: usize,
}

impl Noted {
    fn len(&self) -> usize {
        self.statements.len() + self.notes.bytes() + self.reserved
    }
}

impl Default for Statements {
    fn default() -> Self {
        let shard = || Mutex::new(Shard { table: Table::new(BOUNDS), busy: Vec::new() });
        Statements {
            shards: std::array::from_fn(|_| shard()),
            gate: RwLock::default(),
            noted: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Statements {
    fn shard(&self, session: &SessionId) -> MutexGuard<'_, Shard> {
        let [first, ..] = *session;
        let shard = &self.shards[usize::from(first) % SHARDS];
        lock(shard)
    }

    /// A session begins a write of this number, or sends it again. Times are the clock's monotonic one.
    pub fn begin(&self, session: SessionId, number: i64, now_ms: u64) -> Result<(), NotBegun> {
        let mut shard = self.shard(&session);
        shard.table.find(&session, number, 0, now_ms).map_err(NotBegun::Older)?;
        if !shard.table.has_room(&session, now_ms) {
            return Err(NotBegun::NoRoom);
        }
        shard.table.begin(session, number, now_ms);
        Ok(())
    }

    /// What is known of a statement. Fails with a greater number that the session has used since.
    pub fn look(
        &self,
        session: &SessionId,
        number: i64,
        statement: i32,
        now_ms: u64,
    ) -> Result<Known, i64> {
        let shard = self.shard(session);
        Ok(match shard.table.find(session, number, statement, now_ms)? {
            Some(done) => Known::Done(done),
            None if shard.busy.contains(session) => Known::Busy,
            None => Known::New,
        })
    }

    /// Statements of a frame's data, executed so long ago, are known from now on.
    pub fn learn(&self, data: &[u8], now_ms: u64, age_ms: u64) {
        for executed in Executed::decode(data).into_iter().flatten() {
            let when_ms = now_ms.saturating_sub(age_ms);
            self.shard(&executed.session).table.note(&executed, when_ms);
        }
    }

    /// What is known of all sessions, as the contents of a [`checkpoint`] file; and `newest` as of the same moment, at
    /// which nothing of a session is being committed. Times are the monotonic one and milliseconds since 1970.
    pub fn snapshot<T>(
        &self,
        (now_ms, wall_ms): (u64, i64),
        newest: impl FnOnce() -> T,
    ) -> (Vec<u8>, T) {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let newest = newest();
        let (mut contents, mut unit) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            for (used_ms, executed) in lock(shard).table.all(now_ms) {
                unit.clear();
                executed.encode(&mut unit);
                let age_ms = now_ms.saturating_sub(used_ms);
                checkpoint::put(&mut contents, wall_ms.saturating_sub_unsigned(age_ms), &unit);
            }
        }
        (contents, newest)
    }

    /// Closes a frame with the statements and the notes of all units that have none. Nothing with documents is committed
    /// meanwhile.
    pub fn close<T, E>(&self, close: impl FnOnce(&[u8], &[u8]) -> Result<T, E>) -> Result<T, E> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut noted = lock(&self.noted);
        let result = close(&noted.statements, &noted.notes.encode());
        if result.is_ok() {
            noted.statements.clear();
            noted.notes.clear();
        }
        result
    }

    /// Keeps a session's other attempts from committing. Fails if a statement was executed, or another attempt commits.
    fn enter(&self, write: &NumberedWrite, now_ms: u64) -> Result<Busy<'_>, StorageError> {
        let mut shard = self.shard(&write.session);
        if shard.busy.contains(&write.session) {
            return Err(StorageError::WriteConflict);
        }
        for (statement, _) in &write.statements {
            match shard.table.find(&write.session, write.number, *statement, now_ms) {
                Ok(None) => {}
                Ok(Some(_)) => return Err(StorageError::Executed),
                Err(newer) => return Err(StorageError::OldNumber(newer)),
            }
        }
        shard.busy.push(write.session);
        Ok(Busy { statements: self, session: write.session })
    }
}

/// A session that commits.
struct Busy<'s> {
    statements: &'s Statements,
    session: SessionId,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut shard = self.statements.shard(&self.session);
        shard.busy.retain(|session| *session != self.session);
    }
}

/// Commits to the engine of a member, and notes the statements of numbered writes.
pub struct SetCommitter {
    engine: Arc<dyn StorageEngine>,
    statements: Arc<Statements>,
    clock: Arc<dyn Clock>,
    /// Bytes of noted statements that a frame has room for; `None`: there are no frames.
    room: Option<usize>,
    /// Told of the time when the engine has no room. Whether another attempt is worthwhile.
    without_room: Box<dyn Fn(u64) -> bool + Send + Sync>,
}

impl SetCommitter {
    /// A committer of the member that has these statements.
    pub fn new(
        engine: Arc<dyn StorageEngine>,
        statements: Arc<Statements>,
        clock: Arc<dyn Clock>,
    ) -> SetCommitter {
        // Entries have content of their own.
        let room = engine.replicated_log().map(|log| log.frame_data_bytes_max() / 2).ok();
        SetCommitter { engine, statements, clock, room, without_room: Box::new(|_| false) }
    }

    /// The same, for a member that hands the leadership over if there is no room for a write: `without_room` is told of
    /// the time in milliseconds, and says whether that is under way.
    pub fn handing_over(
        self,
        without_room: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> SetCommitter {
        SetCommitter { without_room: Box::new(without_room), ..self }
    }

    /// A numbered write is tried again while another member takes over: then its client learns of it.
    fn without_room(&self, is_numbered: bool) -> StorageError {
        let now_ms = self.clock.monotonic().as_millis() as u64;
        match (self.without_room)(now_ms) && is_numbered {
            true => StorageError::WriteConflict,
            false => StorageError::OutOfDiskSpace,
        }
    }

    /// Commits a unit of documents, and notes for its frame what is to be told of it.
    fn commit_noted(
        &self,
        unit: &mut WriteUnit<'_>,
        write: Option<&NumberedWrite>,
    ) -> Result<CommitTicket, StorageError> {
        let now_ms = self.clock.monotonic().as_millis() as u64;
        let statements = &*self.statements;
        let _busy = write.map(|write| statements.enter(write, now_ms)).transpose()?;
        let room = self.room.unwrap_or(usize::MAX).saturating_sub(RESERVE);
        let executed = write.map(|write| (write, Executed::of(write, room)));
        loop {
            match self.attempt(unit, executed.as_ref(), now_ms)? {
                Ok((ticket, left_out)) => {
                    tell_left_out(ticket.seq, left_out);
                    return Ok(ticket);
                }
                // Room may come with the next frame, which can be closed now.
                Err(wanted) => self.engine.replicated_log()?.wait_for_room(wanted)?,
            }
        }
    }

    fn attempt(
        &self,
        unit: &mut WriteUnit<'_>,
        executed: Option<&(&NumberedWrite, Executed)>,
        now_ms: u64,
    ) -> Result<Result<(CommitTicket, usize), RoomWanted>, StorageError> {
        let statements = &*self.statements;
        let mut bytes = Vec::new();
        executed.iter().for_each(|(_, executed)| executed.encode(&mut bytes));
        let _gate = statements.gate.read().unwrap_or_else(PoisonError::into_inner);
        let committed = match self.room {
            Some(room) => self.commit_in_frame(unit, &bytes, room)?,
            None => Ok((self.engine.commit(unit)?, 0)),
        };
        if let (Ok(_), Some((write, executed))) = (&committed, executed) {
            statements.shard(&write.session).table.note(executed, now_ms);
        }
        Ok(committed)
    }

    /// Under the gate, so that what is told of the unit goes into its frame. Answers how many notes were left out, too.
    fn commit_in_frame(
        &self,
        unit: &mut WriteUnit<'_>,
        bytes: &[u8],
        room: usize,
    ) -> Result<Result<(CommitTicket, usize), RoomWanted>, StorageError> {
        let log = self.engine.replicated_log()?;
        let of_definitions = unit.ops.iter().any(|op| op.collection == CollectionId::CATALOG);
        // A change of definitions is not committed again, so it has room that others do not take.
        let most = if of_definitions { room + room / 4 } else { room }.saturating_sub(RESERVE);
        let mut items = unit_notes::of_unit(unit, room / 2);
        let mut reserved = {
            let mut noted = lock(&self.statements.noted);
            let others = noted.len();
            let mut growth = bytes.len() + noted.notes.growth(&unit.labels, &items);
            if others > 0 && others + growth > most {
                if !of_definitions {
                    // The next frame has room.
                    return Err(StorageError::WriteConflict);
                }
                items = unit_notes::of_unit(unit, most.saturating_sub(others) / 2);
                growth = bytes.len() + noted.notes.growth(&unit.labels, &items);
            }
            noted.reserved += growth;
            Reserved { statements: &self.statements, bytes: growth }
        };
        let ticket = match log.commit_in_room(unit)? {
            Ok(ticket) => ticket,
            Err(wanted) => return Ok(Err(wanted)),
        };
        reserved.fill(|noted| {
            noted.statements.extend_from_slice(bytes);
            noted.notes.add(ticket.seq.0, &unit.labels, &items);
        });
        Ok(Ok((ticket, items.left_out)))
    }
}

/// Logs that an oplog entry is an error to whoever reads it.
fn tell_left_out(seq: CommitSeq, notes: usize) {
    if notes > 0 {
        let attr = Attr::new().num("commit", seq.0).num("notes", notes as u64);
        let message =
            "An oplog entry cannot be read: what it deletes or replaces has no room in the log";
        log::warning("REPL", 6_400_021, "member", message, attr);
    }
}

/// Bytes of the next frame, for a unit that is being committed.
struct Reserved<'s> {
    statements: &'s Statements,
    bytes: usize,
}

impl Reserved<'_> {
    fn fill(&mut self, fill: impl FnOnce(&mut Noted)) {
        let mut noted = lock(&self.statements.noted);
        noted.reserved -= std::mem::take(&mut self.bytes);
        fill(&mut noted);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            lock(&self.statements.noted).reserved -= self.bytes;
        }
    }
}

impl Committer for SetCommitter {
    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        let result = work::unmetered(|| {
            let write = unit.numbered.take();
            let has_documents = unit.ops.iter().any(|op| op.kind.is_of_document());
            let result = match write.is_some() || has_documents && self.room.is_some() {
                true => self.commit_noted(unit, write.as_deref()),
                false => self.engine.commit(unit),
            };
            unit.numbered = write;
            result
        });
        result.map_err(|error| match error {
            StorageError::OutOfDiskSpace => self.without_room(unit.numbered.is_some()),
            error => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_tells_all_that_is_known() {
        let statements = Statements::default();
        let write = |session, number, statements| NumberedWrite {
            session: [session; 16],
            number,
            statements,
        };
        let (plain, with_result) = (|n| (n, Vec::new()), |n| (n, b"result".to_vec()));
        let all = [
            (write(1, 5, vec![plain(0), plain(1), plain(7), with_result(9)]), 1_000),
            (write(2, 8, vec![with_result(0)]), 500),
            (write(6, 3, vec![]), 200),
        ];
        for (write, age_ms) in &all {
            let mut data = Vec::new();
            Executed::of(write, 100).encode(&mut data);
            statements.learn(&data, 2_000, *age_ms);
        }
        let (contents, newest) = statements.snapshot((2_000, 1_000_000), || 44);
        assert_eq!(newest, 44);
        let directory = kauri_emulator::Emulator::new(kauri_emulator::EmulatorConfig::default());
        checkpoint::write(&directory, contents).unwrap();
        let (read, mut times) = (Statements::default(), Vec::new());
        let learn = |when_ms, unit: &[u8]| {
            times.push(when_ms);
            read.learn(unit, 0, 0);
        };
        checkpoint::read(&directory, learn).unwrap();
        times.sort_unstable();
        assert_eq!(times, [999_000, 999_500, 999_800]);
        for (write, _) in &all {
            for (statement, _) in write.statements.iter().chain([&plain(2), &plain(8)]) {
                let look = |of: &Statements| of.look(&write.session, write.number, *statement, 0);
                assert_eq!(look(&read), look(&statements), "{write:?} {statement}");
            }
            let older = read.look(&write.session, write.number - 1, 0, 0);
            assert_eq!(older, Err(write.number));
        }
        let later = (2_000 + table::WINDOW_MS, 0);
        // One of them was used that long ago.
        assert!(!statements.snapshot((later.0 - 1_000, 0), || ()).0.is_empty());
        assert!(statements.snapshot(later, || ()).0.is_empty());
    }

    #[test]
    fn two_attempts_of_a_session_do_not_commit_at_the_same_time() {
        let statements = Statements::default();
        let write = |session, number, statement| NumberedWrite {
            session: [session; 16],
            number,
            statements: vec![(statement, Vec::new())],
        };
        let enters = |write: &NumberedWrite| statements.enter(write, 0).map(drop);
        let look = |statement| statements.look(&[1; 16], 5, statement, 0);
        let first = statements.enter(&write(1, 5, 0), 0);
        assert!(first.is_ok());
        for statement in [0, 1] {
            assert_eq!(enters(&write(1, 5, statement)), Err(StorageError::WriteConflict));
            assert_eq!(look(statement), Ok(Known::Busy));
        }
        assert_eq!(enters(&write(5, 5, 0)), Ok(()), "a session of the same part of the table");
        drop(first);
        assert_eq!((look(0), enters(&write(1, 5, 0))), (Ok(Known::New), Ok(())));
        let executed = Executed::of(&write(1, 5, 0), 0);
        let mut data = Vec::new();
        executed.encode(&mut data);
        statements.learn(&data, 0, 0);
        assert_eq!(look(0), Ok(Known::Done(Done::Plain)));
        assert_eq!(enters(&write(1, 5, 0)), Err(StorageError::Executed));
        assert_eq!(statements.begin([1; 16], 6, 0), Ok(()));
        assert_eq!(statements.begin([1; 16], 5, 0), Err(NotBegun::Older(6)));
        assert_eq!(enters(&write(1, 5, 1)), Err(StorageError::OldNumber(6)));
    }
}
