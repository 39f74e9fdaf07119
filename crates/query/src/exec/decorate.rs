//! Output options of a query: the record id (`showRecordId`), or the index key instead of the document
//! (`returnKey`).

use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::Result;
use kauri_bson::{DocBuf, DocWriter};

/// See the module's head.
pub struct Decorate {
    child: Box<dyn Stage>,
    return_key: bool,
    record_id: bool,
    stats: StageStats,
}

impl Decorate {
    /// Shows this of the rows of `child`.
    pub fn new(child: Box<dyn Stage>, return_key: bool, record_id: bool) -> Self {
        Decorate { child, return_key, record_id, stats: StageStats::default() }
    }

    fn shown(&self, row: &Row<'_>) -> Result<DocBuf> {
        let key = match &row.entry {
            Some(entry) if self.return_key => entry.flat()?,
            _ => DocBuf::new(),
        };
        Ok(DocBuf::build(|w| {
            w.put_all(if self.return_key { key.as_doc() } else { row.doc() });
            // An index key has no record id beside it.
            if self.record_id && !self.return_key {
                w.put("$recordId", row.record.0 as i64);
            }
        }))
    }
}

impl Stage for Decorate {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.child.work(cx)? {
            Step::Row(row) => {
                let shown = self.shown(&row)?;
                Step::Row(row.with_doc(shown))
            }
            other => other,
        };
        Ok(self.stats.count(step))
    }

    fn is_eof(&self) -> bool {
        self.child.is_eof()
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        if !self.return_key {
            self.child.explain(out, verbosity);
            return;
        }
        out.put("stage", "RETURN_KEY");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
