//! The values that `$rename` moves: read from the original document before anything is written.

use crate::cx::UpdateCx;
use crate::text;
use crate::update::check;
use crate::update::parse::Rename;
use crate::update::path::Name;
use kauri_base::{Result, bail, work};
use kauri_bson::{Doc, Elem, Type};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Renames from which on a document's fields are looked up in tables.
const MANY_RENAMES: usize = 8;
/// Documents below this size are searched.
const SMALL_BYTES: usize = 512;

/// The elements of the documents that paths go through, for many paths through the same ones.
#[derive(Default)]
struct Tables<'d> {
    /// By where the document lies.
    documents: HashMap<*const u8, HashMap<&'d [u8], Elem<'d>>>,
    arrays: HashMap<*const u8, Vec<Elem<'d>>>,
}

impl<'d> Tables<'d> {
    /// The first field of this name.
    fn field(&mut self, doc: Doc<'d>, name: &str) -> Result<Option<Elem<'d>>> {
        let table = match self.documents.entry(doc.as_bytes().as_ptr()) {
            Entry::Occupied(table) => table.into_mut(),
            Entry::Vacant(entry) => {
                let mut table = HashMap::new();
                for elem in doc.ticked() {
                    let elem = elem?;
                    table.entry(elem.key_bytes()).or_insert(elem);
                }
                entry.insert(table)
            }
        };
        Ok(table.get(name.as_bytes()).copied())
    }

    /// The element at this position.
    fn element(&mut self, array: Doc<'d>, position: usize) -> Result<Option<Elem<'d>>> {
        let table = match self.arrays.entry(array.as_bytes().as_ptr()) {
            Entry::Occupied(table) => table.into_mut(),
            Entry::Vacant(entry) => entry.insert(array.ticked().collect::<Result<_>>()?),
        };
        Ok(table.get(position).copied())
    }
}

/// How elements are found: by search, or by tables.
struct Finder<'d>(Option<Tables<'d>>);

impl<'d> Finder<'d> {
    fn field(&mut self, doc: Doc<'d>, name: &str) -> Result<Option<Elem<'d>>> {
        match &mut self.0 {
            Some(tables) if doc.as_bytes().len() > SMALL_BYTES => tables.field(doc, name),
            _ => Ok(doc.get(name)),
        }
    }

    fn element(&mut self, array: Doc<'d>, position: usize) -> Result<Option<Elem<'d>>> {
        match &mut self.0 {
            Some(tables) if array.as_bytes().len() > SMALL_BYTES => tables.element(array, position),
            _ => array.ticked().nth(position).transpose(),
        }
    }
}

/// The value that each of the renames moves, if it exists.
pub(crate) fn sources<'d>(
    renames: &[Rename],
    doc: Doc<'d>,
    cx: &UpdateCx<'_>,
) -> Result<Vec<Option<Elem<'d>>>> {
    let mut finder = Finder((renames.len() > MANY_RENAMES).then(Tables::default));
    renames.iter().map(|rename| rename.source(doc, cx, &mut finder)).collect()
}

/// The elements on a walk of a path through a document.
struct Walk<'d> {
    /// The element at the path's end.
    found: Option<Elem<'d>>,
    /// The first array on the way.
    array: Option<Elem<'d>>,
    /// The value that the path cannot enter, and the component that has no place there.
    blocked: Option<(Elem<'d>, usize)>,
}

fn walk<'d>(doc: Doc<'d>, path: &[Name], finder: &mut Finder<'d>) -> Result<Walk<'d>> {
    let mut walk = Walk { found: None, array: None, blocked: None };
    let mut here = doc;
    let mut parent: Option<Elem<'d>> = None;
    for (step, name) in path.iter().enumerate() {
        work::tick(1)?;
        let next = match parent.filter(|p| p.ty() == Type::Array) {
            None => finder.field(here, name.as_str())?,
            Some(array) => {
                walk.array = walk.array.or(parent);
                match name.index().and_then(|i| usize::try_from(i).ok()) {
                    Some(index) => finder.element(here, index)?,
                    None => {
                        walk.blocked = Some((array, step));
                        return Ok(walk);
                    }
                }
            }
        };
        let Some(elem) = next else { return Ok(walk) };
        if step + 1 == path.len() {
            walk.found = Some(elem);
            return Ok(walk);
        }
        match elem.as_doc() {
            Some(inner) => here = inner,
            None => {
                walk.blocked = Some((elem, step + 1));
                return Ok(walk);
            }
        }
        parent = Some(elem);
    }
    Ok(walk)
}

impl Rename {
    /// The element to move, if it is there.
    fn source<'d>(
        &self,
        doc: Doc<'d>,
        cx: &UpdateCx<'_>,
        finder: &mut Finder<'d>,
    ) -> Result<Option<Elem<'d>>> {
        let source = walk(doc, &self.from, finder)?;
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
        if let Some(array) = walk(doc, &self.to, finder)?.array {
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
