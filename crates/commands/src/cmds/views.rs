//! Validates a view's definition.

use crate::invocation::Invocation;
use kauri_base::{Result, bail, limits, work};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value};
use kauri_catalog::{Catalog, Namespace, Resolved, View};
use kauri_expr::VariableScope;
use kauri_query::pipeline::views::{check_bytes, definition_bytes};
use kauri_query::pipeline::{self, ParseCx, Place};

/// `viewOn` and `pipeline` as given.
pub struct ViewRequest {
    /// Its source.
    pub view_on: String,
    /// The stages, an array.
    pub pipeline: DocBuf,
}

/// The validated view: its name, its stages, no cycle, and a limited depth.
pub fn define(invocation: &Invocation<'_>, ns: &Namespace, request: &ViewRequest) -> Result<View> {
    if request.view_on.is_empty() {
        bail!(BadValue, "'viewOn' cannot be empty");
    }
    let below = Namespace::new(ns.database(), &request.view_on)?;
    if request.view_on.starts_with('$') {
        bail!(InvalidNamespace, "Invalid namespace for 'viewOn': {below}");
    }
    if ns.is_system() {
        bail!(InvalidNamespace, "invalid name for a view: {ns}");
    }
    let stages = request.pipeline.as_doc();
    check_bytes(definition_bytes(stages))?;
    check_stages(stages)?;
    let cx = ParseCx::new(&below, VariableScope::new(), Place::View);
    let parsed = pipeline::parse::parse(stages, &cx)?;
    let mut graph = Graph { catalog: &invocation.server.catalog, view: ns };
    graph.follow(&below, stages, 1, definition_bytes(stages))?;
    let mut whole = pipeline::views::resolve(&invocation.server.catalog, &below)?.pipeline;
    whole.stages.extend(parsed.stages);
    pipeline::check_length(&whole.stages)?;
    let options = DocBuf::build(|out| {
        out.put("viewOn", &request.view_on);
        out.put_raw(b"pipeline", Type::Array, request.pipeline.as_bytes());
    });
    Ok(View {
        ns: ns.clone(),
        view_on: request.view_on.clone(),
        pipeline: request.pipeline.clone(),
        options,
        usage: Default::default(),
    })
}

/// Stages that have no place in a view, whatever their arguments are.
fn check_stages(stages: Doc<'_>) -> Result<()> {
    for stage in stages.iter().filter_map(Elem::as_doc).filter_map(Doc::first) {
        match stage.key() {
            "$out" | "$merge" => bail!(
                OptionNotSupportedOnView,
                "The aggregation stage {} in location 0 of the pipeline cannot be used in a view",
                stage.key()
            ),
            "$changeStream" => {
                bail!(40573, "The $changeStream stage is only supported on replica sets")
            }
            "$currentOp" | "$listSessions" | "$listLocalSessions" | "$documents" => bail!(
                InvalidNamespace,
                "{} cannot be used in a view: it reads no collection",
                stage.key()
            ),
            _ => {}
        }
    }
    Ok(())
}

/// The sources of a view, by its own names and those of the views below it.
struct Graph<'c> {
    catalog: &'c Catalog,
    view: &'c Namespace,
}

impl Graph<'_> {
    /// Follows a view on `below` with these stages.
    fn follow(
        &mut self,
        below: &Namespace,
        stages: Doc<'_>,
        depth: usize,
        bytes: usize,
    ) -> Result<()> {
        work::check_stack()?;
        let mut names = vec![below.clone()];
        self.named(stages, 0, &mut names)?;
        for name in names {
            if name == *self.view {
                bail!(GraphContainsCycle, "View cycle detected: {} => {name}", self.view);
            }
            let Resolved::View(view) = self.catalog.resolve(name.as_str()) else { continue };
            if depth >= limits::PIPELINE_DEPTH_MAX {
                bail!(
                    ViewDepthLimitExceeded,
                    "View depth too deep or view cycle detected; maximum depth is {}",
                    limits::PIPELINE_DEPTH_MAX
                );
            }
            let stages = view.pipeline.as_doc();
            let bytes = bytes + definition_bytes(stages);
            check_bytes(bytes)?;
            let below = Namespace::new(self.view.database(), &view.view_on)?;
            self.follow(&below, stages, depth + 1, bytes)?;
        }
        Ok(())
    }

    /// The collections that stages name. They have been parsed, so their depth is limited.
    fn named(&self, stages: Doc<'_>, depth: usize, names: &mut Vec<Namespace>) -> Result<()> {
        if depth > limits::PIPELINE_DEPTH_MAX {
            return Ok(());
        }
        for stage in stages.iter().filter_map(Elem::as_doc).filter_map(Doc::first) {
            let spec = stage.value();
            let field = |name: &str| spec.as_document().map(|d| d.value(name).into_owned());
            let name = match stage.key() {
                "$lookup" | "$graphLookup" => field("from"),
                "$unionWith" if spec.as_str().is_some() => Some(spec.clone().into_owned()),
                "$unionWith" => field("coll"),
                _ => None,
            };
            if let Some(Value::String(name)) = name {
                names.push(Namespace::new(self.view.database(), &name)?);
            }
            match stage.key() {
                "$lookup" | "$unionWith" => {
                    if let Some(Value::Array(inner)) = field("pipeline") {
                        self.named(inner.as_doc(), depth + 1, names)?;
                    }
                }
                "$facet" => {
                    let facets = stage.as_doc().unwrap_or(Doc::EMPTY);
                    for facet in facets.iter().filter_map(Elem::as_doc) {
                        self.named(facet, depth + 1, names)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
