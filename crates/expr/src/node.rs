//! The tree of a parsed expression, and its evaluation.

use crate::accum::percentile::Method;
use crate::eval::Env;
use crate::ops::binding::{Filter, Let, MapOver, Reduce};
use crate::ops::convert::Target;
use crate::ops::members::Members;
use crate::ops::registry::Op;
use crate::ops::sort::SortBy;
use crate::path::FieldPath;
use crate::regex::{Regex, RegexCache};
use crate::value;
use kauri_base::{Result, work};
use kauri_bson::{DocWriter, Value};
use std::sync::Arc;

/// A node of the tree.
#[derive(Debug)]
pub(crate) enum Node {
    /// A constant.
    Literal(Value<'static>),
    /// An argument that was not given (evaluates as missing).
    Absent,
    /// `$a.b`: a path from the current document.
    Field(FieldPath),
    /// `$$ROOT`, and `$$CURRENT` where nothing rebinds it.
    Root,
    /// `$$name`, `$$name.a.b`.
    Variable(VarRef, Option<FieldPath>),
    /// `{a: …, b: …}`
    Object(Box<[(String, Node)]>),
    /// `[…]`
    Array(Box<[Node]>),
    /// An operator with its arguments.
    Call(Box<Call>),
    Let(Box<Let>),
    Map(Box<MapOver>),
    Filter(Box<Filter>),
    Reduce(Box<Reduce>),
}

/// The meaning of a variable's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VarRef {
    /// Bound within the expression.
    Local(u32),
    /// By position in the scope.
    Outer(usize),
    Remove,
    Now,
    ClusterTime,
    UserRoles,
    /// Known by name, never there (`SEARCH_META`).
    Unset(&'static str),
}

/// An operator with its arguments. Named arguments are in the order of the operator's table, `Absent` if missing.
#[derive(Debug)]
pub(crate) struct Call {
    pub op: &'static Op,
    pub args: Box<[Node]>,
    pub prepared: Prepared,
}

/// Results of an operator's parsing.
#[derive(Debug)]
pub(crate) enum Prepared {
    Nothing,
    /// A constant pattern; `None` if it is null.
    Regex(Option<Arc<Regex>>),
    /// Patterns that come from documents.
    Regexes(RegexCache),
    /// A sort order.
    Sort(SortBy),
    /// `$zip`: how many of the arguments are inputs.
    Zip {
        inputs: usize,
        longest: bool,
    },
    /// What `$toInt` and its like convert to.
    Target(Target),
    /// `$percentile` (`$median` without `p`).
    Percentile {
        p: Option<Vec<f64>>,
        method: Method,
    },
    /// A name: of a field, of metadata.
    Name(String),
    /// `$in` with a constant array.
    Members(Members),
}

impl Call {
    /// Evaluates the argument at this position; a missing value if there is none. A long text is counted as
    /// work: operators go through it.
    #[inline]
    pub fn arg<'t>(&'t self, position: usize, env: Env<'t>) -> Result<Value<'t>> {
        let Some(node) = self.args.get(position) else { return Ok(Value::Missing) };
        let value = node.eval(env)?;
        if matches!(value, Value::String(_) | Value::Binary { .. } | Value::NotUtf8 { .. }) {
            tick_text(&value)?;
        }
        Ok(value)
    }
}

#[inline(never)]
fn tick_text(value: &Value<'_>) -> Result<()> {
    match value {
        Value::String(text) => work::tick_bytes(text.len()),
        Value::Binary { bytes, .. } | Value::NotUtf8 { bytes, .. } => work::tick_bytes(bytes.len()),
        _ => Ok(()),
    }
}

impl Node {
    /// The constant, if it is one.
    pub fn as_literal(&self) -> Option<&Value<'static>> {
        match self {
            Node::Literal(value) => Some(value),
            _ => None,
        }
    }

    pub fn is_absent(&self) -> bool {
        matches!(self, Node::Absent)
    }

    /// Evaluates the node.
    pub fn eval<'t>(&'t self, env: Env<'t>) -> Result<Value<'t>> {
        work::tick(1)?;
        match self {
            Node::Literal(value) => Ok(value.borrow()),
            Node::Absent => Ok(Value::Missing),
            Node::Field(path) => Ok(path.get(env.root)),
            Node::Root => Ok(env.root.into()),
            Node::Call(call) => {
                work::check_stack()?;
                (call.op.eval)(call, env)
            }
            Node::Variable(variable, path) => eval_variable(variable, path.as_ref(), env),
            Node::Object(fields) => eval_object(fields, env),
            Node::Array(items) => eval_array(items, env),
            Node::Let(node) => node.eval(env),
            Node::Map(node) => node.eval(env),
            Node::Filter(node) => node.eval(env),
            Node::Reduce(node) => node.eval(env),
        }
    }
}

fn eval_variable<'t>(
    variable: &VarRef,
    path: Option<&FieldPath>,
    env: Env<'t>,
) -> Result<Value<'t>> {
    let whole = match variable {
        VarRef::Local(id) => env.local(*id),
        VarRef::Outer(position) => env.cx.vars.get(*position),
        VarRef::UserRoles => env.cx.user_roles,
        VarRef::Remove | VarRef::Unset(_) => None,
        VarRef::Now => {
            return Ok(match path {
                Some(_) => Value::Missing,
                None => Value::DateTime(env.cx.now_ms),
            });
        }
        VarRef::ClusterTime => {
            let time = env.cx.cluster_time.filter(|_| path.is_none());
            return Ok(time.map_or(Value::Missing, Value::Timestamp));
        }
    };
    Ok(match (whole, path) {
        (Some(value), Some(path)) => path.get_in(value),
        (Some(value), None) => value.borrow(),
        (None, _) => Value::Missing,
    })
}

fn eval_object<'t>(fields: &'t [(String, Node)], env: Env<'t>) -> Result<Value<'t>> {
    value::document(|out| write_fields(out, fields, env))
}

fn write_fields<'t>(
    out: &mut DocWriter<'_>,
    fields: &'t [(String, Node)],
    env: Env<'t>,
) -> Result<()> {
    work::check_stack()?;
    for (name, node) in fields {
        match node {
            // Nested literals go straight into the outer one's bytes.
            Node::Object(fields) => write_fields(&mut out.document(name), fields, env)?,
            _ => out.put_value(name, &node.eval(env)?),
        }
        value::check_size(out.len())?;
    }
    Ok(())
}

fn eval_array<'t>(items: &'t [Node], env: Env<'t>) -> Result<Value<'t>> {
    work::check_stack()?;
    value::array(|out| {
        for node in items {
            out.push_value(&node.eval(env)?);
            value::check_size(out.len())?;
        }
        Ok(())
    })
}
