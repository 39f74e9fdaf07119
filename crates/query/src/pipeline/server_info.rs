//! Server data for stages, which the layers above provide.

use kauri_base::Result;
use kauri_bson::{DocBuf, DocWriter};
use kauri_catalog::{Collection, Namespace};

/// What `$currentOp` shows. Its other options make no difference on a standalone without users: `allUsers`,
/// `localOps`, and `idleSessions`, which shows the transactions between two statements.
#[derive(Clone, Copy, Debug, Default)]
pub struct CurrentOpOptions {
    /// `idleConnections`
    pub idle_connections: bool,
    /// `idleCursors`
    pub idle_cursors: bool,
    /// `truncateOps`
    pub truncate_ops: bool,
}

/// See the module's head.
pub trait ServerInfo: Send + Sync {
    /// `host:port`
    fn host(&self) -> String;

    /// A document for each operation that runs, and for what else the options ask.
    fn operations(&self, options: CurrentOpOptions) -> Vec<DocBuf>;

    /// A document for each logical session of this server.
    fn sessions(&self) -> Vec<DocBuf>;

    /// Number of documents of a collection that the server makes itself, and does not store; `None` of others.
    fn own_count(&self, ns: &Namespace) -> Option<u64>;

    /// Writes `storageStats` of `$collStats`; without a collection those of the `system.views` of this name.
    fn storage_stats(
        &self,
        ns: &Namespace,
        collection: Option<&Collection>,
        scale: i64,
        out: &mut DocWriter<'_>,
    ) -> Result<()>;
}
