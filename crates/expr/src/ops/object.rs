//! Documents as values: `$getField`, `$setField`, `$unsetField`.

use crate::eval::Env;
use crate::node::{Call, Node, Prepared};
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use crate::value;
use kauri_base::{Error, Result, bail};
use kauri_bson::{Doc, DocCow, Value, not_utf8};

/// Arguments in order: field, input.
pub(crate) fn parse_get(parser: &mut Parser<'_>, op: &'static Op, arg: &Value<'_>) -> Result<Node> {
    let short = match arg.as_document() {
        // An operator is the short form too: `{$getField: {$literal: "a.b"}}`.
        Some(doc) => doc.first().is_some_and(|first| first.key().starts_with('$')),
        None => true,
    };
    if short {
        let field = parser.operand(arg)?;
        let input = parser.path("$$CURRENT")?;
        return Ok(parse::call(op, vec![field, input]));
    }
    let doc = arg.as_document().unwrap_or(Doc::EMPTY);
    let args = parser.named(doc, &["field", "input"], |name| {
        Error::location(3041701, format!("$getField found an unknown argument: {name}"))
    })?;
    match args.as_slice() {
        [Node::Absent, _] => bail!(3041702, "$getField requires 'field' to be specified"),
        [_, Node::Absent] => bail!(3041703, "$getField requires 'input' to be specified"),
        _ => {}
    }
    Ok(parse::call(op, args))
}

/// Refuses a constant that is no string, once the arguments are folded.
pub(crate) fn prepare_get(call: &mut Call) -> Result<()> {
    match call.args.first().and_then(Node::as_literal) {
        Some(value) if value.string_bytes().is_none() => Err(field_type(value)),
        _ => Ok(()),
    }
}

fn field_type(value: &Value<'_>) -> Error {
    Error::location(
        3041704,
        format!(
            "$getField requires 'field' to evaluate to type String, but got {}",
            value.type_name()
        ),
    )
}

pub(crate) fn get_field<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let field = call.arg(0, env)?;
    if field.string_bytes().is_none() {
        return Err(field_type(&field));
    }
    // Names of fields are UTF-8: no field has another one.
    Ok(match (call.arg(1, env)?, field.as_str()) {
        (Value::Document(DocCow::Borrowed(doc)), Some(name)) => doc.value(name),
        (Value::Document(DocCow::Owned(doc)), Some(name)) => doc.as_doc().value(name).into_owned(),
        (Value::Missing, _) => Value::Missing,
        (value, _) if value.is_nullish() => Value::Null,
        _ => Value::Missing,
    })
}

/// Arguments in order: input, value; the name is prepared.
pub(crate) fn parse_set(parser: &mut Parser<'_>, op: &'static Op, arg: &Value<'_>) -> Result<Node> {
    let name = op.name;
    let unset = name == "$unsetField";
    let Some(doc) = arg.as_document() else {
        bail!(4161100, "{name} only supports an object as its argument");
    };
    let allowed: &[&str] = if unset { &["field", "input"] } else { &["field", "input", "value"] };
    let mut args = parser.named(doc, allowed, |field| {
        Error::location(4161101, format!("{name} found an unknown argument: {field}"))
    })?;
    let required = [(0, "field", 4161102), (2, "value", 4161103), (1, "input", 4161109)];
    for (at, field, code) in required {
        if args.get(at).is_some_and(Node::is_absent) {
            return Err(Error::location(
                code,
                format!("{name} requires '{field}' to be specified"),
            ));
        }
    }
    // A constant as it is written: an expression that folds to one is none.
    let field = args.remove(0);
    if unset {
        args.push(Node::Literal(Value::Missing));
    }
    let field = match &field {
        Node::Literal(Value::String(text)) => text.to_string(),
        Node::Literal(text) if text.string_bytes().is_some() => {
            return Err(not_utf8::error(&format!("{name}: 'field'")));
        }
        Node::Literal(other) => bail!(
            4161107,
            "{name} requires 'field' to evaluate to type String, but got {}",
            other.type_name()
        ),
        Node::Field(_) | Node::Root | Node::Variable(..) => {
            bail!(
                4161108,
                "A field path reference which is not allowed in this context. Did you mean {{$literal: '...'}}?"
            )
        }
        _ => bail!(4161106, "{name} requires 'field' to evaluate to a constant"),
    };
    if field.contains('\0') {
        bail!(9534700, "{name}: 'field' must not contain an embedded null byte");
    }
    Ok(parse::prepared_call(op, args, Prepared::Name(field)))
}

pub(crate) fn set_field<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Prepared::Name(name) = &call.prepared else { return Ok(Value::Null) };
    let input = call.arg(0, env)?;
    if input.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(doc) = input.as_document() else {
        bail!(
            4161105,
            "{} requires 'input' to evaluate to type Object, but got {}",
            call.op.name,
            input.type_name()
        );
    };
    let new = call.arg(1, env)?;
    value::document(|out| {
        let mut done = false;
        for elem in doc.ticked() {
            let elem = elem?;
            if elem.key() != name {
                out.put_elem(elem);
            } else {
                out.put_value(name, &new);
                done = true;
            }
        }
        if !done {
            out.put_value(name, &new);
        }
        value::check_size(out.len())
    })
}
