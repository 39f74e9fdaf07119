//! `$setWindowFields`: adds to each row the results of functions over the surrounding rows of its partition.
//!
//! All rows are collected and sorted by partition, then by `sortBy` (`stage`). A function sees the rows of its
//! frame (`frame`), which moves forward with the current row.

mod covariance;
mod frame;
mod function;
mod linear_fill;
mod moving_average;
mod points;
mod stage;

use super::spec::Spec;
use super::{BuildCx, FieldUse, Keeps, ParseCx, StageSpec};
use crate::exec::sort::SortPattern;
use crate::exec::{Fields, Stage};
use frame::{Frame, SortedBy};
use function::Function;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value};
use kauri_expr::Expression;
use kauri_mutate::DocTransform;
use std::any::Any;
use std::sync::Arc;

/// A parsed `$setWindowFields`.
pub struct SetWindowFields {
    spec: DocBuf,
    plan: Arc<Plan>,
}

struct Plan {
    partition: Option<Expression>,
    sort: Option<SortPattern>,
    outputs: Vec<Output>,
    /// Puts what the functions gave, as variables from `base` on, where it belongs; none if there
    /// are no functions.
    set: Option<DocTransform>,
    base: usize,
    field_use: FieldUse,
}

struct Output {
    function: Function,
    frame: Frame,
}

impl SetWindowFields {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<SetWindowFields> {
        let Some(doc) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
            bail!(
                FailedToParse,
                "the $setWindowFields stage specification must be an object, found {}",
                elem.ty().alias()
            );
        };
        let fields = Spec::new("$setWindowFields", doc, &["partitionBy", "sortBy", "output"])?;
        let Some(output) = fields.object("output")? else { return Err(fields.missing("output")) };
        let sort_by = fields.object("sortBy")?;
        let sort = match sort_by.filter(|sort| !sort.is_empty()) {
            Some(sort) => Some(SortPattern::parse(sort)?),
            None => None,
        };
        let partition = match fields.get("partitionBy") {
            Some(elem) => Some(Expression::parse(&elem.value(), &cx.expressions())?),
            None => None,
        };
        let sorted_by = SortedBy::of(sort_by);
        let mut outputs = Vec::new();
        for field in output {
            outputs.push(Output::parse(field, &sorted_by, cx)?);
        }
        let (set, base) = (setter(output, cx)?, cx.scope.names().len());
        let field_use = field_use(partition.as_ref(), sort.as_ref(), output, &outputs);
        let plan = Arc::new(Plan { partition, sort, outputs, set, base, field_use });
        Ok(SetWindowFields { spec: doc.to_buf(), plan })
    }
}

impl Output {
    fn parse(field: Elem<'_>, sorted_by: &SortedBy, cx: &ParseCx) -> Result<Output> {
        let Some(doc) = field.as_doc().filter(|_| field.ty() == Type::Document) else {
            bail!(
                FailedToParse,
                "The field '{}' must be an object, but found {}",
                field.key(),
                field.ty().alias()
            );
        };
        let Some(operator) = doc.iter().find(|e| e.key().starts_with('$')) else {
            bail!(FailedToParse, "Expected a $-prefixed window function, {}", field.key());
        };
        let others: Vec<Elem<'_>> = doc.iter().filter(|e| e.key() != operator.key()).collect();
        if function::is_rank(operator.key()) {
            return Output::of_rank(operator, &others, sorted_by);
        }
        if let Some(other) = others.iter().find(|e| e.key() != "window") {
            bail!(FailedToParse, "Window function found an unknown argument: {}", other.key());
        }
        let frame = match others.first() {
            Some(window) => {
                function::check_window(operator.key())?;
                Frame::parse(*window, sorted_by, cx)?
            }
            None => Frame::ALL,
        };
        let function = Function::parse(operator, sorted_by, cx)?;
        if matches!(function, Function::Derivative(_)) && others.is_empty() {
            bail!(FailedToParse, "$derivative requires explicit window bounds");
        }
        Ok(Output { function, frame })
    }

    fn of_rank(operator: Elem<'_>, others: &[Elem<'_>], sorted_by: &SortedBy) -> Result<Output> {
        let name = operator.key();
        if !others.is_empty() {
            bail!(5371601, "Rank style window functions take no other arguments");
        }
        if !operator.as_doc().is_some_and(Doc::is_empty) || operator.ty() != Type::Document {
            bail!(5371603, "{name} must be specified with '{{}}' as the value");
        }
        if sorted_by.count() != 1 {
            bail!(
                5371602,
                "{name} must be specified with a top level sortBy expression with exactly one element"
            );
        }
        Ok(Output { function: Function::of_rank(name), frame: Frame::ALL })
    }
}

/// `{$addFields: {path: "$$w0", …}}`: paths are checked, and fields set, as that stage does it.
fn setter(output: Doc<'_>, cx: &ParseCx) -> Result<Option<DocTransform>> {
    let mut expressions = cx.expressions();
    let spec = DocBuf::build(|out| {
        for (at, field) in output.iter().enumerate() {
            let name = format!("w{at}");
            out.put(field.key(), format!("$${name}"));
            expressions.vars.define(name);
        }
    });
    if spec.as_doc().is_empty() {
        return Ok(None);
    }
    let parse_cx = kauri_mutate::ParseCx::new().with_expressions(&expressions);
    DocTransform::parse("$addFields", &spec.into(), &parse_cx).map(Some)
}

fn field_use(
    partition: Option<&Expression>,
    sort: Option<&SortPattern>,
    output: Doc<'_>,
    outputs: &[Output],
) -> FieldUse {
    let paths = || output.iter().map(|field| field.key());
    let mut field_use = FieldUse { keeps: Keeps::all_but(paths()), ..FieldUse::passing() };
    let sorted = sort.into_iter().flat_map(|sort| sort.spec().iter().map(|elem| elem.key()));
    field_use.reads = Fields::of_paths(sorted.chain(paths().filter(|path| path.contains('.'))));
    let mut read = partition.map(Expression::dependencies).unwrap_or_default();
    outputs.iter().for_each(|output| read.extend(output.function.dependencies()));
    field_use.add(&read);
    field_use
}

impl StageSpec for SetWindowFields {
    fn name(&self) -> &'static str {
        "$setWindowFields"
    }

    fn field_use(&self) -> FieldUse {
        self.plan.field_use.clone()
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        let fields = cx.needed.fields.union(&self.plan.field_use.reads);
        Ok(stage::build(child, self.plan.clone(), fields, &self.spec))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        out.put("$setWindowFields", &self.spec);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Plan {
    /// Whether rows may be of different partitions.
    fn has_partitions(&self) -> bool {
        self.partition.as_ref().is_some_and(|partition| partition.as_constant().is_none())
    }
}

/// The value as what a partition is told apart by.
fn partition_value<'v>(value: Value<'v>) -> Result<Value<'v>> {
    match value {
        Value::Missing => Ok(Value::Null),
        Value::Array(_) => bail!(
            TypeMismatch,
            "An expression used to partition cannot evaluate to value of type array"
        ),
        value => Ok(value),
    }
}
