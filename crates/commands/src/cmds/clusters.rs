//! Commands that need a replica set or a sharded cluster: query settings, blocked writes.

use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::bail;

/// `setQuerySettings`.
pub const SET_QUERY_SETTINGS: Command =
    query_settings("setQuerySettings", "sets how queries of a shape are planned");
/// `removeQuerySettings`.
pub const REMOVE_QUERY_SETTINGS: Command =
    query_settings("removeQuerySettings", "removes the settings of queries of a shape");
/// `setUserWriteBlockMode`.
pub const BLOCK_WRITES: Command =
    Command::admin("setUserWriteBlockMode", "blocks user writes", refuse);

const fn query_settings(name: &'static str, help: &'static str) -> Command {
    Command::admin(name, help, refuse_settings)
}

fn refuse_settings<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        bail!(
            IllegalOperation,
            "{} can only run on replica sets or sharded clusters",
            invocation.name
        )
    })
}

fn refuse<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(
        async move { bail!(IllegalOperation, "{} cannot be run on standalones", invocation.name) },
    )
}
