//! WiredTiger as a storage engine: `--storageEngine wiredTiger`, for comparison with Kauri's own engine, configured
//! as in MongoDB.
//!
//! Requires the cargo feature `wiredtiger`, off by default, because Debian's library is GPL; without it this crate
//! is empty. Position: beside `storage-log`, under the same interface and the same conformance suite. It must not
//! know documents' meaning.
//!
//! WiredTiger's calls block, so [`kauri_storage::StorageEngine::may_block`] is true: the server gives such an
//! engine many more threads than cores, as MongoDB does.
//!
//! | module | holds |
//! |---|---|
//! | `sys` | the library behind safe types; all unsafe code |
//! | `open` | opening a directory, the configuration, refusals |
//! | `core` | the open engine: sessions, tables, drops |
//! | `rows` | the tables about other tables and their counts |
//! | `registry` | the same in memory |
//! | `commit`, `index_write` | write units |
//! | `sequence` | commit numbers, and which of them readers may use |
//! | `acks` | which commits are written and durable |
//! | `snapshots` | held snapshots |
//! | `unit`, `store`, `index` | reading |
//! | `keys` | index keys as bytes |
//! | `build` | filling an index from the records |
//! | `status` | figures, messages |
#![cfg(feature = "wiredtiger")]

mod acks;
mod build;
mod commit;
mod core;
mod engine;
mod index;
mod index_write;
mod keys;
mod open;
mod registry;
mod rows;
mod sequence;
mod snapshots;
mod status;
mod store;
#[allow(unsafe_code)]
mod sys;
mod unit;

pub use engine::{Figures, WiredTiger};
pub use open::Options;
