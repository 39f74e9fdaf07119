//! Stages that map each document to another: `$project`, `$addFields`, `$set`, `$unset`, `$replaceRoot`,
//! `$replaceWith`.

use super::field_use::{FieldUse, Keeps};
use super::{BuildCx, ParseCx, StageSpec};
use crate::exec::fields::top_level;
use crate::exec::project::RowMeta;
use crate::exec::{
    ExecCx, Fields, QueryEnv, Row, Stage, StageStats, Step, Take, Totals, Verbosity,
};
use kauri_base::Result;
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value};
use kauri_expr::{Dependencies, EvalCx, Expression};
use kauri_mutate::{DocTransform, ProjectCx};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed stage.
pub struct Transform {
    name: &'static str,
    spec: Value<'static>,
    transform: Arc<DocTransform>,
    field_use: FieldUse,
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
        let spec = elem.value().into_owned();
        let field_use = field_use(name, &transform, &spec, &expressions)?;
        Ok(Transform { name, spec, transform: Arc::new(transform), field_use })
    }

    /// Its transformation of a document.
    pub fn transform(&self) -> &DocTransform {
        &self.transform
    }
}

/// What the stage reads and leaves. The specification has been parsed without an error.
fn field_use(
    name: &str,
    transform: &DocTransform,
    spec: &Value<'_>,
    cx: &kauri_expr::ParseCx,
) -> Result<FieldUse> {
    let base = FieldUse { one_to_one: true, filter_first: true, ..FieldUse::passing() };
    let Some(projection) = transform.projection() else {
        let root = match (name, spec) {
            ("$replaceRoot", Value::Document(spec)) => spec.as_doc().value("newRoot").into_owned(),
            _ => spec.clone(),
        };
        let mut field_use = FieldUse { keeps: Keeps::nothing(), ..base };
        field_use.add(&Expression::parse(&root, cx)?.dependencies());
        return Ok(field_use);
    };
    if name == "$unset" || (name == "$project" && !projection.is_inclusion()) {
        let paths: Vec<String> = match spec {
            // `{a: {b: 0}}` is `{"a.b": 0}`.
            Value::Document(spec) => spec.iter().flat_map(excluded).collect(),
            Value::Array(list) => {
                list.iter().filter_map(|e| e.value().as_str().map(str::to_owned)).collect()
            }
            other => other.as_str().map(str::to_owned).into_iter().collect(),
        };
        let keeps = Keeps::all_but(paths.iter().map(String::as_str));
        // What is left of a field that loses a part of itself comes from the field.
        let reads = Fields::of_paths(paths.iter().map(String::as_str).filter(|p| p.contains('.')));
        return Ok(FieldUse { keeps, reads, ..base });
    }
    let Some(spec) = spec.as_document() else { return Ok(FieldUse::everything()) };
    match name {
        "$project" => of_inclusion(spec, base, cx),
        _ => of_additions(spec, base, cx),
    }
}

/// The paths that an element of an exclusion leaves out.
fn excluded(elem: Elem<'_>) -> Vec<String> {
    match elem.as_doc().filter(|_| elem.ty() == Type::Document) {
        Some(nested) => nested.iter().map(|e| format!("{}.{}", elem.key(), e.key())).collect(),
        None => vec![elem.key().to_owned()],
    }
}

/// `{a: 1, b: "$c", …}`: fields that are named are there as they are, or computed.
fn of_inclusion(spec: Doc<'_>, base: FieldUse, cx: &kauri_expr::ParseCx) -> Result<FieldUse> {
    let mut kept = BTreeSet::from(["_id".to_owned()]);
    let mut read = kept.clone();
    let mut field_use = base;
    let mut computed = Dependencies::default();
    for elem in spec.ticked() {
        let elem = elem?;
        let (name, value) = (elem.key(), elem.value());
        if value.is_number() || matches!(value, Value::Bool(_)) {
            if !value.truthy() {
                kept.remove(name);
                read.remove(name);
            } else {
                if !name.contains('.') {
                    kept.insert(name.to_owned());
                }
                read.insert(top_level(name).to_owned());
            }
            continue;
        }
        kept.remove(name);
        // Nested fields and computed ones within a field keep other parts of it.
        if name.contains('.') || matches!(value, Value::Document(_)) {
            read.insert(top_level(name).to_owned());
        }
        add_computed(&value, &mut computed, cx)?;
    }
    field_use.add(&computed);
    field_use.reads = field_use.reads.union(&Fields::Only(Arc::new(read)));
    field_use.keeps = Keeps::Only(kept);
    Ok(field_use)
}

/// `{a: "$b", "c.d": …}`: the fields that are named change.
fn of_additions(spec: Doc<'_>, base: FieldUse, cx: &kauri_expr::ParseCx) -> Result<FieldUse> {
    let mut field_use = FieldUse { keeps: Keeps::all_but(spec.iter().map(Elem::key)), ..base };
    let mut computed = Dependencies::default();
    let mut entered = BTreeSet::new();
    for elem in spec.ticked() {
        let elem = elem?;
        let value = elem.value();
        if elem.key().contains('.') || matches!(value, Value::Document(_)) {
            entered.insert(top_level(elem.key()).to_owned());
        }
        add_computed(&value, &mut computed, cx)?;
    }
    field_use.add(&computed);
    field_use.reads = field_use.reads.union(&Fields::Only(Arc::new(entered)));
    Ok(field_use)
}

/// Adds what a value within a specification reads: an expression, or fields within a field.
fn add_computed(
    value: &Value<'_>,
    found: &mut Dependencies,
    cx: &kauri_expr::ParseCx,
) -> Result<()> {
    if let Value::Document(nested) = value
        && !nested.as_doc().first().is_some_and(|e| e.key().starts_with('$'))
    {
        return nested.as_doc().ticked().try_for_each(|e| add_computed(&e?.value(), found, cx));
    }
    found.extend(Expression::parse(value, cx)?.dependencies());
    Ok(())
}

impl StageSpec for Transform {
    fn name(&self) -> &'static str {
        self.name
    }

    fn field_use(&self) -> FieldUse {
        self.field_use.clone()
    }

    fn build(&self, child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(Box::new(TransformStage {
            child,
            name: self.name,
            spec: self.spec.clone(),
            transform: self.transform.clone(),
            scratch: Vec::new(),
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
    /// Where documents that are lent lie.
    scratch: Vec<u8>,
    stats: StageStats,
}

fn apply(transform: &DocTransform, env: &QueryEnv, row: &Row<'_>, out: &mut Vec<u8>) -> Result<()> {
    let meta = RowMeta::of(row);
    let eval = EvalCx { meta: Some(&meta), ..env.eval_cx() };
    transform.apply(row.doc(), &ProjectCx::new(eval), out)
}

impl Stage for TransformStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.child.work(cx)? {
            Step::Row(row) => {
                let mut out = Vec::with_capacity(row.doc().as_bytes().len().min(4096));
                apply(&self.transform, cx.env, &row, &mut out)?;
                let doc = DocBuf::from_vec(out)?;
                Step::Row(row.with_doc(doc))
            }
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        };
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let (env, mut lent) = (cx.env, 0);
        let TransformStage { child, transform, scratch, .. } = self;
        let step = child.feed(cx, &mut |row| {
            scratch.clear();
            apply(transform, env, row, scratch)?;
            lent += 1;
            take(&row.lent(Doc::from_bytes(scratch)?))
        })?;
        Ok(self.stats.count_lent(lent, step))
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
