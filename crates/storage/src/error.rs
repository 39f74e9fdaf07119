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
    /// The collection or index that is read was dropped. What was read of it is not all that there was:
    /// resolve the name again and begin anew.
    Dropped {
        /// The collection, or the one that the index belonged to.
        collection: CollectionId,
        /// The index, if it is an index that is read.
        index: Option<IndexId>,
    },
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
    /// A document is longer than one can be here.
    DocumentTooLarge {
        /// Its bytes.
        bytes: usize,
        /// What one may have, as the directory was made.
        max: usize,
    },
    /// Memory is so short that nothing is added. Deletes are still admitted.
    OutOfMemory,
    /// What is stored can't be opened with the memory that there is: so many bytes are needed.
    NeedsMemory {
        /// So many bytes at least.
        bytes: u64,
        /// What for.
        what: &'static str,
    },
    /// The medium failed. After a failed sync nothing more is acknowledged.
    Io(String),
    /// A held snapshot cannot show this collection: its definition has changed since it was taken,
    /// or it was created or dropped, or the index was. Begin anew.
    SnapshotUnavailable(CollectionId),
    /// A held snapshot was given up, since it held back more old versions than there may be.
    SnapshotTooOld,
    /// A transaction has staged more than one may.
    TransactionTooLarge,
    /// A pending unit's index is not above those before it.
    OutOfOrder,
    /// The engine cannot do this.
    Unsupported(&'static str),
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::WriteConflict => f.write_str("write conflict"),
            StorageError::StaleCatalog(id) => write!(f, "collection {} has changed", id.0),
            StorageError::Dropped { collection, index: None } => {
                write!(f, "collection {} was dropped", collection.0)
            }
            StorageError::Dropped { collection, index: Some(index) } => {
                write!(f, "index {} of collection {} was dropped", index.0, collection.0)
            }
            StorageError::DuplicateKey { index, .. } => {
                write!(f, "duplicate key in index {}", index.0)
            }
            StorageError::OutOfDiskSpace => f.write_str("no space left for data"),
            StorageError::DocumentTooLarge { bytes, max } => write!(
                f,
                "object to store too large. size in bytes: {bytes}, max size in the segments of this data \
                 directory: {max}; one made with a larger --segmentSizeMB takes it"
            ),
            StorageError::OutOfMemory => f.write_str(
                "the server has nearly used up the memory that it may have, so nothing is added: delete \
                 documents or drop indexes, or raise the limit of its control group",
            ),
            StorageError::NeedsMemory { bytes, what } => write!(
                f,
                "{what} need {} MB of memory at least, which is more than the server may have: give it more \
                 memory (the limit of its control group, or a larger machine), or lower --cacheSizeGB",
                bytes.div_ceil(1 << 20)
            ),
            StorageError::Corruption { collection, record, message } => {
                f.write_str("corrupt data")?;
                if let Some(collection) = collection {
                    write!(f, " in collection {}", collection.0)?;
                }
                if let Some(record) = record {
                    write!(f, ", record {}", record.0)?;
                }
                write!(f, ": {message}")
            }
            StorageError::Io(message) => write!(f, "I/O error: {message}"),
            StorageError::SnapshotUnavailable(_) => f.write_str(
                "Unable to read from a snapshot due to pending collection catalog changes; please \
                 retry the operation",
            ),
            StorageError::SnapshotTooOld => f.write_str("Snapshot too old"),
            StorageError::TransactionTooLarge => {
                f.write_str("the transaction has staged more changes than one may")
            }
            StorageError::OutOfOrder => f.write_str("a pending unit is out of order"),
            StorageError::Unsupported(what) => {
                write!(f, "the storage engine does not support {what}")
            }
        }
    }
}

impl std::error::Error for StorageError {}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Error {
        let code = match &error {
            StorageError::WriteConflict | StorageError::StaleCatalog(_) => ErrorCode::WriteConflict,
            StorageError::Dropped { .. } => ErrorCode::QueryPlanKilled,
            StorageError::DuplicateKey { .. } => ErrorCode::DuplicateKey,
            StorageError::OutOfDiskSpace => ErrorCode::OutOfDiskSpace,
            StorageError::DocumentTooLarge { .. } => ErrorCode::BSONObjectTooLarge,
            StorageError::OutOfMemory | StorageError::NeedsMemory { .. } => {
                ErrorCode::ExceededMemoryLimit
            }
            StorageError::Corruption { .. } => ErrorCode::DataCorruptionDetected,
            StorageError::Io(_) | StorageError::OutOfOrder => ErrorCode::InternalError,
            StorageError::SnapshotUnavailable(_) => ErrorCode::SnapshotUnavailable,
            StorageError::SnapshotTooOld => ErrorCode::SnapshotTooOld,
            StorageError::TransactionTooLarge => ErrorCode::TransactionTooLarge,
            StorageError::Unsupported(_) => ErrorCode::CommandNotSupported,
        };
        Error::new(code, error.to_string())
    }
}
