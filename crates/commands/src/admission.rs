//! Admission: the checks that every request passes before its command runs, on every path.
//!
//! The result is immediate. A caller that gets a reason to wait waits and asks again; the express path leaves that
//! to dispatch. Commands declare their policy in the registry: this module must not know command names.

use crate::registry::{Asked, Command, Role, Roles};
use crate::server::Server;
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, Value};
use std::sync::atomic::Ordering;

/// Why an admitted request doesn't run yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// `fsync` with `lock` keeps writers out.
    Unlock,
    /// Memory is full, and the command adds to it.
    Memory,
}

/// The database of a member that other members do not have.
const OWN_DATABASE: &str = "local";

/// Fails if the request may not run. `Some`: it may run, but not yet. `secondary_ok`: a secondary may answer.
pub fn admit(
    server: &Server,
    command: &Command,
    asked: Asked<'_>,
    secondary_ok: bool,
) -> Result<Option<Wait>> {
    if !command.needs_no_login {
        check_not_stopping(server)?;
    }
    check_role(command, asked, server.role(), secondary_ok)?;
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

fn check_role(command: &Command, asked: Asked<'_>, role: Role, secondary_ok: bool) -> Result<()> {
    if role == Role::Standalone {
        return Ok(());
    }
    let writes = command.is_write(asked);
    if writes && names_own_database(asked) {
        return Err(own_database_error());
    }
    if role == Role::Primary {
        return Ok(());
    }
    let may_read = command.roles.contains(Role::Secondary);
    if writes || !may_read {
        bail!(NotWritablePrimary, "not primary");
    }
    if command.roles == Roles::ALL || asked.db == OWN_DATABASE {
        return Ok(());
    }
    if !secondary_ok && !command.reads_anywhere {
        bail!(NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false");
    }
    match role {
        Role::Recovering => bail!(NotPrimaryOrSecondary, "node is recovering"),
        Role::Arbiter => {
            bail!(NotPrimaryOrSecondary, "node is not in primary or recovering state")
        }
        _ => Ok(()),
    }
}

/// Fails if a part of a command would write a member's own database.
pub fn check_part_writes(server: &Server, database: &str) -> Result<()> {
    match database == OWN_DATABASE && server.role() != Role::Standalone {
        true => Err(own_database_error()),
        false => Ok(()),
    }
}

fn own_database_error() -> Error {
    let message =
        format!("the database '{OWN_DATABASE}' of a member of a replica set cannot be written");
    Error::new(ErrorCode::IllegalOperation, message)
}

/// Whether a request names a collection of the member's own database.
fn names_own_database(asked: Asked<'_>) -> bool {
    let is_own = |value: &Value<'_>| {
        let name = value.as_str().and_then(|name| name.strip_prefix(OWN_DATABASE));
        name.is_some_and(|rest| rest.starts_with('.'))
    };
    let names = |list: Doc<'_>| {
        list.iter().filter_map(|elem| elem.as_doc()).any(|entry| is_own(&entry.value("ns")))
    };
    // The target of a rename, and the namespaces of a list of statements.
    asked.db == OWN_DATABASE
        || asked.db == "admin"
            && asked.body.iter().any(|elem| match elem.value() {
                Value::Array(_) => elem.as_doc().is_some_and(names),
                value => is_own(&value),
            })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, array, doc};

    fn code(name: &str, db: &str, body: &DocBuf, role: Role, secondary_ok: bool) -> ErrorCode {
        let command = crate::registry::by_name()[name].command;
        let asked = Asked { db, body: body.as_doc() };
        check_role(command, asked, role, secondary_ok)
            .map_or_else(|error| error.code(), |()| ErrorCode::OK)
    }

    #[test]
    fn a_command_runs_where_it_says() {
        let sink = doc! { "aggregate" => "c", "pipeline" => array![doc! { "$out" => "d" }] };
        let plain = doc! { "aggregate" => "c", "pipeline" => array![] };
        let (ok, none) = (ErrorCode::OK, ErrorCode::NotPrimaryOrSecondary);
        let (primary, opt_in) = (ErrorCode::NotWritablePrimary, ErrorCode::NotPrimaryNoSecondaryOk);
        let roles =
            [Role::Standalone, Role::Primary, Role::Secondary, Role::Recovering, Role::Arbiter];
        for (name, body, with, without) in [
            ("ping", &plain, [ok; 5], [ok; 5]),
            ("find", &plain, [ok, ok, ok, none, none], [ok, ok, opt_in, opt_in, opt_in]),
            ("getMore", &plain, [ok, ok, ok, none, none], [ok, ok, ok, none, none]),
            ("aggregate", &plain, [ok, ok, ok, none, none], [ok, ok, opt_in, opt_in, opt_in]),
            (
                "aggregate",
                &sink,
                [ok, ok, primary, primary, primary],
                [ok, ok, primary, primary, primary],
            ),
            (
                "insert",
                &plain,
                [ok, ok, primary, primary, primary],
                [ok, ok, primary, primary, primary],
            ),
        ] {
            let of = |secondary_ok| roles.map(|role| code(name, "d", body, role, secondary_ok));
            assert_eq!((of(true), of(false)), (with, without), "{name} {body:?}");
        }
    }

    #[test]
    fn a_member_refuses_writes_to_its_own_database() {
        let rename = doc! { "renameCollection" => "d.c", "to" => "local.c" };
        let insert = doc! { "insert" => "c" };
        let space = doc! { "ns" => "local.c" };
        let bulk = doc! { "bulkWrite" => 1, "nsInfo" => array![space] };
        for (name, db, body) in [
            ("insert", "local", &insert),
            ("renameCollection", "admin", &rename),
            ("bulkWrite", "admin", &bulk),
        ] {
            for role in [Role::Primary, Role::Secondary] {
                assert_eq!(code(name, db, body, role, true), ErrorCode::IllegalOperation, "{name}");
            }
            assert_eq!(code(name, db, body, Role::Standalone, true), ErrorCode::OK);
        }
        assert_eq!(code("find", "local", &insert, Role::Recovering, false), ErrorCode::OK);
        assert_eq!(code("insert", "locality", &insert, Role::Primary, false), ErrorCode::OK);
    }
}
