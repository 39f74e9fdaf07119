//! `compact`: reclaims unused space. The engine's cleaner does that continuously, so the command only replies.

use super::ddl;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_base::bail;

/// See the module's head.
pub const COMMAND: Command =
    Command { access: Access::None, ..Command::new("compact", "reclaims unused space", run) };

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let args = Args::new("compact");
        let mut dry_run = false;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "dryRun" => dry_run = args.given(elem, Args::bool)?.unwrap_or(false),
                "freeSpaceTargetMB" => {
                    let target = args.given(elem, Args::long)?;
                    if target.is_some_and(|megabytes| megabytes < 1) {
                        bail!(
                            BadValue,
                            "BSON field 'freeSpaceTargetMB' value must be >= 1, actual value '{}'",
                            target.unwrap_or(0)
                        );
                    }
                }
                _ => args.other(elem)?,
            }
        }
        let of_views = ns.collection() == "system.views"
            && !invocation.server.catalog.views_of(ns.database()).is_empty();
        if !of_views && ddl::collection(invocation, &ns)?.is_none() {
            bail!(NamespaceNotFound, "collection does not exist: {ns}");
        }
        let name = if dry_run { "estimatedBytesFreed" } else { "bytesFreed" };
        invocation.reply.put(name, 0);
        Ok(())
    })
}
