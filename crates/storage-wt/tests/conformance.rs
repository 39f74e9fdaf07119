//! WiredTiger passes the engines' conformance suite.

mod common;

use kauri_storage::conformance::Subject;
use kauri_storage_wt::{Options, WiredTiger};
use std::sync::Arc;

fn subject() -> Subject {
    let directory = common::TempDir::new();
    Subject::new(move || {
        let options = Options { cache_bytes: 256 << 20, ..Options::default() };
        Arc::new(WiredTiger::open(directory.path(), options).expect("opening"))
    })
}

kauri_storage::conformance_tests!(subject);
kauri_storage::conformance_snapshot_tests!(subject);
kauri_storage::conformance_transaction_tests!(subject);
kauri_storage::conformance_durable_tests!(subject);
