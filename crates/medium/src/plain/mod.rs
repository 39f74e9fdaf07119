//! Files of an ordinary file system: pread, pwritev, fdatasync; no mmap, so that a cold page
//! costs a system call on a thread that may wait, and never a fault on one that may not. The log files
//! of a directory in persistent memory are mapped all the same (see [`crate::dax`]), and so is a small file
//! that is locked in memory (`staging`).

mod directory;
mod file;
mod staging;

pub use directory::{DirectoryOptions, PlainDirectory};
pub(crate) use file::GROW_DRAIN;
pub use file::PlainFile;
