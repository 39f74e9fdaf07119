//! FETCH: looks up the documents of the rows that an index gave, and filters them.

use super::{Entry, ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{Access, CommitSeq, RecordId, Result};
use kauri_bson::DocWriter;
use kauri_catalog::Collection;
use kauri_matcher::Matcher;
use std::sync::Arc;

/// See the module's head.
pub struct Fetch {
    child: Box<dyn Stage>,
    collection: Arc<Collection>,
    /// What the index's bounds leave open.
    filter: Option<Arc<Matcher>>,
    /// All that the row must satisfy, asked if the record has changed since its index entry was
    /// read.
    recheck: Option<Arc<Matcher>>,
    pending: Option<(RecordId, CommitSeq, Option<Box<Entry>>)>,
    stats: StageStats,
    docs_examined: u64,
}

impl Fetch {
    /// Fetches for the rows of `child`.
    pub fn new(
        child: Box<dyn Stage>,
        collection: Arc<Collection>,
        filter: Option<Arc<Matcher>>,
        recheck: Option<Arc<Matcher>>,
    ) -> Self {
        Fetch {
            child,
            collection,
            filter,
            recheck,
            pending: None,
            stats: StageStats::default(),
            docs_examined: 0,
        }
    }

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let match_cx = crate::match_cx(cx.env);
        loop {
            let (id, filled_at, entry) = match self.pending.take() {
                Some(pending) => pending,
                None => match self.child.work(cx)? {
                    Step::Row(row) => (row.record, row.version, row.entry),
                    Step::Again => return Ok(Step::Again),
                    Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                    Step::Done => return Ok(Step::Done),
                },
            };
            let record = match self.collection.store.get(cx.ru, id)? {
                Access::Ready(Some(record)) => record,
                Access::Ready(None) => {
                    if !cx.spend() {
                        return Ok(Step::Again);
                    }
                    continue;
                }
                Access::WouldBlock(ticket) => {
                    self.pending = Some((id, filled_at, entry));
                    return Ok(Step::Blocked(ticket));
                }
            };
            self.docs_examined += 1;
            let filter = match &self.recheck {
                Some(recheck) if record.version > filled_at => Some(recheck),
                _ => self.filter.as_ref(),
            };
            let matches = match filter {
                Some(filter) => filter.matches(record.doc, &match_cx)?,
                None => true,
            };
            if matches {
                return Ok(Step::Row(Row {
                    record: id,
                    version: record.version,
                    doc: record.doc.into(),
                    entry,
                    sort_key: None,
                }));
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }
}

impl Stage for Fetch {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "FETCH");
        crate::explain::write_filter(out, self.filter.as_deref());
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
            out.put("docsExamined", self.docs_examined as i64);
            out.put("alreadyHasObj", 0);
        }
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.docs_examined += self.docs_examined;
        self.child.add_totals(totals);
    }
}
