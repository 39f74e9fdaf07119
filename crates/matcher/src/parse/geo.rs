//! Geospatial operators, which have no index and no geometry here: the errors that name them.

use super::Parser;
use crate::cx::Place;
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Doc, Elem};

/// Whether this is a geospatial operator or an option of one.
pub(super) fn is_operator(name: &str) -> bool {
    is_near(name)
        || matches!(
            name,
            "$geoWithin" | "$within" | "$geoIntersects" | "$maxDistance" | "$minDistance"
        )
}

fn is_near(name: &str) -> bool {
    matches!(name, "$near" | "$nearSphere" | "$geoNear")
}

impl Parser<'_, '_> {
    /// Refuses an operator object with `$near` or its like, which rule over their siblings.
    pub(super) fn geo_near(&mut self, operators: Doc<'_>) -> Result<()> {
        if !operators.iter().any(|e| is_near(e.key())) {
            return Ok(());
        }
        if self.cx.place() != Place::Find {
            return Err(Error::location(
                5_626_500,
                "$geoNear, $near, and $nearSphere are not allowed in this context",
            ));
        }
        // There are no geospatial indexes, so none of this filter's collection is one.
        Err(Error::new(
            ErrorCode::NoQueryExecutionPlans,
            "error processing query: planner returned error :: caused by :: unable to find index \
             for $geoNear query",
        ))
    }

    /// The error of an operator without index.
    pub(super) fn geo(&self, elem: Elem<'_>) -> Error {
        let operator = elem.key();
        Error::new(ErrorCode::NotImplemented, format!("{operator} is not supported"))
    }
}
