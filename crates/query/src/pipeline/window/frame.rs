//! Frames: the rows of a partition that a function sees, by row number or by the values of the sort field.

use super::super::{ParseCx, field_path};
use crate::exec::QueryEnv;
use kauri_base::{Error, Result, bail};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value, array, compare, doc};
use kauri_expr::{Expression, FieldPath};
use std::cmp::Ordering;
use std::ops::Range;

/// The parsed `sortBy`.
pub struct SortedBy {
    /// Whether it is there: `{}` counts for that.
    given: bool,
    count: usize,
    /// The field, if it is one alone, and whether it is ascending.
    single: Option<(String, bool)>,
}

impl SortedBy {
    /// For this pattern.
    pub fn of(spec: Option<Doc<'_>>) -> SortedBy {
        let given = spec.is_some();
        let spec = spec.unwrap_or(Doc::EMPTY);
        let count = spec.count();
        let ascending = |e: Elem<'_>| super::super::truncated(&e.value()) == Some(1);
        // Metadata is no field.
        let single = spec.first().filter(|e| count == 1 && e.value().is_number());
        SortedBy { given, count, single: single.map(|e| (e.key().to_owned(), ascending(e))) }
    }

    /// Number of fields.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The field, if it is one alone.
    pub fn path(&self) -> Option<&str> {
        self.single.as_ref().map(|(path, _)| path.as_str())
    }
}

/// One end of a frame.
enum Bound<T> {
    Unbounded,
    Current,
    /// So far from the row at hand.
    At(T),
}

/// A parsed `window`.
pub enum Frame {
    /// Rows by their number in the partition.
    Documents(Bounds<i64>),
    /// Rows by the value of the field that they are sorted by.
    Range(Box<Values>),
}

/// Both ends.
pub struct Bounds<T> {
    lower: Bound<T>,
    upper: Bound<T>,
}

/// A frame by values.
pub struct Values {
    bounds: Bounds<Expression>,
    path: FieldPath,
    /// Whether values are dates, and bounds so many units of time.
    dates: bool,
}

fn wrong(message: String) -> Error {
    Error::failed_to_parse(message)
}

impl Frame {
    /// All rows of the partition.
    pub const ALL: Frame =
        Frame::Documents(Bounds { lower: Bound::Unbounded, upper: Bound::Unbounded });

    /// Whether it does not begin with the partition.
    pub fn start_moves(&self) -> bool {
        match self {
            Frame::Documents(bounds) => !matches!(bounds.lower, Bound::Unbounded),
            Frame::Range(values) => !matches!(values.bounds.lower, Bound::Unbounded),
        }
    }

    /// Parses `{documents: […]}` or `{range: […], unit}`.
    pub fn parse(window: Elem<'_>, sorted_by: &SortedBy, cx: &ParseCx) -> Result<Frame> {
        let Some(doc) = window.as_doc().filter(|_| window.ty() == Type::Document) else {
            bail!(FailedToParse, "'window' field must be an object");
        };
        for elem in doc {
            if !matches!(elem.key(), "documents" | "range" | "unit") {
                bail!(FailedToParse, "'window' field that is unknown: {}", elem.key());
            }
        }
        let (documents, range, unit) = (doc.get("documents"), doc.get("range"), doc.get("unit"));
        match (documents, range, unit) {
            (Some(_), Some(_), _) => bail!(
                FailedToParse,
                "'window' field can have either 'documents' or 'range', but not both"
            ),
            (Some(documents), None, None) => Frame::of_documents(documents, sorted_by),
            (None, Some(range), unit) => Frame::of_range(range, unit, sorted_by, cx),
            (None, None, None) => Ok(Frame::ALL),
            (_, None, Some(_)) => {
                bail!(
                    FailedToParse,
                    "Window bounds can only specify 'unit' with range-based bounds"
                )
            }
        }
    }

    fn of_documents(elem: Elem<'_>, sorted_by: &SortedBy) -> Result<Frame> {
        let (lower, upper) = ends(elem)?;
        let read = |value: Value<'_>| match value.as_i64_exact() {
            Some(number) if value.is_number() => Ok(number),
            _ => Err(wrong(format!(
                "Numeric document-based bounds must be an integer, not {}",
                kauri_bson::shell_value(&value)
            ))),
        };
        let bounds = Bounds { lower: bound(lower, read)?, upper: bound(upper, read)? };
        let number = |bound: &Bound<i64>| match bound {
            Bound::Unbounded => None,
            Bound::Current => Some(0),
            Bound::At(number) => Some(*number),
        };
        if let (Some(lower), Some(upper)) = (number(&bounds.lower), number(&bounds.upper))
            && lower > upper
        {
            bail!(5339900, "Lower bound must not exceed upper bound: [{lower}, {upper}]");
        }
        let all = matches!((&bounds.lower, &bounds.upper), (Bound::Unbounded, Bound::Unbounded));
        if !all && !sorted_by.given {
            bail!(5339901, "Document-based bounds require a sortBy");
        }
        Ok(Frame::Documents(bounds))
    }

    fn of_range(
        elem: Elem<'_>,
        unit: Option<Elem<'_>>,
        sorted_by: &SortedBy,
        cx: &ParseCx,
    ) -> Result<Frame> {
        let (lower, upper) = ends(elem)?;
        let unit = unit.map(time_unit).transpose()?;
        let read = |value: Value<'_>| {
            if !value.is_number() || (unit.is_some() && value.as_i64_exact().is_none()) {
                return Err(wrong(format!(
                    "Range-based bounds expression must be a number, not {}",
                    kauri_bson::shell_value(&value)
                )));
            }
            Ok(value.into_owned())
        };
        let (lower, upper) = (bound(lower, read)?, bound(upper, read)?);
        let number = |bound: &Bound<Value<'static>>| match bound {
            Bound::Unbounded => None,
            Bound::Current => Some(Value::Int32(0)),
            Bound::At(number) => Some(number.clone()),
        };
        if let (Some(lower), Some(upper)) = (number(&lower), number(&upper))
            && compare(&lower, &upper).is_gt()
        {
            bail!(5339900, "Lower bound must not exceed upper bound");
        }
        let Some((path, ascending)) = &sorted_by.single else {
            bail!(5339902, "Range-based bounds require sortBy a single field");
        };
        if !ascending {
            bail!(8947401, "Range-based bounds require an ascending sortBy");
        }
        let dates = unit.is_some();
        let bounds = Bounds {
            lower: moved(lower, unit.as_deref(), cx)?,
            upper: moved(upper, unit.as_deref(), cx)?,
        };
        Ok(Frame::Range(Box::new(Values { bounds, path: field_path(path)?, dates })))
    }
}

/// The two elements of bounds.
fn ends(elem: Elem<'_>) -> Result<(Value<'_>, Value<'_>)> {
    let Some(list) = elem.as_doc().filter(|_| elem.ty() == Type::Array) else {
        bail!(FailedToParse, "Window bounds must be a 2-element array");
    };
    let mut items = list.iter().map(Elem::value);
    match (items.next(), items.next(), items.next()) {
        (Some(lower), Some(upper), None) => Ok((lower, upper)),
        _ => bail!(FailedToParse, "Window bounds must be a 2-element array"),
    }
}

fn bound<T>(value: Value<'_>, read: impl Fn(Value<'_>) -> Result<T>) -> Result<Bound<T>> {
    let word = value.lossy().as_str().map(str::to_owned);
    match word.as_deref() {
        Some("unbounded") => Ok(Bound::Unbounded),
        Some("current") => Ok(Bound::Current),
        Some(other) => Err(wrong(format!(
            "Window bounds must be 'unbounded', 'current', or a number, not {other}"
        ))),
        None => read(value).map(Bound::At),
    }
}

fn time_unit(elem: Elem<'_>) -> Result<String> {
    const UNITS: [&str; 9] =
        ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"];
    match elem.value().lossy().as_str() {
        Some(unit) if UNITS.contains(&unit) => Ok(unit.to_owned()),
        Some(unit) => bail!(FailedToParse, "unknown time unit value: {unit}"),
        None => bail!(FailedToParse, "'unit' must be a string"),
    }
}

/// The bound as an expression of the value `v`.
fn moved(
    bound: Bound<Value<'static>>,
    unit: Option<&str>,
    cx: &ParseCx,
) -> Result<Bound<Expression>> {
    Ok(match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Current => Bound::Current,
        Bound::At(amount) => {
            let spec = match unit {
                None => doc! { "$add" => array!["$v", amount] },
                Some(unit) => doc! {
                    "$dateAdd" => doc! { "startDate" => "$v", "unit" => unit, "amount" => amount }
                },
            };
            Bound::At(Expression::parse(&spec.into(), &cx.expressions())?)
        }
    })
}

impl Frame {
    /// The frame of the row at `at` among the rows of its partition, which `before` is that of the
    /// row before.
    pub fn rows<'d>(
        &self,
        at: usize,
        before: &Range<usize>,
        count: usize,
        doc: impl Fn(usize) -> Doc<'d>,
        env: &QueryEnv,
    ) -> Result<Range<usize>> {
        match self {
            Frame::Documents(bounds) => {
                let place = |from: i64| {
                    let place = (at as i64).saturating_add(from).clamp(0, count as i64);
                    usize::try_from(place).unwrap_or(0)
                };
                let start = match bounds.lower {
                    Bound::Unbounded => 0,
                    Bound::Current => at,
                    Bound::At(from) => place(from),
                };
                let end = match bounds.upper {
                    Bound::Unbounded => count,
                    Bound::Current => at + 1,
                    Bound::At(from) => place(from.saturating_add(1)),
                };
                Ok(start..end.max(start))
            }
            Frame::Range(values) => values.rows(at, before, count, doc, env),
        }
    }
}

impl Values {
    fn value<'d>(&self, doc: Doc<'d>) -> Result<Value<'d>> {
        let found = super::super::unwind::find(doc, self.path.parts());
        let value = found.map_or(Value::Missing, Elem::value);
        match (&value, self.dates) {
            (Value::DateTime(_), true) => Ok(value),
            (other, true) => bail!(
                5429513,
                "Invalid range: Expected the sortBy field to be a Date, but it was {}",
                other.type_name()
            ),
            (other, false) if other.is_number() => Ok(value),
            (other, false) => bail!(
                5429414,
                "Invalid range: Expected the sortBy field to be a number, but it was {}",
                other.type_name()
            ),
        }
    }

    fn rows<'d>(
        &self,
        at: usize,
        before: &Range<usize>,
        count: usize,
        doc: impl Fn(usize) -> Doc<'d>,
        env: &QueryEnv,
    ) -> Result<Range<usize>> {
        let here = self.value(doc(at))?.into_owned();
        let row = DocBuf::build(|out| out.put_value("v", &here));
        let cx = env.eval_cx();
        let limit = |bound: &Bound<Expression>| -> Result<Option<Value<'static>>> {
            Ok(match bound {
                Bound::Unbounded => None,
                Bound::Current => Some(here.clone()),
                Bound::At(moved) => Some(moved.eval(&cx, row.as_doc())?.into_owned()),
            })
        };
        // Rows are in ascending order, and so are the ends of their frames.
        let first = |from: usize, is_within: &dyn Fn(Ordering) -> bool, limit: &Value<'_>| {
            let mut place = from;
            while place < count && !is_within(compare(&self.value(doc(place))?, limit)) {
                place += 1;
            }
            Ok::<usize, Error>(place)
        };
        let start = match limit(&self.bounds.lower)? {
            None => 0,
            Some(lower) => first(before.start, &Ordering::is_ge, &lower)?,
        };
        let end = match limit(&self.bounds.upper)? {
            None => count,
            Some(upper) => first(before.end, &Ordering::is_gt, &upper)?,
        };
        Ok(start..end.max(start))
    }
}
