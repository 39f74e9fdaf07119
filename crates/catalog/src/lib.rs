//! Databases, collections and indexes: what exists, how it is defined, what a write means for the
//! indexes, and how an index is built while the collection is written.
//!
//! Knows storage by its interface only, and nothing of queries, commands or the wire.

pub mod build;
pub mod catalog;
pub mod check;
pub mod collation;
pub mod collection;
pub mod dropped;
mod entry_sums;
mod fetch;
pub mod index;
pub mod namespace;
pub mod options;
pub mod spec;
mod stored;
mod ticks;
pub mod usage;

pub use build::IndexBuild;
pub use catalog::{Catalog, Rename, Resolved, View, namespace_not_found, system_views_uuid};
pub use collection::{Collection, KeyScratch};
pub use index::{
    Index, IndexDefinition, IndexKeys, IndexUsage, MultikeyPaths, set_keys_per_document_max,
};
pub use namespace::{Namespace, check_database_name};
pub use options::{Capped, CollectionOptions, ValidationAction, ValidationLevel};
pub use stored::collection_of;
pub use usage::{OperationKind, OperationUsage};
