//! Functions over a frame: the accumulators of `$group`, and functions that only windows have.

use super::super::{ParseCx, spec::Spec};
use super::covariance::Covariance;
use super::frame::SortedBy;
use super::linear_fill::LinearFill;
use super::moving_average::MovingAverage;
use super::points::{Integral, Points};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Elem, Type, Value};
use kauri_expr::{Accumulator, AccumulatorSpec, Dependencies, EvalCx, Expression};

/// A parsed function.
pub enum Function {
    /// An accumulator over the frame.
    Accumulator(Box<AccumulatorSpec>),
    /// `$covariancePop` and `$covarianceSamp` over the frame.
    Covariance { pair: Expression, sample: bool },
    /// The number of the row, from one on.
    DocumentNumber,
    /// The number of the first row that is sorted alike.
    Rank,
    /// The number of the value that is sorted by.
    DenseRank,
    /// The value of another row.
    Shift { output: Expression, by: i64, default: Value<'static> },
    /// The last value that was no null.
    Locf(Expression),
    /// `$linearFill`.
    LinearFill(LinearFill),
    /// `$expMovingAvg`.
    MovingAverage(MovingAverage),
    /// `$derivative` from the first to the last row of the frame.
    Derivative(Points),
    /// `$integral` over the frame.
    Integral(Points),
}

/// Whether it is a rank function.
pub fn is_rank(name: &str) -> bool {
    matches!(name, "$rank" | "$denseRank" | "$documentNumber")
}

/// Refuses a `window` for functions without a frame.
pub fn check_window(name: &str) -> Result<()> {
    match name {
        "$shift" => bail!(FailedToParse, "{name} does not accept a 'window' field"),
        "$locf" | "$linearFill" => bail!(FailedToParse, "'window' field is not allowed in {name}"),
        "$expMovingAvg" => {
            bail!(FailedToParse, "{name} must have exactly one argument that is an object")
        }
        _ => Ok(()),
    }
}

impl Function {
    /// A rank function.
    pub fn of_rank(name: &str) -> Function {
        match name {
            "$rank" => Function::Rank,
            "$denseRank" => Function::DenseRank,
            _ => Function::DocumentNumber,
        }
    }

    /// Parses `$name: argument`.
    pub fn parse(operator: Elem<'_>, sorted_by: &SortedBy, cx: &ParseCx) -> Result<Function> {
        let (name, value) = (operator.key(), operator.value());
        let expressions = cx.expressions();
        match name {
            "$covariancePop" | "$covarianceSamp" => Ok(Function::Covariance {
                pair: Expression::parse(&value, &expressions)?,
                sample: name == "$covarianceSamp",
            }),
            "$shift" => shift(operator, sorted_by, cx),
            "$locf" => Ok(Function::Locf(Expression::parse(&value, &expressions)?)),
            "$linearFill" => LinearFill::parse(operator, sorted_by, cx).map(Function::LinearFill),
            "$expMovingAvg" => {
                MovingAverage::parse(operator, sorted_by, cx).map(Function::MovingAverage)
            }
            "$derivative" => Points::parse(operator, sorted_by, cx).map(Function::Derivative),
            "$integral" => Points::parse(operator, sorted_by, cx).map(Function::Integral),
            "$accumulator" | "$mergeObjects" => {
                bail!(FailedToParse, "Unrecognized window function, {name}")
            }
            _ if kauri_expr::is_accumulator_name(name) => {
                let spec = AccumulatorSpec::parse_in_window(name, &value, &expressions)?;
                Ok(Function::Accumulator(Box::new(spec)))
            }
            _ => bail!(FailedToParse, "Unrecognized window function, {name}"),
        }
    }

    /// The fields of a row that it reads.
    pub fn dependencies(&self) -> Dependencies {
        match self {
            Function::Accumulator(spec) => spec.dependencies(),
            Function::Covariance { pair: e, .. }
            | Function::Shift { output: e, .. }
            | Function::Locf(e)
            | Function::LinearFill(LinearFill { input: e, .. })
            | Function::MovingAverage(MovingAverage { input: e, .. })
            | Function::Derivative(Points { input: e, .. })
            | Function::Integral(Points { input: e, .. }) => e.dependencies(),
            Function::DocumentNumber | Function::Rank | Function::DenseRank => {
                Dependencies::default()
            }
        }
    }
}

/// `{$shift: {output, by, default}}`
fn shift(operator: Elem<'_>, sorted_by: &SortedBy, cx: &ParseCx) -> Result<Function> {
    let Some(doc) = operator.as_doc().filter(|_| operator.ty() == Type::Document) else {
        bail!(FailedToParse, "Argument to $shift must be an object");
    };
    if sorted_by.count() == 0 {
        bail!(FailedToParse, "'$shift' requires a sortBy");
    }
    let fields = Spec::any("$shift", doc);
    if let Some(other) = doc.iter().find(|e| !matches!(e.key(), "output" | "by" | "default")) {
        bail!(FailedToParse, "Unknown argument in $shift: {}", other.key());
    }
    let (Some(output), Some(by)) = (fields.raw("output"), fields.raw("by")) else {
        bail!(FailedToParse, "$shift requires 'output' and 'by'");
    };
    let by = match by.value().as_i64_exact().filter(|by| i32::try_from(*by).is_ok()) {
        Some(by) => by,
        None => bail!(
            FailedToParse,
            "'$shift:by' field must be an integer, but found {}",
            kauri_bson::shell_value(&by.value())
        ),
    };
    let expressions = cx.expressions();
    let default = match fields.raw("default") {
        None => Value::Null,
        Some(elem) => {
            let default = Expression::parse(&elem.value(), &expressions)?;
            match default.as_constant() {
                Some(value) => value.clone(),
                None => bail!(FailedToParse, "'$shift:default' expression must yield a constant"),
            }
        }
    };
    let output = Expression::parse(&output.value(), &expressions)?;
    Ok(Function::Shift { output, by, default })
}

/// The state of a function over the rows of a frame so far.
pub enum State {
    Accumulator(Accumulator),
    Covariance(Covariance),
    Integral(Integral),
}

impl Function {
    /// The state without rows; none for functions without a frame.
    pub fn start(&self, cx: &EvalCx<'_>) -> Result<Option<State>> {
        Ok(match self {
            Function::Accumulator(spec) => Some(State::Accumulator(spec.start(cx, Doc::EMPTY)?)),
            Function::Covariance { .. } => Some(State::Covariance(Covariance::default())),
            Function::Integral(_) => Some(State::Integral(Integral::default())),
            _ => None,
        })
    }

    /// Adds a row.
    pub fn add(&self, state: &mut State, cx: &EvalCx<'_>, doc: Doc<'_>) -> Result<()> {
        match (self, state) {
            (Function::Accumulator(spec), State::Accumulator(state)) => spec.add(state, cx, doc),
            (Function::Covariance { pair, .. }, State::Covariance(state)) => {
                if let Some(pair) = pair.eval(cx, doc)?.as_array() {
                    state.add(pair);
                }
                Ok(())
            }
            (Function::Integral(points), State::Integral(state)) => {
                points.integrate(state, cx, doc)
            }
            _ => Ok(()),
        }
    }

    /// What has come of the rows of a frame. Its start moves from row to row, or not.
    pub fn result(&self, state: &State, moves: bool) -> Result<Value<'static>> {
        Ok(match (self, state) {
            (Function::Accumulator(spec), State::Accumulator(state)) if moves => {
                spec.result_of_moving_frame(state)?
            }
            (Function::Accumulator(spec), State::Accumulator(state)) => spec.result(state)?,
            (Function::Covariance { sample, .. }, State::Covariance(state)) => state.value(*sample),
            (Function::Integral(points), State::Integral(state)) => points.integral(state),
            _ => Value::Null,
        })
    }
}

/// The variables that a row is given, and room for them.
pub fn variables(env: &crate::exec::QueryEnv, base: usize) -> Vec<Value<'static>> {
    let mut values = env.values.clone();
    values.resize(base, Value::Missing);
    values
}
