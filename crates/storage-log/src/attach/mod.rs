//! Attaches indexes from the catalog at startup, all indexes of a collection at once.
//!
//! An index is loaded from its image ([`crate::images`]) or built from the first source that suffices:
//! 1. the `_id`s in segment summaries, if they determine the index's keys;
//! 2. the documents in log order ([`summaries`]), located by summaries;
//! 3. the documents in record order ([`documents`]), for collections that are a small part of their segments.
//!
//! Memory for an index is reserved ([`Core::take_for_start`]) before the index is built, so a start without enough
//! memory fails with a message. A reservation that fails is an error of all indexes.
//!
//! One pass over the documents serves all indexes that need one. Recovery keeps the summaries that it has read
//! until the server is about to accept connections.

mod documents;
mod image;
mod summaries;

use crate::btree::BTree;
use crate::collection::Collection;
use crate::core::Core;
use crate::index::Index;
use crate::keys::{Keys, Merge};
use crate::progress::Progress;
use kauri_base::log::{self, Attr};
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_base::{CollectionId, RecordId};
use kauri_bson::Doc;
use kauri_medium::parallel;
use kauri_storage::{IndexSpec, KeyGenerator, StorageError};

/// An index that is wanted.
pub type Wanted = (IndexSpec, Arc<dyn KeyGenerator>);

type Result<T> = std::result::Result<T, StorageError>;

impl Core {
    /// See [`kauri_storage::StorageEngine::attach_indexes`].
    pub fn attach_indexes(&self, collection: CollectionId, wanted: &[Wanted]) -> Vec<Result<()>> {
        let started = self.options.clock.monotonic();
        let Some(store) = self.registry.store(collection) else {
            return wanted.iter().map(|_| Err(StorageError::StaleCatalog(collection))).collect();
        };
        let threads = self.options.open_threads.max(1);
        let image = |n: usize| match wanted.get(n) {
            Some((spec, generator)) => self.load_image(&store, *spec, &**generator),
            None => Ok(None),
        };
        let loaded = match parallel::try_map(threads, wanted.len(), image) {
            Ok(loaded) => loaded,
            Err(error) => return wanted.iter().map(|_| Err(error.clone())).collect(),
        };
        let missing = wanted.iter().zip(&loaded).filter(|(_, loaded)| loaded.is_none());
        let missing: Vec<&Wanted> = missing.map(|(wanted, _)| wanted).collect();
        let mut built = self.build_indexes(&store, &missing).into_iter();
        let mut attach = |(wanted, loaded): (&Wanted, Option<BTree>)| {
            let (keys, message) = match loaded {
                Some(keys) => (keys, "Loaded an index from its image"),
                None => {
                    let keys =
                        built.next().unwrap_or(Err(StorageError::StaleCatalog(collection)))?;
                    (keys, "Built an index from its collection")
                }
            };
            let (spec, generator) = wanted;
            let entries = keys.entries();
            let index = Arc::new(Index::new(*spec, store.clone(), keys, generator.clone()));
            self.registry.write().indexes.insert(spec.id, index.clone());
            self.claim_pending_keys(&index)?;
            let elapsed = self.options.clock.monotonic().saturating_sub(started);
            let attr = Attr::new()
                .num("collection", collection.0)
                .num("index", spec.id.0)
                .num("entries", entries)
                .num("durationMicros", elapsed.as_micros());
            log::info("INDEX", 6_200_005, log::STARTUP_CTX, message, attr);
            Ok(())
        };
        wanted.iter().zip(loaded).map(&mut attach).collect()
    }

    /// The indexes as the documents make them.
    fn build_indexes(&self, store: &Collection, wanted: &[&Wanted]) -> Vec<Result<BTree>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        wanted.iter().for_each(|_| self.start.images().note_built());
        let of = store.records.load(Ordering::Relaxed);
        let message = "Building indexes";
        let progress = Progress::new(&*self.options.clock, "INDEX", message, "records", of);
        let generators = wanted.iter().map(|(_, generator)| &**generator).collect();
        let pass = Pass { core: self, store, generators, progress };
        let all_made = match pass.by_summaries() {
            Ok(Some(all_made)) => all_made,
            Ok(None) => match pass.by_records() {
                Ok(all_made) => all_made,
                Err(error) => return wanted.iter().map(|_| Err(error.clone())).collect(),
            },
            Err(error) => return wanted.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut runs: Vec<Result<Vec<Keys>>> = wanted.iter().map(|_| Ok(Vec::new())).collect();
        for made in all_made {
            for (runs, keys) in runs.iter_mut().zip(made.keys) {
                match (runs.as_mut(), keys) {
                    (Ok(runs), Ok(keys)) => runs.push(keys),
                    (Ok(_), Err(error)) => *runs = Err(error),
                    (Err(_), _) => {}
                }
            }
        }
        let runs: Vec<_> = runs.into_iter().zip(wanted).collect();
        let threads = self.options.open_threads.max(1);
        parallel::map(threads, runs.len(), |n| match runs.get(n) {
            Some((Ok(runs), (spec, _))) => tree(store, *spec, runs),
            Some((Err(error), _)) => Err(error.clone()),
            None => Ok(BTree::new()),
        })
    }
}

/// The index of these keys.
fn tree(store: &Collection, spec: IndexSpec, runs: &[Keys]) -> Result<BTree> {
    let mut duplicate = None;
    let keys = {
        let mut last: Option<&[u8]> = None;
        let entries = Merge::new(runs).inspect(|(key, record, _)| {
            if spec.unique && last.replace(*key) == Some(*key) {
                duplicate.get_or_insert(*record);
            }
        });
        BTree::from_sorted(entries)
    };
    match duplicate {
        None => Ok(keys),
        Some(record) => Err(StorageError::Corruption {
            collection: Some(store.id),
            record: Some(record),
            message: format!("a duplicate key in the unique index {}", spec.id.0),
        }),
    }
}

/// A pass over what a collection holds, for several indexes at once.
struct Pass<'c> {
    core: &'c Core,
    store: &'c Collection,
    generators: Vec<&'c dyn KeyGenerator>,
    progress: Progress<'c>,
}

/// The keys of some records.
struct MadeKeys {
    /// Keys per generator, or its error.
    keys: Vec<Result<Keys>>,
    /// Records that there are keys of.
    records: u64,
    /// Bytes that have been taken from memory for the keys.
    taken: u64,
    /// The most that the keys of one document took.
    largest: u64,
}

/// Keys are generated up to this size before memory is reserved.
const TAKEN_BYTES_STEP: u64 = 1 << 20;

impl Pass<'_> {
    fn no_keys(&self) -> MadeKeys {
        let keys = self.generators.iter().map(|_| Ok(Keys::default())).collect();
        MadeKeys { keys, records: 0, taken: 0, largest: 0 }
    }

    /// Adds the keys of a document, by the generators that are `wanted`.
    fn generate(
        &self,
        made: &mut MadeKeys,
        record: RecordId,
        bytes: &[u8],
        wanted: impl Fn(&dyn KeyGenerator) -> bool,
    ) -> Result<()> {
        let corrupt = |error: kauri_base::Error| corrupt(self.store, record, error.message());
        let doc = Doc::from_bytes(bytes).map_err(corrupt)?;
        let before = made.tree_bytes();
        for (generator, keys) in self.generators.iter().zip(&mut made.keys) {
            let Ok(into) = keys else { continue };
            if wanted(*generator)
                && let Err(error) =
                    generator.generate(doc, &mut |key, bits| into.push(key, bits, record))
            {
                *keys = Err(corrupt(error));
            }
        }
        made.largest = made.largest.max(made.tree_bytes().saturating_sub(before));
        Ok(())
    }

    /// Takes memory for the keys that have been made since it was last taken. With no guard entered, so that the cache
    /// can give way.
    fn take_memory(&self, made: &mut MadeKeys) -> Result<()> {
        let bytes = made.tree_bytes();
        let new = bytes.saturating_sub(made.taken);
        made.taken = bytes;
        let records = self.store.records.load(Ordering::Relaxed);
        let share = (records as f64 / made.records.max(1) as f64).max(1.0);
        // Keys in the order of documents first, and then a tree besides.
        let needed = || (bytes as f64 * 1.5 * share) as u64;
        // Another document as large may be made before memory is asked for again.
        self.core.take_for_start(new + new / 2, made.largest, needed)
    }
}

impl MadeKeys {
    /// Whether memory is to be taken.
    fn is_due(&self) -> bool {
        self.tree_bytes().saturating_sub(self.taken) >= TAKEN_BYTES_STEP
    }

    fn tree_bytes(&self) -> u64 {
        self.keys.iter().flatten().map(Keys::tree_bytes).sum()
    }

    fn sort(&mut self) {
        self.keys.iter_mut().flatten().for_each(Keys::sort);
    }
}

fn corrupt(store: &Collection, record: RecordId, message: &str) -> StorageError {
    StorageError::Corruption {
        collection: Some(store.id),
        record: Some(record),
        message: message.to_owned(),
    }
}
