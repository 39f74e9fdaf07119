//! Stages that read: a collection scan, an index scan.

use super::entry::{Entry, nested};
use super::{ExecCx, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use crate::plan::bounds::{IndexBounds, KeyRange};
use kauri_base::{Access, CommitSeq, RecordId, Result, Ticket, bail};
use kauri_bson::{Doc, DocWriter};
use kauri_catalog::{Collection, Index};
use kauri_matcher::{MatchCx, Matcher};
use kauri_storage::{Direction, IndexScan, RecordScan};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// COLLSCAN: all records in the order of their ids, filtered.
pub struct CollScan {
    collection: Arc<Collection>,
    scan: RecordScan,
    direction: Direction,
    filter: Option<Arc<Matcher>>,
    stats: StageStats,
    docs_examined: u64,
    /// It has begun.
    used: bool,
}

impl CollScan {
    /// A scan of the whole collection.
    pub fn new(
        collection: Arc<Collection>,
        direction: Direction,
        filter: Option<Arc<Matcher>>,
    ) -> Self {
        CollScan {
            collection,
            scan: RecordScan::new(direction),
            direction,
            filter,
            stats: StageStats::default(),
            docs_examined: 0,
            used: false,
        }
    }

    /// In a capped collection new documents push old ones out: one that goes on from a record that is
    /// gone may have missed others.
    fn check_position(&self, cx: &ExecCx<'_>) -> Result<Option<Ticket>> {
        let Some(last) = self.scan.position().filter(|_| self.follows_capped()) else {
            return Ok(None);
        };
        match self.collection.get(cx.ru, last)? {
            Access::WouldBlock(ticket) => Ok(Some(ticket)),
            Access::Ready(Some(_)) => Ok(None),
            Access::Ready(None) => bail!(
                CappedPositionLost,
                "CollectionScan died due to position in capped collection being deleted. Last seen \
                 record id: RecordId({})",
                last.0
            ),
        }
    }

    fn follows_capped(&self) -> bool {
        self.direction == Direction::Forward && self.collection.options.capped.is_some()
    }

    #[inline]
    fn next<'g>(&mut self, cx: &mut ExecCx<'g>, match_cx: &MatchCx<'_>) -> Result<Step<Row<'g>>> {
        loop {
            let Some(id) = self.scan.next_buffered() else {
                if self.scan.ended() {
                    // A tailable cursor comes back for what has been added since.
                    self.scan.resume();
                    return Ok(Step::Done);
                }
                if !self.used {
                    self.used = true;
                    self.collection.usage.count_scan();
                }
                if let Some(ticket) = self.check_position(cx)? {
                    return Ok(Step::Blocked(ticket));
                }
                match self.collection.fill(cx.ru, &mut self.scan)? {
                    Access::Ready(()) => continue,
                    Access::WouldBlock(ticket) => return Ok(Step::Blocked(ticket)),
                }
            };
            let record = match self.collection.get(cx.ru, id)? {
                Access::Ready(Some(record)) => record,
                Access::Ready(None) => continue,
                Access::WouldBlock(ticket) => {
                    self.scan.put_back();
                    return Ok(Step::Blocked(ticket));
                }
            };
            self.docs_examined += 1;
            let matches = match &self.filter {
                Some(filter) => filter.matches(record.doc, match_cx)?,
                None => true,
            };
            if matches {
                return Ok(Step::Row(Row {
                    record: id,
                    version: record.version,
                    doc: record.doc.into(),
                    entry: None,
                    sort_key: None,
                }));
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }
}

impl Stage for CollScan {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx, &crate::match_cx(cx.env))?;
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let match_cx = crate::match_cx(cx.env);
        let mut lent = 0;
        let step = loop {
            match self.next(cx, &match_cx)? {
                Step::Row(row) => {
                    lent += 1;
                    if take(&row)? != Flow::Continue {
                        break Step::Row(());
                    }
                }
                Step::Again => break Step::Again,
                Step::Blocked(ticket) => break Step::Blocked(ticket),
                Step::Done => break Step::Done,
            }
            if !cx.spend() {
                break Step::Again;
            }
        };
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "COLLSCAN");
        crate::explain::write_filter(out, self.filter.as_deref());
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        out.put("direction", crate::explain::direction_name(self.direction));
        if verbosity > Verbosity::QueryPlanner {
            out.put("docsExamined", self.docs_examined as i64);
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.docs_examined += self.docs_examined;
        totals.add_leaf("COLLSCAN", None);
    }
}

/// IXSCAN: the entries of an index within bounds, forward or backward. Its rows have no document yet.
pub struct IxScan {
    index: Arc<Index>,
    bounds: IndexBounds,
    direction: Direction,
    /// The byte ranges of the bounds, in the order of the scan.
    ranges: Vec<KeyRange>,
    next_range: usize,
    scan: Option<IndexScan>,
    /// A filter on the key alone, given the key's fields as a document.
    key_filter: Option<Arc<Matcher>>,
    /// Records that were given already; an index with several keys of a record has it several times.
    seen: Option<HashSet<RecordId>>,
    /// Whether the index has come to hold arrays since the plan was made, which assumed none.
    has_turned_multikey: bool,
    keep_entry: bool,
    /// `IXSCAN`, or `COUNT_SCAN` where nothing but the number of its rows is asked for.
    name: &'static str,
    /// What was visible when the batch at hand was filled.
    filled_at: CommitSeq,
    used: bool,
    stats: StageStats,
    keys_examined: u64,
    seeks: u64,
    dups_dropped: u64,
}

impl IxScan {
    /// A scan of `index` within `bounds`. `keep_entry` if a stage above reads the key.
    pub fn new(
        index: Arc<Index>,
        bounds: IndexBounds,
        direction: Direction,
        keep_entry: bool,
    ) -> Self {
        let mut ranges = bounds.ranges.clone();
        if direction == Direction::Backward {
            ranges.reverse();
        }
        let seen = index.keys.multikey.is_multikey().then(HashSet::new);
        IxScan {
            index,
            bounds,
            direction,
            ranges,
            next_range: 0,
            scan: None,
            key_filter: None,
            seen,
            has_turned_multikey: false,
            keep_entry,
            name: "IXSCAN",
            filled_at: CommitSeq(0),
            used: false,
            stats: StageStats::default(),
            keys_examined: 0,
            seeks: 0,
            dups_dropped: 0,
        }
    }

    /// Adds a filter on the key's fields as a document.
    pub fn with_key_filter(mut self, filter: Option<Arc<Matcher>>) -> Self {
        self.key_filter = filter;
        self
    }

    /// The same scan under the name that it has where only its rows' number counts.
    pub fn for_count(mut self) -> Self {
        self.name = "COUNT_SCAN";
        self
    }

    /// The index.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// The commit sequence that was visible when the last entry was read.
    pub fn filled_at(&self) -> CommitSeq {
        self.filled_at
    }

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        if !self.used {
            self.used = true;
            self.index.usage.accesses.fetch_add(1, Ordering::Relaxed);
        }
        loop {
            let Some(scan) = &mut self.scan else {
                let Some(range) = self.ranges.get(self.next_range) else {
                    return Ok(Step::Done);
                };
                self.next_range += 1;
                self.seeks += 1;
                let scan = IndexScan::new(self.direction, range.low.clone(), range.high.clone());
                self.scan = Some(scan);
                continue;
            };
            let Some(entry) = scan.next_buffered() else {
                if scan.ended() {
                    self.scan = None;
                    continue;
                }
                match self.index.fill(cx.ru, scan)? {
                    Access::Ready(()) => self.filled_at = cx.ru.snapshot(),
                    Access::WouldBlock(ticket) => return Ok(Step::Blocked(ticket)),
                }
                if self.seen.is_none() && self.index.keys.multikey.is_multikey() {
                    self.seen = Some(HashSet::new());
                    self.has_turned_multikey = true;
                }
                continue;
            };
            self.keys_examined += 1;
            let record = entry.record;
            let skip = match &self.key_filter {
                Some(filter) if !self.has_turned_multikey => {
                    let pattern = &self.index.definition().pattern;
                    let values = pattern.decode(entry.key, entry.type_bits)?;
                    let fields = nested(&self.index, &values);
                    !filter.matches(fields.as_doc(), &crate::match_cx(cx.env))?
                }
                Some(_) => false,
                None => false,
            };
            let kept = if self.keep_entry && !skip {
                Some(Box::new(Entry {
                    index: self.index.clone(),
                    key: entry.key.to_vec(),
                    type_bits: entry.type_bits.to_vec(),
                }))
            } else {
                None
            };
            if !skip {
                if self.seen.as_mut().is_none_or(|seen| seen.insert(record)) {
                    return Ok(Step::Row(Row {
                        record,
                        // Older than any record: whatever the plan took for settled is asked again.
                        version: match self.has_turned_multikey {
                            true => CommitSeq(0),
                            false => self.filled_at,
                        },
                        doc: Doc::EMPTY.into(),
                        entry: kept,
                        sort_key: None,
                    }));
                }
                self.dups_dropped += 1;
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }
}

impl Stage for IxScan {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        let stats = verbosity > Verbosity::QueryPlanner;
        out.put("stage", self.name);
        crate::explain::write_filter(out, self.key_filter.as_deref());
        if stats {
            self.stats.write(out);
        }
        crate::explain::write_index(out, &self.index);
        out.put("direction", crate::explain::direction_name(self.direction));
        self.bounds.write(out, self.direction);
        if stats {
            out.put("keysExamined", self.keys_examined as i64);
            out.put("seeks", self.seeks as i64);
            out.put("dupsTested", self.seen.as_ref().map_or(0, |_| self.keys_examined as i64));
            out.put("dupsDropped", self.dups_dropped as i64);
        }
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.keys_examined += self.keys_examined;
        totals.add_leaf(self.name, Some(&self.index));
    }
}
