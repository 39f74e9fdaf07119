//! Databases, collections and indexes: their definitions, the effect of a write on indexes, and index builds during
//! writes.
//!
//! This crate must know storage only by its interface, and must not know queries, commands or the wire.

pub mod build;
pub mod catalog;
pub mod check;
pub mod collation;
pub mod collection;
pub mod definition_change;
pub mod dropped;
mod entry_sums;
mod fetch;
pub mod index;
pub mod namespace;
pub mod options;
pub mod spec;
mod stored;
pub mod usage;
mod view;
mod wildcard;

pub use build::IndexBuild;
pub use catalog::{
    Catalog, InterruptedBuild, Rename, Resolved, namespace_not_found, system_views_uuid,
};
pub use collection::{Collection, KeyScratch};
pub use definition_change::{DefinitionChange, definition_changes};
pub use index::{
    Index, IndexDefinition, IndexKeys, IndexUsage, MultikeyPaths, UnusableIndex,
    set_keys_per_document_max,
};
pub use namespace::{Namespace, check_database_name};
pub use options::{Capped, CollectionOptions, ValidationAction, ValidationLevel};
pub use stored::collection_of;
pub use usage::{OperationKind, OperationUsage};
pub use view::View;
