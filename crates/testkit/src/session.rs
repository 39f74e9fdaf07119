//! Writers, one step at a time, so that many of them can take turns on one thread.

use crate::dice::Dice;
use crate::plan::{self, Outcome, Plan};
use crate::schema::IndexDef;
use crate::world::World;
use kauri_base::{CollectionId, RecordId};
use kauri_storage::conformance::inspect::Reader;
use kauri_storage::{CommitTicket, Direction, Durability, RecordScan, StorageError};

/// Records that an index build takes in one unit.
const BACKFILL: usize = 8;

/// Steps that a session is given to end what it has begun.
const FINISH_STEPS: usize = 200;

/// A writer.
pub struct Session {
    dice: Dice,
    task: Task,
}

enum Task {
    Idle,
    /// A unit that was planned, and what to wait for once it is committed.
    Commit(Plan),
    Wait(CommitTicket, Durability),
    BeginBuild(Plan, CollectionId, IndexDef),
    Build(Build),
}

struct Build {
    collection: CollectionId,
    index: IndexDef,
    scan: RecordScan,
    /// Records whose keys are not there yet.
    batch: Vec<RecordId>,
    failed: bool,
}

impl Session {
    /// A writer that does what these dice say.
    pub fn new(dice: Dice) -> Session {
        Session { dice, task: Task::Idle }
    }

    /// Does the next step.
    pub fn step(&mut self, world: &World) -> Result<(), StorageError> {
        let task = std::mem::replace(&mut self.task, Task::Idle);
        self.task = match task {
            Task::Idle => self.start(world)?,
            Task::Commit(plan) => match plan.commit(world)? {
                Outcome::Committed(ticket) => self.acknowledge(ticket),
                Outcome::Outdated | Outcome::Duplicate | Outcome::NoSpace => Task::Idle,
            },
            Task::Wait(ticket, durability) => {
                world.wait(&ticket, durability)?;
                Task::Idle
            }
            Task::BeginBuild(plan, collection, index) => match plan.commit(world)? {
                Outcome::Committed(_) => Task::Build(Build {
                    collection,
                    index,
                    scan: RecordScan::new(Direction::Forward),
                    batch: Vec::new(),
                    failed: false,
                }),
                _ => Task::Idle,
            },
            Task::Build(build) => self.build(world, build)?,
        };
        Ok(())
    }

    /// Brings what was begun to its end, unless there is no room for that.
    pub fn finish(&mut self, world: &World) -> Result<(), StorageError> {
        for _ in 0..FINISH_STEPS {
            if matches!(self.task, Task::Idle) {
                break;
            }
            self.step(world)?;
        }
        Ok(())
    }

    fn start(&mut self, world: &World) -> Result<Task, StorageError> {
        let plan = match self.dice.below(100) {
            0..4 if self.dice.percent(world.definitions_percent) => {
                plan::definition(world, &self.dice)?
            }
            4..7 => {
                let begun = plan::begin_build(world, &self.dice)?;
                return Ok(begun.map_or(Task::Idle, |(plan, collection, index)| {
                    Task::BeginBuild(plan, collection, index)
                }));
            }
            7..10 => {
                world.flush();
                None
            }
            10 => {
                world.sync()?;
                None
            }
            _ if world.tables().is_empty() => plan::definition(world, &self.dice)?,
            _ => plan::documents(world, &self.dice)?,
        };
        Ok(plan.map_or(Task::Idle, Task::Commit))
    }

    fn acknowledge(&self, ticket: CommitTicket) -> Task {
        match self.dice.below(10) {
            0..4 => Task::Wait(ticket, Durability::Written),
            4..6 => Task::Wait(ticket, Durability::Durable),
            _ => Task::Idle,
        }
    }

    fn build(&self, world: &World, mut build: Build) -> Result<Task, StorageError> {
        let id = build.index.index.spec.id;
        let Some(mut def) = world.table(build.collection) else { return Ok(Task::Idle) };
        if def.index_mut(id).is_none() {
            return Ok(Task::Idle);
        }
        if build.failed {
            let plan = plan::drop_index(world, def, id)?;
            return self.try_end(world, plan, build);
        }
        if build.batch.is_empty() {
            build.fill(world)?;
        }
        if build.batch.is_empty() {
            let plan = plan::end_build(world, def, id)?;
            return self.try_end(world, plan, build);
        }
        let unit = plan::backfill(world, &def, &build.index, &build.batch)?;
        match unit.commit(world)? {
            Outcome::Committed(_) => build.batch.clear(),
            Outcome::Outdated | Outcome::NoSpace => {}
            Outcome::Duplicate => build.failed = true,
        }
        Ok(Task::Build(build))
    }

    fn try_end(
        &self,
        world: &World,
        plan: Option<Plan>,
        build: Build,
    ) -> Result<Task, StorageError> {
        let Some(plan) = plan else { return Ok(Task::Idle) };
        match plan.commit(world)? {
            Outcome::Committed(ticket) => {
                if !build.failed {
                    world.counts.builds.one();
                }
                Ok(self.acknowledge(ticket))
            }
            _ => Ok(Task::Build(build)),
        }
    }
}

impl Build {
    fn fill(&mut self, world: &World) -> Result<(), StorageError> {
        let Some(store) = world.engine.record_store(self.collection) else { return Ok(()) };
        let mut reader = Reader::new(&*world.engine);
        while self.batch.len() < BACKFILL {
            match reader.next_id(&*store, &mut self.scan)? {
                Some(id) => self.batch.push(id),
                None => break,
            }
        }
        Ok(())
    }
}
