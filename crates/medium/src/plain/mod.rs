//! A directory of an ordinary file system. Its log files are not mapped ([`crate::plain_file`]): a cold page costs
//! a system call on a thread that may wait, and never a page fault on a thread that may not. Exceptions: the log
//! files of a directory in persistent memory are mapped ([`crate::dax`]), and so is a small file that is locked in
//! memory (`staging`).

mod directory;
mod staging;

pub use directory::{DirectoryOptions, PlainDirectory};
