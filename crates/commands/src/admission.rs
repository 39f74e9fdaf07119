//! Admission: the checks that every request passes before its command runs, on every path.
//!
//! The result is immediate. A caller that gets a reason to wait waits and asks again; the express path leaves that
//! to dispatch. Commands declare their policy in the registry: this module must not know command names.

use crate::registry::{Asked, Command, Role, Roles};
use crate::server::Server;
use kauri_base::{Result, bail};
use std::sync::atomic::Ordering;

/// Why an admitted request doesn't run yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// `fsync` with `lock` keeps writers out.
    Unlock,
    /// Memory is full, and the command adds to it.
    Memory,
}

/// Fails if the request may not run. `Some`: it may run, but not yet.
pub fn admit(server: &Server, command: &Command, asked: Asked<'_>) -> Result<Option<Wait>> {
    if !command.needs_no_login {
        check_not_stopping(server)?;
    }
    check_role(command, asked, server.role())?;
    // Nobody has to log in, so privileges are granted.
    if command.adds_memory && server.backend.engine().is_full() {
        return Ok(Some(Wait::Memory));
    }
    if server.fsync_lock.is_locked() && command.is_write(asked) {
        return Ok(Some(Wait::Unlock));
    }
    Ok(None)
}

/// Fails once the server is ending.
pub fn check_not_stopping(server: &Server) -> Result<()> {
    if server.stopping.load(Ordering::Relaxed) {
        bail!(ShutdownInProgress, "The server is in quiesce mode and will shut down");
    }
    Ok(())
}

fn check_role(command: &Command, asked: Asked<'_>, role: Role) -> Result<()> {
    let may_write = Roles::WRITABLE.contains(role) || !command.is_write(asked);
    if command.roles.contains(role) && may_write {
        return Ok(());
    }
    if may_write && command.roles.contains(Role::Secondary) {
        bail!(NotPrimaryOrSecondary, "node is not in primary or recovering state");
    }
    bail!(NotWritablePrimary, "not primary");
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::ErrorCode;
    use kauri_bson::{array, doc};

    #[test]
    fn a_command_runs_where_it_says() {
        let of = |name: &str| crate::registry::by_name()[name].command;
        let sink = doc! { "aggregate" => "c", "pipeline" => array![doc! { "$out" => "d" }] };
        let plain = doc! { "aggregate" => "c", "pipeline" => array![] };
        let code = |name: &str, role| {
            let body = if name == "$out" { sink.as_doc() } else { plain.as_doc() };
            let name = if name == "$out" { "aggregate" } else { name };
            check_role(of(name), Asked { db: "d", body }, role)
                .map_or_else(|error| error.code(), |()| ErrorCode::OK)
        };
        let roles = [Role::Standalone, Role::Primary, Role::Secondary, Role::Arbiter];
        let none = ErrorCode::NotPrimaryOrSecondary;
        let primary = ErrorCode::NotWritablePrimary;
        for (name, expected) in [
            ("ping", [ErrorCode::OK; 4]),
            ("find", [ErrorCode::OK, ErrorCode::OK, ErrorCode::OK, none]),
            ("aggregate", [ErrorCode::OK, ErrorCode::OK, ErrorCode::OK, none]),
            ("$out", [ErrorCode::OK, ErrorCode::OK, primary, primary]),
            ("insert", [ErrorCode::OK, ErrorCode::OK, primary, primary]),
        ] {
            assert_eq!(roles.map(|role| code(name, role)), expected, "{name}");
        }
    }
}
