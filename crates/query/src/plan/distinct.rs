//! Plans for the distinct values of a field that do not read every document.

use super::cover::field_of;
use super::index_access::of_index;
use super::planner;
use super::query::Query;
use super::rank::{Planned, filtered};
use crate::exec::QueryEnv;
use crate::exec::covered::Covered;
use crate::exec::distinct_scan::DistinctScan;
use kauri_base::Result;
use kauri_bson::doc;
use kauri_catalog::{Collection, Index};
use kauri_mutate::{ParseCx, Projection};
use std::sync::Arc;

/// A scan of an index that begins with the field, if there is one whose bounds cover the whole filter. Its rows
/// have only the field.
pub fn plan_distinct(
    collection: Option<&Arc<Collection>>,
    query: &Query,
    key: &str,
    env: &QueryEnv,
) -> Result<Option<Planned>> {
    let Some(collection) = collection else { return Ok(None) };
    let filtered = filtered(collection, query, env);
    let is_filtered = filtered.is_some();
    let query = filtered.as_ref().unwrap_or(query);
    let usable = match &query.hint {
        None => planner::usable(collection, query),
        Some(super::Hint::Natural(_)) => return Ok(None),
        Some(hint) => vec![planner::hinted(collection, hint)?.clone()],
    };
    let filter = query.filter.as_ref().map(|f| f.expr());
    let serves = |index: &&Arc<Index>| field_of(index, key) == Some(0);
    for index in usable.iter().filter(serves) {
        let definition = index.definition();
        // Without a filter, all documents have to be in the index.
        let knows_all = !definition.sparse && definition.partial.is_none();
        let Some(access) = of_index(index, filter, None, knows_all) else { continue };
        if !access.only_first || access.covered.iter().any(|covered| !covered) {
            continue;
        }
        let spec = match key {
            "_id" => doc! { "_id" => 1 },
            _ => doc! { key => 1, "_id" => 0 },
        };
        let projection = Arc::new(Projection::parse(spec.as_doc(), None, &ParseCx::new())?);
        let scan = Box::new(DistinctScan::new(index.clone(), access.bounds));
        let fields = vec![0];
        let filter = query.filter.clone();
        let rows = Covered::new(scan, collection.clone(), fields, (projection, spec), filter);
        return Ok(Some(Planned { is_filtered, ..Planned::alone(Box::new(rows)) }));
    }
    Ok(None)
}
