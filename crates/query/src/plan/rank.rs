//! Ranks plans by trial, as in MongoDB: all candidates run side by side for a while, and the one with the most rows
//! per work wins (`plan_ranker`).
//!
//! The winner's rows from the trial are kept and returned first.

use super::cache::Origin;
use super::planner::{self, Candidate};
use super::query::Query;
use super::shape;
use crate::exec::buffered::Buffered;
use crate::exec::{ExecCx, QueryEnv, Row, Stage, Step, Totals, Verbosity};
use kauri_base::{Result, Ticket};
use kauri_bson::{Doc, DocBuf};
use kauri_catalog::Collection;
use kauri_storage::{Operation, RecoveryUnit};
use std::sync::Arc;

/// Calls that a candidate may take in a trial (`internalQueryPlanEvaluationWorks`).
const WORKS_MAX: u64 = 10_000;
/// Rows after which the trial ends (`internalQueryPlanEvaluationMaxResults`).
const ROWS_MAX: usize = 101;
/// Calls that a candidate takes before the next one's turn.
const TURN_WORKS: u64 = 16;

/// Bytes of a query, of its shape and of its plan that are remembered.
const ORIGIN_BYTES_MAX: usize = 4096;

/// A chosen plan.
pub struct Planned {
    /// The plan.
    pub root: Box<dyn Stage>,
    /// The plans that lost, for `explain`.
    pub rejected: Vec<Box<dyn Stage>>,
    /// The trial of each candidate, the winner first; empty without a trial.
    pub trials: Vec<Trial>,
    /// Whether the plan was remembered from an earlier trial.
    pub is_cached: bool,
    /// Whether an index filter said what may be used.
    pub is_filtered: bool,
}

/// The result of a candidate's trial.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Rows that it gave.
    pub rows: u64,
    /// What it has examined.
    pub totals: Totals,
    /// Its score.
    pub score: f64,
}

impl Planned {
    pub(super) fn alone(root: Box<dyn Stage>) -> Planned {
        let (rejected, trials) = (Vec::new(), Vec::new());
        Planned { root, rejected, trials, is_cached: false, is_filtered: false }
    }
}

struct Contestant {
    root: Box<dyn Stage>,
    name: String,
    rows: Vec<Row<'static>>,
    bytes: usize,
    works: u64,
    done: bool,
    /// A plan that fails (a sort beyond its memory) is out, unless all fail.
    failed: Option<kauri_base::Error>,
}

impl Contestant {
    fn score(&self) -> f64 {
        if self.failed.is_some() {
            return -1.0;
        }
        let productivity = self.rows.len() as f64 / self.works.max(1) as f64;
        productivity + if self.done { 1.0 } else { 0.0 }
    }

    fn trial(&self) -> Trial {
        let mut totals = Totals::default();
        self.root.add_totals(&mut totals);
        Trial { rows: self.rows.len() as u64, totals, score: 1.0 + self.score() }
    }

    fn into_root(self) -> Box<dyn Stage> {
        Box::new(Buffered::new(self.root, self.rows, self.done))
    }
}

/// Plans the query; runs a trial if there is a choice and none is remembered.
pub async fn plan(
    op: &mut Operation,
    collection: Option<&Arc<Collection>>,
    query: &Query,
    env: &QueryEnv,
) -> Result<Planned> {
    choose_plan(op, collection, query, env, true).await
}

/// As `plan`, but always with a trial of its own, as `explain` shows it.
pub async fn plan_for_explain(
    op: &mut Operation,
    collection: Option<&Arc<Collection>>,
    query: &Query,
    env: &QueryEnv,
) -> Result<Planned> {
    choose_plan(op, collection, query, env, false).await
}

async fn choose_plan(
    op: &mut Operation,
    collection: Option<&Arc<Collection>>,
    query: &Query,
    env: &QueryEnv,
    use_cache: bool,
) -> Result<Planned> {
    let filtered = collection.and_then(|collection| filtered(collection, query, env));
    let is_filtered = filtered.is_some();
    let query = filtered.as_ref().unwrap_or(query);
    let mut candidates = admitted(collection, query, env)?;
    if candidates.len() <= 1 || candidates[0].is_certain() {
        let root = candidates.swap_remove(0).into_stage(collection, query);
        return Ok(Planned { is_filtered, ..Planned::alone(root) });
    }
    let cache = match (&env.plans, collection) {
        (Some(cache), Some(collection)) if use_cache && query.hint.is_none() => {
            let shape = shape::of_query(query);
            (shape.len() <= ORIGIN_BYTES_MAX).then_some((cache, collection, shape))
        }
        _ => None,
    };
    if let Some((cache, collection, shape)) = &cache
        && let Some(recommended) = cache.recommended(collection, shape)
        && let Some(at) = candidates.iter().position(|c| c.name() == recommended.plan)
    {
        let chosen = candidates.swap_remove(at);
        let mut alone = vec![contestant(chosen, Some(collection), query)];
        contest(op, env, &mut alone, recommended.works_max).await?;
        let is_good = |c: &Contestant| c.failed.is_none() && c.works < recommended.works_max;
        if let Some(plan) = alone.pop().filter(is_good) {
            let root = plan.into_root();
            return Ok(Planned { is_cached: true, is_filtered, ..Planned::alone(root) });
        }
        cache.failed(collection, shape);
        candidates = planner::candidates(Some(collection), query)?;
    }
    let mut contestants: Vec<Contestant> =
        candidates.into_iter().map(|c| contestant(c, collection, query)).collect();
    contest(op, env, &mut contestants, WORKS_MAX).await?;
    let (winner, losers) = choose(contestants)?;
    let trials: Vec<Trial> =
        std::iter::once(&winner).chain(&losers).map(Contestant::trial).collect();
    if let Some((cache, collection, shape)) = &cache {
        let origin = origin(query, &*winner.root, &trials, env);
        cache.won(collection, shape, winner.name.clone(), winner.works, origin);
    }
    Ok(Planned {
        trials,
        root: winner.into_root(),
        rejected: losers.into_iter().map(|c| c.root).collect(),
        is_cached: false,
        is_filtered,
    })
}

/// What is remembered of a trial, to be shown.
fn origin(query: &Query, plan: &dyn Stage, trials: &[Trial], env: &QueryEnv) -> Origin {
    let sort = query.sort.as_ref().map_or(Doc::EMPTY, |sort| sort.spec());
    let projection = query.projection.as_ref().map_or(Doc::EMPTY, |(_, spec)| spec.as_doc());
    let filter = query.filter.as_ref().map(|filter| filter.expr().to_bson());
    // A query may be of any size; what is remembered of it is not.
    let bounded = |doc: DocBuf| match doc.as_bytes().len() > ORIGIN_BYTES_MAX {
        true => DocBuf::new(),
        false => doc,
    };
    Origin {
        query: [filter.unwrap_or_default(), sort.to_buf(), projection.to_buf()].map(bounded),
        plan: bounded(DocBuf::build(|w| plan.explain(w, Verbosity::QueryPlanner))),
        scores: trials.iter().map(|trial| trial.score).collect(),
        at_ms: env.now_ms,
    }
}

/// The query with what an index filter of its shape says, which a hint cannot change.
pub(super) fn filtered(
    collection: &Arc<Collection>,
    query: &Query,
    env: &QueryEnv,
) -> Option<Query> {
    let cache = env.plans.as_ref().filter(|cache| cache.has_filters())?;
    let allowed = cache.filter(collection, &shape::of_query(query))?;
    Some(Query { allowed: Some(allowed), hint: None, ..query.clone() })
}

fn contestant(
    candidate: Candidate,
    collection: Option<&Arc<Collection>>,
    query: &Query,
) -> Contestant {
    Contestant {
        name: candidate.name(),
        root: candidate.into_stage(collection, query),
        rows: Vec::new(),
        bytes: 0,
        works: 0,
        done: false,
        failed: None,
    }
}

/// Runs all side by side until one is at its end or has given enough, or none may go on.
async fn contest(
    op: &mut Operation,
    env: &QueryEnv,
    contestants: &mut [Contestant],
    works_max: u64,
) -> Result<()> {
    loop {
        let reader = op.scope().enter();
        let turn = round(contestants, &*reader, env, works_max);
        drop(reader);
        match turn {
            Turn::Over => return Ok(()),
            Turn::Again => {
                if op.slice_is_over() {
                    op.yield_now().await?;
                }
            }
            Turn::Blocked(ticket) => op.wait(ticket).await?,
        }
    }
}

enum Turn {
    Again,
    Over,
    Blocked(Ticket),
}

/// A turn for each candidate.
fn round(
    contestants: &mut [Contestant],
    ru: &dyn RecoveryUnit,
    env: &QueryEnv,
    works_max: u64,
) -> Turn {
    for contestant in contestants.iter_mut().filter(|c| c.failed.is_none()) {
        for _ in 0..TURN_WORKS {
            let mut cx = ExecCx { ru, env, budget: 1 };
            contestant.works += 1;
            match contestant.root.work(&mut cx) {
                Ok(Step::Row(row)) => {
                    contestant.bytes += row.doc().as_bytes().len();
                    contestant.rows.push(row.into_owned());
                }
                Ok(Step::Again) => {}
                Ok(Step::Blocked(ticket)) => return Turn::Blocked(ticket),
                Ok(Step::Done) => contestant.done = true,
                Err(error) => contestant.failed = Some(error),
            }
            let over = contestant.done
                || contestant.rows.len() >= ROWS_MAX
                || contestant.bytes > 4 * 1024 * 1024;
            if over {
                return Turn::Over;
            }
            if contestant.failed.is_some() {
                break;
            }
        }
    }
    let alive = contestants.iter().any(|c| c.failed.is_none() && c.works < works_max);
    if alive { Turn::Again } else { Turn::Over }
}

/// The winner and the others.
fn choose(mut contestants: Vec<Contestant>) -> Result<(Contestant, Vec<Contestant>)> {
    let mut best = 0;
    for (position, contestant) in contestants.iter().enumerate() {
        // The candidates come in the order in which they promise most: a tie goes to the first.
        if contestant.score() > contestants[best].score() {
            best = position;
        }
    }
    let mut winner = contestants.remove(best);
    match winner.failed.take() {
        Some(error) => Err(error),
        None => Ok((winner, contestants)),
    }
}

/// The candidates; fails if there is none but a scan and scans are refused (`notablescan`).
fn admitted(
    collection: Option<&Arc<Collection>>,
    query: &Query,
    env: &QueryEnv,
) -> Result<Vec<Candidate>> {
    let candidates = planner::candidates(collection, query)?;
    if env.plans.as_ref().is_some_and(|plans| plans.refuses_scans()) {
        planner::refuse_scans(&candidates, collection, query)?;
    }
    Ok(candidates)
}

/// A plan without a trial: for planning in the middle of execution.
pub fn plan_at_once(
    collection: Option<&Arc<Collection>>,
    query: &Query,
    env: &QueryEnv,
) -> Result<Box<dyn Stage>> {
    let best: Candidate = admitted(collection, query, env)?.remove(0);
    Ok(best.into_stage(collection, query))
}
