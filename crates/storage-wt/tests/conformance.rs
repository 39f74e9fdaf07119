//! WiredTiger passes the engines' conformance suite.

mod common;

use kauri_conformance::Subject;
use kauri_storage_wt::{Options, WiredTiger};
use std::sync::Arc;

fn subject() -> Subject {
    let directory = common::TempDir::new();
    Subject::new(move || {
        let options = Options { cache_bytes: 256 << 20, ..Options::default() };
        Arc::new(WiredTiger::open(directory.path(), options).expect("opening"))
    })
}

kauri_conformance::conformance_tests!(subject);
kauri_conformance::conformance_snapshot_tests!(subject);
kauri_conformance::conformance_transaction_tests!(subject);
kauri_conformance::conformance_durable_tests!(subject);
