//! An index of a collection: its definition, its keys, and usage statistics.

use crate::namespace::Namespace;
use kauri_base::{Error, ErrorCode, IndexId, Result, limits, work};
use kauri_bson::keygen::{KeyBounds, KeyPattern, Keys};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_matcher::{MatchCx, MatchExpr, ParseCx, Place};
use kauri_storage::{KeyGenerator, SortedDataInterface};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// `indexMaxNumGeneratedKeysPerDocument`.
static KEYS_PER_DOCUMENT_MAX: AtomicUsize = AtomicUsize::new(limits::INDEX_KEYS_PER_DOCUMENT_MAX);

/// Most keys that a document which is written may have in one index.
pub fn set_keys_per_document_max(keys: usize) {
    KEYS_PER_DOCUMENT_MAX.store(keys, Ordering::Relaxed);
}

/// A user's definition.
pub struct IndexDefinition {
    /// The name.
    pub name: String,
    /// The key pattern as given (`{a: 1, b: -1}`).
    pub key: DocBuf,
    /// The key pattern, parsed.
    pub pattern: KeyPattern,
    /// Whether no two documents may have the same key.
    pub unique: bool,
    /// Whether new keys are refused that are there already, while old duplicates may remain.
    pub prepare_unique: bool,
    /// Whether documents without any of the fields are left out.
    pub sparse: bool,
    /// Only documents that match are indexed.
    pub partial: Option<MatchExpr>,
    /// Documents end this many seconds after the date in the indexed field.
    pub expire_after_seconds: Option<i64>,
    /// Whether the planner may not use it.
    pub hidden: bool,
    /// The whole definition as `listIndexes` shows it.
    pub spec: DocBuf,
}

impl IndexDefinition {
    /// Takes a definition that was checked when the index was made (`listIndexes` form).
    pub fn from_spec(spec: Doc<'_>) -> Result<IndexDefinition> {
        let key = match spec.value("key") {
            Value::Document(key) => key.into_buf(),
            _ => return Err(Error::new(ErrorCode::CannotCreateIndex, "index without a key")),
        };
        let partial = match spec.value("partialFilterExpression") {
            Value::Document(filter) => {
                Some(MatchExpr::parse(filter.as_doc(), &ParseCx::new(Place::PartialIndex))?)
            }
            _ => None,
        };
        Ok(IndexDefinition {
            name: spec.value("name").as_str().unwrap_or_default().to_owned(),
            pattern: KeyPattern::parse(key.as_doc())?,
            unique: truthy(spec, "unique") || is_id_pattern(key.as_doc()),
            prepare_unique: truthy(spec, "prepareUnique"),
            sparse: truthy(spec, "sparse"),
            partial,
            expire_after_seconds: match spec.value("expireAfterSeconds") {
                Value::Int32(n) => Some(i64::from(n)),
                Value::Int64(n) => Some(n),
                Value::Double(n) => Some(n as i64),
                _ => None,
            },
            hidden: truthy(spec, "hidden"),
            key,
            spec: spec.to_buf(),
        })
    }

    /// The definition of every collection's `_id` index.
    pub fn id_index_spec() -> DocBuf {
        kauri_bson::doc! {
            "v" => 2,
            "key" => kauri_bson::doc! { "_id" => 1 },
            "name" => "_id_",
        }
    }

    /// A number for all that decides which keys a document has.
    fn tag(&self) -> u64 {
        let mut tag = fnv(0xcbf2_9ce4_8422_2325, &KEYS_VERSION.to_le_bytes());
        for name in KEY_FIELDS {
            for elem in self.spec.as_doc().iter().filter(|elem| elem.key() == name) {
                let value = DocBuf::build(|out| out.put_value(name, &elem.value()));
                tag = fnv(tag, value.as_bytes());
            }
        }
        tag
    }

    /// Whether this is the `_id` index.
    pub fn is_id(&self) -> bool {
        is_id_pattern(self.key.as_doc())
    }

    /// Whether a write fails that would give another document the same key.
    pub fn refuses_duplicates(&self) -> bool {
        self.unique || self.prepare_unique
    }

    /// Whether the document belongs into the index (a partial index's filter).
    pub fn includes(&self, doc: Doc<'_>) -> Result<bool> {
        match &self.partial {
            Some(filter) => filter.matches(doc, &MatchCx::new()),
            None => Ok(true),
        }
    }
}

/// The fields of a definition that determine a document's keys.
const KEY_FIELDS: [&str; 6] =
    ["v", "key", "sparse", "partialFilterExpression", "collation", "wildcardProjection"];
/// Raised when the same definition would make other keys of a document.
const KEYS_VERSION: u32 = 1;

/// Goes on with a hash (FNV-1a) that is the same in every build.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn truthy(spec: Doc<'_>, field: &str) -> bool {
    match spec.value(field) {
        Value::Bool(v) => v,
        Value::Int32(v) => v != 0,
        Value::Int64(v) => v != 0,
        Value::Double(v) => v != 0.0,
        _ => false,
    }
}

fn is_id_pattern(key: Doc<'_>) -> bool {
    key.count() == 1 && key.first().is_some_and(|e| e.key() == "_id")
}

/// The components of the indexed paths that have had arrays: one bit per component, one word per field. Bits are
/// only set, before the commit that needs them.
pub struct MultikeyPaths {
    words: Box<[AtomicU64]>,
}

impl MultikeyPaths {
    fn new(fields: usize) -> Self {
        MultikeyPaths { words: (0..fields).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Whether any indexed path goes through an array.
    pub fn is_multikey(&self) -> bool {
        self.words.iter().any(|w| w.load(Ordering::Acquire) != 0)
    }

    /// The bits of a field: bit 0 is the path's first component.
    pub fn of_field(&self, field: usize) -> u64 {
        self.words.get(field).map_or(0, |w| w.load(Ordering::Acquire))
    }

    fn add(&self, paths: &[u64]) {
        for (word, bits) in self.words.iter().zip(paths) {
            if *bits != 0 && word.load(Ordering::Relaxed) & bits != *bits {
                word.fetch_or(*bits, Ordering::AcqRel);
            }
        }
    }
}

/// Usage counters of an index, for `$indexStats`.
pub struct IndexUsage {
    /// Operations that used it.
    pub accesses: AtomicU64,
    /// Since when that is counted, in milliseconds since 1970.
    pub since_ms: i64,
}

/// The key generator of an index. Shared with the engine, which rebuilds indexes with it.
pub struct IndexKeys {
    /// The definition.
    pub definition: IndexDefinition,
    /// The known arrays on its paths.
    pub multikey: Arc<MultikeyPaths>,
    /// Whether the index has the keys of all documents, so its build has ended. Shared by all definitions of the index.
    complete: Arc<AtomicBool>,
    /// Why the engine, which rebuilds the index, could not apply its filter.
    failure: OnceLock<Error>,
}

impl IndexKeys {
    /// For this definition.
    pub fn new(definition: IndexDefinition) -> Arc<IndexKeys> {
        let multikey = Arc::new(MultikeyPaths::new(definition.pattern.len()));
        let (complete, failure) = (Arc::default(), OnceLock::new());
        Arc::new(IndexKeys { definition, multikey, complete, failure })
    }

    /// For another definition of the same index, which makes the same keys.
    pub(crate) fn redefined(&self, definition: IndexDefinition) -> Arc<IndexKeys> {
        let (multikey, failure) = (self.multikey.clone(), OnceLock::new());
        let complete = self.complete.clone();
        Arc::new(IndexKeys { definition, multikey, complete, failure })
    }

    /// Why its filter could not be applied when the engine rebuilt the index, if that is so.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// The index has the keys of all documents from now on.
    pub(crate) fn set_complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Whether it has.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Puts the keys of a document that will be written or indexed into `keys` (cleared first). Fails if there are
    /// too many.
    pub fn generate_new(&self, doc: Doc<'_>, keys: &mut Keys) -> Result<()> {
        keys.set_bounds(KeyBounds {
            keys: KEYS_PER_DOCUMENT_MAX.load(Ordering::Relaxed),
            bytes: limits::INDEX_KEYS_BYTES_PER_DOCUMENT_MAX,
        });
        let generated = self.generate(doc, keys);
        keys.set_bounds(KeyBounds::STORED);
        generated
    }

    /// Puts the keys of a stored document into `keys` (emptied first), and notes multikey paths.
    pub fn generate_into(&self, doc: Doc<'_>, keys: &mut Keys) -> Result<()> {
        keys.set_bounds(KeyBounds::STORED);
        self.generate(doc, keys)
    }

    fn generate(&self, doc: Doc<'_>, keys: &mut Keys) -> Result<()> {
        keys.clear();
        let included = self.definition.includes(doc).map_err(|error| match error.code() {
            ErrorCode::Overflow => error.context(format!(
                "The filter of index '{}' is unusable; drop the index with dropIndexes",
                self.definition.name
            )),
            _ => error,
        })?;
        if !included {
            return Ok(());
        }
        self.definition.pattern.generate(doc, self.definition.sparse, keys)?;
        self.multikey.add(keys.multikey());
        Ok(())
    }
}

impl KeyGenerator for IndexKeys {
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        // The engine calls this under its locks. The keys of one document are bounded.
        let mut keys = Keys::default();
        let generated = work::unmetered(|| self.generate_into(doc, &mut keys));
        if let Err(error) = &generated
            && error.code() == ErrorCode::Overflow
        {
            self.failure.get_or_init(|| error.clone());
        }
        generated?;
        for key in keys.iter() {
            emit(key.bytes, key.type_bits);
        }
        Ok(())
    }

    fn image_tag(&self) -> Option<u64> {
        self.is_complete().then(|| self.definition.tag())
    }

    fn is_of_id(&self) -> bool {
        self.definition.is_id() && self.definition.partial.is_none()
    }

    fn learned(&self) -> Vec<u8> {
        let words = self.multikey.words.iter();
        words.flat_map(|word| word.load(Ordering::Acquire).to_le_bytes()).collect()
    }

    fn learn(&self, learned: &[u8]) {
        let words = learned.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        self.multikey.add(&words.collect::<Vec<u64>>());
    }
}

/// An index with an unusable stored definition: its filter cannot be parsed or applied. No query uses it and no
/// write maintains it, so its collection is read-only until it is dropped.
pub struct UnusableIndex {
    /// Its number in the engine.
    pub id: IndexId,
    /// Its name.
    pub name: String,
    /// The whole definition as `listIndexes` shows it.
    pub spec: DocBuf,
    why: Error,
}

impl UnusableIndex {
    pub(crate) fn new(id: IndexId, spec: DocBuf, why: Error) -> UnusableIndex {
        let name = spec.as_doc().value("name").as_str().unwrap_or_default().to_owned();
        UnusableIndex { id, name, spec, why }
    }

    /// The key pattern.
    pub fn key(&self) -> DocBuf {
        self.spec.as_doc().value("key").as_document().map_or_else(DocBuf::new, |key| key.to_buf())
    }

    /// The error of a write to the collection, with the way out.
    pub fn error(&self, ns: &Namespace) -> Error {
        self.why.clone().context(format!(
            "Index '{}' of '{ns}' is unusable, so the collection is read-only; drop the index with \
             dropIndexes, and create it again if needed",
            self.name
        ))
    }
}

/// An index of a collection, as operations use it.
pub struct Index {
    /// Its number in the engine.
    pub id: IndexId,
    /// Definition and key generation.
    pub keys: Arc<IndexKeys>,
    /// Whether it may serve queries; false while it is being built.
    pub ready: bool,
    /// Its entries.
    pub data: Arc<dyn SortedDataInterface>,
    /// Usage counters.
    pub usage: Arc<IndexUsage>,
}

impl Index {
    /// Its definition.
    pub fn definition(&self) -> &IndexDefinition {
        &self.keys.definition
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.keys.definition.name
    }
}
