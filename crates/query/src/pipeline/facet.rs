//! `$facet`: several pipelines over the same rows, each into an array of one document.
//!
//! Rows are collected in batches. Each pipeline processes a batch before the next is collected, so all pipelines
//! see every row and at most one batch is in memory.

use super::parse::{self, ParseCx, Place};
use super::{BuildCx, FieldUse, Input, Keeps, Pipeline, StageSpec, build};
use crate::exec::{ExecCx, Fields, Flow, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use kauri_base::{Result, bail, limits, work};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of rows that are gathered before the pipelines work them off.
const PORTION_BYTES: usize = 1024 * 1024;

/// A parsed `$facet`.
pub struct Facet {
    spec: DocBuf,
    facets: Vec<(String, Pipeline)>,
}

impl Facet {
    /// Parses the stage.
    pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Facet> {
        let spec = elem.as_doc().filter(|doc| elem.ty() == Type::Document && !doc.is_empty());
        let Some(spec) = spec else {
            bail!(40169, "the $facet specification must be a non-empty object");
        };
        let within = cx.within(Place::Facet)?;
        let mut facets = Vec::new();
        for field in spec {
            kauri_expr::path::check_field_name(field.key())?;
            let Some(stages) = field.as_doc().filter(|_| field.ty() == Type::Array) else {
                bail!(
                    40170,
                    "arguments to $facet must be arrays, {} is type {}",
                    field.key(),
                    field.ty().alias()
                );
            };
            if let Some(other) = stages.iter().find(|stage| stage.ty() != Type::Document) {
                bail!(
                    40171,
                    "elements of arrays in $facet spec must be non-empty objects, {} argument \
                     contained an element of type {}: {}",
                    field.key(),
                    other.ty().alias(),
                    kauri_bson::shell_value(&other.value())
                );
            }
            let mut pipeline = parse::parse(stages, &within)?;
            pipeline.optimize()?;
            facets.push((field.key().to_owned(), pipeline));
        }
        Ok(Facet { spec: spec.to_buf(), facets })
    }
}

impl StageSpec for Facet {
    fn name(&self) -> &'static str {
        "$facet"
    }

    fn constraints(&self) -> super::Constraints {
        super::Constraints { not_in_facet: true, ..Default::default() }
    }

    fn field_use(&self) -> FieldUse {
        let mut field_use = FieldUse { keeps: Keeps::nothing(), ..FieldUse::passing() };
        for (_, pipeline) in &self.facets {
            let uses: Vec<FieldUse> = pipeline.stages.iter().map(|s| s.field_use()).collect();
            field_use.add_pipeline(&uses, true, usize::MAX);
        }
        field_use
    }

    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>> {
        let portion = Arc::new(Mutex::new(Portion::default()));
        let inner =
            BuildCx { needed: Default::default(), most: 0, depth: cx.depth + 1, ..cx.clone() };
        let mut facets = Vec::new();
        for (name, pipeline) in &self.facets {
            let source = PortionSource {
                portion: portion.clone(),
                seen: 0,
                next: 0,
                stats: StageStats::default(),
            };
            let root = build(pipeline, Input::Rows(Box::new(source)), &inner)?;
            facets.push(FacetRun {
                name: name.clone(),
                root,
                out: Vec::new(),
                count: 0,
                done: false,
            });
        }
        let fields = self.field_use().reads;
        Ok(Box::new(FacetStage {
            child,
            spec: self.spec.clone(),
            fields,
            portion,
            facets,
            at: None,
            done: false,
            stats: StageStats::default(),
        }))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        let mut facets = out.document("$facet");
        for (name, pipeline) in &self.facets {
            let mut stages = facets.array(name);
            pipeline.stages.iter().for_each(|stage| stage.explain(&mut stages.document()));
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Rows that the pipelines are at.
#[derive(Default)]
struct Portion {
    docs: Vec<u8>,
    /// Tells portions apart.
    number: u64,
    /// No rows come after these.
    last: bool,
    /// Whether a pipeline waits for rows after these.
    starved: bool,
}

impl Portion {
    /// The row at `next` of the portion `seen`, which both are brought up to date.
    fn row(&mut self, seen: &mut u64, next: &mut usize) -> Result<Step<Doc<'_>>> {
        if *seen != self.number {
            (*seen, *next) = (self.number, 0);
        }
        if *next >= self.docs.len() {
            self.starved = !self.last;
            return Ok(if self.last { Step::Done } else { Step::Again });
        }
        let (doc, _) = Doc::split_prefix(self.docs.get(*next..).unwrap_or(&[]))?;
        *next += doc.as_bytes().len();
        Ok(Step::Row(doc))
    }
}

fn lock(portion: &Mutex<Portion>) -> MutexGuard<'_, Portion> {
    portion.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the rows of the portion. At its end `Again` stands for: another portion is needed.
struct PortionSource {
    portion: Arc<Mutex<Portion>>,
    /// The portion that `next` is a place in.
    seen: u64,
    next: usize,
    stats: StageStats,
}

impl Stage for PortionSource {
    fn work<'g>(&mut self, _cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let mut portion = lock(&self.portion);
        let step = match portion.row(&mut self.seen, &mut self.next)? {
            Step::Row(doc) => Step::Row(Row::computed(doc.to_buf())),
            Step::Done => Step::Done,
            _ => Step::Again,
        };
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut portion = lock(&self.portion);
        let mut lent = 0;
        let step = loop {
            let doc = match portion.row(&mut self.seen, &mut self.next)? {
                Step::Row(doc) => doc,
                Step::Done => break Step::Done,
                _ => break Step::Again,
            };
            lent += 1;
            if take(&Row::computed(doc))? != Flow::Continue {
                break Step::Row(());
            }
            if !cx.spend() {
                break Step::Again;
            }
        };
        Ok(self.stats.count_lent(lent, step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, _verbosity: Verbosity) {
        out.put("stage", "FACET_INPUT");
    }

    fn add_totals(&self, _totals: &mut Totals) {}
}

/// One of the pipelines.
struct FacetRun {
    name: String,
    root: Box<dyn Stage>,
    /// Its documents, one behind the other.
    out: Vec<u8>,
    count: usize,
    done: bool,
}

struct FacetStage {
    child: Box<dyn Stage>,
    spec: DocBuf,
    /// What any of the pipelines reads.
    fields: Fields,
    portion: Arc<Mutex<Portion>>,
    facets: Vec<FacetRun>,
    /// Which pipeline works the portion off; none while one is gathered.
    at: Option<usize>,
    done: bool,
    stats: StageStats,
}

impl FacetStage {
    fn next<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        while !self.done {
            let Some(at) = self.at else {
                match self.gather(cx)? {
                    Step::Row(()) => self.at = Some(0),
                    Step::Again => return Ok(Step::Again),
                    Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                    Step::Done => {}
                }
                continue;
            };
            let Some(facet) = self.facets.get_mut(at) else {
                let mut portion = lock(&self.portion);
                portion.docs.clear();
                portion.number += 1;
                self.done = portion.last;
                self.at = None;
                continue;
            };
            if facet.done {
                self.at = Some(at + 1);
                continue;
            }
            let (out, count) = (&mut facet.out, &mut facet.count);
            let step = facet.root.feed(cx, &mut |row| {
                work::tick_bytes(64 + row.doc().as_bytes().len())?;
                out.extend_from_slice(row.doc().as_bytes());
                *count += 1;
                check_bytes(out.len())?;
                Ok(Flow::Continue)
            })?;
            match step {
                Step::Blocked(ticket) => return Ok(Step::Blocked(ticket)),
                Step::Done => facet.done = true,
                _ if std::mem::take(&mut lock(&self.portion).starved) => self.at = Some(at + 1),
                _ => return Ok(Step::Again),
            }
        }
        match std::mem::take(&mut self.facets) {
            facets if facets.is_empty() => Ok(Step::Done),
            facets => Ok(Step::Row(Row::computed(document(&facets)?))),
        }
    }

    /// Gathers a portion; `Row`: there is one, `Done` never.
    fn gather(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        let FacetStage { child, fields, portion, .. } = self;
        let mut portion = lock(portion);
        let step = child.feed(cx, &mut |row| {
            fields.copy(row.doc(), &mut portion.docs);
            let full = portion.docs.len() >= PORTION_BYTES;
            Ok(if full { Flow::Stop } else { Flow::Continue })
        })?;
        Ok(match step {
            Step::Done => {
                portion.last = true;
                Step::Row(())
            }
            other => other,
        })
    }
}

fn check_bytes(bytes: usize) -> Result<()> {
    if bytes > limits::EXPRESSION_VALUE_BYTES_MAX {
        bail!(
            4031700,
            "document constructed by $facet is {bytes} bytes, which exceeds the limit of {} bytes",
            limits::EXPRESSION_VALUE_BYTES_MAX
        );
    }
    Ok(())
}

fn document(facets: &[FacetRun]) -> Result<DocBuf> {
    check_bytes(facets.iter().map(|facet| facet.out.len()).sum())?;
    let mut bytes = Vec::new();
    {
        let mut out = DocWriter::new(&mut bytes);
        for facet in facets {
            let mut list = out.array(&facet.name);
            let mut rest = facet.out.as_slice();
            while !rest.is_empty() {
                let (doc, behind) = Doc::split_prefix(rest)?;
                work::tick_bytes(64 + doc.as_bytes().len())?;
                list.push_doc(doc);
                rest = behind;
            }
        }
    }
    DocBuf::from_vec(bytes)
}

impl Stage for FacetStage {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = self.next(cx)?;
        Ok(self.stats.count(step))
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        out.put("stage", "FACET");
        out.put("spec", &self.spec);
        self.child.explain(&mut out.document("inputStage"), verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.child.add_totals(totals);
    }
}
