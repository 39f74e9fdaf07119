//! String operators.

use crate::eval::Env;
use crate::node::Call;
use crate::value;
use kauri_base::{Result, bail};
use kauri_bson::Value;

pub(crate) fn concat<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut text = String::new();
    for node in &call.args {
        match node.eval(env)? {
            Value::String(part) => text.push_str(&part),
            value if value.is_nullish() => return Ok(Value::Null),
            value => bail!(16702, "$concat only supports strings, not {}", value.type_name()),
        }
        value::check_text(text.len())?;
    }
    value::text(text)
}
