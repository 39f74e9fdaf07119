//! PROJECTION_COVERED: rows made of index keys, without reading documents.
//!
//! If a key is ambiguous (a null that may stand for a missing field, an index that became multikey after planning),
//! the document is fetched.

use super::entry::nested;
use super::fetch::Found;
use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity, fetch};
use crate::exec::project;
use kauri_base::{CommitSeq, Result};
use kauri_bson::{DocBuf, DocWriter, Value};
use kauri_catalog::Collection;
use kauri_matcher::Matcher;
use kauri_mutate::Projection;
use std::sync::Arc;

/// See the module's head.
pub struct Covered {
    child: Box<dyn Stage>,
    collection: Arc<Collection>,
    /// The key's fields that rows are made of.
    fields: Vec<usize>,
    projection: Arc<Projection>,
    spec: DocBuf,
    /// All that a document must satisfy that is fetched after all.
    filter: Option<Arc<Matcher>>,
    pending: Option<Row<'static>>,
    stats: StageStats,
    docs_examined: u64,
}

impl Covered {
    /// Makes rows of the entries that `child` gives.
    pub fn new(
        child: Box<dyn Stage>,
        collection: Arc<Collection>,
        fields: Vec<usize>,
        (projection, spec): (Arc<Projection>, DocBuf),
        filter: Option<Arc<Matcher>>,
    ) -> Self {
        Covered {
            child,
            collection,
            fields,
            projection,
            spec,
            filter,
            pending: None,
            stats: StageStats::default(),
            docs_examined: 0,
        }
    }

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        loop {
            let row: Row<'_> = match self.pending.take() {
                Some(row) => row,
                None => match self.child.work(cx)? {
                    Step::Row(row) => row,
                    other => return Ok(other),
                },
            };
            if let Some(doc) = self.of_key(&row)? {
                let row = row.with_doc(doc);
                return project::project(&self.projection, None, cx.env, row).map(Step::Row);
            }
            let filter = self.filter.as_ref();
            match fetch::fetch(&self.collection, cx, &row, filter, filter)? {
                Found::Blocked(ticket) => {
                    self.pending = Some(row.into_owned());
                    return Ok(Step::Blocked(ticket));
                }
                Found::Document(doc, _) => {
                    self.docs_examined += 1;
                    let row = row.with_doc(doc);
                    return project::project(&self.projection, None, cx.env, row).map(Step::Row);
                }
                Found::Gone => {}
                Found::Other => self.docs_examined += 1,
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }

    /// The document as far as the key tells it, if that is far enough.
    fn of_key(&self, row: &Row<'_>) -> Result<Option<DocBuf>> {
        let Some(entry) = row.entry.as_deref().filter(|_| row.version != CommitSeq(0)) else {
            return Ok(None);
        };
        let values = entry.values()?;
        let open = |field: &usize| {
            values.get(*field).is_none_or(|v| matches!(v, Value::Null | Value::Undefined))
        };
        if self.fields.iter().any(open) {
            return Ok(None);
        }
        Ok(Some(nested(&entry.index, &values)))
    }
}

impl Stage for Covered {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "PROJECTION_COVERED");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        out.put("transformBy", &self.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.docs_examined += self.docs_examined;
        self.child.add_totals(totals);
    }
}
