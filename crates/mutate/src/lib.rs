//! Update operators and projections: they transform one raw document into another.
//!
//! [`Update`] is a parsed update (replacement, operators, or pipeline), [`Projection`] a parsed find projection or
//! `$project`, [`DocTransform`] a pipeline stage that maps a document to a document. All are parsed once and then
//! applied to raw bytes. They write the new document front to back without building a tree, and copy unchanged
//! parts in runs.
//!
//! Invariants: nothing here panics on any input; the output is well-formed if the input is; its size is limited by
//! [`kauri_base::limits`].
//!
//! This crate must not know collections, indexes, plans or storage.

pub mod cx;
mod places;
pub mod project;
mod raw;
mod text;
pub mod transform;
pub mod update;

pub use cx::{ParseCx, ProjectCx, UpdateCx};
pub use project::Projection;
pub use transform::DocTransform;
pub use update::{Applied, Update, UpdateKind};
