//! The events of the emulated storage, in order.

use kauri_base::sync::Arc;
use kauri_medium::Site;
use std::fmt;

/// A file, whatever its name is at the moment.
pub(super) type FileId = u64;

/// A thread, numbered in the order in which they came to any emulator.
pub(super) type Thread = u32;

#[derive(Clone)]
pub(super) enum Event {
    Create {
        name: String,
        file: FileId,
    },
    Grow {
        file: FileId,
        len: u64,
    },
    /// The length is durable.
    GrowSync {
        file: FileId,
        site: Site,
    },
    Store {
        file: FileId,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Persist {
        file: FileId,
        offset: u64,
        len: u64,
        by: Thread,
        site: Site,
    },
    /// This thread's persisted data is durable.
    Fence {
        file: FileId,
        by: Thread,
        site: Site,
    },
    /// Numbered by its place in the trace.
    DrainBegin {
        file: FileId,
        site: Site,
    },
    DrainEnd {
        file: FileId,
        begun_at: usize,
        succeeded: bool,
    },
    /// A small file's new contents, still beside the old one.
    FileWrite {
        file: FileId,
        bytes: Arc<[u8]>,
    },
    FileSync {
        file: FileId,
        site: Site,
    },
    Rename {
        name: String,
        file: FileId,
    },
    Remove {
        name: String,
    },
    DirectorySync {
        site: Site,
    },
    Lock {
        dirty: bool,
    },
    /// The test's own remark.
    Mark {
        text: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Create { name, file } => write!(f, "create {name} as file {file}"),
            Event::Grow { file, len } => write!(f, "grow file {file} to {len}"),
            Event::Store { file, offset, bytes } => {
                write!(f, "store {} bytes at {offset} of file {file}", bytes.len())
            }
            Event::GrowSync { file, site } => write!(f, "sync the length of file {file} ({site})"),
            Event::Fence { file, by, site } => {
                write!(f, "fence of file {file} by thread {by} ({site})")
            }
            Event::Persist { file, offset, len, site, .. } => {
                write!(f, "persist {len} bytes at {offset} of file {file} ({site})")
            }
            Event::DrainBegin { file, site } => write!(f, "drain of file {file} begins ({site})"),
            Event::DrainEnd { file, begun_at, succeeded } => {
                let how = if *succeeded { "ends" } else { "fails" };
                write!(f, "drain of file {file} that began at {begun_at} {how}")
            }
            Event::FileWrite { file, bytes } => {
                write!(f, "write {} bytes to file {file}", bytes.len())
            }
            Event::FileSync { file, site } => write!(f, "sync file {file} ({site})"),
            Event::Rename { name, file } => write!(f, "rename file {file} to {name}"),
            Event::Remove { name } => write!(f, "remove {name}"),
            Event::DirectorySync { site } => write!(f, "sync the directory ({site})"),
            Event::Lock { dirty: true } => write!(f, "lock"),
            Event::Lock { dirty: false } => write!(f, "clean unlock"),
            Event::Mark { text } => write!(f, "— {text}"),
        }
    }
}
