//! `$readPreference`: whether a secondary may answer. A server alone is the one to choose, so it checks the
//! document and no more.

use crate::concerns::wrong_type;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Elem, Type, Value};

/// Modes, the one for primaries first.
const MODES: &[&str] =
    &["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"];
/// The least that `maxStalenessSeconds` may be.
const STALENESS_SECS_MIN: i64 = 90;

/// Fails if this is no read preference. Returns whether a secondary may answer.
pub fn parse(elem: Elem<'_>) -> Result<bool> {
    let Value::Document(preference) = elem.value() else {
        return Err(wrong_type("$readPreference", elem, "object"));
    };
    let (mut mode, mut has_tags, mut staleness) = (MODES[0].to_owned(), false, 0);
    for field in preference.as_doc() {
        match (field.key(), field.value().lossy()) {
            ("mode", Value::String(text)) if MODES.contains(&&*text) => mode = text.into_owned(),
            ("mode", Value::String(text)) => bail!(
                FailedToParse,
                "Could not parse $readPreference mode '{text}'. Only the modes '{}' are supported.",
                MODES.join("', '")
            ),
            ("mode", _) => return Err(wrong_type("$readPreference.mode", field, "string")),
            ("tags", Value::Array(_)) => has_tags = has_tag_sets(field)?,
            ("tags", _) => return Err(wrong_type("$readPreference.tags", field, "array")),
            ("maxStalenessSeconds", _) => staleness = max_staleness(field)?,
            ("hedge", Value::Document(_)) => {}
            ("hedge", _) => return Err(wrong_type("$readPreference.hedge", field, "object")),
            _ => {}
        }
    }
    let is_primary = mode == MODES[0];
    if is_primary && has_tags {
        bail!(BadValue, "Only empty tags are allowed with primary read preference");
    }
    if is_primary && staleness > 0 {
        bail!(BadValue, "mode 'primary' does not allow for 'maxStalenessSeconds'");
    }
    Ok(!is_primary)
}

/// Whether a list of tag sets restricts anything.
fn has_tag_sets(field: Elem<'_>) -> Result<bool> {
    let sets = field.as_doc().unwrap_or(Doc::EMPTY);
    let mut restricts = false;
    for set in sets {
        let Some(tags) = set.as_doc().filter(|_| set.ty() == Type::Document) else {
            return Err(wrong_type(&format!("$readPreference.tags.{}", set.key()), set, "object"));
        };
        restricts |= !tags.is_empty();
    }
    Ok(restricts)
}

fn max_staleness(field: Elem<'_>) -> Result<i64> {
    let value = field.value();
    if !value.is_number() {
        return Err(wrong_type("$readPreference.maxStalenessSeconds", field, "number"));
    }
    match value.to_i64_saturating() {
        Some(0) => Ok(0),
        Some(secs) if secs < 0 => {
            bail!(BadValue, "maxStalenessSeconds must be a non-negative integer")
        }
        Some(secs) if secs > i64::from(i32::MAX) => {
            bail!(BadValue, "maxStalenessSeconds value can not exceed {}", i32::MAX)
        }
        Some(secs) if secs < STALENESS_SECS_MIN => bail!(
            MaxStalenessOutOfRange,
            "maxStalenessSeconds value can not be less than {STALENESS_SECS_MIN}"
        ),
        Some(secs) => Ok(secs),
        None => bail!(BadValue, "maxStalenessSeconds must be a non-negative integer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{array, doc};

    #[test]
    fn a_read_preference_is_checked() {
        let tags = doc! { "a" => "b" };
        let outcome = |preference| {
            let command = doc! { "$readPreference" => preference };
            parse(command.as_doc().first().unwrap()).map_err(|error| error.code().number())
        };
        for (preference, expected) in [
            (doc! {}, Ok(false)),
            (doc! { "mode" => "primary" }, Ok(false)),
            (doc! { "mode" => "secondary" }, Ok(true)),
            (doc! { "mode" => "nearest", "tags" => array![tags.clone(), doc! {}] }, Ok(true)),
            (doc! { "mode" => "secondary", "maxStalenessSeconds" => 90 }, Ok(true)),
            (doc! { "mode" => "secondary", "maxStalenessSeconds" => 89 }, Err(160)),
            (doc! { "mode" => "secondary", "maxStalenessSeconds" => -1 }, Err(2)),
            (doc! { "mode" => "secondary", "maxStalenessSeconds" => "x" }, Err(14)),
            (doc! { "mode" => "primary", "maxStalenessSeconds" => 100 }, Err(2)),
            (doc! { "mode" => "primary", "tags" => array![tags] }, Err(2)),
            (doc! { "mode" => "primary", "tags" => array![doc! {}] }, Ok(false)),
            (doc! { "mode" => "nearest", "tags" => array![1] }, Err(14)),
            (doc! { "mode" => "sideways" }, Err(9)),
            (doc! { "mode" => 1 }, Err(14)),
        ] {
            assert_eq!(outcome(preference.clone()), expected, "{preference:?}");
        }
    }
}
