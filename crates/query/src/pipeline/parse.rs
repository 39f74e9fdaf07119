//! Parsing a pipeline: which stages there are, and where each may stand.

use super::{Pipeline, StageSpec};
use kauri_base::{Error, Result, bail, limits};
use kauri_bson::{Doc, Elem, Type};
use kauri_expr::VariableScope;
use std::sync::Arc;

/// Where the pipeline stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// `aggregate`.
    Command,
    /// Within `$facet`.
    Facet,
    /// Within `$lookup` or `$unionWith`.
    Sub,
    /// A view's definition.
    View,
}

/// What parsing is given.
#[derive(Clone)]
pub struct ParseCx {
    /// Variables in scope.
    pub scope: VariableScope,
    /// Where the pipeline stands.
    pub place: Place,
    /// The database.
    pub db: String,
    /// How many pipelines this one is within.
    pub depth: usize,
}

impl ParseCx {
    /// What expressions are parsed with.
    pub fn expressions(&self) -> kauri_expr::ParseCx {
        kauri_expr::ParseCx { vars: self.scope.clone(), ..Default::default() }
    }

    /// The same one pipeline deeper.
    pub fn within(&self, place: Place) -> Result<ParseCx> {
        if self.depth + 1 > limits::PIPELINE_DEPTH_MAX {
            bail!(
                MaxSubPipelineDepthExceeded,
                "Maximum number of nested sub-pipelines exceeded. Limit is {}",
                limits::PIPELINE_DEPTH_MAX
            );
        }
        Ok(ParseCx { place, depth: self.depth + 1, ..self.clone() })
    }
}

/// Parses the stages of an array.
pub fn parse(stages: Doc<'_>, cx: &ParseCx) -> Result<Pipeline> {
    let mut pipeline = Pipeline::default();
    for entry in stages {
        if pipeline.stages.len() >= limits::PIPELINE_STAGES_MAX {
            bail!(
                FailedToParse,
                "Pipeline length must be no longer than {} stages",
                limits::PIPELINE_STAGES_MAX
            );
        }
        let Some(stage) = entry.as_doc().filter(|_| entry.ty() == Type::Document) else {
            bail!(TypeMismatch, "Each element of the 'pipeline' array must be an object");
        };
        let mut fields = stage.iter();
        let (Some(elem), None) = (fields.next(), fields.next()) else {
            bail!(40323, "A pipeline stage specification object must contain exactly one field.");
        };
        pipeline.stages.extend(parse_stage(elem, cx)?);
    }
    check(&pipeline, cx.place)?;
    Ok(pipeline)
}

/// One stage, or those that it stands for.
fn parse_stage(elem: Elem<'_>, cx: &ParseCx) -> Result<Vec<Arc<dyn StageSpec>>> {
    let one = |spec: Arc<dyn StageSpec>| Ok(vec![spec]);
    match elem.key() {
        "$match" => one(Arc::new(super::filter::Match::parse(elem, cx)?)),
        "$sort" => one(Arc::new(super::simple::SortStage::parse(elem)?)),
        "$limit" => one(Arc::new(super::simple::LimitStage::parse(elem)?)),
        "$skip" => one(Arc::new(super::simple::SkipStage::parse(elem)?)),
        "$group" => one(Arc::new(super::group::Group::parse(elem, cx)?)),
        "$unwind" => one(Arc::new(super::unwind::Unwind::parse(elem)?)),
        "$count" => one(Arc::new(super::count::Count::parse(elem)?)),
        "$sortByCount" => super::group::sort_by_count(elem, cx),
        "$sample" => one(Arc::new(super::sample::Sample::parse(elem)?)),
        name if kauri_mutate::DocTransform::is_stage(name) => {
            one(Arc::new(super::transform::Transform::parse(elem, cx)?))
        }
        other => {
            Err(Error::location(40324, format!("Unrecognized pipeline stage name: '{other}'")))
        }
    }
}

/// Checks where the stages stand.
fn check(pipeline: &Pipeline, place: Place) -> Result<()> {
    let last = pipeline.stages.len().saturating_sub(1);
    for (position, stage) in pipeline.stages.iter().enumerate() {
        let constraints = stage.constraints();
        let name = stage.name();
        if constraints.first && position > 0 {
            bail!(40602, "{name} is only valid as the first stage in a pipeline.");
        }
        if constraints.last && position < last {
            bail!(40601, "{name} can only be the final stage in the pipeline");
        }
        let refused = match place {
            Place::Facet => constraints.first || constraints.last || constraints.not_in_facet,
            _ => false,
        };
        if refused {
            bail!(40600, "{name} is not allowed to be used within a $facet stage");
        }
        if place == Place::Sub && (constraints.last || constraints.not_in_subpipeline) {
            bail!(51047, "{name} is not allowed within a $lookup's sub-pipeline");
        }
        if place == Place::View && (constraints.last || constraints.not_in_subpipeline) {
            bail!(
                OptionNotSupportedOnView,
                "The aggregation stage {name} cannot be used in a view definition"
            );
        }
    }
    Ok(())
}
