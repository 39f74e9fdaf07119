//! Runs `$setWindowFields`: sorts rows by partition and order, and processes one partition at a time.
//!
//! Rows beyond the memory limit are sorted externally (`spill`). Then partitions are read into memory one after the
//! other; a partition beyond the limit fails.

use super::function::{self, Function, State};
use super::linear_fill::Filling;
use super::moving_average::Average;
use super::{Output, Plan, partition_value};
use crate::exec::{
    ExecCx, Fields, Flow, QueryEnv, Row, Stage, StageStats, Step, Take, Totals, Verbosity,
};
use crate::pipeline::heap_bytes;
use crate::spill::{ExternalSort, RowBuffer, SpillKind, Spilling, SpillingSort};
use kauri_base::{Access, Error, ErrorCode, Result, work};
use kauri_bson::keygen::Keys;
use kauri_bson::{Doc, DocBuf, DocWriter, Value, compare};
use kauri_expr::EvalCx;
use kauri_mutate::ProjectCx;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// A gathered row. Its sort key and its document lie in the bytes of all.
struct Kept {
    partition: Value<'static>,
    key: Range<usize>,
    doc: Range<usize>,
}

struct Gathered {
    plan: Arc<Plan>,
    fields: Fields,
    bytes: Vec<u8>,
    rows: Vec<Kept>,
    keys: Keys,
    held: usize,
    bytes_max: usize,
}

/// What an output has come to in the partition at hand.
struct Progress {
    frame: Range<usize>,
    /// The frame's rows up to here have been added.
    added: Range<usize>,
    state: Option<State>,
    /// `$rank` and `$denseRank` of the row before, or the value that `$locf` carries on.
    last: (i64, i64),
    carried: Value<'static>,
    /// What `$linearFill` and `$expMovingAvg` know of other rows.
    filling: Filling,
    average: Average,
}

struct WindowStage {
    child: Box<dyn Stage>,
    spec: DocBuf,
    /// The rows; if they were spilled, those of the partition at hand.
    sort: SpillingSort<Gathered>,
    /// Whether a partition's rows are there to be given.
    is_loaded: bool,
    /// Whether the sorted records are at the first one of a partition that has not been taken.
    is_at_next: bool,
    next: usize,
    /// The rows of the partition that the next one is of.
    partition: Range<usize>,
    progress: Vec<Progress>,
    scratch: Vec<u8>,
    stats: StageStats,
}

/// Builds the stage, which keeps these fields of its rows.
pub fn build(
    child: Box<dyn Stage>,
    plan: Arc<Plan>,
    fields: Fields,
    spec: &DocBuf,
) -> Box<dyn Stage> {
    let (bytes, rows, keys) = (Vec::new(), Vec::new(), Keys::default());
    let gathered = Gathered { plan, fields, bytes, rows, keys, held: 0, bytes_max: 0 };
    Box::new(WindowStage {
        child,
        spec: spec.clone(),
        sort: SpillingSort::new(gathered),
        is_loaded: false,
        is_at_next: false,
        next: 0,
        partition: 0..0,
        progress: Vec::new(),
        scratch: Vec::new(),
        stats: StageStats::default(),
    })
}

impl RowBuffer for Gathered {
    type Row = Kept;
    const KIND: SpillKind = SpillKind::Windows;
    const BY_KEY: fn(&[u8], &[u8]) -> Ordering = by_key;

    fn limit(&mut self, spilling: &Spilling) -> usize {
        self.bytes_max = spilling.window_bytes_max;
        self.bytes_max
    }

    fn take(&mut self, row: &Row<'_>, env: &QueryEnv) -> Result<bool> {
        let partition = match &self.plan.partition {
            Some(expression) => {
                partition_value(expression.eval(&env.eval_cx(), row.doc())?)?.into_owned()
            }
            None => Value::Null,
        };
        let start = self.bytes.len();
        if let Some(sort) = &self.plan.sort {
            sort.key_into(row.doc(), &mut self.keys, &mut self.bytes)?;
        }
        let middle = self.bytes.len();
        self.fields.copy(row.doc(), &mut self.bytes);
        self.held += heap_bytes(&partition) + size_of::<Kept>();
        self.rows.push(Kept { partition, key: start..middle, doc: middle..self.bytes.len() });
        Ok(self.bytes() <= self.bytes_max)
    }

    /// One partition must fit, so what is only one goes nowhere.
    fn may_spill(&self) -> bool {
        self.plan.has_partitions()
    }

    fn too_many(&self, bytes_max: usize) -> Error {
        Error::new(
            ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
            format!(
                "Exceeded memory limit in DocumentSourceSetWindowFields, used {} bytes but max \
                 allowed is {bytes_max} bytes",
                self.bytes()
            ),
        )
    }

    fn rows(&mut self) -> (&mut Vec<Kept>, impl Fn(&Kept, &Kept) -> Ordering + Copy) {
        let bytes = &self.bytes;
        (&mut self.rows, |a: &Kept, b: &Kept| in_order(bytes, a, b))
    }

    fn push(&self, at: usize, external: &mut ExternalSort) -> bool {
        let row = &self.rows[at];
        let mut key = Vec::new();
        DocWriter::new(&mut key).put_value("", &row.partition);
        key.extend_from_slice(&self.bytes[row.key.clone()]);
        external.push(&key, &[&self.bytes[row.doc.clone()]])
    }

    fn bytes(&self) -> usize {
        self.held + self.bytes.len()
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
        self.held = 0;
    }

    fn give_back(&mut self) {
        (self.bytes, self.rows) = (Vec::new(), Vec::new());
    }
}

impl Gathered {
    /// Takes a record of the sorted ones.
    fn take_record(&mut self, key: &[u8], doc: &[u8]) -> Result<()> {
        let (partition, key) = Doc::split_prefix(key)?;
        let partition = partition.value("").into_owned();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(doc);
        self.held += heap_bytes(&partition) + size_of::<Kept>();
        self.rows.push(Kept { partition, key: start..middle, doc: middle..self.bytes.len() });
        Ok(())
    }

    fn doc(&self, at: usize) -> Doc<'_> {
        let bytes = self.rows.get(at).and_then(|row| self.bytes.get(row.doc.clone()));
        bytes.and_then(|bytes| Doc::from_bytes(bytes).ok()).unwrap_or(Doc::EMPTY)
    }

    /// The rows of the partition that begins at this one.
    fn partition_at(&self, start: usize) -> Range<usize> {
        let Some(first) = self.rows.get(start) else { return start..start };
        let same = |row: &&Kept| {
            work::tick_infallible(1);
            compare(&row.partition, &first.partition).is_eq()
        };
        start..start + self.rows.iter().skip(start).take_while(same).count()
    }

    /// Whether the row is sorted like the one before.
    fn ties(&self, at: usize) -> bool {
        let key = |at: usize| self.rows.get(at).and_then(|row| self.bytes.get(row.key.clone()));
        key(at) == key(at.wrapping_sub(1))
    }
}

fn in_order(bytes: &[u8], a: &Kept, b: &Kept) -> Ordering {
    compare(&a.partition, &b.partition)
        .then_with(|| bytes[a.key.clone()].cmp(&bytes[b.key.clone()]))
        .then(a.doc.start.cmp(&b.doc.start))
}

/// Orders records as `in_order` does rows: their keys are the partition in a document, and a sort key.
fn by_key(a: &[u8], b: &[u8]) -> Ordering {
    match (Doc::split_prefix(a), Doc::split_prefix(b)) {
        (Ok((a, a_key)), Ok((b, b_key))) => {
            compare(&a.value(""), &b.value("")).then_with(|| a_key.cmp(b_key))
        }
        _ => Ordering::Equal,
    }
}

impl WindowStage {
    /// Gathers rows until some can be given. `Row`: they are there, sorted.
    fn gather(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        if self.is_loaded {
            return Ok(Step::Row(()));
        }
        match self.sort.gather(&mut *self.child, cx)? {
            Step::Row(()) => self.load(cx),
            step => Ok(step),
        }
    }

    /// Takes the next partition into memory. `Row`: it is there, or there is none.
    fn load(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let WindowStage { sort, is_at_next, is_loaded, .. } = self;
        let SpillingSort { buffer: gathered, external, .. } = sort;
        let Some(external) = external else {
            *is_loaded = true;
            return Ok(Step::Row(()));
        };
        loop {
            if !*is_at_next {
                match external.next()? {
                    Access::Ready(is_there) => *is_at_next = is_there,
                    Access::WouldBlock(ticket) => return Ok(Step::Blocked(ticket)),
                }
            }
            let Some(record) = external.record() else { break };
            let (partition, _) = Doc::split_prefix(record.key())?;
            let first = gathered.rows.first();
            if first.is_some_and(|row| compare(&row.partition, &partition.value("")).is_ne()) {
                break;
            }
            gathered.take_record(record.key(), record.rest())?;
            *is_at_next = false;
            let bytes_max = cx.env.spilling.window_bytes_max;
            if gathered.bytes() > bytes_max && gathered.rows.len() > 1 {
                return Err(gathered.too_many(bytes_max));
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
        *is_loaded = true;
        Ok(Step::Row(()))
    }

    /// Goes on to the next partition of the sorted records. False: there is none.
    fn next_partition(&mut self) -> bool {
        if !self.is_at_next {
            return false;
        }
        self.sort.buffer.clear();
        (self.next, self.partition) = (0, 0..0);
        self.is_loaded = false;
        true
    }

    /// Writes the next row; false if there is none.
    fn write(&mut self, env: &QueryEnv) -> Result<bool> {
        let at = self.next;
        if at >= self.sort.buffer.rows.len() {
            return Ok(false);
        }
        let plan = self.sort.buffer.plan.clone();
        if !self.partition.contains(&at) {
            self.partition = self.sort.buffer.partition_at(at);
            self.progress = plan.outputs.iter().map(|_| Progress::new()).collect();
        }
        let mut vars = function::variables(env, plan.base);
        work::tick_bytes(64 * plan.outputs.len())?;
        for (output, progress) in plan.outputs.iter().zip(&mut self.progress) {
            let rows = Rows { gathered: &self.sort.buffer, partition: self.partition.clone(), env };
            vars.push(progress.value(output, at - self.partition.start, &rows)?);
        }
        self.scratch.clear();
        let eval = EvalCx { vars: &vars, ..env.eval_cx() };
        let doc = self.sort.buffer.doc(at);
        match &plan.set {
            Some(set) => set.apply(doc, &ProjectCx::new(eval), &mut self.scratch)?,
            None => self.scratch.extend_from_slice(doc.as_bytes()),
        }
        crate::pipeline::check_size(self.scratch.len())?;
        self.next += 1;
        Ok(true)
    }

    fn lend(
        &mut self,
        cx: &mut ExecCx<'_>,
        lent: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<Step<()>> {
        loop {
            match self.gather(cx)? {
                Step::Row(()) => {}
                other => return Ok(other),
            }
            if !self.write(cx.env)? {
                if self.next_partition() {
                    continue;
                }
                return Ok(Step::Done);
            }
            *lent += 1;
            if take(&Row::computed(Doc::from_bytes(&self.scratch)?))? != Flow::Continue {
                return Ok(Step::Row(()));
            }
            if !cx.spend() {
                return Ok(Step::Again);
            }
        }
    }
}

/// The rows of a partition.
struct Rows<'g> {
    gathered: &'g Gathered,
    partition: Range<usize>,
    env: &'g QueryEnv,
}

impl<'g> Rows<'g> {
    fn doc(&self, at: usize) -> Doc<'g> {
        self.gathered.doc(self.partition.start + at)
    }
}

impl Progress {
    fn new() -> Progress {
        Progress {
            frame: 0..0,
            added: 0..0,
            state: None,
            last: (0, 0),
            carried: Value::Null,
            filling: Filling::default(),
            average: Average::default(),
        }
    }

    /// What the output is for the row at `at` of the partition.
    fn value(&mut self, output: &Output, at: usize, rows: &Rows<'_>) -> Result<Value<'static>> {
        let cx = rows.env.eval_cx();
        let number = |n: i64| i32::try_from(n).map_or(Value::Int64(n), Value::Int32);
        match &output.function {
            Function::DocumentNumber => Ok(number(at as i64 + 1)),
            Function::Rank | Function::DenseRank => {
                if at == 0 || !rows.gathered.ties(rows.partition.start + at) {
                    self.last = (at as i64 + 1, self.last.1 + 1);
                }
                let dense = matches!(output.function, Function::DenseRank);
                Ok(number(if dense { self.last.1 } else { self.last.0 }))
            }
            Function::Shift { output, by, default } => {
                let other = usize::try_from(at as i64 + by).ok();
                match other.filter(|other| *other < rows.partition.len()) {
                    Some(other) => null(output.eval(&cx, rows.doc(other))?),
                    None => Ok(default.clone()),
                }
            }
            Function::Locf(value) => {
                let value = value.eval(&cx, rows.doc(at))?;
                if !value.is_nullish() {
                    self.carried = value.into_owned();
                }
                Ok(self.carried.clone())
            }
            Function::LinearFill(fill) => {
                let count = rows.partition.len();
                fill.value(&mut self.filling, at, count, |at| rows.doc(at), &cx)
            }
            Function::MovingAverage(function) => {
                function.value(&mut self.average, &cx, rows.doc(at))
            }
            Function::Derivative(points) => {
                self.move_frame(output, at, rows)?;
                match self.frame.is_empty() {
                    true => Ok(Value::Null),
                    false => {
                        let (first, last) = (self.frame.start, self.frame.end - 1);
                        points.derivative(&cx, rows.doc(first), rows.doc(last))
                    }
                }
            }
            function => self.of_frame(function, output, at, rows, &cx),
        }
    }

    /// Goes on to the frame of the row at `at`.
    fn move_frame(&mut self, output: &Output, at: usize, rows: &Rows<'_>) -> Result<()> {
        let (count, doc) = (rows.partition.len(), |at: usize| rows.doc(at));
        self.frame = output.frame.rows(at, &self.frame, count, doc, rows.env)?;
        Ok(())
    }

    fn of_frame(
        &mut self,
        function: &Function,
        output: &Output,
        at: usize,
        rows: &Rows<'_>,
        cx: &EvalCx<'_>,
    ) -> Result<Value<'static>> {
        self.move_frame(output, at, rows)?;
        let frame = self.frame.clone();
        let goes_on = frame.start == self.added.start && frame.end >= self.added.end;
        if self.state.is_none() || !goes_on {
            self.state = function.start(cx)?;
            self.added = frame.start..frame.start;
        }
        let Some(state) = &mut self.state else { return Ok(Value::Null) };
        for at in self.added.end..frame.end {
            work::tick(1)?;
            function.add(state, cx, rows.doc(at))?;
        }
        self.added = frame;
        function.result(state, output.frame.start_moves())
    }
}

/// What is missing is shown as null.
fn null(value: Value<'_>) -> Result<Value<'static>> {
    Ok(if value.is_missing() { Value::Null } else { value.into_owned() })
}

impl Stage for WindowStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = crate::pipeline::work_by_lending(|take| self.lend(cx, &mut 0, take))?;
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut lent = 0;
        let step = self.lend(cx, &mut lent, take)?;
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "SET_WINDOW_FIELDS");
        out.put("spec", &self.spec);
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
            self.sort.spilled().write(out);
        }
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
