//! The errors of storage operations. Callers decide by the variant. The catalog, which knows index names and key
//! patterns, converts an error for the client.

use kauri_base::{CollectionId, Error, ErrorCode, IndexId, RecordId};
use std::fmt;

/// A storage failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageError {
    /// A record is not what the unit was computed from. Compute again.
    WriteConflict,
    /// The collection's definition has changed, or the collection was dropped. Resolve it again and compute the
    /// unit again.
    StaleCatalog(CollectionId),
    /// The collection or index was dropped during a read. The result is incomplete: resolve the name again and
    /// start again.
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
    /// Stored bytes are damaged.
    Corruption {
        /// The collection, where known.
        collection: Option<CollectionId>,
        /// The record, where known.
        record: Option<RecordId>,
        /// What is damaged, and where.
        message: String,
    },
    /// A document is longer than one can be here.
    DocumentTooLarge {
        /// Size of the document.
        bytes: usize,
        /// Maximum size in this directory.
        max: usize,
    },
    /// Memory is so short that nothing is added. Deletes are still admitted.
    OutOfMemory,
    /// The data cannot be opened with the available memory.
    NeedsMemory {
        /// Minimum memory.
        bytes: u64,
        /// What needs the memory.
        what: &'static str,
    },
    /// The medium failed. After a failed sync nothing more is acknowledged.
    Io(String),
    /// The engine's files are held still while they are copied. Nothing was changed.
    FilesHeld,
    /// A held snapshot cannot show this collection: it was created, dropped or changed after the snapshot was
    /// taken, or the index was. Start again.
    SnapshotUnavailable(CollectionId),
    /// A held snapshot was dropped, because it kept more old versions than the limit.
    SnapshotTooOld,
    /// A transaction has written more than one may.
    TransactionTooLarge,
    /// A pending unit's index is not above those before it, or a frame's is not the next one.
    OutOfOrder,
    /// The member of a replica set does not lead, so it accepts no units of its own.
    NotPrimary,
    /// A statement of the unit was executed before, under the same number of its session.
    Executed,
    /// The session has used this number since, which is greater than the unit's.
    OldNumber(i64),
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
                 directory: {max}; use a directory that was created with a larger --segmentSizeMB"
            ),
            StorageError::OutOfMemory => f.write_str(
                "the server's memory limit is nearly reached, so writes that need memory are refused: delete \
                 documents, drop indexes, or raise the limit of the control group",
            ),
            StorageError::NeedsMemory { bytes, what } => write!(
                f,
                "{what} need at least {} MB of memory, more than the server may use: raise the limit of the \
                 control group, use a machine with more memory, or lower --cacheSizeGB",
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
            StorageError::FilesHeld => f.write_str(
                "the data files are locked for a copy (fsync with lock): run fsyncUnlock, then try again",
            ),
            StorageError::SnapshotUnavailable(_) => f.write_str(
                "Unable to read from a snapshot due to pending collection catalog changes; please \
                 retry the operation",
            ),
            StorageError::SnapshotTooOld => f.write_str("Snapshot too old"),
            StorageError::TransactionTooLarge => {
                f.write_str("the transaction has too many changes")
            }
            StorageError::OutOfOrder => f.write_str("a pending unit is out of order"),
            StorageError::NotPrimary => f.write_str("not primary"),
            StorageError::Executed => f.write_str("the statement was executed before"),
            StorageError::OldNumber(newer) => write!(
                f,
                "a newer retryable write with txnNumber {newer} has already started on this session"
            ),
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
            StorageError::FilesHeld => ErrorCode::LockTimeout,
            StorageError::SnapshotUnavailable(_) => ErrorCode::SnapshotUnavailable,
            StorageError::SnapshotTooOld => ErrorCode::SnapshotTooOld,
            StorageError::TransactionTooLarge => ErrorCode::TransactionTooLarge,
            StorageError::NotPrimary => ErrorCode::NotWritablePrimary,
            StorageError::Executed => ErrorCode::WriteConflict,
            StorageError::OldNumber(_) => ErrorCode::TransactionTooOld,
            StorageError::Unsupported(_) => ErrorCode::CommandNotSupported,
        };
        Error::new(code, error.to_string())
    }
}
