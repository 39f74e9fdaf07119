//! The planner: chooses how the documents of a query are found.

use crate::exec::fetch::Fetch;
use crate::exec::limit::{Limit, Skip};
use crate::exec::project::Project;
use crate::exec::scan::{CollScan, IxScan};
use crate::exec::sort::Sort;
use crate::exec::{Eof, Stage};
use crate::plan::bounds::{IndexBounds, KeyRange};
use crate::plan::query::{Hint, Query};
use kauri_base::Result;
use kauri_catalog::Collection;
use kauri_storage::Direction;
use std::sync::Arc;

/// A plan for the query over this collection; over none there are no rows.
pub fn plan(collection: Option<&Arc<Collection>>, query: &Query) -> Result<Box<dyn Stage>> {
    let Some(collection) = collection else { return Ok(Box::new(Eof::default())) };
    let mut root = access(collection, query)?;
    if let Some(sort) = &query.sort {
        let limit = match query.limit {
            0 => 0,
            limit => limit.saturating_add(query.skip),
        };
        root = Box::new(Sort::new(root, sort.clone(), limit, query.keep_sort_key));
    }
    if query.skip > 0 {
        root = Box::new(Skip::new(root, query.skip));
    }
    if query.limit > 0 {
        root = Box::new(Limit::new(root, query.limit));
    }
    if let Some((projection, spec)) = &query.projection {
        let filter = query.filter.clone();
        root = Box::new(Project::new(root, projection.clone(), spec.clone(), filter));
    }
    Ok(root)
}

fn access(collection: &Arc<Collection>, query: &Query) -> Result<Box<dyn Stage>> {
    let direction = match &query.hint {
        Some(Hint::Natural(direction)) => *direction,
        _ => Direction::Forward,
    };
    Ok(Box::new(CollScan::new(collection.clone(), direction, query.filter.clone())))
}
