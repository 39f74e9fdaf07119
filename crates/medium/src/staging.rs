//! [`Staging`]: a few bytes that outlive the process as soon as they are put, without a system call.
//!
//! The memory of a small file, mapped and locked. When the process dies, the kernel has the bytes, and the next
//! process reads them with [`crate::Directory::read_file`]. After a power loss, any part may have its state of any
//! time since the file was created, torn at the medium's unit: the reader checks everything.
//!
//! A put costs a copy. Writing the same bytes to a log file costs a path through the kernel's file system, and
//! perhaps a wait for it. So an engine acknowledges by this, and stores larger amounts to the log later.

/// See the module's head. Made by [`crate::Directory::create_staging`].
pub trait Staging: Send {
    /// How many bytes it has.
    fn len(&self) -> usize;

    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts `parts`, one after the other, at `at`. Answers false, and has put nothing, where they don't lie
    /// within it. When this returns they survive the death of the process.
    #[must_use]
    fn put(&mut self, at: usize, parts: &[&[u8]]) -> bool;
}

/// Whether so many bytes from `at` lie within `len`.
pub fn fits(len: usize, at: usize, parts: &[&[u8]]) -> bool {
    let end = parts.iter().try_fold(at, |end, part| end.checked_add(part.len()));
    end.is_some_and(|end| end <= len)
}
