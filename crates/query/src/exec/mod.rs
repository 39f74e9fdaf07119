//! Executes plans: a tree of stages from which rows are pulled.
//!
//! A stage does a bounded amount of work per call and returns a [`Step`]. Rows borrow from the recovery unit that
//! was entered for this slice of work ('g), so a document goes from the engine's memory to the reply without a
//! copy. A stage copies what it keeps beyond the call. No call waits: a record that is not in memory returns
//! `Step::Blocked`, and the stage's position is such that the next call tries again.
//!
//! [`PlanExecutor`] runs a tree in slices: enter, work, leave; then wait or yield.

pub mod buffered;
pub mod count;
pub mod covered;
pub mod decorate;
pub mod distinct_scan;
pub mod entry;
pub mod executor;
pub mod fetch;
pub mod fields;
pub mod guard;
pub mod idhack;
pub mod limit;
pub mod merge_sort;
pub mod nesting;
pub mod or;
pub mod project;
pub mod rows;
pub mod scan;
pub mod shared;
pub mod sort;
pub mod totals;

pub use entry::Entry;
pub use executor::{Ended, Flow, PlanExecutor};
pub use fields::Fields;
pub use totals::{Leaf, Totals};

use crate::spill::Spilling;
use kauri_base::{CommitSeq, RandomSource, RecordId, Result, Ticket, Timestamp};
use kauri_bson::{Doc, DocCow, DocWriter, Value};
use kauri_expr::{EvalCx, VariableScope};
use kauri_storage::RecoveryUnit;
use std::sync::Arc;

/// What all evaluations of one operation share: its time, its variables.
#[derive(Clone)]
pub struct QueryEnv {
    /// `$$NOW`.
    pub now_ms: i64,
    /// `$$CLUSTER_TIME`, where there is one.
    pub cluster_time: Option<Timestamp>,
    /// Names of the variables of `let`.
    pub scope: VariableScope,
    /// Their values.
    pub values: Vec<Value<'static>>,
    /// For `$rand` and `$sample`.
    pub random: Arc<dyn RandomSource>,
    /// Plans that were found good, and index filters.
    pub plans: Option<Arc<crate::plan::PlanCache>>,
    /// Memory limits of blocking stages, and their temporary store.
    pub spilling: Spilling,
}

impl QueryEnv {
    /// Without variables.
    pub fn new(now_ms: i64, random: Arc<dyn RandomSource>) -> Self {
        QueryEnv {
            now_ms,
            cluster_time: None,
            scope: VariableScope::new(),
            values: Vec::new(),
            random,
            plans: None,
            spilling: Spilling::default(),
        }
    }

    /// The surroundings of an expression.
    pub fn eval_cx(&self) -> EvalCx<'_> {
        EvalCx {
            now_ms: self.now_ms,
            cluster_time: self.cluster_time,
            vars: &self.values,
            random: Some(&*self.random),
            ..EvalCx::default()
        }
    }
}

/// The context of one call of a stage.
pub struct ExecCx<'g> {
    /// The reader's context, entered.
    pub ru: &'g dyn RecoveryUnit,
    /// The operation's surroundings.
    pub env: &'g QueryEnv,
    /// Records or keys that may be examined before the stage returns `Again`.
    pub budget: u32,
}

impl ExecCx<'_> {
    /// Takes one from the budget; false if it is used up.
    #[inline]
    pub fn spend(&mut self) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        true
    }
}

/// A row in a plan.
#[derive(Clone)]
pub struct Row<'g> {
    /// The record it comes from, while that has a meaning.
    pub record: RecordId,
    /// The version that was read.
    pub version: CommitSeq,
    /// The document; empty in a row that is only an index key.
    pub doc: DocCow<'g>,
    /// Its index entry, if the plan needs it.
    pub entry: Option<Box<Entry>>,
    /// Its sort key (`$meta: "sortKey"`), if the plan needs it.
    pub sort_key: Option<Box<Value<'static>>>,
}

impl<'g> Row<'g> {
    /// A row that comes from no record.
    pub fn computed(doc: impl Into<DocCow<'g>>) -> Self {
        Row {
            record: RecordId(0),
            version: CommitSeq(0),
            doc: doc.into(),
            entry: None,
            sort_key: None,
        }
    }

    /// The document.
    #[inline]
    pub fn doc(&self) -> Doc<'_> {
        self.doc.as_doc()
    }

    /// The same row with another document.
    pub fn with_doc<'h>(self, doc: impl Into<DocCow<'h>>) -> Row<'h> {
        Row {
            record: self.record,
            version: self.version,
            doc: doc.into(),
            entry: self.entry,
            sort_key: self.sort_key,
        }
    }

    /// A row of the same record with a document that is lent.
    #[inline]
    pub fn lent<'d>(&self, doc: Doc<'d>) -> Row<'d> {
        Row {
            record: self.record,
            version: self.version,
            doc: DocCow::Borrowed(doc),
            entry: self.entry.clone(),
            sort_key: self.sort_key.clone(),
        }
    }

    /// The same row, owning its document.
    pub fn into_owned(self) -> Row<'static> {
        let doc = self.doc.clone().into_owned();
        self.with_doc(doc)
    }
}

/// Receives borrowed rows, and copies what it keeps.
pub type Take<'t> = dyn FnMut(&Row<'_>) -> Result<Flow> + 't;

/// The result of a call of a stage.
pub enum Step<T> {
    /// A row.
    Row(T),
    /// The budget is used up; there may be more.
    Again,
    /// Something is not at hand: leave, wait, enter, call again.
    Blocked(Ticket),
    /// There are no more rows.
    Done,
}

/// The verbosity of an explanation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Verbosity {
    QueryPlanner,
    ExecutionStats,
    AllPlansExecution,
}

/// A node of a plan.
pub trait Stage: Send {
    /// The next row, or why there is none now.
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>>;

    /// Lends rows to `take`, one after the other, until that wants no more (then the answer is
    /// `Step::Row`) or there is a reason to end as with `work`. A row that is lent may lie in memory
    /// that the stage uses again for the next one, so a stage that makes documents need not
    /// allocate for each.
    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        loop {
            match self.work(cx)? {
                Step::Row(row) => {
                    if take(&row)? != Flow::Continue {
                        return Ok(Step::Row(()));
                    }
                }
                Step::Again => return Ok(Step::Again),
                Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                Step::Done => return Ok(Step::Done),
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }

    /// Whether it is certain already that no row follows the last one. False says nothing.
    fn is_eof(&self) -> bool {
        false
    }

    /// Writes the stage as `explain` shows it (`stage`, its parameters, statistics, `inputStage`).
    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity);

    /// Adds what this stage and those below it have looked at.
    fn add_totals(&self, totals: &mut Totals);
}

/// Counters that each stage keeps for `executionStats`.
#[derive(Clone, Copy, Default, Debug)]
pub struct StageStats {
    /// Calls.
    pub works: u64,
    /// Rows given.
    pub advanced: u64,
    /// Calls that gave none.
    pub need_time: u64,
    /// Calls that had to wait.
    pub need_yield: u64,
    /// Whether the end was reached.
    pub is_eof: bool,
}

impl StageStats {
    /// Counts rows that were lent in a call, and the call's outcome.
    #[inline]
    pub fn count_lent(&mut self, rows: u64, step: Step<()>) -> Step<()> {
        self.works += rows;
        self.advanced += rows;
        match &step {
            Step::Row(()) => {}
            Step::Again => self.need_time += 1,
            Step::Blocked(_) => self.need_yield += 1,
            Step::Done => self.is_eof = true,
        }
        step
    }

    /// Counts a call by its outcome and passes that on.
    #[inline]
    pub fn count<T>(&mut self, step: Step<T>) -> Step<T> {
        self.works += 1;
        match &step {
            Step::Row(_) => self.advanced += 1,
            Step::Again => self.need_time += 1,
            Step::Blocked(_) => self.need_yield += 1,
            Step::Done => self.is_eof = true,
        }
        step
    }

    /// Writes the counters as every stage of `executionStats` has them.
    pub fn write(&self, out: &mut DocWriter<'_>) {
        out.put("nReturned", self.advanced as i64);
        out.put("executionTimeMillisEstimate", 0);
        out.put("works", self.works as i64);
        out.put("advanced", self.advanced as i64);
        out.put("needTime", self.need_time as i64);
        out.put("needYield", self.need_yield as i64);
        out.put("saveState", self.need_yield as i64);
        out.put("restoreState", self.need_yield as i64);
        out.put("isEOF", i32::from(self.is_eof));
    }
}

/// A stage without rows: a filter that can match nothing, a collection that does not exist.
#[derive(Default)]
pub struct Eof {
    stats: StageStats,
}

impl Stage for Eof {
    fn work<'g>(&mut self, _cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        Ok(self.stats.count(Step::Done))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "EOF");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.add_leaf("EOF", None);
    }
}
