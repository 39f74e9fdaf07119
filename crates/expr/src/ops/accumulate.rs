//! Accumulators as expressions: `{$sum: [1, "$a"]}`, `{$max: "$array"}`, `{$firstN: …}`.
//!
//! A single array argument is iterated; several arguments are used as they are.

use crate::accum::percentile::{self, Method};
use crate::accum::sum::{Deviation, Sum};
use crate::accum::{check_n, not_object};
use crate::eval::Env;
use crate::node::{Call, Node, Prepared};
use crate::numeric::Num;
use crate::ops::array::{collect, elems};
use crate::ops::compare;
use crate::ops::merged::Merged;
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use kauri_base::{Error, Result, bail, sort};
use kauri_bson::Value;

/// Calls `visit` with each operand.
fn each<'t>(
    call: &'t Call,
    env: Env<'t>,
    mut visit: impl FnMut(&Value<'_>) -> Result<()>,
) -> Result<()> {
    if let [single] = call.args.as_ref() {
        let value = single.eval(env)?;
        return match value.as_array() {
            Some(items) => items.ticked().try_for_each(|elem| visit(&elem?.value())),
            None => visit(&value),
        };
    }
    call.args.iter().try_for_each(|node| visit(&node.eval(env)?))
}

pub(crate) fn sum<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut sum = Sum::default();
    each(call, env, |value| {
        if let Some(num) = Num::of(value) {
            sum.add(num);
        }
        Ok(())
    })?;
    Ok(sum.value())
}

pub(crate) fn avg<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (mut sum, mut count) = (Sum::default(), 0u64);
    each(call, env, |value| {
        if let Some(num) = Num::of(value) {
            sum.add_to_mean(num);
            count += 1;
        }
        Ok(())
    })?;
    Ok(if count == 0 { Value::Null } else { sum.over(count) })
}

pub(crate) fn max<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    extreme(call, env, true)
}

pub(crate) fn min<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    extreme(call, env, false)
}

fn extreme<'t>(call: &'t Call, env: Env<'t>, greatest: bool) -> Result<Value<'t>> {
    let mut best = Value::Missing;
    each(call, env, |value| {
        let order = compare::order(value, &best);
        let better = if greatest { order.is_gt() } else { order.is_lt() };
        if !value.is_nullish() && (best.is_missing() || better) {
            best = value.clone().into_owned();
        }
        Ok(())
    })?;
    Ok(if best.is_missing() { Value::Null } else { best })
}

pub(crate) fn std_dev_pop<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    deviation(call, env, false)
}

pub(crate) fn std_dev_samp<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    deviation(call, env, true)
}

fn deviation<'t>(call: &'t Call, env: Env<'t>, sample: bool) -> Result<Value<'t>> {
    let mut deviation = Deviation::default();
    each(call, env, |value| {
        if let Some(number) = value.as_f64_lossy() {
            deviation.add(number);
        }
        Ok(())
    })?;
    Ok(deviation.value(sample))
}

pub(crate) fn merge_objects<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut merged = Merged::default();
    each(call, env, |value| match value.as_document() {
        Some(top) => merged.overlay(top),
        None if value.is_nullish() => Ok(()),
        None => Err(not_object(value, false)),
    })?;
    Ok(Value::Document(merged.into_doc()?))
}

/// Arguments in order: n, input.
pub(crate) fn parse_n(parser: &mut Parser<'_>, op: &'static Op, arg: &Value<'_>) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(
            5787900,
            "specification must be an object; found {}",
            crate::numeric::value_text(arg)
        );
    };
    let args = parser.named(doc, &["n", "input"], |name| {
        Error::location(5787901, format!("Unknown argument for 'n' operator: {name}"))
    })?;
    match args.as_slice() {
        [Node::Absent, _] => bail!(5787906, "Missing value for 'n'"),
        [_, Node::Absent] => bail!(5787907, "Missing value for 'input'"),
        _ => Ok(parse::call(op, args)),
    }
}

pub(crate) fn n_of_array<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let n = check_n(&call.arg(0, env)?)?;
    let input = call.arg(1, env)?;
    let Some(items) = input.as_array() else {
        bail!(5788200, "Input must be an array, but is {}", input.type_name());
    };
    let mut items = collect(items)?;
    match call.op.name {
        "$firstN" => items.truncate(n),
        "$lastN" => drop(items.drain(..items.len().saturating_sub(n))),
        name => {
            items.retain(|elem| !elem.value().is_nullish());
            if name == "$maxN" {
                sort::sort_by(&mut items, |a, b| compare::elem_order(*b, *a))?;
            } else {
                sort::sort_by(&mut items, |a, b| compare::elem_order(*a, *b))?;
            }
            items.truncate(n);
        }
    }
    elems(&items)
}

/// Arguments: input; `p` and the method are prepared.
pub(crate) fn parse_percentile(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let (input, p, method) = crate::accum::percentile_arguments(op.name, arg, parser)?;
    Ok(parse::prepared_call(op, vec![input], Prepared::Percentile { p, method }))
}

pub(crate) fn percentile<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Prepared::Percentile { p, method } = &call.prepared else { return Ok(Value::Null) };
    let method: Method = *method;
    let input = call.arg(0, env)?;
    let numbers = match input.as_array() {
        Some(items) => percentile::of_array(items)?,
        None => {
            let mut numbers = percentile::Numbers::default();
            numbers.add(&input);
            numbers
        }
    };
    match p {
        Some(p) => numbers.percentiles(p, method),
        None => numbers.median(method),
    }
}
