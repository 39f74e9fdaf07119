//! The stages that execute a candidate plan.

use super::cover::{covering_fields, key_decides};
use super::index_access::{IndexAccess, conjuncts};
use super::query::Query;
use crate::exec::Stage;
use crate::exec::count::Count;
use crate::exec::covered::Covered;
use crate::exec::decorate::Decorate;
use crate::exec::fetch::Fetch;
use crate::exec::limit::{Limit, Skip};
use crate::exec::merge_sort::MergeSort;
use crate::exec::or::Or;
use crate::exec::project::Project;
use crate::exec::scan::IxScan;
use crate::exec::sort::{Sort, SortPattern};
use kauri_catalog::Collection;
use kauri_matcher::{MatchExpr, Matcher};
use kauri_storage::Direction;
use std::sync::Arc;

/// Sorts, cuts and projects what the access gives.
pub fn finish(root: Box<dyn Stage>, query: &Query, is_sorted: bool) -> Box<dyn Stage> {
    finish_from(root, query, is_sorted, false)
}

fn finish_from(
    mut root: Box<dyn Stage>,
    query: &Query,
    is_sorted: bool,
    is_projected: bool,
) -> Box<dyn Stage> {
    if query.count {
        return Box::new(Count::new(root, query.skip, query.limit));
    }
    let mut is_cut = query.limit == 0;
    if let Some(sort) = query.sort.as_ref().filter(|_| !is_sorted) {
        // The sort gives no more rows than are wanted.
        is_cut = true;
        let limit = match query.limit {
            0 => 0,
            limit => limit.saturating_add(query.skip),
        };
        let mut stage = Sort::new(root, sort.clone(), limit, query.keep_sort_key);
        if query.projection.is_none() && !query.keep_sort_key {
            stage = stage.keeping(query.fields.clone());
        }
        if let Some(bytes_max) = query.sort_bytes_max {
            stage = stage.within(bytes_max);
        }
        root = Box::new(stage);
    }
    if query.skip > 0 {
        root = Box::new(Skip::new(root, query.skip));
    }
    if !is_cut {
        root = Box::new(Limit::new(root, query.limit));
    }
    if let Some((projection, spec)) = query.projection.as_ref().filter(|_| !is_projected) {
        let filter = query.filter.clone();
        root = Box::new(Project::new(root, projection.clone(), spec.clone(), filter));
    }
    if query.return_key || query.show_record_id {
        root = Box::new(Decorate::new(root, query.return_key, query.show_record_id));
    }
    root
}

/// What the bounds leave open: for the key to decide, and for the document.
struct Leftover {
    by_key: Option<Arc<Matcher>>,
    by_document: Option<Arc<Matcher>>,
}

impl Leftover {
    fn of(access: &IndexAccess, filter: Option<&Arc<Matcher>>) -> Leftover {
        let parts = conjuncts(filter.map(|f| f.expr()));
        let rest = parts.iter().zip(&access.covered).filter(|(_, covered)| !**covered);
        let (by_key, by_document): (Vec<_>, Vec<_>) =
            rest.map(|(part, _)| *part).partition(|part| key_decides(&access.index, part));
        let matcher = |mut rest: Vec<&MatchExpr>| match rest.len() {
            0 => None,
            1 => rest.pop().map(|one| Arc::new(Matcher::new(one.clone()))),
            n if n == parts.len() => filter.cloned(),
            _ => {
                let all = rest.into_iter().cloned().collect();
                Some(Arc::new(Matcher::new(MatchExpr::And(all))))
            }
        };
        Leftover { by_key: matcher(by_key), by_document: matcher(by_document) }
    }
}

/// A query through one index.
pub fn of_index(
    collection: &Arc<Collection>,
    query: &Query,
    access: IndexAccess,
) -> Box<dyn Stage> {
    let is_sorted = query.sort.is_none() || access.is_in_order();
    if let Some(sort) = query.sort.as_ref().filter(|_| !access.merged.is_empty()) {
        return finish(merged(collection, query, sort, access), query, true);
    }
    let direction = access.sorted.unwrap_or(Direction::Forward);
    let left = Leftover::of(&access, query.filter.as_ref());
    let covering = match left.by_document.is_none() && is_sorted {
        true => covering_fields(&access.index, query),
        false => None,
    };
    let for_count = query.count && left.by_key.is_none() && access.bounds.ranges.len() == 1;
    let keep_entry = covering.as_ref().is_some_and(|f| !f.is_empty()) || query.needs_index_key();
    let mut scan = IxScan::new(access.index, access.bounds, direction, keep_entry)
        .with_key_filter(left.by_key);
    let filter = query.filter.clone();
    match (covering, &query.projection) {
        (Some(fields), Some((projection, spec))) => {
            let made = (projection.clone(), spec.clone());
            let rows = Covered::new(Box::new(scan), collection.clone(), fields, made, filter);
            finish_from(Box::new(rows), query, true, true)
        }
        (Some(_), None) => {
            if for_count {
                scan = scan.for_count();
            }
            finish(Box::new(scan), query, true)
        }
        (None, _) => {
            let fetch = Fetch::new(Box::new(scan), collection.clone(), left.by_document, filter);
            finish(Box::new(fetch), query, is_sorted)
        }
    }
}

/// The scans of an index between whose rows the order has to be made.
fn merged(
    collection: &Arc<Collection>,
    query: &Query,
    sort: &SortPattern,
    access: IndexAccess,
) -> Box<dyn Stage> {
    let direction = access.sorted.unwrap_or(Direction::Forward);
    let left = Leftover::of(&access, query.filter.as_ref());
    let scan = |bounds| -> Box<dyn Stage> {
        let scan = IxScan::new(access.index.clone(), bounds, direction, query.needs_index_key())
            .with_key_filter(left.by_key.clone());
        let recheck = query.filter.clone();
        Box::new(Fetch::new(Box::new(scan), collection.clone(), left.by_document.clone(), recheck))
    };
    Box::new(MergeSort::new(sort.clone(), access.merged.iter().cloned().map(scan).collect()))
}

/// The records of several scans, each once.
pub fn of_or(
    collection: &Arc<Collection>,
    query: &Query,
    branches: Vec<IndexAccess>,
) -> Box<dyn Stage> {
    let scan = |access: IndexAccess| -> Box<dyn Stage> {
        let keep_entry = query.needs_index_key();
        Box::new(IxScan::new(access.index, access.bounds, Direction::Forward, keep_entry))
    };
    let or = Box::new(Or::new(branches.into_iter().map(scan).collect()));
    Box::new(Fetch::new(or, collection.clone(), query.filter.clone(), query.filter.clone()))
}

/// The documents of several scans in order, each once.
pub fn of_merge(
    collection: &Arc<Collection>,
    sort: &SortPattern,
    branches: Vec<(IndexAccess, Arc<Matcher>)>,
) -> Box<dyn Stage> {
    let rows = |(access, filter): (IndexAccess, Arc<Matcher>)| -> Box<dyn Stage> {
        let direction = access.sorted.unwrap_or(Direction::Forward);
        let left = Leftover::of(&access, Some(&filter));
        let scan =
            IxScan::new(access.index, access.bounds, direction, false).with_key_filter(left.by_key);
        Box::new(Fetch::new(Box::new(scan), collection.clone(), left.by_document, Some(filter)))
    };
    Box::new(MergeSort::new(sort.clone(), branches.into_iter().map(rows).collect()))
}
