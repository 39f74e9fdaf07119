//! From a pipeline to a tree of executor stages.

use super::simple::{LimitStage, SkipStage, SortStage};
use super::{BuildCx, Pipeline, StageSpec};
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
            let (mut query, taken) = front(&pipeline.stages);
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
    let (mut query, taken) = front(&pipeline.stages);
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
    for stage in stages {
        root = stage.build(root, cx)?;
    }
    Ok(root)
}

/// The query that the first stages amount to, and how many stages that are.
pub fn front(stages: &[Arc<dyn StageSpec>]) -> (Query, usize) {
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
            query.keep_sort_key = false;
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
    (query, taken)
}
