//! IDHACK: the one document of an `_id`.

use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{Access, Result};
use kauri_bson::{DocWriter, KeyStringBuilder, Value};
use kauri_catalog::{Collection, Index};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module's head.
pub struct IdHack {
    collection: Arc<Collection>,
    index: Arc<Index>,
    key: KeyStringBuilder,
    done: bool,
    stats: StageStats,
    keys_examined: u64,
    docs_examined: u64,
}

impl IdHack {
    /// The document with this `_id`, which is no array, null or regex.
    pub fn new(collection: Arc<Collection>, index: Arc<Index>, id: &Value<'_>) -> Self {
        let mut key = KeyStringBuilder::new();
        key.append(id, false);
        IdHack {
            collection,
            index,
            key,
            done: false,
            stats: StageStats::default(),
            keys_examined: 0,
            docs_examined: 0,
        }
    }

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        if self.done {
            return Ok(Step::Done);
        }
        let record = match self.index.find(cx.ru, self.key.bytes())? {
            Access::Ready(Some(record)) => record,
            Access::Ready(None) => {
                self.done = true;
                return Ok(Step::Done);
            }
            Access::WouldBlock(ticket) => return Ok(Step::Blocked(ticket)),
        };
        match self.collection.get(cx.ru, record)? {
            Access::WouldBlock(ticket) => Ok(Step::Blocked(ticket)),
            Access::Ready(None) => {
                self.done = true;
                Ok(Step::Done)
            }
            Access::Ready(Some(found)) => {
                self.done = true;
                self.keys_examined = 1;
                self.docs_examined = 1;
                self.index.usage.accesses.fetch_add(1, Ordering::Relaxed);
                Ok(Step::Row(Row {
                    record,
                    version: found.version,
                    doc: found.doc.into(),
                    entry: None,
                    sort_key: None,
                }))
            }
        }
    }
}

impl Stage for IdHack {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn is_eof(&self) -> bool {
        self.done
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "IDHACK");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
            out.put("keysExamined", self.keys_examined as i64);
            out.put("docsExamined", self.docs_examined as i64);
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.keys_examined += self.keys_examined;
        totals.docs_examined += self.docs_examined;
        totals.add_leaf("IDHACK", None);
    }
}
