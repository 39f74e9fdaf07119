//! What a name stands for: a collection, or the stages of views over one.

use super::Pipeline;
use super::parse::{self, ParseCx, Place};
use kauri_base::{Result, bail, limits};
use kauri_catalog::{Catalog, Collection, Namespace, Resolved};
use kauri_expr::VariableScope;
use std::sync::Arc;

/// What a name led to, in one look: whoever reads by it asks the name nothing more.
pub struct Found {
    /// The collection behind the name; none if it does not exist.
    pub collection: Option<Arc<Collection>>,
    /// The stages of the views in between.
    pub pipeline: Pipeline,
    /// Whether the name is a view's.
    pub is_view: bool,
}

/// Looks a name up.
pub fn resolve(catalog: &Catalog, ns: &Namespace) -> Result<Found> {
    let mut ns = ns.clone();
    let mut definitions = Vec::new();
    loop {
        match catalog.resolve(ns.as_str()) {
            Resolved::Collection(collection) => return found(Some(collection), definitions),
            Resolved::Nothing => return found(None, definitions),
            Resolved::View(view) => {
                if definitions.len() >= limits::PIPELINE_DEPTH_MAX {
                    bail!(
                        ViewDepthLimitExceeded,
                        "View depth too deep or view cycle detected; maximum depth is {}",
                        limits::PIPELINE_DEPTH_MAX
                    );
                }
                ns = Namespace::new(ns.database(), &view.view_on)?;
                definitions.push(view);
            }
        }
    }
}

fn found(
    collection: Option<Arc<Collection>>,
    definitions: Vec<Arc<kauri_catalog::View>>,
) -> Result<Found> {
    let is_view = !definitions.is_empty();
    Ok(Found { collection, pipeline: stages(definitions)?, is_view })
}

/// The stages of the views, the one next to the collection first. A command's variables mean
/// nothing in them.
fn stages(definitions: Vec<Arc<kauri_catalog::View>>) -> Result<Pipeline> {
    let mut pipeline = Pipeline::default();
    for view in definitions.iter().rev() {
        let below = Namespace::new(view.ns.database(), &view.view_on)?;
        let cx = ParseCx::new(&below, VariableScope::new(), Place::View);
        pipeline.stages.extend(parse::parse(view.pipeline.as_doc(), &cx)?.stages);
    }
    Ok(pipeline)
}
