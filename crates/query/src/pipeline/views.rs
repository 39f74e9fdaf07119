//! What a name stands for: a collection, or the stages of views over one.

use super::Pipeline;
use super::parse::{self, ParseCx, Place};
use kauri_base::{Result, bail, limits};
use kauri_catalog::{Catalog, Collection, Namespace, Resolved};
use kauri_expr::VariableScope;
use std::sync::Arc;

/// The collection behind a name (none if it does not exist), and the stages of the views in
/// between.
pub fn resolve(catalog: &Catalog, ns: &Namespace) -> Result<(Option<Arc<Collection>>, Pipeline)> {
    let mut ns = ns.clone();
    let mut definitions = Vec::new();
    loop {
        match catalog.resolve(ns.as_str()) {
            Resolved::Collection(collection) => {
                return Ok((Some(collection), stages(definitions)?));
            }
            Resolved::Nothing => return Ok((None, stages(definitions)?)),
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
