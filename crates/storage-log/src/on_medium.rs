//! The log as it is on the medium, for what reads it: recovery and checks.

use crate::format::Stream;
use crate::format::meta::Meta;
use crate::marks::FoundMarks;
use crate::reader::Contents;
use crate::segments::Segments;
use kauri_medium::{Faults, Medium};
use kauri_storage::StorageError;

/// The log to read; several threads use it at once.
#[derive(Clone, Copy)]
pub struct Log<'m> {
    /// The log file.
    pub medium: &'m dyn Medium,
    /// Faults that tests set.
    pub faults: &'m Faults,
    /// Its segments.
    pub segments: &'m Segments,
    /// The metadata.
    pub meta: &'m Meta,
    /// The mark file's contents.
    pub marks: &'m FoundMarks,
}

/// A segment whose records count.
pub struct Kept {
    /// Its number.
    pub segment: u32,
    /// Its epoch.
    pub epoch: u64,
    /// Who wrote it.
    pub stream: Stream,
    /// Where its records end.
    pub end: u32,
    /// Its contents.
    pub contents: Contents,
}

/// Damage that a recovery or a check found.
pub fn corrupt(message: String) -> StorageError {
    StorageError::Corruption { collection: None, record: None, message }
}
