//! Validates a collation document. Only the simple collation (byte comparison) is supported.

use kauri_base::{Error, Result, bail};
use kauri_bson::{Doc, Elem, Value};

/// Checks a collation; whether it is another one than the simple one.
pub fn check(collation: Doc<'_>) -> Result<bool> {
    let Some(locale) = collation.get("locale") else {
        return Err(Error::location(
            40414,
            "BSON field 'collation.locale' is missing but a required field",
        ));
    };
    let Value::String(locale) = locale.value().lossy().into_owned() else {
        return Err(wrong_type(locale, "string"));
    };
    for elem in collation.iter().filter(|e| e.key() != "locale") {
        check_option(elem)?;
    }
    if locale == "simple" {
        return Ok(false);
    }
    if !plausible_locale(&locale) {
        bail!(BadValue, "Field 'locale' is invalid in: {}", kauri_bson::shell_text(collation));
    }
    Ok(true)
}

/// The version of the collation data that clients may name (ICU's).
const VERSION: &str = "57.1";

fn check_option(elem: Elem<'_>) -> Result<()> {
    let value = elem.value();
    match elem.key() {
        // The only one that null doesn't leave out.
        "backwards" if value.is_nullish() => return Err(wrong_type(elem, "bool")),
        "caseLevel" | "numericOrdering" | "normalization" | "strength" | "caseFirst"
        | "alternate" | "maxVariable" | "version"
            if value.is_nullish() => {}
        "caseLevel" | "numericOrdering" | "normalization" | "backwards" => {
            if !matches!(value, Value::Bool(_)) {
                return Err(wrong_type(elem, "bool"));
            }
        }
        "strength" => {
            let Some(strength) = value.as_f64_lossy() else { return Err(wrong_type(elem, "int")) };
            let strength = match value {
                Value::Decimal128(_) => strength.round_ties_even(),
                _ => strength.trunc(),
            };
            if !(1.0..=5.0).contains(&strength) {
                bail!(
                    BadValue,
                    "Enumeration value '{}' for field 'collation.strength' is not a valid value.",
                    kauri_bson::shell_value(&value)
                );
            }
        }
        "caseFirst" => one_of(elem, &["upper", "lower", "off"])?,
        "alternate" => one_of(elem, &["non-ignorable", "shifted"])?,
        "maxVariable" => one_of(elem, &["punct", "space"])?,
        "version" => match value.lossy().as_str() {
            Some(VERSION) => {}
            Some(other) => bail!(
                IncompatibleCollationVersion,
                "Requested collation version {other} but the only available version is {VERSION}"
            ),
            None => return Err(wrong_type(elem, "string")),
        },
        other => bail!(40415, "BSON field 'collation.{other}' is an unknown field."),
    }
    Ok(())
}

/// Whether this has the form of a locale's name: a language of two or three letters, then parts.
fn plausible_locale(name: &str) -> bool {
    let (tag, _) = name.split_once('@').unwrap_or((name, ""));
    let language = tag.split(['_', '-']).next().unwrap_or_default();
    (2..=3).contains(&language.len()) && language.bytes().all(|b| b.is_ascii_lowercase())
}

fn one_of(elem: Elem<'_>, values: &[&str]) -> Result<()> {
    match elem.value().lossy() {
        Value::String(value) if values.contains(&&*value) => Ok(()),
        Value::String(value) => bail!(
            BadValue,
            "Enumeration value '{value}' for field 'collation.{}' is not a valid value.",
            elem.key()
        ),
        _ => Err(wrong_type(elem, "string")),
    }
}

fn wrong_type(elem: Elem<'_>, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field 'collation.{}' is the wrong type '{}', expected type '{expected}'",
        elem.key(),
        elem.ty().alias()
    ))
}
