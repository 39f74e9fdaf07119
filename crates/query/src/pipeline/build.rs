//! From a pipeline to a tree of executor stages.

use super::group::Group;
use super::simple::{LimitStage, SkipStage, SortStage};
use super::unwind::Unwind;
use super::{BuildCx, Needed, Pipeline, StageSpec};
use crate::exec::{Eof, Stage};
use crate::plan::{self, Hint, Query};
use kauri_base::{OperationContext, Result};
use kauri_matcher::{MatchExpr, Matcher};
use std::sync::Arc;

/// Where a pipeline's rows come from.
pub enum Input {
    /// The collection of the [`BuildCx`], with the user's hint.
    Collection(Option<Hint>),
    /// Rows that are there already.
    Rows(Box<dyn Stage>),
}

/// The tree of a pipeline. `find`'s planner serves its first stages.
pub fn build(pipeline: &Pipeline, input: Input, cx: &BuildCx) -> Result<Box<dyn Stage>> {
    let (root, rest) = match input {
        Input::Rows(root) => (root, pipeline.stages.as_slice()),
        Input::Collection(_) if pipeline.has_own_source() => {
            (Box::new(Eof::default()) as Box<dyn Stage>, pipeline.stages.as_slice())
        }
        Input::Collection(hint) => {
            let (mut query, taken) = front_before(&pipeline.stages, &cx.needed);
            query.hint = hint;
            (plan::plan_at_once(cx.collection.as_ref(), &query)?, &pipeline.stages[taken..])
        }
    };
    build_stages(rest, root, cx)
}

/// As [`build`] over the collection, with a trial of plans for the first stages.
pub async fn build_by_trial(
    op: &mut OperationContext,
    pipeline: &Pipeline,
    hint: Option<Hint>,
    cx: &BuildCx,
) -> Result<Box<dyn Stage>> {
    if pipeline.has_own_source() {
        return build(pipeline, Input::Collection(hint), cx);
    }
    let (mut query, taken) = front_before(&pipeline.stages, &cx.needed);
    query.hint = hint;
    let planned = plan::plan(op, &cx.catalog, cx.collection.as_ref(), &query, &cx.env).await?;
    build_stages(&pipeline.stages[taken..], planned.root, cx)
}

/// The stages over these rows.
pub fn build_stages(
    stages: &[Arc<dyn StageSpec>],
    mut root: Box<dyn Stage>,
    cx: &BuildCx,
) -> Result<Box<dyn Stage>> {
    if stages.is_empty() {
        return Ok(root);
    }
    let needed = needed_behind(stages, &cx.needed);
    let mut cx = cx.clone();
    let mut rest = stages.iter().zip(needed).enumerate();
    while let Some((position, (stage, needed))) = rest.next() {
        let following = stages.get(position + 1);
        if let Some(unwind) = stage.as_any().downcast_ref::<Unwind>()
            && let Some(group) = following.and_then(|stage| stage.as_any().downcast_ref::<Group>())
        {
            root = group.build_over(unwind, root, &cx);
            rest.next();
            continue;
        }
        cx.needed = needed;
        cx.most = most_taken(&stages[position + 1..]);
        root = stage.build(root, &cx)?;
    }
    Ok(root)
}

/// What is read behind each of the stages, if `last` is read behind the last one.
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

/// What is read of the rows that go into the first of the stages.
pub fn needed_by(stages: &[Arc<dyn StageSpec>], last: &Needed) -> Needed {
    stages.iter().rev().fold(last.clone(), |needed, stage| needed.before(&stage.field_use()))
}

/// How many rows these stages take at most; 0 if there is no saying.
fn most_taken(stages: &[Arc<dyn StageSpec>]) -> u64 {
    let mut skipped = 0u64;
    for stage in stages {
        let spec = stage.as_any();
        if let Some(limit) = spec.downcast_ref::<LimitStage>() {
            return skipped.checked_add(limit.amount()).unwrap_or(0);
        }
        match spec.downcast_ref::<SkipStage>() {
            Some(skip) => match skipped.checked_add(skip.amount()) {
                Some(sum) => skipped = sum,
                None => return 0,
            },
            None if stage.field_use().one_to_one => {}
            None => return 0,
        }
    }
    0
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
