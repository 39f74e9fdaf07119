//! Set operators: arrays without regard to order and duplicates.
//!
//! A set is a sorted vector of elements without duplicates. Unions and intersections are returned sorted,
//! differences in the order of the first array.

use crate::eval::Env;
use crate::node::{Call, Node};
use crate::ops::array::{collect, elems};
use crate::ops::compare;
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use kauri_base::{Error, Result, bail, sort, work};
use kauri_bson::{Doc, Elem, Value};

/// The distinct elements, sorted.
pub(crate) fn distinct(items: Doc<'_>) -> Result<Vec<Elem<'_>>> {
    let mut set = collect(items)?;
    normalize(&mut set)?;
    Ok(set)
}

fn normalize(set: &mut Vec<Elem<'_>>) -> Result<()> {
    sort::sort_by(set, |a, b| compare::elem_order(*a, *b))?;
    dedup(set, |later, first| compare::elem_order(*later, *first).is_eq())
}

/// Of equal adjacent items the first stays.
fn dedup<T>(items: &mut Vec<T>, is_same: impl Fn(&T, &T) -> bool) -> Result<()> {
    let mut ended = Ok(());
    items.dedup_by(|later, first| {
        if ended.is_ok() {
            ended = work::tick(1);
        }
        ended.is_ok() && is_same(later, first)
    });
    ended
}

/// Whether `test` holds for any of the elements.
fn any(items: Doc<'_>, test: impl Fn(Elem<'_>) -> bool) -> Result<bool> {
    for elem in items.ticked() {
        if test(elem?) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds(set: &[Elem<'_>], elem: Elem<'_>) -> bool {
    set.binary_search_by(|probe| compare::elem_order(*probe, elem)).is_ok()
}

pub(crate) fn all_true<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let array = call.arg(0, env)?;
    match array.as_array() {
        Some(items) => Ok(Value::Bool(!any(items, |elem| !elem.value().truthy())?)),
        None => bail!(
            17040,
            "$allElementsTrue's argument must be an array, but is {}",
            array.type_name()
        ),
    }
}

pub(crate) fn any_true<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let array = call.arg(0, env)?;
    match array.as_array() {
        Some(items) => Ok(Value::Bool(any(items, |elem| elem.value().truthy())?)),
        None => bail!(
            17041,
            "$anyElementTrue's argument must be an array, but is {}",
            array.type_name()
        ),
    }
}

pub(crate) fn difference<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (left, right) = (call.arg(0, env)?, call.arg(1, env)?);
    if left.is_nullish() || right.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(items) = left.as_array() else {
        bail!(
            17048,
            "both operands of $setDifference must be arrays. First argument is of type: {}",
            left.type_name()
        );
    };
    let Some(others) = right.as_array() else {
        bail!(
            17049,
            "both operands of $setDifference must be arrays. Second argument is of type: {}",
            right.type_name()
        );
    };
    let excluded = distinct(others)?;
    // Sorted with their positions, the first of equal ones comes first.
    let mut kept: Vec<(usize, Elem<'_>)> = Vec::new();
    for (at, elem) in items.ticked().enumerate() {
        let elem = elem?;
        if !holds(&excluded, elem) {
            kept.push((at, elem));
        }
    }
    sort::sort_by(&mut kept, |(_, a), (_, b)| compare::elem_order(*a, *b))?;
    dedup(&mut kept, |(_, later), (_, first)| compare::elem_order(*later, *first).is_eq())?;
    sort::sort_by(&mut kept, |(a, _), (b, _)| a.cmp(b))?;
    let kept: Vec<Elem<'_>> = kept.into_iter().map(|(_, elem)| elem).collect();
    elems(&kept)
}

/// At least two arguments; constants among them must be arrays.
pub(crate) fn parse_equals(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let args = parser.list(arg)?;
    if args.len() < 2 {
        bail!(17045, "$setEquals needs at least two arguments had: {}", args.len());
    }
    Ok(parse::call(op, args))
}

/// Refuses constants that are no arrays, once the arguments are folded.
pub(crate) fn prepare_equals(call: &mut Call) -> Result<()> {
    for (at, node) in call.args.iter().enumerate() {
        if let Some(value) = node.as_literal()
            && value.as_array().is_none()
        {
            bail!(
                5887502,
                "All operands of $setEquals must be arrays. {}-th argument is of type: {}",
                at + 1,
                value.type_name()
            );
        }
    }
    Ok(())
}

pub(crate) fn equals<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut first: Option<Value<'t>> = None;
    for (at, node) in call.args.iter().enumerate() {
        let value = node.eval(env)?;
        let Some(items) = value.as_array() else {
            bail!(
                17044,
                "All operands of $setEquals must be arrays. {}-th argument is of type: {}",
                at + 1,
                value.type_name()
            );
        };
        let Some(one) = first.as_ref().and_then(Value::as_array) else {
            first = Some(value);
            continue;
        };
        let (a, b) = (distinct(one)?, distinct(items)?);
        work::tick(a.len() as u32)?;
        let same = a.len() == b.len()
            && a.iter().zip(&b).all(|(a, b)| compare::elem_order(*a, *b).is_eq());
        if !same {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

pub(crate) fn intersection<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut kept: Option<Value<'t>> = None;
    for node in &call.args {
        let value = node.eval(env)?;
        if value.is_nullish() {
            return Ok(Value::Null);
        }
        let Some(items) = value.as_array() else {
            bail!(
                17047,
                "All operands of $setIntersection must be arrays. One argument is of type: {}",
                value.type_name()
            );
        };
        let next = distinct(items)?;
        let result = match kept.as_ref().and_then(Value::as_array) {
            None => elems(&next)?,
            Some(before) => {
                let before = collect(before)?;
                // Of equal elements those of the smaller set stay.
                let (small, large) =
                    if before.len() > next.len() { (next, before) } else { (before, next) };
                let mut both = Vec::new();
                for elem in small {
                    work::tick(1)?;
                    if holds(&large, elem) {
                        both.push(elem);
                    }
                }
                elems(&both)?
            }
        };
        let empty = result.as_array().is_none_or(Doc::is_empty);
        kept = Some(result);
        if empty {
            break;
        }
    }
    Ok(kept.unwrap_or_else(|| Value::array([])))
}

pub(crate) fn union<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut arrays = Vec::with_capacity(call.args.len());
    for node in &call.args {
        match node.eval(env)? {
            Value::Array(items) => arrays.push(items),
            value if value.is_nullish() => return Ok(Value::Null),
            value => bail!(
                17043,
                "All operands of $setUnion must be arrays. One argument is of type: {}",
                value.type_name()
            ),
        }
    }
    let mut set: Vec<Elem<'_>> = Vec::new();
    for items in &arrays {
        set.append(&mut collect(items.as_doc())?);
    }
    normalize(&mut set)?;
    elems(&set)
}

pub(crate) fn is_subset<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (left, right) = (call.arg(0, env)?, call.arg(1, env)?);
    let error = |code, which: &str, value: &Value<'_>| {
        let text = format!(
            "both operands of $setIsSubset must be arrays. {which} argument is of type: {}",
            value.type_name()
        );
        Error::location(code, text)
    };
    let items = left.as_array().ok_or_else(|| error(17046, "First", &left))?;
    let others = right.as_array().ok_or_else(|| error(17042, "Second", &right))?;
    let set = distinct(others)?;
    Ok(Value::Bool(!any(items, |elem| !holds(&set, elem))?))
}
