//! The external part of a sort: sorted runs, merged until few enough are left to be read side by side.
//!
//! Runs stay in the order in which they were written, and only neighbours are merged, so records with equal keys
//! keep that order.

use super::merge::{Compare, Merge};
use super::{Run, RunReader, RunWriter, SpillFile, SpillKind, SpillPlace, SpillStats, chunk_bytes};
use crate::exec::{ExecCx, Step};
use kauri_base::{Access, Result, limits};
use std::sync::Arc;

/// See the module's head.
pub(crate) struct ExternalSort {
    place: Arc<SpillPlace>,
    kind: SpillKind,
    compare: Compare,
    bytes_max: usize,
    chunk_bytes: usize,
    file: SpillFile,
    runs: Vec<Run>,
    /// The run being written.
    writer: Option<RunWriter>,
    /// Where in `runs` the next neighbours are merged.
    at: usize,
    merging: Option<Merging>,
    merge: Option<Merge>,
    pub stats: SpillStats,
}

/// Neighbours that are being made one run.
struct Merging {
    merge: Merge,
    writer: RunWriter,
    file: SpillFile,
    /// Whether all records have been handed to the writer.
    ended: bool,
}

impl ExternalSort {
    /// Without runs yet.
    pub fn new(
        place: &Arc<SpillPlace>,
        kind: SpillKind,
        bytes_max: usize,
        compare: Compare,
    ) -> ExternalSort {
        ExternalSort {
            place: place.clone(),
            kind,
            compare,
            bytes_max,
            // Two for each of the runs that are merged, and two for the run that becomes of them.
            chunk_bytes: chunk_bytes(bytes_max, 2 * limits::SPILL_RUNS_MERGED_MAX + 2),
            file: SpillFile::new(&*place.store),
            runs: Vec::new(),
            writer: None,
            at: 0,
            merging: None,
            merge: None,
            stats: SpillStats::default(),
        }
    }

    /// Adds a record to the run being written; records of a run come in order. True: `flush` has to
    /// follow before more.
    pub fn push(&mut self, key: &[u8], rest: &[&[u8]]) -> bool {
        let (file, bytes) = (&self.file, chunk_bytes(self.bytes_max, 8));
        let writer = self.writer.get_or_insert_with(|| RunWriter::new(file, bytes));
        writer.push(key, rest);
        writer.is_full()
    }

    /// Hands a chunk over.
    pub fn flush(&mut self) -> Result<Access<()>> {
        self.writer.as_mut().map_or(Ok(Access::Ready(())), |writer| writer.flush(&mut self.file))
    }

    /// Ends the run, which has freed `bytes` of memory.
    pub fn end_run(&mut self, cx: &ExecCx<'_>, bytes: usize) -> Result<Access<()>> {
        let Some(writer) = &mut self.writer else { return Ok(Access::Ready(())) };
        if let Access::WouldBlock(ticket) = writer.finish(&mut self.file)? {
            return Ok(Access::WouldBlock(ticket));
        }
        if let Some(writer) = self.writer.take() {
            let run = writer.into_run();
            let (spills, storage_bytes) = (1, run.bytes);
            let spilled =
                SpillStats { spills, records: run.records, bytes: bytes as u64, storage_bytes };
            self.note(cx, spilled);
            self.runs.push(run);
        }
        Ok(Access::Ready(()))
    }

    fn note(&mut self, cx: &ExecCx<'_>, spilled: SpillStats) {
        self.stats.add(spilled);
        cx.env.spilling.note(self.kind, spilled);
    }

    /// Merges runs until the rest can be read side by side. `Row`: the records can be had.
    pub fn merge(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        while self.merge.is_none() {
            if self.merging.is_some() {
                match self.merge_more(cx)? {
                    Step::Row(()) => {}
                    other => return Ok(other),
                }
                continue;
            }
            // Nothing more is written to it: it goes with the last of its runs.
            self.file = SpillFile::new(&*self.place.store);
            if self.together(0) == self.runs.len() {
                let runs = std::mem::take(&mut self.runs);
                self.merge = Some(Merge::new(runs, self.chunk_bytes, self.compare));
            } else {
                self.begin_merging();
            }
        }
        Ok(Step::Row(()))
    }

    /// How many runs from this one on may be read side by side: two at least, if there are.
    fn together(&self, from: usize) -> usize {
        let mut bytes = 0usize;
        let runs = self.runs.iter().skip(from).take(limits::SPILL_RUNS_MERGED_MAX);
        let fits = runs.take_while(|run| {
            bytes = bytes.saturating_add(run.reading_bytes(self.chunk_bytes));
            bytes <= self.bytes_max
        });
        fits.count().max(2).min(self.runs.len().saturating_sub(from))
    }

    /// Begins to merge the next neighbours: no more of them than it takes to be able to read the rest
    /// side by side.
    fn begin_merging(&mut self) {
        let mut count = self.together(self.at);
        if count < 2 {
            // What is left at the end is merged in the next round.
            self.at = 0;
            count = self.together(0);
        }
        count = count.min(self.runs.len() - count + 1).max(2);
        let runs: Vec<Run> = self.runs.drain(self.at..self.at + count).collect();
        let file = SpillFile::new(&*self.place.store);
        self.merging = Some(Merging {
            merge: Merge::new(runs, self.chunk_bytes, self.compare),
            writer: RunWriter::new(&file, self.chunk_bytes),
            file,
            ended: false,
        });
    }

    /// `Row`: the neighbours have become one run.
    fn merge_more(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let Some(merging) = &mut self.merging else { return Ok(Step::Row(())) };
        let Merging { merge, writer, file, ended } = merging;
        while !*ended {
            if writer.is_full()
                && let Access::WouldBlock(ticket) = writer.flush(file)?
            {
                return Ok(Step::Blocked(ticket));
            }
            match merge.next()? {
                Access::Ready(true) => {}
                Access::Ready(false) => {
                    *ended = true;
                    break;
                }
                Access::WouldBlock(ticket) => return Ok(Step::Blocked(ticket)),
            }
            if let Some(record) = merge.record() {
                writer.push(record.key(), &[record.rest()]);
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        if let Access::WouldBlock(ticket) = writer.finish(file)? {
            return Ok(Step::Blocked(ticket));
        }
        if let Some(merging) = self.merging.take() {
            let run = merging.writer.into_run();
            let spilled = SpillStats { storage_bytes: run.bytes, ..SpillStats::default() };
            self.runs.insert(self.at, run);
            self.at += 1;
            self.note(cx, spilled);
        }
        Ok(Step::Row(()))
    }

    /// Advances to the next record of all runs, after the merge. False: there is none.
    pub fn next(&mut self) -> Result<Access<bool>> {
        self.merge.as_mut().map_or(Ok(Access::Ready(false)), Merge::next)
    }

    /// The record that it is at.
    pub fn record(&self) -> Option<&RunReader> {
        self.merge.as_ref().and_then(Merge::record)
    }
}
