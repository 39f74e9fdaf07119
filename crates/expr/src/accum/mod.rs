//! Accumulators (`$sum`, `$push`, …) of `$group`, `$bucket` and window stages.
//!
//! An [`AccumulatorSpec`] is parsed once; each group has an [`Accumulator`] of it. [`AccumulatorSpec::add`]
//! evaluates the argument for a document and adds the value; [`Accumulator::merge`] adds a partial result. An
//! accumulator owns its bytes and reports their number ([`Accumulator::memory_bytes`]). Its state can be saved as a
//! document and restored (`saved`).

mod best;
mod collect;
mod parse;
pub(crate) mod percentile;
mod saved;
pub(crate) mod sum;

pub(crate) use best::check_n;
pub use parse::is_accumulator_name;
pub(crate) use parse::percentile_arguments;

use crate::dependencies::Dependencies;
use crate::eval::EvalCx;
use crate::expression::Expression;
use crate::numeric::Num;
use crate::ops::compare;
use crate::ops::merged::Merged;
use best::{Best, Ends};
use collect::{Distinct, Elements};
use kauri_base::{Error, ErrorCode, Result, bail, limits};
use kauri_bson::keygen::{KeyPattern, Keys};
use kauri_bson::{Doc, Value};
use percentile::{Method, Numbers};
use sum::{Deviation, Sum};

/// An accumulator with its arguments.
#[derive(Debug)]
pub struct AccumulatorSpec {
    kind: Kind,
    argument: Expression,
    /// `n`, where the accumulator has one.
    n: Option<Expression>,
    /// `sortBy`
    sort: Option<KeyPattern>,
    in_group: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
    SetUnion,
    ConcatArrays,
    MergeObjects,
    Count,
    Deviation { sample: bool },
    Ends { last: bool },
    Extremes { greatest: bool },
    Sorted { bottom: bool, single: bool },
    Percentile { p: Vec<f64>, method: Method },
    Median { method: Method },
}

/// The state of an accumulator for one group.
#[derive(Clone, Debug)]
pub struct Accumulator {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Sum(Sum),
    Avg(Sum, u64),
    /// The least or the greatest so far.
    Extreme {
        value: Value<'static>,
        greatest: bool,
    },
    First(Option<Value<'static>>),
    Last(Option<Value<'static>>),
    Push(Elements),
    Concat(Elements),
    Set(Distinct),
    Union(Distinct),
    Merge(Merged),
    Count(i64),
    Deviation(Deviation, bool),
    Ends(Ends),
    Extremes(Best, bool),
    Sorted(Best, bool, bool),
    Numbers(Numbers),
}

/// Estimated bytes of a value that owns its content.
pub(crate) fn value_bytes(value: &Value<'_>) -> usize {
    size_of::<Value<'_>>()
        + match value {
            Value::String(text) | Value::Symbol(text) | Value::Code(text) => text.len(),
            Value::Document(doc) | Value::Array(doc) => doc.as_bytes().len(),
            Value::Binary { bytes, .. } | Value::NotUtf8 { bytes, .. } => bytes.len(),
            Value::Regex { pattern, options } => pattern.len() + options.len(),
            Value::DbPointer { namespace, .. } => namespace.len(),
            Value::CodeWithScope { code, scope } => code.len() + scope.as_bytes().len(),
            _ => 0,
        }
}

impl AccumulatorSpec {
    /// The argument, which is evaluated for each document.
    pub fn argument(&self) -> &Expression {
        &self.argument
    }

    /// Whether it reads documents beside the argument, to sort them (`$top`).
    pub fn sorts(&self) -> bool {
        self.sort.is_some()
    }

    /// The fields of a document that it reads.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = self.argument.dependencies();
        if let Some(pattern) = &self.sort {
            let paths = (0..pattern.len()).filter_map(|field| pattern.path(field));
            found.fields.extend(paths.map(|path| path.as_str().to_owned()));
        }
        if let Some(n) = &self.n {
            found.variables.extend(n.dependencies().variables);
        }
        found
    }

    /// Begins a group. `id` is the group's `_id` if it is a document, else empty: the input of an expression for
    /// `n`.
    pub fn start(&self, cx: &EvalCx<'_>, id: Doc<'_>) -> Result<Accumulator> {
        let n = match &self.n {
            Some(n) => {
                let value = n.eval(cx, id)?;
                check_n(&value).map_err(|error| match self.in_group {
                    true => Error::location(7548606, error.message()),
                    false => error,
                })?
            }
            None => 1,
        };
        let state = match &self.kind {
            Kind::Sum => State::Sum(Sum::default()),
            Kind::Avg => State::Avg(Sum::default(), 0),
            Kind::Min => State::Extreme { value: Value::Missing, greatest: false },
            Kind::Max => State::Extreme { value: Value::Missing, greatest: true },
            Kind::First => State::First(None),
            Kind::Last => State::Last(None),
            Kind::Push => State::Push(Elements::default()),
            Kind::ConcatArrays => State::Concat(Elements::default()),
            Kind::AddToSet => State::Set(Distinct::default()),
            Kind::SetUnion => State::Union(Distinct::default()),
            Kind::MergeObjects => State::Merge(Merged::default()),
            Kind::Count => State::Count(0),
            Kind::Deviation { sample } => State::Deviation(Deviation::default(), *sample),
            Kind::Ends { last } => State::Ends(Ends::new(n, *last)),
            Kind::Extremes { greatest } => State::Extremes(Best::new(n), *greatest),
            Kind::Sorted { bottom, single } => State::Sorted(Best::new(n), *bottom, *single),
            Kind::Percentile { .. } | Kind::Median { .. } => State::Numbers(Numbers::default()),
        };
        Ok(Accumulator { state })
    }

    /// Evaluates the argument for a document and adds it.
    #[inline]
    pub fn add(&self, accumulator: &mut Accumulator, cx: &EvalCx<'_>, doc: Doc<'_>) -> Result<()> {
        if let (Some(constant), None) = (self.argument.as_constant(), &self.sort) {
            return self.add_value(accumulator, constant);
        }
        let value = self.argument.eval(cx, doc)?;
        match &self.sort {
            None => self.add_value(accumulator, &value),
            Some(pattern) => {
                let mut keys = Keys::default();
                let key = best::sort_key(pattern, doc, &mut keys)?;
                if let State::Sorted(best, bottom, _) = &mut accumulator.state {
                    let value = if value.is_missing() { Value::Null } else { value };
                    best.add_keyed(key, value.into_owned(), *bottom);
                }
                accumulator.check_memory()
            }
        }
    }

    /// Adds a value of the argument (not for accumulators that sort).
    #[inline]
    pub fn add_value(&self, accumulator: &mut Accumulator, value: &Value<'_>) -> Result<()> {
        match &mut accumulator.state {
            State::Sum(sum) => {
                if let Some(num) = Num::of(value) {
                    sum.add(num);
                }
                Ok(())
            }
            State::Avg(sum, count) => {
                if let Some(num) = Num::of(value) {
                    sum.add(num);
                    *count += 1;
                }
                Ok(())
            }
            State::Count(count) => {
                *count += 1;
                Ok(())
            }
            state => {
                add_other(state, value, self.in_group)?;
                accumulator.check_memory()
            }
        }
    }

    /// The result over a frame of `$setWindowFields` whose start moves.
    pub fn result_of_moving_frame(&self, accumulator: &Accumulator) -> Result<Value<'static>> {
        match &accumulator.state {
            State::Deviation(deviation, sample) => Ok(deviation.value_of_moving_frame(*sample)),
            _ => self.result(accumulator),
        }
    }

    /// The result; missing becomes null, as in `$group`.
    pub fn result(&self, accumulator: &Accumulator) -> Result<Value<'static>> {
        let value = match (&accumulator.state, &self.kind) {
            (State::Numbers(numbers), Kind::Percentile { p, method }) => {
                numbers.percentiles(p, *method)?
            }
            (State::Numbers(numbers), Kind::Median { method }) => numbers.median(*method)?,
            (state, _) => result(state)?,
        };
        Ok(if value.is_missing() { Value::Null } else { value })
    }
}

impl Accumulator {
    /// Merges the state of another accumulator of the same specification, for later documents.
    pub fn merge(&mut self, other: Accumulator) -> Result<()> {
        match (&mut self.state, other.state) {
            (State::Sum(a), State::Sum(b)) => a.merge(&b),
            (State::Avg(a, count), State::Avg(b, more)) => {
                a.merge(&b);
                *count += more;
            }
            (State::Extreme { value, greatest }, State::Extreme { value: other, .. }) => {
                replace_extreme(value, &other, *greatest);
            }
            (State::First(a @ None), State::First(b)) => *a = b,
            (State::First(Some(_)), State::First(_)) => {}
            (State::Last(a), State::Last(b @ Some(_))) => *a = b,
            (State::Last(_), State::Last(None)) => {}
            (State::Push(a), State::Push(b)) | (State::Concat(a), State::Concat(b)) => {
                a.merge(&b)?
            }
            (State::Set(a), State::Set(b)) | (State::Union(a), State::Union(b)) => a.merge(b)?,
            (State::Merge(a), State::Merge(b)) => a.overlay(b.into_doc()?.as_doc())?,
            (State::Count(a), State::Count(b)) => *a += b,
            (State::Deviation(a, _), State::Deviation(b, _)) => a.merge(&b),
            (State::Ends(a), State::Ends(b)) => a.merge(b)?,
            (State::Extremes(a, _), State::Extremes(b, _)) => a.merge(b)?,
            (State::Sorted(a, ..), State::Sorted(b, ..)) => a.merge(b)?,
            (State::Numbers(a), State::Numbers(b)) => a.merge(b),
            _ => bail!(InternalError, "accumulators of different kinds cannot be merged"),
        }
        self.check_memory()
    }

    /// Estimated bytes that it holds.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Accumulator>() + self.heap_bytes()
    }

    fn heap_bytes(&self) -> usize {
        match &self.state {
            State::Extreme { value, .. } | State::Last(Some(value)) | State::First(Some(value)) => {
                value_bytes(value)
            }
            State::Push(elements) | State::Concat(elements) => elements.memory_bytes(),
            State::Set(set) | State::Union(set) => set.memory_bytes(),
            State::Merge(doc) => doc.memory_bytes(),
            State::Ends(ends) => ends.memory_bytes(),
            State::Extremes(best, _) | State::Sorted(best, ..) => best.memory_bytes(),
            State::Numbers(numbers) => numbers.memory_bytes(),
            State::Sum(_) | State::Avg(..) | State::Count(_) | State::Deviation(..) => 0,
            State::First(None) | State::Last(None) => 0,
        }
    }

    fn check_memory(&self) -> Result<()> {
        let bytes = self.heap_bytes();
        if bytes > limits::EXPRESSION_VALUE_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::ExceededMemoryLimit,
                format!(
                    "an accumulator used too much memory and cannot spill to disk. Memory limit: {} bytes",
                    limits::EXPRESSION_VALUE_BYTES_MAX
                ),
            ));
        }
        Ok(())
    }
}

fn add_other(state: &mut State, value: &Value<'_>, in_group: bool) -> Result<()> {
    match state {
        State::Extreme { value: best, greatest } => replace_extreme(best, value, *greatest),
        State::First(first @ None) => *first = Some(value.clone().into_owned()),
        State::First(Some(_)) => {}
        State::Last(last) => *last = Some(value.clone().into_owned()),
        State::Push(elements) => elements.push(value),
        State::Set(set) => {
            if !value.is_missing() {
                set.insert(value.clone().into_owned());
            }
        }
        State::Concat(elements) => match value.as_array() {
            Some(items) => elements.extend(items)?,
            None => return not_array("$concatArrays", value),
        },
        State::Union(set) => match value.as_array() {
            Some(items) => set.insert_all(items)?,
            None => return not_array("$setUnion", value),
        },
        State::Merge(doc) => match value.as_document() {
            Some(top) => doc.overlay(top)?,
            None if value.is_nullish() => {}
            None => return Err(not_object(value, in_group)),
        },
        State::Deviation(deviation, _) => {
            if let Some(number) = value.as_f64_lossy() {
                deviation.add(number);
            }
        }
        State::Ends(ends) => ends.add(value),
        State::Extremes(best, greatest) => best.add(value, *greatest),
        State::Numbers(numbers) => numbers.add(value),
        State::Sum(_) | State::Avg(..) | State::Count(_) | State::Sorted(..) => {}
    }
    Ok(())
}

fn not_array(name: &str, value: &Value<'_>) -> Result<()> {
    // A document without the field adds nothing; one where it is null is an error.
    if value.is_missing() {
        return Ok(());
    }
    bail!(
        TypeMismatch,
        "{name} requires array inputs, but input {value:?} is of type {}",
        value.type_name()
    )
}

/// The error of `$mergeObjects` for a value that is not a document.
pub(crate) fn not_object(value: &Value<'_>, in_group: bool) -> Error {
    Error::location(
        if in_group { 5911200 } else { 40400 },
        format!(
            "$mergeObjects requires object inputs, but input {} is of type {}",
            crate::numeric::value_text(value),
            value.type_name()
        ),
    )
}

fn replace_extreme(best: &mut Value<'static>, value: &Value<'_>, greatest: bool) {
    if value.is_nullish() {
        return;
    }
    let order = compare::order(value, best);
    let better = if greatest { order.is_gt() } else { order.is_lt() };
    if best.is_missing() || better {
        *best = value.clone().into_owned();
    }
}

fn result(state: &State) -> Result<Value<'static>> {
    Ok(match state {
        State::Sum(sum) => sum.value(),
        State::Avg(_, 0) => Value::Null,
        State::Avg(sum, count) => sum.over(*count),
        State::Extreme { value, .. } => value.clone(),
        State::First(value) | State::Last(value) => value.clone().unwrap_or(Value::Missing),
        State::Push(elements) | State::Concat(elements) => elements.value()?,
        State::Set(set) | State::Union(set) => set.value()?,
        State::Merge(doc) => doc.value()?,
        State::Count(count) => crate::numeric::int_or_long(*count),
        State::Deviation(deviation, sample) => deviation.value(*sample),
        State::Ends(ends) => ends.value()?,
        State::Extremes(best, _) => best.value(false)?,
        State::Sorted(best, _, true) => best.single(),
        State::Sorted(best, bottom, false) => best.value(*bottom)?,
        State::Numbers(_) => Value::Null,
    })
}
