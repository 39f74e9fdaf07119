//! `$derivative` and `$integral`: functions of points (sort value, value).
//!
//! The sort value is a number, or a date with a `unit`. Results are doubles, or decimals if a value is a decimal.

use super::super::{ParseCx, field_path, unwind};
use super::frame::SortedBy;
use kauri_base::{Result, bail};
use kauri_bson::{Decimal128, Doc, Elem, Type, Value};
use kauri_expr::apply::{self, TimeUnit};
use kauri_expr::{EvalCx, Expression, FieldPath};

/// A parsed `{input, unit}`.
pub struct Points {
    /// The derived or integrated expression.
    pub input: Expression,
    by: FieldPath,
    unit_ms: Option<i64>,
}

impl Points {
    /// Parses the argument of the operator.
    pub fn parse(operator: Elem<'_>, sorted_by: &SortedBy, cx: &ParseCx) -> Result<Points> {
        let name = operator.key();
        let Some(doc) = operator.as_doc().filter(|_| operator.ty() == Type::Document) else {
            bail!(
                FailedToParse,
                "{name} expects an object, but got a {}: {}",
                operator.ty().alias(),
                kauri_bson::shell_value(&operator.value())
            );
        };
        let by = match (sorted_by.count(), sorted_by.path()) {
            (0, _) => bail!(FailedToParse, "{name} requires a sortBy"),
            (1, Some(path)) => field_path(path)?,
            (1, None) => bail!(FailedToParse, "{name} requires a non-expression sortBy"),
            _ => bail!(FailedToParse, "{name} requires a non-compound sortBy"),
        };
        let (mut input, mut unit_ms) = (None, None);
        for argument in doc {
            match argument.key() {
                "input" => {
                    input = Some(Expression::parse(&argument.value(), &cx.expressions())?);
                }
                "unit" => unit_ms = Some(unit(name, &argument.value())?),
                other => bail!(FailedToParse, "{name} got unexpected argument: {other}"),
            }
        }
        match input {
            Some(input) => Ok(Points { input, by, unit_ms }),
            None => bail!(FailedToParse, "{name} requires an 'input' expression"),
        }
    }

    fn place<'d>(&self, doc: Doc<'d>) -> Value<'d> {
        unwind::find(doc, self.by.parts()).map_or(Value::Missing, Elem::value)
    }

    /// The change from the first row of a frame to its last one, per unit of the sort value.
    pub fn derivative(
        &self,
        cx: &EvalCx<'_>,
        first: Doc<'_>,
        last: Doc<'_>,
    ) -> Result<Value<'static>> {
        let (from, to) = (self.place(first), self.place(last));
        self.check_derived(&from)?;
        self.check_derived(&to)?;
        let run = distance(&from, &to);
        let rise = rise(&self.input.eval(cx, first)?, &self.input.eval(cx, last)?)?;
        let slope = run.and_then(|run| apply::quotient(&rise, &run));
        let slope = match self.unit_ms {
            Some(unit_ms) => slope.and_then(|slope| apply::product(&slope, &Value::Int64(unit_ms))),
            None => slope,
        };
        Ok(slope.unwrap_or(Value::Null))
    }

    fn check_derived(&self, place: &Value<'_>) -> Result<()> {
        match (self.unit_ms, place) {
            (Some(_), Value::DateTime(_)) => Ok(()),
            (Some(_), _) => {
                bail!(5624900, "$derivative with 'unit' expects the sortBy field to be a Date")
            }
            (None, Value::DateTime(_)) => {
                bail!(5624901, "$derivative where the sortBy is a Date requires an 'unit'")
            }
            (None, place) if place.is_number() => Ok(()),
            (None, _) => bail!(
                5624902,
                "$derivative (with no 'unit') expects the sortBy field to be numeric"
            ),
        }
    }

    /// Adds a row to an integral.
    pub fn integrate(&self, integral: &mut Integral, cx: &EvalCx<'_>, doc: Doc<'_>) -> Result<()> {
        let (x, y) = (self.place(doc), self.input.eval(cx, doc)?);
        let is_date = matches!(x, Value::DateTime(_));
        if !(is_date || x.is_number()) || !y.is_number() {
            bail!(
                5423900,
                "The input value of $integral window function must be a vector of 2 value, the first \
                 value must be numeric or date type and the second must be numeric."
            );
        }
        if self.unit_ms.is_some() && !is_date {
            bail!(5423901, "$integral with 'unit' expects the sortBy field to be a Date");
        }
        if self.unit_ms.is_none() && is_date {
            bail!(5423902, "$integral (with no 'unit') expects the sortBy field to be numeric");
        }
        integral.add(x.into_owned(), y.into_owned());
        Ok(())
    }

    /// The value of the integral.
    pub fn integral(&self, integral: &Integral) -> Value<'static> {
        let area = integral.value();
        match self.unit_ms {
            Some(ms) => apply::quotient(&area, &Value::Int64(ms)).unwrap_or(Value::Null),
            None => area,
        }
    }
}

/// Milliseconds of the unit that an argument names.
fn unit(name: &str, value: &Value<'_>) -> Result<i64> {
    let value = &value.lossy();
    if value.as_str().is_none() {
        bail!(FailedToParse, "'unit' must be a string");
    }
    match TimeUnit::parse(name, value)?.fixed_ms() {
        Some(ms) => Ok(ms),
        None => bail!(5490710, "unit must be 'week' or smaller"),
    }
}

/// From one number or date to another.
fn distance(from: &Value<'_>, to: &Value<'_>) -> Option<Value<'static>> {
    match (from, to) {
        (Value::DateTime(from), Value::DateTime(to)) => to.checked_sub(*from).map(Value::Int64),
        _ => apply::difference(to, from),
    }
}

/// How much a value has grown; null if one of both is.
fn rise(from: &Value<'_>, to: &Value<'_>) -> Result<Value<'static>> {
    if let Some(rise) = distance(from, to) {
        return Ok(rise);
    }
    if from.is_nullish() || to.is_nullish() {
        return Ok(Value::Null);
    }
    bail!(TypeMismatch, "can't $subtract {} from {}", from.type_name(), to.type_name());
}

/// The area below the points so far, by the trapezoidal rule.
#[derive(Default)]
pub struct Integral {
    last: Option<(Value<'static>, Value<'static>)>,
    sum: f64,
    /// What additions have rounded away.
    rest: f64,
    decimals: Option<Decimal128>,
}

impl Integral {
    fn add(&mut self, x: Value<'static>, y: Value<'static>) {
        if let Some((last_x, last_y)) = &self.last
            && let Some(width) = distance(last_x, &x)
            && let Some(height) = apply::sum(last_y, &y)
            && let Some(area) = apply::product(&width, &height)
        {
            self.add_area(&apply::product(&area, &Value::Double(0.5)).unwrap_or(Value::Null));
        }
        self.last = Some((x, y));
    }

    fn add_area(&mut self, area: &Value<'_>) {
        match area {
            Value::Decimal128(area) => {
                let sum = self.decimals.unwrap_or_else(|| Decimal128::from(0));
                self.decimals = Some(sum + *area);
            }
            area => {
                let area = area.as_f64_lossy().unwrap_or(f64::NAN);
                let sum = self.sum + area;
                let (large, small) =
                    if self.sum.abs() >= area.abs() { (self.sum, area) } else { (area, self.sum) };
                let lost = (large - sum) + small;
                self.rest += if lost.is_finite() { lost } else { 0.0 };
                self.sum = sum;
            }
        }
    }

    /// Null without points.
    fn value(&self) -> Value<'static> {
        if self.last.is_none() {
            return Value::Null;
        }
        let doubles = self.sum + self.rest;
        match self.decimals {
            Some(decimals) => Value::Decimal128(decimals + Decimal128::from_f64_precise(doubles)),
            None => Value::Double(doubles),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integral(points: &[(Value<'static>, Value<'static>)]) -> Value<'static> {
        let mut integral = Integral::default();
        points.iter().for_each(|(x, y)| integral.add(x.clone(), y.clone()));
        integral.value()
    }

    #[test]
    fn trapezoids_add_up() {
        let int = Value::Int32;
        assert_eq!(integral(&[]), Value::Null);
        assert_eq!(integral(&[(int(3), int(4))]), Value::Double(0.0));
        let points = [(int(0), int(1)), (int(2), int(3)), (int(5), int(3))];
        assert_eq!(integral(&points), Value::Double(13.0));
        let decimal = Value::Decimal128(Decimal128::from(3));
        let points = [(int(0), int(1)), (int(2), int(3)), (int(5), decimal)];
        let found = integral(&points);
        assert!(kauri_bson::equal(&found, &int(13)) && matches!(found, Value::Decimal128(_)));
    }

    #[test]
    fn small_areas_beside_large_ones_count() {
        let point = |x: f64, y: f64| (Value::Double(x), Value::Double(y));
        let points = [point(0.0, 1e17), point(2.0, 1e17), point(3.0, -1e17), point(5.0, -1e17)];
        assert_eq!(integral(&points), Value::Double(0.0));
        let points = [point(0.0, 1e17), point(1.0, 1e17), point(1.0, 1.0), point(2.0, 1.0)];
        let closing = [point(2.0, -1e17), point(3.0, -1e17)];
        let all = [&points[..], &closing[..]].concat();
        assert_eq!(integral(&all), Value::Double(1.0));
    }
}
