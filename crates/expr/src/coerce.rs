//! Implicit conversions to strings by string operators.

use crate::date::civil;
use crate::numeric;
use kauri_base::{Result, bail};
use kauri_bson::{Value, shell};
use std::borrow::Cow;

/// The text that a value stands for, which need not be UTF-8; empty for null and missing.
pub(crate) fn to_text<'v>(value: &'v Value<'_>) -> Result<Cow<'v, [u8]>> {
    if let Some(text) = value.text_bytes() {
        return Ok(Cow::Borrowed(text));
    }
    Ok(match to_str(value)? {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    })
}

/// The text of a value that is none.
fn to_str(value: &Value<'_>) -> Result<Cow<'static, str>> {
    Ok(match value {
        Value::Int32(v) => Cow::Owned(v.to_string()),
        Value::Int64(v) => Cow::Owned(v.to_string()),
        Value::Double(v) => {
            let mut text = String::new();
            shell::write_general(&mut text, *v, 6);
            Cow::Owned(text)
        }
        Value::Decimal128(v) => Cow::Owned(v.to_string()),
        Value::DateTime(ms) => Cow::Owned(civil::iso_text(*ms)),
        Value::Timestamp(time) => {
            // C's ctime without weekday and year.
            const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
            let at = civil::Civil::of_ms(i64::from(time.seconds) * 1000);
            let start = (at.month as usize - 1) * 3;
            Cow::Owned(format!(
                "{} {:2} {:02}:{:02}:{:02}:{}",
                MONTHS.get(start..start + 3).unwrap_or_default(),
                at.day,
                at.hour,
                at.minute,
                at.second,
                time.increment
            ))
        }
        value if value.is_nullish() => Cow::Borrowed(""),
        value => bail!(16007, "can't convert from BSON type {} to String", value.type_name()),
    })
}

/// The same for an owned value, without a copy where it is a string.
pub(crate) fn into_text(value: Value<'_>) -> Result<Cow<'_, [u8]>> {
    match value.into_string_bytes() {
        Ok(text) => Ok(text),
        Err(other) => Ok(Cow::Owned(to_text(&other)?.into_owned())),
    }
}

/// An int that a whole number of any type is, if it is one.
pub(crate) fn whole_int(value: &Value<'_>) -> Option<i32> {
    numeric::Num::of(value)?;
    value.as_i64_exact().and_then(|v| i32::try_from(v).ok())
}
