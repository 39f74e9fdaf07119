//! Array operators. Sets are in `set`, bindings in `binding`, orders in `sort`.

use crate::coerce::whole_int;
use crate::eval::Env;
use crate::node::{Call, Node, Prepared};
use crate::numeric::value_text;
use crate::ops::compare;
use crate::ops::members::{self, Members};
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use crate::value;
use kauri_base::{Error, Result, bail, limits, work};
use kauri_bson::{Doc, DocCow, Elem, Value};

/// One element of an array, borrowed where the array is.
pub(crate) fn pick<'t>(
    items: DocCow<'t>,
    choose: impl for<'d> FnOnce(Doc<'d>) -> Result<Option<Elem<'d>>>,
) -> Result<Value<'t>> {
    Ok(match items {
        DocCow::Borrowed(doc) => choose(doc)?.map_or(Value::Missing, Elem::value),
        DocCow::Owned(buf) => {
            choose(buf.as_doc())?.map_or(Value::Missing, |elem| elem.value().into_owned())
        }
    })
}

/// The element at this position.
fn nth(items: Doc<'_>, at: usize) -> Result<Option<Elem<'_>>> {
    items.ticked().nth(at).transpose()
}

pub(crate) fn elem_at<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (array, index) = (call.arg(0, env)?, call.arg(1, env)?);
    if array.is_nullish() || index.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::Array(items) = array else {
        bail!(
            28689,
            "$arrayElemAt's first argument must be an array, but is {}",
            array.type_name()
        );
    };
    if !index.is_number() {
        bail!(
            28690,
            "$arrayElemAt's second argument must be a numeric value, but is {}",
            index.type_name()
        );
    }
    let Some(at) = whole_int(&index) else {
        bail!(
            28691,
            "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
            value_text(&index)
        );
    };
    pick(items, |doc| match usize::try_from(at) {
        Ok(at) => nth(doc, at),
        Err(_) => {
            let back = at.unsigned_abs() as usize;
            doc.count_ticked()?.checked_sub(back).map_or(Ok(None), |at| nth(doc, at))
        }
    })
}

/// `$first` and `$last` as expressions.
pub(crate) fn first<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    end(call, env, |doc| Ok(doc.first()))
}

pub(crate) fn last<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    end(call, env, |doc| doc.ticked().last().transpose())
}

fn end<'t>(
    call: &'t Call,
    env: Env<'t>,
    choose: impl for<'d> FnOnce(Doc<'d>) -> Result<Option<Elem<'d>>>,
) -> Result<Value<'t>> {
    match call.arg(0, env)? {
        Value::Array(items) => pick(items, choose),
        value if value.is_nullish() => Ok(Value::Null),
        value => bail!(
            28689,
            "{}'s argument must be an array, but is {}",
            call.op.name,
            value.type_name()
        ),
    }
}

pub(crate) fn concat_arrays<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut null = false;
    let array = value::array(|out| {
        for node in &call.args {
            match node.eval(env)? {
                Value::Array(items) => value::push_all(out, items.as_doc())?,
                value if value.is_nullish() => {
                    null = true;
                    return Ok(());
                }
                value => {
                    bail!(28664, "$concatArrays only supports arrays, not {}", value.type_name())
                }
            }
            value::check_size(out.len())?;
        }
        Ok(())
    })?;
    Ok(if null { Value::Null } else { array })
}

pub(crate) fn contains<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (wanted, array) = (call.arg(0, env)?, call.arg(1, env)?);
    let Some(items) = array.as_array() else {
        bail!(40081, "$in requires an array as a second argument, found: {}", array.type_name());
    };
    let found = match &call.prepared {
        Prepared::Members(members) => members.contains(items, &wanted)?,
        _ => members::any(items, &wanted)?,
    };
    Ok(Value::Bool(found))
}

/// Remembers the order of the elements of an array that is constant.
pub(crate) fn prepare_contains(call: &mut Call) -> Result<()> {
    if let [wanted, Node::Literal(_)] = call.args.as_ref()
        && wanted.as_literal().is_none()
    {
        call.prepared = Prepared::Members(Members::default());
    }
    Ok(())
}

pub(crate) fn index_of<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let array = call.arg(0, env)?;
    if array.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(items) = array.as_array() else {
        bail!(
            40090,
            "$indexOfArray requires an array as a first argument, found: {}",
            array.type_name()
        );
    };
    let wanted = call.arg(1, env)?;
    let bound = |at: usize, what: &str, default: usize| match call.args.get(at) {
        Some(node) => array_index(&node.eval(env)?, what),
        None => Ok(default),
    };
    let (start, end) = (bound(2, "starting", 0)?, bound(3, "ending", usize::MAX)?);
    for (at, elem) in items.ticked().enumerate().take(end) {
        let elem = elem?;
        if at >= start && compare::elem_is(elem, &wanted) {
            return Ok(Value::Int32(at as i32));
        }
    }
    Ok(Value::Int32(-1))
}

fn array_index(value: &Value<'_>, what: &str) -> Result<usize> {
    let Some(index) = whole_int(value) else {
        bail!(
            9711600,
            "$indexOfArray requires an integral {what} index, found a value of type: {}, with value: {}",
            value.type_name(),
            value_text(value)
        );
    };
    match usize::try_from(index) {
        Ok(index) => Ok(index),
        Err(_) => {
            bail!(9711601, "$indexOfArray requires a nonnegative {what} index, found: {index}")
        }
    }
}

pub(crate) fn range<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    const CODES: [(&str, i32, i32); 3] =
        [("starting", 34443, 34444), ("ending", 34445, 34446), ("step", 34447, 34448)];
    let mut bounds = [0i64, 0, 1];
    for ((node, bound), (what, type_code, whole_code)) in
        call.args.iter().zip(&mut bounds).zip(CODES)
    {
        let value = node.eval(env)?;
        let error = |code, rest: String| Error::location(code, format!("$range requires a {rest}"));
        if !value.is_number() {
            let text = format!("numeric {what} value, found value of type: {}", value.type_name());
            return Err(error(type_code, text));
        }
        let whole = whole_int(&value).ok_or_else(|| {
            let text = format!(
                "{what} value that can be represented as a 32-bit integer, found value: {}",
                value_text(&value)
            );
            error(whole_code, text)
        })?;
        *bound = i64::from(whole);
    }
    let [start, end, step] = bounds;
    if step == 0 {
        bail!(34449, "$range requires a non-zero step value");
    }
    check_range_size(start, end, step)?;
    value::array(|out| {
        let mut at = start;
        while if step > 0 { at < end } else { at > end } {
            work::tick(1)?;
            out.push(Value::Int32(at as i32));
            at += step;
        }
        Ok(())
    })
}

/// MongoDB counts the bytes of a value in memory, not those of BSON.
fn check_range_size(start: i64, end: i64, step: i64) -> Result<()> {
    const VALUE_BYTES: u64 = 16;
    let distance = if step > 0 { end - start } else { start - end };
    let count = u64::try_from(distance).unwrap_or(0).div_ceil(step.unsigned_abs());
    let bytes = count * VALUE_BYTES;
    work::reserve(
        usize::try_from(bytes.min(limits::EXPRESSION_VALUE_BYTES_MAX as u64)).unwrap_or(0),
    )?;
    if bytes > limits::EXPRESSION_VALUE_BYTES_MAX as u64 {
        bail!(
            ExceededMemoryLimit,
            "$range would use too much memory ({bytes} bytes) and cannot spill to disk. Memory limit: {} bytes",
            limits::EXPRESSION_VALUE_BYTES_MAX
        );
    }
    Ok(())
}

pub(crate) fn reverse<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let array = call.arg(0, env)?;
    if array.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(items) = array.as_array() else {
        bail!(
            34435,
            "The argument to $reverseArray must be an array, but was of type: {}",
            array.type_name()
        );
    };
    let mut items = collect(items)?;
    items.reverse();
    elems(&items)
}

/// The elements, to be put in another order.
pub(crate) fn collect(items: Doc<'_>) -> Result<Vec<Elem<'_>>> {
    // An element takes seven bytes at least where there are many.
    work::reserve(items.as_bytes().len() / 7 * size_of::<Elem<'_>>())?;
    items.ticked().collect()
}

/// An array of these elements.
pub(crate) fn elems(items: &[Elem<'_>]) -> Result<Value<'static>> {
    value::array(|out| {
        for elem in items {
            elem.tick()?;
            out.push_elem(*elem);
        }
        Ok(())
    })
}

pub(crate) fn size<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let array = call.arg(0, env)?;
    match array.as_array() {
        Some(items) => Ok(Value::Int32(items.count_ticked()? as i32)),
        None => bail!(
            17124,
            "The argument to $size must be an array, but was of type: {}",
            array.type_name()
        ),
    }
}

pub(crate) fn slice<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (array, second) = (call.arg(0, env)?, call.arg(1, env)?);
    if array.is_nullish() || second.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(items) = array.as_array() else {
        bail!(
            28724,
            "First argument to $slice must be an array, but is of type: {}",
            array.type_name()
        );
    };
    let second = slice_number(&second, "Second")?;
    let (start, count) = match call.args.get(2) {
        None if second < 0 => (second, usize::MAX),
        None => (0, second as usize),
        Some(node) => {
            let third = node.eval(env)?;
            if third.is_nullish() {
                return Ok(Value::Null);
            }
            match usize::try_from(slice_number(&third, "Third")?) {
                Ok(count) if count > 0 => (second, count),
                _ => bail!(
                    28729,
                    "Third argument to $slice must be positive: {}",
                    value_text(&third)
                ),
            }
        }
    };
    let skip = match usize::try_from(start) {
        Ok(start) => start,
        Err(_) => items.count_ticked()?.saturating_sub(start.unsigned_abs() as usize),
    };
    value::array(|out| {
        for (at, elem) in items.ticked().enumerate().take(skip.saturating_add(count)) {
            let elem = elem?;
            if at >= skip {
                out.push_elem(elem);
            }
        }
        Ok(())
    })
}

fn slice_number(value: &Value<'_>, which: &str) -> Result<i32> {
    if !value.is_number() {
        bail!(
            28725,
            "{which} argument to $slice must be a numeric value, but is of type: {}",
            value.type_name()
        );
    }
    match whole_int(value) {
        Some(number) => Ok(number),
        None => bail!(
            28726,
            "{which} argument to $slice can't be represented as a 32-bit integer: {}",
            value_text(value)
        ),
    }
}

pub(crate) fn object_to_array<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let object = call.arg(0, env)?;
    if object.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(doc) = object.as_document() else {
        bail!(40390, "$objectToArray requires a document input, found: {}", object.type_name());
    };
    value::array(|out| {
        for elem in doc.ticked() {
            let elem = elem?;
            let mut pair = out.document();
            pair.put("k", elem.key());
            pair.put_elem_as("v", elem);
            drop(pair);
            value::check_size(out.len())?;
        }
        Ok(())
    })
}

pub(crate) fn array_to_object<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let array = call.arg(0, env)?;
    if array.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(items) = array.as_array() else {
        bail!(40386, "$arrayToObject requires an array input, found: {}", array.type_name());
    };
    let mut fields: Vec<(&str, Elem<'_>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    // The first element says whether they are pairs or documents.
    let pairs = match items.first().map(|first| (first, first.ty())) {
        None => return value::document(|_| Ok(())),
        Some((_, kauri_bson::Type::Array)) => true,
        Some((_, kauri_bson::Type::Document)) => false,
        Some((first, _)) => bail!(
            40398,
            "Unrecognised input type format for $arrayToObject: {}",
            first.value().type_name()
        ),
    };
    for elem in items.ticked() {
        let elem = elem?;
        let (key, value) = if pairs { key_of_pair(elem)? } else { key_of_document(elem)? };
        // A repeated key keeps its place and takes the last value.
        match places.entry(key) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(fields.len());
                fields.push((key, value));
            }
            std::collections::hash_map::Entry::Occupied(entry) => {
                if let Some(field) = fields.get_mut(*entry.get()) {
                    field.1 = value;
                }
            }
        }
    }
    value::document(|out| {
        for (key, value) in &fields {
            value.tick()?;
            out.put_elem_as(key, *value);
        }
        value::check_size(out.len())
    })
}

fn key_of_pair(elem: Elem<'_>) -> Result<(&str, Elem<'_>)> {
    let Some(pair) = elem.as_doc().filter(|_| elem.ty() == kauri_bson::Type::Array) else {
        bail!(
            40396,
            "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. Array was detected, now found: {}",
            elem.value().type_name()
        );
    };
    let mut parts = pair.iter();
    let (Some(key), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
        bail!(
            40397,
            "$arrayToObject requires an array of size 2 arrays,found array of size: {}",
            pair.count()
        );
    };
    Ok((text_key(key, 40395, 4940400)?, value))
}

fn key_of_document(elem: Elem<'_>) -> Result<(&str, Elem<'_>)> {
    let Some(doc) = elem.as_doc().filter(|_| elem.ty() == kauri_bson::Type::Document) else {
        bail!(
            40391,
            "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. Object was detected, now found: {}",
            elem.value().type_name()
        );
    };
    if doc.count() != 2 {
        bail!(
            40392,
            "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{}",
            doc.count()
        );
    }
    let (Some(key), Some(value)) = (doc.get("k"), doc.get("v")) else {
        bail!(
            40393,
            "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from: {doc:?}"
        );
    };
    Ok((text_key(key, 40394, 4940401)?, value))
}

fn text_key(elem: Elem<'_>, type_code: i32, nul_code: i32) -> Result<&str> {
    let value = elem.value();
    if value.string_bytes().is_some() && value.is_not_utf8() {
        return Err(kauri_bson::not_utf8::error("$arrayToObject: a key"));
    }
    let Value::String(std::borrow::Cow::Borrowed(key)) = value else {
        return Err(Error::location(
            type_code,
            format!(
                "$arrayToObject requires an array of key-value pairs, where the key must be of type string. Found key type: {}",
                elem.value().type_name()
            ),
        ));
    };
    if key.contains('\0') {
        return Err(Error::location(nul_code, "Key field cannot contain an embedded null byte"));
    }
    Ok(key)
}

/// Arguments in order: the inputs, then the defaults; `prepared` counts the inputs.
pub(crate) fn parse_zip(parser: &mut Parser<'_>, op: &'static Op, arg: &Value<'_>) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(34460, "$zip only supports an object as an argument, found {}", arg.type_name());
    };
    let (mut inputs, mut defaults, mut longest) = (None, Vec::new(), false);
    for elem in doc {
        let value = elem.value();
        match elem.key() {
            "inputs" => match value.as_array() {
                Some(_) => inputs = Some(parser.list(&value)?),
                None => bail!(
                    34461,
                    "inputs must be an array of expressions, found {}",
                    value.type_name()
                ),
            },
            "defaults" => match value.as_array() {
                Some(_) => defaults = parser.list(&value)?,
                None => bail!(
                    34462,
                    "defaults must be an array of expressions, found {}",
                    value.type_name()
                ),
            },
            "useLongestLength" => match value {
                Value::Bool(flag) => longest = flag,
                _ => {
                    bail!(34463, "useLongestLength must be a bool, found {}", value.type_name())
                }
            },
            name => bail!(34464, "$zip found an unknown argument: {name}"),
        }
    }
    let mut args = inputs.unwrap_or_default();
    if args.is_empty() {
        bail!(34465, "$zip requires at least one input array");
    }
    if !defaults.is_empty() && !longest {
        bail!(34466, "cannot specify defaults unless useLongestLength is true");
    }
    if !defaults.is_empty() && defaults.len() != args.len() {
        bail!(34467, "defaults and inputs must have the same length");
    }
    let inputs = args.len();
    args.append(&mut defaults);
    Ok(parse::prepared_call(op, args, Prepared::Zip { inputs, longest }))
}

pub(crate) fn zip<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Prepared::Zip { inputs, longest } = call.prepared else {
        return Ok(Value::Null);
    };
    let (nodes, default_nodes) = call.args.split_at(inputs.min(call.args.len()));
    let mut arrays = Vec::with_capacity(nodes.len());
    for node in nodes {
        match node.eval(env)? {
            value if value.is_nullish() => return Ok(Value::Null),
            Value::Array(items) => arrays.push(items),
            value => {
                bail!(34468, "$zip found a non-array expression in input: {}", value_text(&value))
            }
        }
    }
    let defaults: Result<Vec<Value<'t>>> = default_nodes.iter().map(|n| n.eval(env)).collect();
    let defaults = defaults?;
    let lengths: Result<Vec<usize>> = arrays.iter().map(|a| a.as_doc().count_ticked()).collect();
    let lengths = lengths?.into_iter();
    let rows = if longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let mut columns: Vec<_> = arrays.iter().map(DocCow::iter).collect();
    value::array(|out| {
        for _ in 0..rows {
            let mut row = out.array();
            for (at, column) in columns.iter_mut().enumerate() {
                work::tick(1)?;
                match column.next() {
                    Some(elem) => row.push_elem(elem),
                    None => row.push_value(defaults.get(at).unwrap_or(&Value::Null)),
                }
            }
            drop(row);
            value::check_size(out.len())?;
        }
        Ok(())
    })
}
