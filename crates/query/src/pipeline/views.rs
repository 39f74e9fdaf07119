//! Resolves a name: to a collection, or to the stages of views over a collection.

use super::parse::{self, ParseCx, Place};
use super::{Pipeline, StageSpec};
use crate::namespaces::{Named, Namespaces};
use kauri_base::{Error, ErrorCode, Result, bail, limits, work};
use kauri_bson::{Doc, DocBuf};
use kauri_catalog::{Collection, Namespace, View};
use kauri_expr::VariableScope;
use std::sync::Arc;

/// The result of one resolution of a name: readers use it without resolving the name again.
pub struct Found {
    /// The collection behind the name; none if it does not exist here.
    pub collection: Option<Arc<Collection>>,
    /// The stages of the views in between.
    pub pipeline: Pipeline,
    /// Whether the name is a view's, or one of rows elsewhere: `pipeline` is then more than nothing.
    pub is_view: bool,
}

/// Resolves a name.
///
/// A stored view is validated again: views below may have changed since, and an older version may have stored what
/// is refused today. The error names the invalid view.
pub fn resolve(namespaces: &dyn Namespaces, ns: &Namespace) -> Result<Found> {
    work::check_stack()?;
    let mut ns = ns.clone();
    let mut definitions = Vec::new();
    loop {
        match namespaces.resolve(ns.as_str()) {
            Named::Collection(collection) => return found(Some(collection), definitions),
            Named::Remote(rows) => return over(super::remote::stage(rows), definitions),
            Named::Nothing if ns.collection() == "system.views" => {
                return found_views(namespaces, ns.database(), definitions);
            }
            Named::Nothing => return found(None, definitions),
            Named::View(view) => {
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

/// The views of a database as `system.views` has them: a document for each.
pub fn definitions(namespaces: &dyn Namespaces, database: &str) -> Vec<DocBuf> {
    let document = |view: &Arc<View>| {
        DocBuf::build(|out| {
            out.put("_id", view.ns.as_str());
            out.put_all(view.options.as_doc());
        })
    };
    namespaces.views_of(database).iter().map(document).collect()
}

/// `system.views`, which is no collection: the catalog keeps views.
fn found_views(
    namespaces: &dyn Namespaces,
    database: &str,
    above: Vec<Arc<View>>,
) -> Result<Found> {
    let views = definitions(namespaces, database);
    if views.is_empty() {
        return found(None, above);
    }
    over(Arc::new(super::documents::of(views)), above)
}

/// A stage that brings rows of its own, and the views above.
fn over(source: Arc<dyn StageSpec>, above: Vec<Arc<View>>) -> Result<Found> {
    let mut found = found(None, above)?;
    found.pipeline.stages.insert(0, source);
    found.is_view = true;
    Ok(found)
}

/// The stages of the views, the one next to the collection first. A command's variables mean
/// nothing in them.
fn stages(definitions: Vec<Arc<kauri_catalog::View>>) -> Result<Pipeline> {
    let mut pipeline = Pipeline::default();
    let mut bytes = 0;
    for view in definitions.iter().rev() {
        bytes += definition_bytes(view.pipeline.as_doc());
        check_bytes(bytes).map_err(|error| unreadable(view, error))?;
        let below = Namespace::new(view.ns.database(), &view.view_on)?;
        let cx = ParseCx::new(&below, VariableScope::new(), Place::View);
        let parsed = parse::parse(view.pipeline.as_doc(), &cx);
        pipeline.stages.extend(parsed.map_err(|error| unreadable(view, error))?.stages);
        super::check_length(&pipeline.stages).map_err(|error| unreadable(view, error))?;
    }
    Ok(pipeline)
}

/// The error of a stored definition, with the way out of it.
fn unreadable(view: &View, error: Error) -> Error {
    let way_out = "change it with collMod or drop it";
    error.context(format!("View '{}' can't be read; {way_out}", view.ns))
}

/// Bytes of a view's stages, as they count towards [`limits::VIEW_PIPELINE_BYTES_MAX`].
pub fn definition_bytes(stages: Doc<'_>) -> usize {
    stages.iter().map(|stage| stage.value_bytes().len()).sum()
}

/// Fails if the stages of a view and those below it are too large.
pub fn check_bytes(bytes: usize) -> Result<()> {
    if bytes > limits::VIEW_PIPELINE_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::ViewPipelineMaxSizeExceeded,
            format!(
                "View pipeline exceeds maximum size; maximum size is {}",
                limits::VIEW_PIPELINE_BYTES_MAX
            ),
        ));
    }
    Ok(())
}
