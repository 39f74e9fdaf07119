//! A segment's memory, its appender and its storer.

use super::{CacheConfig, CacheStats, Pattern, Pressure, SegmentId};
use crate::{EpochDomain, Error, Guard, Medium, Result, Site};
use kauri_base::Access;
use std::sync::Arc;

const UNFINISHED: Error = Error::Closed;

pub(super) struct Inner {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) domain: Arc<EpochDomain>,
}

impl Inner {
    pub(super) fn new(
        medium: Arc<dyn Medium>,
        domain: Arc<EpochDomain>,
        _config: CacheConfig,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Inner { medium, domain }))
    }

    pub(super) fn open_segment(&self, _segment: SegmentId) -> Result<SegmentWriter> {
        Err(UNFINISHED)
    }

    pub(super) fn adopt_segment(&self, _segment: SegmentId, _end: u32) -> Result<()> {
        Err(UNFINISHED)
    }

    pub(super) fn recycle(&self, _: SegmentId, _then: Box<dyn FnOnce() + Send>) -> Result<()> {
        Err(UNFINISHED)
    }

    pub(super) fn read<'g>(
        &self,
        _guard: &'g Guard,
        _segment: SegmentId,
        _offset: u32,
        _len: usize,
        _pattern: Pattern,
    ) -> Result<Access<&'g [u8]>> {
        Err(UNFINISHED)
    }

    pub(super) fn try_read<'g>(
        &self,
        _guard: &'g Guard,
        _segment: SegmentId,
        _offset: u32,
        _len: usize,
    ) -> Result<Option<&'g [u8]>> {
        Err(UNFINISHED)
    }

    pub(super) fn prefetch(&self, _segment: SegmentId, _offset: u32, _len: usize) {}

    pub(super) fn end(&self, _segment: SegmentId) -> u32 {
        0
    }

    pub(super) fn set_budget(&self, _bytes: u64) {}

    pub(super) fn pressure(&self) -> Pressure {
        Pressure::None
    }

    pub(super) fn stats(&self) -> CacheStats {
        CacheStats::default()
    }
}

/// The one appender of an open segment: bytes below [`end`](Self::end) never change again until the
/// segment is recycled, and only this value moves `end`. Dropping it seals the segment; what was not
/// stored by then still can be, through a [`SegmentStorer`].
pub struct SegmentWriter {
    storer: SegmentStorer,
}

impl SegmentWriter {
    /// The segment.
    pub fn segment(&self) -> SegmentId {
        self.storer.segment()
    }

    /// How far it has been appended.
    pub fn end(&self) -> u32 {
        0
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> u32 {
        0
    }

    /// Appends `parts`, one after the other, and answers the offset of the first byte. From then on
    /// the bytes can be read by address (which nobody knows until the caller publishes it); they are
    /// with the kernel only after a [`SegmentStorer::store_pending`]. [`Error::OutOfBounds`], and
    /// nothing appended, if they don't fit.
    pub fn append(&mut self, _parts: &[&[u8]]) -> Result<u32> {
        Err(UNFINISHED)
    }

    /// As [`SegmentWriter::append`], letting `fill` write the `len` bytes in place. What it doesn't
    /// write is undefined.
    pub fn append_with(&mut self, _len: usize, _fill: impl FnOnce(&mut [u8])) -> Result<u32> {
        Err(UNFINISHED)
    }

    /// A handle for storing from any thread.
    pub fn storer(&self) -> SegmentStorer {
        self.storer.clone()
    }

    /// See [`SegmentStorer::store_pending`].
    pub fn store_pending(&self, site: Site) -> Result<u32> {
        self.storer.store_pending(site)
    }

    /// Stores what is pending and ends appending. On an error the segment is sealed all the same and
    /// the rest can be stored through a [`SegmentStorer`].
    pub fn seal(self, site: Site) -> Result<u32> {
        self.storer.store_pending(site)
    }
}

/// Stores a segment's appended bytes. Cheap to clone, usable from any thread, by several at once.
#[derive(Clone)]
pub struct SegmentStorer {
    segment: SegmentId,
}

impl SegmentStorer {
    /// The segment.
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Stores everything that has been appended and not yet stored, in one call of the medium, and
    /// asks for its persistence (`site` labels that); a drain then makes it durable. Answers up to
    /// where the segment is stored, at least what had been appended when it was called. On an error
    /// nothing counts as stored and calling again stores it again.
    pub fn store_pending(&self, _site: Site) -> Result<u32> {
        Err(UNFINISHED)
    }

    /// Up to where the segment is stored.
    pub fn stored_end(&self) -> u32 {
        0
    }
}
