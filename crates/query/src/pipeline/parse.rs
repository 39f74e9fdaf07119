//! Parses a pipeline: the known stages, and their allowed positions.

use super::{Pipeline, StageSpec};
use kauri_base::{Error, ErrorCode, Result, bail, limits, work};
use kauri_bson::{Doc, Elem, Type};
use kauri_catalog::Namespace;
use kauri_expr::VariableScope;
use std::sync::Arc;

/// The position of the pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// `aggregate`.
    Command,
    /// Within `$facet`.
    Facet,
    /// Within `$lookup`.
    Lookup,
    /// Within `$unionWith`.
    Union,
    /// A view's definition.
    View,
}

/// The context of parsing.
#[derive(Clone)]
pub struct ParseCx {
    /// Variables in scope.
    pub scope: VariableScope,
    /// The position of the pipeline.
    pub place: Place,
    /// The database.
    pub db: String,
    /// The collection that the pipeline reads; none for a command that names none.
    pub collection: Option<String>,
    /// Number of enclosing pipelines.
    pub depth: usize,
    /// Whether one of those is a `$facet`'s.
    pub in_facet: bool,
}

impl ParseCx {
    /// For a pipeline on this collection, with these variables.
    pub fn new(ns: &Namespace, scope: VariableScope, place: Place) -> ParseCx {
        ParseCx {
            scope,
            place,
            db: ns.database().to_owned(),
            collection: Some(ns.collection().to_owned()),
            depth: 0,
            in_facet: false,
        }
    }

    /// The context of parsing expressions.
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
        let in_facet = self.in_facet || place == Place::Facet;
        Ok(ParseCx { place, depth: self.depth + 1, in_facet, ..self.clone() })
    }

    /// The same on another collection.
    pub fn on(self, ns: &Namespace) -> ParseCx {
        ParseCx {
            db: ns.database().to_owned(),
            collection: Some(ns.collection().to_owned()),
            ..self
        }
    }

    /// Fails unless the command names no collection.
    pub fn expect_no_collection(&self, message: impl FnOnce() -> String) -> Result<()> {
        match self.collection {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorCode::InvalidNamespace, message())),
        }
    }
}

/// Parses the stages of an array.
pub fn parse(stages: Doc<'_>, cx: &ParseCx) -> Result<Pipeline> {
    work::check_stack()?;
    let count = stages.count();
    if count > limits::PIPELINE_STAGES_MAX {
        bail!(
            7749501,
            "Pipeline length must be no longer than {} stages.",
            limits::PIPELINE_STAGES_MAX
        );
    }
    let mut pipeline = Pipeline::default();
    for entry in stages {
        let Some(stage) = entry.as_doc().filter(|_| entry.ty() == Type::Document) else {
            bail!(TypeMismatch, "Each element of the 'pipeline' array must be an object");
        };
        let mut fields = stage.iter();
        let (Some(elem), None) = (fields.next(), fields.next()) else {
            bail!(40323, "A pipeline stage specification object must contain exactly one field.");
        };
        if !pipeline.stages.is_empty() && is_text_search(elem) {
            bail!(17313, "$match with $text is only allowed as the first pipeline stage");
        }
        pipeline.stages.extend(parse_stage(elem, cx)?);
    }
    super::check_length(&pipeline.stages)?;
    if cx.in_facet {
        check_in_facet(&pipeline, cx.place)?;
    }
    if matches!(cx.place, Place::Command | Place::Lookup | Place::Union) {
        check_source(&pipeline, cx)?;
    }
    check(&pipeline, cx.place)?;
    Ok(pipeline)
}

/// Checks that the stages may stand within a `$facet`, however deep.
fn check_in_facet(pipeline: &Pipeline, place: Place) -> Result<()> {
    for stage in &pipeline.stages {
        let constraints = stage.constraints();
        // One that writes is refused by the innermost place that it is in.
        let refused = match constraints.last {
            true => place == Place::Facet,
            false => constraints.not_in_facet,
        };
        if refused {
            return Err(not_in_facet(stage.name()));
        }
    }
    Ok(())
}

/// The error for a stage that may not stand within `$facet`.
pub fn not_in_facet(name: &str) -> Error {
    Error::location(40600, format!("{name} is not allowed to be used within a $facet stage"))
}

/// Whether it is a `$match` by `$text`, which an index answers.
fn is_text_search(stage: Elem<'_>) -> bool {
    stage.key() == "$match" && stage.as_doc().is_some_and(|filter| filter.get("$text").is_some())
}

/// Stages of one parsed specification.
pub type Parsed = Vec<Arc<dyn StageSpec>>;

fn one(spec: impl StageSpec + 'static) -> Result<Parsed> {
    Ok(vec![Arc::new(spec)])
}

/// One stage, or those that it stands for.
fn parse_stage(elem: Elem<'_>, cx: &ParseCx) -> Result<Parsed> {
    match elem.key() {
        "$match" => one(super::filter::Match::parse(elem, cx)?),
        "$sort" => one(super::simple::SortStage::parse(elem)?),
        "$limit" => one(super::simple::LimitStage::parse(elem)?),
        "$skip" => one(super::simple::SkipStage::parse(elem)?),
        "$group" => one(super::group::Group::parse(elem, cx)?),
        "$unwind" => one(super::unwind::Unwind::parse(elem)?),
        "$count" => one(super::count::Count::parse(elem)?),
        "$sortByCount" => super::group::sort_by_count(elem, cx),
        "$bucket" => super::bucket::parse(elem, cx),
        "$bucketAuto" => one(super::bucket_auto::BucketAuto::parse(elem, cx)?),
        "$facet" => one(super::facet::Facet::parse(elem, cx)?),
        "$lookup" => one(super::lookup::Lookup::parse(elem, cx)?),
        "$graphLookup" => one(super::lookup::graph::GraphLookup::parse(elem, cx)?),
        "$out" => one(super::out::Out::parse(elem, cx)?),
        "$merge" => one(super::merge::Merge::parse(elem, cx)?),
        "$documents" => one(super::documents::parse(elem, cx)?),
        "$indexStats" => one(super::collection_info::index_stats(elem)?),
        "$collStats" => one(super::collection_info::coll_stats(elem, cx)?),
        "$planCacheStats" => one(super::collection_info::plan_cache_stats(elem)?),
        "$currentOp" => one(super::server_stages::current_op(elem, cx)?),
        "$listLocalSessions" => one(super::server_stages::list_local_sessions(elem, cx)?),
        "$listSessions" => one(super::server_stages::list_sessions(elem, cx)?),
        "$listSampledQueries" => one(super::server_stages::list_sampled_queries()?),
        "$listClusterCatalog" => one(super::server_stages::list_cluster_catalog(elem, cx)?),
        "$listCatalog" => one(super::server_stages::list_catalog(elem, cx)?),
        "$querySettings" => one(super::server_stages::query_settings(elem)?),
        "$queryStats" => one(super::server_stages::query_stats(elem, cx)?),
        "$unionWith" => one(super::union_with::UnionWith::parse(elem, cx)?),
        "$redact" => one(super::redact::Redact::parse(elem, cx)?),
        "$setWindowFields" => one(super::window::SetWindowFields::parse(elem, cx)?),
        "$densify" => super::densify::parse(elem),
        "$fill" => super::fill::parse(elem, cx),
        "$sample" => one(super::sample::Sample::parse(elem)?),
        name if kauri_mutate::DocTransform::is_stage(name) => {
            one(super::transform::Transform::parse(elem, cx)?)
        }
        other => super::unavailable::refuse(elem, cx).unwrap_or_else(|| {
            Err(Error::location(40324, format!("Unrecognized pipeline stage name: '{other}'")))
        }),
    }
}

/// Checks that a pipeline without a collection begins with a stage that needs none, and that one on
/// a collection does not.
fn check_source(pipeline: &Pipeline, cx: &ParseCx) -> Result<()> {
    let first = pipeline.stages.first().map(|stage| (stage.name(), stage.constraints()));
    match (first, &cx.collection) {
        (None, None) => {
            bail!(InvalidNamespace, "{{aggregate: 1}} is not valid for an empty pipeline.")
        }
        (Some((name, constraints)), None) if !constraints.collectionless => bail!(
            InvalidNamespace,
            "{{aggregate: 1}} is not valid for '{name}'; a collection is required."
        ),
        (Some((name, constraints)), Some(_)) if constraints.collectionless => {
            bail!(InvalidNamespace, "'{name}' can only be run with {{aggregate: 1}}")
        }
        _ => Ok(()),
    }
}

/// Checks where the stages stand.
pub fn check(pipeline: &Pipeline, place: Place) -> Result<()> {
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
    }
    for stage in &pipeline.stages {
        let (constraints, name) = (stage.constraints(), stage.name());
        match place {
            Place::Lookup if constraints.last || constraints.not_in_lookup => {
                bail!(51047, "{name} is not allowed within a $lookup's sub-pipeline");
            }
            Place::Union if constraints.last || constraints.not_in_union => {
                bail!(31441, "{name} is not allowed within a $unionWith's sub-pipeline");
            }
            Place::View if constraints.last => bail!(
                OptionNotSupportedOnView,
                "The aggregation stage {name} in location 0 of the pipeline cannot be used in a \
                 view definition because it writes to disk"
            ),
            _ => {}
        }
    }
    Ok(())
}
