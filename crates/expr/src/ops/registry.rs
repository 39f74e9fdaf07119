//! Every operator's name, how many arguments it takes, how it is parsed and evaluated.

use crate::eval::Env;
use crate::node::{Call, Node};
use crate::ops::{binding, boolean, compare, conditional, literal, string};
use crate::parse::{Parser, parse_list};
use kauri_base::Result;
use kauri_bson::Value;
use std::collections::HashMap;
use std::sync::LazyLock;

/// How many arguments an operator takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arity {
    Any,
    Exactly(usize),
}

pub(crate) type ParseFn = fn(&mut Parser<'_>, &'static Op, &Value<'_>) -> Result<Node>;
pub(crate) type EvalFn = for<'t> fn(&'t Call, Env<'t>) -> Result<Value<'t>>;

/// An operator.
pub(crate) struct Op {
    pub name: &'static str,
    pub arity: Arity,
    pub parse: ParseFn,
    pub eval: EvalFn,
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn op(name: &'static str, arity: Arity, eval: EvalFn) -> Op {
    Op { name, arity, parse: parse_list, eval }
}

const fn custom(name: &'static str, parse: ParseFn, eval: EvalFn) -> Op {
    Op { name, arity: Arity::Any, parse, eval }
}

/// For operators that are parsed into something other than a call.
const fn parsed(name: &'static str, parse: ParseFn) -> Op {
    Op { name, arity: Arity::Any, parse, eval: literal::literal }
}

use Arity::{Any, Exactly};

static OPS: &[Op] = &[
    parsed("$literal", literal::parse_literal),
    parsed("$const", literal::parse_literal),
    parsed("$let", binding::parse_let),
    parsed("$map", binding::parse_map),
    parsed("$filter", binding::parse_filter),
    parsed("$reduce", binding::parse_reduce),
    op("$and", Any, boolean::and),
    op("$or", Any, boolean::or),
    op("$not", Exactly(1), boolean::not),
    op("$cmp", Exactly(2), compare::cmp),
    op("$eq", Exactly(2), compare::eq),
    op("$ne", Exactly(2), compare::ne),
    op("$gt", Exactly(2), compare::gt),
    op("$gte", Exactly(2), compare::gte),
    op("$lt", Exactly(2), compare::lt),
    op("$lte", Exactly(2), compare::lte),
    Op {
        name: "$cond",
        arity: Exactly(3),
        parse: conditional::parse_cond,
        eval: conditional::cond,
    },
    custom("$ifNull", conditional::parse_if_null, conditional::if_null),
    custom("$switch", conditional::parse_switch, conditional::switch),
    op("$concat", Any, string::concat),
];

/// The operator of this name.
pub(crate) fn find(name: &str) -> Option<&'static Op> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Op>> =
        LazyLock::new(|| OPS.iter().map(|op| (op.name, op)).collect());
    BY_NAME.get(name).copied()
}
