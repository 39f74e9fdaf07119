//! Constant folding. It shows: an error in a constant subexpression is an error of the whole
//! expression, whether or not a document ever gets there.

use crate::eval::{Env, EvalCx};
use crate::node::{Call, Node, VarRef};
use kauri_base::Result;
use kauri_bson::{Doc, Value};

/// Folds what is constant.
pub(crate) fn optimize(node: Node) -> Result<Node> {
    Ok(match node {
        Node::Object(fields) => {
            let fields = fields.into_iter().map(|(name, node)| Ok((name, optimize(node)?)));
            fold_if(Node::Object(fields.collect::<Result<_>>()?))?
        }
        Node::Array(items) => {
            let items = items.into_iter().map(optimize);
            fold_if(Node::Array(items.collect::<Result<_>>()?))?
        }
        Node::Call(call) => optimize_call(*call)?,
        Node::Let(mut inner) => {
            optimize_all(inner.children())?;
            Node::Let(inner)
        }
        Node::Map(mut inner) => {
            optimize_all(inner.children())?;
            Node::Map(inner)
        }
        Node::Filter(mut inner) => {
            optimize_all(inner.children())?;
            Node::Filter(inner)
        }
        Node::Reduce(mut inner) => {
            optimize_all(inner.children())?;
            Node::Reduce(inner)
        }
        Node::Variable(VarRef::Remove, _) => Node::Literal(Value::Missing),
        other => other,
    })
}

fn optimize_all<'n>(nodes: impl Iterator<Item = &'n mut Node>) -> Result<()> {
    for node in nodes {
        *node = optimize(std::mem::replace(node, Node::Absent))?;
    }
    Ok(())
}

fn optimize_call(mut call: Call) -> Result<Node> {
    optimize_all(call.args.iter_mut())?;
    fold_if(Node::Call(Box::new(call)))
}

fn is_constant(node: &Node) -> bool {
    matches!(node, Node::Literal(_) | Node::Absent)
}

/// Evaluates the node if all its children are constants.
fn fold_if(node: Node) -> Result<Node> {
    let constant = match &node {
        Node::Object(fields) => fields.iter().all(|(_, node)| is_constant(node)),
        Node::Array(items) => items.iter().all(is_constant),
        Node::Call(call) => call.args.iter().all(is_constant),
        _ => false,
    };
    if !constant {
        return Ok(node);
    }
    let cx = EvalCx::default();
    let env = Env { root: Doc::EMPTY, frame: None, cx: &cx };
    let value = node.eval(env)?.into_owned();
    Ok(Node::Literal(value))
}
