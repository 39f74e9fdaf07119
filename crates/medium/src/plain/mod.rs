//! Files of an ordinary file system: pread, pwritev, fdatasync; never mmap, so that a cold page
//! costs a system call on a thread that may wait, and never a fault on one that may not.

mod directory;
mod file;

pub use directory::PlainDirectory;
pub use file::PlainFile;
