//! PROJECTION: what find's projection makes of each row.

use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::Result;
use kauri_bson::{Doc, DocBuf, DocWriter, Value};
use kauri_expr::{EvalCx, MetaSource};
use kauri_matcher::Matcher;
use kauri_mutate::{ProjectCx, Projection};
use std::sync::Arc;

/// Applies a projection to documents.
pub struct Project {
    child: Box<dyn Stage>,
    projection: Arc<Projection>,
    /// The projection as the user gave it.
    spec: DocBuf,
    filter: Option<Arc<Matcher>>,
    simple: bool,
    stats: StageStats,
}

impl Project {
    /// Projects the rows of `child`.
    pub fn new(
        child: Box<dyn Stage>,
        projection: Arc<Projection>,
        spec: DocBuf,
        filter: Option<Arc<Matcher>>,
    ) -> Self {
        let simple = is_simple(spec.as_doc());
        Project { child, projection, spec, filter, simple, stats: StageStats::default() }
    }
}

/// What `$meta` finds of a row.
pub struct RowMeta<'r> {
    sort_key: Option<&'r Value<'static>>,
    record_id: i64,
}

impl<'r> RowMeta<'r> {
    /// Of this row.
    pub fn of(row: &'r Row<'_>) -> Self {
        RowMeta { sort_key: row.sort_key.as_deref(), record_id: row.record.0 as i64 }
    }
}

impl MetaSource for RowMeta<'_> {
    fn meta(&self, name: &str) -> Value<'_> {
        match name {
            "sortKey" => self.sort_key.map_or(Value::Missing, Value::borrow),
            "recordId" => Value::Int64(self.record_id),
            _ => Value::Missing,
        }
    }
}

/// Only names with true or false values, no dotted paths: MongoDB's PROJECTION_SIMPLE.
fn is_simple(spec: Doc<'_>) -> bool {
    spec.iter().all(|e| {
        !e.key_bytes().contains(&b'.')
            && (e.value().is_number() || e.ty() == kauri_bson::Type::Bool)
    })
}

impl Stage for Project {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.child.work(cx)? {
            Step::Row(row) => {
                let mut out = Vec::with_capacity(row.doc().as_bytes().len().min(4096));
                let meta = RowMeta::of(&row);
                let eval = EvalCx { meta: Some(&meta), ..cx.env.eval_cx() };
                let mut project_cx = ProjectCx::new(eval);
                if let Some(filter) = &self.filter {
                    project_cx = project_cx.with_filter(filter.expr());
                }
                self.projection.apply(row.doc(), &project_cx, &mut out)?;
                let doc = DocBuf::from_vec(out)?;
                Step::Row(row.with_doc(doc))
            }
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        };
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", if self.simple { "PROJECTION_SIMPLE" } else { "PROJECTION_DEFAULT" });
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        out.put("transformBy", &self.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
