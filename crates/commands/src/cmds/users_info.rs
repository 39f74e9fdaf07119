//! `usersInfo` and `rolesInfo`: there are neither users nor roles of one's own.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_base::Result;
use kauri_bson::{Type, Value};

/// `usersInfo`.
pub const USERS: Command =
    Command { access: Access::Read, ..Command::new("usersInfo", "tells of users", users) };

/// `rolesInfo`.
pub const ROLES: Command =
    Command { access: Access::Read, ..Command::new("rolesInfo", "tells of roles", roles) };

fn users<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        check(
            invocation,
            &[
                "showCredentials",
                "showCustomData",
                "showPrivileges",
                "showAuthenticationRestrictions",
            ],
            &["filter"],
        )?;
        invocation.reply.put_value("users", &Value::array([]));
        Ok(())
    })
}

fn roles<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        check(invocation, &["showBuiltinRoles", "showAuthenticationRestrictions"], &[])?;
        invocation.reply.put_value("roles", &Value::array([]));
        Ok(())
    })
}

fn check(invocation: &Invocation<'_>, flags: &[&str], objects: &[&str]) -> Result<()> {
    let args = Args::new(invocation.name);
    let target = invocation.target()?;
    if !target.ty().is_number()
        && !matches!(target.ty(), Type::String | Type::Document | Type::Array)
    {
        return Err(args.wrong_type(target, &["string", "object", "array", "long"]));
    }
    for elem in invocation.body.iter().skip(1) {
        match elem.key() {
            "showPrivileges" => {}
            key if flags.contains(&key) => {
                let _ = args.given(elem, Args::safe_bool)?;
            }
            key if objects.contains(&key) => {
                let _ = args.given(elem, Args::object)?;
            }
            _ => args.other(elem)?,
        }
    }
    Ok(())
}
