//! Update operators and projections: what turns one raw document into another.
//!
//! [`Update`] is a parsed update (replacement, operators, or pipeline), [`Projection`] a parsed find
//! projection or `$project`, [`DocTransform`] one of the pipeline stages that map a document to a
//! document. All are parsed once and then applied to raw bytes, writing the new document front to
//! back without building a tree; what an update leaves alone is copied in runs.
//!
//! Invariants: nothing here panics on any input; what is written is a well-formed document if what
//! was read is one; output is bounded by [`kauri_base::limits`].
//!
//! Knows nothing of collections, indexes, plans or storage.

pub mod cx;
mod places;
pub mod project;
mod raw;
mod text;
pub mod transform;
pub mod update;

pub use cx::{ParseCx, ProjectCx, UpdateCx};
pub use project::{Projection, RequiredFields};
pub use transform::DocTransform;
pub use update::{Applied, Update, UpdateKind};
