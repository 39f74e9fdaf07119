//! Parses BSON into a tree.
//!
//! A string that begins with `$` is a path, one with `$$` a variable. A document whose first name begins with `$`
//! is an operator; any other document is an object to build. An array is an array to build. Any other value is a
//! literal.

use crate::node::{Call, Node, Prepared, VarRef};
use crate::ops::registry::{self, Arity, Op};
use crate::path::{self, FieldPath};
use crate::value;
use crate::variables::{self, VariableScope};
use kauri_base::{Error, Result, bail, work};
use kauri_bson::{Doc, Value};
use std::collections::{HashMap, HashSet};

/// The context of parsing.
#[derive(Clone, Debug, Default)]
pub struct ParseCx {
    /// Variables that are bound outside.
    pub vars: VariableScope,
    /// Whether the expression is a `$group`'s key or an accumulator's argument: MongoDB evaluates
    /// those elsewhere, and some errors have other codes there.
    pub in_group: bool,
    /// Whether an error in a constant shows only at evaluation, as in a pipeline update: an update that matches
    /// nothing evaluates nothing.
    pub evaluates_late: bool,
    /// Whether the deployment has a cluster time; `$$CLUSTER_TIME` is an error where it has not.
    pub has_cluster_time: bool,
    /// Whether `$$NOW` has no value here, and is an error.
    pub lacks_now: bool,
}

/// The state of a parse: the variables in scope.
pub(crate) struct Parser<'p> {
    cx: &'p ParseCx,
    /// The bindings in scope by name, the innermost last.
    locals: HashMap<String, Vec<VarRef>>,
    next_local: u32,
}

impl<'p> Parser<'p> {
    pub fn new(cx: &'p ParseCx) -> Self {
        Parser { cx, locals: HashMap::new(), next_local: 0 }
    }

    /// Parses a value wherever an expression may stand.
    pub fn operand(&mut self, value: &Value<'_>) -> Result<Node> {
        work::check_stack()?;
        match value {
            Value::String(text) if text.starts_with('$') => self.path(text),
            text if text.string_bytes().is_some() => {
                let bytes = text.string_bytes().unwrap_or_default();
                if text.is_not_utf8() && bytes.starts_with(b"$") {
                    return Err(kauri_bson::not_utf8::error("a field path"));
                }
                value::check_text(bytes.len())?;
                Ok(Node::Literal(text.clone().into_owned()))
            }
            Value::Document(doc) => self.object(doc.as_doc()),
            Value::Array(items) => {
                let items: Result<Box<[Node]>> =
                    items.as_doc().ticked().map(|e| self.operand(&e?.value())).collect();
                Ok(Node::Array(items?))
            }
            other => Ok(Node::Literal(other.clone().into_owned())),
        }
    }

    /// Parses a document: an operator or an object to build.
    pub fn object(&mut self, doc: Doc<'_>) -> Result<Node> {
        match doc.first() {
            Some(first) if first.key().starts_with('$') => {
                let count = doc.count_ticked()?;
                if count != 1 {
                    bail!(
                        15983,
                        "an object representing an expression must have exactly one field: {doc:?}"
                    );
                }
                self.operator(first.key(), &first.value())
            }
            None => Ok(Node::Literal(Doc::EMPTY.into())),
            _ => self.fields(doc),
        }
    }

    fn fields(&mut self, doc: Doc<'_>) -> Result<Node> {
        let mut fields: Vec<(String, Node)> = Vec::new();
        let mut names = HashSet::new();
        for elem in doc.ticked() {
            let elem = elem?;
            let name = elem.key();
            path::check_object_name(name)?;
            if !names.insert(name) {
                bail!(16406, "duplicate field name specified in object literal: {doc:?}");
            }
            fields.push((name.to_owned(), self.operand(&elem.value())?));
        }
        Ok(Node::Object(fields.into()))
    }

    /// Parses `{name: argument}`.
    pub fn operator(&mut self, name: &str, argument: &Value<'_>) -> Result<Node> {
        let op =
            if self.cx.in_group { registry::find_in_group(name) } else { registry::find(name) };
        let Some(op) = op else {
            bail!(InvalidPipelineOperator, "Unrecognized expression '{name}'");
        };
        (op.parse)(self, op, argument)
    }

    /// Parses `$a.b` or `$$name.a.b`.
    pub fn path(&mut self, text: &str) -> Result<Node> {
        let Some(rest) = text.strip_prefix('$') else {
            bail!(16873, "FieldPath '{text}' doesn't start with $");
        };
        if rest.is_empty() {
            bail!(16872, "'$' by itself is not a valid FieldPath");
        }
        let Some(rest) = rest.strip_prefix('$') else {
            let path = FieldPath::parse(rest)?;
            return Ok(match self.lookup("CURRENT") {
                None => Node::Field(path),
                Some(variable) => Node::Variable(variable, Some(path)),
            });
        };
        let (name, path) = match rest.split_once('.') {
            Some((name, path)) => (name, Some(path)),
            None => (rest, None),
        };
        variables::check_name_for_read(name)?;
        let variable = self.variable(name)?;
        let path = match path {
            Some("") => bail!(40353, "FieldPath must not end with a '.'."),
            Some(path) => Some(FieldPath::parse(path)?),
            None => None,
        };
        Ok(match (variable, path) {
            (None, Some(path)) => Node::Field(path),
            (None, None) => Node::Root,
            (Some(variable), path) => Node::Variable(variable, path),
        })
    }

    fn lookup(&self, name: &str) -> Option<VarRef> {
        let local = self.locals.get(name).and_then(|bound| bound.last());
        local.cloned().or_else(|| self.cx.vars.position(name).map(VarRef::Outer))
    }

    /// The meaning of a variable's name; `None` is the document.
    fn variable(&self, name: &str) -> Result<Option<VarRef>> {
        if let Some(variable) = self.lookup(name) {
            return Ok(Some(variable));
        }
        Ok(Some(match name {
            "ROOT" | "CURRENT" => return Ok(None),
            "REMOVE" => VarRef::Remove,
            "NOW" if self.cx.lacks_now => {
                bail!(51144, "Builtin variable '$$NOW' is not available")
            }
            "NOW" => VarRef::Now,
            "CLUSTER_TIME" if self.cx.has_cluster_time => VarRef::ClusterTime,
            "CLUSTER_TIME" => {
                bail!(10071200, "Builtin variable '$$CLUSTER_TIME' is not available")
            }
            "USER_ROLES" => VarRef::UserRoles,
            "SEARCH_META" => VarRef::Unset("SEARCH_META"),
            _ => bail!(17276, "Use of undefined variable: {name}"),
        }))
    }

    /// Makes an id for a variable that is about to be bound.
    pub fn new_local(&mut self) -> u32 {
        self.next_local += 1;
        self.next_local
    }

    /// Parses with these bindings in scope.
    pub fn with_locals<T>(
        &mut self,
        bindings: Vec<(String, u32)>,
        parse: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        for (name, id) in &bindings {
            self.locals.entry(name.clone()).or_default().push(VarRef::Local(*id));
        }
        let result = parse(self);
        for (name, _) in &bindings {
            self.locals.get_mut(name).map(Vec::pop);
        }
        result
    }

    /// The arguments of an operator that takes a list: the elements of an array, or one value.
    pub fn list(&mut self, argument: &Value<'_>) -> Result<Vec<Node>> {
        match argument {
            Value::Array(items) => {
                items.as_doc().ticked().map(|e| self.operand(&e?.value())).collect()
            }
            other => Ok(vec![self.operand(other)?]),
        }
    }

    /// Parses named arguments into the order of `names`, `Absent` where not given; `unknown` makes
    /// the error for any other name.
    pub fn named(
        &mut self,
        doc: Doc<'_>,
        names: &[&str],
        unknown: impl Fn(&str) -> Error,
    ) -> Result<Vec<Node>> {
        let mut nodes: Vec<Node> = names.iter().map(|_| Node::Absent).collect();
        for elem in doc {
            let place = names.iter().position(|n| *n == elem.key());
            let slot = place.and_then(|p| nodes.get_mut(p)).ok_or_else(|| unknown(elem.key()))?;
            *slot = self.operand(&elem.value())?;
        }
        Ok(nodes)
    }
}

/// The parser of operators that take a list of arguments.
pub(crate) fn parse_list(
    parser: &mut Parser<'_>,
    op: &'static Op,
    argument: &Value<'_>,
) -> Result<Node> {
    let args = parser.list(argument)?;
    check_arity(op, args.len())?;
    Ok(call(op, args))
}

/// Checks the number of arguments as the table says.
pub(crate) fn check_arity(op: &Op, count: usize) -> Result<()> {
    match op.arity {
        Arity::Exactly(wanted) if count != wanted => bail!(
            16020,
            "Expression {} takes exactly {wanted} arguments. {count} were passed in.",
            op.name
        ),
        Arity::Between(least, most) if count < least || count > most => bail!(
            28667,
            "Expression {} takes at least {least} arguments, and at most {most}, but {count} were passed in.",
            op.name
        ),
        _ => Ok(()),
    }
}

/// A call of an operator.
pub(crate) fn call(op: &'static Op, args: Vec<Node>) -> Node {
    prepared_call(op, args, Prepared::Nothing)
}

/// A call of an operator that keeps something ready.
pub(crate) fn prepared_call(op: &'static Op, args: Vec<Node>, prepared: Prepared) -> Node {
    Node::Call(Box::new(Call { op, args: args.into(), prepared }))
}
