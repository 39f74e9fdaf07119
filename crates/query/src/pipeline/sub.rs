//! Pipelines within a stage, over their own collection.

use super::parse::{self, ParseCx, Place};
use super::{BuildCx, FieldUse, StageSpec, views};
use kauri_base::{Result, bail, limits};
use kauri_bson::Doc;
use kauri_catalog::{Collection, Namespace};
use std::sync::Arc;

/// A parsed pipeline over another collection, or over rows of its own.
#[derive(Clone)]
pub struct SubPipeline {
    /// The collection or view; none if the first stage brings the rows.
    pub from: Option<Namespace>,
    /// The stages.
    pub stages: Vec<Arc<dyn StageSpec>>,
}

/// A sub-pipeline after its names were resolved.
#[derive(Clone)]
pub struct ResolvedSub {
    /// The collection, if it exists.
    pub collection: Option<Arc<Collection>>,
    /// The stages of views in between, then the pipeline's own.
    pub stages: Vec<Arc<dyn StageSpec>>,
    /// Number of its stages that come from views.
    pub of_views: usize,
}

impl ResolvedSub {
    /// Whether its documents are written in it.
    pub fn begins_with_documents(&self) -> bool {
        self.stages.first().is_some_and(|stage| stage.name() == "$documents")
    }
}

impl SubPipeline {
    /// Parses the stages; `cx` has the variables that they may use.
    pub fn parse(
        from: Option<Namespace>,
        stages: Doc<'_>,
        place: Place,
        cx: &ParseCx,
    ) -> Result<SubPipeline> {
        let mut within = cx.within(place)?;
        within.collection = None;
        if let Some(ns) = &from {
            within = within.on(ns);
        }
        let mut pipeline = parse::parse(stages, &within)?;
        pipeline.optimize()?;
        Ok(SubPipeline { from, stages: pipeline.stages })
    }

    /// Looks the names up.
    pub fn resolve(&self, cx: &BuildCx) -> Result<ResolvedSub> {
        if cx.depth > limits::PIPELINE_DEPTH_MAX {
            bail!(
                MaxSubPipelineDepthExceeded,
                "Maximum number of nested sub-pipelines exceeded. Limit is {}",
                limits::PIPELINE_DEPTH_MAX
            );
        }
        let Some(from) = &self.from else {
            return Ok(ResolvedSub { collection: None, stages: self.stages.clone(), of_views: 0 });
        };
        let views::Found { collection, pipeline, .. } = views::resolve(&cx.namespaces, from)?;
        if collection.is_none()
            && cx.server.as_ref().is_some_and(|server| server.own_count(from).is_some())
        {
            bail!(
                CommandNotSupported,
                "a stage cannot read {from}, which the server does not store: aggregate it by itself"
            );
        }
        let of_views = pipeline.stages.len();
        let mut stages = pipeline.stages;
        stages.extend(self.stages.iter().cloned());
        super::check_length(&stages)?;
        Ok(ResolvedSub { collection, stages, of_views })
    }

    /// The fields that its stages read, for the enclosing stage.
    pub fn uses(&self) -> Vec<FieldUse> {
        self.stages.iter().map(|stage| stage.field_use()).collect()
    }
}

/// The surroundings in which the stages of a sub-pipeline are built.
pub fn build_cx(cx: &BuildCx, sub: &ResolvedSub) -> BuildCx {
    BuildCx { collection: sub.collection.clone(), depth: cx.depth + 1, most: 0, ..cx.clone() }
}

/// Whether the first stage of an array is `$documents`, which brings its own rows.
pub fn begins_with_documents(stages: Doc<'_>) -> bool {
    let first = stages.first().and_then(|e| e.as_doc()).and_then(Doc::first);
    first.is_some_and(|stage| stage.key() == "$documents")
}
