//! `$unionWith`: the rows, and then those of a pipeline over another collection.

use super::parse::Place;
use super::spec::{self, Spec};
use super::sub::{self, SubPipeline};
use super::{BuildCx, FieldUse, Input, ParseCx, Pipeline, StageSpec, build};
use crate::exec::{ExecCx, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocWriter, Elem, Type, Value, not_utf8};
use kauri_catalog::dropped::{REPLANS_MAX, is_dropped};
use kauri_catalog::{Collection, Namespace};
use std::any::Any;
use std::sync::Arc;

/// A parsed `$unionWith`.
pub struct UnionWith {
    spec: Value<'static>,
    sub: SubPipeline,
}

impl UnionWith {
    /// Parses the stage: a collection's name, or `{coll, pipeline}`.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<UnionWith> {
        not_utf8::refuse_as_namespace(&elem.value())?;
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
        let other = Other::new(self.sub.clone(), cx)?;
        let stats = StageStats::default();
        Ok(Box::new(UnionStage { child, other, first_done: false, stats }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put_value("$unionWith", &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The rows of the other collection.
struct Other {
    sub: SubPipeline,
    cx: BuildCx,
    /// What its name led to.
    collection: Option<Arc<Collection>>,
    root: Box<dyn Stage>,
    /// Whether it has given a row.
    given: bool,
    replans: u32,
}

impl Other {
    fn new(sub: SubPipeline, cx: &BuildCx) -> Result<Other> {
        let (collection, root) = plan(&sub, cx)?;
        Ok(Other { sub, cx: cx.clone(), collection, root, given: false, replans: 0 })
    }

    fn plan_anew(&mut self) -> Result<()> {
        (self.collection, self.root) = plan(&self.sub, &self.cx)?;
        Ok(())
    }

    /// Its turn has come, maybe long after it was planned: if its name leads elsewhere now, it is planned
    /// anew.
    fn begin(&mut self) -> Result<()> {
        let found = self.sub.resolve(&self.cx)?.collection;
        let number = |c: &Option<Arc<Collection>>| c.as_ref().map(|c| (c.id, c.definition));
        match number(&found) == number(&self.collection) {
            true => Ok(()),
            false => self.plan_anew(),
        }
    }

    /// What a read came to: if it says that the collection is gone and no row was given yet, the rows are
    /// planned anew.
    fn answer<T>(&mut self, step: Result<Step<T>>) -> Result<Step<T>> {
        match step {
            Err(error) if is_dropped(&error) && !self.given && self.replans < REPLANS_MAX => {
                self.replans += 1;
                self.cx.namespaces.catch_up();
                self.plan_anew()?;
                Ok(Step::Again)
            }
            step => step,
        }
    }

    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.root.work(cx);
        self.given |= matches!(step, Ok(Step::Row(_)));
        self.answer(step)
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let given = &mut self.given;
        let step = self.root.feed(cx, &mut |row| {
            *given = true;
            take(row)
        });
        self.answer(step)
    }
}

/// Plans a sub-pipeline over what its name leads to now.
fn plan(sub: &SubPipeline, cx: &BuildCx) -> Result<(Option<Arc<Collection>>, Box<dyn Stage>)> {
    let resolved = sub.resolve(cx)?;
    let cx = sub::build_cx(cx, &resolved);
    let root = build(&Pipeline { stages: resolved.stages }, Input::Collection(None), &cx)?;
    Ok((resolved.collection, root))
}

struct UnionStage {
    child: Box<dyn Stage>,
    other: Other,
    first_done: bool,
    stats: StageStats,
}

impl Stage for UnionStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let mut step = Step::Done;
        if !self.first_done {
            step = self.child.work(cx)?;
            if matches!(step, Step::Done) {
                self.first_done = true;
                self.other.begin()?;
            }
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
            if matches!(step, Step::Done) {
                self.first_done = true;
                self.other.begin()?;
            }
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
        self.other.root.explain(&mut inputs.document(), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
        self.other.root.add_totals(totals);
    }
}
