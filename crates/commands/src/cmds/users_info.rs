//! `usersInfo` and `rolesInfo`: there are no users and no user-defined roles.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::Result;
use kauri_bson::{Type, Value};

/// `usersInfo`.
pub const USERS: Command = Command::read("usersInfo", "returns users", users);

/// `rolesInfo`.
pub const ROLES: Command = Command::read("rolesInfo", "returns roles", roles);

fn users<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        check(invocation)?;
        invocation.reply.put_value("users", &Value::array([]));
        Ok(())
    })
}

fn roles<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        check(invocation)?;
        invocation.reply.put_value("roles", &Value::array([]));
        Ok(())
    })
}

fn check(invocation: &Invocation<'_>) -> Result<()> {
    let args = Args::new(invocation.name);
    let target = invocation.target()?;
    if !target.ty().is_number()
        && !matches!(target.ty(), Type::String | Type::Document | Type::Array)
    {
        return Err(args.wrong_type(target, &["string", "object", "array", "long"]));
    }
    invocation.body.iter().skip(1).try_for_each(|elem| args.other(elem))
}
