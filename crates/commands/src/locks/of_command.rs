//! Maps a command to the lock it takes: scope and mode. They follow from the command's access to data and its
//! namespace, unless this file has an exception.

use super::Scope;
use crate::cmds::{
    aggregate, apply_ops, bulk_write, cluster_parameters, current_op, default_rw_concern,
    kill_cursors, list_databases, rename_collection, top, users_info, validate,
};
use crate::registry::{Access, Asked, Command, Target};
use kauri_base::rw_lock::LockMode;
use kauri_bson::{Doc, Value};

/// Commands that take the global lock.
const ALL: &[&str] = &[
    apply_ops::COMMAND.name,
    bulk_write::COMMAND.name,
    cluster_parameters::SET.name,
    default_rw_concern::SET.name,
    list_databases::COMMAND.name,
    rename_collection::COMMAND.name,
];
/// Commands that take a shared lock, whatever their access.
const SHARED: &[&str] = &[validate::COMMAND.name];
/// Commands without a lock.
const NONE: &[&str] = &[
    current_op::COMMAND.name,
    kill_cursors::COMMAND.name,
    top::COMMAND.name,
    users_info::ROLES.name,
    users_info::USERS.name,
];

/// The lock that a command takes; `None` if it runs without a lock.
pub(super) fn lock<'a>(command: &Command, asked: Asked<'a>) -> Option<(Scope<'a>, LockMode)> {
    let is_in = |names: &[&str]| names.contains(&command.name);
    let mode = match command.access {
        _ if is_in(NONE) => return None,
        _ if is_in(SHARED) => LockMode::Shared,
        _ if command.is_write(asked) => LockMode::Exclusive,
        Access::None => return None,
        _ => LockMode::Shared,
    };
    if is_in(ALL) || (command.name == aggregate::COMMAND.name && reads_others(asked)) {
        return Some((Scope::All, mode));
    }
    let Asked { db, body } = asked;
    let scope = match command.target {
        Target::Field(field) => collection(db, body.get(field).map(|e| e.value())),
        Target::Inner => {
            let inner = body.first().and_then(|e| e.as_doc()).and_then(Doc::first);
            collection(db, inner.map(|e| e.value()))
        }
        _ => collection(db, body.first().map(|e| e.value())),
    };
    Some((scope, mode))
}

fn collection<'a>(db: &'a str, name: Option<Value<'a>>) -> Scope<'a> {
    match name {
        Some(Value::String(std::borrow::Cow::Borrowed(name))) => Scope::Collection(db, name),
        _ => Scope::Database(db),
    }
}

/// Whether a pipeline may read other collections. Nested pipelines are not searched.
fn reads_others(asked: Asked<'_>) -> bool {
    const STAGES: &[&str] = &["$out", "$merge", "$lookup", "$graphLookup", "$unionWith", "$facet"];
    aggregate::pipelines(asked).any(|stages| {
        let mut names = stages.iter().filter_map(|stage| stage.as_doc()?.first());
        names.any(|stage| STAGES.contains(&stage.key()))
    })
}
