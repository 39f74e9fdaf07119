//! The options of a time series collection, which is not supported: validated, then refused, so that invalid
//! options get their own error.

use crate::args::Args;
use kauri_base::{Result, bail};
use kauri_bson::Doc;

/// Most seconds that a bucket may span: a year.
const SPAN_SECONDS_MAX: i64 = 31_536_000;

/// Checks `{timeField, metaField, granularity, bucketMaxSpanSeconds, bucketRoundingSeconds}`.
pub fn check(doc: Doc<'_>) -> Result<()> {
    let args = Args::new("create.timeseries");
    let (mut time, mut meta, mut granularity) = (None, None, None);
    let (mut span, mut rounding) = (None, None);
    for field in doc {
        match field.key() {
            "timeField" => time = args.given(field, Args::string)?,
            "metaField" => meta = args.given(field, Args::string)?,
            "granularity" => granularity = args.given(field, Args::string)?,
            "bucketMaxSpanSeconds" => span = args.given(field, Args::long)?,
            "bucketRoundingSeconds" => rounding = args.given(field, Args::long)?,
            other => return Err(args.unknown(other)),
        }
    }
    let Some(time) = time else { return Err(args.missing("timeField")) };
    check_name("timeField", &time)?;
    if let Some(meta) = &meta {
        check_name("metaField", meta)?;
        if meta == "_id" || *meta == time {
            bail!(
                InvalidOptions,
                "The 'metaField' cannot be \"_id\" or the same as the 'timeField'"
            );
        }
    }
    if let Some(name) = granularity.as_deref()
        && !matches!(name, "seconds" | "minutes" | "hours")
    {
        bail!(
            BadValue,
            "Enumeration value '{name}' for field 'create.timeseries.granularity' is not a valid \
             value."
        );
    }
    for seconds in [span, rounding].into_iter().flatten() {
        if !(1..=SPAN_SECONDS_MAX).contains(&seconds) {
            bail!(
                BadValue,
                "BSON field 'create.timeseries' value must be between 1 and {SPAN_SECONDS_MAX}, \
                 actual value '{seconds}'"
            );
        }
    }
    if span != rounding || (granularity.is_some() && rounding.is_some()) {
        bail!(
            InvalidOptions,
            "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' need to be set to the same \
             value, without 'granularity'"
        );
    }
    Ok(())
}

fn check_name(field: &str, name: &str) -> Result<()> {
    if name.contains('\0') {
        bail!(BadValue, "'{field}' cannot contain a null byte");
    }
    if name.contains('.') {
        bail!(InvalidOptions, "'{field}' must be a top-level field and not contain a '.'");
    }
    Ok(())
}
