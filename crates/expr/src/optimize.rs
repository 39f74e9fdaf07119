//! Constant folding. It is visible to clients: an error in a constant subexpression is an error of the whole
//! expression, even if no document reaches it.

use crate::eval::{Env, EvalCx};
use crate::node::{Call, Node, VarRef};
use crate::ops::registry;
use kauri_base::{Result, bail, work};
use kauri_bson::{Doc, Value};

/// Folds constants. `late`: a constant whose evaluation fails stays unchanged, and fails at evaluation.
pub(crate) fn optimize(node: Node, late: bool) -> Result<Node> {
    work::check_stack()?;
    work::tick(1)?;
    Ok(match node {
        Node::Object(fields) => {
            let fields = fields.into_iter().map(|(name, node)| Ok((name, optimize(node, late)?)));
            fold_if(Node::Object(fields.collect::<Result<_>>()?), late)?
        }
        Node::Array(items) => {
            let items = items.into_iter().map(|item| optimize(item, late));
            fold_if(Node::Array(items.collect::<Result<_>>()?), late)?
        }
        Node::Call(call) => optimize_call(*call, late)?,
        Node::Let(mut inner) => {
            optimize_all(inner.children_mut(), late)?;
            Node::Let(inner)
        }
        Node::Map(mut inner) => {
            optimize_all(inner.children_mut(), late)?;
            Node::Map(inner)
        }
        Node::Filter(mut inner) => {
            optimize_all(inner.children_mut(), late)?;
            Node::Filter(inner)
        }
        Node::Reduce(mut inner) => {
            optimize_all(inner.children_mut(), late)?;
            Node::Reduce(inner)
        }
        Node::Variable(VarRef::Remove, _) => Node::Literal(Value::Missing),
        other => other,
    })
}

fn optimize_all<'n>(nodes: impl Iterator<Item = &'n mut Node>, late: bool) -> Result<()> {
    for node in nodes {
        *node = optimize(std::mem::replace(node, Node::Absent), late)?;
    }
    Ok(())
}

fn optimize_call(mut call: Call, late: bool) -> Result<Node> {
    match call.op.name {
        "$switch" => return optimize_switch(call, late),
        "$and" | "$or" => {
            optimize_all(call.args.iter_mut(), late)?;
            // A constant decides wherever it stands, before anything is evaluated.
            let decisive = call.op.name == "$or";
            let truth = |node: &Node| node.as_literal().map(Value::truthy);
            if call.args.iter().any(|node| truth(node) == Some(decisive)) {
                return Ok(Node::Literal(Value::Bool(decisive)));
            }
        }
        "$cond" => {
            optimize_all(call.args.iter_mut(), late)?;
            let chosen = match call.args.first().and_then(Node::as_literal) {
                Some(condition) if condition.truthy() => 1,
                Some(_) => 2,
                None => return Ok(Node::Call(Box::new(call))),
            };
            if let Some(node) = call.args.get_mut(chosen) {
                return Ok(std::mem::replace(node, Node::Absent));
            }
        }
        "$setUnion" | "$setIntersection" => {
            optimize_all(call.args.iter_mut(), late)?;
            // Constants are looked at last.
            call.args.sort_by_key(is_constant);
        }
        _ => optimize_all(call.args.iter_mut(), late)?,
    }
    if let Some(prepare) = call.op.prepare {
        prepare(&mut call)?;
    }
    fold_if(Node::Call(Box::new(call)), late)
}

/// Drops branches that cannot be taken, unfolded, and what stands behind one that always is.
fn optimize_switch(mut call: Call, late: bool) -> Result<Node> {
    let mut args = std::mem::take(&mut call.args).into_vec();
    let default = args.pop().map_or(Ok(Node::Absent), |node| optimize(node, late))?;
    let mut kept = Vec::new();
    let mut branches = args.into_iter();
    while let (Some(case), Some(then)) = (branches.next(), branches.next()) {
        let case = optimize(case, late)?;
        match case.as_literal().map(Value::truthy) {
            Some(false) => continue,
            Some(true) if kept.is_empty() => return optimize(then, late),
            always => {
                kept.extend([case, optimize(then, late)?]);
                if always == Some(true) {
                    break;
                }
            }
        }
    }
    if kept.is_empty() {
        if default.is_absent() && !late {
            bail!(
                40069,
                "One cannot execute a switch statement where all the cases evaluate to false \
                 without a default."
            );
        }
        if !default.is_absent() {
            return Ok(default);
        }
    }
    kept.push(default);
    fold_if(Node::Call(Box::new(Call { args: kept.into(), ..call })), late)
}

/// Operators whose value is no matter of their arguments alone.
const DIFFERS_BY_DOCUMENT: [&str; 2] = ["$rand", "$meta"];

fn is_constant(node: &Node) -> bool {
    matches!(node, Node::Literal(_) | Node::Absent)
}

/// Evaluates the node if all its children are constants.
fn fold_if(mut node: Node, late: bool) -> Result<Node> {
    let constant = match &node {
        Node::Object(fields) => fields.iter().all(|(_, node)| is_constant(node)),
        Node::Array(items) => items.iter().all(is_constant),
        Node::Call(call) => {
            !DIFFERS_BY_DOCUMENT.contains(&call.op.name) && call.args.iter().all(is_constant)
        }
        _ => false,
    };
    if !constant {
        return Ok(node);
    }
    if let Node::Call(call) = &mut node {
        call.op = registry::find(call.op.name).unwrap_or(call.op);
    }
    let cx = EvalCx::default();
    let env = Env { root: Doc::EMPTY, frame: None, cx: &cx };
    match node.eval(env).map(Value::into_owned) {
        Ok(value) => Ok(Node::Literal(value)),
        Err(_) if late => Ok(node),
        Err(error) => Err(error),
    }
}
