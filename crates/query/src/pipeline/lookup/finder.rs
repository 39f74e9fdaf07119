//! Finds the documents of the other side of a join: in memory, or by a plan for each row.

use super::table::{Docs, Table};
use super::values;
use crate::exec::{ExecCx, Flow, QueryEnv, Row, Stage, StageStats, Step, Take, Totals, Verbosity};
use crate::pipeline::filter::Match;
use crate::pipeline::hash::HashKey;
use crate::pipeline::sub::ResolvedSub;
use crate::pipeline::{BuildCx, Input, Pipeline, StageSpec, build};
use kauri_base::{Result, limits, work};
use kauri_bson::{Doc, DocWriter, Value};
use std::sync::Arc;

/// Bytes of the other side that are held in memory; what is more is read anew for each row.
const TABLE_BYTES_MAX: usize = limits::EXPRESSION_VALUE_BYTES_MAX;

/// How many of the first stages give the same for every row.
pub fn fixed_stages(resolved: &ResolvedSub, base: usize) -> usize {
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

/// What belongs to a row.
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

/// Finds what belongs to a row.
pub struct Finder {
    /// The field that documents are found by.
    path: Option<String>,
    resolved: ResolvedSub,
    /// How many of the stages come before what finds by the field.
    fixed: usize,
    /// Whether these give the same for every row, and are run once for all.
    same: bool,
    inner: BuildCx,
    source: Source,
}

/// Documents, or the tree that gives them.
pub enum Start {
    /// They are there.
    Found(Found),
    /// They have to be read.
    Run(Box<dyn Stage>),
}

impl Finder {
    /// Of this pipeline, by a field if one is given. Variables from `base` on are the row's.
    pub fn new(
        path: Option<String>,
        resolved: ResolvedSub,
        fixed: usize,
        base: usize,
        inner: BuildCx,
    ) -> Self {
        let same = fixed_stages(&resolved, base) >= fixed;
        Finder { path, resolved, fixed, same, inner, source: Source::Start }
    }

    /// Brings the source to where rows can be asked for. `Row`: it is there.
    pub fn prepare(&mut self, cx: &mut ExecCx<'_>) -> Result<Step<()>> {
        loop {
            match &mut self.source {
                Source::Start => self.source = self.start()?,
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

    fn start(&self) -> Result<Source> {
        let reads_each_time = match &self.path {
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
        let Some(path) = &self.path else { return Ok(Source::Kept(Arc::new(docs))) };
        let key = HashKey::new(&*env.random);
        Ok(match Table::new(docs, path, key, TABLE_BYTES_MAX)? {
            Some(table) => Source::Table(table),
            None => Source::Query,
        })
    }

    /// Begins with a row that asks for these values of the field, or for anything.
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
        if let (Some(path), Some(wanted)) = (&self.path, wanted) {
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
