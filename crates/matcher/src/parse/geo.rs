//! Geospatial operators. Geometry and geospatial indexes are not supported, so all of them fail: with the error for
//! a malformed argument if `$near`'s argument is malformed, otherwise with the error for the missing index.

use super::Parser;
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, Elem, Type, Value};

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

/// The error of an operator that needs geometry.
pub(super) fn unsupported(elem: Elem<'_>) -> Error {
    Error::bad_value(format!("geospatial operator {} is not supported", elem.key()))
}

/// The error of a well-formed `$near`: no collection here has the index that it needs.
pub(super) fn no_index() -> Error {
    Error::new(
        ErrorCode::NoQueryExecutionPlans,
        "error processing query: planner returned error :: caused by :: unable to find index for \
         $geoNear query",
    )
}

impl Parser<'_, '_> {
    /// Takes an operator object that begins with `$near` or its like, which then rules over all of
    /// it. Answers whether it did.
    pub(super) fn geo_near(&mut self, operators: Doc<'_>) -> Result<bool> {
        let Some(first) = operators.first().filter(|e| is_near(e.key())) else { return Ok(false) };
        if !self.cx.is_of_command() {
            return Err(Error::location(
                5_626_500,
                "$geoNear, $near, and $nearSphere are not allowed in this context",
            ));
        }
        if !is_legacy(first, operators)? {
            check_geojson_near(first, operators)?;
        }
        if self.branching > 0 {
            bail!(BadValue, "geo $near must be top-level expr");
        }
        self.nears += 1;
        Ok(true)
    }
}

/// Checks `{$near: [x, y], $maxDistance: d}`; answers whether it is of that form.
fn is_legacy(near: Elem<'_>, operators: Doc<'_>) -> Result<bool> {
    for elem in operators {
        let distance = elem.value().as_f64_lossy();
        match elem.key() {
            key if is_near(key) => {}
            "$minDistance" => check_legacy_distance("$minDistance", distance, 16893)?,
            "$maxDistance" => check_legacy_distance("$maxDistance", distance, 16895)?,
            "$uniqueDocs" => {}
            other => bail!(34413, "invalid argument in geo near query: {other}"),
        }
    }
    Ok(near.as_doc().is_some_and(is_flat_point))
}

/// The number of the error for a negative distance follows that for one that is no number.
fn check_legacy_distance(name: &str, distance: Option<f64>, code: i32) -> Result<()> {
    match distance {
        None => Err(Error::location(code, format!("{name} must be a number"))),
        Some(d) if d >= 0.0 => Ok(()),
        Some(_) => Err(Error::location(code + 1, format!("{name} must be non-negative"))),
    }
}

/// `[x, y, …]` or `{x: …, y: …}`: two numbers first.
fn is_flat_point(point: Doc<'_>) -> bool {
    if point.first().is_some_and(|e| e.key().starts_with('$')) {
        return false;
    }
    let mut coordinates = point.iter().map(|e| e.value().as_f64_lossy());
    matches!((coordinates.next(), coordinates.next()), (Some(Some(x)), Some(Some(y)))
        if x.is_finite() && y.is_finite())
}

/// Checks `{$near: {$geometry: …, $minDistance: …, $maxDistance: …}}`.
fn check_geojson_near(near: Elem<'_>, operators: Doc<'_>) -> Result<()> {
    if let Some(extra) = operators.iter().nth(1) {
        bail!(
            BadValue,
            "geo near accepts just one argument when querying for a GeoJSON point. Extra field \
             found: {}",
            extra.key()
        );
    }
    let Some(argument) = near.as_doc() else {
        bail!(BadValue, "near must be first in: {operators}");
    };
    let mut has_geometry = false;
    for elem in argument {
        match elem.key() {
            "$geometry" => {
                check_point(elem)?;
                has_geometry = true;
            }
            key @ ("$minDistance" | "$maxDistance") => {
                let Some(distance) = elem.value().as_f64_lossy() else {
                    bail!(BadValue, "{key} must be a number");
                };
                if !distance.is_finite() || distance < 0.0 {
                    bail!(BadValue, "{key} must be non-negative");
                }
            }
            other => bail!(BadValue, "invalid argument in geo near query: {other}"),
        }
    }
    if !has_geometry {
        bail!(BadValue, "$geometry is required for geo near query");
    }
    Ok(())
}

fn check_point(geometry: Elem<'_>) -> Result<()> {
    let Some(point) = geometry.as_doc() else {
        bail!(BadValue, "$geometry must be an object: {}", geometry.value());
    };
    if geometry.ty() == Type::Document && point.get("type").is_some() {
        let Value::String(kind) = point.value("type") else {
            bail!(BadValue, "invalid point in geo near query $geometry argument: {point}");
        };
        let coordinates = point.get("coordinates").and_then(Elem::as_doc);
        let Some(coordinates) = coordinates.filter(|c| kind == "Point" && is_flat_point(*c)) else {
            bail!(BadValue, "invalid point in geo near query $geometry argument: {point}");
        };
        let mut degrees = coordinates.iter().filter_map(|e| e.value().as_f64_lossy());
        let (longitude, latitude) = (degrees.next(), degrees.next());
        let within = |d: Option<f64>, most: f64| d.is_some_and(|d| (-most..=most).contains(&d));
        if !within(longitude, 180.0) || !within(latitude, 90.0) {
            bail!(BadValue, "longitude/latitude is out of bounds: {point}");
        }
        return Ok(());
    }
    if !is_flat_point(point) {
        bail!(BadValue, "invalid point in geo near query $geometry argument: {point}");
    }
    Ok(())
}
