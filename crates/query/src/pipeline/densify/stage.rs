//! Runs `$_internalDensify`: before each document it creates the missing documents since the previous one, and at
//! the end the missing documents after the last one.
//!
//! Invariants:
//! - Input documents ascend by the field: all of them for `full`, otherwise those of a partition.
//! - Per partition only the next value is kept, no documents. Its memory and the number of created documents are
//!   bounded.

use super::Plan;
use super::bounds::Bounds;
use super::step::Limit;
use crate::exec::{ExecCx, Fields, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use crate::pipeline::group_table::GroupTable;
use crate::pipeline::{heap_bytes, unwind, work_by_lending};
use crate::spill::Spilling;
use kauri_base::{RandomSource, Result, bail, work};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Value};
use std::sync::Arc;

/// Documents that are made, and the document of the input behind them.
struct Gap {
    /// Of which partition.
    partition: usize,
    limit: Limit,
    /// The document that ends the gap, its value, and whether steps lead to it.
    end: Option<(Row<'static>, Value<'static>, bool)>,
}

/// Where the stage is.
enum Phase {
    Reading,
    /// The input has ended: the gap behind the last document of this partition is next.
    Ending(usize),
}

struct DensifyStage {
    child: Box<dyn Stage>,
    work: Densifier,
    phase: Phase,
    stats: StageStats,
}

/// All but the input.
struct Densifier {
    plan: Arc<Plan>,
    spec: DocBuf,
    /// The partitions: each with its fields, as the documents that are made have them.
    partitions: GroupTable,
    /// What is made next in each partition.
    next: Vec<Value<'static>>,
    /// The least value of all.
    least: Option<Value<'static>>,
    /// The greatest value so far.
    greatest: Value<'static>,
    gap: Option<Gap>,
    bytes: usize,
    made: u64,
    scratch: Vec<u8>,
}

/// Builds the stage.
pub fn build(
    child: Box<dyn Stage>,
    plan: &Arc<Plan>,
    spec: &DocBuf,
    random: &dyn RandomSource,
) -> Box<dyn Stage> {
    let work = Densifier {
        plan: Arc::clone(plan),
        spec: spec.clone(),
        partitions: GroupTable::new(random),
        next: Vec::new(),
        least: None,
        greatest: Value::Null,
        gap: None,
        bytes: 0,
        made: 0,
        scratch: Vec::new(),
    };
    Box::new(DensifyStage { child, work, phase: Phase::Reading, stats: StageStats::default() })
}

impl Densifier {
    /// Whether documents are made before this one, then notes the gap; if not, the document is next.
    fn opens_gap(&mut self, row: &Row<'_>, spilling: &Spilling) -> Result<bool> {
        let plan = Arc::clone(&self.plan);
        let found = unwind::find(row.doc(), plan.field.parts());
        let value = found.map_or(Value::Missing, Elem::value);
        if value.is_nullish() {
            return Ok(false);
        }
        plan.step.check(&value)?;
        let first = match &plan.bounds {
            Bounds::Full => self.least.get_or_insert_with(|| value.clone().into_owned()).clone(),
            Bounds::Partition => value.clone().into_owned(),
            Bounds::Explicit(lower, _) => lower.clone(),
        };
        if matches!(plan.bounds, Bounds::Full) {
            self.greatest = value.clone().into_owned();
        }
        let partition = self.partition_of(row.doc(), first, spilling)?;
        let next = &self.next[partition];
        let (limit, is_met) = match &plan.bounds {
            Bounds::Explicit(_, upper) if kauri_bson::compare(&value, upper).is_ge() => {
                (Limit::Below(upper.clone()), false)
            }
            _ if kauri_bson::compare(&value, next).is_lt() => return Ok(false),
            _ => plan.step.limit_before(next, &value),
        };
        if limit.admits(next) {
            let end = Some((row.clone().into_owned(), value.into_owned(), is_met));
            self.gap = Some(Gap { partition, limit, end });
            return Ok(true);
        }
        self.pass(partition, &value, is_met)?;
        Ok(false)
    }

    /// Goes on behind a document that steps lead to, with a value of its type.
    fn pass(&mut self, partition: usize, value: &Value<'_>, is_met: bool) -> Result<()> {
        let next = &mut self.next[partition];
        if is_met || kauri_bson::equal(next, value) {
            *next = self.plan.step.after(value)?;
        }
        Ok(())
    }

    /// The number of the document's partition, in which `first` is made first.
    fn partition_of(
        &mut self,
        doc: Doc<'_>,
        first: Value<'static>,
        spilling: &Spilling,
    ) -> Result<usize> {
        let mut fields = DocBuf::default();
        for path in &self.plan.partition_by {
            if let Some(elem) = unwind::find(doc, path.parts()) {
                fields = with_value(fields.as_doc(), path.parts(), &elem.value());
            }
        }
        let key = Value::from(fields);
        work::tick_bytes(64 + heap_bytes(&key))?;
        match self.partitions.find(&key) {
            Ok(number) => Ok(number),
            Err(vacant) => {
                self.bytes +=
                    heap_bytes(&key) + 2 * size_of::<Value<'_>>() + GroupTable::SLOT_BYTES;
                if self.bytes > spilling.densify_bytes_max {
                    bail!(
                        6007200,
                        "$densify exceeded memory limit of {} bytes",
                        spilling.densify_bytes_max
                    );
                }
                self.next.push(first);
                let number = self.partitions.insert(vacant, key);
                Ok(number.unwrap_or(self.next.len() - 1))
            }
        }
    }

    /// Writes the next document of the gap; false if there is none.
    fn write(&mut self, gap: &Gap, spilling: &Spilling) -> Result<bool> {
        let next = &mut self.next[gap.partition];
        if !gap.limit.admits(next) {
            return Ok(false);
        }
        self.made += 1;
        if self.made > spilling.densify_docs_max {
            bail!(
                5897900,
                "Generated {} documents in $densify, which is over the limit of {}. Increase the \
                 'internalQueryMaxAllowedDensifyDocs' parameter to allow more generated documents",
                self.made,
                spilling.densify_docs_max
            );
        }
        let fields = self.partitions.values()[gap.partition].as_document().unwrap_or(Doc::EMPTY);
        work::tick_bytes(64 + fields.as_bytes().len())?;
        self.scratch.clear();
        let out = &mut DocWriter::new(&mut self.scratch);
        unwind::replace(fields, self.plan.field.parts(), next, &Fields::All, out);
        *next = self.plan.step.after(next)?;
        Ok(true)
    }

    /// Lends the documents of the gap and the one that ends it. None: there is no gap left.
    fn lend_gap(
        &mut self,
        cx: &mut ExecCx<'_>,
        lent: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<Option<Step<()>>> {
        let spilling = &cx.env.spilling;
        while let Some(gap) = self.gap.take() {
            let flow = if self.write(&gap, spilling)? {
                self.gap = Some(gap);
                take(&Row::computed(Doc::from_bytes(&self.scratch)?))?
            } else {
                let Some((row, value, is_met)) = gap.end else { break };
                self.pass(gap.partition, &value, is_met)?;
                take(&row)?
            };
            *lent += 1;
            if flow != Flow::Continue {
                return Ok(Some(Step::Row(())));
            }
            if cx.budget == 0 {
                return Ok(Some(Step::Again));
            }
            cx.budget -= 1;
        }
        Ok(None)
    }

    /// Opens the gap behind the last document of a partition. False: there is no such partition.
    fn opens_last_gap(&mut self, partition: usize, spilling: &Spilling) -> Result<bool> {
        let plan = Arc::clone(&self.plan);
        let limit = match &plan.bounds {
            Bounds::Partition => return Ok(false),
            // Without partitions the last document has the greatest value.
            Bounds::Full if plan.partition_by.is_empty() => return Ok(false),
            Bounds::Full => Limit::UpTo(self.greatest.clone()),
            Bounds::Explicit(lower, upper) => {
                if self.next.is_empty() && plan.partition_by.is_empty() {
                    self.partition_of(Doc::EMPTY, lower.clone(), spilling)?;
                }
                Limit::Below(upper.clone())
            }
        };
        if partition >= self.next.len() {
            return Ok(false);
        }
        self.gap = Some(Gap { partition, limit, end: None });
        Ok(true)
    }
}

/// The document with this value at the path.
fn with_value(doc: Doc<'_>, path: &[String], value: &Value<'_>) -> DocBuf {
    DocBuf::build(|out| unwind::replace(doc, path, value, &Fields::All, out))
}

impl DensifyStage {
    fn lend(
        &mut self,
        cx: &mut ExecCx<'_>,
        lent: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<Step<()>> {
        loop {
            if let Some(step) = self.work.lend_gap(cx, lent, take)? {
                return Ok(step);
            }
            match self.phase {
                Phase::Reading => match self.read(cx, lent, take)? {
                    Step::Done => self.phase = Phase::Ending(0),
                    Step::Row(()) if self.work.gap.is_some() => {}
                    step => return Ok(step),
                },
                Phase::Ending(partition) => {
                    if !self.work.opens_last_gap(partition, &cx.env.spilling)? {
                        return Ok(Step::Done);
                    }
                    self.phase = Phase::Ending(partition + 1);
                }
            }
        }
    }

    /// Passes documents of the input on, until there is a gap before one.
    fn read(
        &mut self,
        cx: &mut ExecCx<'_>,
        lent: &mut u64,
        take: &mut Take<'_>,
    ) -> Result<Step<()>> {
        let spilling = &cx.env.spilling;
        let work = &mut self.work;
        self.child.feed(cx, &mut |row| {
            if work.opens_gap(row, spilling)? {
                return Ok(Flow::Stop);
            }
            *lent += 1;
            take(row)
        })
    }
}

impl Stage for DensifyStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = work_by_lending(|take| self.lend(cx, &mut 0, take))?;
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut lent = 0;
        let step = self.lend(cx, &mut lent, take)?;
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "DENSIFY");
        out.put("spec", &self.work.spec);
        if verbosity > Verbosity::QueryPlanner {
            self.stats.write(out);
        }
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
