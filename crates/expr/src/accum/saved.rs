//! Saves the state of an accumulator as a document and restores it, for groups beyond the memory limit.
//!
//! A restored accumulator continues exactly as the saved one would have, to the last digit. Only the process that
//! wrote the document reads it, so the format is private.

use super::best::{Best, Ends};
use super::collect::{Distinct, Elements};
use super::percentile::Numbers;
use super::sum::{Deviation, Sum};
use super::{Accumulator, AccumulatorSpec, Kind, State};
use crate::ops::merged::Merged;
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Doc, DocWriter, Value};

/// The error for a damaged field.
pub(super) fn damaged() -> Error {
    Error::new(ErrorCode::InternalError, "the saved state of an accumulator is damaged")
}

/// A number as `save` puts it.
pub(super) fn int(doc: Doc<'_>, name: &str) -> Result<i64> {
    match doc.value(name) {
        Value::Int64(n) => Ok(n),
        _ => Err(damaged()),
    }
}

pub(super) fn double(doc: Doc<'_>, name: &str) -> Result<f64> {
    match doc.value(name) {
        Value::Double(n) => Ok(n),
        _ => Err(damaged()),
    }
}

/// The elements of an array.
pub(super) fn array<'d>(doc: Doc<'d>, name: &str) -> Result<Doc<'d>> {
    doc.get(name).and_then(|elem| elem.as_doc()).ok_or_else(damaged)
}

/// Puts a value that may be missing.
pub(super) fn put(out: &mut DocWriter<'_>, name: &str, value: &Value<'_>) {
    if !value.is_missing() {
        out.put_value(name, value);
    }
}

fn put_optional(out: &mut DocWriter<'_>, value: &Option<Value<'static>>) {
    out.put("some", value.is_some());
    if let Some(value) = value {
        put(out, "v", value);
    }
}

fn optional(doc: Doc<'_>) -> Option<Value<'static>> {
    doc.value("some").truthy().then(|| doc.value("v").into_owned())
}

impl AccumulatorSpec {
    /// Writes the state of one of its accumulators.
    pub fn save(&self, accumulator: &Accumulator, out: &mut DocWriter<'_>) -> Result<()> {
        match &accumulator.state {
            State::Sum(sum) => sum.save(out),
            State::Avg(sum, count) => {
                sum.save(out);
                out.put("count", *count as i64);
            }
            State::Extreme { value, .. } => put(out, "v", value),
            State::First(value) | State::Last(value) => put_optional(out, value),
            State::Push(elements) | State::Concat(elements) => elements.save(out)?,
            State::Set(set) | State::Union(set) => put(out, "set", &set.value()?),
            State::Merge(doc) => doc.write(&mut out.document("doc"))?,
            State::Count(count) => out.put("count", *count),
            State::Deviation(deviation, _) => deviation.save(out),
            State::Ends(ends) => ends.save(out)?,
            State::Extremes(best, _) | State::Sorted(best, ..) => best.save(out)?,
            State::Numbers(numbers) => numbers.save(out),
        }
        Ok(())
    }

    /// An accumulator with the state that `save` wrote.
    pub fn restore(&self, doc: Doc<'_>) -> Result<Accumulator> {
        let state = match &self.kind {
            Kind::Sum => State::Sum(Sum::restore(doc)?),
            Kind::Avg => State::Avg(Sum::restore(doc)?, int(doc, "count")? as u64),
            Kind::Min => State::Extreme { value: doc.value("v").into_owned(), greatest: false },
            Kind::Max => State::Extreme { value: doc.value("v").into_owned(), greatest: true },
            Kind::First => State::First(optional(doc)),
            Kind::Last => State::Last(optional(doc)),
            Kind::Push => State::Push(Elements::restore(doc)?),
            Kind::ConcatArrays => State::Concat(Elements::restore(doc)?),
            Kind::AddToSet => State::Set(Distinct::restore(array(doc, "set")?)?),
            Kind::SetUnion => State::Union(Distinct::restore(array(doc, "set")?)?),
            Kind::MergeObjects => State::Merge(Merged::of(array(doc, "doc")?)),
            Kind::Count => State::Count(int(doc, "count")?),
            Kind::Deviation { sample } => State::Deviation(Deviation::restore(doc)?, *sample),
            Kind::Ends { last } => State::Ends(Ends::restore(doc, *last)?),
            Kind::Extremes { greatest } => {
                State::Extremes(Best::restore_extremes(doc, *greatest)?, *greatest)
            }
            Kind::Sorted { bottom, single } => {
                State::Sorted(Best::restore_keyed(doc, *bottom)?, *bottom, *single)
            }
            Kind::Percentile { .. } | Kind::Median { .. } => State::Numbers(Numbers::restore(doc)?),
        };
        Ok(Accumulator { state })
    }

    /// Whether its external memory may change from one row to the next.
    pub fn grows(&self) -> bool {
        !matches!(self.kind, Kind::Sum | Kind::Avg | Kind::Count | Kind::Deviation { .. })
    }
}
