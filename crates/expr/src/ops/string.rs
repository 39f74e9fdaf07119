//! String operators, except those with regular expressions.
//!
//! Strings are bytes: strings that are not UTF-8 are processed byte by byte, as in MongoDB. An operator that needs
//! characters fails if the bytes are not characters.

use crate::coerce::{into_text, to_text, whole_int};
use crate::eval::Env;
use crate::node::{Call, Node};
use crate::numeric::coerce_to_long;
use crate::ops::bytewise;
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use crate::value;
use kauri_base::{Error, Result, bail, sort, work};
use kauri_bson::Value;
use std::borrow::Cow;

pub(crate) fn concat<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut text = Vec::new();
    for node in &call.args {
        let part = node.eval(env)?;
        match part.string_bytes() {
            Some(part) => text.extend_from_slice(part),
            None if part.is_nullish() => return Ok(Value::Null),
            None => bail!(16702, "$concat only supports strings, not {}", part.type_name()),
        }
        value::check_text(text.len())?;
        work::tick(1)?;
    }
    value::text_of_bytes(text)
}

pub(crate) fn to_lower<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    value::text_of_bytes(to_text(&call.arg(0, env)?)?.to_ascii_lowercase())
}

pub(crate) fn to_upper<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    value::text_of_bytes(to_text(&call.arg(0, env)?)?.to_ascii_uppercase())
}

pub(crate) fn strcasecmp<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (left, right) = (call.arg(0, env)?, call.arg(1, env)?);
    let (left, right) = (to_text(&left)?, to_text(&right)?);
    let order = left.to_ascii_uppercase().cmp(&right.to_ascii_uppercase());
    Ok(Value::Int32(order as i32))
}

pub(crate) fn length_bytes<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let value = call.arg(0, env)?;
    match value.string_bytes() {
        Some(text) => Ok(Value::Int32(text.len() as i32)),
        None => {
            bail!(34473, "$strLenBytes requires a string argument, found: {}", value.type_name())
        }
    }
}

pub(crate) fn length_code_points<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let value = call.arg(0, env)?;
    match value.string_bytes() {
        Some(text) => Ok(Value::Int32(bytewise::count(text) as i32)),
        None => bail!(34471, "$strLenCP requires a string argument, found: {}", value.type_name()),
    }
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
    if bytewise::continues(&text, start) {
        bail!(28656, "{name}: Invalid range, starting index is a UTF-8 continuation byte.");
    }
    let end = start.saturating_add(length).min(text.len());
    if bytewise::continues(&text, end) {
        bail!(28657, "{name}: Invalid range, ending index is in the middle of a UTF-8 character.");
    }
    Ok(slice(text, start, end))
}

/// A part of a text, borrowed where the whole is.
fn slice(text: Cow<'_, [u8]>, start: usize, end: usize) -> Value<'_> {
    match text {
        Cow::Borrowed(text) => Value::string_of_bytes(text.get(start..end).unwrap_or_default()),
        Cow::Owned(text) => {
            Value::string_of_bytes(text.get(start..end).unwrap_or_default().to_vec())
        }
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
    let from = skip_chars(&text, 0, start, (34456, 34457))?;
    let to = skip_chars(&text, from, count, (34458, 34459))?;
    Ok(slice(text, from, to))
}

/// The position `count` characters behind this one, or the end. The codes are of the errors for a byte that
/// continues a character and for one that begins none.
fn skip_chars(text: &[u8], start: usize, count: usize, codes: (i32, i32)) -> Result<usize> {
    let mut at = start;
    for _ in 0..count {
        if at >= text.len() {
            break;
        }
        let Some(length) = bytewise::char_bytes(text, at) else {
            let code = if bytewise::continues(text, at) { codes.0 } else { codes.1 };
            return Err(Error::location(code, "$substrCP: invalid UTF-8 string"));
        };
        at += length;
    }
    Ok(at.min(text.len()))
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
) -> Result<Option<(Cow<'t, [u8]>, Cow<'t, [u8]>, usize, usize)>> {
    let name = call.op.name;
    let text = match call.arg(0, env)?.into_string_bytes() {
        Ok(text) => text,
        Err(value) if value.is_nullish() => return Ok(None),
        Err(value) => {
            let message = format!(
                "{name} requires a string as the first argument, found: {}",
                value.type_name()
            );
            return Err(Error::location(codes.0, message));
        }
    };
    let token = match call.arg(1, env)?.into_string_bytes() {
        Ok(token) => token,
        Err(value) => {
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
    let part = text.get(start..end.min(text.len())).unwrap_or_default();
    if start > text.len() || start > end {
        return Ok(Value::Int32(-1));
    }
    let found = match (std::str::from_utf8(&text), std::str::from_utf8(&token)) {
        (Ok(_), Ok(token)) => find_bytes(part, token),
        _ => bytewise::find(part, &token),
    };
    Ok(Value::Int32(found.map_or(-1, |at| (at + start) as i32)))
}

/// Position of the first occurrence, in linear time: both are UTF-8, but the part may begin or end
/// inside a character, so text search needs its valid middle only.
fn find_bytes(part: &[u8], token: &str) -> Option<usize> {
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
    valid.find(token).map(|at| at + skip)
}

pub(crate) fn index_of_code_points<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Some((text, token, start, end)) = search(call, env, (40093, 40094))? else {
        return Ok(Value::Null);
    };
    let (Ok(text), Ok(token)) = (std::str::from_utf8(&text), std::str::from_utf8(&token)) else {
        bail!(40095, "$indexOfCP found bad UTF-8 in the input");
    };
    // A match must begin before `end` and may reach beyond it.
    let mut places = text.char_indices().map(|(at, _)| at);
    let Some(from) = places.nth(start) else {
        let nothing_in_nothing = text.is_empty() && token.is_empty() && start == 0;
        return Ok(Value::Int32(if nothing_in_nothing { 0 } else { -1 }));
    };
    let part = text.get(from..).unwrap_or_default();
    let found = part.find(token).and_then(|at| part.get(..at));
    let place = found.map(|before| before.chars().count() + start).filter(|at| *at < end);
    Ok(Value::Int32(place.map_or(-1, |at| at as i32)))
}

pub(crate) fn split<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (value, separator) = (call.arg(0, env)?, call.arg(1, env)?);
    if value.is_nullish() || separator.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(text) = value.string_bytes() else {
        bail!(
            40085,
            "$split requires an expression that evaluates to a string as a first argument, found: {}",
            value.type_name()
        );
    };
    let Some(separator) = separator.string_bytes() else {
        bail!(
            10503900,
            "$split requires an expression that evaluates to a string as a second argument, found: {}",
            separator.type_name()
        );
    };
    if separator.is_empty() {
        bail!(40087, "$split requires a non-empty separator");
    }
    let (Ok(text), Ok(separator)) = (std::str::from_utf8(text), std::str::from_utf8(separator))
    else {
        let (text, separator) = (bytewise::widen(text), bytewise::widen(separator));
        return split_into(&text, &separator, |part| {
            Value::string_of_bytes(bytewise::narrow(part))
        });
    };
    split_into(text, separator, |part| part.into())
}

fn split_into(
    text: &str,
    separator: &str,
    value_of: impl Fn(&str) -> Value<'_>,
) -> Result<Value<'static>> {
    value::array(|out| {
        for part in text.split(separator) {
            out.push(value_of(part));
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
fn sorted_chars(text: &[u8]) -> Result<Vec<char>> {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => bail!(
            5156304,
            "Failed to parse \"chars\" argument to $trim/$ltrim/$rtrim: Detected invalid UTF-8. Missing expected continuation byte at end of string."
        ),
        Err(_) => bail!(
            5156305,
            "Failed to parse \"chars\" argument to $trim/$ltrim/$rtrim: Detected invalid UTF-8. Got continuation byte when expecting the start of a new code point."
        ),
    };
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
    let text = match input.into_string_bytes() {
        Ok(text) => text,
        Err(input) => {
            bail!(50699, "{name} requires its input to be a string, got {}", input.type_name())
        }
    };
    let chars: Option<Vec<char>> = match call.args.get(1) {
        None | Some(Node::Absent) => None,
        Some(node) => match node.eval(env)?.into_string_bytes() {
            Ok(chars) => Some(sorted_chars(&chars)?),
            Err(value) if value.is_nullish() => return Ok(Value::Null),
            Err(value) => {
                bail!(50700, "{name} requires 'chars' to be a string, got {}", value.type_name())
            }
        },
    };
    let chars = chars.as_deref().unwrap_or(&WHITE);
    let is_cut = |c: char| chars.binary_search(&c).is_ok();
    // Of what is not UTF-8, the characters before the first bad byte and behind the last one can be cut.
    let head = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let start =
        if name == "$rtrim" { 0 } else { head.len() - head.trim_start_matches(is_cut).len() };
    let rest = text.get(start..).unwrap_or_default();
    let tail = match rest.utf8_chunks().last() {
        Some(chunk) if chunk.invalid().is_empty() => chunk.valid(),
        _ => "",
    };
    let cut = tail.len() - tail.trim_end_matches(is_cut).len();
    let end = if name == "$ltrim" { text.len() } else { text.len() - cut };
    Ok(slice(text, start, end))
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
        if !value.is_nullish() && value.string_bytes().is_none() {
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
        (input.string_bytes(), find.string_bytes(), replacement.string_bytes())
    else {
        return Ok(Value::Null);
    };
    let utf8 = std::str::from_utf8;
    if let (Ok(text), Ok(find), Ok(replacement)) = (utf8(text), utf8(find), utf8(replacement)) {
        return value::text(replaced(
            name,
            text,
            find,
            replacement,
            [text, find, replacement].map(str::len),
        )?);
    }
    let lengths = [text, find, replacement].map(<[u8]>::len);
    let wide = [text, find, replacement].map(bytewise::widen);
    value::text_of_bytes(bytewise::narrow(&replaced(name, &wide[0], &wide[1], &wide[2], lengths)?))
}

/// `lengths`: those in bytes of what the three stand for.
fn replaced(
    name: &str,
    text: &str,
    find: &str,
    replacement: &str,
    lengths: [usize; 3],
) -> Result<String> {
    let count = if name == "$replaceOne" { 1 } else { usize::MAX };
    let mut matches = 0;
    let [text_bytes, find_bytes, replacement_bytes] = lengths;
    if replacement_bytes > find_bytes {
        for _ in text.matches(find).take(count) {
            work::tick(1)?;
            matches += 1;
        }
    }
    value::check_text(text_bytes + matches * replacement_bytes.saturating_sub(find_bytes))?;
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
    Ok(result)
}
