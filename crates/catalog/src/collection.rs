//! A collection for operations, and the effect of a write on its indexes.
//!
//! A [`Collection`] is one version of a definition: it never changes. A change of definition creates a new version.
//! Writes computed from the old version fail with `StaleCatalog` and are computed again.

use crate::index::{Index, UnusableIndex};
use crate::namespace::Namespace;
use crate::options::{CollectionOptions, ValidationAction, ValidationLevel};
use crate::usage::OperationUsage;
use kauri_base::{CollectionId, CommitSeq, Error, ErrorCode, RecordId, Result, limits};
use kauri_bson::keygen::Keys;
use kauri_bson::{Doc, DocBuf, Type, Value, doc};
use kauri_matcher::MatchCx;
use kauri_storage::{Label, RecordStore, StorageError, WriteUnit};
use std::borrow::Cow;
use std::sync::Arc;

/// See the module's head.
pub struct Collection {
    /// Its number in the engine.
    pub id: CollectionId,
    /// Its name.
    pub ns: Namespace,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The options of its creation.
    pub options: CollectionOptions,
    /// Which definition this is; see `WriteUnit::expect_definition`.
    pub definition: u64,
    /// Its documents.
    pub store: Arc<dyn RecordStore>,
    /// Its indexes; the `_id` index first.
    pub indexes: Vec<Arc<Index>>,
    /// Indexes that it has but that can't be used: as long as there are any it takes no documents.
    pub unusable: Vec<Arc<UnusableIndex>>,
    /// Whether its documents are being copied elsewhere, so that it takes no writes.
    pub frozen: bool,
    /// Usage counters, shared by all versions of its definition.
    pub usage: Arc<OperationUsage>,
    /// What units that change documents tell of it, on a member of a replica set.
    pub label: Option<Arc<Label>>,
}

/// Scratch memory for key generation, reused from write to write.
#[derive(Default)]
pub struct KeyScratch {
    old: Keys,
    new: Keys,
}

impl Collection {
    /// The `_id` index.
    pub fn id_index(&self) -> Option<&Arc<Index>> {
        self.indexes.first().filter(|i| i.definition().is_id())
    }

    /// The index of this name.
    pub fn index_by_name(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|i| i.name() == name)
    }

    /// The index of this engine number.
    pub fn index_by_id(&self, id: kauri_base::IndexId) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|i| i.id == id)
    }

    /// Adds an insert with its keys to the unit. The document has its `_id` already, in front.
    pub fn insert<'a>(
        &self,
        unit: &mut WriteUnit<'a>,
        doc: Cow<'a, [u8]>,
        scratch: &mut KeyScratch,
    ) -> Result<usize> {
        if doc.len() > limits::DOCUMENT_BYTES_MAX {
            return Err(too_large(doc.len()));
        }
        self.check_takes_documents()?;
        self.begin(unit);
        let op = unit.insert(self.id, doc);
        let mut key_bytes = 0;
        for index in &self.indexes {
            // The document moved into the unit; it is read from there.
            let bytes = match unit.ops.get(op).map(|op| &op.kind) {
                Some(kauri_storage::OpKind::Insert { doc }) => doc,
                _ => break,
            };
            index.keys.generate_new(Doc::from_bytes(bytes)?, &mut scratch.new)?;
            check_key_bytes(&mut key_bytes, &scratch.new)?;
            let unique = index.definition().refuses_duplicates();
            for key in scratch.new.iter() {
                unit.key(index.id, true, unique, key.bytes, key.type_bits);
            }
        }
        Ok(op)
    }

    /// Adds an update of a record, with the keys that change, to the unit.
    pub fn update<'a>(
        &self,
        unit: &mut WriteUnit<'a>,
        record: RecordId,
        seen: CommitSeq,
        old: Doc<'_>,
        new: Cow<'a, [u8]>,
        scratch: &mut KeyScratch,
    ) -> Result<usize> {
        if new.len() > limits::DOCUMENT_INTERNAL_BYTES_MAX {
            return Err(too_large(new.len()));
        }
        self.check_takes_documents()?;
        self.begin(unit);
        let mut changes: Vec<(usize, bool, Vec<u8>, Vec<u8>)> = Vec::new();
        let mut key_bytes = 0;
        let new_doc = Doc::from_bytes(&new)?;
        for (position, index) in self.indexes.iter().enumerate() {
            if index.definition().is_id() {
                continue;
            }
            index.keys.generate_into(old, &mut scratch.old)?;
            index.keys.generate_new(new_doc, &mut scratch.new)?;
            check_key_bytes(&mut key_bytes, &scratch.new)?;
            for key in scratch.old.iter() {
                if !scratch.new.contains(key.bytes) {
                    changes.push((position, false, key.bytes.to_vec(), key.type_bits.to_vec()));
                }
            }
            for key in scratch.new.iter() {
                // Of an index that is being built the old keys may not be there yet.
                if !index.ready || !scratch.old.contains_exactly(key.bytes, key.type_bits) {
                    changes.push((position, true, key.bytes.to_vec(), key.type_bits.to_vec()));
                }
            }
        }
        let op = unit.update(self.id, record, seen, new);
        for (position, add, key, bits) in changes {
            let index = &self.indexes[position];
            unit.key(index.id, add, add && index.definition().refuses_duplicates(), &key, &bits);
        }
        Ok(op)
    }

    /// Adds a delete of a record, with its keys, to the unit.
    pub fn delete(
        &self,
        unit: &mut WriteUnit<'_>,
        record: RecordId,
        seen: CommitSeq,
        old: Doc<'_>,
        scratch: &mut KeyScratch,
    ) -> Result<usize> {
        self.check_takes_documents()?;
        self.begin(unit);
        let op = unit.delete(self.id, record, seen);
        for index in &self.indexes {
            index.keys.generate_into(old, &mut scratch.old)?;
            for key in scratch.old.iter() {
                unit.key(index.id, false, false, key.bytes, key.type_bits);
            }
        }
        if self.label.is_some()
            && let Some(id) = old.get("_id")
        {
            unit.note(DocBuf::build(|out| out.put_elem(id)).as_doc().as_bytes());
        }
        Ok(op)
    }

    /// The unit changes documents of the collection.
    fn begin(&self, unit: &mut WriteUnit<'_>) {
        unit.expect_definition(self.id, self.definition);
        if let Some(label) = &self.label {
            unit.label(label);
        }
    }

    /// Fails while documents of the collection can't be written, changed or deleted.
    pub fn check_takes_documents(&self) -> Result<()> {
        self.check_writable()?;
        self.unusable.first().map_or(Ok(()), |index| Err(index.error(&self.ns)))
    }

    /// Fails while the collection takes no writes.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.frozen {
            return Err(Error::new(
                ErrorCode::ConflictingOperationInProgress,
                format!("the collection is being converted or moved: {}", self.ns),
            ));
        }
        Ok(())
    }

    /// Fails if the validator refuses the document. `old` is the document it replaces; `now_ms` is `$$NOW`.
    pub fn check_valid(&self, doc: Doc<'_>, old: Option<Doc<'_>>, now_ms: i64) -> Result<()> {
        let Some(validator) = &self.options.validator_expr else { return Ok(()) };
        if self.options.level() == ValidationLevel::Off {
            return Ok(());
        }
        let validator =
            validator.as_ref().map_err(|error| self.unusable_validator(error.clone()))?;
        // Without the variables of the statement's `let`.
        let mut cx = MatchCx::new();
        cx.eval.now_ms = now_ms;
        let checked = |error: Error| match error.code() {
            ErrorCode::Overflow => self.unusable_validator(error),
            _ => error,
        };
        let matches = |doc| validator.matches(doc, &cx).map_err(checked);
        if matches(doc)? {
            return Ok(());
        }
        if self.options.level() == ValidationLevel::Moderate
            && let Some(old) = old
            && !matches(old)?
        {
            return Ok(());
        }
        if self.options.action() != ValidationAction::Error {
            let attr = kauri_base::log::Attr::new().str("namespace", self.ns.as_str());
            kauri_base::log::warning("STORAGE", 20294, "-", "Document fails validation", attr);
        }
        if self.options.action() == ValidationAction::Warn {
            return Ok(());
        }
        let details = validator.explain_mismatch(doc, &cx).map_err(checked)?;
        let info = DocBuf::build(|w| {
            if let Some(id) = doc.get("_id") {
                w.put_elem_as("failingDocumentId", id);
            }
            w.put("details", &details);
        });
        let extra = doc! { "errInfo" => info };
        Err(Error::new(ErrorCode::DocumentValidationFailure, "Document failed validation")
            .with_extra(extra.into_vec()))
    }

    /// The error of a stored validator that can't be used, with the way out of it.
    fn unusable_validator(&self, error: Error) -> Error {
        let way_out = "change it or set validationLevel to off, with collMod";
        error.context(format!("The validator of '{}' is unusable; {way_out}", self.ns))
    }

    /// The client's error for a failed commit: a duplicate key has MongoDB's message.
    pub fn explain_commit_error(&self, error: StorageError) -> Error {
        let StorageError::DuplicateKey { index, key, type_bits, .. } = &error else {
            return error.into();
        };
        let Some(index) = self.index_by_id(*index) else { return error.into() };
        let pattern = index.definition().key.as_doc();
        let values = index.definition().pattern.decode(key, type_bits).unwrap_or_default();
        let key_value = DocBuf::build(|w| {
            for (field, value) in pattern.iter().zip(&values) {
                w.put_value(field.key(), value);
            }
        });
        let message = format!(
            "E11000 duplicate key error collection: {} index: {} dup key: {}",
            self.ns,
            index.name(),
            shown_key(key_value.as_doc()),
        );
        let extra = doc! { "keyPattern" => pattern, "keyValue" => key_value };
        Error::new(ErrorCode::DuplicateKey, message).with_extra(extra.into_vec())
    }

    /// The bytes and records by which a capped collection exceeds its limits after `bytes` and `records` more are
    /// added.
    pub fn capped_excess(&self, records: u64, bytes: u64) -> Result<Option<(u64, u64)>> {
        let Some(capped) = self.options.capped else { return Ok(None) };
        let stats = self.stats()?;
        let excess_bytes = (stats.bytes + bytes).saturating_sub(capped.bytes_max);
        let excess_records = match capped.records_max {
            0 => 0,
            max => (stats.records + records).saturating_sub(max),
        };
        let is_over = excess_bytes > 0 || excess_records > 0;
        Ok(is_over.then_some((excess_records, excess_bytes)))
    }
}

/// Adds up the keys that a document has in all indexes.
fn check_key_bytes(sum: &mut usize, keys: &Keys) -> Result<()> {
    *sum += keys.bytes();
    if *sum > limits::INDEX_KEYS_BYTES_ALL_INDEXES_MAX {
        return Err(kauri_bson::keygen::too_many_keys());
    }
    Ok(())
}

fn too_large(bytes: usize) -> Error {
    Error::new(
        ErrorCode::BSONObjectTooLarge,
        format!(
            "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and {}({}MB)",
            limits::DOCUMENT_INTERNAL_BYTES_MAX,
            limits::DOCUMENT_BYTES_MAX / (1024 * 1024),
        ),
    )
}

/// A key as MongoDB's message has it: a string that is not UTF-8 by its bytes.
fn shown_key(key: Doc<'_>) -> String {
    use std::fmt::Write;
    let shown = DocBuf::build(|out| {
        for field in key.iter() {
            match field.value() {
                Value::NotUtf8 { .. } if field.ty() == Type::String => {
                    let mut text = String::from("0x");
                    for byte in field.value().string_bytes().unwrap_or_default() {
                        let _ = write!(text, "{byte:02x}");
                    }
                    out.put(field.key(), text);
                }
                _ => out.put_elem(field),
            }
        }
    });
    kauri_bson::shell_text(shown.as_doc())
}
