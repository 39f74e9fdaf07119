//! The engine passes the conformance suite on plain files.

use kauri_conformance::Subject;
use kauri_medium::plain::PlainDirectory;
use kauri_storage_log::{Options, PmLog};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory, removed when the test ends.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> TempDir {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("kauri-conformance-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn subject() -> Subject {
    let directory = TempDir::new();
    Subject::new(move || {
        let options = Options { segment_bytes: 32 << 20, ..Options::default() };
        let directory = PlainDirectory::open(&directory.0).expect("the directory");
        Arc::new(PmLog::open(Arc::new(directory), options).expect("the engine"))
    })
}

kauri_conformance::conformance_tests!(subject);
kauri_conformance::conformance_durable_tests!(subject);
kauri_conformance::conformance_snapshot_tests!(subject);
kauri_conformance::conformance_transaction_tests!(subject);
kauri_conformance::conformance_pending_tests!(subject);
kauri_conformance::conformance_durable_pending_tests!(subject);
