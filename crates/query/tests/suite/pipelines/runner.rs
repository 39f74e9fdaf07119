//! Runs a case on a catalog in memory.

use super::generate::Case;
use super::remote::Elsewhere;
use bson::Document;
use kauri_base::Result;
use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::operation::block_on;
use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_catalog::{Catalog, Namespace};
use kauri_expr::VariableScope;
use kauri_query::exec::{Ended, Flow, PlanExecutor, QueryEnv};
use kauri_query::namespaces::Namespaces;
use kauri_query::pipeline::{BuildCx, ParseCx, Pipeline, Place, build_by_trial, parse, views};
use kauri_query::write::insert::{InsertOptions, insert};
use kauri_query::write::{Bypass, WriteOutcome};
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{Backend, Operation, Scope, StorageEngine};
use std::sync::Arc;

/// The way in which a pipeline runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    AsWritten,
    Optimized,
    /// Optimised, stopped after each row, as for a client with batches of one.
    RowByRow,
    /// Optimised, over remote rows.
    Remote,
}

pub fn raw(doc: &Document) -> DocBuf {
    let mut bytes = Vec::new();
    doc.to_writer(&mut bytes).expect("a document can be written");
    DocBuf::from_vec(bytes).expect("what was written is framed")
}

pub fn show(docs: &[DocBuf]) -> String {
    docs.iter().map(|doc| kauri_bson::shell_text(doc.as_doc())).collect::<Vec<_>>().join("\n  ")
}

fn fill(op: &mut Operation, catalog: &Catalog, name: &str, docs: &[Document]) {
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
    let backend = Backend::local(engine, Arc::new(SystemClock::new()), random.clone());
    let op = &mut Operation::detached(&backend);
    let namespaces: Arc<dyn Namespaces> = match mode {
        Mode::Remote => Arc::new(Elsewhere::new(&case.docs, &case.foreign)),
        _ => stored(op, &backend, case)?,
    };
    let ns = Namespace::new("db", "c")?;
    let mut pipeline = parsed(&ns, &case.pipeline)?;
    let found = views::resolve(&namespaces, &ns)?;
    pipeline.stages.splice(0..0, found.pipeline.stages);
    if mode != Mode::AsWritten {
        pipeline.optimize().unwrap();
    }
    let env = QueryEnv::new(0, random);
    let cx = BuildCx::new(namespaces, "db", found.collection, env);
    let root = block_on(build_by_trial(op, &pipeline, None, &cx))?;
    let mut executor = PlanExecutor::new(root, cx.env.clone());
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

pub fn parsed(ns: &Namespace, stages: &[Document]) -> Result<Pipeline> {
    let cx = ParseCx::new(ns, VariableScope::new(), Place::Command);
    let stages = Value::array(stages.iter().map(|stage| Value::from(raw(stage))));
    parse::parse(stages.as_array().unwrap_or(Doc::EMPTY), &cx)
}

/// A catalog that holds the case's documents.
fn stored(op: &mut Operation, backend: &Arc<Backend>, case: &Case) -> Result<Arc<Catalog>> {
    let catalog = Arc::new(Catalog::open(backend)?);
    if case.foreign_index {
        index(op.scope(), &catalog);
    }
    fill(op, &catalog, "c", &case.docs);
    fill(op, &catalog, "f", &case.foreign);
    Ok(catalog)
}

/// Creates an index on the field that most joins use, before there are documents.
fn index(scope: &mut Scope, catalog: &Catalog) {
    let ns = Namespace::new("db", "f").unwrap();
    let (collection, _) = catalog.create_collection(scope, &ns, Default::default(), None).unwrap();
    let spec = doc! { "v" => 2, "key" => doc! { "a" => 1 }, "name" => "a_1" };
    let (ids, _) = catalog.add_indexes(scope, &collection, &[spec]).unwrap();
    let collection = catalog.collection("db.f").unwrap();
    catalog.indexes_ready(scope, &collection, &ids, &[]).unwrap();
}
