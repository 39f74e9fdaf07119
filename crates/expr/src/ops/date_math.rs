//! `$dateAdd`, `$dateSubtract`, `$dateDiff`, `$dateTrunc`.

use crate::date::unit::{self, Unit, parse_start_of_week};
use crate::eval::Env;
use crate::node::{Call, Node};
use crate::ops::date::{as_ms, check_zone, zone_arg};
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use kauri_base::{Error, Result, bail};
use kauri_bson::Value;

/// The weekday that weeks begin with where nothing else is said: Sunday.
const SUNDAY: i64 = 7;

fn parse_named(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
    names: &[&str],
    codes: (i32, i32),
    missing: &[(usize, i32)],
) -> Result<Node> {
    let name = op.name;
    let Some(doc) = arg.as_document() else {
        let text = format!("{name} only supports an object as its argument");
        return Err(Error::location(codes.0, text));
    };
    let args = parser.named(doc, names, |field| {
        Error::location(codes.1, format!("Unrecognized argument to {name}: {field}"))
    })?;
    for (at, code) in missing {
        if args.get(*at).is_none_or(Node::is_absent) {
            let field = names.get(*at).copied().unwrap_or_default();
            let text = format!("Missing '{field}' parameter to {name}");
            return Err(Error::location(*code, text));
        }
    }
    Ok(parse::call(op, args))
}

/// Arguments in order: startDate, unit, amount, timezone.
pub(crate) fn parse_add(parser: &mut Parser<'_>, op: &'static Op, arg: &Value<'_>) -> Result<Node> {
    let names = ["startDate", "unit", "amount", "timezone"];
    let missing = [(0, 5166402), (1, 5166402), (2, 5166402)];
    parse_named(parser, op, arg, &names, (5166400, 5166401), &missing)
}

/// Checks constants: the unit at position 1 or 2, the zone.
fn prepare(call: &Call, unit: usize, zone: usize) -> Result<()> {
    if let Some(Node::Literal(value)) = call.args.get(unit)
        && !value.is_nullish()
    {
        Unit::parse(call.op.name, value)?;
    }
    check_zone(call, zone)
}

pub(crate) fn prepare_add(call: &mut Call) -> Result<()> {
    prepare(call, 1, 3)
}

pub(crate) fn add<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let name = call.op.name;
    let (date, unit, amount) = (call.arg(0, env)?, call.arg(1, env)?, call.arg(2, env)?);
    if date.is_nullish() || unit.is_nullish() || amount.is_nullish() {
        return Ok(Value::Null);
    }
    let unit = Unit::parse(name, &unit)?;
    let Some(zone) = zone_arg(call, 3, env)? else { return Ok(Value::Null) };
    let Some(ms) = as_ms(&date) else {
        bail!(5166403, "{name} requires startDate to be convertible to a date");
    };
    let Some(amount) = amount.as_i64_exact().filter(|_| amount.is_number()) else {
        bail!(5166405, "{name} expects integer amount of time units");
    };
    let amount = if name == "$dateSubtract" {
        match amount.checked_neg() {
            Some(amount) => amount,
            None => bail!(6045000, "invalid {name} 'amount' parameter value: {amount}"),
        }
    } else {
        amount
    };
    Ok(Value::DateTime(unit::add(ms, unit, amount, &zone)?))
}

/// Arguments in order: startDate, endDate, unit, timezone, startOfWeek.
pub(crate) fn parse_diff(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let names = ["startDate", "endDate", "unit", "timezone", "startOfWeek"];
    let missing = [(0, 5166303), (1, 5166304), (2, 5166305)];
    parse_named(parser, op, arg, &names, (5166301, 5166302), &missing)
}

pub(crate) fn prepare_diff(call: &mut Call) -> Result<()> {
    prepare(call, 2, 3)
}

pub(crate) fn diff<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (start, end, unit) = (call.arg(0, env)?, call.arg(1, env)?, call.arg(2, env)?);
    if start.is_nullish() || end.is_nullish() || unit.is_nullish() {
        return Ok(Value::Null);
    }
    let unit = Unit::parse(call.op.name, &unit)?;
    let Some(zone) = zone_arg(call, 3, env)? else { return Ok(Value::Null) };
    let Some(week) = start_of_week(call, 4, unit, env)? else { return Ok(Value::Null) };
    let (start, end) = (date_of(call, &start, "startDate")?, date_of(call, &end, "endDate")?);
    Ok(Value::Int64(unit::difference(start, end, unit, &zone, week)?))
}

fn date_of(call: &Call, value: &Value<'_>, what: &str) -> Result<i64> {
    match as_ms(value) {
        Some(ms) => Ok(ms),
        None => bail!(
            5166307,
            "{} requires '{what}' to be a date, but got {}",
            call.op.name,
            value.type_name()
        ),
    }
}

/// Evaluated only for weeks; `None` if it is null.
fn start_of_week(call: &Call, at: usize, unit: Unit, env: Env<'_>) -> Result<Option<i64>> {
    match call.args.get(at) {
        Some(node) if unit == Unit::Week && !node.is_absent() => {
            let value = node.eval(env)?;
            if value.is_nullish() {
                return Ok(None);
            }
            parse_start_of_week(call.op.name, &value).map(Some)
        }
        _ => Ok(Some(SUNDAY)),
    }
}

/// Arguments in order: date, unit, binSize, timezone, startOfWeek.
pub(crate) fn parse_trunc(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let names = ["date", "unit", "binSize", "timezone", "startOfWeek"];
    let missing = [(0, 5439009), (1, 5439010)];
    parse_named(parser, op, arg, &names, (5439007, 5439008), &missing)
}

pub(crate) fn prepare_trunc(call: &mut Call) -> Result<()> {
    prepare(call, 1, 3)
}

pub(crate) fn trunc<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (date, unit) = (call.arg(0, env)?, call.arg(1, env)?);
    let bin = match call.args.get(2) {
        None | Some(Node::Absent) => Value::Int32(1),
        Some(node) => node.eval(env)?,
    };
    if date.is_nullish() || unit.is_nullish() || bin.is_nullish() {
        return Ok(Value::Null);
    }
    let unit = Unit::parse(call.op.name, &unit)?;
    let Some(zone) = zone_arg(call, 3, env)? else { return Ok(Value::Null) };
    let Some(week) = start_of_week(call, 4, unit, env)? else { return Ok(Value::Null) };
    let ms = date_of(call, &date, "date")?;
    let Some(size) = bin.as_i64_exact().filter(|_| bin.is_number()) else {
        bail!(
            5439017,
            "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '{}' of type {}",
            crate::numeric::value_text(&bin),
            bin.type_name()
        );
    };
    if size <= 0 {
        bail!(5439018, "$dateTrunc requires 'binSize' to be greater than 0, but got value {size}");
    }
    Ok(Value::DateTime(unit::truncate(ms, unit, size, &zone, week)?))
}
