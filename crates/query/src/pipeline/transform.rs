//! Stages that make of each document another: `$project`, `$addFields`, `$set`, `$unset`,
//! `$replaceRoot`, `$replaceWith`.

use super::{BuildCx, ParseCx, StageSpec};
use crate::exec::project::RowMeta;
use crate::exec::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::Result;
use kauri_bson::{DocBuf, DocWriter, Elem, Value};
use kauri_expr::EvalCx;
use kauri_mutate::{DocTransform, ProjectCx};
use std::any::Any;
use std::sync::Arc;

/// A parsed stage.
pub struct Transform {
    name: &'static str,
    spec: Value<'static>,
    transform: Arc<DocTransform>,
}

const NAMES: &[&str] =
    &["$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith"];

impl Transform {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Transform> {
        let expressions = cx.expressions();
        let parse_cx = kauri_mutate::ParseCx::new().with_expressions(&expressions);
        let transform = DocTransform::parse(elem.key(), &elem.value(), &parse_cx)?;
        let name = NAMES.iter().find(|n| **n == elem.key()).copied().unwrap_or("$project");
        Ok(Transform { name, spec: elem.value().into_owned(), transform: Arc::new(transform) })
    }

    /// What it does to a document.
    pub fn transform(&self) -> &DocTransform {
        &self.transform
    }
}

impl StageSpec for Transform {
    fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(TransformStage {
            child,
            name: self.name,
            spec: self.spec.clone(),
            transform: self.transform.clone(),
            stats: StageStats::default(),
        }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put_value(self.name, &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct TransformStage {
    child: Box<dyn Stage>,
    name: &'static str,
    spec: Value<'static>,
    transform: Arc<DocTransform>,
    stats: StageStats,
}

impl Stage for TransformStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.child.work(cx)? {
            Step::Row(row) => {
                let mut out = Vec::with_capacity(row.doc().as_bytes().len().min(4096));
                let meta = RowMeta::of(&row);
                let eval = EvalCx { meta: Some(&meta), ..cx.env.eval_cx() };
                self.transform.apply(row.doc(), &ProjectCx::new(eval), &mut out)?;
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
        out.put("stage", self.name);
        out.put_value("spec", &self.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
