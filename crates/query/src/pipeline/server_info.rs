//! What stages tell of the server that they run on, which the layers above know.

use kauri_base::Result;
use kauri_bson::{DocBuf, DocWriter};
use kauri_catalog::{Collection, Namespace};

/// What `$currentOp` shows.
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

    /// A document for each operation that runs.
    fn operations(&self, options: CurrentOpOptions) -> Vec<DocBuf>;

    /// A document for each logical session of this server.
    fn sessions(&self) -> Vec<DocBuf>;

    /// Writes `storageStats` of `$collStats`.
    fn storage_stats(
        &self,
        ns: &Namespace,
        collection: &Collection,
        scale: i64,
        out: &mut DocWriter<'_>,
    ) -> Result<()>;
}
