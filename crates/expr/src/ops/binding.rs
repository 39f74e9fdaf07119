//! Operators that bind variables: `$let`, `$map`, `$filter`, `$reduce`.
//!
//! A binding is a frame on the stack; a value that leaves its scope gets its own copy of its bytes. A `$let` is one
//! frame for all of its variables.

use crate::eval::{Env, Frame};
use crate::node::Node;
use crate::ops::registry::Op;
use crate::parse::Parser;
use crate::value;
use crate::variables;
use kauri_base::{Error, Result, bail, work};
use kauri_bson::{Doc, Value};

/// `{$let: {vars: {…}, in: …}}`
#[derive(Debug)]
pub(crate) struct Let {
    /// The first variable's id; those of the others follow.
    first: u32,
    vars: Vec<Node>,
    body: Node,
}

/// `{$map: {input: …, as: …, in: …}}`
#[derive(Debug)]
pub(crate) struct MapOver {
    input: Node,
    id: u32,
    body: Node,
}

/// `{$filter: {input: …, as: …, cond: …, limit: …}}`
#[derive(Debug)]
pub(crate) struct Filter {
    input: Node,
    id: u32,
    cond: Node,
    limit: Node,
}

/// `{$reduce: {input: …, initialValue: …, in: …}}`
#[derive(Debug)]
pub(crate) struct Reduce {
    input: Node,
    initial: Node,
    /// The id of `this`; that of `value` follows.
    this: u32,
    body: Node,
}

/// The raw named arguments of an operator, found by name.
struct Raw<'a> {
    doc: Doc<'a>,
}

impl<'a> Raw<'a> {
    /// Checks that no other names are there.
    fn new(doc: Doc<'a>, names: &[&str], unknown: impl Fn(&str) -> Error) -> Result<Raw<'a>> {
        match doc.iter().find(|e| !names.contains(&e.key())) {
            Some(elem) => Err(unknown(elem.key())),
            None => Ok(Raw { doc }),
        }
    }

    fn required(&self, name: &str, missing: impl FnOnce() -> Error) -> Result<Value<'a>> {
        self.doc.get(name).map(|e| e.value()).ok_or_else(missing)
    }

    /// The variable's name in `as`; `this` if there is none.
    fn variable(&self) -> Result<String> {
        let name = match self.doc.get("as") {
            None => "this".to_owned(),
            Some(elem) => elem.value().as_str().unwrap_or_default().to_owned(),
        };
        variables::check_name_for_write(&name)?;
        Ok(name)
    }
}

pub(crate) fn parse_let(parser: &mut Parser<'_>, _: &'static Op, arg: &Value<'_>) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(16874, "$let only supports an object as its argument");
    };
    let raw = Raw::new(doc, &["vars", "in"], |name| {
        Error::location(16875, format!("Unrecognized parameter to $let: {name}"))
    })?;
    let missing = |code, name| Error::location(code, format!("Missing '{name}' parameter to $let"));
    let vars = raw.required("vars", || missing(16876, "vars"))?;
    let body = raw.required("in", || missing(16877, "in"))?;
    let vars = match &vars {
        Value::Document(vars) | Value::Array(vars) => vars,
        _ => bail!(10065, "invalid parameter: expected an object (vars)"),
    };
    let mut nodes = Vec::new();
    for elem in vars.iter() {
        variables::check_name_for_write(elem.key())?;
        // All of them see the variables outside, none its neighbours.
        nodes.push(parser.operand(&elem.value())?);
    }
    let bindings: Vec<(String, u32)> =
        vars.iter().map(|elem| (elem.key().to_owned(), parser.new_local())).collect();
    let first = bindings.first().map_or(0, |(_, id)| *id);
    let body = parser.with_locals(bindings, |parser| parser.operand(&body))?;
    Ok(Node::Let(Box::new(Let { first, vars: nodes, body })))
}

impl Let {
    pub fn eval<'t>(&'t self, env: Env<'t>) -> Result<Value<'t>> {
        work::check_stack()?;
        let mut values = Vec::with_capacity(self.vars.len());
        for node in &self.vars {
            let value = node.eval(env)?;
            value::check_nesting(&value)?;
            values.push(value);
        }
        let frame = Frame { first: self.first, values: &values, parent: env.frame };
        Ok(self.body.eval(env.with(&frame))?.into_owned())
    }

    pub fn children(&self) -> impl Iterator<Item = &Node> {
        self.vars.iter().chain([&self.body])
    }

    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.vars.iter_mut().chain([&mut self.body])
    }
}

pub(crate) fn parse_map(parser: &mut Parser<'_>, _: &'static Op, arg: &Value<'_>) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(16878, "$map only supports an object as its argument");
    };
    let raw = Raw::new(doc, &["input", "as", "in"], |name| {
        Error::location(16879, format!("Unrecognized parameter to $map: {name}"))
    })?;
    let missing = |code, name| Error::location(code, format!("Missing '{name}' parameter to $map"));
    let input = raw.required("input", || missing(16880, "input"))?;
    let body = raw.required("in", || missing(16882, "in"))?;
    let input = parser.operand(&input)?;
    let name = raw.variable()?;
    let id = parser.new_local();
    let body = parser.with_locals(vec![(name, id)], |parser| parser.operand(&body))?;
    Ok(Node::Map(Box::new(MapOver { input, id, body })))
}

impl MapOver {
    pub fn eval<'t>(&'t self, env: Env<'t>) -> Result<Value<'t>> {
        work::check_stack()?;
        let input = self.input.eval(env)?;
        if input.is_nullish() {
            return Ok(Value::Null);
        }
        let Some(items) = input.as_array() else {
            bail!(16883, "input to $map must be an array not {}", input.type_name());
        };
        value::array(|out| {
            for item in items.iter() {
                item.tick()?;
                let value = [item.value()];
                let frame = Frame { first: self.id, values: &value, parent: env.frame };
                out.push_value(&self.body.eval(env.with(&frame))?);
                value::check_size(out.len())?;
            }
            Ok(())
        })
    }

    pub fn children(&self) -> impl Iterator<Item = &Node> {
        [&self.input, &self.body].into_iter()
    }

    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        [&mut self.input, &mut self.body].into_iter()
    }
}

pub(crate) fn parse_filter(
    parser: &mut Parser<'_>,
    _: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(28646, "$filter only supports an object as its argument");
    };
    let raw = Raw::new(doc, &["input", "as", "cond", "limit"], |name| {
        Error::location(28647, format!("Unrecognized parameter to $filter: {name}"))
    })?;
    let missing =
        |code, name| Error::location(code, format!("Missing '{name}' parameter to $filter"));
    let input = raw.required("input", || missing(28648, "input"))?;
    let cond = raw.required("cond", || missing(28650, "cond"))?;
    let input = parser.operand(&input)?;
    let name = raw.variable()?;
    let id = parser.new_local();
    let cond = parser.with_locals(vec![(name, id)], |parser| parser.operand(&cond))?;
    let limit = match doc.get("limit") {
        Some(limit) => parser.operand(&limit.value())?,
        None => Node::Absent,
    };
    Ok(Node::Filter(Box::new(Filter { input, id, cond, limit })))
}

impl Filter {
    pub fn eval<'t>(&'t self, env: Env<'t>) -> Result<Value<'t>> {
        work::check_stack()?;
        let input = self.input.eval(env)?;
        if input.is_nullish() {
            return Ok(Value::Null);
        }
        let Some(items) = input.as_array() else {
            bail!(28651, "input to $filter must be an array not {}", input.type_name());
        };
        let limit = filter_limit(&self.limit.eval(env)?)?;
        value::array(|out| {
            for item in items.iter() {
                item.tick()?;
                let value = [item.value()];
                let frame = Frame { first: self.id, values: &value, parent: env.frame };
                if self.cond.eval(env.with(&frame))?.truthy() {
                    out.push_elem(item);
                    if out.count() >= limit {
                        break;
                    }
                }
            }
            Ok(())
        })
    }

    pub fn children(&self) -> impl Iterator<Item = &Node> {
        [&self.input, &self.cond, &self.limit].into_iter()
    }

    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        [&mut self.input, &mut self.cond, &mut self.limit].into_iter()
    }
}

fn filter_limit(limit: &Value<'_>) -> Result<usize> {
    if limit.is_nullish() {
        return Ok(usize::MAX);
    }
    let Some(limit) = limit.as_i64_exact().filter(|n| i32::try_from(*n).is_ok()) else {
        bail!(327391, "$filter: limit must be represented as a 32-bit integral value: {limit:?}");
    };
    match usize::try_from(limit) {
        Ok(limit) if limit > 0 => Ok(limit),
        _ => bail!(327392, "$filter: limit must be greater than 0: {limit}"),
    }
}

pub(crate) fn parse_reduce(
    parser: &mut Parser<'_>,
    _: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(40075, "$reduce requires an object as an argument, found: {}", arg.type_name());
    };
    let raw = Raw::new(doc, &["input", "initialValue", "in"], |name| {
        Error::location(40076, format!("$reduce found an unknown argument: {name}"))
    })?;
    let missing =
        |code, name| Error::location(code, format!("$reduce requires '{name}' to be specified"));
    let input = raw.required("input", || missing(40077, "input"))?;
    let initial = raw.required("initialValue", || missing(40078, "initialValue"))?;
    let body = raw.required("in", || missing(40079, "in"))?;
    let input = parser.operand(&input)?;
    let initial = parser.operand(&initial)?;
    let (this, value) = (parser.new_local(), parser.new_local());
    let bindings = vec![("this".to_owned(), this), ("value".to_owned(), value)];
    let body = parser.with_locals(bindings, |parser| parser.operand(&body))?;
    Ok(Node::Reduce(Box::new(Reduce { input, initial, this, body })))
}

impl Reduce {
    pub fn eval<'t>(&'t self, env: Env<'t>) -> Result<Value<'t>> {
        work::check_stack()?;
        let input = self.input.eval(env)?;
        if input.is_nullish() {
            return Ok(Value::Null);
        }
        let Some(items) = input.as_array() else {
            bail!(40080, "$reduce requires that 'input' be an array, found: {}", input.type_name());
        };
        let mut value = self.initial.eval(env)?.into_owned();
        for item in items.iter() {
            item.tick()?;
            let values = [item.value(), value.borrow()];
            let both = Frame { first: self.this, values: &values, parent: env.frame };
            let next = self.body.eval(env.with(&both))?.into_owned();
            value::check_nesting(&next)?;
            value = next;
        }
        Ok(value)
    }

    pub fn children(&self) -> impl Iterator<Item = &Node> {
        [&self.input, &self.initial, &self.body].into_iter()
    }

    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        [&mut self.input, &mut self.initial, &mut self.body].into_iter()
    }
}
