//! Reads the log's entries in one direction, as the documents of `local.oplog.rs`.
//!
//! At the end of the log the stage is done, and goes on when it is asked again: so a tailable cursor follows the log. A
//! scan whose place was purged ends with `CappedPositionLost`. Between two batches it keeps its place and no frame.

use super::bounds::Bounds;
use super::render;
use kauri_base::{RecordId, Result, bail};
use kauri_bson::{DocBuf, DocWriter, Value};
use kauri_member::oplog::reader::ReadFrame;
use kauri_member::oplog::{Fetch, LogReader};
use kauri_query::exec::{ExecCx, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_storage::Direction;
use std::sync::Arc;

/// See the module's head.
pub struct LogScan {
    reader: Arc<LogReader>,
    direction: Direction,
    bounds: Bounds,
    /// The frame that is next, or read at the moment.
    index: Option<u64>,
    /// How many of its entries are behind.
    taken: usize,
    /// It has passed an entry, or the end: its place counts.
    has_begun: bool,
    /// No entry that follows is within the bounds.
    is_over: bool,
    seeking: Option<Fetch<u64>>,
    fetching: Option<Fetch<Option<Arc<ReadFrame>>>>,
    frame: Option<Arc<ReadFrame>>,
    examined: u64,
    stats: StageStats,
}

impl LogScan {
    /// The entries of these times.
    pub fn new(reader: Arc<LogReader>, direction: Direction, bounds: Bounds) -> LogScan {
        LogScan {
            reader,
            direction,
            bounds,
            index: None,
            taken: 0,
            has_begun: false,
            is_over: bounds.from > bounds.to,
            seeking: None,
            fetching: None,
            frame: None,
            examined: 0,
            stats: StageStats::default(),
        }
    }

    fn is_forward(&self) -> bool {
        self.direction == Direction::Forward
    }

    /// The next document, and its time.
    fn next(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<(u64, DocBuf)>> {
        loop {
            if self.is_over {
                return Ok(Step::Done);
            }
            let Some(index) = self.index else {
                match self.first_index()? {
                    Step::Row(index) => self.index = Some(index),
                    Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                    Step::Again | Step::Done => return Ok(Step::Done),
                }
                continue;
            };
            let (first, last) = self.reader.range();
            if self.is_forward() && index > last {
                // A cursor that waits here sees all that follows.
                self.has_begun = true;
                return Ok(Step::Done);
            }
            if index < first {
                self.lose_place(index)?;
                continue;
            }
            let Some(frame) = self.frame.clone() else {
                let fetch = self.fetching.take().unwrap_or_else(|| self.reader.frame(index));
                match fetch.take() {
                    Ok(Ok(Some(frame))) => self.frame = Some(frame),
                    Ok(Ok(None)) => self.lose_place(index)?,
                    Ok(Err(error)) => return Err(error),
                    Err(ticket) => {
                        self.fetching = Some(fetch);
                        return Ok(Step::Blocked(ticket));
                    }
                }
                continue;
            };
            while let Some(entry) = self.entry_of(&frame) {
                if !cx.spend() {
                    return Ok(Step::Again);
                }
                self.taken += 1;
                let (before, behind) = (entry.time < self.bounds.from, entry.time > self.bounds.to);
                if before && !self.is_forward() || behind && self.is_forward() {
                    self.is_over = true;
                    break;
                }
                if before || behind {
                    continue;
                }
                self.examined += 1;
                self.has_begun = true;
                if let Some(document) = render::document(entry)? {
                    return Ok(Step::Row((entry.time, document)));
                }
            }
            self.has_begun = true;
            (self.frame, self.taken) = (None, 0);
            self.index = Some(if self.is_forward() { index + 1 } else { index - 1 });
        }
    }

    fn entry_of<'f>(&self, frame: &'f ReadFrame) -> Option<&'f kauri_member::oplog::Entry> {
        match self.direction {
            Direction::Forward => frame.entries.get(self.taken),
            Direction::Backward => frame.entries.iter().rev().nth(self.taken),
        }
    }

    /// The frame to begin with.
    fn first_index(&mut self) -> Result<Step<u64>> {
        let (first, last) = self.reader.range();
        let time = if self.is_forward() { self.bounds.from } else { self.bounds.to };
        let whole = if self.is_forward() { 0 } else { u64::MAX };
        if time == whole {
            return Ok(Step::Row(if self.is_forward() { first } else { last }));
        }
        let seeking = self.seeking.take().unwrap_or_else(|| self.reader.seek(time));
        match seeking.take() {
            Ok(Ok(found)) if self.is_forward() => Ok(Step::Row(found)),
            Ok(Ok(found)) => Ok(Step::Row(found.min(last))),
            Ok(Err(error)) => Err(error),
            Err(ticket) => {
                self.seeking = Some(seeking);
                Ok(Step::Blocked(ticket))
            }
        }
    }

    /// The frame that is next was purged.
    fn lose_place(&mut self, index: u64) -> Result<()> {
        (self.frame, self.fetching, self.taken) = (None, None, 0);
        if !self.is_forward() {
            self.is_over = true;
            return Ok(());
        }
        if self.has_begun {
            bail!(
                CappedPositionLost,
                "CollectionScan died due to position in capped collection being deleted. Last seen \
                 record id: RecordId({})",
                index.saturating_sub(1)
            );
        }
        self.index = Some(self.reader.range().0.max(index));
        Ok(())
    }
}

fn row<'g>((time, document): (u64, DocBuf)) -> Row<'g> {
    Row { record: RecordId(time), ..Row::computed(document) }
}

impl Stage for LogScan {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.next(cx)? {
            Step::Row(found) => Step::Row(row(found)),
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        };
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut lent = 0;
        let step = loop {
            match self.next(cx)? {
                Step::Row(found) => {
                    lent += 1;
                    if take(&row(found))? != Flow::Continue {
                        // The batch may be full.
                        self.frame = None;
                        break Step::Row(());
                    }
                }
                Step::Again => break Step::Again,
                Step::Blocked(ticket) => break Step::Blocked(ticket),
                Step::Done => break Step::Done,
            }
        };
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "COLLSCAN");
        let time = |number| Value::Timestamp(super::bounds::time_of(number));
        if self.bounds.from > 0 {
            out.put_value("minRecord", &time(self.bounds.from));
        }
        if self.bounds.to < u64::MAX {
            out.put_value("maxRecord", &time(self.bounds.to));
        }
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        out.put("direction", if self.is_forward() { "forward" } else { "backward" });
        if verbosity > Verbosity::QueryPlanner {
            out.put("docsExamined", self.examined as i64);
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.docs_examined += self.examined;
        totals.add_leaf("COLLSCAN", None);
    }
}
