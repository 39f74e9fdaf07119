//! Runs a plan in slices and returns its rows.

use super::{ExecCx, QueryEnv, Row, Stage, Step, Totals};
use kauri_base::{OperationContext, Result, Ticket, work};
use kauri_bson::DocBuf;
use kauri_storage::{Entered, Operation, RecoveryUnit};

/// Records or keys that one call to a stage may look at.
const CALL_BUDGET: u32 = 64;

/// The receiver's decision after a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The next row.
    Continue,
    /// No more now; this row was taken.
    Stop,
    /// No more now, and this row was not taken: it comes first the next time.
    StopBefore,
}

/// Why the rows ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The receiver said so.
    Stopped,
    /// There are no more.
    Exhausted,
}

/// A running plan. It reads through the operation that requests rows: each batch of a cursor may have another.
pub struct PlanExecutor {
    root: Box<dyn Stage>,
    env: QueryEnv,
    stash: Option<DocBuf>,
    exhausted: bool,
    looks_ahead: bool,
}

enum Slice {
    Blocked(Ticket),
    TimeUp,
    Stopped,
    Done,
}

impl PlanExecutor {
    /// Executes this tree.
    pub fn new(root: Box<dyn Stage>, env: QueryEnv) -> Self {
        PlanExecutor { root, env, stash: None, exhausted: false, looks_ahead: false }
    }

    /// Ends together with the row that is certainly the last, as a cursor of `find` does. Otherwise the end shows
    /// when another row is requested.
    pub fn looking_ahead(self) -> Self {
        PlanExecutor { looks_ahead: true, ..self }
    }

    /// The tree, for `explain`.
    pub fn root(&self) -> &dyn Stage {
        &*self.root
    }

    /// Execution statistics since its creation, and the access paths it used.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.root.add_totals(&mut totals);
        totals
    }

    /// The operation's surroundings.
    pub fn env(&self) -> &QueryEnv {
        &self.env
    }

    /// Whether it has put something into temporary files.
    pub fn used_disk(&self) -> bool {
        self.env.spilling.operation.as_ref().is_some_and(|operation| operation.used_disk())
    }

    /// Lets a tree that ended try again (tailable cursors).
    pub fn resume(&mut self) {
        self.exhausted = false;
    }

    /// Keeps a row for the next call.
    pub fn stash(&mut self, doc: DocBuf) {
        self.stash = Some(doc);
    }

    /// Gives rows to `receive` until it stops or there are no more.
    pub async fn for_each(
        &mut self,
        op: &mut Operation,
        receive: &mut (dyn FnMut(&Row<'_>) -> Result<Flow> + Send),
    ) -> Result<Ended> {
        op.check_for_interrupt()?;
        if let Some(doc) = self.stash.take() {
            let row = Row::computed(doc);
            match receive(&row)? {
                Flow::Continue => {}
                Flow::Stop => return Ok(Ended::Stopped),
                Flow::StopBefore => {
                    self.stash = Some(row.doc.into_buf());
                    return Ok(Ended::Stopped);
                }
            }
        }
        if self.exhausted {
            return Ok(Ended::Exhausted);
        }
        self.run(op, receive).await
    }

    async fn run(
        &mut self,
        op: &mut Operation,
        receive: &mut (dyn FnMut(&Row<'_>) -> Result<Flow> + Send),
    ) -> Result<Ended> {
        loop {
            match self.slice(op, receive)? {
                Slice::Stopped => return Ok(Ended::Stopped),
                Slice::Done => {
                    self.exhausted = true;
                    return Ok(Ended::Exhausted);
                }
                Slice::Blocked(ticket) => op.wait(ticket).await?,
                Slice::TimeUp => op.yield_now().await?,
            }
        }
    }

    /// Like `for_each`, but only without waiting and within one time slice. `None`: the rows received so far count,
    /// and `for_each` continues from there.
    pub fn try_for_each(
        &mut self,
        op: &mut Operation,
        receive: &mut (dyn FnMut(&Row<'_>) -> Result<Flow> + Send),
    ) -> Result<Option<Ended>> {
        Ok(match self.slice(op, receive)? {
            Slice::Stopped => Some(Ended::Stopped),
            Slice::Done => {
                self.exhausted = true;
                Some(Ended::Exhausted)
            }
            Slice::Blocked(_) | Slice::TimeUp => None,
        })
    }

    /// One slice: enters the reader, works, and leaves it.
    fn slice(
        &mut self,
        op: &mut Operation,
        receive: &mut (dyn FnMut(&Row<'_>) -> Result<Flow> + Send),
    ) -> Result<Slice> {
        let (context, reader) = op.split();
        self.work(context, &*Entered::new(reader), receive)
    }

    fn work(
        &mut self,
        op: &OperationContext,
        reader: &dyn RecoveryUnit,
        receive: &mut (dyn FnMut(&Row<'_>) -> Result<Flow> + Send),
    ) -> Result<Slice> {
        let mut cx = ExecCx { ru: reader, env: &self.env, budget: 0 };
        let mut stash = None;
        loop {
            cx.budget = CALL_BUDGET;
            let step = self.root.feed(&mut cx, &mut |row| {
                work::tick(1)?;
                let flow = receive(row)?;
                if flow == Flow::StopBefore {
                    stash = Some(row.doc().to_buf());
                }
                Ok(flow)
            })?;
            match step {
                Step::Row(()) => {
                    if stash.is_none() && self.looks_ahead && self.root.is_eof() {
                        return Ok(Slice::Done);
                    }
                    self.stash = stash;
                    return Ok(Slice::Stopped);
                }
                Step::Again => {
                    if op.slice_is_over() {
                        return Ok(Slice::TimeUp);
                    }
                }
                Step::Blocked(ticket) => return Ok(Slice::Blocked(ticket)),
                Step::Done => return Ok(Slice::Done),
            }
        }
    }
}
