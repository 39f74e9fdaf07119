//! PROJECTION: applies find's projection to each row.

use super::{Entry, ExecCx, QueryEnv, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
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
    /// Where documents that are lent lie.
    scratch: Vec<u8>,
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
        let (scratch, stats) = (Vec::new(), StageStats::default());
        Project { child, projection, spec, filter, simple, scratch, stats }
    }
}

/// The values of a row for `$meta`.
pub struct RowMeta<'r> {
    sort_key: Option<&'r Value<'static>>,
    record_id: i64,
    entry: Option<&'r Entry>,
}

impl<'r> RowMeta<'r> {
    /// The values of this row.
    pub fn of(row: &'r Row<'_>) -> Self {
        RowMeta {
            sort_key: row.sort_key.as_deref(),
            record_id: row.record.0 as i64,
            entry: row.entry.as_deref(),
        }
    }
}

impl MetaSource for RowMeta<'_> {
    fn meta(&self, name: &str) -> Value<'_> {
        match name {
            "sortKey" => self.sort_key.map_or(Value::Missing, Value::borrow),
            "recordId" => Value::Int64(self.record_id),
            "indexKey" => match self.entry.map(Entry::flat) {
                Some(Ok(key)) => Value::from(key),
                _ => Value::Missing,
            },
            _ => Value::Missing,
        }
    }
}

/// The row with its document projected.
pub fn project<'g>(
    projection: &Projection,
    filter: Option<&Matcher>,
    env: &QueryEnv,
    row: Row<'_>,
) -> Result<Row<'g>> {
    let mut out = Vec::with_capacity(row.doc().as_bytes().len().min(4096));
    apply(projection, filter, env, &row, &mut out)?;
    let doc = DocBuf::from_vec(out)?;
    Ok(row.with_doc(doc))
}

fn apply(
    projection: &Projection,
    filter: Option<&Matcher>,
    env: &QueryEnv,
    row: &Row<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let meta = RowMeta::of(row);
    let eval = EvalCx { meta: Some(&meta), ..env.eval_cx() };
    let mut project_cx = ProjectCx::new(eval);
    if let Some(filter) = filter {
        project_cx = project_cx.with_filter(filter.expr());
    }
    projection.apply(row.doc(), &project_cx, out)
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
                Step::Row(project(&self.projection, self.filter.as_deref(), cx.env, row)?)
            }
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        };
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let (env, mut lent) = (cx.env, 0);
        let Project { child, projection, filter, scratch, .. } = self;
        let step = child.feed(cx, &mut |row| {
            scratch.clear();
            apply(projection, filter.as_deref(), env, row, scratch)?;
            lent += 1;
            take(&row.lent(Doc::from_bytes(scratch)?))
        })?;
        Ok(self.stats.count_lent(lent, step))
    }

    fn is_eof(&self) -> bool {
        self.child.is_eof()
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
