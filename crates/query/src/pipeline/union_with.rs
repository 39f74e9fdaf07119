//! `$unionWith`: the rows, and then those of a pipeline over another collection.

use super::parse::Place;
use super::spec::{self, Spec};
use super::sub::{self, SubPipeline};
use super::{BuildCx, FieldUse, Input, ParseCx, Pipeline, StageSpec, build};
use crate::exec::{ExecCx, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocWriter, Elem, Type, Value};
use kauri_catalog::Namespace;
use std::any::Any;

/// A parsed `$unionWith`.
pub struct UnionWith {
    spec: Value<'static>,
    sub: SubPipeline,
}

impl UnionWith {
    /// Parses the stage: a collection's name, or `{coll, pipeline}`.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<UnionWith> {
        let (coll, stages) = match elem.value() {
            Value::String(name) => (Some(name.into_owned()), Doc::EMPTY),
            Value::Document(_) => {
                let doc = elem.as_doc().unwrap_or(Doc::EMPTY);
                let fields = Spec::new("$unionWith", doc, &["coll", "pipeline", "db"])?;
                let stages = match fields.get("pipeline") {
                    Some(elem) => spec::pipeline(elem)?,
                    None => Doc::EMPTY,
                };
                (fields.string("coll")?, stages)
            }
            _ => bail!(
                FailedToParse,
                "the $unionWith stage specification must be an object or string, but found {}",
                Type::alias(elem.ty())
            ),
        };
        let from = match coll {
            Some(name) => Some(Namespace::new(&cx.db, &name)?),
            None if sub::begins_with_documents(stages) => None,
            None => bail!(
                FailedToParse,
                "$unionWith stage without explicit collection must have a pipeline with \
                 $documents as first stage"
            ),
        };
        let sub = SubPipeline::parse(from, stages, Place::Union, cx)?;
        Ok(UnionWith { spec: elem.value().into_owned(), sub })
    }
}

impl StageSpec for UnionWith {
    fn name(&self) -> &'static str {
        "$unionWith"
    }

    fn field_use(&self) -> FieldUse {
        let mut field_use = FieldUse::passing();
        field_use.add_pipeline(&self.sub.uses(), false, usize::MAX);
        field_use
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        let resolved = self.sub.resolve(cx)?;
        let cx = sub::build_cx(cx, &resolved);
        let other = build(&Pipeline { stages: resolved.stages }, Input::Collection(None), &cx)?;
        Ok(Box::new(UnionStage { child, other, first_done: false, stats: StageStats::default() }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put_value("$unionWith", &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct UnionStage {
    child: Box<dyn Stage>,
    other: Box<dyn Stage>,
    first_done: bool,
    stats: StageStats,
}

impl Stage for UnionStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let mut step = Step::Done;
        if !self.first_done {
            step = self.child.work(cx)?;
            self.first_done = matches!(step, Step::Done);
        }
        if self.first_done {
            step = self.other.work(cx)?;
        }
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut step = Step::Done;
        if !self.first_done {
            step = self.child.feed(cx, take)?;
            self.first_done = matches!(step, Step::Done);
        }
        if self.first_done {
            step = self.other.feed(cx, take)?;
        }
        Ok(self.stats.count_lent(0, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "UNION_WITH");
        let mut inputs = out.array("inputStages");
        self.child.explain(&mut inputs.document(), verbosity);
        self.other.explain(&mut inputs.document(), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
        self.other.add_totals(totals);
    }
}
