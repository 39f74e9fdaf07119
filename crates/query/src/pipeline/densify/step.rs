//! The values that `$densify` creates: numbers, or dates with units of time.

use kauri_base::{Result, bail};
use kauri_bson::{Value, compare};
use kauri_expr::apply::{self, TimeUnit};

/// The step from one value to the next.
pub enum Step {
    /// A positive number.
    Number(Value<'static>),
    /// So many units of time.
    Time(TimeUnit, i64),
}

/// Up to where values are made.
pub enum Limit {
    /// Only smaller ones.
    Below(Value<'static>),
    /// This one, too.
    UpTo(Value<'static>),
}

impl Limit {
    /// Whether this value is to be made.
    pub fn admits(&self, value: &Value<'_>) -> bool {
        match self {
            Limit::Below(limit) => compare(value, limit).is_lt(),
            Limit::UpTo(limit) => compare(value, limit).is_le(),
        }
    }
}

impl Step {
    /// Refuses a document's value that this step does not lead to.
    pub fn check(&self, value: &Value<'_>) -> Result<()> {
        match (self, value) {
            (Step::Number(_), value) if value.is_number() => Ok(()),
            (Step::Time(..), Value::DateTime(_)) => Ok(()),
            (Step::Time(..), value) if value.is_number() => bail!(
                6053600,
                "Encountered numeric densify value in collection when step has a date unit."
            ),
            (Step::Number(_), Value::DateTime(_)) => bail!(
                6053600,
                "Encountered date densify value in collection when step does not have a date unit."
            ),
            _ => bail!(5733201, "Densify field type must be numeric or a date"),
        }
    }

    /// The value after this one.
    pub fn after(&self, value: &Value<'_>) -> Result<Value<'static>> {
        match (self, value) {
            (Step::Time(unit, amount), Value::DateTime(ms)) => {
                Ok(Value::DateTime(apply::date_plus(*ms, *unit, *amount)?))
            }
            (Step::Number(step), value) => Ok(apply::sum(value, step).unwrap_or(Value::Null)),
            (Step::Time(..), _) => Ok(Value::Null),
        }
    }

    /// The limit of values to create, from `next` on, before a document with this value: all smaller ones.
    ///
    /// A number that steps reach from `next` is not created again. Sums of doubles are inexact, so the last created
    /// value is then a step before it.
    pub fn limit_before(&self, next: &Value<'_>, value: &Value<'_>) -> (Limit, bool) {
        let Step::Number(step) = self else {
            return (Limit::Below(value.clone().into_owned()), false);
        };
        let far = apply::difference(value, next);
        let left = far.and_then(|far| apply::remainder(&far, step));
        let is_met = left.is_some_and(|left| compare(&left, &Value::Int32(0)).is_eq());
        match apply::difference(value, step).filter(|_| is_met) {
            Some(last) => (Limit::UpTo(last), true),
            None => (Limit::Below(value.clone().into_owned()), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_doubles_end_a_step_before_the_value_that_they_mean() {
        let step = Step::Number(Value::Double(0.25));
        let (limit, is_met) = step.limit_before(&Value::Double(0.0), &Value::Int32(1));
        assert!(is_met && limit.admits(&Value::Double(0.75)));
        assert!(!limit.admits(&Value::Double(0.999_999)));
        let (limit, is_met) = step.limit_before(&Value::Double(0.0), &Value::Double(0.9));
        assert!(
            !is_met && limit.admits(&Value::Double(0.75)) && !limit.admits(&Value::Double(0.9))
        );
    }
}
