//! `$literal` and its old name `$const`.

use crate::eval::Env;
use crate::node::{Call, Node};
use crate::ops::registry::Op;
use crate::parse::Parser;
use crate::value;
use kauri_base::Result;
use kauri_bson::Value;

pub(crate) fn parse_literal(_: &mut Parser<'_>, _: &'static Op, arg: &Value<'_>) -> Result<Node> {
    if let Some(text) = arg.string_bytes() {
        value::check_text(text.len())?;
    }
    Ok(Node::Literal(arg.clone().into_owned()))
}

/// Never called: a literal is parsed into a constant.
pub(crate) fn literal<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    call.arg(0, env)
}
