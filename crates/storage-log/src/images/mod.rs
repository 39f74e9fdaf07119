//! Index images: the entries of an index, written to a stream of their own at a clean shutdown, so that the next
//! start need not read all documents. Images are disposable: without an intact and matching image, the index is
//! built from the documents, with the same result.
//!
//! Why an image gives the same index as a rebuild:
//! - It has the index at a commit that was durable before the image was written. A recovery that keeps less than
//!   that commit does not use the image, nor does any later recovery (the cut records that).
//! - Records that changed after that commit are skipped, and their keys are generated from the documents. Entries
//!   of deleted records are skipped.
//! - Its tag identifies the definition, and each chunk has a CRC bound to its segment, epoch and offset.
//!
//! | module | holds |
//! |---|---|
//! | [`find`] | images that a recovery finds |
//! | [`crate::attach`] | from an image to an index |
//! | [`crate::close`] | from indexes to images |

mod find;

pub use find::{FoundImages, ImageSegment, find};

use kauri_base::IndexId;
use kauri_base::sync::Arc;
use std::collections::{HashMap, HashSet};

/// Where a record of an image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordAt {
    /// Its segment.
    pub segment: u32,
    /// The epoch of that.
    pub epoch: u64,
    /// Where it is there.
    pub offset: u32,
}

/// An image that is complete according to summaries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// The commit that it shows the index at.
    pub seq: u64,
    /// The index's collection.
    pub collection: u32,
    /// Its entries.
    pub chunks: Vec<RecordAt>,
    /// The record that ends it.
    pub end: RecordAt,
}

/// The images that the last recovery found, until the first write.
#[derive(Default)]
pub struct Images {
    /// The last commit of the log when it was recovered: with any later one nothing here is used.
    seq: u64,
    by_index: HashMap<IndexId, Arc<Image>>,
    /// For each collection with images: the records that have changed since its oldest image.
    changed: HashMap<u32, Arc<HashSet<u64>>>,
    /// Indexes that were loaded from images, or built.
    loaded: u64,
    built: u64,
    /// Images that were written.
    written: u64,
}

impl Images {
    /// The images that a recovery which ended with this commit has found.
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

    /// The image of an index of a collection as of commit `visible`, and the records that have changed since.
    pub fn find(
        &self,
        index: IndexId,
        collection: u32,
        visible: u64,
    ) -> Option<(Arc<Image>, Arc<HashSet<u64>>)> {
        let image = self.by_index.get(&index)?;
        let usable = image.collection == collection && self.seq == visible;
        let changed = self.changed.get(&collection)?;
        usable.then(|| (image.clone(), changed.clone()))
    }

    /// Whether these indexes' images show them as of commit `seq`.
    pub fn are_current(&self, seq: u64, mut indexes: impl Iterator<Item = IndexId>) -> bool {
        self.seq == seq
            && self.built == 0
            && indexes.all(|index| self.by_index.contains_key(&index))
    }

    /// Notes that an index was taken from its image.
    pub fn note_loaded(&mut self) {
        self.loaded += 1;
    }

    /// Notes that images were written.
    pub fn note_written(&mut self, images: u64) {
        self.written += images;
    }

    /// Notes that an index was built without its image.
    pub fn note_built(&mut self) {
        self.built += 1;
    }
}
