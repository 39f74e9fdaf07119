//! SORT: collects all rows and returns them in order. SAMPLE does the same in the order of random numbers.
//!
//! Rows are compared by one KeyString each: the lowest key that an index of the sort pattern would have for the
//! document, which is MongoDB's order. With a limit only the best rows are kept, and a row worse than all of them
//! is not copied. Of a kept row, only the fields that later stages read are copied.
//!
//! Rows beyond the memory limit go into sorted runs (`spill`), if allowed. Ties keep their order there, too, so
//! results do not differ.

use super::{
    ExecCx, Fields, Flow, QueryEnv, Row, Stage, StageStats, Step, Take, Totals, Verbosity,
};
use crate::spill::{ExternalSort, RowBuffer, SpillKind, Spilling, SpillingSort};
use kauri_base::{Access, CommitSeq, Error, ErrorCode, RecordId, Result, bail, limits};
use kauri_bson::keygen::{KeyPattern, Keys};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Value};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A parsed sort specification.
#[derive(Clone)]
pub struct SortPattern {
    spec: DocBuf,
    /// None if nothing but metadata is sorted by, which no document here has.
    keys: Option<Arc<KeyPattern>>,
}

impl SortPattern {
    /// Parses `{a: 1, "b.c": -1}`.
    pub fn parse(spec: Doc<'_>) -> Result<SortPattern> {
        let mut of_fields = Vec::new();
        {
            let mut of_fields = DocWriter::new(&mut of_fields);
            let mut names = HashSet::new();
            for elem in spec {
                if is_by_field(elem)? {
                    of_fields.put_elem(elem);
                }
                if !names.insert(elem.key()) {
                    bail!(
                        7472500,
                        "$sort key must not contain duplicate keys (field: '{}')",
                        elem.key()
                    );
                }
            }
        }
        let of_fields = DocBuf::from_vec(of_fields)?;
        let keys = match of_fields.as_doc().is_empty() {
            true => None,
            false => Some(Arc::new(KeyPattern::parse(of_fields.as_doc())?)),
        };
        Ok(SortPattern { spec: spec.to_buf(), keys })
    }

    /// The specification.
    pub fn spec(&self) -> Doc<'_> {
        self.spec.as_doc()
    }

    /// Puts the document's sort key at the end of `out`.
    pub fn key_into(&self, doc: Doc<'_>, keys: &mut Keys, out: &mut Vec<u8>) -> Result<()> {
        let Some(pattern) = &self.keys else { return Ok(()) };
        keys.clear();
        pattern.generate(doc, false, keys).map_err(|error| {
            if error.code() == ErrorCode::CannotIndexParallelArrays {
                return Error::bad_value("cannot sort with keys that are parallel arrays");
            }
            error
        })?;
        if let Some(first) = keys.iter().next() {
            out.extend_from_slice(first.bytes);
        }
        Ok(())
    }

    /// The values that a document is sorted by, as `$meta: "sortKey"` shows them.
    pub fn meta_key(&self, doc: Doc<'_>) -> Result<Value<'static>> {
        let Some(pattern) = &self.keys else { return Ok(Value::array([])) };
        let mut keys = Keys::default();
        pattern.generate(doc, false, &mut keys)?;
        let values = match keys.iter().next() {
            Some(key) => pattern.decode(key.bytes, key.type_bits)?,
            None => Vec::new(),
        };
        Ok(Value::array(values))
    }
}

/// Whether an element of a specification names a field, rather than metadata.
fn is_by_field(elem: Elem<'_>) -> Result<bool> {
    let value = elem.value();
    if let Value::Document(meta) = &value {
        check_meta(meta.as_doc())?;
        return Ok(false);
    }
    if !value.is_number() {
        bail!(
            15974,
            "Illegal key in $sort specification: {}",
            kauri_bson::shell::elem_to_string(elem)
        );
    }
    if !matches!(crate::pipeline::truncated(&value), Some(1 | -1)) {
        bail!(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)");
    }
    crate::pipeline::field_path(elem.key())?;
    Ok(true)
}

/// Metadata that exists elsewhere sorts nothing here; what only a certain stage or index brings is
/// refused.
fn check_meta(meta: Doc<'_>) -> Result<()> {
    let first = meta.first().filter(|e| e.key() == "$meta");
    let Some(first) = first else {
        bail!(17312, "$meta is the only expression supported by $sort right now");
    };
    if meta.count() != 1 {
        bail!(FailedToParse, "Cannot have additional keys in a $meta sort specification");
    }
    match first.value().as_str() {
        Some("randVal" | "searchScore" | "vectorSearchScore" | "score") => Ok(()),
        Some("textScore") => {
            bail!(40218, "query requires text score metadata, but it is not available")
        }
        Some("geoNearDistance") => {
            bail!(40218, "query requires geoNear distance metadata, but it is not available")
        }
        _ => bail!(31138, "Illegal $meta sort: {}", kauri_bson::shell::elem_to_string(first)),
    }
}

/// A row that was kept: where its key and its document lie, and when it came.
struct Kept {
    /// The key's first bytes: most comparisons end with them.
    prefix: u64,
    key: Range<usize>,
    doc: Range<usize>,
    record: RecordId,
    version: CommitSeq,
    order: u64,
}

/// Which of two rows comes first; rows with equal keys come as they came.
#[inline]
fn before(data: &[u8], a: &Kept, b: &Kept) -> Ordering {
    a.prefix
        .cmp(&b.prefix)
        .then_with(|| data[a.key.clone()].cmp(&data[b.key.clone()]))
        .then(a.order.cmp(&b.order))
}

/// What rows are sorted by.
enum By {
    Pattern(SortPattern),
    /// A number that is drawn for each: the best `limit` rows are a sample.
    Random,
}

/// The rows that were kept, and how they are gathered.
struct Gathered {
    by: By,
    limit: Option<usize>,
    fields: Fields,
    bytes_max: usize,
    may_spill: bool,
    /// Keys and documents of the rows kept.
    data: Vec<u8>,
    rows: Vec<Kept>,
    /// With a limit: the key that a row must beat.
    cutoff: Option<Vec<u8>>,
    keys: Keys,
    scratch: Vec<u8>,
    order: u64,
    rows_sorted: u64,
    bytes_sorted: u64,
}

impl RowBuffer for Gathered {
    type Row = Kept;
    const KIND: SpillKind = SpillKind::Sort;
    const BY_KEY: fn(&[u8], &[u8]) -> Ordering = <[u8]>::cmp;

    fn limit(&mut self, spilling: &Spilling) -> usize {
        self.bytes_max = spilling.sort_bytes_max;
        self.may_spill = spilling.place().is_some();
        self.bytes_max
    }

    #[inline]
    fn take(&mut self, row: &Row<'_>, env: &QueryEnv) -> Result<bool> {
        self.rows_sorted += 1;
        self.scratch.clear();
        match &self.by {
            By::Pattern(pattern) => {
                pattern.key_into(row.doc(), &mut self.keys, &mut self.scratch)?;
            }
            By::Random => self.scratch.extend_from_slice(&env.random.next_u64().to_be_bytes()),
        }
        if self.cutoff.as_ref().is_some_and(|cutoff| self.scratch >= *cutoff) {
            return Ok(true);
        }
        let start = self.data.len();
        self.data.extend_from_slice(&self.scratch);
        let middle = self.data.len();
        self.fields.copy(row.doc(), &mut self.data);
        self.bytes_sorted += (self.data.len() - start) as u64;
        self.rows.push(Kept {
            prefix: prefix(&self.scratch),
            key: start..middle,
            doc: middle..self.data.len(),
            record: row.record,
            version: row.version,
            order: self.order,
        });
        self.order += 1;
        if let Some(limit) = self.limit
            && self.rows.len() >= limit.saturating_mul(2).max(1024)
        {
            self.compact(limit);
        }
        if self.bytes() <= self.bytes_max {
            return Ok(true);
        }
        if let Some(limit) = self.limit
            && self.rows.len() > limit
        {
            self.compact(limit);
            // Compacting for every few rows would take longer than a disk does.
            return Ok(match self.may_spill {
                true => self.bytes() <= self.bytes_max / 4 * 3,
                false => self.data.len() <= self.bytes_max / 2,
            });
        }
        Ok(false)
    }

    fn too_many(&self, bytes_max: usize) -> Error {
        Error::new(
            ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
            format!(
                "Sort exceeded memory limit of {bytes_max} bytes, but did not opt in to \
                 external sorting.",
            ),
        )
    }

    fn ended(&self, spilling: &Spilling) {
        if let Some(place) = &spilling.place {
            place.counters.rows_sorted.fetch_add(self.rows_sorted, Relaxed);
            place.counters.bytes_sorted.fetch_add(self.bytes_sorted, Relaxed);
        }
    }

    fn sorted(&mut self) {
        if let Some(limit) = self.limit {
            self.rows.truncate(limit);
        }
    }

    fn rows(&mut self) -> (&mut Vec<Kept>, impl Fn(&Kept, &Kept) -> Ordering + Copy) {
        let data = &self.data;
        (&mut self.rows, |a: &Kept, b: &Kept| before(data, a, b))
    }

    fn push(&self, at: usize, external: &mut ExternalSort) -> bool {
        let (row, data) = (&self.rows[at], &self.data);
        let (record, version) = (row.record.0.to_le_bytes(), row.version.0.to_le_bytes());
        let rest = [record.as_slice(), &version, &data[row.doc.clone()]];
        external.push(&data[row.key.clone()], &rest)
    }

    fn bytes(&self) -> usize {
        self.data.len() + self.rows.len() * size_of::<Kept>()
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.data.clear();
    }

    fn give_back(&mut self) {
        (self.data, self.rows) = (Vec::new(), Vec::new());
    }
}

impl Gathered {
    /// Keeps the best `limit` rows, in no order, and their bytes only. There are that many.
    fn compact(&mut self, limit: usize) {
        let lines = &self.data;
        let by = |a: &Kept, b: &Kept| before(lines, a, b);
        let (_, worst, _) = self.rows.select_nth_unstable_by(limit - 1, by);
        self.cutoff = Some(lines[worst.key.clone()].to_vec());
        self.rows.truncate(limit);
        let mut data = Vec::with_capacity(self.data.len() / 2);
        for row in &mut self.rows {
            let start = data.len();
            data.extend_from_slice(&self.data[row.key.clone()]);
            let middle = data.len();
            data.extend_from_slice(&self.data[row.doc.clone()]);
            row.key = start..middle;
            row.doc = middle..data.len();
        }
        self.data = data;
    }

    /// A row of this record with a document that is lent.
    #[inline]
    fn row<'d>(
        &self,
        (record, version): (RecordId, CommitSeq),
        doc: &'d [u8],
        with_key: bool,
    ) -> Result<Row<'d>> {
        let doc = Doc::from_bytes(doc)?;
        let sort_key = match &self.by {
            By::Pattern(pattern) if with_key => Some(Box::new(pattern.meta_key(doc)?)),
            _ => None,
        };
        Ok(Row { record, version, doc: doc.into(), entry: None, sort_key })
    }
}

/// The first eight bytes as a number that orders as they do; a shorter key is as one with zeros
/// behind it, which the rest of the comparison sorts out.
fn prefix(key: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = key.len().min(8);
    word[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(word)
}

/// See the module's head.
pub struct Sort {
    child: Box<dyn Stage>,
    sort: SpillingSort<Gathered>,
    keep_sort_key: bool,
    /// Rows that were given.
    given: usize,
    stats: StageStats,
}

impl Sort {
    /// Sorts the rows of `child`; keeps the first `limit` if there is one (0 means none).
    pub fn new(
        child: Box<dyn Stage>,
        pattern: SortPattern,
        limit: u64,
        keep_sort_key: bool,
    ) -> Self {
        Sort::by(child, By::Pattern(pattern), limit, keep_sort_key)
    }

    /// `size` random rows of `child`, at least one, in random order.
    pub fn sample(child: Box<dyn Stage>, size: u64) -> Self {
        Sort::by(child, By::Random, size, false)
    }

    fn by(child: Box<dyn Stage>, by: By, limit: u64, keep_sort_key: bool) -> Self {
        let gathered = Gathered {
            by,
            limit: usize::try_from(limit).ok().filter(|l| *l > 0),
            fields: Fields::All,
            bytes_max: limits::SORT_BYTES_MAX,
            may_spill: false,
            data: Vec::new(),
            rows: Vec::new(),
            cutoff: None,
            keys: Keys::default(),
            scratch: Vec::new(),
            order: 0,
            rows_sorted: 0,
            bytes_sorted: 0,
        };
        Sort {
            child,
            sort: SpillingSort::new(gathered),
            keep_sort_key,
            given: 0,
            stats: StageStats::default(),
        }
    }

    /// Keeps only these fields of the documents; with sort keys, those that they are made of must be
    /// among them.
    pub fn keeping(mut self, fields: Fields) -> Self {
        self.sort.buffer.fields = fields;
        self
    }

    /// Shows this limit of memory before it runs.
    pub fn within(mut self, bytes_max: usize) -> Self {
        self.sort.buffer.bytes_max = bytes_max;
        self
    }

    /// Moves on to the next row. False: there is none.
    fn advance(&mut self) -> Result<Access<bool>> {
        let SpillingSort { buffer, external, .. } = &mut self.sort;
        let is_there = match external {
            None => self.given < buffer.rows.len(),
            Some(_) if buffer.limit.is_some_and(|limit| self.given >= limit) => false,
            Some(external) => match external.next()? {
                Access::Ready(is_there) => is_there,
                Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
            },
        };
        self.given += usize::from(is_there);
        Ok(Access::Ready(is_there))
    }

    /// `feed` where all rows are in memory, which is most often.
    fn lend_from_memory(
        &mut self,
        cx: &mut ExecCx<'_>,
        lent: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<Step<()>> {
        let Sort { sort: SpillingSort { buffer: gathered, .. }, given, keep_sort_key, .. } = self;
        while let Some(kept) = gathered.rows.get(*given) {
            *given += 1;
            *lent += 1;
            let doc = &gathered.data[kept.doc.clone()];
            let row = gathered.row((kept.record, kept.version), doc, *keep_sort_key)?;
            if take(&row)? != Flow::Continue {
                return Ok(Step::Row(()));
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        Ok(Step::Done)
    }

    /// The row that it is at, its document lent.
    fn row(&self) -> Result<Row<'_>> {
        let SpillingSort { buffer: gathered, external, .. } = &self.sort;
        if let Some(external) = external {
            let rest = external.record().map_or(&[] as &[u8], |record| record.rest());
            let (record, rest) = number(rest)?;
            let (version, doc) = number(rest)?;
            let from = (RecordId(record), CommitSeq(version));
            return gathered.row(from, doc, self.keep_sort_key);
        }
        let kept = &gathered.rows[self.given - 1];
        let doc = &gathered.data[kept.doc.clone()];
        gathered.row((kept.record, kept.version), doc, self.keep_sort_key)
    }
}

/// A number of eight bytes, and what follows it.
fn number(bytes: &[u8]) -> Result<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk().ok_or_else(crate::spill::damaged)?;
    Ok((u64::from_le_bytes(*number), rest))
}

impl Stage for Sort {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.sort.gather(&mut *self.child, cx)? {
            Step::Row(()) => match self.advance()? {
                Access::Ready(true) => Step::Row(self.row()?.into_owned()),
                Access::Ready(false) => Step::Done,
                Access::WouldBlock(ticket) => Step::Blocked(ticket),
            },
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        };
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut step = self.sort.gather(&mut *self.child, cx)?;
        let mut lent = 0;
        if self.sort.external.is_none() && matches!(step, Step::Row(())) {
            step = self.lend_from_memory(cx, &mut lent, take)?;
            return Ok(self.stats.count_lent(lent, step));
        }
        while matches!(step, Step::Row(())) {
            match self.advance()? {
                Access::Ready(true) => {}
                Access::Ready(false) => {
                    step = Step::Done;
                    break;
                }
                Access::WouldBlock(ticket) => {
                    step = Step::Blocked(ticket);
                    break;
                }
            }
            lent += 1;
            if take(&self.row()?)? != Flow::Continue {
                break;
            }
            if !cx.spend() {
                step = Step::Again;
            }
        }
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        let by = &self.sort.buffer.by;
        out.put("stage", if matches!(by, By::Random) { "SAMPLE" } else { "SORT" });
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        if let By::Pattern(pattern) = by {
            out.put("sortPattern", pattern.spec());
        }
        out.put("memLimit", self.sort.buffer.bytes_max as i64);
        if let Some(limit) = self.sort.buffer.limit {
            out.put("limitAmount", limit as i64);
        }
        out.put("type", "simple");
        if verbosity > Verbosity::QueryPlanner {
            out.put("totalDataSizeSorted", self.sort.buffer.bytes_sorted as i64);
            self.sort.spilled().write(out);
        }
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        totals.sorts = true;
        self.child.add_totals(totals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_order_as_keys_do() {
        let keys: [&[u8]; 8] =
            [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefghi", b"abcdefgi"];
        for pair in keys.windows(2) {
            assert!(prefix(pair[0]) <= prefix(pair[1]), "{pair:?}");
        }
    }
}
