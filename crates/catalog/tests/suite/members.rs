//! Two members of a replica set, of which one leads. The other one applies the leader's units, and its catalog is told of
//! each. Engines with a log exchange frames. The in-memory engine gets the units' records, with the keys that they have
//! in its indexes, as an engine with a log makes them.

use crate::common::*;
use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::{CollectionId, CommitSeq, IndexId, RecordId};
use kauri_bson::{Doc, DocBuf, shell_text};
use kauri_catalog::{Catalog, Collection, Index};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_storage::{
    AppliedChange, AppliedKind, AppliedUnits, Backend, CommitTicket, Committer, KeyGenerator,
    LogPosition, OpKind, ReplicatedLog, StorageEngine, StorageError, WriteUnit,
};
use kauri_storage_log::{Options, PmLog};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

type Generators = BTreeMap<IndexId, (CollectionId, Arc<dyn KeyGenerator>)>;

type Definitions = BTreeMap<CollectionId, u64>;

/// Commits to the engine of a member: on a follower units without records only.
pub struct Gate {
    engine: Arc<dyn StorageEngine>,
    leads: AtomicBool,
    collects: bool,
    /// Units with records that were committed here and not given to the other member yet, if it collects them.
    committed: Mutex<Vec<WriteUnit<'static>>>,
    indexes: Mutex<Generators>,
}

fn is_local(kind: &OpKind<'_>) -> bool {
    matches!(
        kind,
        OpKind::Backfill { .. }
            | OpKind::CreateIndex { .. }
            | OpKind::DropIndex { .. }
            | OpKind::ChangeDefinition
    )
}

impl Committer for Gate {
    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        let is_local = unit.ops.iter().all(|op| is_local(&op.kind));
        if !is_local && !self.leads() {
            return Err(StorageError::NotPrimary);
        }
        let ticket = self.engine.commit(unit)?;
        self.note(unit);
        if !is_local && self.collects {
            self.committed.lock().unwrap().push(unit.to_static());
        }
        Ok(ticket)
    }
}

impl Gate {
    fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    fn note(&self, unit: &WriteUnit<'_>) {
        let mut indexes = self.indexes.lock().unwrap();
        for op in &unit.ops {
            match &op.kind {
                OpKind::CreateIndex { spec, generator } => {
                    indexes.insert(spec.id, (op.collection, generator.clone()));
                }
                OpKind::DropIndex { index } => drop(indexes.remove(index)),
                OpKind::DropStore => indexes.retain(|_, (of, _)| *of != op.collection),
                _ => {}
            }
        }
    }

    /// Applies the records of a unit.
    fn apply(&self, unit: &WriteUnit<'_>) -> Vec<AppliedChange> {
        let mut applied = WriteUnit::new();
        let mut changes = Vec::new();
        for op in unit.ops.iter().filter(|op| !is_local(&op.kind)) {
            let old = self.read(op.collection, op.record);
            let kind = match &op.kind {
                OpKind::Insert { doc } => {
                    applied.insert(op.collection, doc.to_vec());
                    self.keys(&mut applied, op.collection, Doc::from_bytes(doc).unwrap(), true);
                    AppliedKind::Inserted
                }
                OpKind::Update { doc, .. } => {
                    let (seen, old) = old.unwrap();
                    applied.update(op.collection, op.record, seen, doc.to_vec());
                    self.keys(&mut applied, op.collection, old.as_doc(), false);
                    self.keys(&mut applied, op.collection, Doc::from_bytes(doc).unwrap(), true);
                    AppliedKind::Updated
                }
                OpKind::Delete { .. } => {
                    let (seen, old) = old.unwrap();
                    applied.delete(op.collection, op.record, seen);
                    self.keys(&mut applied, op.collection, old.as_doc(), false);
                    AppliedKind::Deleted
                }
                OpKind::CreateStore => {
                    applied.push(op.collection, RecordId(0), OpKind::CreateStore);
                    AppliedKind::StoreCreated
                }
                _ => {
                    applied.push(op.collection, RecordId(0), OpKind::DropStore);
                    AppliedKind::StoreDropped
                }
            };
            changes.push(AppliedChange { collection: op.collection, record: op.record, kind });
        }
        self.engine.commit(&mut applied).unwrap();
        self.note(&applied);
        for (change, op) in changes.iter().zip(&applied.ops) {
            assert_eq!(change.record, op.record, "both members give the same record ids");
        }
        changes
    }

    /// A document in an index that cannot have its keys is left out.
    fn keys(&self, unit: &mut WriteUnit<'_>, collection: CollectionId, doc: Doc<'_>, add: bool) {
        for (id, (of, generator)) in &*self.indexes.lock().unwrap() {
            if *of == collection {
                let mut put = |key: &[u8], bits: &[u8]| unit.key(*id, add, false, key, bits);
                let _ = generator.generate(doc, &mut put);
            }
        }
    }

    fn read(&self, id: CollectionId, record: RecordId) -> Option<(CommitSeq, DocBuf)> {
        let store = self.engine.record_store(id)?;
        read(&*self.engine, &*store, record).unwrap()
    }
}

/// What outlives the process of a member.
#[derive(Clone)]
enum Disk {
    /// The in-memory engine itself.
    Memory(Arc<dyn StorageEngine>),
    /// Of the engine with a log.
    Log(Emulator),
}

impl Disk {
    fn open(&self) -> (Arc<dyn StorageEngine>, Option<Arc<PmLog>>) {
        match self {
            Disk::Memory(engine) => (engine.clone(), None),
            Disk::Log(disk) => {
                let options = Options {
                    segment_bytes: 64 << 10,
                    cache_bytes: 256 << 10,
                    read_threads: 0,
                    sort_segments_min: 0,
                    ..Options::default()
                };
                let log = Arc::new(PmLog::open(Arc::new(disk.clone()), options).unwrap());
                (log.clone(), Some(log))
            }
        }
    }
}

/// A member.
pub struct Member {
    disk: Disk,
    log: Option<Arc<PmLog>>,
    pub gate: Arc<Gate>,
    opened: Opened,
    /// Indexes that this member began to build when it led.
    pub begun: Mutex<Vec<IndexId>>,
}

impl Deref for Member {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        &self.opened
    }
}

impl Member {
    pub fn new() -> Self {
        Member::open(Disk::Memory(engine()))
    }

    fn open(disk: Disk) -> Self {
        let (engine, log) = disk.open();
        let gate = Arc::new(Gate {
            engine: engine.clone(),
            leads: AtomicBool::new(false),
            collects: log.is_none(),
            committed: Mutex::default(),
            indexes: Mutex::default(),
        });
        let random = Arc::new(SeededRandom::new(3));
        let clock = Arc::new(SystemClock::new());
        let backend = Backend::new(engine, gate.clone(), clock, random);
        let catalog = Catalog::open_member(&backend).unwrap();
        let opened = Opened::new(backend, catalog);
        let member = Member { disk, log, gate, opened, begun: Mutex::default() };
        member.attached();
        member
    }

    /// The process ends and starts again.
    fn restarted(self, end: End) -> Self {
        assert!(!self.gate.leads());
        let mut disk = self.disk.clone();
        match (&self.log, &mut disk, end) {
            (Some(log), _, End::Closed) => log.close().unwrap(),
            (Some(_), Disk::Log(disk), End::Power(seed)) => {
                *disk = disk.crash_seeded(disk.events(), seed);
            }
            _ => self.gate.engine.flush(),
        }
        drop(self);
        Member::open(disk)
    }

    /// The engine knows the indexes that the catalog has attached.
    fn attached(&self) {
        let mut indexes = self.gate.indexes.lock().unwrap();
        indexes.clear();
        for collection in self.all_collections() {
            for index in &collection.indexes {
                indexes.insert(index.id, (collection.id, index.keys.clone()));
            }
        }
    }

    pub fn leads(&self, leads: bool) {
        self.gate.leads.store(leads, Ordering::Release);
        let Some(log) = self.log() else { return };
        match leads {
            true => {
                log.lead().unwrap();
                self.close_frame(1);
            }
            false => log.follow(),
        }
    }

    fn log(&self) -> Option<&dyn ReplicatedLog> {
        self.log.as_ref().map(|log| log.replicated_log().unwrap())
    }

    /// Closes a frame, so many terms later.
    fn close_frame(&self, later: u64) {
        let log = self.log().unwrap();
        let LogPosition { term, index } = log.frames().last;
        let position = LogPosition { term: term + later, index: index + 1 };
        log.close_frame(position, 1, &[]).unwrap();
        log.commit_frames(position.index);
    }

    /// The units that this member has committed since this was last asked.
    pub fn take_units(&self) -> Vec<WriteUnit<'static>> {
        std::mem::take(&mut *self.gate.committed.lock().unwrap())
    }

    /// The engine applies the unit; the catalog is not told of it yet.
    pub fn apply(&self, unit: &WriteUnit<'_>) -> Vec<AppliedChange> {
        assert!(!self.gate.leads());
        self.gate.apply(unit)
    }

    /// Applies all units of the other member.
    pub fn follow(&self, leader: &Member) {
        if let (Some(log), Some(of_leader)) = (self.log(), leader.log()) {
            leader.close_frame(0);
            return self.follow_log(log, of_leader);
        }
        for unit in leader.take_units() {
            let changes = self.apply(&unit);
            self.applied(&mut self.scope(), &changes).unwrap();
        }
    }

    fn follow_log(&self, log: &dyn ReplicatedLog, leader: &dyn ReplicatedLog) {
        let last = leader.frames().last.index;
        for index in log.frames().last.index + 1..=last {
            let (frame, records) = leader.read_frame(index).unwrap().unwrap();
            log.append_frame(&frame, &records).unwrap();
        }
        log.commit_frames(last);
        while log.apply_frame(&mut Applier(self)).unwrap().is_some() {}
        assert_eq!(log.applied(), leader.frames().last);
    }

    /// All definitions, one a line.
    pub fn listing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for collection in self.all_collections() {
            let options = DocBuf::build(|out| collection.options.write(out));
            lines.push(format!(
                "{} {:?} {} {}",
                collection.ns,
                collection.id,
                kauri_catalog::dropped::uuid_text(&collection.uuid),
                shell_text(options.as_doc()),
            ));
            for index in &collection.indexes {
                let spec = shell_text(index.definition().spec.as_doc());
                lines.push(format!("  {:?} ready: {} {spec}", index.id, index.ready));
            }
        }
        for database in self.databases().keys() {
            for view in self.views_of(database) {
                let options = shell_text(view.options.as_doc());
                lines.push(format!("{} on {} {options}", view.ns, view.view_on));
            }
        }
        lines
    }

    /// The number of each collection's definition; it begins anew with the process.
    fn definitions(&self) -> Definitions {
        let mut numbers = Definitions::new();
        for collection in self.all_collections() {
            let number = self.backend.engine().definition_number(collection.id).unwrap();
            assert_eq!(collection.definition, number, "{}", collection.ns);
            numbers.insert(collection.id, number);
        }
        numbers
    }

    /// Every index has the entries that the documents make, and the engine has no other indexes.
    pub fn check_indexes(&self, is_due: impl Fn(&Index) -> bool, context: &str) {
        let mut known = Vec::new();
        for collection in self.all_collections() {
            for index in &collection.indexes {
                known.push(index.id);
                if is_due(index) {
                    self.check_index(&collection, index, context);
                }
            }
        }
        known.sort();
        let indexes: Vec<_> = self.gate.indexes.lock().unwrap().keys().copied().collect();
        assert_eq!(known, indexes, "{context}");
    }

    pub fn check_index(&self, collection: &Collection, index: &Index, context: &str) {
        let (got, expected) = (entries(self, index), rebuilt(self, collection, index));
        let (ns, name) = (&collection.ns, index.name());
        let ready = index.ready;
        assert!(got == expected, "{context}: {ns} {name}, ready: {ready}: {got:?} {expected:?}");
    }
}

/// Tells the catalog of units.
struct Applier<'m>(&'m Member);

impl AppliedUnits for Applier<'_> {
    fn applied(&mut self, _seq: CommitSeq, changes: &[AppliedChange]) -> Result<(), StorageError> {
        let Applier(member) = self;
        for change in changes.iter().filter(|c| c.kind == AppliedKind::StoreDropped) {
            let mut indexes = member.gate.indexes.lock().unwrap();
            indexes.retain(|_, (of, _)| *of != change.collection);
        }
        let applied = member.applied(&mut member.scope(), changes);
        applied.map_err(|error| StorageError::Io(error.to_string()))
    }
}

/// How the process of a member ends. An engine that is closed writes images of its indexes.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Killed,
    Closed,
    /// By a power loss, after which the disk has what this seed says.
    Power(u64),
}

/// A set of two members.
pub struct Set {
    members: Vec<Member>,
    pub leader: usize,
    /// The numbers of the members' definitions when they were last compared.
    definitions: Mutex<Vec<Definitions>>,
}

impl Set {
    pub fn new() -> Self {
        Set::of(vec![Member::new(), Member::new()])
    }

    /// The same with the engine that has a log.
    pub fn on_logs() -> Self {
        let new = || {
            let member = Member::open(Disk::Log(Emulator::new(EmulatorConfig::default())));
            member.log().unwrap().begin_frames(LogPosition { term: 1, index: 1 }).unwrap();
            member
        };
        Set::of(vec![new(), new()])
    }

    fn of(members: Vec<Member>) -> Self {
        let definitions = members.iter().map(Member::definitions).collect();
        let set = Set { members, leader: 0, definitions: Mutex::new(definitions) };
        set.leader().leads(true);
        assert_eq!(set.leader().lead().unwrap(), []);
        set.follow("at first");
        set
    }

    pub fn leader(&self) -> &Member {
        &self.members[self.leader]
    }

    pub fn follower(&self) -> &Member {
        &self.members[1 - self.leader]
    }

    pub fn restart_follower(&mut self, end: End) {
        let follower = self.members.remove(1 - self.leader).restarted(end);
        self.members.insert(1 - self.leader, follower);
        self.follower().follow(self.leader());
        *self.definitions.lock().unwrap() = self.members.iter().map(Member::definitions).collect();
    }

    /// The follower applies all, and has the leader's definitions and complete indexes.
    pub fn follow(&self, context: &str) {
        self.follower().follow(self.leader());
        let (leader, follower) = (self.leader().listing(), self.follower().listing());
        assert!(leader == follower, "{context}: {leader:#?} {follower:#?}");
        self.compare_definitions(context);
        self.leader().check_indexes(|index| index.ready, &format!("{context}: leader"));
        let begun = self.follower().begun.lock().unwrap();
        let is_due = |index: &Index| index.ready || !begun.contains(&index.id);
        self.follower().check_indexes(is_due, context);
    }

    /// The follower leads from now on, as far as the engine is concerned.
    pub fn change_roles(&mut self) {
        self.follow("before a change of roles");
        self.leader().leads(false);
        self.leader = 1 - self.leader;
        self.leader().leads(true);
    }

    /// Definitions have changed as often on both members.
    fn compare_definitions(&self, context: &str) {
        let mut before = self.definitions.lock().unwrap();
        let now: Vec<_> = self.members.iter().map(Member::definitions).collect();
        let changes = |member: usize| -> Definitions {
            let since = |id| before[member].get(id).copied().unwrap_or_default();
            now[member].iter().map(|(id, number)| (*id, number - since(id))).collect()
        };
        assert_eq!(changes(self.leader), changes(1 - self.leader), "{context}");
        *before = now;
    }
}
