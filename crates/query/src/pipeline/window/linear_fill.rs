//! `$linearFill`: interpolates missing values linearly between their neighbours.

use super::super::{ParseCx, field_path, unwind};
use super::frame::SortedBy;
use kauri_base::{Result, bail, work};
use kauri_bson::{Decimal128, Doc, Elem, Value};
use kauri_expr::apply;
use kauri_expr::{EvalCx, Expression, FieldPath};

/// A parsed `$linearFill`.
pub struct LinearFill {
    /// The filled expression.
    pub input: Expression,
    by: FieldPath,
}

/// A row's value, and the one that it is sorted by.
#[derive(Clone)]
struct Point {
    x: Value<'static>,
    y: Value<'static>,
}

/// The points around the current row.
#[derive(Default)]
pub struct Filling {
    left: Option<Point>,
    right: Option<Point>,
    /// Rows before this one have been looked at.
    seen: usize,
    /// What the row before is sorted by.
    before: Option<Value<'static>>,
}

impl LinearFill {
    /// Parses the argument of the operator.
    pub fn parse(operator: Elem<'_>, sorted_by: &SortedBy, cx: &ParseCx) -> Result<LinearFill> {
        let Some(path) = sorted_by.path() else {
            bail!(
                605001,
                "{} must be specified with a top level sortBy expression with exactly one element",
                operator.key()
            );
        };
        let input = Expression::parse(&operator.value(), &cx.expressions())?;
        Ok(LinearFill { input, by: field_path(path)? })
    }

    /// The value of the row at `at`; rows are asked for in order.
    pub fn value<'d>(
        &self,
        filling: &mut Filling,
        at: usize,
        count: usize,
        doc: impl Fn(usize) -> Doc<'d>,
        cx: &EvalCx<'_>,
    ) -> Result<Value<'static>> {
        let x = self.place(doc(at))?;
        if let Some(before) = filling.before.replace(x.clone()) {
            check_same_kind(&before, &x)?;
            if kauri_bson::equal(&before, &x) {
                bail!(6050106, "There can be no repeated values in the sort field");
            }
        }
        if let Some(y) = self.number(doc(at), cx)? {
            filling.left = Some(Point { x, y: y.clone() });
            return Ok(y);
        }
        let Some(left) = filling.left.clone() else { return Ok(Value::Null) };
        if filling.seen <= at {
            filling.right = None;
            filling.seen = at + 1;
            while filling.right.is_none() && filling.seen < count {
                work::tick(1)?;
                let next = doc(filling.seen);
                if let Some(y) = self.number(next, cx)? {
                    filling.right = Some(Point { x: self.place(next)?, y });
                }
                filling.seen += 1;
            }
        }
        match &filling.right {
            Some(right) => between(&left, right, &x),
            None => Ok(Value::Null),
        }
    }

    fn place(&self, doc: Doc<'_>) -> Result<Value<'static>> {
        let found = unwind::find(doc, self.by.parts()).map_or(Value::Missing, Elem::value);
        if !found.is_number() && !matches!(found, Value::DateTime(_)) {
            bail!(
                TypeMismatch,
                "sortBy value must be numeric or a date, but found {}",
                found.type_name()
            );
        }
        Ok(found.into_owned())
    }

    /// The row's number, if it has one.
    fn number(&self, doc: Doc<'_>, cx: &EvalCx<'_>) -> Result<Option<Value<'static>>> {
        let value = self.input.eval(cx, doc)?;
        if value.is_nullish() {
            return Ok(None);
        }
        if !value.is_number() {
            bail!(TypeMismatch, "Value to be filled must be numeric or nullish");
        }
        Ok(Some(value.into_owned()))
    }
}

fn check_same_kind(a: &Value<'_>, b: &Value<'_>) -> Result<()> {
    if a.is_number() != b.is_number() {
        bail!(TypeMismatch, "The sortBy field must be either numeric or a date, but not both");
    }
    Ok(())
}

/// The value at `x` of the line between two points.
fn between(left: &Point, right: &Point, x: &Value<'_>) -> Result<Value<'static>> {
    check_same_kind(&left.x, &right.x)?;
    let all = [&left.x, &left.y, &right.x, &right.y];
    if all.iter().any(|value| matches!(value, Value::Decimal128(_))) {
        let [x0, y0, x1, y1] = all.map(decimal);
        return Ok(Value::Decimal128(y0 + (decimal(x) - x0) * (y1 - y0) / (x1 - x0)));
    }
    let [x0, y0, x1, y1] = all.map(double);
    Ok(Value::Double(y0 + (double(x) - x0) * ((y1 - y0) / (x1 - x0))))
}

fn double(value: &Value<'_>) -> f64 {
    match value {
        Value::DateTime(ms) => *ms as f64,
        other => other.as_f64_lossy().unwrap_or(f64::NAN),
    }
}

fn decimal(value: &Value<'_>) -> Decimal128 {
    let zero = Value::Decimal128(Decimal128::from(0));
    match value {
        Value::DateTime(ms) => Decimal128::from(*ms),
        other => match apply::sum(&zero, other) {
            Some(Value::Decimal128(decimal)) => decimal,
            _ => Decimal128::NAN,
        },
    }
}
