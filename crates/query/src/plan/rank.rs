//! Choosing among plans by trial, as MongoDB does: all candidates run side by side for a while, and
//! the one that gave the most rows for its work wins (`plan_ranker`).
//!
//! What the winner gave during the trial is not lost: its rows come first.

use super::planner::{self, Candidate};
use super::query::Query;
use crate::exec::buffered::Buffered;
use crate::exec::{ExecCx, QueryEnv, Row, Stage, Step};
use kauri_base::{OperationContext, Result, Ticket};
use kauri_catalog::{Catalog, Collection};
use kauri_storage::RecoveryUnit;
use std::sync::Arc;

/// Calls that a candidate may take in a trial (`internalQueryPlanEvaluationWorks`).
const WORKS_MAX: u64 = 10_000;
/// Rows after which the trial ends (`internalQueryPlanEvaluationMaxResults`).
const ROWS_MAX: usize = 101;
/// Calls that a candidate takes before the next one's turn.
const TURN_WORKS: u64 = 16;

/// A chosen plan.
pub struct Planned {
    /// The plan.
    pub root: Box<dyn Stage>,
    /// The plans that lost, for `explain`.
    pub rejected: Vec<Box<dyn Stage>>,
}

struct Contestant {
    root: Box<dyn Stage>,
    rows: Vec<Row<'static>>,
    bytes: usize,
    works: u64,
    done: bool,
    /// A plan that fails (a sort beyond its memory) is out, unless all fail.
    failed: Option<kauri_base::Error>,
}

/// Plans the query; runs a trial if there is a choice.
pub async fn plan(
    op: &mut OperationContext,
    catalog: &Catalog,
    collection: Option<&Arc<Collection>>,
    query: &Query,
    env: &QueryEnv,
) -> Result<Planned> {
    let mut candidates = planner::candidates(collection, query)?;
    if candidates.len() <= 1 || candidates[0].is_certain() {
        let best = candidates.remove(0);
        let rejected = Vec::new();
        return Ok(Planned { root: best.into_stage(collection, query), rejected });
    }
    let mut contestants: Vec<Contestant> = candidates
        .into_iter()
        .map(|candidate| Contestant {
            root: candidate.into_stage(collection, query),
            rows: Vec::new(),
            bytes: 0,
            works: 0,
            done: false,
            failed: None,
        })
        .collect();
    let mut ru = catalog.engine().recovery_unit();
    loop {
        ru.enter();
        let turn = round(&mut contestants, &*ru, env);
        ru.leave();
        match turn {
            Turn::Over => break,
            Turn::Again => {
                if op.slice_is_over() {
                    op.yield_now().await?;
                }
            }
            Turn::Blocked(ticket) => {
                ticket.await?;
                op.check_for_interrupt()?;
            }
        }
    }
    choose(contestants)
}

enum Turn {
    Again,
    Over,
    Blocked(Ticket),
}

/// A turn for each candidate.
fn round(contestants: &mut [Contestant], ru: &dyn RecoveryUnit, env: &QueryEnv) -> Turn {
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
    let alive = contestants.iter().any(|c| c.failed.is_none() && c.works < WORKS_MAX);
    if alive { Turn::Again } else { Turn::Over }
}

fn choose(mut contestants: Vec<Contestant>) -> Result<Planned> {
    let score = |c: &Contestant| {
        if c.failed.is_some() {
            return -1.0;
        }
        let productivity = c.rows.len() as f64 / c.works.max(1) as f64;
        productivity + if c.done { 1.0 } else { 0.0 }
    };
    let mut best = 0;
    for (position, contestant) in contestants.iter().enumerate() {
        // The candidates come in the order in which they promise most: a tie goes to the first.
        if score(contestant) > score(&contestants[best]) {
            best = position;
        }
    }
    let winner = contestants.remove(best);
    if let Some(error) = winner.failed {
        return Err(error);
    }
    let rejected = contestants.into_iter().map(|c| c.root).collect();
    let root = Box::new(Buffered::new(winner.root, winner.rows, winner.done));
    Ok(Planned { root, rejected })
}

/// A plan without a trial: for what has to be planned in the middle of execution.
pub fn plan_at_once(collection: Option<&Arc<Collection>>, query: &Query) -> Result<Box<dyn Stage>> {
    let best: Candidate = planner::candidates(collection, query)?.remove(0);
    Ok(best.into_stage(collection, query))
}
