//! `getDefaultRWConcern` and `setDefaultRWConcern`: for clusters only.

use crate::invocation::Invocation;
use crate::registry::{Command, Run, Target};
use kauri_base::bail;

/// `getDefaultRWConcern`.
pub const GET: Command = Command {
    ..Command::admin("getDefaultRWConcern", "returns the default read and write concerns", run)
};

/// `setDefaultRWConcern`.
pub const SET: Command = Command {
    admin_only: true,
    target: Target::Server,
    ..Command::define("setDefaultRWConcern", "sets the default read and write concerns", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(
        async move { bail!(51300, "'{}' is not supported on standalone nodes.", invocation.name) },
    )
}
