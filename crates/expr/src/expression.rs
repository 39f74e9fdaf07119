//! The public interface of an expression: parse once, evaluate per document.

use crate::dependencies::{Dependencies, collect};
use crate::eval::{Env, EvalCx};
use crate::node::Node;
use crate::ops::registry;
use crate::optimize::optimize;
use crate::parse::{ParseCx, Parser};
use crate::path::FieldPath;
use kauri_base::Result;
use kauri_bson::{Doc, Value};

/// Whether an operator of this name (`$add`) exists.
pub fn is_expression_name(name: &str) -> bool {
    registry::find(name).is_some()
}

/// The names of all operators.
pub fn expression_names() -> impl Iterator<Item = &'static str> {
    registry::names()
}

/// A parsed and optimised expression.
#[derive(Debug)]
pub struct Expression {
    node: Node,
}

impl Expression {
    /// Parses a value wherever an expression may stand; errors that constants hold show here,
    /// unless [`ParseCx::evaluates_late`].
    pub fn parse(value: &Value<'_>, cx: &ParseCx) -> Result<Expression> {
        let node = Parser::new(cx).operand(value)?;
        Ok(Expression { node: optimize(node, cx.evaluates_late)? })
    }

    /// A constant.
    pub fn literal(value: Value<'_>) -> Expression {
        Expression { node: Node::Literal(value.into_owned()) }
    }

    /// The field at a path from the document.
    pub fn field(path: FieldPath) -> Expression {
        Expression { node: Node::Field(path) }
    }

    pub(crate) fn of_node(node: Node) -> Expression {
        Expression { node }
    }

    /// Evaluates for a document. Values are borrowed from the document, the expression or `cx` where possible.
    #[inline]
    pub fn eval<'d>(&'d self, cx: &'d EvalCx<'d>, root: Doc<'d>) -> Result<Value<'d>> {
        self.node.eval(Env { root, frame: None, cx })
    }

    /// The dependencies of evaluation.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        self.add_dependencies(&mut found);
        found
    }

    /// Adds the dependencies of evaluation to others.
    pub fn add_dependencies(&self, found: &mut Dependencies) {
        collect(&self.node, found);
    }

    /// The path, if the expression is a field of the document and nothing else.
    pub fn as_field(&self) -> Option<&FieldPath> {
        match &self.node {
            Node::Field(path) => Some(path),
            _ => None,
        }
    }

    /// The value, if it is the same for every document.
    pub fn as_constant(&self) -> Option<&Value<'static>> {
        self.node.as_literal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{array, doc};

    #[test]
    fn parses_and_evaluates() {
        let root = doc! { "a" => 1, "b" => array![doc! { "c" => "x" }, 5, doc! { "c" => "y" }] };
        let cases: Vec<(Value<'_>, Value<'_>)> = vec![
            ("$a".into(), 1.into()),
            ("$b.c".into(), array!["x", "y"]),
            ("$none".into(), Value::Missing),
            (array!["$a", "$none"], array![1, Value::Null]),
            (doc! { "k" => "$a", "n" => "$none" }.into(), doc! { "k" => 1 }.into()),
            (doc! { "$literal" => "$a" }.into(), "$a".into()),
            (
                doc! { "$map" => doc! { "input" => "$b.c", "in" => doc! {
                "$concat" => array!["$$this", "!"] } } }
                .into(),
                array!["x!", "y!"],
            ),
        ];
        for (spec, expected) in cases {
            let expression = Expression::parse(&spec, &ParseCx::default()).unwrap();
            let cx = EvalCx::default();
            assert_eq!(expression.eval(&cx, root.as_doc()).unwrap(), expected, "{spec:?}");
        }
    }
}
