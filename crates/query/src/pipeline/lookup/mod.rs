//! `$lookup`: adds to each row an array of matching documents of another collection.
//!
//! Documents match by equality of two fields, by a pipeline, or by both. The other side is read through an index on
//! its field if there is one. Otherwise it is kept in memory in a hash table of the field's values, up to a limit
//! (`stage`, `table`).

mod equality;
mod finder;
pub mod graph;
mod stage;
mod table;
mod values;

use super::parse::Place;
use super::spec::{self, Spec};
use super::sub::{self, SubPipeline};
use super::unwind::Unwind;
use super::{BuildCx, FieldUse, Keeps, ParseCx, StageSpec, field_path};
use crate::exec::Stage;
use crate::exec::fields::top_level;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value, not_utf8};
use kauri_catalog::Namespace;
use kauri_expr::{Expression, FieldPath};
use std::any::Any;
use std::sync::Arc;

/// A parsed `$lookup`.
#[derive(Clone)]
pub struct Lookup {
    spec: DocBuf,
    plan: Arc<Plan>,
    unwind: Option<Unwind>,
}

/// What is joined.
pub(super) struct Plan {
    sub: SubPipeline,
    output: FieldPath,
    /// The row's field and the other side's.
    equality: Option<(FieldPath, String)>,
    /// The variables of `let`, in the positions from `base` on.
    variables: Vec<Expression>,
    base: usize,
    /// What the pipeline's own filter says of equality, where it does not exclude an index.
    derived: Option<equality::Derived>,
}

const FIELDS: &[&str] =
    &["from", "as", "localField", "foreignField", "let", "pipeline", "_internalUnwind"];

impl Lookup {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Lookup> {
        let Some(doc) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
            bail!(
                FailedToParse,
                "the $lookup stage specification must be an object, but found {}",
                elem.ty().alias()
            );
        };
        let stages = doc.get("pipeline");
        let from = from(doc, stages, cx)?;
        let fields = Spec::new("$lookup", doc, FIELDS)?;
        let stages = stages.map(spec::pipeline).transpose()?;
        let Some(output) = fields.string("as")? else { return Err(fields.missing("as")) };
        let output = field_path(&output)?;
        let variables = fields.object("let")?;
        if variables.is_some() && stages.is_none() {
            bail!(FailedToParse, "$lookup with a 'let' argument must also specify 'pipeline'");
        }
        let non_empty = |name| -> Result<Option<String>> {
            Ok(fields.string(name)?.filter(|text| !text.is_empty()))
        };
        let equality = match (non_empty("localField")?, non_empty("foreignField")?) {
            (Some(local), Some(foreign)) => {
                field_path(&foreign)?;
                Some((field_path(&local)?, foreign))
            }
            (None, None) if stages.is_some() => None,
            (None, None) => bail!(
                FailedToParse,
                "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be \
                 specified"
            ),
            _ => bail!(
                FailedToParse,
                "$lookup requires both or neither of 'localField' and 'foreignField' to be \
                 specified"
            ),
        };
        let mut inner = cx.clone();
        let base = inner.scope.names().len();
        let mut expressions = Vec::new();
        for variable in variables.unwrap_or(Doc::EMPTY) {
            kauri_expr::check_name_for_write(variable.key())?;
            expressions.push(Expression::parse(&variable.value(), &cx.expressions())?);
        }
        variables.unwrap_or(Doc::EMPTY).iter().for_each(|variable| {
            inner.scope.define(variable.key());
        });
        let sub = SubPipeline::parse(from, stages.unwrap_or(Doc::EMPTY), Place::Lookup, &inner)?;
        let derived = match equality {
            Some(_) => None,
            None => equality::derive(&sub.stages, base, &inner),
        };
        let plan = Arc::new(Plan { sub, output, equality, variables: expressions, base, derived });
        Ok(Lookup { spec: doc.to_buf(), plan, unwind: None })
    }

    /// The same with a `$unwind` of its array in it, if it is one: then no array is made.
    pub fn unwinding(&self, unwind: &Unwind) -> Option<Lookup> {
        let is_own = unwind.path() == &self.plan.output && self.unwind.is_none();
        is_own.then(|| Lookup { unwind: Some(unwind.clone()), ..self.clone() })
    }
}

/// The other collection; none if the pipeline begins with `$documents`.
fn from(doc: Doc<'_>, stages: Option<Elem<'_>>, cx: &ParseCx) -> Result<Option<Namespace>> {
    let documents = stages
        .and_then(|e| e.as_doc().filter(|_| e.ty() == Type::Array))
        .is_some_and(sub::begins_with_documents);
    let Some(from) = doc.get("from") else {
        if documents {
            return Ok(None);
        }
        bail!(FailedToParse, "must specify 'pipeline' when 'from' is empty");
    };
    not_utf8::refuse_as_namespace(&from.value())?;
    match from.value() {
        Value::String(name) => Namespace::new(&cx.db, &name).map(Some),
        Value::Document(_) => {
            let doc = from.as_doc().unwrap_or(Doc::EMPTY);
            let fields = Spec::new("$lookup.from", doc, &["db", "coll"])?;
            let (db, coll) = (fields.string("db")?, fields.string("coll")?);
            bail!(
                FailedToParse,
                "$lookup with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {} \
                 and coll: {}",
                db.unwrap_or_default(),
                coll.unwrap_or_default()
            )
        }
        _ => bail!(
            FailedToParse,
            "$lookup argument '{}' must be a string, is type {}",
            kauri_bson::shell::elem_to_string(from),
            from.ty().alias()
        ),
    }
}

impl StageSpec for Lookup {
    fn name(&self) -> &'static str {
        "$lookup"
    }

    fn field_use(&self) -> FieldUse {
        let output = top_level(self.plan.output.parts()[0].as_str());
        let mut changed = vec![output];
        // An output within a field keeps the field's other parts.
        let mut read = Vec::new();
        if self.plan.output.parts().len() > 1 {
            read.push(output);
        }
        if let Some(index) = self.unwind.as_ref().and_then(Unwind::index_path) {
            changed.push(index.parts()[0].as_str());
            read.push(index.parts()[0].as_str());
        }
        if let Some((local, _)) = &self.plan.equality {
            read.push(local.parts()[0].as_str());
        }
        let mut field_use = FieldUse {
            reads: crate::exec::Fields::of_paths(read),
            keeps: Keeps::all_but(changed),
            one_to_one: self.unwind.is_none(),
            filter_first: true,
            ..FieldUse::passing()
        };
        self.plan.variables.iter().for_each(|e| field_use.add(&e.dependencies()));
        field_use.add_pipeline(&self.plan.sub.uses(), false, self.plan.base);
        field_use
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        stage::build_stage(self, child, cx)
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        let mut lookup = out.document("$lookup");
        lookup.put_all(self.spec.as_doc());
        if let Some(unwind) = &self.unwind {
            let mut unwinding = lookup.document("unwinding");
            unwinding.put("preserveNullAndEmptyArrays", unwind.preserves());
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
