//! SORT: gathers all rows, gives them in order.
//!
//! Rows are compared by the bytes of one KeyString each: the least key that an index of the sort
//! pattern would hold for the document, which is what MongoDB sorts by. With a limit only the best
//! rows are kept, and a row that is worse than all of them is not copied at all; of a row that is
//! kept, only the fields that somebody still reads.

use super::{ExecCx, Fields, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_base::{CommitSeq, Error, ErrorCode, RecordId, Result, bail, limits};
use kauri_bson::keygen::{KeyPattern, Keys};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Value};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

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

struct Kept {
    /// The key's first bytes: most comparisons end with them.
    prefix: u64,
    key: Range<usize>,
    doc: Range<usize>,
    record: RecordId,
    version: CommitSeq,
    order: u64,
}

/// The rows that were kept, and how they are gathered.
struct Gathered {
    pattern: SortPattern,
    limit: Option<usize>,
    fields: Fields,
    bytes_max: usize,
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

impl Gathered {
    fn take(&mut self, row: &Row<'_>) -> Result<()> {
        self.rows_sorted += 1;
        self.scratch.clear();
        self.pattern.key_into(row.doc(), &mut self.keys, &mut self.scratch)?;
        if self.cutoff.as_ref().is_some_and(|cutoff| self.scratch >= *cutoff) {
            return Ok(());
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
        let bytes = self.data.len() + self.rows.len() * size_of::<Kept>();
        if bytes <= self.bytes_max {
            return Ok(());
        }
        if let Some(limit) = self.limit
            && self.rows.len() > limit
        {
            self.compact(limit);
            if self.data.len() <= self.bytes_max / 2 {
                return Ok(());
            }
        }
        Err(Error::new(
            ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
            format!(
                "Executor error during find command :: caused by :: Sort exceeded memory limit of \
                 {} bytes, but did not opt in to external sorting.",
                self.bytes_max
            ),
        ))
    }

    fn sort_rows(&mut self) {
        let data = &self.data;
        self.rows.sort_unstable_by(|a, b| {
            a.prefix
                .cmp(&b.prefix)
                .then_with(|| data[a.key.clone()].cmp(&data[b.key.clone()]))
                .then(a.order.cmp(&b.order))
        });
    }

    /// Keeps the best `limit` rows, and their bytes only.
    fn compact(&mut self, limit: usize) {
        self.sort_rows();
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
        self.cutoff = self.rows.last().map(|row| self.data[row.key.clone()].to_vec());
    }

    fn finish(&mut self) {
        self.sort_rows();
        if let Some(limit) = self.limit {
            self.rows.truncate(limit);
        }
    }

    /// The row at this place, its document lent.
    fn row(&self, at: usize, with_key: bool) -> Result<Option<Row<'_>>> {
        let Some(kept) = self.rows.get(at) else { return Ok(None) };
        let doc = Doc::from_bytes(&self.data[kept.doc.clone()])?;
        let sort_key = match with_key {
            true => Some(Box::new(self.pattern.meta_key(doc)?)),
            false => None,
        };
        let doc = doc.into();
        Ok(Some(Row { record: kept.record, version: kept.version, doc, entry: None, sort_key }))
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
    gathered: Gathered,
    keep_sort_key: bool,
    sorted: bool,
    next: usize,
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
        let gathered = Gathered {
            pattern,
            limit: usize::try_from(limit).ok().filter(|l| *l > 0),
            fields: Fields::All,
            bytes_max: limits::SORT_BYTES_MAX,
            data: Vec::new(),
            rows: Vec::new(),
            cutoff: None,
            keys: Keys::default(),
            scratch: Vec::new(),
            order: 0,
            rows_sorted: 0,
            bytes_sorted: 0,
        };
        let stats = StageStats::default();
        Sort { child, gathered, keep_sort_key, sorted: false, next: 0, stats }
    }

    /// Keeps only these fields of the documents; with sort keys, those that they are made of must be
    /// among them.
    pub fn keeping(mut self, fields: Fields) -> Self {
        self.gathered.fields = fields;
        self
    }

    /// Gathers all rows. `Row`: they are there, sorted.
    fn gather(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        while !self.sorted {
            let Sort { child, gathered, .. } = self;
            match child.feed(cx, &mut |row| gathered.take(row).map(|()| Flow::Continue))? {
                Step::Row(()) => {}
                Step::Again => return Ok(Step::Again),
                Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                Step::Done => {
                    gathered.finish();
                    self.sorted = true;
                }
            }
        }
        Ok(Step::Row(()))
    }
}

impl Stage for Sort {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.gather(cx)? {
            Step::Row(()) => match self.gathered.row(self.next, self.keep_sort_key)? {
                Some(row) => {
                    self.next += 1;
                    Step::Row(row.into_owned())
                }
                None => Step::Done,
            },
            Step::Again => Step::Again,
            Step::Blocked(ticket) => Step::Blocked(ticket),
            Step::Done => Step::Done,
        };
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut step = self.gather(cx)?;
        let mut lent = 0;
        while matches!(step, Step::Row(())) {
            let Some(row) = self.gathered.row(self.next, self.keep_sort_key)? else {
                step = Step::Done;
                break;
            };
            self.next += 1;
            lent += 1;
            if take(&row)? != Flow::Continue {
                break;
            }
            if !cx.spend() {
                step = Step::Again;
            }
        }
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "SORT");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        out.put("sortPattern", self.gathered.pattern.spec());
        out.put("memLimit", self.gathered.bytes_max as i64);
        if let Some(limit) = self.gathered.limit {
            out.put("limitAmount", limit as i64);
        }
        out.put("type", "simple");
        if verbosity > Verbosity::QueryPlanner {
            out.put("totalDataSizeSorted", self.gathered.bytes_sorted as i64);
            out.put("usedDisk", false);
            out.put("spills", 0i64);
        }
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
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
