//! `$densify`, `$fill`, and the window functions that depend on the distance between rows. They are tested by
//! examples, by their errors, and against naive references on random rows.

mod densify;
mod errors;
mod fill;
mod random;
mod windows;

use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::operation::OperationState;
use kauri_base::operation::block_on;
use kauri_base::work::{self, MemoryAccount, Meter};
use kauri_base::{Clock, RandomSource, Result};
use kauri_bson::{Doc, DocBuf, Value, compare};
use kauri_catalog::{Catalog, Namespace};
use kauri_expr::VariableScope;
use kauri_query::exec::rows::Rows;
use kauri_query::exec::{Ended, Flow, PlanExecutor, QueryEnv};
use kauri_query::pipeline::{BuildCx, Input, ParseCx, Pipeline, Place, build, parse};
use kauri_query::spill::Spilling;
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{Backend, Operation, StorageEngine};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const DAY_MS: i64 = 86_400_000;

fn parsed(stages: &[DocBuf]) -> Result<Pipeline> {
    let cx = ParseCx::new(&Namespace::new("db", "c")?, VariableScope::new(), Place::Command);
    let stages = Value::array(stages.iter().map(|stage| Value::from(stage.clone())));
    parse::parse(stages.as_array().unwrap_or(Doc::EMPTY), &cx)
}

/// The stages as `explain` shows them.
fn explained(stage: DocBuf) -> Vec<DocBuf> {
    let stages = parsed(&[stage]).unwrap().stages;
    stages.iter().map(|stage| DocBuf::build(|out| stage.explain(out))).collect()
}

fn run_within(
    docs: &[DocBuf],
    stages: &[DocBuf],
    limits: impl Fn(&mut Spilling),
    flow: Flow,
) -> Result<Vec<DocBuf>> {
    let engine: Arc<dyn StorageEngine> = Arc::new(EphemeralEngine::new());
    let random = Arc::new(SeededRandom::new(7));
    let backend = Backend::local(engine, Arc::new(SystemClock::new()), random.clone());
    let catalog = Arc::new(Catalog::open(&backend)?);
    let mut env = QueryEnv::new(0, random);
    limits(&mut env.spilling);
    let cx = BuildCx::new(catalog.clone(), "db", None, env.clone());
    let rows = Box::new(Rows::new(docs.iter().cloned()));
    let root = build(&parsed(stages)?, Input::Rows(rows), &cx)?;
    let mut executor = PlanExecutor::new(root, env);
    let mut op = Operation::detached(&backend);
    let mut given = Vec::new();
    loop {
        let ended = block_on(executor.for_each(&mut op, &mut |row| {
            given.push(row.doc().to_buf());
            Ok(flow)
        }))?;
        if ended == Ended::Exhausted {
            return Ok(given);
        }
    }
}

/// A clock that counts its reads.
#[derive(Default)]
struct Looks(AtomicU64);

impl Clock for Looks {
    fn unix_ms(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// The work of the stages, measured in reads of the clock.
fn looks(docs: &[DocBuf], stages: &[DocBuf]) -> u64 {
    let clock = Arc::new(Looks::default());
    let state = Arc::new(OperationState::new(1));
    let meter = Meter::new(state, clock.clone(), None, MemoryAccount::unlimited());
    work::with_meter(&meter, || run_within(docs, stages, |_| {}, Flow::Continue)).unwrap();
    clock.0.load(Ordering::Relaxed)
}

/// The result of the stages, the same at once and stopped after each row.
fn run(docs: &[DocBuf], stages: &[DocBuf]) -> Result<Vec<DocBuf>> {
    let all = run_within(docs, stages, |_| {}, Flow::Continue);
    assert_eq!(all, run_within(docs, stages, |_| {}, Flow::Stop));
    all
}

fn code(found: Result<Vec<DocBuf>>) -> i32 {
    found.map_or_else(|error| error.code().number(), |_| 0)
}

/// The field of each document.
fn column(docs: &[DocBuf], name: &str) -> Vec<Value<'static>> {
    docs.iter().map(|doc| doc.as_doc().value(name).into_owned()).collect()
}

fn equal(a: &[Value<'_>], b: &[Value<'_>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| compare(a, b).is_eq())
}

struct Choice(SeededRandom);

impl Choice {
    fn below(&self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }
}

/// Runs this many seeds, or only that of `KAURI_SEED`.
fn seeds(count: u64, check: impl Fn(u64)) {
    match std::env::var("KAURI_SEED") {
        Ok(seed) => check(seed.parse().expect("KAURI_SEED is a number")),
        Err(_) => (0..count).for_each(check),
    }
}
