//! Parses `$addFields` and `$set`: every value is an expression.

use crate::cx::ParseCx;
use crate::project::Projection;
use crate::project::tree::{Child, Meeting, Mode, Node, parse_path};
use crate::text;
use kauri_base::{Error, Result, bail, work};
use kauri_bson::{Doc, Elem, Type, Value};
use kauri_expr::Expression;

/// Levels to which specifications nest.
const DEPTH_MAX: usize = 200;

/// Parses the argument of `$addFields`.
pub(crate) fn parse_add_fields(spec: Doc<'_>, cx: &ParseCx<'_>) -> Result<Projection> {
    let mut root = Node::default();
    for elem in spec.ticked() {
        let elem = elem?;
        let path = parse_path(elem.key())?;
        field(&mut root, path, elem, cx, 0)?;
    }
    Ok(Projection::new(root, Mode::Exclusion))
}

fn field(
    root: &mut Node,
    path: Vec<String>,
    elem: Elem<'_>,
    cx: &ParseCx<'_>,
    depth: usize,
) -> Result<()> {
    work::check_stack()?;
    if depth > DEPTH_MAX {
        bail!(Overflow, "specification nests too deep");
    }
    let fields = match (elem.ty(), elem.as_doc()) {
        (Type::Document, Some(doc)) if !doc.is_empty() => Some(doc),
        _ => None,
    };
    match fields {
        Some(doc) if !doc.first().is_some_and(|e| e.key().starts_with('$')) => {
            for inner in doc.ticked() {
                let inner = inner?;
                check_inner_name(inner.key(), doc)?;
                let mut path = path.clone();
                path.push(inner.key().to_owned());
                field(root, path, inner, cx, depth + 1)?;
            }
            Ok(())
        }
        Some(doc) if doc.iter().nth(1).is_some() => bail!(
            40181,
            "an expression specification must contain exactly one field, the name of the \
             expression. Found {} fields in {}",
            doc.count(),
            text::doc(doc)
        ),
        _ => insert(root, &path, &elem.value(), cx),
    }
}

fn check_inner_name(name: &str, within: Doc<'_>) -> Result<()> {
    if name.contains('.') {
        bail!(
            40183,
            "cannot use dotted field name '{name}' in a sub object: {}",
            text::doc(within)
        );
    }
    kauri_expr::path::check_field_name(name)
}

fn insert(root: &mut Node, path: &[String], value: &Value<'_>, cx: &ParseCx<'_>) -> Result<()> {
    let none = kauri_expr::ParseCx::default();
    let expression = Expression::parse(value, cx.expressions().unwrap_or(&none))?;
    root.insert(path, Child::Computed(expression), &collision)
}

fn collision(meeting: Meeting<'_>) -> Error {
    let path = meeting.path.join(".");
    let shared = meeting.path.get(..meeting.shared).unwrap_or_default().join(".");
    Error::location(
        40176,
        format!(
            "specification contains two conflicting paths. Cannot specify both '{path}' and \
             '{shared}'"
        ),
    )
}
