//! `range` of `$densify`: `{step, unit, bounds}`, validated with MongoDB's order and messages.

use super::super::spec::Spec;
use super::step::Step;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Elem, Type, Value, compare};
use kauri_expr::apply::TimeUnit;

/// Between which values documents are made.
pub enum Bounds {
    /// The least and the greatest value of all documents, both included.
    Full,
    /// Those of the partition.
    Partition,
    /// The first one is included, the second one is not.
    Explicit(Value<'static>, Value<'static>),
}

/// Parses the range.
pub fn parse(range: Doc<'_>) -> Result<(Step, Bounds)> {
    let spec = Spec::new("$densify.range", range, &["step", "bounds", "unit"])?;
    let step = spec.get("step");
    if let Some(elem) = step.filter(|elem| !elem.value().is_number()) {
        return Err(spec.wrong_type(elem, &["int", "decimal", "double", "long"]));
    }
    let unit = spec.string("unit")?;
    let Some(bounds) = spec.raw("bounds") else { return Err(spec.missing("bounds")) };
    let Some(step) = step.map(|elem| elem.value().into_owned()) else {
        return Err(spec.missing("step"));
    };
    if step.is_nan() || compare(&step, &Value::Int32(0)).is_le() {
        bail!(
            5733401,
            "the step parameter in a range statement must be a strictly positive numeric value"
        );
    }
    let unit = match unit {
        Some(unit) => Some(TimeUnit::parse("$densify", &unit.as_str().into())?),
        None => None,
    };
    let bounds = parse_bounds(bounds, &step, unit)?;
    let step = match unit {
        Some(unit) => Step::Time(unit, whole(&step)?),
        None => Step::Number(step),
    };
    Ok((step, bounds))
}

fn whole(step: &Value<'_>) -> Result<i64> {
    match step.as_i64_exact() {
        Some(step) => Ok(step),
        None => bail!(
            6586400,
            "The step parameter in a range statement must be a whole number when densifying a date range"
        ),
    }
}

fn parse_bounds(bounds: Elem<'_>, step: &Value<'_>, unit: Option<TimeUnit>) -> Result<Bounds> {
    if let Some(word) = bounds.value().lossy().as_str() {
        return match word {
            "full" => Ok(Bounds::Full),
            "partition" => Ok(Bounds::Partition),
            _ => bail!(5946802, "Bounds string must either be 'full' or 'partition'"),
        };
    }
    let Some(list) = bounds.as_doc().filter(|_| bounds.ty() == Type::Array) else {
        bail!(
            5733402,
            "the bounds in a range statement must be the string 'full', 'partition', or an ascending \
             array of two numbers or two dates"
        );
    };
    let mut items = list.iter().map(|elem| elem.value().into_owned());
    let (Some(lower), Some(upper), None) = (items.next(), items.next(), items.next()) else {
        bail!(5733403, "a bounding array in a range statement must have exactly two elements");
    };
    check_types(&lower, &upper, step, unit)?;
    if compare(&lower, &upper).is_gt() {
        bail!(
            5733402,
            "the bounds in a range statement must be the string 'full', 'partition', or an ascending \
             array of two numbers or two dates"
        );
    }
    Ok(Bounds::Explicit(lower, upper))
}

/// Both must be dates, with a unit, or numbers of the step's type, without one.
fn check_types(
    lower: &Value<'_>,
    upper: &Value<'_>,
    step: &Value<'_>,
    unit: Option<TimeUnit>,
) -> Result<()> {
    let is_date = |value: &Value<'_>| matches!(value, Value::DateTime(_));
    if is_date(lower) && is_date(upper) {
        if unit.is_none() {
            bail!(
                5733501,
                "a bounding array of dates may only be specified with the unit parameter"
            );
        }
        whole(step)?;
        return Ok(());
    }
    if !lower.is_number() {
        bail!(
            5733402,
            "a bounding array must be an ascending array of either two dates or two numbers"
        );
    }
    if !upper.is_number() {
        bail!(5733406, "a bounding array must contain either both dates or both numeric types");
    }
    if unit.is_some() {
        bail!(5733409, "numeric bounds may not have unit parameter");
    }
    if lower.ty() != step.ty() || upper.ty() != step.ty() {
        bail!(5876900, "Upper bound, lower bound, and step must all have the same type");
    }
    Ok(())
}
