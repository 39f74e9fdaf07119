//! Runs a case on a catalog in memory.

use super::generate::Case;
use bson::Document;
use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::operation::block_on;
use kauri_base::{OperationContext, Result};
use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_catalog::{Catalog, Namespace};
use kauri_expr::VariableScope;
use kauri_query::exec::{Ended, Flow, PlanExecutor, QueryEnv};
use kauri_query::pipeline::{BuildCx, ParseCx, Place, build_by_trial, parse, views};
use kauri_query::write::insert::{InsertOptions, insert};
use kauri_query::write::{Bypass, WriteOutcome};
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{LocalCommitter, StorageEngine};
use std::sync::Arc;

/// How a pipeline is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    AsWritten,
    Optimized,
    /// Optimised, and stopped after each row, as a client with batches of one would.
    RowByRow,
}

pub fn raw(doc: &Document) -> DocBuf {
    let mut bytes = Vec::new();
    doc.to_writer(&mut bytes).expect("a document can be written");
    DocBuf::from_vec(bytes).expect("what was written is framed")
}

pub fn show(docs: &[DocBuf]) -> String {
    docs.iter().map(|doc| kauri_bson::shell_text(doc.as_doc())).collect::<Vec<_>>().join("\n  ")
}

fn fill(op: &mut OperationContext, catalog: &Catalog, name: &str, docs: &[Document]) {
    let docs: Vec<DocBuf> = docs.iter().map(raw).collect();
    let docs: Vec<Doc<'_>> = docs.iter().map(DocBuf::as_doc).collect();
    let ns = Namespace::new("db", name).unwrap();
    let options = InsertOptions::ordered(Bypass::default());
    let mut outcome = WriteOutcome::default();
    block_on(insert(op, catalog, &ns, &docs, &options, &mut outcome)).unwrap();
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

pub fn run(case: &Case, mode: Mode) -> Result<Vec<DocBuf>> {
    let engine: Arc<dyn StorageEngine> = Arc::new(EphemeralEngine::new());
    let random = Arc::new(SeededRandom::new(7));
    let clock = Arc::new(SystemClock::new());
    let committer = Arc::new(LocalCommitter(engine.clone()));
    let catalog = Arc::new(Catalog::open(engine, committer, clock.clone(), random.clone())?);
    let op = &mut OperationContext::detached(clock);
    if case.foreign_index {
        index(&catalog);
    }
    fill(op, &catalog, "c", &case.docs);
    fill(op, &catalog, "f", &case.foreign);
    let ns = Namespace::new("db", "c")?;
    let parse_cx = ParseCx::new(&ns, VariableScope::new(), Place::Command);
    let stages = Value::array(case.pipeline.iter().map(|stage| Value::from(raw(stage))));
    let mut pipeline = parse::parse(stages.as_array().unwrap_or(Doc::EMPTY), &parse_cx)?;
    if mode != Mode::AsWritten {
        pipeline.optimize().unwrap();
    }
    let collection = views::resolve(&catalog, &ns)?.collection;
    let cx = BuildCx::new(catalog.clone(), "db", collection, QueryEnv::new(0, random));
    let root = block_on(build_by_trial(op, &pipeline, None, &cx))?;
    let ru = catalog.engine().recovery_unit();
    let mut executor = PlanExecutor::new(root, ru, cx.env.clone());
    let mut rows = Vec::new();
    loop {
        let ended = block_on(executor.for_each(op, &mut |row| {
            rows.push(row.doc().to_buf());
            Ok(if mode == Mode::RowByRow { Flow::Stop } else { Flow::Continue })
        }))?;
        if ended == Ended::Exhausted {
            return Ok(rows);
        }
    }
}

/// Puts an index on the field that most joins go by, before there are documents.
fn index(catalog: &Catalog) {
    let ns = Namespace::new("db", "f").unwrap();
    let (collection, _) = catalog.create_collection(&ns, Default::default(), None).unwrap();
    let spec = doc! { "v" => 2, "key" => doc! { "a" => 1 }, "name" => "a_1" };
    let (ids, _) = catalog.add_indexes(&collection, &[spec]).unwrap();
    let collection = catalog.collection("db.f").unwrap();
    catalog.indexes_ready(&collection, &ids, &[]).unwrap();
}
