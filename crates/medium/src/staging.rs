//! [`Staging`]: a few bytes that outlive the process from the moment they are put, without a system call.
//!
//! The memory of a small file, mapped and kept in place: when the process dies the kernel has what was
//! put into it, and whoever opens the directory next reads it with [`crate::Directory::read_file`]. After a
//! loss of power any part of it may be as it was at any time since the file was made, torn at the
//! medium's unit: whoever reads it checks what it finds.
//!
//! Putting costs a copy, where giving a log file the same bytes costs the kernel's way through the file
//! system, and perhaps waiting for it. So an engine acknowledges by this, and stores to the log later and
//! more at once.

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
pub(crate) fn fits(len: usize, at: usize, parts: &[&[u8]]) -> bool {
    let end = parts.iter().try_fold(at, |end, part| end.checked_add(part.len()));
    end.is_some_and(|end| end <= len)
}
