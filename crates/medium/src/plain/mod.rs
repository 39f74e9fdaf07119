//! Files of an ordinary file system: pread, pwritev, fdatasync; never mmap, so that a cold page
//! costs a system call on a thread that may wait, and never a fault on one that may not. The log files
//! of a directory in persistent memory are mapped all the same: see [`crate::dax`].

mod directory;
mod file;

pub use directory::{DirectoryOptions, PlainDirectory};
pub(crate) use file::GROW_DRAIN;
pub use file::PlainFile;
