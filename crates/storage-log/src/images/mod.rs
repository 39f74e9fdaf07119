//! Index images: an index's entries, written to a stream of their own at a clean shutdown, so that the
//! next starts need not read all documents. Disposable: whoever wants an image and finds none that is
//! whole and fits makes the index from the documents, with the same result.
//!
//! Why an image that is used gives what a rebuild would:
//! - It shows the index as it was at a commit that was durable before the image was written. A recovery
//!   that keeps less than that commit does not use it, nor does any later one (its cut says so).
//! - Records that have changed since that commit are left out of it, and their keys generated from the
//!   documents; so are entries of records that are gone.
//! - Its tag is the definition's, and each chunk has a CRC bound to its segment, epoch and offset.
//!
//! | module | holds |
//! |---|---|
//! | [`find`] | what a recovery finds |
//! | [`load`] | from an image to an index |
//! | [`write`] | from indexes to images |

mod find;
mod load;
mod write;

pub use find::{FoundImages, ImageSegment, find};

use kauri_base::IndexId;
use kauri_base::sync::Arc;
use std::collections::{HashMap, HashSet};

/// Where a record of an image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    segment: u32,
    epoch: u64,
    offset: u32,
}

/// An image that is there as a whole, as far as summaries tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// The commit that it shows the index at.
    pub seq: u64,
    /// The index's collection.
    pub collection: u32,
    chunks: Vec<Part>,
    end: Part,
}

/// What the last recovery found, until there are writes.
#[derive(Default)]
pub struct Images {
    /// The last commit of the log when it was recovered: with any later one nothing here is used.
    seq: u64,
    by_index: HashMap<IndexId, Arc<Image>>,
    /// For each collection with images: its records that have changed since the oldest of them.
    changed: HashMap<u32, Arc<HashSet<u64>>>,
    /// Indexes that were taken from their images, or made anew.
    loaded: u64,
    built: u64,
    /// Images that were written.
    written: u64,
}

impl Images {
    /// What a recovery that ended with this commit has found.
    pub fn new(seq: u64, found: FoundImages, changed: HashMap<u32, HashSet<u64>>) -> Self {
        Images {
            seq,
            by_index: found.by_index,
            changed: changed.into_iter().map(|(id, set)| (id, Arc::new(set))).collect(),
            ..Images::default()
        }
    }

    /// Nothing will be loaded any more: no records need to be remembered.
    pub fn forget_changes(&mut self) {
        self.changed = HashMap::new();
    }

    /// Indexes loaded from images, indexes built, images written.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.loaded, self.built, self.written)
    }

    /// Notes that an index was built without its image.
    pub fn note_built(&mut self) {
        self.built += 1;
    }
}
