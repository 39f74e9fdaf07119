//! What a storage operation may fail with. Callers decide by the variant; what reaches a client is
//! made from it where index names and key patterns are known (the catalog).

use kauri_base::{CollectionId, Error, ErrorCode, IndexId, RecordId};
use std::fmt;

/// A storage failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageError {
    /// A record is not what the unit was computed from. Compute again.
    WriteConflict,
    /// The collection's definition has changed, or it is gone. Resolve it again and compute anew.
    StaleCatalog(CollectionId),
    /// A unique index holds this key already.
    DuplicateKey {
        /// The index.
        index: IndexId,
        /// Which operation of the unit (its position in `WriteUnit::ops`).
        op: usize,
        /// The key, as a KeyString.
        key: Vec<u8>,
        /// The type bits that the unit gave with the key.
        type_bits: Vec<u8>,
        /// The record that has it, or `None` if it's another operation of the same unit.
        existing: Option<RecordId>,
    },
    /// No room. Deletes are still admitted.
    OutOfDiskSpace,
    /// Stored bytes are not what was stored.
    Corruption {
        /// The collection, where known.
        collection: Option<CollectionId>,
        /// The record, where known.
        record: Option<RecordId>,
        /// What was found where.
        message: String,
    },
    /// The medium failed. After a failed sync nothing more is acknowledged.
    Io(String),
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::WriteConflict => f.write_str("write conflict"),
            StorageError::StaleCatalog(id) => write!(f, "collection {} has changed", id.0),
            StorageError::DuplicateKey { index, .. } => write!(f, "duplicate key in {index:?}"),
            StorageError::OutOfDiskSpace => f.write_str("no space left for data"),
            StorageError::Corruption { collection, record, message } => {
                write!(f, "corrupt data (collection {collection:?}, {record:?}): {message}")
            }
            StorageError::Io(message) => write!(f, "I/O error: {message}"),
        }
    }
}

impl std::error::Error for StorageError {}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Error {
        let code = match &error {
            StorageError::WriteConflict | StorageError::StaleCatalog(_) => ErrorCode::WriteConflict,
            StorageError::DuplicateKey { .. } => ErrorCode::DuplicateKey,
            StorageError::OutOfDiskSpace => ErrorCode::OutOfDiskSpace,
            StorageError::Corruption { .. } => ErrorCode::DataCorruptionDetected,
            StorageError::Io(_) => ErrorCode::InternalError,
        };
        Error::new(code, error.to_string())
    }
}
