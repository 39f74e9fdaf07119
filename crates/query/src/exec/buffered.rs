//! Rows that a plan returned during its trial, followed by the plan's further rows.

use super::{ExecCx, Flow, Row, Stage, Step, Take, Totals, Verbosity};
use kauri_base::Result;
use kauri_bson::DocWriter;
use std::collections::VecDeque;

/// See the module's head. Not visible in `explain`.
pub struct Buffered {
    child: Box<dyn Stage>,
    rows: VecDeque<Row<'static>>,
    done: bool,
}

impl Buffered {
    /// `rows`, then those of `child`, which is at its end if `done`.
    pub fn new(child: Box<dyn Stage>, rows: Vec<Row<'static>>, done: bool) -> Self {
        Buffered { child, rows: rows.into(), done }
    }
}

impl Stage for Buffered {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        match self.rows.pop_front() {
            Some(row) => Ok(Step::Row(row)),
            None if self.done => Ok(Step::Done),
            None => self.child.work(cx),
        }
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        while let Some(row) = self.rows.pop_front() {
            if take(&row)? != Flow::Continue {
                return Ok(Step::Row(()));
            }
        }
        if self.done { Ok(Step::Done) } else { self.child.feed(cx, take) }
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        self.child.explain(out, verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.won_trial = true;
        self.child.add_totals(totals);
    }
}
