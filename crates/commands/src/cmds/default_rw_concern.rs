//! `getDefaultRWConcern` and `setDefaultRWConcern`: for clusters only.

use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_base::bail;

/// `getDefaultRWConcern`.
pub const GET: Command = Command {
    admin_only: true,
    ..Command::new("getDefaultRWConcern", "tells the default read and write concerns", run)
};

/// `setDefaultRWConcern`.
pub const SET: Command = Command {
    access: Access::Write,
    admin_only: true,
    ..Command::new("setDefaultRWConcern", "sets the default read and write concerns", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(
        async move { bail!(51300, "'{}' is not supported on standalone nodes.", invocation.name) },
    )
}
