//! Short workloads: operations one after the other, and all sequences of them up to a length.
//!
//! They begin on a *fixture*: a durable directory with a collection, its index, and segments that the cleaner can
//! clean. For each workload only the crashes during its last operation are tested: the earlier ones belong to the
//! workload without that operation.

use crate::crash::{Crashes, Recording, Report};
use crate::dice::Dice;
use crate::history::Timeline;
use crate::model::Model;
use crate::plan::{self, Outcome, Plan};
use crate::schema::TableDef;
use crate::target::CrashTarget;
use crate::world::World;
use kauri_base::{Error, RecordId};
use kauri_bson::DocBuf;
use kauri_conformance::inspect::{self, Stored};
use kauri_conformance::table::doc;
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_storage::{StorageError, Transaction};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Op {
    /// A document comes.
    Insert,
    /// A document changes.
    Update,
    /// A document goes.
    Delete,
    /// Documents of several collections come, change and go, all or none.
    Unit,
    /// A collection comes, with indexes and documents.
    Create,
    /// A collection goes.
    Drop,
    /// An index is built, over what is there.
    BuildIndex,
    /// An index goes.
    DropIndex,
    /// The cleaner empties a segment.
    Clean,
    /// The flusher does what it does from time to time.
    Round,
    /// Everything is handed to the operating system.
    Flush,
    /// Everything is made durable.
    Sync,
    /// A clean shutdown, and a start.
    Restart,
    /// A transaction of three statements.
    Transaction,
    /// A unit of the replicated log comes, and is pending.
    Append,
    /// The pending units are committed.
    CommitPending,
    /// The last pending unit is dropped.
    Truncate,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 17] = [
        Op::Insert,
        Op::Update,
        Op::Delete,
        Op::Unit,
        Op::Create,
        Op::Drop,
        Op::BuildIndex,
        Op::DropIndex,
        Op::Clean,
        Op::Round,
        Op::Flush,
        Op::Sync,
        Op::Restart,
        Op::Transaction,
        Op::Append,
        Op::CommitPending,
        Op::Truncate,
    ];

    /// The operations without transactions and pending units.
    pub fn without_replication() -> &'static [Op] {
        &Op::ALL[..13]
    }
}

/// The waits between operations. At the end everything is flushed and then synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Between {
    /// Nothing.
    Nothing,
    /// That the operating system has everything.
    Flush,
    /// That everything is durable.
    Sync,
}

impl Between {
    /// All of them.
    pub const ALL: [Between; 3] = [Between::Nothing, Between::Flush, Between::Sync];
}

/// All sequences of up to `length` of these operations, including the empty one.
pub fn workloads(of: &[Op], length: usize) -> Vec<Vec<Op>> {
    let mut all = vec![Vec::new()];
    let mut longest = all.clone();
    for _ in 0..length {
        let longer = longest.iter().flat_map(|ops: &Vec<Op>| {
            of.iter().map(|op| ops.iter().chain([op]).copied().collect::<Vec<_>>())
        });
        longest = longer.collect();
        all.extend_from_slice(&longest);
    }
    all
}

/// Choices that are always the same.
fn dice() -> Dice {
    Dice::new(3)
}

/// Whether the operation did anything; an error if the engine or the medium failed.
fn perform(op: Op, world: &World) -> Result<bool, StorageError> {
    let tables = world.tables();
    let first = tables.first();
    let plan = match op {
        Op::Insert | Op::Update | Op::Delete | Op::Unit => match first {
            Some(def) => documents(op, world, def, &tables)?,
            None => None,
        },
        Op::Create => Some(plan::create_collection(world, &dice())),
        Op::Drop => match tables.last() {
            Some(def) => plan::drop_collection(world, def)?,
            None => None,
        },
        Op::BuildIndex => return build(world),
        Op::DropIndex => match tables.iter().find_map(|def| Some((def, def.indexes.last()?))) {
            Some((def, index)) => plan::drop_index(world, def.clone(), index.index.spec.id)?,
            None => None,
        },
        Op::Clean => return world.maintain(1 << 32).map(|()| true),
        Op::Round => return world.maintain(0).map(|()| true),
        Op::Flush => {
            world.flush();
            return Ok(true);
        }
        Op::Sync => return world.sync().map(|()| true),
        Op::Transaction => return transaction(world),
        Op::Append => match first {
            Some(def) => {
                let plan = pending(world, def)?;
                return Ok(matches!(plan.append(world)?, Outcome::Committed(_)));
            }
            None => None,
        },
        Op::CommitPending | Op::Truncate => {
            let last = world.pending().saturating_sub(1) as u64;
            return Ok(world.resolve(op == Op::CommitPending, last)?.is_some());
        }
        Op::Restart => return Ok(false),
    };
    match plan {
        Some(plan) => Ok(matches!(plan.commit(world)?, Outcome::Committed(_))),
        None => Ok(false),
    }
}

/// A unit that inserts, updates or deletes a document of a collection, or does all of that.
fn documents(
    op: Op,
    world: &World,
    def: &TableDef,
    tables: &[TableDef],
) -> Result<Option<Plan>, StorageError> {
    let mut plan = Plan::new();
    let records: Vec<(RecordId, Stored)> =
        inspect::records(&*world.engine, def.id)?.into_iter().collect();
    let table = def.table(&world.engine);
    plan.unit.expect_definition(def.id, def.number);
    let new = |text: &str| doc(2, world.new_unique(), text);
    let (first, last) = (records.first(), records.last().filter(|_| records.len() > 1));
    if matches!(op, Op::Insert | Op::Unit) {
        plan.insert(&table, new("inserted"));
    }
    if matches!(op, Op::Update | Op::Unit) {
        let Some((id, old)) = first else { return Ok(None) };
        plan.update(&table, *id, old, new("updated"));
    }
    if matches!(op, Op::Delete | Op::Unit) {
        let Some((id, old)) = last else { return Ok(None) };
        plan.delete(&table, *id, old);
    }
    if let (Op::Unit, Some(other)) = (op, tables.get(1)) {
        plan.unit.expect_definition(other.id, other.number);
        plan.insert(&other.table(&world.engine), new("the other collection's"));
    }
    Ok(Some(plan))
}

/// A unit for the replicated log: a document comes, and one changes that other operations leave alone,
/// since nobody else may change what is pending.
fn pending(world: &World, def: &TableDef) -> Result<Plan, StorageError> {
    let mut plan = Plan::new();
    let table = def.table(&world.engine);
    plan.unit.expect_definition(def.id, def.number);
    plan.insert(&table, doc(3, world.new_unique(), "pending"));
    let records = inspect::records(&*world.engine, def.id)?;
    // The next unit takes the next one.
    if let Some((id, old)) = records.iter().nth(2 + world.pending()) {
        plan.update(&table, *id, old, doc(3, world.new_unique(), "pending"));
    }
    Ok(plan)
}

/// A transaction that inserts, updates and deletes, with a statement for each.
fn transaction(world: &World) -> Result<bool, StorageError> {
    let tables = world.tables();
    let Some(def) = tables.first() else { return Ok(false) };
    let mut transaction = Transaction::begin(&world.engine)?;
    let mut done = true;
    for op in [Op::Insert, Op::Update, Op::Delete] {
        let Some(plan) = documents(op, world, def, &tables)? else { return Ok(false) };
        done = done && plan.write(&mut transaction)?;
    }
    let outcome = plan::commit_transaction(world, transaction)?;
    Ok(done && matches!(outcome, Outcome::Committed(_)))
}

/// Begins an index build, fills the index and ends the build.
fn build(world: &World) -> Result<bool, StorageError> {
    let Some((begin, id, index)) = plan::begin_build(world, &dice())? else { return Ok(false) };
    let Outcome::Committed(_) = begin.commit(world)? else { return Ok(false) };
    let records: Vec<_> = inspect::records(&*world.engine, id)?.into_keys().collect();
    for records in records.chunks(3) {
        let Some(def) = world.table(id) else { return Ok(false) };
        let fill = plan::backfill(world, &def, &index, records)?;
        let Outcome::Committed(_) = fill.commit(world)? else { return Ok(false) };
    }
    let Some(def) = world.table(id) else { return Ok(false) };
    let Some(end) = plan::end_build(world, def, index.index.spec.id)? else { return Ok(false) };
    let ended = matches!(end.commit(world)?, Outcome::Committed(_));
    if ended {
        world.counts.builds.one();
    }
    Ok(ended)
}

/// The initial state of workloads.
pub struct Fixture {
    emulator: Emulator,
    model: Model,
}

/// The result of a workload.
pub struct Done {
    /// Its recording.
    pub recording: Recording,
    /// The events before its last operation.
    pub last_from: usize,
    /// The first operation that had nothing to do, by its place.
    pub idle: Option<usize>,
    /// The error that ended it.
    pub error: Option<Error>,
}

impl Fixture {
    /// On a new medium.
    pub fn new(target: &dyn CrashTarget, medium: EmulatorConfig) -> Fixture {
        let failed = |error: StorageError| -> ! { panic!("preparing the fixture: {error}") };
        let emulator = Emulator::new(medium);
        let world = World::open(target, &emulator, |_| Model::default());
        let world = world.unwrap_or_else(|error| panic!("preparing the fixture: {error}"));
        let prepare = || -> Result<(), StorageError> {
            world.prepare()?;
            plan::create_collection(&world, &dice()).commit(&world)?;
            let text = "before ".repeat(120);
            for step in 0..160 {
                let tables = world.tables();
                let def = &tables[0];
                let mut plan = Plan::new();
                let table = def.table(&world.engine);
                if step < 80 {
                    plan.insert(&table, doc(1, world.new_unique(), &text));
                } else {
                    // What rests is scattered.
                    let records = inspect::records(&*world.engine, def.id)?;
                    let some = records.iter().nth(records.len() * (step % 7) / 7);
                    let Some((id, old)) = some.filter(|_| records.len() > 6) else { break };
                    plan.delete(&table, *id, old);
                }
                plan.commit(&world)?;
            }
            assert!(build(&world)?, "no index");
            world.sync()?;
            world.maintain(0)?;
            world.sync()
        };
        prepare().unwrap_or_else(|error| failed(error));
        let (timeline, _) = world.end();
        let all = emulator.events();
        let model = timeline.contents(timeline.end());
        Fixture { emulator: emulator.crash_at(all, &mut |_| 0), model }
    }

    /// Performs a workload. The changes of `equip` to the medium may make it fail.
    pub fn perform(
        &self,
        target: &dyn CrashTarget,
        ops: &[Op],
        between: Between,
        equip: impl FnOnce(&Emulator),
    ) -> Result<Done, Error> {
        let emulator = self.emulator.process_death_image();
        equip(&emulator);
        let mut world = World::open(target, &emulator, |_| self.model.clone())?;
        let (mut last_from, mut idle) = (0, None);
        let waits = match between {
            Between::Nothing => None,
            Between::Flush => Some(Op::Flush),
            Between::Sync => Some(Op::Sync),
        };
        let places = ops.iter().enumerate().map(|(place, op)| (Some(place), *op));
        let with_waits = places.flat_map(|step| [Some(step), waits.map(|op| (None, op))]);
        let steps = with_waits.flatten().chain([(None, Op::Flush), (None, Op::Sync)]);
        for (place, op) in steps {
            if place.is_some() {
                last_from = emulator.events();
            }
            let did = match op {
                Op::Restart => match world.restart(target) {
                    Ok(again) => {
                        world = again;
                        Ok(true)
                    }
                    Err(stopped) => {
                        let (error, timeline) = *stopped;
                        return Ok(done(&emulator, timeline, last_from, idle, Some(error)));
                    }
                },
                op => perform(op, &world),
            };
            match did {
                Ok(did) => idle = idle.or(place.filter(|_| !did)),
                Err(error) => {
                    let error = Some(Error::from(error));
                    return Ok(done(&emulator, world.end().0, last_from, idle, error));
                }
            }
        }
        Ok(done(&emulator, world.end().0, last_from, idle, None))
    }
}

fn done(
    emulator: &Emulator,
    timeline: Timeline,
    last_from: usize,
    idle: Option<usize>,
    error: Option<Error>,
) -> Done {
    let recording = Recording {
        emulator: emulator.clone(),
        timeline,
        counts: Default::default(),
        status: DocBuf::build(|_| ()),
    };
    Done { recording, last_from, idle, error }
}

/// Counts of explored states.
#[derive(Default, Debug)]
pub struct Explored {
    /// Workloads whose operations all had something to do.
    pub workloads: usize,
    /// Others.
    pub idle: usize,
    /// Crash points.
    pub points: usize,
    /// Points with too many states to check all of them, where one thing after the other decides.
    pub sampled: usize,
    /// Their states.
    pub report: Report,
}

impl Explored {
    fn add(&mut self, other: &Explored) {
        self.workloads += other.workloads;
        self.idle += other.idle;
        self.points += other.points;
        self.sampled += other.sampled;
        self.report.add(&other.report);
    }
}

/// Performs these workloads, with each of these waits, and checks the states that a power loss in the last
/// operation of each can leave, as in [`Crashes::every_power_loss`].
pub fn explore(
    crashes: &Crashes<'_>,
    target: &dyn CrashTarget,
    fixture: &Fixture,
    workloads: &[Vec<Op>],
    waits: &[Between],
    most: usize,
) -> Explored {
    let all: Vec<_> =
        waits.iter().flat_map(|wait| workloads.iter().map(move |ops| (ops, *wait))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut explored = Explored::default();
        while let Some((ops, between)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let one = || explore_one(crashes, target, fixture, ops, *between, most);
            match catch_unwind(AssertUnwindSafe(one)) {
                Ok(one) => explored.add(&one),
                Err(panic) => {
                    eprintln!("the workload was {ops:?}, between {between:?}");
                    next.store(all.len(), Ordering::Relaxed);
                    resume_unwind(panic);
                }
            }
        }
        explored
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut explored = work();
        for other in others {
            explored.add(&other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        explored
    })
}

fn explore_one(
    crashes: &Crashes<'_>,
    target: &dyn CrashTarget,
    fixture: &Fixture,
    ops: &[Op],
    between: Between,
    most: usize,
) -> Explored {
    let mut explored = Explored::default();
    let done = fixture.perform(target, ops, between, |emulator| crashes.equip(emulator));
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    if let Some(error) = done.error {
        panic!("{error}");
    }
    crashes.note_sites(&done.recording.emulator);
    if done.idle.is_some() {
        explored.idle += 1;
        return explored;
    }
    explored.workloads += 1;
    let from = done.last_from;
    let (report, sampled) = crashes.every_power_loss_from(&done.recording, from, most);
    explored.points += done.recording.emulator.events() + 1 - from;
    explored.sampled += sampled;
    explored.report.add(&report);
    explored
}
