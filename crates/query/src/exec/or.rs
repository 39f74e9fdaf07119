//! OR: the rows of several index scans, each record once.

use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{RecordId, Result};
use kauri_bson::DocWriter;
use std::collections::HashSet;

/// See the module's head.
pub struct Or {
    children: Vec<Box<dyn Stage>>,
    at: usize,
    seen: HashSet<RecordId>,
    dups_tested: u64,
    dups_dropped: u64,
    stats: StageStats,
}

impl Or {
    /// The rows of these, one after the other.
    pub fn new(children: Vec<Box<dyn Stage>>) -> Self {
        Or {
            children,
            at: 0,
            seen: HashSet::new(),
            dups_tested: 0,
            dups_dropped: 0,
            stats: StageStats::default(),
        }
    }

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        while let Some(child) = self.children.get_mut(self.at) {
            match child.work(cx)? {
                Step::Row(row) => {
                    self.dups_tested += 1;
                    if self.seen.insert(row.record) {
                        return Ok(Step::Row(row));
                    }
                    self.dups_dropped += 1;
                }
                Step::Done => self.at += 1,
                other => return Ok(other),
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        Ok(Step::Done)
    }
}

impl Stage for Or {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "OR");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
            out.put("dupsTested", self.dups_tested as i64);
            out.put("dupsDropped", self.dups_dropped as i64);
        }
        let mut inputs = out.array("inputStages");
        for child in &self.children {
            child.explain(&mut inputs.document(), verbosity);
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.children.iter().for_each(|child| child.add_totals(totals));
    }
}
