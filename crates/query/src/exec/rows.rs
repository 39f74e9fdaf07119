//! Rows from memory, as in `listCollections` and `$documents`.

use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::Result;
use kauri_bson::{DocBuf, DocWriter};
use std::collections::VecDeque;

/// See the module's head.
pub struct Rows {
    rows: VecDeque<DocBuf>,
    stats: StageStats,
}

impl Rows {
    /// These documents, in this order.
    pub fn new(rows: impl IntoIterator<Item = DocBuf>) -> Self {
        Rows { rows: rows.into_iter().collect(), stats: StageStats::default() }
    }
}

impl Stage for Rows {
    fn work<'g>(&mut self, _cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.rows.pop_front() {
            Some(doc) => Step::Row(Row::computed(doc)),
            None => Step::Done,
        };
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "QUEUED_DATA");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
    }

    fn add_totals(&self, _totals: &mut Totals) {}
}
