//! Writers, one step at a time, so that many of them can take turns on one thread.

use crate::dice::Dice;
use crate::plan::{self, Outcome, Plan};
use crate::schema::IndexDef;
use crate::world::World;
use kauri_base::{CollectionId, RecordId};
use kauri_conformance::inspect::Reader;
use kauri_storage::{CommitTicket, Direction, Durability, RecordScan, StorageError, Transaction};

/// Records that an index build takes in one unit.
const BACKFILL: usize = 8;

/// Units that are left pending.
const PENDING_MAX: usize = 4;

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
    /// A unit for the replicated log.
    Append(Plan),
    /// A transaction, and how many statements it is to have yet.
    Transaction(Transaction, u64),
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
        self.task = match self.next(world, task) {
            // Another session drops collections that this one has planned with.
            Err(StorageError::Dropped { .. }) => Task::Idle,
            next => next?,
        };
        Ok(())
    }

    /// Does this step, and tells what the next one does.
    fn next(&mut self, world: &World, task: Task) -> Result<Task, StorageError> {
        Ok(match task {
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
            Task::Append(plan) => match plan.append(world)? {
                Outcome::Committed(ticket) => self.acknowledge(ticket),
                _ => Task::Idle,
            },
            Task::Transaction(transaction, left) => self.go_on(world, transaction, left)?,
        })
    }

    /// Completes what was begun, unless there is no space for that.
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
            11 if !world.tables().is_empty() && !self.is_plenty(world) => {
                plan::large(world, &self.dice)
            }
            12..17 if !world.tables().is_empty() => {
                return self.replicate(world);
            }
            17..23 if !world.tables().is_empty() => {
                let transaction = Transaction::begin(&world.engine)?;
                return Ok(Task::Transaction(transaction, 1 + self.dice.below(4)));
            }
            _ if world.tables().is_empty() => plan::definition(world, &self.dice)?,
            _ => plan::documents(world, &self.dice)?,
        };
        Ok(plan.map_or(Task::Idle, Task::Commit))
    }

    fn is_plenty(&self, world: &World) -> bool {
        world.document_bytes() > world.document_bytes_max
    }

    /// Plans a unit for the replicated log, or commits some, or drops some.
    fn replicate(&self, world: &World) -> Result<Task, StorageError> {
        let (pending, dice) = (world.pending(), &self.dice);
        // The segments of what is pending can't be cleaned, and there are few.
        let resolved = match dice.below(10) {
            _ if pending >= PENDING_MAX => world.resolve(true, pending as u64 - 1),
            0..5 => {
                let plan = plan::documents(world, dice)?;
                return Ok(plan.map_or(Task::Idle, Task::Append));
            }
            5..9 => world.resolve(true, dice.bits()),
            _ => world.resolve(false, dice.bits()),
        };
        match resolved {
            Ok(Some(ticket)) => Ok(self.acknowledge(ticket)),
            Ok(None) | Err(StorageError::OutOfDiskSpace) => Ok(Task::Idle),
            Err(error) => Err(error),
        }
    }

    /// A transaction's next statement, or its end.
    fn go_on(
        &self,
        world: &World,
        mut transaction: Transaction,
        left: u64,
    ) -> Result<Task, StorageError> {
        if left == 0 {
            return match plan::commit_transaction(world, transaction)? {
                Outcome::Committed(ticket) => Ok(self.acknowledge(ticket)),
                _ => Ok(Task::Idle),
            };
        }
        let plan = match self.dice.below(20) {
            0 if !self.is_plenty(world) => plan::large(world, &self.dice),
            _ => plan::documents(world, &self.dice)?,
        };
        let Some(plan) = plan else { return Ok(Task::Idle) };
        match plan.write(&mut transaction)? {
            true => Ok(Task::Transaction(transaction, left - 1)),
            false => {
                transaction.abort();
                Ok(Task::Idle)
            }
        }
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
