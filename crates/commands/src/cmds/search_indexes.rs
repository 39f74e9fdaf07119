//! The commands for Atlas Search indexes, which this server does not support.

use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::bail;

/// `createSearchIndexes`.
pub const CREATE: Command = search("createSearchIndexes");
/// `updateSearchIndex`.
pub const UPDATE: Command = search("updateSearchIndex");
/// `dropSearchIndex`.
pub const DROP: Command = search("dropSearchIndex");
/// `listSearchIndexes`.
pub const LIST: Command = search("listSearchIndexes");

const fn search(name: &'static str) -> Command {
    Command::new(name, "needs Atlas Search", refuse)
}

fn refuse<'a>(_invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async {
        bail!(
            SearchNotEnabled,
            "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage requires \
             additional configuration. Please connect to Atlas or an AtlasCLI local deployment to \
             enable. For more information on how to connect, see \
             https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs"
        )
    })
}
