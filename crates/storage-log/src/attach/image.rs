//! Loads an index from an image.

use crate::btree::{BTree, BTreeBuilder};
use crate::collection::Collection;
use crate::core::Core;
use crate::format::image::{ImageEnd, read_chunk};
use crate::format::record::Kind;
use crate::images::{Image, RecordAt};
use crate::keys::{Keys, Merge};
use crate::reader::{Next, RecordReader};
use kauri_base::RecordId;
use kauri_base::log::{self, Attr};
use kauri_storage::{IndexSpec, KeyGenerator, StorageError};
use std::collections::HashSet;
use std::slice;

/// With a larger share of changed records, in percent, an image is not worth its while.
const CHANGED_PERCENT_MAX: u64 = 50;

impl Core {
    /// The index as its image and the records that have changed since make it. `None` if there is no
    /// image that can be used; an error if there is too little memory for it.
    pub fn load_image(
        &self,
        store: &Collection,
        spec: IndexSpec,
        generator: &dyn KeyGenerator,
    ) -> Result<Option<BTree>, StorageError> {
        let Some(tag) = generator.image_tag() else { return Ok(None) };
        let visible = self.visible().0;
        let found = self.start.images().find(spec.id, store.id.0, visible);
        let Some((image, changed)) = found else { return Ok(None) };
        match self.try_load(store, spec, generator, tag, &image, &changed) {
            Ok(keys) => {
                self.start.images().note_loaded();
                Ok(Some(keys))
            }
            // The index would need as much if it were built.
            Err(Unusable::Documents(error @ StorageError::NeedsMemory { .. })) => Err(error),
            Err(what) => {
                let attr = Attr::new()
                    .num("collection", store.id.0)
                    .num("index", spec.id.0)
                    .str("reason", what.to_string());
                let message = "Index image not used; the index is built from the documents";
                log::info("INDEX", 6_200_011, log::STARTUP_CTX, message, attr);
                Ok(None)
            }
        }
    }

    fn try_load(
        &self,
        store: &Collection,
        spec: IndexSpec,
        generator: &dyn KeyGenerator,
        tag: u64,
        image: &Image,
        changed: &HashSet<u64>,
    ) -> Result<BTree, Unusable> {
        let records = store.records.load(kauri_base::sync::atomic::Ordering::Relaxed);
        if changed.len() as u64 > records.max(1000) * CHANGED_PERCENT_MAX / 100 {
            return Err(Unusable::Outdated);
        }
        let mut end = None;
        self.read_at(image.end, Kind::ImageEnd, |bytes| {
            end = ImageEnd::decode(bytes);
            end.as_ref().map(|_| ())
        })?;
        let end = end.ok_or(Unusable::Damaged)?;
        if end.tag != tag || end.unique != spec.unique {
            return Err(Unusable::Definition);
        }
        generator.learn(&end.learned);
        let newer = self.keys_of(store, generator, changed)?;
        let mut build = Build::new(spec.unique, &newer);
        let mut guard = self.domain.register();
        let mut entries = 0;
        let (mut payload, mut made) = (Vec::new(), 0);
        for at in &image.chunks {
            self.read_at(*at, Kind::Image, |bytes| {
                payload.clear();
                payload.extend_from_slice(bytes);
                Some(())
            })?;
            // Its keys are shortened, so it may be much longer than it is on the medium.
            let mut bytes = 0;
            read_chunk(&payload, |key, _, bits| {
                entries += 1;
                bytes += crate::memory::packed_tree_bytes(key.len() + bits.len());
            })
            .ok_or(Unusable::Damaged)?;
            made += bytes;
            // While no guard is entered: the cache has to be able to give way.
            self.take_for_start(bytes, 0, || made * end.entries.max(entries) / entries.max(1))?;
            guard.enter();
            let read = read_chunk(&payload, |key, record, bits| {
                if !changed.contains(&record) && store.slots.load(&guard, record).is_live() {
                    build.push(key, RecordId(record), bits);
                }
            });
            guard.leave();
            read.ok_or(Unusable::Damaged)?;
        }
        if entries != end.entries {
            return Err(Unusable::Damaged);
        }
        build.finish()
    }

    /// Keys of the records that have changed, in order.
    fn keys_of(
        &self,
        store: &Collection,
        generator: &dyn KeyGenerator,
        changed: &HashSet<u64>,
    ) -> Result<Keys, Unusable> {
        let mut changed: Vec<u64> = changed.iter().copied().collect();
        changed.sort_unstable();
        let mut keys = Keys::default();
        let mut guard = self.domain.register();
        for record in changed {
            guard.enter();
            self.generate_for(&mut guard, store, RecordId(record), generator, &mut keys)?;
            guard.leave();
        }
        keys.sort();
        Ok(keys)
    }

    /// Gives a record's payload to `take`, which answers `None` if it makes no sense.
    fn read_at(
        &self,
        at: RecordAt,
        kind: Kind,
        take: impl FnOnce(&[u8]) -> Option<()>,
    ) -> Result<(), Unusable> {
        let (medium, faults) = (self.directory.medium(), self.directory.faults());
        let segments = &self.segments;
        let RecordAt { segment, epoch, offset } = at;
        let mut reader = RecordReader::new(medium, faults, segments, segment, epoch, u32::MAX);
        reader.seek(offset);
        let Ok(Next::Record(record)) = reader.next() else { return Err(Unusable::Damaged) };
        if record.header.kind != kind || !record.payload_whole {
            return Err(Unusable::Damaged);
        }
        take(record.payload).ok_or(Unusable::Damaged)
    }
}

/// Entries from an image and newer ones, merged.
struct Build<'k> {
    builder: BTreeBuilder,
    newer: std::iter::Peekable<Merge<'k>>,
    unique: bool,
    last: Option<Vec<u8>>,
    is_double: bool,
}

impl<'k> Build<'k> {
    fn new(unique: bool, newer: &'k Keys) -> Self {
        let newer = Merge::new(slice::from_ref(newer)).peekable();
        Build { builder: BTreeBuilder::new(), newer, unique, last: None, is_double: false }
    }

    fn push(&mut self, key: &[u8], record: RecordId, bits: &[u8]) {
        while let Some(entry) = self.newer.next_if(|newer| (newer.0, newer.1) < (key, record)) {
            self.add(entry.0, entry.1, entry.2);
        }
        self.add(key, record, bits);
    }

    fn add(&mut self, key: &[u8], record: RecordId, bits: &[u8]) {
        if self.unique {
            let last = self.last.get_or_insert_default();
            self.is_double |= last == key && self.builder.entries() > 0;
            last.clear();
            last.extend_from_slice(key);
        }
        self.builder.push(key, record, bits);
    }

    fn finish(mut self) -> Result<BTree, Unusable> {
        while let Some((key, record, bits)) = self.newer.next() {
            self.add(key, record, bits);
        }
        // A rebuild finds the same, or shows that the image was wrong.
        if self.is_double { Err(Unusable::Double) } else { Ok(self.builder.finish()) }
    }
}

/// Why an image can't be used.
enum Unusable {
    /// Something of it can't be read or makes no sense.
    Damaged,
    /// The definition of the index has changed.
    Definition,
    /// Too much has changed since.
    Outdated,
    /// A unique key would be there twice.
    Double,
    /// A changed document can't be read.
    Documents(StorageError),
}

impl From<StorageError> for Unusable {
    fn from(error: StorageError) -> Self {
        Unusable::Documents(error)
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::Damaged => f.write_str("the image is damaged"),
            Unusable::Definition => f.write_str("the definition of the index has changed"),
            Unusable::Outdated => {
                f.write_str("too many records have changed since the image was written")
            }
            Unusable::Double => f.write_str("the index would have a duplicate unique key"),
            Unusable::Documents(error) => write!(f, "{error}"),
        }
    }
}
