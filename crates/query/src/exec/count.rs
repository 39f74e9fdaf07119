//! COUNT: the number of rows, as one row.

use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::Result;
use kauri_bson::{DocWriter, doc};

/// See the module's head.
pub struct Count {
    child: Box<dyn Stage>,
    /// Rows not to be counted before the others.
    skip: u64,
    /// Rows to be counted at most; 0 for all.
    limit: u64,
    skipped: u64,
    counted: u64,
    told: bool,
    stats: StageStats,
}

impl Count {
    /// Counts the rows of `child`.
    pub fn new(child: Box<dyn Stage>, skip: u64, limit: u64) -> Self {
        let stats = StageStats::default();
        Count { child, skip, limit, skipped: 0, counted: 0, told: false, stats }
    }
}

impl Stage for Count {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        while !self.told && (self.limit == 0 || self.counted < self.limit) {
            match self.child.work(cx)? {
                Step::Row(_) if self.skipped < self.skip => self.skipped += 1,
                Step::Row(_) => self.counted += 1,
                Step::Done => break,
                other => return Ok(self.stats.count(other)),
            }
            if !cx.spend() {
                return Ok(self.stats.count(Step::Again));
            }
        }
        if self.told {
            return Ok(self.stats.count(Step::Done));
        }
        self.told = true;
        Ok(Step::Row(Row::computed(doc! { "n" => self.counted as i64 })))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "COUNT");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
            out.put("nCounted", self.counted as i64);
            out.put("nSkipped", self.skipped as i64);
        }
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}

/// RECORD_STORE_FAST_COUNT: the number of records that the store keeps.
pub struct FastCount {
    collection: std::sync::Arc<kauri_catalog::Collection>,
    skip: u64,
    limit: u64,
    counted: u64,
    told: bool,
    stats: StageStats,
}

impl FastCount {
    /// Counts the collection's records.
    pub fn new(
        collection: std::sync::Arc<kauri_catalog::Collection>,
        skip: u64,
        limit: u64,
    ) -> Self {
        let stats = StageStats::default();
        FastCount { collection, skip, limit, counted: 0, told: false, stats }
    }
}

impl Stage for FastCount {
    fn work<'g>(&mut self, _cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        if self.told {
            return Ok(self.stats.count(Step::Done));
        }
        let all = self.collection.stats()?.records.saturating_sub(self.skip);
        self.told = true;
        self.counted = if self.limit > 0 { all.min(self.limit) } else { all };
        Ok(Step::Row(Row::computed(doc! { "n" => self.counted as i64 })))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "RECORD_STORE_FAST_COUNT");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
            out.put("nCounted", self.counted as i64);
            out.put("nSkipped", self.skip as i64);
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.add_leaf("RECORD_STORE_FAST_COUNT", None);
    }
}
