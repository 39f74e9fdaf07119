//! The aggregation stages that map one document to one document: `$project`, `$addFields`/`$set`,
//! `$unset`, `$replaceRoot`/`$replaceWith`. Pipelines and pipeline updates share them.

use crate::cx::{ParseCx, ProjectCx};
use crate::project::Projection;
use crate::text;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Value, writer::put_value_bytes};
use kauri_expr::Expression;

/// One such stage.
#[derive(Debug)]
pub struct DocTransform {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Project(Projection),
    /// The stage's words for its argument, for errors, and the argument.
    ReplaceRoot(&'static str, Expression),
}

impl DocTransform {
    /// Whether a stage of this name is one.
    pub fn is_stage(name: &str) -> bool {
        matches!(
            name,
            "$project" | "$addFields" | "$set" | "$unset" | "$replaceRoot" | "$replaceWith"
        )
    }

    /// Parses the stage `{name: spec}`.
    pub fn parse(name: &str, spec: &Value<'_>, cx: &ParseCx<'_>) -> Result<DocTransform> {
        let kind = match name {
            "$project" => match spec.as_document() {
                Some(doc) => Kind::Project(Projection::parse_project(doc, cx)?),
                None => bail!(15969, "$project specification must be an object"),
            },
            "$addFields" | "$set" => match spec.as_document() {
                Some(doc) => Kind::Project(
                    Projection::parse_add_fields(doc, cx)
                        .map_err(|e| e.context(format_args!("Invalid {name}")))?,
                ),
                None => bail!(
                    40272,
                    "{name} specification stage must be an object, got {}",
                    spec.type_name()
                ),
            },
            "$unset" => Kind::Project(Projection::parse_unset(spec)?),
            "$replaceRoot" => Kind::ReplaceRoot("'newRoot' expression ", new_root(spec, cx)?),
            "$replaceWith" => Kind::ReplaceRoot("'replacement document' ", expression(spec, cx)?),
            _ => bail!(40324, "Unrecognized pipeline stage name: '{name}'"),
        };
        Ok(DocTransform { kind })
    }

    /// The projection that it is, unless it replaces the root.
    pub fn projection(&self) -> Option<&Projection> {
        match &self.kind {
            Kind::Project(projection) => Some(projection),
            Kind::ReplaceRoot(..) => None,
        }
    }

    /// Writes the new document at the end of `out`; leaves `out` as it was on an error.
    pub fn apply(&self, doc: Doc<'_>, cx: &ProjectCx<'_>, out: &mut Vec<u8>) -> Result<()> {
        let (words, expression) = match &self.kind {
            Kind::Project(projection) => return projection.apply(doc, cx, out),
            Kind::ReplaceRoot(words, expression) => (words, expression),
        };
        let value = expression.eval(&cx.eval, doc)?;
        match &value {
            Value::Document(_) => {
                put_value_bytes(out, &value);
                Ok(())
            }
            other => bail!(
                40228,
                "{words} must evaluate to an object, but resulting value was: {}. Type of \
                 resulting value: '{}'. Input document: {}",
                text::value(other),
                other.type_name(),
                text::doc(doc)
            ),
        }
    }
}

fn expression(spec: &Value<'_>, cx: &ParseCx<'_>) -> Result<Expression> {
    let none = kauri_expr::ParseCx::default();
    Expression::parse(spec, cx.expressions().unwrap_or(&none))
}

/// The argument of `$replaceRoot`.
fn new_root(spec: &Value<'_>, cx: &ParseCx<'_>) -> Result<Expression> {
    let Some(doc) = spec.as_document() else {
        bail!(
            40229,
            "expected an object as specification for $replaceRoot stage, got {}",
            spec.type_name()
        );
    };
    let mut root = Value::Missing;
    for elem in doc {
        if elem.key() != "newRoot" {
            bail!(40415, "BSON field '$replaceRoot.{}' is an unknown field.", elem.key());
        }
        root = elem.value();
    }
    if root.is_missing() {
        bail!(40414, "BSON field '$replaceRoot.newRoot' is missing but a required field");
    }
    expression(&root, cx)
}
