//! SORT: gathers all rows, gives them in order.
//!
//! Rows are compared by the bytes of one KeyString each: the least key that an index of the sort
//! pattern would hold for the document, which is what MongoDB sorts by. With a limit only the best
//! rows are kept, and a row that is worse than all of them is not copied at all.

use super::{ExecCx, Row, Stage, StageStats, Step, Totals, Verbosity};
use kauri_base::{CommitSeq, Error, ErrorCode, RecordId, Result, limits};
use kauri_bson::keygen::{KeyPattern, Keys};
use kauri_bson::{Doc, DocBuf, DocWriter, Value};
use std::ops::Range;
use std::sync::Arc;

/// A parsed sort specification.
#[derive(Clone)]
pub struct SortPattern {
    spec: DocBuf,
    keys: Arc<KeyPattern>,
}

impl SortPattern {
    /// Parses `{a: 1, "b.c": -1}`.
    pub fn parse(spec: Doc<'_>) -> Result<SortPattern> {
        for elem in spec {
            let direction = match elem.value() {
                Value::Int32(n) => f64::from(n),
                Value::Int64(n) => n as f64,
                Value::Double(n) => n,
                Value::Decimal128(_) => elem.value().as_f64_lossy().unwrap_or(0.0),
                Value::Document(meta) => return Err(refuse_meta(meta.as_doc())),
                other => {
                    return Err(Error::location(
                        15974,
                        format!("Illegal key in $sort specification: {}: {other:?}", elem.key()),
                    ));
                }
            };
            if direction != 1.0 && direction != -1.0 {
                return Err(Error::location(
                    15975,
                    "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
                ));
            }
            if elem.key().is_empty() {
                return Err(Error::location(
                    40352,
                    "FieldPath cannot be constructed with empty string",
                ));
            }
            if elem.key().starts_with('$') {
                return Err(Error::location(
                    16410,
                    format!(
                        "FieldPath field names may not start with '$'. Consider using $getField \
                         or $setField."
                    ),
                ));
            }
        }
        Ok(SortPattern { spec: spec.to_buf(), keys: Arc::new(KeyPattern::parse(spec)?) })
    }

    /// The specification.
    pub fn spec(&self) -> Doc<'_> {
        self.spec.as_doc()
    }

    /// Puts the document's sort key at the end of `out`.
    pub fn key_into(&self, doc: Doc<'_>, keys: &mut Keys, out: &mut Vec<u8>) -> Result<()> {
        keys.clear();
        self.keys.generate(doc, false, keys).map_err(|error| {
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
        let mut keys = Keys::default();
        self.keys.generate(doc, false, &mut keys)?;
        let values = match keys.iter().next() {
            Some(key) => self.keys.decode(key.bytes, key.type_bits)?,
            None => Vec::new(),
        };
        Ok(Value::array(values))
    }
}

fn refuse_meta(meta: Doc<'_>) -> Error {
    match meta.value("$meta").as_str() {
        Some("textScore") => {
            Error::location(40218, "query requires text score metadata, but it is not available")
        }
        Some(other) => Error::location(31138, format!("Illegal $meta sort: $meta: \"{other}\"")),
        None => Error::location(17312, "$meta is the only expression supported by $sort right now"),
    }
}

struct Kept {
    key: Range<usize>,
    doc: Range<usize>,
    record: RecordId,
    version: CommitSeq,
    order: u64,
}

/// See the module's head.
pub struct Sort {
    child: Box<dyn Stage>,
    pattern: SortPattern,
    limit: Option<usize>,
    keep_sort_key: bool,
    bytes_max: usize,
    /// Keys and documents of the rows kept.
    data: Vec<u8>,
    rows: Vec<Kept>,
    /// With a limit: the key that a row must beat.
    cutoff: Option<Vec<u8>>,
    sorted: bool,
    next: usize,
    keys: Keys,
    scratch: Vec<u8>,
    order: u64,
    rows_sorted: u64,
    bytes_sorted: u64,
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
        Sort {
            child,
            pattern,
            limit: usize::try_from(limit).ok().filter(|l| *l > 0),
            keep_sort_key,
            bytes_max: limits::SORT_BYTES_MAX,
            data: Vec::new(),
            rows: Vec::new(),
            cutoff: None,
            sorted: false,
            next: 0,
            keys: Keys::default(),
            scratch: Vec::new(),
            order: 0,
            rows_sorted: 0,
            bytes_sorted: 0,
            stats: StageStats::default(),
        }
    }

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
        self.data.extend_from_slice(row.doc().as_bytes());
        self.bytes_sorted += (self.data.len() - start) as u64;
        self.rows.push(Kept {
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
            data[a.key.clone()].cmp(&data[b.key.clone()]).then(a.order.cmp(&b.order))
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

    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        while !self.sorted {
            match self.child.work(cx)? {
                Step::Row(row) => self.take(&row)?,
                Step::Again => return Ok(Step::Again),
                Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                Step::Done => {
                    self.sort_rows();
                    if let Some(limit) = self.limit {
                        self.rows.truncate(limit);
                    }
                    self.sorted = true;
                }
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        let Some(kept) = self.rows.get(self.next) else { return Ok(Step::Done) };
        self.next += 1;
        let doc = DocBuf::from_vec(self.data[kept.doc.clone()].to_vec())?;
        let sort_key = match self.keep_sort_key {
            true => Some(Box::new(self.pattern.meta_key(doc.as_doc())?)),
            false => None,
        };
        Ok(Step::Row(Row {
            record: kept.record,
            version: kept.version,
            doc: doc.into(),
            entry: None,
            sort_key,
        }))
    }
}

impl Stage for Sort {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "SORT");
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        out.put("sortPattern", self.pattern.spec());
        out.put("memLimit", self.bytes_max as i64);
        if let Some(limit) = self.limit {
            out.put("limitAmount", limit as i64);
        }
        out.put("type", "simple");
        if verbosity > Verbosity::QueryPlanner {
            out.put("totalDataSizeSorted", self.bytes_sorted as i64);
            out.put("usedDisk", false);
            out.put("spills", 0i64);
        }
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
