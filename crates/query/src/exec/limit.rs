//! SKIP and LIMIT.

use super::{ExecCx, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_base::Result;
use kauri_bson::DocWriter;

/// Leaves the first rows out.
pub struct Skip {
    child: Box<dyn Stage>,
    amount: u64,
    left: u64,
    stats: StageStats,
}

impl Skip {
    /// Leaves out the first `amount` rows of `child`.
    pub fn new(child: Box<dyn Stage>, amount: u64) -> Self {
        Skip { child, amount, left: amount, stats: StageStats::default() }
    }

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        while self.left > 0 {
            match self.child.work(cx)? {
                Step::Row(_) => self.left -= 1,
                other => return Ok(other),
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        self.child.work(cx)
    }
}

impl Stage for Skip {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let (left, mut lent) = (&mut self.left, 0);
        let step = self.child.feed(cx, &mut |row| {
            if *left > 0 {
                *left -= 1;
                return Ok(Flow::Continue);
            }
            lent += 1;
            take(row)
        })?;
        Ok(self.stats.count_lent(lent, step))
    }

    fn is_eof(&self) -> bool {
        self.child.is_eof()
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "SKIP");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        out.put("skipAmount", self.amount as i64);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}

/// Ends after a number of rows.
pub struct Limit {
    child: Box<dyn Stage>,
    amount: u64,
    left: u64,
    stats: StageStats,
}

impl Limit {
    /// At most `amount` rows of `child`.
    pub fn new(child: Box<dyn Stage>, amount: u64) -> Self {
        Limit { child, amount, left: amount, stats: StageStats::default() }
    }
}

impl Stage for Limit {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = if self.left == 0 { Step::Done } else { self.child.work(cx)? };
        if matches!(step, Step::Row(_)) {
            self.left -= 1;
        }
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        if self.left == 0 {
            return Ok(self.stats.count_lent(0, Step::Done));
        }
        let (left, mut lent, mut refused) = (&mut self.left, 0, false);
        let step = self.child.feed(cx, &mut |row| {
            *left -= 1;
            lent += 1;
            refused = take(row)? != Flow::Continue;
            Ok(if refused || *left == 0 { Flow::Stop } else { Flow::Continue })
        })?;
        let step = match step {
            Step::Row(()) if !refused => Step::Done,
            step => step,
        };
        Ok(self.stats.count_lent(lent, step))
    }

    fn is_eof(&self) -> bool {
        self.left == 0 || self.child.is_eof()
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "LIMIT");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        out.put("limitAmount", self.amount as i64);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
