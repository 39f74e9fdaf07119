//! `$expMovingAvg`: the exponential moving average of the rows so far.
//!
//! It is computed in decimals and returned as a double until a value is a decimal. Values that are not numbers are
//! ignored.

use super::super::ParseCx;
use super::frame::SortedBy;
use kauri_base::{Result, bail};
use kauri_bson::{Decimal128, Doc, Elem, Type, Value, compare, shell_value};
use kauri_expr::{EvalCx, Expression};

/// A parsed `{input, N | alpha}`.
pub struct MovingAverage {
    /// The averaged expression.
    pub input: Expression,
    /// What a new value weighs.
    alpha: Decimal128,
}

/// The average so far.
#[derive(Default)]
pub struct Average {
    value: Option<Decimal128>,
    has_decimals: bool,
}

impl MovingAverage {
    /// Parses the argument of the operator.
    pub fn parse(operator: Elem<'_>, sorted_by: &SortedBy, cx: &ParseCx) -> Result<MovingAverage> {
        let Some(doc) = operator.as_doc().filter(|_| operator.ty() == Type::Document) else {
            bail!(FailedToParse, "$expMovingAvg must have exactly one argument that is an object");
        };
        let Some(input) = doc.get("input").filter(|_| doc.count() == 2) else {
            bail!(
                FailedToParse,
                "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an \
                 'N' field or an 'alpha' field"
            );
        };
        if sorted_by.count() == 0 {
            bail!(FailedToParse, "$expMovingAvg requires an explicit 'sortBy'");
        }
        let input = Expression::parse(&input.value(), &cx.expressions())?;
        let alpha = match (doc.get("N"), doc.get("alpha")) {
            (Some(n), _) => alpha_of_rows(&n.value())?,
            (None, Some(alpha)) => alpha_of(&alpha.value())?,
            (None, None) => bail!(
                FailedToParse,
                "Got unrecognized field in $expMovingAvg, $expMovingAvg sub object must have exactly two \
                 fields: An 'input' field, and either an 'N' field or an 'alpha' field"
            ),
        };
        Ok(MovingAverage { input, alpha })
    }

    /// The average with this row.
    pub fn value(
        &self,
        average: &mut Average,
        cx: &EvalCx<'_>,
        doc: Doc<'_>,
    ) -> Result<Value<'static>> {
        let value = self.input.eval(cx, doc)?;
        if let Some(number) = decimal(&value) {
            average.has_decimals |= matches!(value, Value::Decimal128(_));
            average.value = Some(match average.value {
                Some(last) => number * self.alpha + last * (Decimal128::from(1) - self.alpha),
                None => number,
            });
        }
        Ok(match average.value.map(Value::Decimal128) {
            None => Value::Null,
            Some(decimal) if average.has_decimals => decimal,
            Some(decimal) => Value::Double(decimal.as_f64_lossy().unwrap_or(f64::NAN)),
        })
    }
}

/// The weight by which so many rows matter.
fn alpha_of_rows(n: &Value<'_>) -> Result<Decimal128> {
    if !n.is_number() {
        bail!(FailedToParse, "'N' field must be an integer, but found type {}", n.type_name());
    }
    let Some(rows) = n.as_i64_exact() else {
        bail!(
            FailedToParse,
            "'N' field must be an integer, but found  {}. To use a non-integer, use the 'alpha' argument \
             instead",
            shell_value(n)
        );
    };
    if rows <= 0 {
        bail!(FailedToParse, "'N' must be greater than zero. Got {rows}");
    }
    Ok(Decimal128::from(2) / (Decimal128::from(rows) + Decimal128::from(1)))
}

fn alpha_of(alpha: &Value<'_>) -> Result<Decimal128> {
    let Some(weight) = decimal(alpha) else {
        bail!(FailedToParse, "'alpha' must be a number, but found type {}", alpha.type_name());
    };
    let is_between =
        compare(alpha, &Value::Int32(0)).is_gt() && compare(alpha, &Value::Int32(1)).is_lt();
    if !is_between {
        bail!(
            FailedToParse,
            "'alpha' must be between 0 and 1 (exclusive), found {}",
            shell_value(alpha)
        );
    }
    Ok(weight)
}

fn decimal(value: &Value<'_>) -> Option<Decimal128> {
    match value {
        Value::Int32(number) => Some(Decimal128::from(*number)),
        Value::Int64(number) => Some(Decimal128::from(*number)),
        Value::Double(number) => Some(Decimal128::from_f64_precise(*number)),
        Value::Decimal128(number) => Some(*number),
        _ => None,
    }
}
