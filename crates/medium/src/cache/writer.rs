//! Appending to a segment and storing what was appended.

use super::segment::AppendToken;
use super::table::{Table, add};
use super::{SegmentId, Shared};
use crate::{Error, Result, Site};
use std::io::IoSlice;
use std::sync::Arc;

/// The one appender of an open segment: bytes below [`end`](Self::end) never change again until the
/// segment is recycled, and only this value moves `end`. Dropping it seals the segment; what was not
/// stored by then still can be, through a [`SegmentStorer`].
pub struct SegmentWriter {
    storer: SegmentStorer,
    token: AppendToken,
}

impl SegmentWriter {
    pub(super) fn new(shared: Arc<Shared>, segment: SegmentId, token: AppendToken) -> Self {
        let storer = SegmentStorer { shared, segment, life: token.life() };
        SegmentWriter { storer, token }
    }

    /// The segment.
    pub fn segment(&self) -> SegmentId {
        self.storer.segment
    }

    /// How far it has been appended.
    pub fn end(&self) -> u32 {
        self.token.end()
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> u32 {
        (self.storer.table().segment_bytes as u32).saturating_sub(self.token.end())
    }

    /// Appends `parts`, one after the other, and answers the offset of the first byte. From then on
    /// the bytes can be read by address (which nobody knows until the caller publishes it); they are
    /// with the kernel only after a [`SegmentStorer::store_pending`]. [`Error::OutOfBounds`], and
    /// nothing appended, if they don't fit.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<u32> {
        let len = parts.iter().map(|part| part.len()).sum();
        self.append_with(len, |mut into| {
            for part in parts {
                let (here, rest) = into.split_at_mut(part.len());
                here.copy_from_slice(part);
                into = rest;
            }
        })
    }

    /// As [`SegmentWriter::append`], letting `fill` write the `len` bytes in place. What it doesn't
    /// write is undefined; if it panics, nothing is appended.
    pub fn append_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<u32> {
        let shared = &self.storer.shared;
        let memory = shared.table.get(self.storer.segment).ok_or(Error::OutOfBounds)?;
        let mut untracked = Vec::new();
        let (offset, blocks) =
            memory.append(&mut self.token, len, fill, |block| untracked.push(block))?;
        add(&shared.table.counters.appended_bytes, len as u64);
        if blocks > 0 {
            shared.table.arrived(self.storer.segment, blocks, &untracked);
            shared.evictor.relieve();
        }
        Ok(offset)
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

impl Drop for SegmentWriter {
    fn drop(&mut self) {
        if let Some(memory) = self.storer.table().get(self.storer.segment) {
            memory.seal(&self.token);
        }
    }
}

/// Stores a segment's appended bytes. Cheap to clone, usable from any thread, by several at once.
#[derive(Clone)]
pub struct SegmentStorer {
    shared: Arc<Shared>,
    segment: SegmentId,
    life: u64,
}

impl SegmentStorer {
    fn table(&self) -> &Table {
        &self.shared.table
    }

    /// The segment.
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Stores everything that has been appended and not yet stored, in one call of the medium, and
    /// asks for its persistence (`site` labels that); a drain then makes it durable. Answers up to
    /// where the segment is stored, at least what had been appended when it was called. On an error
    /// nothing counts as stored and calling again stores it again.
    pub fn store_pending(&self, site: Site) -> Result<u32> {
        let memory = self.table().get(self.segment).ok_or(Error::OutOfBounds)?;
        let medium = &self.shared.medium;
        let (stored, bytes) = memory.store_pending(self.life, |offset, pending| {
            let at = self.table().file_offset(self.segment, offset);
            medium.store(at, &[IoSlice::new(pending)])?;
            medium.persist(at, pending.len() as u64, site)
        })?;
        if bytes > 0 {
            let counters = &self.table().counters;
            add(&counters.stores, 1);
            add(&counters.stored_bytes, u64::from(bytes));
        }
        Ok(stored)
    }

    /// Has the kernel provide memory for the segment's bytes from `from` to `to` now, so that appending
    /// them takes no page faults. Only a hint. Those who append wait for nothing meanwhile.
    pub fn populate(&self, from: u32, to: u32) {
        if let Some(memory) = self.table().get(self.segment) {
            memory.populate(from, to);
        }
    }

    /// Up to where the segment is stored.
    pub fn stored_end(&self) -> u32 {
        self.table().get(self.segment).map_or(0, |memory| memory.stored())
    }
}
