//! Finds the documents of a join's other side: in memory, or by a plan for each row.
//!
//! The other collection is resolved when the stage is built, and again after it was dropped: on that error, if the
//! row has no results yet, the caller calls [`Finder::look_up_again`] and starts with the row again. Documents that
//! are already in memory stay there.

use super::table::{Docs, Table};
use super::values;
use crate::exec::{ExecCx, Flow, QueryEnv, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use crate::namespaces::Named;
use crate::pipeline::filter::Match;
use crate::pipeline::hash::HashKey;
use crate::pipeline::sub::{self, ResolvedSub, SubPipeline};
use crate::pipeline::{BuildCx, Input, Needed, Pipeline, StageSpec, build};
use kauri_base::{Error, Result, limits, work};
use kauri_bson::{Doc, DocWriter, Value};
use kauri_catalog::dropped::REPLANS_MAX;
use std::sync::Arc;

/// Bytes of the other side that are held in memory; what is more is read anew for each row.
const TABLE_BYTES_MAX: usize = limits::EXPRESSION_VALUE_BYTES_MAX;

/// How many of the first stages give the same for every row.
fn fixed_stages(resolved: &ResolvedSub, base: usize) -> usize {
    let same = |stage: &Arc<dyn StageSpec>| {
        let found = stage.field_use();
        !found.random && found.variables.iter().all(|position| *position < base)
    };
    let own = resolved.stages.iter().skip(resolved.of_views);
    resolved.of_views + own.take_while(|stage| same(stage)).count()
}

/// Where the other side's documents come from.
enum Source {
    /// To be decided when the first row is there.
    Start,
    /// The fixed stages are being run.
    Gathering(Box<dyn Stage>, Docs),
    /// What the fixed stages gave.
    Kept(Arc<Docs>),
    /// The same by the values of the joined field.
    Table(Table),
    /// Read for each row.
    Query,
}

/// The matches of a row.
pub enum Found {
    Docs(Docs),
    All(Arc<Docs>),
    Places(Arc<Docs>, Vec<u32>),
}

impl Found {
    /// The document at this place.
    pub fn get(&self, at: usize) -> Option<Doc<'_>> {
        match self {
            Found::Docs(docs) => docs.get(at),
            Found::All(docs) => docs.get(at),
            Found::Places(docs, places) => docs.get(*places.get(at)? as usize),
        }
    }
}

/// The query of the other side.
pub struct Asked {
    /// The field that documents are found by, if one is given.
    pub path: Option<String>,
    /// Whether it applies to the documents of the whole pipeline, not of the collection.
    pub whole: bool,
    /// Variables from here on are the row's.
    pub base: usize,
}

impl Asked {
    /// How many of the stages come before what finds by the field.
    fn fixed(&self, resolved: &ResolvedSub) -> usize {
        match &self.path {
            _ if self.whole => resolved.stages.len(),
            Some(_) => resolved.of_views + usize::from(resolved.begins_with_documents()),
            None => fixed_stages(resolved, self.base),
        }
    }
}

/// Finds what belongs to a row.
pub struct Finder {
    sub: SubPipeline,
    /// The surroundings of the stage.
    outer: BuildCx,
    asked: Asked,
    resolved: ResolvedSub,
    /// How many of the stages come before what finds by the field.
    fixed: usize,
    /// Whether these give the same for every row, and are run once for all.
    same: bool,
    inner: BuildCx,
    source: Source,
    /// How often names have been looked up again.
    replans: u32,
}

/// Documents, or the tree that gives them.
pub enum Start {
    /// They are there.
    Found(Found),
    /// They have to be read.
    Run(Box<dyn Stage>),
}

impl Finder {
    /// For this pipeline.
    pub fn new(sub: SubPipeline, asked: Asked, outer: &BuildCx) -> Result<Self> {
        let resolved = sub.resolve(outer)?;
        let fixed = asked.fixed(&resolved);
        let same = fixed_stages(&resolved, asked.base) >= fixed;
        let inner = inner(outer, &resolved);
        let (outer, source, replans) = (outer.clone(), Source::Start, 0);
        Ok(Finder { sub, outer, asked, resolved, fixed, same, inner, source, replans })
    }

    /// The collection was dropped, as `error` says: resolves the names again. Fails with the error after too many
    /// repetitions.
    pub fn look_up_again(&mut self, error: Error) -> Result<()> {
        if self.replans == REPLANS_MAX {
            return Err(error);
        }
        self.replans += 1;
        self.outer.namespaces.catch_up();
        self.look_up()
    }

    fn look_up(&mut self) -> Result<()> {
        self.resolved = self.sub.resolve(&self.outer)?;
        self.fixed = self.asked.fixed(&self.resolved);
        self.same = fixed_stages(&self.resolved, self.asked.base) >= self.fixed;
        self.inner = inner(&self.outer, &self.resolved);
        if matches!(self.source, Source::Gathering(..) | Source::Query) {
            self.source = Source::Start;
        }
        Ok(())
    }

    /// Prepares the source for requests. `Row`: it is ready.
    pub fn prepare(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        loop {
            match &mut self.source {
                Source::Start => {
                    self.look_for_missing()?;
                    self.source = self.start()?;
                }
                Source::Query => {
                    self.look_for_missing()?;
                    return Ok(Step::Row(()));
                }
                Source::Gathering(root, docs) => {
                    let mut over = false;
                    let step = root.feed(cx, &mut |row| {
                        work::tick_bytes(64 + row.doc().as_bytes().len())?;
                        docs.push(|out| out.extend_from_slice(row.doc().as_bytes()));
                        over = docs.memory_bytes() > TABLE_BYTES_MAX;
                        Ok(if over { Flow::Stop } else { Flow::Continue })
                    })?;
                    match step {
                        Step::Row(()) if over => self.source = Source::Query,
                        Step::Row(()) => {}
                        Step::Done => {
                            let docs = std::mem::take(docs);
                            self.source = self.gathered(docs, cx.env)?;
                        }
                        other => return Ok(other),
                    }
                }
                _ => return Ok(Step::Row(())),
            }
        }
    }

    /// A collection that was not there may have come.
    fn look_for_missing(&mut self) -> Result<()> {
        let (Some(from), None) = (&self.sub.from, &self.resolved.collection) else {
            return Ok(());
        };
        match self.outer.namespaces.resolve(from.as_str()) {
            Named::Collection(_) => self.look_up(),
            _ => Ok(()),
        }
    }

    fn start(&self) -> Result<Source> {
        let reads_each_time = match &self.asked.path {
            Some(_) if self.must_not_scan() => true,
            Some(path) => self.resolved.of_views == 0 && self.has_index(path),
            None => self.fixed == 0 && !self.resolved.stages.is_empty(),
        };
        if reads_each_time || !self.same {
            return Ok(Source::Query);
        }
        let stages = self.resolved.stages[..self.fixed].to_vec();
        let root = build(&Pipeline { stages }, Input::Collection(None), &self.inner)?;
        Ok(Source::Gathering(root, Docs::default()))
    }

    /// Whether the values of each row must find an index (`notablescan`), which planning decides.
    fn must_not_scan(&self) -> bool {
        let refuses = self.inner.env.plans.as_ref().is_some_and(|plans| plans.refuses_scans());
        refuses && self.resolved.collection.is_some()
    }

    /// Whether an index begins with this field.
    fn has_index(&self, path: &str) -> bool {
        let Some(collection) = &self.resolved.collection else { return false };
        collection.indexes.iter().any(|index| {
            let definition = index.definition();
            let first = definition.key.as_doc().first();
            index.ready
                && !definition.hidden
                && definition.partial.is_none()
                && !definition.sparse
                && first.is_some_and(|field| field.key() == path && field.value().is_number())
        })
    }

    fn gathered(&self, docs: Docs, env: &QueryEnv) -> Result<Source> {
        let Some(path) = &self.asked.path else { return Ok(Source::Kept(Arc::new(docs))) };
        let key = HashKey::new(&*env.random);
        Ok(match Table::new(docs, path, key, TABLE_BYTES_MAX)? {
            Some(table) => Source::Table(table),
            None => Source::Query,
        })
    }

    /// Starts with a row that needs these values of the field, or all.
    pub fn begin(&self, wanted: Option<&[Value<'_>]>, env: &QueryEnv) -> Result<Start> {
        let rest = &self.resolved.stages[self.fixed..];
        let found = match (&self.source, wanted) {
            (Source::Table(table), Some(values)) => {
                Found::Places(table.docs.clone(), table.find(values, env)?)
            }
            (Source::Table(table), None) => Found::All(table.docs.clone()),
            (Source::Kept(docs), _) => Found::All(docs.clone()),
            (_, wanted) => return self.query(wanted, env).map(Start::Run),
        };
        if rest.is_empty() {
            return Ok(Start::Found(found));
        }
        let source = Box::new(FoundSource { found, next: 0, stats: StageStats::default() });
        let pipeline = Pipeline { stages: rest.to_vec() };
        Ok(Start::Run(build(&pipeline, Input::Rows(source), &self.inner)?))
    }

    /// The tree that reads the other side for this row alone.
    fn query(&self, wanted: Option<&[Value<'_>]>, env: &QueryEnv) -> Result<Box<dyn Stage>> {
        let mut stages: Vec<Arc<dyn StageSpec>> = self.resolved.stages[..self.fixed].to_vec();
        if let (Some(path), Some(wanted)) = (&self.asked.path, wanted) {
            let filter = values::filter(path, wanted)?;
            stages.push(Arc::new(Match::all(vec![filter])));
        }
        stages.extend(self.resolved.stages[self.fixed..].iter().cloned());
        let pipeline = Pipeline { stages };
        if self.resolved.begins_with_documents() {
            // They are made when the tree is built, with the row's variables.
            let inner = BuildCx { env: env.clone(), ..self.inner.clone() };
            return build(&pipeline, Input::Collection(None), &inner);
        }
        build(&pipeline, Input::Collection(None), &self.inner)
    }
}

/// The surroundings of the other side's stages.
fn inner(outer: &BuildCx, resolved: &ResolvedSub) -> BuildCx {
    BuildCx { needed: Needed::default(), ..sub::build_cx(outer, resolved) }
}

/// Gives documents that were found.
struct FoundSource {
    found: Found,
    next: usize,
    stats: StageStats,
}

impl Stage for FoundSource {
    fn work<'g>(&mut self, _cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        let step = match self.found.get(self.next) {
            Some(doc) => Step::Row(Row::computed(doc.to_buf())),
            None => Step::Done,
        };
        self.next += 1;
        Ok(self.stats.count(step))
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        let mut lent = 0;
        let step = loop {
            let Some(doc) = self.found.get(self.next) else { break Step::Done };
            self.next += 1;
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
        out.put("stage", "QUEUED_DATA");
    }

    fn add_totals(&self, _totals: &mut Totals) {}
}
