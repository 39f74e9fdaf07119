//! Drives a plan to its rows, in slices.

use super::{ExecCx, QueryEnv, Row, Stage, Step};
use kauri_base::{OperationContext, Result, Ticket, work};
use kauri_bson::DocBuf;
use kauri_storage::RecoveryUnit;

/// Records or keys that one call to a stage may look at.
const CALL_BUDGET: u32 = 64;

/// What the receiver of a row wants.
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

/// A plan in execution. Kept in a cursor between batches; holds nothing of the engine then.
pub struct PlanExecutor {
    root: Box<dyn Stage>,
    ru: Box<dyn RecoveryUnit>,
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
    /// Executes this tree with this reader.
    pub fn new(root: Box<dyn Stage>, ru: Box<dyn RecoveryUnit>, env: QueryEnv) -> Self {
        PlanExecutor { root, ru, env, stash: None, exhausted: false, looks_ahead: false }
    }

    /// Ends together with the row of which it is certain that it's the last, as a cursor of `find`
    /// does. Otherwise the end shows when another row is asked for.
    pub fn looking_ahead(self) -> Self {
        PlanExecutor { looks_ahead: true, ..self }
    }

    /// The tree, for `explain`.
    pub fn root(&self) -> &dyn Stage {
        &*self.root
    }

    /// The operation's surroundings.
    pub fn env(&self) -> &QueryEnv {
        &self.env
    }

    /// Whether it has put something into temporary files.
    pub fn used_disk(&self) -> bool {
        self.env.spilling.operation.as_ref().is_some_and(|operation| operation.used_disk())
    }

    /// Whether nothing is left, stashed rows included.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted && self.stash.is_none()
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
        op: &mut OperationContext,
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
        op: &mut OperationContext,
        receive: &mut (dyn FnMut(&Row<'_>) -> Result<Flow> + Send),
    ) -> Result<Ended> {
        loop {
            self.ru.enter();
            let slice = self.slice(op, receive);
            self.ru.leave();
            match slice? {
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

    /// As `for_each`, but only as far as it goes without waiting and within one slice of time.
    /// `None`: what was received so far stands, and `for_each` goes on from there.
    pub fn try_for_each(
        &mut self,
        op: &mut OperationContext,
        receive: &mut (dyn FnMut(&Row<'_>) -> Result<Flow> + Send),
    ) -> Result<Option<Ended>> {
        self.ru.enter();
        let slice = self.slice(op, receive);
        self.ru.leave();
        Ok(match slice? {
            Slice::Stopped => Some(Ended::Stopped),
            Slice::Done => {
                self.exhausted = true;
                Some(Ended::Exhausted)
            }
            Slice::Blocked(_) | Slice::TimeUp => None,
        })
    }

    fn slice(
        &mut self,
        op: &mut OperationContext,
        receive: &mut (dyn FnMut(&Row<'_>) -> Result<Flow> + Send),
    ) -> Result<Slice> {
        let mut cx = ExecCx { ru: &*self.ru, env: &self.env, budget: 0 };
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
