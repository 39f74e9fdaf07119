//! `$densify`: creates documents for missing values of a field.
//!
//! It expands to a `$sort` and `$_internalDensify`, which needs that order. `bounds` (this module) validates the
//! range, `step` computes values, `stage` creates documents.

mod bounds;
mod stage;
mod step;

use super::parse::Parsed;
use super::simple::SortStage;
use super::spec::Spec;
use super::{BuildCx, FieldUse, StageSpec, field_path};
use crate::exec::sort::SortPattern;
use crate::exec::{Fields, Stage};
use bounds::Bounds;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type};
use kauri_expr::FieldPath;
use std::any::Any;
use std::sync::Arc;
use step::Step;

/// What a `$densify` says.
struct Plan {
    field: FieldPath,
    /// Documents are of one partition if they have the same values of these.
    partition_by: Vec<FieldPath>,
    step: Step,
    bounds: Bounds,
}

/// A parsed `$_internalDensify`: the documents come in order.
pub struct Densify {
    spec: DocBuf,
    plan: Arc<Plan>,
}

/// The two stages that `$densify` stands for.
pub fn parse(elem: Elem<'_>) -> Result<Parsed> {
    let Some(doc) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
        bail!(
            FailedToParse,
            "The $densify stage specification must be an object, found {}",
            elem.ty().alias()
        );
    };
    let spec = Spec::new("$densify", doc, &["field", "partitionByFields", "range"])?;
    let field = spec.string("field")?;
    let names = partition_fields(&spec)?;
    let range = spec.object("range")?;
    let (Some(field), Some(range)) = (field, range) else {
        return Err(spec.missing(if spec.get("field").is_none() { "field" } else { "range" }));
    };
    let (step, bounds) = bounds::parse(range)?;
    let path = field_path(&field)?;
    let partition_by = names.iter().map(|name| field_path(name)).collect::<Result<Vec<_>>>()?;
    check_paths(&field, &names)?;
    if matches!(bounds, Bounds::Partition) && names.is_empty() {
        bail!(
            5733408,
            "one may not specify the bounds as 'partition' without specifying a non-empty array of \
             partitionByFields. You may have meant to specify 'full' bounds."
        );
    }
    let order = DocBuf::build(|out| {
        if !matches!(bounds, Bounds::Full) {
            names.iter().for_each(|name| out.put(name, 1));
        }
        out.put(&field, 1);
    });
    let spec = DocBuf::build(|out| {
        out.put("field", field.as_str());
        {
            let mut fields = out.array("partitionByFields");
            names.iter().for_each(|name| fields.push(name.as_str()));
        }
        out.put("range", range.to_buf());
    });
    let plan = Arc::new(Plan { field: path, partition_by, step, bounds });
    Ok(vec![
        Arc::new(SortStage::of(SortPattern::parse(order.as_doc())?)),
        Arc::new(Densify { spec, plan }),
    ])
}

/// The names in `partitionByFields`.
fn partition_fields(spec: &Spec<'_, '_>) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for elem in spec.array("partitionByFields")?.unwrap_or(Doc::EMPTY).ticked() {
        let elem = elem?;
        kauri_bson::not_utf8::refuse(&elem.value(), "a field of 'partitionByFields'")?;
        let Some(name) = elem.value().as_str().map(str::to_owned) else {
            bail!(
                TypeMismatch,
                "BSON field '$densify.partitionByFields.{}' is the wrong type '{}', expected type 'string'",
                elem.key(),
                elem.ty().alias()
            );
        };
        names.push(name);
    }
    Ok(names)
}

/// No field that partitions go by may be within the field that documents are made for, nor the other way round.
fn check_paths(field: &str, names: &[String]) -> Result<()> {
    let is_within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    for name in names {
        if is_within(name, field) {
            bail!(
                8993000,
                "BSON field '$densify.partitionByFields' contains the field that is being densified"
            );
        }
        if is_within(field, name) {
            bail!(
                9554500,
                "The field that is being densified contains the BSON field '$densify.partitionByFields'"
            );
        }
    }
    Ok(())
}

impl Plan {
    fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        self.partition_by.iter().chain([&self.field])
    }
}

impl StageSpec for Densify {
    fn name(&self) -> &'static str {
        "$_internalDensify"
    }

    fn field_use(&self) -> FieldUse {
        let tops = self.plan.paths().filter_map(|path| path.parts().first().map(String::as_str));
        FieldUse { reads: Fields::of_paths(tops), ..FieldUse::passing() }
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(stage::build(child, &self.plan, &self.spec, &*cx.env.random))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$_internalDensify", &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
