//! Stages that need unsupported features: change streams, search, shards, geospatial indexes. Each is refused as in
//! a MongoDB without the feature.

use super::parse::{self, ParseCx, Parsed};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Elem, Type};

/// Refuses a stage of these, none if it is another.
pub fn refuse(elem: Elem<'_>, cx: &ParseCx) -> Option<Result<Parsed>> {
    let error = match elem.key() {
        name @ ("$changeStreamSplitLargeEvent" | "$geoNear") if cx.in_facet => {
            parse::not_in_facet(name)
        }
        "$changeStream" | "$changeStreamSplitLargeEvent" => {
            if elem.ty() != Type::Document {
                return Some(Err(Error::location(
                    6188500,
                    format!("{} must take a nested object", elem.key()),
                )));
            }
            Error::location(40573, "The $changeStream stage is only supported on replica sets")
        }
        "$search" | "$searchMeta" | "$searchBeta" | "$vectorSearch" | "$listSearchIndexes" => {
            Error::new(
                ErrorCode::SearchNotEnabled,
                format!(
                    "Using {} and other search commands and stages requires additional \
                     configuration. Please connect to Atlas or an AtlasCLI local deployment to \
                     enable. For more information on how to connect, see \
                     https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs",
                    elem.key()
                ),
            )
        }
        "$shardedDataDistribution" => {
            Error::location(6789101, "The $shardedDataDistribution stage can only be run on router")
        }
        _ => return None,
    };
    Some(Err(error))
}
