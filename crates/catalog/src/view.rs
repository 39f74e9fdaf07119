//! Views.

use crate::namespace::Namespace;
use crate::usage::OperationUsage;
use kauri_bson::DocBuf;
use std::sync::Arc;

/// A view: a name for a pipeline over a collection or another view.
#[derive(Clone)]
pub struct View {
    /// Its name.
    pub ns: Namespace,
    /// The collection or view (of the same database) that it reads.
    pub view_on: String,
    /// The stages, as an array value's document.
    pub pipeline: DocBuf,
    /// The options as `listCollections` shows them.
    pub options: DocBuf,
    /// Usage counters.
    pub usage: Arc<OperationUsage>,
}
