//! `$fill`: expands to a `$setWindowFields` with `$locf` and `$linearFill`, and an `$addFields` with `$ifNull`.

use super::spec::Spec;
use super::transform::Transform;
use super::window::SetWindowFields;
use super::{ParseCx, field_path, parse::Parsed};
use crate::exec::sort::SortPattern;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value, array, doc};
use std::sync::Arc;

/// The stages that `$fill` stands for: that of methods, then that of values, each if it has fields.
pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Parsed> {
    let Some(doc) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
        bail!(
            FailedToParse,
            "The $fill stage specification must be an object, found {}",
            elem.ty().alias()
        );
    };
    let names = ["sortBy", "partitionBy", "partitionByFields", "output"];
    let spec = Spec::new("$fill", doc, &names)?;
    let partition_by = spec.get("partitionBy");
    if let Some(elem) = partition_by.filter(|e| !matches!(e.ty(), Type::String | Type::Document)) {
        return Err(spec.wrong_type(elem, &["string", "object"]));
    }
    let (fields, sort_by) = (spec.array("partitionByFields")?, spec.object("sortBy")?);
    let Some(output) = spec.object("output")? else { return Err(spec.missing("output")) };
    if output.is_empty() {
        bail!(
            6050203,
            "The output field in '$fill' must contain an object with at least one element"
        );
    }
    if partition_by.is_some() && fields.is_some() {
        bail!(
            6050204,
            "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'"
        );
    }
    if let Some(sort_by) = sort_by.filter(|sort| !sort.is_empty()) {
        SortPattern::parse(sort_by)?;
    }
    let partition_by = match fields {
        Some(fields) => partition_of(fields)?,
        None => partition_by.map(|elem| elem.value().into_owned()),
    };
    let filled = filled(output)?;
    let mut stages: Parsed = Vec::new();
    if !filled.methods.is_empty() {
        let spec = DocBuf::build(|out| {
            let mut window = out.document("$setWindowFields");
            if let Some(partition_by) = &partition_by {
                window.put_value("partitionBy", partition_by);
            }
            if let Some(sort_by) = sort_by {
                window.put("sortBy", sort_by.to_buf());
            }
            put_all(&mut window.document("output"), &filled.methods);
        });
        if let Some(elem) = spec.as_doc().first() {
            stages.push(Arc::new(SetWindowFields::parse(elem, cx)?));
        }
    }
    if !filled.values.is_empty() {
        let spec = DocBuf::build(|out| put_all(&mut out.document("$addFields"), &filled.values));
        if let Some(elem) = spec.as_doc().first() {
            stages.push(Arc::new(Transform::parse(elem, cx)?));
        }
    }
    Ok(stages)
}

/// What stands for the fields of `output`.
#[derive(Default)]
struct Filled {
    methods: Vec<(String, DocBuf)>,
    values: Vec<(String, DocBuf)>,
}

fn filled(output: Doc<'_>) -> Result<Filled> {
    let mut filled = Filled::default();
    for elem in output.ticked() {
        let elem = elem?;
        let Some(how) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
            bail!(
                6050200,
                "Each fill output specification must be an object with exactly one field"
            );
        };
        let how = Spec::new("$fill", how, &["value", "method"])?;
        let (name, path) = (elem.key().to_owned(), format!("${}", elem.key()));
        match (how.string("method")?.as_deref(), how.raw("value")) {
            (Some("locf"), None) => filled.methods.push((name, doc! { "$locf" => path })),
            (Some("linear"), None) => filled.methods.push((name, doc! { "$linearFill" => path })),
            (Some(_), None) => bail!(6050202, "Method must be either locf or linear"),
            (None, Some(value)) => {
                let value = value.value().into_owned();
                filled.values.push((name, doc! { "$ifNull" => array![path, value] }));
            }
            _ => bail!(
                6050201,
                "Each fill output specification must have exactly one of 'method' or 'value' fields, not both"
            ),
        }
    }
    Ok(filled)
}

fn put_all(out: &mut DocWriter<'_>, fields: &[(String, DocBuf)]) {
    fields.iter().for_each(|(name, spec)| out.put(name, spec));
}

/// The expression of a document of these fields.
fn partition_of(fields: Doc<'_>) -> Result<Option<Value<'static>>> {
    let mut spec: Vec<(String, String)> = Vec::new();
    for elem in fields.ticked() {
        let elem = elem?;
        kauri_bson::not_utf8::refuse(&elem.value(), "a field of 'partitionByFields'")?;
        let Some(name) = elem.value().as_str().map(str::to_owned) else {
            bail!(
                TypeMismatch,
                "BSON field '$fill.partitionByFields.{}' is the wrong type '{}', expected type 'string'",
                elem.key(),
                elem.ty().alias()
            );
        };
        field_path(&name)?;
        let path = format!("${name}");
        spec.push((name, path));
    }
    if spec.is_empty() {
        return Ok(None);
    }
    let object = DocBuf::build(|out| {
        spec.iter().for_each(|(name, path)| out.put(name, path.as_str()));
    });
    Ok(Some(object.into()))
}
