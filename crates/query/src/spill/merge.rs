//! Reads several sorted runs as one.

use super::{Least, Run, RunReader};
use kauri_base::{Access, Result};
use std::cmp::Ordering;

/// How keys are ordered.
pub(crate) type Compare = fn(&[u8], &[u8]) -> Ordering;

/// See the module's head. Records with equal keys come in the order of their runs.
pub(crate) struct Merge {
    readers: Vec<RunReader>,
    compare: Compare,
    least: Least,
    /// The readers that have their first record; `least` is there once all have.
    begun: usize,
    has_begun: bool,
}

impl Merge {
    pub fn new(runs: Vec<Run>, chunk_bytes: usize, compare: Compare) -> Merge {
        let readers = runs.into_iter().map(|run| RunReader::new(run, chunk_bytes)).collect();
        Merge { readers, compare, least: Least::default(), begun: 0, has_begun: false }
    }

    /// Advances to the next record. False: there is none. After `WouldBlock` it has not advanced.
    pub fn next(&mut self) -> Result<Access<bool>> {
        if !self.has_begun {
            if let Access::WouldBlock(ticket) = self.begin()? {
                return Ok(Access::WouldBlock(ticket));
            }
            return Ok(Access::Ready(self.least.get().is_some()));
        }
        let Some(first) = self.least.get() else { return Ok(Access::Ready(false)) };
        let is_there = match self.readers[first].next()? {
            Access::Ready(is_there) => is_there,
            Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
        };
        let Merge { readers, compare, least, .. } = self;
        let before = |a: usize, b: usize| is_before(readers, *compare, a, b);
        match is_there {
            true => least.moved(before),
            false => least.ended(before),
        }
        Ok(Access::Ready(self.least.get().is_some()))
    }

    /// Has all readers at their first record.
    fn begin(&mut self) -> Result<Access<()>> {
        let mut some = Vec::with_capacity(self.readers.len());
        while let Some(reader) = self.readers.get_mut(self.begun) {
            match reader.next()? {
                // No run is without records.
                Access::Ready(_) => self.begun += 1,
                Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
            }
        }
        some.extend(0..self.readers.len());
        let (readers, compare) = (&self.readers, self.compare);
        self.least = Least::of(some, |a, b| is_before(readers, compare, a, b));
        self.has_begun = true;
        Ok(Access::Ready(()))
    }

    /// The record that it is at.
    pub fn record(&self) -> Option<&RunReader> {
        self.least.get().and_then(|first| self.readers.get(first))
    }
}

fn is_before(readers: &[RunReader], compare: Compare, a: usize, b: usize) -> bool {
    compare(readers[a].key(), readers[b].key()).then(a.cmp(&b)).is_lt()
}
