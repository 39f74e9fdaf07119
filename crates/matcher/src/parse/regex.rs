//! `$regex` with `$options`, and regex values.

use crate::tree::RegexMatch;
use kauri_base::{Error, Result, bail};
use kauri_bson::{Doc, Type, Value};

/// A regex value as a predicate.
pub(super) fn of_value(value: &Value<'_>) -> Result<RegexMatch> {
    match value {
        Value::Regex { pattern, options } => RegexMatch::new(pattern, options),
        value if value.is_not_utf8() && is_text(value) => Err(not_utf8()),
        _ => bail!(BadValue, "$regex has to be a string"),
    }
}

/// Whether it is a string or a regular expression.
fn is_text(value: &Value<'_>) -> bool {
    matches!(value.ty(), Some(Type::String | Type::Regex))
}

fn not_utf8() -> Error {
    Error::location(51091, "Regular expression is invalid: it is not valid UTF-8")
}

/// `$regex` and `$options` of an operator object.
pub(super) fn of_operators(operators: Doc<'_>) -> Result<RegexMatch> {
    let mut pattern = String::new();
    let mut options: Option<String> = None;
    for elem in operators {
        match (elem.key(), elem.value()) {
            ("$regex", Value::String(text)) => pattern = text.into_owned(),
            ("$regex", Value::Regex { pattern: text, options: letters }) => {
                pattern = text.into_owned();
                if !letters.is_empty() {
                    if options.as_ref().is_some_and(|o| !o.is_empty()) {
                        bail!(51074, "options set in both $regex and $options");
                    }
                    options = Some(letters.into_owned());
                }
            }
            ("$regex" | "$options", value) if value.is_not_utf8() && is_text(&value) => {
                return Err(not_utf8());
            }
            ("$regex", _) => bail!(BadValue, "$regex has to be a string"),
            ("$options", Value::String(letters)) => {
                if options.as_ref().is_some_and(|o| !o.is_empty()) {
                    bail!(51075, "options set in both $regex and $options");
                }
                options = Some(letters.into_owned());
            }
            ("$options", _) => bail!(BadValue, "$options has to be a string"),
            _ => {}
        }
    }
    RegexMatch::new(&pattern, options.as_deref().unwrap_or_default())
}
