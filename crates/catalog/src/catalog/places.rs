//! Where the catalog's documents are, by name and by record.
//!
//! Invariant: both maps have the same entries.

use kauri_base::{CommitSeq, RecordId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The place of a catalog document.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub record: RecordId,
    pub version: CommitSeq,
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Places {
    by_name: HashMap<Arc<str>, Place>,
    names: BTreeMap<RecordId, Arc<str>>,
}

impl Places {
    /// The document of this full name.
    pub fn get(&self, name: &str) -> Option<Place> {
        self.by_name.get(name).copied()
    }

    /// The full name whose document this record is.
    pub fn name_of(&self, record: RecordId) -> Option<&str> {
        self.names.get(&record).map(|name| &**name)
    }

    /// The name has its document there from now on.
    pub fn insert(&mut self, name: &str, place: Place) {
        self.remove(name);
        let name: Arc<str> = name.into();
        self.names.insert(place.record, name.clone());
        self.by_name.insert(name, place);
    }

    /// The name's document has been replaced.
    pub fn replaced(&mut self, name: &str, version: CommitSeq) {
        if let Some(place) = self.by_name.get_mut(name) {
            place.version = version;
        }
    }

    /// The name has no document any more.
    pub fn remove(&mut self, name: &str) {
        if let Some(place) = self.by_name.remove(name) {
            self.names.remove(&place.record);
        }
    }
}
