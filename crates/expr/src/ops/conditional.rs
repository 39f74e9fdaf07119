//! `$cond`, `$ifNull`, `$switch`.

use crate::eval::Env;
use crate::node::{Call, Node};
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use kauri_base::{Error, Result, bail};
use kauri_bson::{Doc, Value};

/// Arguments in order: if, then, else.
pub(crate) fn parse_cond(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        return parse::parse_list(parser, op, arg);
    };
    let args = parser.named(doc, &["if", "then", "else"], |name| {
        Error::location(17083, format!("Unrecognized parameter to $cond: {name}"))
    })?;
    for ((node, name), code) in args.iter().zip(["if", "then", "else"]).zip([17080, 17081, 17082]) {
        if node.is_absent() {
            return Err(Error::location(code, format!("Missing '{name}' parameter to $cond")));
        }
    }
    Ok(parse::call(op, args))
}

pub(crate) fn cond<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let branch = if call.arg(0, env)?.truthy() { 1 } else { 2 };
    call.arg(branch, env)
}

pub(crate) fn parse_if_null(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let args = parser.list(arg)?;
    if args.len() < 2 {
        bail!(1257300, "$ifNull needs at least two arguments, had: {}", args.len());
    }
    Ok(parse::call(op, args))
}

pub(crate) fn if_null<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Some((last, inputs)) = call.args.split_last() else { return Ok(Value::Missing) };
    for node in inputs {
        let value = node.eval(env)?;
        if !value.is_nullish() {
            return Ok(value);
        }
    }
    last.eval(env)
}

/// Arguments in order: case, then, case, then, …, default.
pub(crate) fn parse_switch(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(40060, "$switch requires an object as an argument, found: {}", arg.type_name());
    };
    let mut args = Vec::new();
    let mut default = Node::Absent;
    for elem in doc {
        match elem.key() {
            "branches" => {
                let value = elem.value();
                let Some(branches) = value.as_array() else {
                    bail!(
                        40061,
                        "$switch expected an array for 'branches', found: {}",
                        value.type_name()
                    );
                };
                for branch in branches {
                    parse_branch(parser, &branch.value(), &mut args)?;
                }
            }
            "default" => default = parser.operand(&elem.value())?,
            name => bail!(40067, "$switch found an unknown argument: {name}"),
        }
    }
    if args.is_empty() {
        bail!(40068, "$switch requires at least one branch.");
    }
    args.push(default);
    Ok(parse::call(op, args))
}

fn parse_branch(parser: &mut Parser<'_>, branch: &Value<'_>, args: &mut Vec<Node>) -> Result<()> {
    let Some(doc) = branch.as_document() else {
        bail!(40062, "$switch expected each branch to be an object, found: {}", branch.type_name());
    };
    let doc: Doc<'_> = doc;
    let mut nodes = parser.named(doc, &["case", "then"], |name| {
        Error::location(40063, format!("$switch found an unknown argument to a branch: {name}"))
    })?;
    match nodes.as_slice() {
        [Node::Absent, _] => bail!(40064, "$switch requires each branch have a 'case' expression"),
        [_, Node::Absent] => bail!(40065, "$switch requires each branch have a 'then' expression."),
        _ => args.append(&mut nodes),
    }
    Ok(())
}

pub(crate) fn switch<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut branches = call.args.chunks_exact(2);
    for branch in &mut branches {
        if let [case, then] = branch
            && case.eval(env)?.truthy()
        {
            return then.eval(env);
        }
    }
    match branches.remainder() {
        [default] if !default.is_absent() => default.eval(env),
        _ => bail!(
            40066,
            "$switch could not find a matching branch for an input, and no default was specified."
        ),
    }
}
