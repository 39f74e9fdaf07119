//! Members of a replica set: one leads and writes, others get copies of its frames. A *history* has the frames and
//! the state at each, to which members are compared.

pub mod copies;
pub mod crashes;
mod cuts;
mod fence;
pub mod gates;
mod run;

use crate::common::{bounded, dynamic, open};
use kauri_base::clock::SeededRandom;
use kauri_base::{CollectionId, CommitSeq, RandomSource, RecordId};
use kauri_conformance::inspect::{self, Stored};
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::Emulator;
use kauri_storage::{
    AppliedChange, AppliedKind, AppliedUnits, Frame, FrameRecord, LogPosition, OpKind,
    ReplicatedLog, StorageEngine, StorageError, WriteUnit,
};
use kauri_storage_log::{Options, PmLog};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const SEGMENTS: u32 = 48;
/// The position that logs begin with.
pub const BASE: LogPosition = LogPosition { term: 1, index: 100 };

pub fn log(engine: &PmLog) -> &dyn ReplicatedLog {
    engine.replicated_log().expect("a replicated log")
}

pub fn at(term: u64, index: u64) -> LogPosition {
    LogPosition { term, index }
}

/// The records of all collections that exist, with their versions.
pub type State = BTreeMap<CollectionId, BTreeMap<RecordId, (CommitSeq, Vec<u8>)>>;

pub type Copied = (Frame, Vec<FrameRecord>);

/// What a member should have at each index. Clones are cheap.
#[derive(Clone, Default)]
pub struct History {
    pub frames: BTreeMap<u64, Arc<Copied>>,
    pub states: BTreeMap<u64, Arc<State>>,
}

impl History {
    pub fn last(&self) -> LogPosition {
        self.frames.values().next_back().map_or(BASE, |copied| copied.0.position)
    }

    /// The state at this index.
    pub fn state(&self, index: u64) -> Arc<State> {
        self.states.get(&index).cloned().unwrap_or_default()
    }

    /// Without what is behind this index.
    pub fn cut(&self, index: u64) -> History {
        let mut cut = self.clone();
        cut.frames.retain(|at, _| *at <= index);
        cut.states.retain(|at, _| *at <= index);
        cut
    }
}

/// An engine of a member.
pub struct Member {
    pub emulator: Emulator,
    pub engine: Arc<PmLog>,
}

/// Each collection has an index, and one of unique keys.
pub fn table(engine: &Arc<PmLog>, id: CollectionId) -> Table {
    let indexes =
        [TableIndex::new(id.0 * 10, false, "k"), TableIndex::new(id.0 * 10 + 1, true, "u")];
    Table::new(&dynamic(engine), id.0, &indexes)
}

pub fn options() -> Options {
    bounded(SEGMENTS)
}

impl Member {
    /// A new one, whose log begins.
    pub fn new(emulator: Emulator) -> Member {
        let engine = open(&emulator, options());
        log(&engine).begin_frames(BASE).expect("begin");
        Member { emulator, engine }
    }

    /// The member of a directory.
    pub fn open(emulator: &Emulator) -> Member {
        let engine = open(emulator, options());
        for id in engine.stores() {
            table(&engine, id).attach();
        }
        Member { emulator: emulator.clone(), engine }
    }

    pub fn log(&self) -> &dyn ReplicatedLog {
        log(&self.engine)
    }

    pub fn state(&self) -> State {
        let records = |id| {
            let records = inspect::records(&*self.engine, id).expect("reading");
            let stored = |stored: Stored| (stored.version, stored.doc);
            records.into_iter().map(|(id, record)| (id, stored(record))).collect()
        };
        self.engine.stores().into_iter().map(|id| (id, records(id))).collect()
    }

    /// Checks that it has this state.
    pub fn check(&self, expected: &State, when: &str) {
        let state = self.state();
        assert!(state.keys().eq(expected.keys()), "{when}: {:?} exist", state.keys());
        for (id, records) in &state {
            let ids = |records: &BTreeMap<RecordId, (CommitSeq, Vec<u8>)>| {
                records.iter().map(|(id, (seq, _))| (*id, *seq)).collect::<Vec<_>>()
            };
            let expected = expected.get(id).expect("the collection");
            assert_eq!(ids(records), ids(expected), "{when}: {id:?}");
            assert!(records == expected, "{when}: documents of {id:?} differ");
            table(&self.engine, *id).check();
        }
    }

    pub fn read(&self, index: u64) -> Copied {
        self.log().read_frame(index).expect("reading").unwrap_or_else(|| panic!("frame {index}"))
    }

    pub fn append(&self, (frame, records): &Copied) -> Result<(), StorageError> {
        self.log().append_frame(frame, records).map(drop)
    }

    /// Applies a frame. Its index, if there was one to be applied.
    pub fn apply(&self) -> Option<u64> {
        let mut applier = Applier { engine: self.engine.clone(), last: 0 };
        self.log().apply_frame(&mut applier).expect("applying").map(|at| at.index)
    }

    /// Gets what it lacks of a history, and applies all of it.
    pub fn catch_up(&self, history: &History, when: &str) {
        let last = self.log().frames().last.index;
        for copied in history.frames.range(last + 1..).map(|(_, copied)| copied) {
            self.append(copied).unwrap_or_else(|error| panic!("{when}: {error}"));
        }
        self.log().commit_frames(history.last().index);
        while let Some(index) = self.apply() {
            self.check(&history.state(index), &format!("{when}, frame {index}"));
        }
        assert_eq!(self.log().applied(), history.last(), "{when}");
    }

    /// What was committed must be all there is: it leads.
    pub fn lead(&self) {
        self.log().commit_frames(self.log().frames().last.index);
        while self.apply().is_some() {}
        self.log().lead().expect("leading");
    }
}

/// Creates the indexes of collections that appear.
struct Applier {
    engine: Arc<PmLog>,
    last: u64,
}

impl AppliedUnits for Applier {
    fn applied(&mut self, seq: CommitSeq, changes: &[AppliedChange]) -> Result<(), StorageError> {
        assert!(seq.0 > self.last && !changes.is_empty());
        self.last = seq.0;
        assert_eq!(self.engine.newest().expect("a ticket").seq, seq, "readers see it");
        for change in changes {
            let table = table(&self.engine, change.collection);
            match change.kind {
                AppliedKind::StoreCreated => {
                    let mut unit = WriteUnit::new();
                    for index in &table.indexes {
                        table.create_index_in(&mut unit, index);
                        index.set_complete();
                    }
                    self.engine.commit(&mut unit)?;
                    // Documents of the same unit.
                    let mut unit = WriteUnit::new();
                    for (id, record) in table.records() {
                        for index in &table.indexes {
                            table.backfill_in(&mut unit, index, id, &record);
                        }
                    }
                    self.engine.commit(&mut unit)?;
                }
                AppliedKind::StoreDropped => {
                    assert!(self.engine.record_store(change.collection).is_none());
                }
                _ => assert_ne!(change.record, RecordId(0)),
            }
        }
        Ok(())
    }
}

/// A member that leads, and writes at random.
pub struct Leader {
    pub member: Member,
    pub history: History,
    pub random: SeededRandom,
    unique: i64,
}

impl Leader {
    pub fn new(member: Member, history: History, seed: u64) -> Leader {
        member.lead();
        let random = SeededRandom::new(seed);
        // Keys of other leaders are not used again.
        Leader { member, history, random, unique: (seed as i64 % 1000) << 20 }
    }

    pub fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n.max(1)
    }

    fn document(&mut self) -> Vec<u8> {
        let len = if self.below(12) == 0 { 9_000 + self.below(12_000) } else { self.below(700) };
        self.unique += 1;
        // Now and then a key that some other record has.
        let back = if self.below(20) == 0 { self.below(30) as i64 } else { 0 };
        doc(self.below(9) as i64, self.unique - back, &"x".repeat(len as usize))
    }

    /// A unit of some kind. Answers whether it was taken.
    pub fn write(&mut self) -> bool {
        let stores = self.member.engine.stores();
        let mut unit = WriteUnit::new();
        let engine = &self.member.engine.clone();
        match self.below(40) {
            _ if stores.is_empty() => self.create(&mut unit),
            0 if stores.len() < 4 => self.create(&mut unit),
            1 if stores.len() > 2 => {
                let id = stores[self.below(stores.len() as u64) as usize];
                unit.push(id, RecordId(0), OpKind::DropStore);
            }
            _ => {
                let mut taken = Vec::new();
                let most = if self.below(15) == 0 { 12 } else { 3 };
                for _ in 0..=self.below(most) {
                    let id = stores[self.below(stores.len() as u64) as usize];
                    self.change(&mut unit, &table(engine, id), &mut taken);
                }
            }
        }
        match engine.commit(&mut unit) {
            Ok(_) => true,
            Err(StorageError::DuplicateKey { .. } | StorageError::OutOfDiskSpace) => false,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn create(&mut self, unit: &mut WriteUnit<'static>) {
        // None that was there before.
        let last = self.member.engine.newest().expect("a ticket").seq.0 as u32;
        let table = table(&self.member.engine, CollectionId(10 + last));
        table.create_in(unit);
        let new = self.document();
        table.insert_in(unit, &new);
    }

    fn change(
        &mut self,
        unit: &mut WriteUnit<'static>,
        table: &Table,
        taken: &mut Vec<(CollectionId, RecordId)>,
    ) {
        let records = table.records();
        let count = records.len() as u64;
        let known = records.keys().nth(self.below(2 * count + 1) as usize).copied();
        let new = self.document();
        match known.filter(|id| !taken.contains(&(table.id, *id))) {
            None => drop(table.insert_in(unit, &new)),
            Some(id) => {
                taken.push((table.id, id));
                if self.below(3) == 0 || count > 30 {
                    table.delete_in(unit, id, &records[&id]);
                } else {
                    table.update_in(unit, id, &records[&id], &new);
                }
            }
        }
    }

    /// Closes a frame, and notes it with the state.
    pub fn close_frame(&mut self) -> u64 {
        let last = self.member.log().frames().last;
        let position = at(last.term.max(self.history.last().term), last.index + 1);
        self.close_frame_at(position)
    }

    pub fn close_frame_at(&mut self, position: LogPosition) -> u64 {
        let data = position.index.to_le_bytes();
        let closed = self.member.log().close_frame(position, 7 * position.index, &data);
        let (frame, _) = closed.expect("closing a frame");
        let (found, records) = self.member.read(position.index);
        assert_eq!(found, frame);
        self.history.frames.insert(position.index, Arc::new((frame, records)));
        self.history.states.insert(position.index, Arc::new(self.member.state()));
        position.index
    }
}
