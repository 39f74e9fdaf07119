//! The option `clusteredIndex`, which is not supported: validated, then refused, so that invalid options get their
//! own error.

use crate::args::Args;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Elem, Value, shell_text};

/// The form of the option.
#[derive(Clone, Copy, PartialEq)]
pub enum Form {
    /// `{key: {_id: 1}, unique: true, v, name}`.
    Spec,
    /// As a boolean, which only collections of old buckets had.
    Legacy,
}

/// Checks the option. `false` asks for an ordinary collection.
pub fn check(args: &Args<'_>, elem: Elem<'_>) -> Result<Option<Form>> {
    match (elem.value(), elem.as_doc()) {
        (Value::Document(_), Some(doc)) => check_spec(doc).map(|()| Some(Form::Spec)),
        (value, _) if value.is_number() || matches!(value, Value::Bool(_)) => {
            Ok(value.truthy().then_some(Form::Legacy))
        }
        _ => Err(args.wrong_type(elem, &["bool", "object"])),
    }
}

fn check_spec(doc: Doc<'_>) -> Result<()> {
    let args = Args::new("create.clusteredIndex");
    let (mut key, mut unique, mut version) = (None, None, None);
    for field in doc {
        match field.key() {
            "key" => key = args.given(field, Args::object)?,
            "unique" => unique = args.given(field, Args::safe_bool)?,
            "v" => version = args.given(field, Args::long)?,
            _ => args.accepted(field)?,
        }
    }
    let Some(key) = key else { return Err(args.missing("key")) };
    let Some(unique) = unique else { return Err(args.missing("unique")) };
    if key.count() != 1 || key.value("_id").as_i64_exact() != Some(1) {
        bail!(
            InvalidIndexSpecificationOption,
            "The clusteredIndex option is only supported for key: {{_id: 1}}, got {}",
            shell_text(key)
        );
    }
    if !unique {
        bail!(5979700, "The clusteredIndex option requires unique: true to be specified");
    }
    if version.is_some_and(|v| v != 2) {
        bail!(5979704, "The clusteredIndex option is only supported for v: 2");
    }
    Ok(())
}
