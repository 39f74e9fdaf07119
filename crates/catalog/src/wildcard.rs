//! Definitions of wildcard indexes: which key patterns and projections are valid. The rules, their codes and their order
//! are those of MongoDB 8. This module must not know other index types.

use kauri_base::{Error, Result, bail, limits};
use kauri_bson::{Doc, Elem, Type};
use std::collections::BTreeMap;

/// The last part of a field's path that makes the index a wildcard index.
const WILDCARD: &str = "$**";

/// Whether a field of a key pattern is the wildcard.
pub(crate) fn is_wildcard(field: &str) -> bool {
    field == WILDCARD || field.ends_with(".$**")
}

/// Checks the fields of a wildcard index's key pattern.
pub(crate) fn check_key(key: Doc<'_>) -> Result<()> {
    let (wildcard, others) = fields(key)?;
    let Some(scope) = wildcard.strip_suffix(".$**") else { return Ok(()) };
    match others.iter().find(|field| is_prefix(scope, field)) {
        None => Ok(()),
        Some(field) => bail!(
            7246204,
            "A wildcard index field should not overlap with an index key field if the wildcard \
             projection is empty, but '{field}' overlaps with '{wildcard}'."
        ),
    }
}

/// Checks that a compound pattern on all fields has a projection.
pub(crate) fn check_has_projection(key: Doc<'_>, projection: Option<Doc<'_>>) -> Result<()> {
    if projection.is_none() && key.count() > 1 && key.get(WILDCARD).is_some() {
        bail!(
            CannotCreateIndex,
            "Compound wildcard indexes on all fields must also specify 'wildcardProjection' option"
        );
    }
    Ok(())
}

/// Checks `wildcardProjection` of a wildcard index with this key pattern.
pub(crate) fn check_projection(key: Doc<'_>, projection: Doc<'_>) -> Result<()> {
    if key.get(WILDCARD).is_none() {
        bail!(
            FailedToParse,
            "The field 'wildcardProjection' is only allowed when the 'key' is {{\"$**\": ±1}}"
        );
    }
    if projection.is_empty() {
        bail!(FailedToParse, "The 'wildcardProjection' field can't be an empty object");
    }
    if key.count() > 1 {
        check_compound(key, projection)?;
    }
    Parser::default().parse(projection, &mut Paths::default(), 0)
}

/// The wildcard field of a key pattern, and its other fields.
fn fields(key: Doc<'_>) -> Result<(&str, Vec<&str>)> {
    let (wildcards, others): (Vec<_>, Vec<_>) =
        key.iter().map(|field| field.key()).partition(|field| is_wildcard(field));
    match wildcards[..] {
        [wildcard] => Ok((wildcard, others)),
        [] => bail!(7246202, "No wildcard index field is specified for the wildcard index"),
        _ => bail!(7246201, "Index Key can contain only one wildcard index field"),
    }
}

/// Whether a path is another one or leads to it.
fn is_prefix(path: &str, of: &str) -> bool {
    of.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// What a projection of a compound pattern must be besides: the other fields of the key are not in it.
fn check_compound(key: Doc<'_>, projection: Doc<'_>) -> Result<()> {
    let (_, mut others) = fields(key)?;
    let (mut included, mut excluded) = (Vec::new(), Vec::new());
    for field in projection {
        if !is_flag(field) {
            bail!(
                7246207,
                "Fields in wildcardProjection must be numbers, but '{}' is of type {}.",
                field.key(),
                field.ty().alias()
            );
        }
        let list = if field.value().truthy() { &mut included } else { &mut excluded };
        list.push(field.key());
    }
    for list in [&mut others, &mut included, &mut excluded] {
        list.sort_by(|a, b| a.split('.').cmp(b.split('.')));
    }
    for list in [&included, &excluded] {
        if let Some(pair) = list.windows(2).find(|pair| is_prefix(pair[0], pair[1])) {
            bail!(
                7246200,
                "Fields in Wildcard Projection cannot overlap, but '{}' overlaps with '{}'",
                pair[0],
                pair[1]
            );
        }
    }
    let covers = |list: &[&str], field: &str| list.iter().any(|path| is_prefix(path, field));
    if let Some(field) = others.iter().find(|field| covers(&included, field)) {
        bail!(
            7246208,
            "Index Key and Wildcard Projection cannot contain overlapping fields, but '{field}' is \
             in both"
        );
    }
    if let Some(field) = others.iter().find(|field| !covers(&excluded, field))
        && let Some(last) = excluded.last()
    {
        // MongoDB has a code of its own where all excluded paths sort before the field.
        let is_behind = last.split('.').lt(field.split('.'));
        let code = if is_behind { 7246210 } else { 7246209 };
        return Err(Error::location(
            code,
            format!(
                "wildcardProjection paths must exclude all regular index fields, but '{field}' is \
                 not excluded."
            ),
        ));
    }
    let is_id_alone = |list: &[&str]| list == ["_id"];
    if !included.is_empty()
        && !excluded.is_empty()
        && !is_id_alone(&included)
        && !is_id_alone(&excluded)
    {
        bail!(
            7246211,
            "Inclusion and exclusion statements cannot combine in the wildcardProjection with an \
             exception of explicitly including _id field"
        );
    }
    Ok(())
}

fn is_flag(field: Elem<'_>) -> bool {
    field.ty().is_number() || field.ty() == Type::Bool
}

/// Reads a projection of paths that are included or excluded, `_id` apart all of them alike.
#[derive(Default)]
struct Parser {
    /// Whether paths are included, once one of them has said so.
    includes: Option<bool>,
}

/// The paths read so far below one path, by their next names. Without any, the path itself has been read.
#[derive(Default)]
struct Paths<'p>(BTreeMap<&'p str, Paths<'p>>);

impl Parser {
    /// Reads the fields below a path of this many names.
    fn parse<'p>(&mut self, fields: Doc<'p>, read: &mut Paths<'p>, depth: usize) -> Result<()> {
        for field in fields {
            let name = field.key();
            check_name(name)?;
            let depth = depth + name.split('.').count();
            if depth > limits::DOCUMENT_DEPTH_MAX {
                bail!(Overflow, "FieldPath is too long");
            }
            match field.as_doc().filter(|_| field.ty() == Type::Document) {
                Some(inner) if inner.is_empty() => bail!(
                    51270,
                    "An empty sub-projection is not a valid value. Found empty object at path {name}"
                ),
                Some(inner) if inner.first().is_some_and(|e| e.key().starts_with('$')) => {
                    return Err(computed());
                }
                Some(inner) => {
                    let (below, is_new) = read.enter(name)?;
                    if !is_new && below.0.is_empty() {
                        return Err(child_after_parent(name));
                    }
                    self.parse(inner, below, depth)?;
                }
                None if is_flag(field) => {
                    if !read.enter(name)?.1 {
                        bail!(31250, "Path collision at {name}");
                    }
                    self.decide(name, depth, field.value().truthy())?;
                }
                None => return Err(computed()),
            }
        }
        Ok(())
    }

    fn decide(&mut self, name: &str, depth: usize, is_included: bool) -> Result<()> {
        if depth == 1 && name == "_id" {
            return Ok(());
        }
        match self.includes.replace(is_included) {
            Some(true) if !is_included => {
                bail!(31254, "Cannot do exclusion on field {name} in inclusion projection")
            }
            Some(false) if is_included => {
                bail!(31253, "Cannot do inclusion on field {name} in exclusion projection")
            }
            _ => Ok(()),
        }
    }
}

impl<'p> Paths<'p> {
    /// The paths below this one, and whether it is new. Fails if one has been read that leads to it.
    fn enter(&mut self, path: &'p str) -> Result<(&mut Paths<'p>, bool)> {
        let mut at = self;
        let mut is_new = false;
        for (position, name) in path.split('.').enumerate() {
            if position > 0 && !is_new && at.0.is_empty() {
                return Err(child_after_parent(path));
            }
            is_new = !at.0.contains_key(name);
            at = at.0.entry(name).or_default();
        }
        Ok((at, is_new))
    }
}

fn child_after_parent(path: &str) -> Error {
    Error::location(31249, format!("Path collision at {path}: a path that leads to it is there"))
}

fn computed() -> Error {
    Error::location(
        51271,
        "Bad projection specification, cannot use computed fields when parsing a spec in \
         inclusion/exclusion-only mode",
    )
}

fn check_name(path: &str) -> Result<()> {
    if path.is_empty() {
        bail!(40352, "FieldPath cannot be constructed with empty string");
    }
    if path.ends_with('.') {
        bail!(40353, "FieldPath must not end with a '.'.");
    }
    for part in path.split('.') {
        if part.is_empty() {
            bail!(15998, "FieldPath field names may not be empty strings.");
        }
        if part.starts_with('$') {
            bail!(16410, "FieldPath field names may not start with '$'.");
        }
    }
    Ok(())
}
