//! DISTINCT_SCAN: one entry per value of an index's first field; others are skipped.

use super::entry::Entry;
use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use crate::plan::bounds::{IndexBounds, KeyRange};
use kauri_base::{Access, Result};
use kauri_bson::{Discriminator, Doc, DocWriter, KeyStringBuilder, Value};
use kauri_catalog::Index;
use kauri_storage::{Direction, IndexScan};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module's head. Rows have an entry and no document.
pub struct DistinctScan {
    index: Arc<Index>,
    bounds: IndexBounds,
    ranges: std::vec::IntoIter<KeyRange>,
    scan: Option<IndexScan>,
    used: bool,
    stats: StageStats,
    keys_examined: u64,
}

impl DistinctScan {
    /// The values of the first field of `index` within `bounds`.
    pub fn new(index: Arc<Index>, bounds: IndexBounds) -> Self {
        let ranges = bounds.ranges.clone().into_iter();
        let stats = StageStats::default();
        DistinctScan { index, bounds, ranges, scan: None, used: false, stats, keys_examined: 0 }
    }

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        if !self.used {
            self.used = true;
            self.index.usage.accesses.fetch_add(1, Ordering::Relaxed);
        }
        loop {
            let Some(scan) = &mut self.scan else {
                let Some(range) = self.ranges.next() else { return Ok(Step::Done) };
                self.scan = Some(IndexScan::new(Direction::Forward, range.low, range.high));
                continue;
            };
            let Some(entry) = scan.next_buffered() else {
                if scan.ended() {
                    self.scan = None;
                } else if let Access::WouldBlock(ticket) = self.index.fill(cx.ru, scan)? {
                    return Ok(Step::Blocked(ticket));
                }
                continue;
            };
            self.keys_examined += 1;
            let record = entry.record;
            let entry = Entry {
                index: self.index.clone(),
                key: entry.key.to_vec(),
                type_bits: entry.type_bits.to_vec(),
            };
            let values = entry.values()?;
            let mut behind = KeyStringBuilder::new();
            if let Some(first) = values.first() {
                behind.append(first, self.index.definition().pattern.is_descending(0));
            }
            behind.finish(Discriminator::ExclusiveAfter);
            let (behind, (_, high)) = (behind.to_vec(), scan.range());
            if matches!(values.first(), Some(Value::Null | Value::Undefined)) {
                // Such may stand for a document without the field, so each has to be seen.
            } else if !high.is_empty() && behind.as_slice() >= high {
                self.scan = None;
            } else {
                scan.skip_to(behind);
            }
            return Ok(Step::Row(Row {
                record,
                version: cx.ru.snapshot(),
                doc: Doc::EMPTY.into(),
                entry: Some(Box::new(entry)),
                sort_key: None,
            }));
        }
    }
}

impl Stage for DistinctScan {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "DISTINCT_SCAN");
        let stats = verbosity > Verbosity::QueryPlanner;
        if stats {
            self.stats.write(out);
        }
        crate::explain::write_index(out, &self.index);
        out.put("direction", crate::explain::direction_name(Direction::Forward));
        self.bounds.write(out, Direction::Forward);
        if stats {
            out.put("keysExamined", self.keys_examined as i64);
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.keys_examined += self.keys_examined;
        totals.add_leaf("DISTINCT_SCAN", Some(&self.index));
    }
}
