//! String operators but those that take regular expressions.

use crate::coerce::{into_text, to_text, whole_int};
use crate::eval::Env;
use crate::node::{Call, Node};
use crate::numeric::coerce_to_long;
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use crate::value;
use kauri_base::{Error, Result, bail, sort, work};
use kauri_bson::Value;
use std::borrow::Cow;

pub(crate) fn concat<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut text = String::new();
    for node in &call.args {
        match node.eval(env)? {
            Value::String(part) => text.push_str(&part),
            value if value.is_nullish() => return Ok(Value::Null),
            value => bail!(16702, "$concat only supports strings, not {}", value.type_name()),
        }
        value::check_text(text.len())?;
        work::tick(1)?;
    }
    value::text(text)
}

pub(crate) fn to_lower<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    value::text(to_text(&call.arg(0, env)?)?.to_ascii_lowercase())
}

pub(crate) fn to_upper<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    value::text(to_text(&call.arg(0, env)?)?.to_ascii_uppercase())
}

pub(crate) fn strcasecmp<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (left, right) = (call.arg(0, env)?, call.arg(1, env)?);
    let (left, right) = (to_text(&left)?, to_text(&right)?);
    let upper = |text: &str| text.bytes().map(|b| b.to_ascii_uppercase()).collect::<Vec<u8>>();
    Ok(Value::Int32(upper(&left).cmp(&upper(&right)) as i32))
}

pub(crate) fn length_bytes<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    match call.arg(0, env)? {
        Value::String(text) => Ok(Value::Int32(text.len() as i32)),
        other => {
            bail!(34473, "$strLenBytes requires a string argument, found: {}", other.type_name())
        }
    }
}

pub(crate) fn length_code_points<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    match call.arg(0, env)? {
        Value::String(text) => Ok(Value::Int32(text.chars().count() as i32)),
        other => bail!(34471, "$strLenCP requires a string argument, found: {}", other.type_name()),
    }
}

/// Whether a byte is in the middle of a character.
fn continues(text: &str, at: usize) -> bool {
    !text.is_char_boundary(at) && at < text.len()
}

pub(crate) fn substr_bytes<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let name = call.op.name;
    let (value, start, length) = (call.arg(0, env)?, call.arg(1, env)?, call.arg(2, env)?);
    let text = into_text(value)?;
    if !start.is_number() {
        bail!(
            16034,
            "{name}: starting index must be a numeric type (is BSON type {})",
            start.type_name()
        );
    }
    if !length.is_number() {
        bail!(16035, "{name}: length must be a numeric type (is BSON type {})", length.type_name());
    }
    let start = coerce_to_long(&start)?;
    let Ok(start) = usize::try_from(start) else {
        bail!(50752, "{name}: starting index must be non-negative (got: {start})");
    };
    // A negative length means all the rest.
    let length = usize::try_from(coerce_to_long(&length)?).unwrap_or(usize::MAX);
    if continues(&text, start) {
        bail!(28656, "{name}: Invalid range, starting index is a UTF-8 continuation byte.");
    }
    let end = start.saturating_add(length).min(text.len());
    if continues(&text, end) {
        bail!(28657, "{name}: Invalid range, ending index is in the middle of a UTF-8 character.");
    }
    Ok(Value::String(slice(text, start, end)))
}

/// A part of a text, borrowed where the whole is.
fn slice(text: Cow<'_, str>, start: usize, end: usize) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(start..end).unwrap_or_default()),
        Cow::Owned(text) => Cow::Owned(text.get(start..end).unwrap_or_default().to_owned()),
    }
}

pub(crate) fn substr_code_points<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (value, start, count) = (call.arg(0, env)?, call.arg(1, env)?, call.arg(2, env)?);
    let text = into_text(value)?;
    if !start.is_number() {
        bail!(
            34450,
            "$substrCP: starting index must be a numeric type (is BSON type {})",
            start.type_name()
        );
    }
    let Some(start) = whole_int(&start) else {
        bail!(34451, "$substrCP: starting index cannot be represented as a 32-bit integral value");
    };
    if !count.is_number() {
        bail!(
            34452,
            "$substrCP: length must be a numeric type (is BSON type {})",
            count.type_name()
        );
    }
    let Some(count) = whole_int(&count) else {
        bail!(34453, "$substrCP: length cannot be represented as a 32-bit integral value");
    };
    let Ok(count) = usize::try_from(count) else {
        bail!(34454, "$substrCP: length must be a nonnegative integer.");
    };
    let Ok(start) = usize::try_from(start) else {
        bail!(34455, "$substrCP: the starting index must be nonnegative integer.");
    };
    let mut places = text.char_indices().map(|(at, _)| at).skip(start);
    let Some(from) = places.next() else { return Ok("".into()) };
    let to = match count {
        0 => from,
        _ => places.nth(count - 1).unwrap_or(text.len()),
    };
    Ok(Value::String(slice(text, from, to)))
}

/// Checks an index of `$indexOfBytes` and its like; missing and null are not given.
pub(crate) fn index(value: &Value<'_>, name: &str, what: &str) -> Result<usize> {
    let Some(index) = whole_int(value) else {
        bail!(
            40096,
            "{name} requires an integral {what} index, found a value of type: {}, with value: {}",
            value.type_name(),
            crate::numeric::value_text(value)
        );
    };
    match usize::try_from(index) {
        Ok(index) => Ok(index),
        Err(_) => bail!(40097, "{name} requires a nonnegative {what} index, found: {index}"),
    }
}

/// Text, token, start and end of `$indexOfBytes` and `$indexOfCP`; `None` for a null text.
fn search<'t>(
    call: &'t Call,
    env: Env<'t>,
    codes: (i32, i32),
) -> Result<Option<(Cow<'t, str>, Cow<'t, str>, usize, usize)>> {
    let name = call.op.name;
    let text = match call.arg(0, env)? {
        Value::String(text) => text,
        value if value.is_nullish() => return Ok(None),
        value => {
            let message = format!(
                "{name} requires a string as the first argument, found: {}",
                value.type_name()
            );
            return Err(Error::location(codes.0, message));
        }
    };
    let token = match call.arg(1, env)? {
        Value::String(token) => token,
        value => {
            let message = format!(
                "{name} requires a string as the second argument, found: {}",
                value.type_name()
            );
            return Err(Error::location(codes.1, message));
        }
    };
    let start = match call.args.get(2) {
        Some(node) => index(&node.eval(env)?, name, "starting")?,
        None => 0,
    };
    let end = match call.args.get(3) {
        Some(node) => index(&node.eval(env)?, name, "ending")?,
        None => usize::MAX,
    };
    Ok(Some((text, token, start, end)))
}

pub(crate) fn index_of_bytes<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Some((text, token, start, end)) = search(call, env, (40091, 40092))? else {
        return Ok(Value::Null);
    };
    let part = text.as_bytes().get(start..end.min(text.len())).unwrap_or_default();
    if start > text.len() || start > end {
        return Ok(Value::Int32(-1));
    }
    let found = find_bytes(part, token.as_bytes());
    Ok(Value::Int32(found.map_or(-1, |at| (at + start) as i32)))
}

/// Position of the first occurrence, in linear time: both are UTF-8, but the part may begin or end
/// inside a character, so text search needs its valid middle only.
fn find_bytes(part: &[u8], token: &[u8]) -> Option<usize> {
    if token.is_empty() {
        return Some(0);
    }
    // The token begins with a whole character and so can't begin inside of one.
    let skip = part.iter().take_while(|b| **b & 0xC0 == 0x80).count();
    let middle = part.get(skip..)?;
    let valid = match std::str::from_utf8(middle) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(middle.get(..e.valid_up_to())?).ok()?,
    };
    valid.find(std::str::from_utf8(token).ok()?).map(|at| at + skip)
}

pub(crate) fn index_of_code_points<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Some((text, token, start, end)) = search(call, env, (40093, 40094))? else {
        return Ok(Value::Null);
    };
    // A match must begin before `end` and may reach beyond it.
    let mut places = text.char_indices().map(|(at, _)| at);
    let Some(from) = places.nth(start) else {
        let nothing_in_nothing = text.is_empty() && token.is_empty() && start == 0;
        return Ok(Value::Int32(if nothing_in_nothing { 0 } else { -1 }));
    };
    let part = text.get(from..).unwrap_or_default();
    let found = part.find(token.as_ref()).and_then(|at| part.get(..at));
    let place = found.map(|before| before.chars().count() + start).filter(|at| *at < end);
    Ok(Value::Int32(place.map_or(-1, |at| at as i32)))
}

pub(crate) fn split<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (value, separator) = (call.arg(0, env)?, call.arg(1, env)?);
    if value.is_nullish() || separator.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(text) = value.as_str() else {
        bail!(
            40085,
            "$split requires an expression that evaluates to a string as a first argument, found: {}",
            value.type_name()
        );
    };
    let Some(separator) = separator.as_str() else {
        bail!(
            10503900,
            "$split requires an expression that evaluates to a string as a second argument, found: {}",
            separator.type_name()
        );
    };
    if separator.is_empty() {
        bail!(40087, "$split requires a non-empty separator");
    }
    value::array(|out| {
        for part in text.split(separator) {
            out.push(part);
            work::tick_bytes(part.len())?;
            value::check_size(out.len())?;
        }
        Ok(())
    })
}

/// Arguments in order: input, chars.
pub(crate) fn parse_trim(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let name = op.name;
    let Some(doc) = arg.as_document() else {
        bail!(50696, "{name} only supports an object as an argument, found {}", arg.type_name());
    };
    let args = parser.named(doc, &["input", "chars"], |field| {
        Error::location(50694, format!("{name} found an unknown argument: {field}"))
    })?;
    if args.first().is_none_or(Node::is_absent) {
        bail!(50695, "{name} requires an 'input' field");
    }
    Ok(parse::call(op, args))
}

/// White space as MongoDB trims it, in order: ASCII's, the zero byte, and Unicode's spaces.
const WHITE: [char; 20] = [
    '\0', '\t', '\n', '\u{b}', '\u{c}', '\r', ' ', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}',
    '\u{2002}', '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}',
    '\u{200a}',
];

/// The characters of a text, each once, in their order.
fn sorted_chars(text: &str) -> Result<Vec<char>> {
    let mut chars: Vec<char> = text.chars().collect();
    sort::sort_by(&mut chars, char::cmp)?;
    chars.dedup();
    Ok(chars)
}

pub(crate) fn trim<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let name = call.op.name;
    let input = call.arg(0, env)?;
    if input.is_nullish() {
        return Ok(Value::Null);
    }
    let Value::String(text) = input else {
        bail!(50699, "{name} requires its input to be a string, got {}", input.type_name());
    };
    let chars: Option<Vec<char>> = match call.args.get(1) {
        None | Some(Node::Absent) => None,
        Some(node) => match node.eval(env)? {
            Value::String(chars) => Some(sorted_chars(&chars)?),
            value if value.is_nullish() => return Ok(Value::Null),
            value => {
                bail!(50700, "{name} requires 'chars' to be a string, got {}", value.type_name())
            }
        },
    };
    let chars = chars.as_deref().unwrap_or(&WHITE);
    let chars = |c: char| chars.binary_search(&c).is_ok();
    let from_left = text.trim_start_matches(chars);
    let start = if name == "$rtrim" { 0 } else { text.len() - from_left.len() };
    let rest = text.get(start..).unwrap_or_default();
    let end =
        if name == "$ltrim" { text.len() } else { start + rest.trim_end_matches(chars).len() };
    Ok(Value::String(slice(text, start, end)))
}

/// Arguments in order: input, find, replacement.
pub(crate) fn parse_replace(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let name = op.name;
    let Some(doc) = arg.as_document() else {
        bail!(51751, "{name} requires an object as an argument, found: {}", arg.type_name());
    };
    let args = parser.named(doc, &["input", "find", "replacement"], |field| {
        Error::location(51750, format!("{name} found an unknown argument: {field}"))
    })?;
    let fields = ["input", "find", "replacement"];
    for ((node, field), code) in args.iter().zip(fields).zip([51749, 51748, 51747]) {
        if node.is_absent() {
            return Err(Error::location(
                code,
                format!("{name} requires '{field}' to be specified"),
            ));
        }
    }
    Ok(parse::call(op, args))
}

pub(crate) fn replace<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let name = call.op.name;
    let (input, find, replacement) = (call.arg(0, env)?, call.arg(1, env)?, call.arg(2, env)?);
    let arguments = [
        (&input, "input", 10503904),
        (&find, "find", 10503901),
        (&replacement, "replacement", 10503902),
    ];
    for (value, field, code) in arguments {
        if !value.is_nullish() && value.as_str().is_none() {
            return Err(Error::location(
                code,
                format!(
                    "{name} requires that '{field}' be a string, found: {}",
                    crate::numeric::value_text(value)
                ),
            ));
        }
    }
    let (Some(text), Some(find), Some(replacement)) =
        (input.as_str(), find.as_str(), replacement.as_str())
    else {
        return Ok(Value::Null);
    };
    let count = if name == "$replaceOne" { 1 } else { usize::MAX };
    let mut matches = 0;
    if replacement.len() > find.len() {
        for _ in text.matches(find).take(count) {
            work::tick(1)?;
            matches += 1;
        }
    }
    value::check_text(text.len() + matches * (replacement.len().saturating_sub(find.len())))?;
    let mut result = String::new();
    let mut copied = 0;
    for (at, found) in text.match_indices(find).take(count) {
        let part = text.get(copied..at).unwrap_or_default();
        work::tick_bytes(64 + part.len() + replacement.len())?;
        result.push_str(part);
        result.push_str(replacement);
        copied = at + found.len();
    }
    result.push_str(text.get(copied..).unwrap_or_default());
    value::text(result)
}
