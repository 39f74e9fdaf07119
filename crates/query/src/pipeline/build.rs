//! From a pipeline to a tree of executor stages.

use super::group::Group;
use super::simple::{LimitStage, SkipStage, SortStage};
use super::unwind::Unwind;
use super::{BuildCx, Needed, Pipeline, StageSpec};
use crate::exec::guard::{self, Guard};
use crate::exec::nesting::Nesting;
use crate::exec::{Eof, Stage};
use crate::plan::{self, Hint, Query};
use kauri_base::{Result, work};
use kauri_matcher::{MatchExpr, Matcher};
use kauri_storage::Operation;
use std::sync::Arc;

/// The source of a pipeline's rows.
pub enum Input {
    /// The collection of the [`BuildCx`], with the user's hint.
    Collection(Option<Hint>),
    /// Rows that are there already.
    Rows(Box<dyn Stage>),
}

/// Stack for what planning does to filters without a look at the stack (a clone of a tree, an order of two), in
/// bytes. Trees are no deeper than [`kauri_base::limits::MATCH_DEPTH_MAX`].
const PLANNING_STACK_BYTES: usize = 64 * 1024;

/// The tree of a pipeline. `find`'s planner serves its first stages.
pub fn build(pipeline: &Pipeline, input: Input, cx: &BuildCx) -> Result<Box<dyn Stage>> {
    work::check_stack_for(PLANNING_STACK_BYTES)?;
    let (root, rest) = match input {
        Input::Rows(root) => (root, pipeline.stages.as_slice()),
        Input::Collection(_) if pipeline.has_own_source() => {
            (Box::new(Eof::default()) as Box<dyn Stage>, pipeline.stages.as_slice())
        }
        Input::Collection(hint) => {
            let (mut query, taken) = front_before(&pipeline.stages, &cx.needed);
            query.hint = hint;
            (
                plan::plan_at_once(cx.collection.as_ref(), &query, &cx.env)?,
                &pipeline.stages[taken..],
            )
        }
    };
    build_stages(rest, root, cx)
}

/// As [`build`] over the collection, with a trial of plans for the first stages.
pub async fn build_by_trial(
    op: &mut Operation,
    pipeline: &Pipeline,
    hint: Option<Hint>,
    cx: &BuildCx,
) -> Result<Box<dyn Stage>> {
    if pipeline.has_own_source() {
        return build(pipeline, Input::Collection(hint), cx);
    }
    let (mut query, taken) = front_before(&pipeline.stages, &cx.needed);
    query.hint = hint;
    let planned = plan::plan(op, cx.collection.as_ref(), &query, &cx.env).await?;
    build_stages(&pipeline.stages[taken..], planned.root, cx)
}

/// The stages over these rows, with guards of the stack between them.
pub fn build_stages(
    stages: &[Arc<dyn StageSpec>],
    mut root: Box<dyn Stage>,
    cx: &BuildCx,
) -> Result<Box<dyn Stage>> {
    work::check_stack()?;
    if stages.is_empty() {
        return Ok(if cx.depth > 0 { Box::new(Guard::new(root)) } else { root });
    }
    let needed = needed_behind(stages, &cx.needed);
    let most = most_taken_behind(stages);
    let levels = cx.levels;
    let mut cx = cx.clone();
    let mut rest = stages.iter().zip(needed).enumerate();
    while let Some((position, (stage, needed))) = rest.next() {
        work::tick(1)?;
        cx.levels = levels + position + 1;
        if cx.levels.is_multiple_of(guard::LEVELS) {
            root = Box::new(Guard::new(root));
        }
        let following = stages.get(position + 1);
        if let Some(unwind) = stage.as_any().downcast_ref::<Unwind>()
            && let Some(group) = following.and_then(|stage| stage.as_any().downcast_ref::<Group>())
        {
            root = group.build_over(unwind, root, &cx);
            rest.next();
            continue;
        }
        cx.needed = needed;
        cx.most = most.get(position).copied().unwrap_or(0);
        root = stage.build(root, &cx)?;
    }
    // What a pipeline within a stage gives is part of what the stage gives.
    Ok(if cx.depth > 0 { Box::new(Guard::new(root)) } else { Box::new(Nesting::new(root)) })
}

/// The fields read after each of the stages, if `last` is read after the last one.
pub fn needed_behind(stages: &[Arc<dyn StageSpec>], last: &Needed) -> Vec<Needed> {
    let mut needed = last.clone();
    let mut behind: Vec<Needed> = Vec::with_capacity(stages.len());
    for stage in stages.iter().rev() {
        let before = needed.before(&stage.field_use());
        behind.push(std::mem::replace(&mut needed, before));
    }
    behind.reverse();
    behind
}

/// The fields that the stages read of their input rows.
pub fn needed_by(stages: &[Arc<dyn StageSpec>], last: &Needed) -> Needed {
    stages.iter().rev().fold(last.clone(), |needed, stage| needed.before(&stage.field_use()))
}

/// How many rows the stages behind each of these take at most; 0 if there is no saying.
fn most_taken_behind(stages: &[Arc<dyn StageSpec>]) -> Vec<u64> {
    let mut most = 0u64;
    let mut behind = Vec::with_capacity(stages.len());
    for stage in stages.iter().rev() {
        behind.push(most);
        let spec = stage.as_any();
        if let Some(limit) = spec.downcast_ref::<LimitStage>() {
            most = limit.amount();
        } else if most > 0 {
            most = match spec.downcast_ref::<SkipStage>() {
                Some(skip) => most.checked_add(skip.amount()).unwrap_or(0),
                None if stage.field_use().one_to_one => most,
                None => 0,
            };
        }
    }
    behind.reverse();
    behind
}

/// The query that the first stages amount to, and how many stages that are.
pub fn front(stages: &[Arc<dyn StageSpec>]) -> (Query, usize) {
    front_before(stages, &Needed::default())
}

fn front_before(stages: &[Arc<dyn StageSpec>], last: &Needed) -> (Query, usize) {
    let mut query = Query::default();
    let mut filters: Vec<MatchExpr> = Vec::new();
    let mut taken = 0;
    for stage in stages {
        let spec = stage.as_any();
        if query.sort.is_none()
            && query.limit == 0
            && query.skip == 0
            && let Some(filter) = stage.as_match()
        {
            filters.push(filter.clone());
        } else if let Some(sort) = spec.downcast_ref::<SortStage>()
            && query.sort.is_none()
            && query.limit == 0
            && query.skip == 0
        {
            query.sort = Some(sort.pattern().clone());
        } else if let Some(limit) = spec.downcast_ref::<LimitStage>()
            && query.limit == 0
        {
            query.limit = limit.amount();
        } else if let Some(skip) = spec.downcast_ref::<SkipStage>()
            && query.limit == 0
            && query.skip == 0
        {
            query.skip = skip.amount();
        } else {
            break;
        }
        taken += 1;
    }
    query.filter = match filters.len() {
        0 => None,
        1 => filters.pop().map(|one| Arc::new(Matcher::new(one))),
        _ => Some(Arc::new(Matcher::new(MatchExpr::And(filters).optimize()))),
    };
    if query.sort.is_some() {
        let needed = needed_by(&stages[taken..], last);
        query.keep_sort_key = needed.sort_key;
        query.fields = needed.fields;
    }
    (query, taken)
}
