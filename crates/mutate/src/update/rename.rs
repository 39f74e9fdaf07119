//! What `$rename` moves: looked up in the original document before anything is written.

use crate::cx::UpdateCx;
use crate::text;
use crate::update::check;
use crate::update::parse::Rename;
use crate::update::path::Name;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Elem, Type};

/// What walking a path through a document met.
struct Walk<'d> {
    /// The element at the path's end.
    found: Option<Elem<'d>>,
    /// The first array on the way.
    array: Option<Elem<'d>>,
    /// What the path cannot go through, and the component that has no place there.
    blocked: Option<(Elem<'d>, usize)>,
}

fn walk<'d>(doc: Doc<'d>, path: &[Name]) -> Walk<'d> {
    let mut walk = Walk { found: None, array: None, blocked: None };
    let mut here = doc;
    let mut parent: Option<Elem<'d>> = None;
    for (step, name) in path.iter().enumerate() {
        let next = match parent.filter(|p| p.ty() == Type::Array) {
            None => here.get(name.as_str()),
            Some(array) => {
                walk.array = walk.array.or(parent);
                match name.index().and_then(|i| usize::try_from(i).ok()) {
                    Some(index) => here.iter().nth(index),
                    None => {
                        walk.blocked = Some((array, step));
                        return walk;
                    }
                }
            }
        };
        let Some(elem) = next else { return walk };
        if step + 1 == path.len() {
            walk.found = Some(elem);
            return walk;
        }
        match elem.as_doc() {
            Some(inner) => here = inner,
            None => {
                walk.blocked = Some((elem, step + 1));
                return walk;
            }
        }
        parent = Some(elem);
    }
    walk
}

impl Rename {
    /// The element to move, if it is there.
    pub(crate) fn source<'d>(&self, doc: Doc<'d>, cx: &UpdateCx<'_>) -> Result<Option<Elem<'d>>> {
        let source = walk(doc, &self.from);
        if let Some((blocked, step)) = source.blocked {
            bail!(
                PathNotViable,
                "Cannot use the part ({}) of ({}) to traverse the element ({{{}}})",
                self.from.get(step).map_or("", Name::as_str),
                self.from_path,
                text::elem(blocked)
            );
        }
        let Some(found) = source.found else { return Ok(None) };
        if let Some(array) = source.array {
            bail!(
                BadValue,
                "The source field cannot be an array element, '{}' in doc with {} has an array \
                 field called '{}'",
                self.from_path,
                id(doc),
                array.key()
            );
        }
        if let Some(array) = walk(doc, &self.to).array {
            bail!(
                BadValue,
                "The destination field cannot be an array element, '{}' in doc with {} has an \
                 array field called '{}'",
                self.to_path,
                id(doc),
                array.key()
            );
        }
        // Even a value equal to the `_id` must not be moved there.
        if !cx.is_insert && self.to.first().is_some_and(|n| n.as_str() == "_id") {
            return Err(check::modified_id());
        }
        Ok(Some(found))
    }
}

fn id(doc: Doc<'_>) -> String {
    doc.get("_id").map_or_else(|| "no id".to_owned(), text::elem)
}
