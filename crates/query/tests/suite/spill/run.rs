//! Runs pipelines over documents, with little memory or with enough.

use super::stores::SlowStore;
use super::{Choice, no_files, show};
use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::operation::block_on;
use kauri_base::temporary::{MemoryStore, TemporaryStore};
use kauri_base::{ErrorCode, Result};
use kauri_bson::{DocBuf, Value};
use kauri_catalog::{Catalog, Namespace};
use kauri_expr::VariableScope;
use kauri_query::exec::rows::Rows;
use kauri_query::exec::{Ended, Flow, PlanExecutor, QueryEnv, Stage, Verbosity};
use kauri_query::pipeline::{BuildCx, Input, ParseCx, Place, build, parse};
use kauri_query::spill::{SpillPlace, Spilling};
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{Backend, Operation, StorageEngine};
use std::sync::Arc;

/// The resources of a pipeline.
#[derive(Clone)]
pub struct Means {
    pub bytes_max: usize,
    pub place: Option<Arc<SpillPlace>>,
    pub allowed: bool,
    /// Whether it stops after each row, as for a client with batches of one.
    pub row_by_row: bool,
}

impl Means {
    /// Resources with enough memory.
    pub fn ample() -> Means {
        Means { bytes_max: 1 << 30, place: None, allowed: false, row_by_row: false }
    }

    /// Resources with this much memory and this store for spilling.
    pub fn little(bytes_max: usize, store: Arc<dyn TemporaryStore>) -> Means {
        let place = Some(Arc::new(SpillPlace::new(store)));
        Means { bytes_max, place, allowed: true, row_by_row: false }
    }

    pub fn in_memory(bytes_max: usize) -> Means {
        Means::little(bytes_max, Arc::new(MemoryStore::new()))
    }

    pub fn slow(bytes_max: usize) -> Means {
        Means::little(bytes_max, Arc::new(SlowStore::new()))
    }
}

/// A backend with an empty engine: the rows come from the test.
pub fn backend() -> Arc<Backend> {
    let engine: Arc<dyn StorageEngine> = Arc::new(EphemeralEngine::new());
    Backend::local(engine, Arc::new(SystemClock::new()), Arc::new(SeededRandom::new(7)))
}

/// An executor for this pipeline over these documents.
pub fn executor(docs: &[DocBuf], stages: &[DocBuf], means: &Means) -> Result<PlanExecutor> {
    executor_over(Box::new(Rows::new(docs.iter().cloned())), stages, means)
}

/// An executor for this pipeline over the rows of this stage.
pub fn executor_over(
    rows: Box<dyn Stage>,
    stages: &[DocBuf],
    means: &Means,
) -> Result<PlanExecutor> {
    let random = Arc::new(SeededRandom::new(7));
    let catalog = Arc::new(Catalog::open(&backend())?);
    let parse_cx = ParseCx::new(&Namespace::new("db", "c")?, VariableScope::new(), Place::Command);
    let stages = Value::array(stages.iter().map(|stage| Value::from(stage.clone())));
    let stages = stages.as_array().map(|stages| stages.to_buf()).unwrap_or_default();
    let pipeline = parse::parse(stages.as_doc(), &parse_cx)?;
    let mut env = QueryEnv::new(0, random);
    env.spilling = Spilling {
        place: means.place.clone(),
        allowed: means.allowed,
        sort_bytes_max: means.bytes_max,
        group_bytes_max: means.bytes_max,
        window_bytes_max: means.bytes_max,
        bucket_auto_bytes_max: means.bytes_max,
        ..Spilling::default()
    };
    let cx = BuildCx::new(catalog.clone(), "db", None, env.clone());
    let root = build(&pipeline, Input::Rows(rows), &cx)?;
    Ok(PlanExecutor::new(root, env))
}

/// The next `most` rows at most.
pub fn rows(executor: &mut PlanExecutor, most: usize) -> Result<Vec<DocBuf>> {
    let mut op = Operation::detached(&backend());
    let mut rows = Vec::new();
    while rows.len() < most {
        let ended = block_on(executor.for_each(&mut op, &mut |row| {
            rows.push(row.doc().to_buf());
            Ok(Flow::Stop)
        }))?;
        if ended == Ended::Exhausted {
            break;
        }
    }
    Ok(rows)
}

/// All rows, and the explanation of the pipeline afterwards.
pub fn run(docs: &[DocBuf], stages: &[DocBuf], means: &Means) -> Result<(Vec<DocBuf>, DocBuf)> {
    let mut executor = executor(docs, stages, means)?;
    let all = if means.row_by_row {
        rows(&mut executor, usize::MAX)?
    } else {
        let mut op = Operation::detached(&backend());
        let mut all = Vec::new();
        block_on(executor.for_each(&mut op, &mut |row| {
            all.push(row.doc().to_buf());
            Ok(Flow::Continue)
        }))?;
        all
    };
    let told = DocBuf::build(|out| executor.root().explain(out, Verbosity::ExecutionStats));
    Ok((all, told))
}

/// Runs a case with this much memory, with other resources, and with enough memory. The results are equal after
/// `in_order`. Only one partition of windows may be rejected for lack of memory. Returns the spilled amounts if
/// there were rows.
pub fn gives_the_same(
    (seed, choice): (u64, &Choice),
    docs: &[DocBuf],
    stages: &[DocBuf],
    bytes_max: usize,
    in_order: fn(Vec<DocBuf>) -> Vec<DocBuf>,
) -> Option<Arc<SpillPlace>> {
    let mut means = match choice.below(4) {
        0 => Means::slow(bytes_max),
        _ => Means::in_memory(bytes_max),
    };
    means.row_by_row = choice.below(3) == 0;
    let expected = run(docs, stages, &Means::ample()).map(|(rows, _)| in_order(rows));
    let found = run(docs, stages, &means).map(|(rows, _)| in_order(rows));
    let place = means.place?;
    no_files(&*place.store, seed);
    let refused = ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed;
    match (expected, found) {
        (Ok(expected), Ok(found)) if expected == found => Some(place),
        (Err(expected), Err(found)) if expected == found => None,
        (_, Err(found)) if found.code() == refused => {
            assert!(stages[0].as_doc().get("$setWindowFields").is_some(), "KAURI_SEED={seed}");
            None
        }
        (expected, found) => panic!(
            "KAURI_SEED={seed}: {}\n  of {bytes_max} bytes gives\n  {}\nnot\n  {}",
            show(stages),
            found.map_or_else(|e| format!("{e:?}"), |rows| show(&rows)),
            expected.map_or_else(|e| format!("{e:?}"), |rows| show(&rows)),
        ),
    }
}
