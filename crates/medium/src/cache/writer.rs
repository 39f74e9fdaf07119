//! Appends to a segment, and stores the appended bytes.
//!
//! If the log file is memory (`crate::direct`), appending stores to the medium, [`SegmentWriter::publish`] makes
//! the bytes durable and readable, and nothing is left to be stored. Otherwise, appended bytes are readable at
//! once, publishing does nothing, and storing comes later.

use super::segment::AppendToken;
use super::table::{Table, add};
use super::{SegmentId, Shared};
use crate::{Error, Guard, Result, Site};
use kauri_base::sync::Arc;
use std::io::IoSlice;

/// The one appender of an open segment: bytes below [`end`](Self::end) never change again until the segment is
/// recycled, and only this value moves `end`. Dropping it seals the segment; unstored bytes can still be stored
/// through a [`SegmentStorer`].
pub struct SegmentWriter {
    storer: SegmentStorer,
    token: AppendToken,
    site: Site,
}

impl SegmentWriter {
    pub(super) fn new(shared: Arc<Shared>, segment: SegmentId, token: AppendToken) -> Self {
        let storer = SegmentStorer { shared, segment, life: token.life() };
        SegmentWriter { storer, token, site: "append.lines" }
    }

    /// Sets the label under which later appends are made durable, if appending stores.
    pub fn set_site(&mut self, site: Site) {
        self.site = site;
    }

    /// The segment.
    pub fn segment(&self) -> SegmentId {
        self.storer.segment
    }

    /// The appended length.
    pub fn end(&self) -> u32 {
        self.token.end()
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> u32 {
        (self.storer.table().segment_bytes as u32).saturating_sub(self.token.end())
    }

    /// Appends `parts`, one after the other, and returns the offset of the first byte. After
    /// [publication](Self::publish) the bytes are readable by address (which is unknown until the caller shares
    /// it). The kernel has them only after a [`SegmentStorer::store_pending`]. [`Error::OutOfBounds`], with nothing
    /// appended, if they do not fit.
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<u32> {
        let len = parts.iter().map(|part| part.len()).sum();
        let shared = &self.storer.shared;
        let memory = shared.table.get(self.storer.segment).ok_or(Error::OutOfBounds)?;
        if let Some(direct) = shared.table.direct() {
            return memory.append_direct(direct, &mut self.token, len, parts, self.site);
        }
        let fill = |mut into: &mut [u8]| {
            for part in parts {
                let (here, rest) = into.split_at_mut(part.len());
                here.copy_from_slice(part);
                into = rest;
            }
        };
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

    /// On a file that is memory: returns when everything that this thread has appended here and through `others` is
    /// durable (`site` labels the one fence for that), and makes it readable. Only the appending thread may call
    /// this ([`Error::Misuse`]): a fence waits for the stores of its own thread. On other files it does nothing.
    #[inline]
    pub fn publish<'w>(
        &mut self,
        others: impl Iterator<Item = &'w mut SegmentWriter>,
        site: Site,
    ) -> Result<()> {
        let Some(direct) = self.storer.table().direct() else { return Ok(()) };
        direct.fence(site);
        self.show()?;
        for writer in others {
            if !Arc::ptr_eq(&self.storer.shared, &writer.storer.shared) {
                return Err(Error::Misuse("a writer of another file"));
            }
            writer.show()?;
        }
        Ok(())
    }

    /// Makes appended bytes readable, after a fence.
    #[inline]
    fn show(&mut self) -> Result<()> {
        let table = self.storer.table();
        let memory = table.get(self.storer.segment).ok_or(Error::OutOfBounds)?;
        if !memory.may_publish(&self.token) {
            return Err(Error::Misuse("what another thread has appended is published"));
        }
        let bytes = u64::from(self.token.end() - memory.end());
        memory.publish(&mut self.token);
        add(&table.counters.appended_bytes, bytes);
        Ok(())
    }

    /// A handle for storing from any thread.
    pub fn storer(&self) -> SegmentStorer {
        self.storer.clone()
    }

    /// See [`SegmentStorer::store_pending`].
    pub fn store_pending(&self, site: Site) -> Result<u32> {
        self.storer.store_pending(site)
    }

    /// Stores pending bytes and ends appending. After an error the segment is sealed anyway and the rest can be
    /// stored through a [`SegmentStorer`]. On a file that is memory, unpublished bytes are never published.
    pub fn seal(self, site: Site) -> Result<u32> {
        self.storer.store_pending(site)
    }

    /// Ends appending: stores pending bytes, and these bytes as the segment's last, which are beyond all appended
    /// bytes and not readable. The labels are those of persisting both, and of the fence that a file that is memory
    /// needs.
    pub fn seal_with(mut self, last: &[u8], sites: SealSites) -> Result<()> {
        let shared = Arc::clone(&self.storer.shared);
        let memory = shared.table.get(self.segment()).ok_or(Error::OutOfBounds)?;
        if let Some(direct) = shared.table.direct() {
            memory.store_last_direct(direct, &mut self.token, last, sites.last_lines)?;
            self.publish(std::iter::empty(), sites.fence)?;
            add(&shared.table.counters.stored_bytes, last.len() as u64);
            return Ok(());
        }
        self.storer.store_pending(sites.pending)?;
        let end = shared.table.file_offset(self.segment(), shared.table.segment_bytes as u32);
        let at = end.checked_sub(last.len() as u64).ok_or(Error::OutOfBounds)?;
        shared.medium.store(at, &[IoSlice::new(last)])?;
        shared.medium.persist(at, last.len() as u64, sites.last)?;
        add(&shared.table.counters.stored_bytes, last.len() as u64);
        Ok(())
    }
}

/// Labels of [`SegmentWriter::seal_with`].
#[derive(Clone, Copy, Debug)]
pub struct SealSites {
    /// Label of persisting appended bytes.
    pub pending: Site,
    /// Label of persisting the segment's last bytes.
    pub last: Site,
    /// The same on a file that is memory.
    pub last_lines: Site,
    /// There, of the fence behind both.
    pub fence: Site,
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

    /// The bytes from `from` on that are appended and not stored yet, and the offset of the first. They stay
    /// in memory for the guard, if the segment was not given back before the guard entered.
    pub fn unstored<'g>(&self, guard: &'g Guard, from: u32) -> Result<(u32, &'g [u8])> {
        if !guard.protects(&self.shared.domain) {
            return Err(Error::Misuse("unstored bytes are looked at without a guard"));
        }
        let memory = self.table().get(self.segment).ok_or(Error::OutOfBounds)?;
        Ok(memory.unstored(guard, from))
    }

    /// Has the kernel provide memory for the segment's bytes from `from` to `to` now, so that appending
    /// them takes no page faults. Only a hint. Those who append wait for nothing meanwhile.
    pub fn populate(&self, from: u32, to: u32) {
        if let Some(memory) = self.table().get(self.segment) {
            memory.populate(self.table().direct(), from, to);
        }
    }

    /// Up to where the segment is stored.
    pub fn stored_end(&self) -> u32 {
        self.table().get(self.segment).map_or(0, |memory| memory.stored())
    }
}
