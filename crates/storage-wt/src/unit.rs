//! The recovery unit: a session with a transaction, and copies of what was read through it.
//!
//! WiredTiger's memory moves when a cursor moves, so documents are copied once, into the unit. A unit with a held
//! snapshot keeps its session in that transaction between two entries. Invariant: [`Kept`] only grows while the
//! unit is borrowed, so returned values live as long as the borrow; only `leave`, which needs the unit exclusively,
//! empties it.

use crate::core::{Core, Lent, failed};
use crate::registry::{IndexState, StoreState};
use crate::snapshots::Held;
use crate::sys::Code;
use kauri_base::{CommitSeq, RecordId};
use kauri_storage::{RecoveryUnit, StorageError, WriteSet};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::sync::Arc;

/// See the module's head.
pub struct WtUnit {
    core: Arc<Core>,
    entered: bool,
    snapshot: CommitSeq,
    session: RefCell<std::result::Result<Lent, Code>>,
    kept: Kept,
    /// Records that a scan has copied on its way, to be looked up next.
    ahead: RefCell<Ahead>,
    held: Option<Box<Held>>,
}

/// What a scan's last batch has copied.
#[derive(Default)]
pub struct Ahead {
    /// The table that the records are of.
    table: u64,
    records: Vec<(RecordId, Place)>,
    /// Where the next lookup will probably find its record.
    next: usize,
}

impl WtUnit {
    /// A unit that has not entered.
    pub fn new(core: Arc<Core>) -> WtUnit {
        WtUnit {
            core,
            entered: false,
            snapshot: CommitSeq(0),
            session: RefCell::new(Err(Code::NOT_FOUND)),
            kept: Kept::default(),
            ahead: RefCell::default(),
            held: None,
        }
    }

    /// The snapshot that it holds, if it does.
    pub fn held(&self) -> Option<&Held> {
        self.held.as_deref()
    }

    /// What was read of a store, as a unit that holds a snapshot answers it.
    pub fn held_store<T>(
        &self,
        held: &Held,
        store: &StoreState,
        read: Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        held.check_store(store)?;
        read
    }

    /// The same of an index.
    pub fn held_index<T>(
        &self,
        held: &Held,
        index: &IndexState,
        read: Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let store = self.core.read().stores.get(&index.collection).cloned();
        match store.filter(|_| !index.is_dropped() && !held.hold.is_before(&index.created)) {
            Some(store) => self.held_store(held, &store, read),
            None => Err(StorageError::SnapshotUnavailable(index.collection)),
        }
    }

    /// The code of a failed read as an error.
    pub fn failed(&self, code: Code) -> StorageError {
        match code {
            // The cache had no room left for what the snapshot holds back.
            Code::ROLLBACK if self.held.is_some() => StorageError::SnapshotTooOld,
            code => failed(code),
        }
    }

    /// This engine's unit behind the trait object, entered.
    pub fn of(ru: &dyn RecoveryUnit) -> Result<&WtUnit, StorageError> {
        match ru.as_any().downcast_ref::<WtUnit>() {
            Some(unit) if unit.entered => Ok(unit),
            Some(_) => Err(StorageError::Io("the recovery unit has not entered".to_owned())),
            None => Err(StorageError::Io("the recovery unit of another engine".to_owned())),
        }
    }

    /// The session, in a transaction.
    pub fn session(&self) -> Result<RefMut<'_, Lent>, StorageError> {
        let session = self.session.borrow_mut();
        if let Err(code) = &*session {
            return Err(failed(*code));
        }
        RefMut::filter_map(session, |session| session.as_mut().ok())
            .map_err(|_| failed(Code::NOT_FOUND))
    }

    /// What was read through the unit.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// A scan's new batch of this table.
    pub fn set_ahead(&self, table: u64, records: Vec<(RecordId, Place)>) {
        *self.ahead.borrow_mut() = Ahead { table, records, next: 0 };
    }

    /// The record's value, if a scan has just passed it.
    pub fn ahead(&self, table: u64, id: RecordId) -> Option<&[u8]> {
        let mut ahead = self.ahead.borrow_mut();
        if ahead.table != table {
            return None;
        }
        let at = ahead.next;
        let (_, place) = *ahead.records.get(at).filter(|(record, _)| *record == id)?;
        ahead.next = at + 1;
        self.kept.get(place)
    }
}

impl RecoveryUnit for WtUnit {
    fn enter(&mut self) {
        self.leave();
        self.entered = true;
        if let Some(held) = &self.held {
            self.snapshot = held.hold.seq;
            return;
        }
        // First the number, then the snapshot: it holds at least what the number says.
        self.snapshot = self.core.sequence.visible();
        *self.session.get_mut() = self.core.session().and_then(|mut session| {
            session.begin()?;
            Ok(session)
        });
    }

    fn leave(&mut self) {
        if !std::mem::take(&mut self.entered) {
            return;
        }
        match (&self.held, self.session.get_mut()) {
            (Some(_), Ok(session)) => session.reset_cursors(),
            _ => self.give_session_back(),
        }
        *self.ahead.get_mut() = Ahead::default();
        self.kept.clear();
    }

    fn is_entered(&self) -> bool {
        self.entered
    }

    fn snapshot(&self) -> CommitSeq {
        self.snapshot
    }

    fn hold_snapshot(&mut self) -> Result<CommitSeq, StorageError> {
        self.leave();
        self.release_snapshot();
        let mut session = self.core.session().map_err(failed)?;
        let core = self.core.clone();
        let hold = core.sequence.quietly(|seq| {
            let hold = core.snapshots.hold(seq)?;
            session.begin().map(|()| hold).map_err(|code| {
                core.snapshots.release();
                failed(code)
            })
        })?;
        *self.session.get_mut() = Ok(session);
        self.held = Some(Box::new(Held { hold, write_set: WriteSet::default() }));
        Ok(hold.seq)
    }

    fn release_snapshot(&mut self) {
        if self.held.take().is_some() {
            self.give_session_back();
            self.core.snapshots.release();
        }
    }

    fn write_set(&self) -> Option<&WriteSet> {
        self.held.as_ref().map(|held| &held.write_set)
    }

    fn write_set_mut(&mut self) -> Option<&mut WriteSet> {
        self.held.as_mut().map(|held| &mut held.write_set)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl WtUnit {
    /// Ends the transaction.
    fn give_session_back(&mut self) {
        if let Ok(session) = self.session.get_mut() {
            session.rollback();
        }
        *self.session.get_mut() = Err(Code::NOT_FOUND);
    }
}

impl Drop for WtUnit {
    fn drop(&mut self) {
        self.leave();
        self.release_snapshot();
    }
}

/// Chunk `n` has room for `CHUNK_FIRST << n` values, so this many are never used up.
const CHUNKS: usize = 40;
const CHUNK_FIRST: usize = 4;

type Chunk = Box<[OnceCell<Box<[u8]>>]>;

/// Values that stay where they are until all are given up.
pub struct Kept {
    chunks: [OnceCell<Chunk>; CHUNKS],
    /// The chunk being filled, and how many of its places are taken.
    filling: Cell<Place>,
}

/// Where a value is kept: its chunk, and its place there.
pub type Place = (usize, usize);

impl Default for Kept {
    fn default() -> Kept {
        Kept { chunks: [const { OnceCell::new() }; CHUNKS], filling: Cell::new((0, 0)) }
    }
}

impl Kept {
    /// Keeps a copy.
    pub fn keep(&self, value: &[u8]) -> Place {
        let (mut chunk, mut place) = self.filling.get();
        if place == CHUNK_FIRST << chunk {
            (chunk, place) = (chunk + 1, 0);
        }
        self.filling.set((chunk, place + 1));
        if let Some(places) = self.chunks.get(chunk) {
            let places =
                places.get_or_init(|| (0..CHUNK_FIRST << chunk).map(|_| OnceCell::new()).collect());
            if let Some(cell) = places.get(place) {
                let _ = cell.set(value.into());
            }
        }
        (chunk, place)
    }

    /// What is kept at this place.
    pub fn get(&self, (chunk, place): Place) -> Option<&[u8]> {
        self.chunks.get(chunk)?.get()?.get(place)?.get().map(|value| &**value)
    }

    fn clear(&mut self) {
        self.filling.set((0, 0));
        // The first chunk is emptied but kept: most operations read a few documents only.
        let mut chunks = self.chunks.iter_mut();
        if let Some(places) = chunks.next().and_then(OnceCell::get_mut) {
            for place in places.iter_mut() {
                place.take();
            }
        }
        for chunk in chunks {
            if chunk.take().is_none() {
                break;
            }
        }
    }
}
