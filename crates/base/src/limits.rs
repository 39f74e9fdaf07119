//! All limits, in one file. Limits that MongoDB has, too, have MongoDB's values.

/// Largest document that a user may store (`maxBsonObjectSize`).
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Room above it for what the server adds to a document that is passing through.
pub const DOCUMENT_INTERNAL_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + 16 * 1024;
/// Largest message (`maxMessageSizeBytes`).
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;
/// Most write statements in one command (`maxWriteBatchSize`).
pub const WRITE_BATCH_MAX: usize = 100_000;
/// Deepest nesting of a document that is accepted from a client.
pub const DOCUMENT_DEPTH_MAX: usize = 200;
/// Deepest nesting that stored documents may reach.
pub const DOCUMENT_DEPTH_STORED_MAX: usize = 180;
/// Documents in a cursor's first batch when the client names no size.
pub const FIRST_BATCH_DOCS: usize = 101;
/// Most bytes of a cursor's batch (one document more is never added beyond them).
pub const REPLY_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;
/// Longest fully qualified collection name, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 255;
/// Longest database name, in bytes (exclusive in MongoDB: 64 is too long).
pub const DATABASE_NAME_BYTES_MAX: usize = 63;
/// Most indexes of one collection.
pub const INDEXES_PER_COLLECTION_MAX: usize = 64;
/// Most fields of one compound index.
pub const INDEX_FIELDS_MAX: usize = 32;
/// Keys that a document which is written may have in one index, unless `indexMaxNumGeneratedKeysPerDocument`
/// says otherwise.
pub const INDEX_KEYS_PER_DOCUMENT_MAX: usize = 100_000;
/// Bytes of these keys: twice the largest document. A long string beside a long array in a compound index
/// multiplies, and indexes are in memory.
pub const INDEX_KEYS_BYTES_PER_DOCUMENT_MAX: usize = 2 * DOCUMENT_BYTES_MAX;
/// Bytes of the keys that a document which is written may have in all indexes of its collection.
pub const INDEX_KEYS_BYTES_ALL_INDEXES_MAX: usize = 8 * DOCUMENT_BYTES_MAX;
/// Bytes of the keys of a stored document in one index. A document that was written under a larger limit can still
/// be deleted, checked and indexed at startup.
pub const INDEX_KEYS_BYTES_STORED_MAX: usize = 256 * 1024 * 1024;
/// Deepest nesting of a filter's logical operators (and `$elemMatch`, `$jsonSchema`).
pub const MATCH_DEPTH_MAX: usize = 100;
/// Most nodes of one filter.
pub const MATCH_NODES_MAX: usize = 1_000_000;
/// Longest regular expression pattern, in bytes.
pub const REGEX_PATTERN_BYTES_MAX: usize = 16_384;
/// Match steps that one regular expression may take on one value.
pub const REGEX_MATCH_STEPS_MAX: u32 = 1_000_000;
/// Memory that one match may use for backtracking where it is interpreted, in KiB.
pub const REGEX_MATCH_HEAP_KIB_MAX: u32 = 16 * 1024;
/// An array, document or string that an expression builds on its way to a result.
pub const EXPRESSION_VALUE_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Stack of a compiled regular expression, in bytes.
pub const REGEX_JIT_STACK_BYTES_MAX: usize = 512 * 1024;
/// Open cursors of the whole server.
pub const CURSORS_MAX: usize = 100_000;
/// Open cursors of one connection, so that one client can't take all of the server's: a hundredth of them. A
/// driver has a few, and a proxy's connections those of a few clients.
pub const CURSORS_PER_CONNECTION_MAX: usize = 1_000;
/// Open cursors of one logical session, on however many connections.
pub const CURSORS_PER_SESSION_MAX: usize = 1_000;
/// Idle time after which a cursor without a session and without its connection is closed. Until then a client may
/// continue it on another connection.
pub const CURSOR_ORPHAN_MS: u64 = 10 * 1000;
/// Idle time after which a cursor is closed.
pub const CURSOR_IDLE_MS: u64 = 10 * 60 * 1000;
/// Idle time after which a logical session ends.
pub const LOGICAL_SESSION_IDLE_MINUTES: i32 = 30;
/// Logical sessions of the whole server.
pub const LOGICAL_SESSIONS_MAX: usize = 1_000_000;
/// Memory of one blocking sort before it spills, or fails if it may not.
pub const SORT_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Memory of one `$group` before it spills, or fails if it may not.
pub const GROUP_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Memory for the partitions of a `$densify` (`internalDocumentSourceDensifyMaxMemoryBytes`).
pub const DENSIFY_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Documents that one `$densify` may make (`internalQueryMaxAllowedDensifyDocs`).
pub const DENSIFY_DOCS_MAX: i32 = 500_000;
/// Bytes of a cursor's batch where the memory of all operations is short.
pub const SHORT_BATCH_BYTES: usize = 256 * 1024;
/// Memory at which a blocking stage spills if the memory of all operations is short.
pub const SPILL_EARLY_BYTES: usize = 4 * 1024 * 1024;
/// Maximum bytes per transfer to or from a temporary file; a single larger record may exceed it.
pub const SPILL_PIECE_BYTES_MAX: usize = 1024 * 1024;
/// The least that it is, however little memory there is.
pub const SPILL_PIECE_BYTES_MIN: usize = 4 * 1024;
/// Most runs that are merged at a time.
pub const SPILL_RUNS_MERGED_MAX: usize = 64;
/// Most parts that groups are divided into at a time.
pub const SPILL_PARTS_MAX: usize = 64;
/// Free space that temporary files leave on their file system (`internalQuerySpillingMinAvailableDiskSpaceBytes`).
pub const SPILL_FREE_BYTES_MIN: u64 = 500 * 1024 * 1024;
/// Threads that write and read temporary files.
pub const SPILL_THREADS_MAX: usize = 2;
/// Memory of what one transaction stages, before it fails with `TransactionTooLarge`; also the longest
/// unit that is committed as a whole.
pub const TRANSACTION_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Memory and log space of old versions for held snapshots. Beyond it, the oldest snapshot fails with
/// `SnapshotTooOld`.
pub const SNAPSHOT_VERSIONS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Most stages of one pipeline: as it is written, and again with what its stages stand for and the stages of
/// views counted.
pub const PIPELINE_STAGES_MAX: usize = 1000;
/// Most bytes of the stages of a view and of the views below it.
pub const VIEW_PIPELINE_BYTES_MAX: usize = 16_000_000;
/// Maximum nesting of pipelines (`$lookup` within `$lookup`, views on views).
pub const PIPELINE_DEPTH_MAX: usize = 20;
/// Time slice of an operation, after which it yields to other tasks of its worker.
pub const TIME_SLICE_MS: u64 = 2;
/// Steps between two reads of the clock in a long operation.
pub const TIME_SLICE_STEPS: u32 = 128;
/// Client metadata of a handshake, in bytes.
pub const CLIENT_METADATA_BYTES_MAX: usize = 512;
/// `appName` of a handshake, in bytes.
pub const APP_NAME_BYTES_MAX: usize = 128;
/// An attribute of a log line, in bytes, unless `maxLogSizeKB` says otherwise.
pub const LOG_ATTRIBUTE_BYTES_MAX: usize = 10 * 1024;
/// Log lines that `getLog` gives.
pub const LOG_LINES_KEPT_MAX: usize = 1024;
/// Bytes of these lines: half of what a reply takes.
pub const LOG_BYTES_KEPT_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a running command that are kept for `currentOp`.
pub const COMMAND_BYTES_KEPT_MAX: usize = 1024;
/// Bytes of the command that opened a cursor, kept with the cursor.
pub const CURSOR_COMMAND_BYTES_KEPT_MAX: usize = 4 * 1024;
/// Memory of the differences in a chunk of diagnostic data. A larger chunk is written early.
pub const DIAGNOSTIC_CHUNK_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum size of a file of diagnostic data that is read at startup.
pub const DIAGNOSTIC_READ_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Databases that may have a profiling level of their own.
pub const PROFILE_LEVELS_MAX: usize = 100_000;
/// Bytes of documents that wait to be stored in `system.profile`.
pub const PROFILE_QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum size of a command in `system.profile`; a larger one is truncated to text.
pub const PROFILE_COMMAND_BYTES_MAX: usize = 50 * 1024;
/// Bytes of all the filters that `profile` keeps, of all databases.
pub const PROFILE_FILTERS_BYTES_MAX: usize = 16 * 1024 * 1024;
