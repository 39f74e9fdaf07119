//! Indexes as an engine knows them: definition, and how keys are made.

use kauri_base::IndexId;
use kauri_bson::Doc;

/// An index's definition, as far as an engine needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Its id.
    pub id: IndexId,
    /// Whether its keys are unique (unless a [`crate::KeyChange`] says otherwise).
    pub unique: bool,
}

/// Makes the keys of an index from a document.
pub trait KeyGenerator: Send + Sync {
    /// Calls `emit(key, type_bits)` for each key of the document.
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> kauri_base::Result<()>;

    /// A number for the definition that keys are made by: equal ones make equal keys of a document,
    /// in every version of this program. `None`: an engine must not keep an image of the index, since
    /// it is still being built.
    fn image_tag(&self) -> Option<u64> {
        None
    }

    /// Whether the keys of a document depend on its `_id` only: then a document with nothing but the `_id` has the
    /// same keys.
    fn is_of_id(&self) -> bool {
        false
    }

    /// What key generation has learned from the index's documents. An image stores it.
    fn learned(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes over what another generator of this definition has learned.
    fn learn(&self, _learned: &[u8]) {}
}
