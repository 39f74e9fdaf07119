//! A log file whose bytes are memory: stored bytes need no second store, and reads need no copy.
//!
//! Only the cache uses this (`cache/segment.rs` explains why there are no races). It stores a segment's bytes in
//! place, fences, and only then makes them readable. So **readable bytes are durable**, in publication order,
//! without a system call.

use crate::{Latency, Site};
use kauri_base::sync::Arc;
use std::ptr::NonNull;

/// The mapping of a log file, as [`crate::Medium::mapped`] answers it. What can be done with it is
/// this crate's secret.
pub struct Mapped(pub(crate) Arc<dyn Direct>);

impl Mapped {
    pub(crate) fn new(direct: Arc<dyn Direct>) -> Self {
        Mapped(direct)
    }
}

/// See the module's head. `offset`s are the file's.
pub(crate) trait Direct: Send + Sync {
    /// Where these bytes are in memory. Their address stays while this object lives. None if the file
    /// has them not.
    fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>>;

    /// Puts `parts` at `offset`, on their way to the medium; a [`fence`](Direct::fence) of the same
    /// thread makes them durable. `site` labels the asking for that.
    ///
    /// # Safety
    /// The range, `len` bytes, is within the file, and until that fence nobody looks at it or stores
    /// to it by any other way.
    #[allow(unsafe_code)]
    unsafe fn store(&self, offset: u64, len: usize, parts: &[&[u8]], site: Site);

    /// What this thread has stored is durable, and visible to whoever learns of it from now on.
    fn fence(&self, site: Site);

    /// Has page tables filled for a range now rather than at the first store.
    fn populate(&self, offset: u64, len: usize);

    /// What is added to reads.
    fn latency(&self) -> &Latency;
}
