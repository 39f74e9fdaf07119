//! Parts of dates: `$year` and its like, `$dateToParts`, `$dateFromParts`.

use crate::date::civil::{Civil, DAY_MS, days_of_civil, iso_year_start};
use crate::date::time_zone::TimeZone;
use crate::eval::Env;
use crate::node::{Call, Node};
use crate::numeric::value_text;
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use crate::value;
use kauri_base::{Error, Result, bail};
use kauri_bson::{Doc, Value};

/// The moment that a date, a timestamp or an ObjectId stands for.
pub(crate) fn as_ms(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::DateTime(ms) => Some(*ms),
        Value::Timestamp(time) => Some(i64::from(time.seconds) * 1000),
        Value::ObjectId([a, b, c, d, ..]) => {
            Some(i64::from(i32::from_be_bytes([*a, *b, *c, *d])) * 1000)
        }
        _ => None,
    }
}

/// The same, or the error for a value that is not a date.
pub(crate) fn to_ms(value: &Value<'_>) -> Result<i64> {
    match as_ms(value) {
        Some(ms) => Ok(ms),
        None => bail!(16006, "can't convert from BSON type {} to Date", value.type_name()),
    }
}

/// The zone of the argument at this position: UTC where not given, `None` where it is null.
pub(crate) fn zone_arg(call: &Call, at: usize, env: Env<'_>) -> Result<Option<TimeZone>> {
    match call.args.get(at) {
        None | Some(Node::Absent) => Ok(Some(TimeZone::Utc)),
        Some(node) => zone_of(&node.eval(env)?),
    }
}

fn zone_of(value: &Value<'_>) -> Result<Option<TimeZone>> {
    match &value.lossy() {
        Value::String(text) => TimeZone::parse(text).map(Some),
        value if value.is_nullish() => Ok(None),
        value => {
            bail!(40517, "timezone must evaluate to a string, found {}", value.type_name())
        }
    }
}

/// Checks a constant zone at this position before any date is seen.
pub(crate) fn check_zone(call: &Call, at: usize) -> Result<()> {
    match call.args.get(at).and_then(Node::as_literal) {
        Some(value) => zone_of(value).map(drop),
        None => Ok(()),
    }
}

/// Arguments in order: date, timezone.
pub(crate) fn parse_part(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let name = op.name;
    let named = arg
        .as_document()
        .filter(|doc| doc.first().is_none_or(|first| !first.key().starts_with('$')));
    let Some(doc) = named else {
        let args = parser.list(arg)?;
        if args.len() != 1 {
            bail!(
                40536,
                "{name} accepts exactly one argument if given an array, but was given {}",
                args.len()
            );
        }
        return Ok(parse::call(op, args));
    };
    let args = parser.named(doc, &["date", "timezone"], |field| {
        Error::location(40535, format!("unrecognized option to {name}: \"{field}\""))
    })?;
    if args.first().is_none_or(Node::is_absent) {
        bail!(40539, "missing 'date' argument to {name}, provided: {doc:?}");
    }
    Ok(parse::call(op, args))
}

pub(crate) fn prepare_part(call: &mut Call) -> Result<()> {
    check_zone(call, 1)
}

/// The local date of an operator's argument; `None` for null.
#[inline]
fn local(call: &Call, env: Env<'_>) -> Result<Option<Civil>> {
    let date = call.arg(0, env)?;
    if date.is_nullish() {
        return Ok(None);
    }
    let ms = to_ms(&date)?;
    Ok(zone_arg(call, 1, env)?.map(|zone| Civil::of_ms(zone.local(ms))))
}

fn part<'t>(call: &'t Call, env: Env<'t>, of: fn(Civil) -> i64) -> Result<Value<'t>> {
    Ok(local(call, env)?.map_or(Value::Null, |at| Value::Int32(of(at) as i32)))
}

pub(crate) fn year<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, |at| at.year)
}

pub(crate) fn month<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, |at| at.month)
}

pub(crate) fn day_of_month<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, |at| at.day)
}

pub(crate) fn day_of_week<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, |at| at.iso_weekday() % 7 + 1)
}

pub(crate) fn day_of_year<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, Civil::day_of_year)
}

pub(crate) fn hour<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, |at| at.hour)
}

pub(crate) fn minute<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, |at| at.minute)
}

pub(crate) fn second<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, |at| at.second)
}

pub(crate) fn millisecond<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, |at| at.ms)
}

pub(crate) fn week<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, Civil::sunday_week)
}

pub(crate) fn iso_day_of_week<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, Civil::iso_weekday)
}

pub(crate) fn iso_week<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    part(call, env, |at| at.iso_week().1)
}

pub(crate) fn iso_week_year<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(local(call, env)?.map_or(Value::Null, |at| Value::Int64(at.iso_week().0)))
}

/// Arguments in order: date, timezone, iso8601.
pub(crate) fn parse_to_parts(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(40524, "$dateToParts only supports an object as its argument");
    };
    let args = parser.named(doc, &["date", "timezone", "iso8601"], |field| {
        Error::location(40520, format!("Unrecognized argument to $dateToParts: {field}"))
    })?;
    if args.first().is_none_or(Node::is_absent) {
        bail!(40522, "Missing 'date' parameter to $dateToParts");
    }
    Ok(parse::call(op, args))
}

pub(crate) fn to_parts<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let date = call.arg(0, env)?;
    let Some(zone) = zone_arg(call, 1, env)? else { return Ok(Value::Null) };
    let iso = match call.args.get(2) {
        None | Some(Node::Absent) => false,
        Some(node) => match node.eval(env)? {
            Value::Bool(iso) => iso,
            value if value.is_nullish() => return Ok(Value::Null),
            value => {
                bail!(40521, "iso8601 must evaluate to a bool, found {}", value.type_name())
            }
        },
    };
    if date.is_nullish() {
        return Ok(Value::Null);
    }
    let at = Civil::of_ms(zone.local(to_ms(&date)?));
    value::document(|out| {
        if iso {
            let (year, week) = at.iso_week();
            out.put("isoWeekYear", year as i32);
            out.put("isoWeek", week as i32);
            out.put("isoDayOfWeek", at.iso_weekday() as i32);
        } else {
            out.put("year", at.year as i32);
            out.put("month", at.month as i32);
            out.put("day", at.day as i32);
        }
        out.put("hour", at.hour as i32);
        out.put("minute", at.minute as i32);
        out.put("second", at.second as i32);
        out.put("millisecond", at.ms as i32);
        Ok(())
    })
}

const PARTS: [&str; 11] = [
    "year",
    "month",
    "day",
    "isoWeekYear",
    "isoWeek",
    "isoDayOfWeek",
    "hour",
    "minute",
    "second",
    "millisecond",
    "timezone",
];
const ISO: std::ops::Range<usize> = 3..6;
const ZONE: usize = 10;

/// Arguments in the order of [`PARTS`].
pub(crate) fn parse_from_parts(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(40519, "$dateFromParts only supports an object as its argument");
    };
    let doc: Doc<'_> = doc;
    let args = parser.named(doc, &PARTS, |field| {
        Error::location(40518, format!("Unrecognized argument to $dateFromParts: {field}"))
    })?;
    let given = |at: usize| args.get(at).is_some_and(|node| !node.is_absent());
    let (year, iso_year) = (given(0), given(ISO.start));
    if !year && !iso_year {
        bail!(40516, "$dateFromParts requires either 'year' or 'isoWeekYear' to be present");
    }
    if year && ISO.into_iter().any(given) {
        bail!(40489, "$dateFromParts does not allow mixing natural dates with ISO dates");
    }
    if iso_year && (1..ISO.start).any(given) {
        bail!(40525, "$dateFromParts does not allow mixing ISO dates with natural dates");
    }
    Ok(parse::call(op, args))
}

pub(crate) fn prepare_from_parts(call: &mut Call) -> Result<()> {
    check_zone(call, ZONE)
}

pub(crate) fn prepare_to_parts(call: &mut Call) -> Result<()> {
    check_zone(call, 1)
}

pub(crate) fn from_parts<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut parts = [0i64; ZONE];
    for ((slot, name), (at, node)) in parts.iter_mut().zip(PARTS).zip(call.args.iter().enumerate())
    {
        let first_of = matches!(name, "month" | "day" | "isoWeek" | "isoDayOfWeek");
        let default = if first_of { 1 } else { 0 };
        match from_part(node, name, default, env)? {
            Some(part) => *slot = part,
            None => return Ok(Value::Null),
        }
        if matches!(name, "year" | "isoWeekYear")
            && call.args.get(at).is_some_and(|node| !node.is_absent())
            && !(1..=9999).contains(slot)
        {
            bail!(
                40523,
                "'{name}' must evaluate to an integer in the range 1 to 9999, found {slot}"
            );
        }
    }
    let Some(zone) = zone_arg(call, ZONE, env)? else { return Ok(Value::Null) };
    let [year, month, day, iso_year, iso_week, iso_day, hour, minute, second, ms] = parts;
    let days = if call.args.first().is_some_and(|node| !node.is_absent()) {
        let months = year * 12 + month - 1;
        days_of_civil(months.div_euclid(12), months.rem_euclid(12) + 1, 1) + day - 1
    } else {
        iso_year_start(iso_year) + (iso_week - 1) * 7 + iso_day - 1
    };
    let local = i128::from(days) * i128::from(DAY_MS)
        + i128::from(hour) * 3_600_000
        + i128::from(minute) * 60_000
        + i128::from(second) * 1000
        + i128::from(ms);
    match i64::try_from(zone.utc_of_local(local)) {
        Ok(ms) => Ok(Value::DateTime(ms)),
        Err(_) => bail!(Overflow, "the parts of $dateFromParts make no representable date"),
    }
}

/// A whole number that may count beyond its unit (month 14); `None` for null.
fn from_part(node: &Node, name: &str, default: i64, env: Env<'_>) -> Result<Option<i64>> {
    if node.is_absent() {
        return Ok(Some(default));
    }
    let value = node.eval(env)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let Some(number) = value.as_i64_exact().filter(|n| {
        value.is_number() && i32::try_from(*n).is_ok() || matches!(name, "second" | "millisecond")
    }) else {
        bail!(
            40515,
            "'{name}' must evaluate to an integer, found {} with value {}",
            value.type_name(),
            value_text(&value)
        );
    };
    let most = match name {
        "year" | "isoWeekYear" => return Ok(Some(number)),
        "second" | "millisecond" => i64::MAX,
        _ => 32_767,
    };
    if !(-most - 1..=most).contains(&number) {
        bail!(
            31034,
            "'{name}' must evaluate to a value in the range [-32768, 32767]; value {number} is not in range"
        );
    }
    Ok(Some(number))
}
