//! `$regexMatch`, `$regexFind`, `$regexFindAll`.

use crate::eval::Env;
use crate::node::{Call, Node, Prepared};
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use crate::regex::{Captures, Regex, RegexCache, RegexError, is_option};
use crate::value;
use kauri_base::{Error, Result, bail};
use kauri_bson::{DocWriter, Type, Value};
use std::sync::Arc;

/// Arguments in order: input, regex, options.
pub(crate) fn parse_regex(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let name = op.name;
    let Some(doc) = arg.as_document() else {
        bail!(51103, "{name} expects an object of named arguments but found: {}", arg.type_name());
    };
    let args = parser.named(doc, &["input", "regex", "options"], |field| {
        Error::location(31024, format!("{name} found unknown option: {field}"))
    })?;
    match args.as_slice() {
        [Node::Absent, ..] => bail!(31022, "{name} requires 'input' parameter"),
        [_, Node::Absent, _] => bail!(31023, "{name} requires 'regex' parameter"),
        _ => {}
    }
    Ok(parse::prepared_call(op, args, Prepared::Regexes(RegexCache::new())))
}

/// Compiles a pattern that is constant.
pub(crate) fn prepare(call: &mut Call) -> Result<()> {
    let constant = |at: usize| match call.args.get(at) {
        Some(Node::Literal(value)) => Some(value.borrow()),
        Some(Node::Absent) => Some(Value::Missing),
        _ => None,
    };
    if let (Some(regex), Some(options), Prepared::Regexes(cache)) =
        (constant(1), constant(2), &call.prepared)
    {
        call.prepared = Prepared::Regex(compile(call.op.name, &regex, &options, cache)?);
    }
    Ok(())
}

/// Compiles; `None` where the pattern is null.
fn compile(
    name: &str,
    regex: &Value<'_>,
    options: &Value<'_>,
    cache: &RegexCache,
) -> Result<Option<Arc<Regex>>> {
    let given = match options {
        Value::String(text) => Some(text.as_ref()),
        value if value.is_nullish() => None,
        value => {
            bail!(51106, "{name} needs 'options' to be of type string, found {}", value.type_name())
        }
    };
    if regex.is_not_utf8() && (regex.string_bytes().is_some() || regex.ty() == Some(Type::Regex)) {
        bail!(51111, "Invalid Regex in {name}: the pattern is not valid UTF-8");
    }
    let (pattern, flags) = match regex {
        Value::String(text) => (text, ""),
        Value::Regex { pattern, options } => (pattern, options.as_ref()),
        value if value.is_nullish() => return Ok(None),
        value => bail!(
            51105,
            "{name} needs 'regex' to be of type string or regex, found {}",
            value.type_name()
        ),
    };
    // Flags of a BSON regex that mean nothing are passed over.
    let flags: String = flags.chars().filter(|c| is_option(*c)).collect();
    if given.is_some() && !flags.is_empty() {
        bail!(51107, "{name} found regex option(s) specified in both 'regex' and 'option' fields");
    }
    if pattern.contains('\0') {
        bail!(51109, "{name}: regular expression cannot contain an embedded null byte");
    }
    let options = given.unwrap_or(&flags);
    check_options(name, options)?;
    match cache.get(pattern, options) {
        Ok(regex) => Ok(Some(regex)),
        Err(RegexError::Stack(error)) => Err(error),
        Err(RegexError::Syntax(message)) => bail!(51111, "Invalid Regex in {name}: {message}"),
        Err(other) => Err(other.into()),
    }
}

fn check_options(name: &str, options: &str) -> Result<()> {
    if options.contains('\0') {
        bail!(51110, "{name}: regular expression options cannot contain an embedded null byte");
    }
    match options.chars().find(|c| !is_option(*c)) {
        Some(flag) => bail!(51108, "{name}: invalid flag in regex options: {flag}"),
        None => Ok(()),
    }
}

/// The compiled pattern and the text; `None` where either is null.
fn operands<'t>(call: &'t Call, env: Env<'t>) -> Result<Option<(Arc<Regex>, Value<'t>)>> {
    let name = call.op.name;
    let input = call.arg(0, env)?;
    let regex = match &call.prepared {
        Prepared::Regex(regex) => regex.clone(),
        Prepared::Regexes(cache) => compile(name, &call.arg(1, env)?, &call.arg(2, env)?, cache)?,
        _ => None,
    };
    match &input {
        Value::String(_) => {}
        // PCRE refuses such a text.
        text if text.string_bytes().is_some() && regex.is_some() => bail!(
            51156,
            "Error occurred while executing the regular expression in {name}. Result code: the input is not valid UTF-8"
        ),
        text if text.string_bytes().is_some() => {}
        value if value.is_nullish() => return Ok(None),
        value => {
            bail!(51104, "{name} needs 'input' to be of type string, found {}", value.type_name())
        }
    }
    Ok(regex.map(|regex| (regex, input)))
}

pub(crate) fn matches<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let found = match operands(call, env)? {
        Some((regex, Value::String(text))) => regex.is_match(&text)?,
        _ => false,
    };
    Ok(Value::Bool(found))
}

pub(crate) fn find<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Some((regex, Value::String(text))) = operands(call, env)? else { return Ok(Value::Null) };
    match regex.captures_at(&text, 0)? {
        Some(found) => {
            let index = count(&text, 0, found.span.0);
            value::document(|out| write_match(out, &text, &found, index))
        }
        None => Ok(Value::Null),
    }
}

/// Maximum output of `$regexFindAll`.
const OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(crate) fn find_all<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Some((regex, Value::String(text))) = operands(call, env)? else {
        return Ok(Value::array([]));
    };
    value::array(|out| {
        let (mut at, mut counted, mut index) = (0, 0, 0);
        while let Some(found) = regex.captures_at(&text, at)? {
            let (start, end) = found.span;
            index += count(&text, counted, start);
            counted = start.max(counted);
            write_match(&mut out.document(), &text, &found, index)?;
            if out.len() > OUTPUT_BYTES_MAX {
                bail!(
                    51151,
                    "$regexFindAll: the size of buffer to store output exceeded the 64MB limit"
                );
            }
            // An empty match moves on by one character.
            let rest = text.get(end..).unwrap_or_default();
            let skip = rest.chars().next().map_or(1, char::len_utf8);
            at = if end > start { end } else { end + skip };
            if at >= text.len() {
                break;
            }
        }
        Ok(())
    })
}

/// Characters between two byte positions.
fn count(text: &str, from: usize, to: usize) -> i32 {
    text.get(from..to).map_or(0, |part| part.chars().count() as i32)
}

fn write_match(out: &mut DocWriter<'_>, text: &str, found: &Captures, index: i32) -> Result<()> {
    let part = |(start, end): (usize, usize)| text.get(start..end).unwrap_or_default();
    out.put("match", part(found.span));
    out.put("idx", index);
    let mut captures = out.array("captures");
    for group in &found.groups {
        match group {
            Some(span) => captures.push(part(*span)),
            None => captures.push(Value::Null),
        }
    }
    Ok(())
}
