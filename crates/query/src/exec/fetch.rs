//! FETCH: reads the documents of an index's rows and filters them.

use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{Access, CommitSeq, Result, Ticket};
use kauri_bson::{Doc, DocWriter};
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
    pending: Option<Row<'static>>,
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
        loop {
            let row = match self.pending.take() {
                Some(row) => row,
                None => match self.child.work(cx)? {
                    Step::Row(row) => row,
                    other => return Ok(other),
                },
            };
            let filter = self.filter.as_ref();
            match fetch(&self.collection, cx, &row, filter, self.recheck.as_ref())? {
                Found::Document(doc, version) => {
                    self.docs_examined += 1;
                    return Ok(Step::Row(Row { version, ..row.with_doc(doc) }));
                }
                Found::Blocked(ticket) => {
                    self.pending = Some(row.into_owned());
                    return Ok(Step::Blocked(ticket));
                }
                Found::Gone => {}
                Found::Other => self.docs_examined += 1,
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }
}

/// The state of a row's record.
pub enum Found<'g> {
    /// The document, which satisfies the filter, and its version.
    Document(Doc<'g>, CommitSeq),
    /// A document that does not satisfy it.
    Other,
    /// Nothing.
    Gone,
    /// It is not at hand.
    Blocked(Ticket),
}

/// Reads a row's document. `filter` is the remaining filter on it; `recheck` is used instead if the record has
/// changed since the row's index entry was read.
pub fn fetch<'g>(
    collection: &Collection,
    cx: &ExecCx<'g>,
    row: &Row<'_>,
    filter: Option<&Arc<Matcher>>,
    recheck: Option<&Arc<Matcher>>,
) -> Result<Found<'g>> {
    let record = match collection.get(cx.ru, row.record)? {
        Access::Ready(Some(record)) => record,
        Access::Ready(None) => return Ok(Found::Gone),
        Access::WouldBlock(ticket) => return Ok(Found::Blocked(ticket)),
    };
    let filter = if record.version > row.version { recheck } else { filter };
    let matches = match filter {
        Some(filter) => filter.matches(record.doc, &crate::match_cx(cx.env))?,
        None => true,
    };
    Ok(if matches { Found::Document(record.doc, record.version) } else { Found::Other })
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
