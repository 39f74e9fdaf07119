//! SORT_MERGE: merges the rows of several children that are already in the requested order; each record once.

use super::sort::SortPattern;
use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{RecordId, Result};
use kauri_bson::DocWriter;
use kauri_bson::keygen::Keys;
use std::collections::HashSet;

/// See the module's head.
pub struct MergeSort {
    pattern: SortPattern,
    children: Vec<Child>,
    seen: HashSet<RecordId>,
    keys: Keys,
    dups_tested: u64,
    dups_dropped: u64,
    stats: StageStats,
}

struct Child {
    stage: Box<dyn Stage>,
    /// Its next row and what that is sorted by.
    next: Option<(Vec<u8>, Row<'static>)>,
    done: bool,
}

impl MergeSort {
    /// Merges the rows of these; each has its documents.
    pub fn new(pattern: SortPattern, children: Vec<Box<dyn Stage>>) -> Self {
        let child = |stage| Child { stage, next: None, done: false };
        MergeSort {
            pattern,
            children: children.into_iter().map(child).collect(),
            seen: HashSet::new(),
            keys: Keys::default(),
            dups_tested: 0,
            dups_dropped: 0,
            stats: StageStats::default(),
        }
    }

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        loop {
            for child in self.children.iter_mut().filter(|c| c.next.is_none() && !c.done) {
                match child.stage.work(cx)? {
                    Step::Row(row) => {
                        let mut key = Vec::new();
                        self.pattern.key_into(row.doc(), &mut self.keys, &mut key)?;
                        child.next = Some((key, row.into_owned()));
                    }
                    Step::Done => child.done = true,
                    other => return Ok(other),
                }
            }
            let least = self
                .children
                .iter_mut()
                .filter(|child| child.next.is_some())
                .min_by(|a, b| key_of(a).cmp(&key_of(b)));
            let Some((_, row)) = least.and_then(|child| child.next.take()) else {
                return Ok(Step::Done);
            };
            self.dups_tested += 1;
            if self.seen.insert(row.record) {
                return Ok(Step::Row(row));
            }
            self.dups_dropped += 1;
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }
}

fn key_of(child: &Child) -> Option<&[u8]> {
    child.next.as_ref().map(|(key, _)| key.as_slice())
}

impl Stage for MergeSort {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "SORT_MERGE");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        out.put("sortPattern", self.pattern.spec());
        if verbosity > Verbosity::QueryPlanner {
            out.put("dupsTested", self.dups_tested as i64);
            out.put("dupsDropped", self.dups_dropped as i64);
        }
        let mut inputs = out.array("inputStages");
        for child in &self.children {
            child.stage.explain(&mut inputs.document(), verbosity);
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.children.iter().for_each(|child| child.stage.add_totals(totals));
    }
}
