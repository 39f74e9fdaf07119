//! Finds the values at a path.
//!
//! Arrays on the path are entered, one level per component: the rest of the path is searched in their documents,
//! and a numeric component also names a position. A path without a value in a document yields "missing" there. In
//! an array, elements that are not documents yield nothing.

use crate::path::Path;
use kauri_base::{Result, work};
use kauri_bson::{Doc, Elem, Type};

/// The examined parts of an array at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expand {
    /// Each element, then the array itself.
    Elements,
    /// The array itself only.
    ArrayOnly,
}

/// Calls `visit` with the values at the path from its component `at` on, until it returns true. The second argument
/// is the position in the outermost array that was entered without an explicit position, if any.
#[inline]
pub(crate) fn from_doc<'a, F>(
    doc: Doc<'a>,
    path: &Path,
    at: usize,
    expand: Expand,
    mut visit: F,
) -> Result<bool>
where
    F: FnMut(Option<Elem<'a>>, Option<u32>) -> Result<bool>,
{
    walk_doc(doc, path, at, expand, &mut visit)
}

/// The same from a value: the first `at` components are behind it.
#[inline]
pub(crate) fn from_elem<'a, F>(
    elem: Elem<'a>,
    path: &Path,
    at: usize,
    expand: Expand,
    mut visit: F,
) -> Result<bool>
where
    F: FnMut(Option<Elem<'a>>, Option<u32>) -> Result<bool>,
{
    walk_elem(elem, path, at, expand, &mut visit)
}

/// Levels of documents that a walk descends between two checks of the stack.
const LEVELS_UNCHECKED: usize = 16;

#[inline]
fn walk_doc<'a, F>(
    doc: Doc<'a>,
    path: &Path,
    at: usize,
    expand: Expand,
    visit: &mut F,
) -> Result<bool>
where
    F: FnMut(Option<Elem<'a>>, Option<u32>) -> Result<bool>,
{
    match path.part(at).and_then(|name| doc.get(name)) {
        Some(elem) => walk_elem(elem, path, at + 1, expand, visit),
        None => visit(None, None),
    }
}

fn walk_elem<'a, F>(
    elem: Elem<'a>,
    path: &Path,
    at: usize,
    expand: Expand,
    visit: &mut F,
) -> Result<bool>
where
    F: FnMut(Option<Elem<'a>>, Option<u32>) -> Result<bool>,
{
    let ends = at >= path.len();
    match elem.ty() {
        Type::Array if ends && expand == Expand::Elements => {
            for (position, item) in elem.as_doc().unwrap_or(Doc::EMPTY).ticked().enumerate() {
                let item = item?;
                if visit(Some(item), Some(position as u32))? {
                    return Ok(true);
                }
            }
            visit(Some(elem), None)
        }
        _ if ends => visit(Some(elem), None),
        Type::Document => {
            if at.is_multiple_of(LEVELS_UNCHECKED) {
                work::check_stack()?;
            }
            walk_doc(elem.as_doc().unwrap_or(Doc::EMPTY), path, at, expand, visit)
        }
        Type::Array => walk_array(elem, path, at, expand, visit),
        _ => visit(None, None),
    }
}

/// An array with more of the path to go.
fn walk_array<'a, F>(
    array: Elem<'a>,
    path: &Path,
    at: usize,
    expand: Expand,
    visit: &mut F,
) -> Result<bool>
where
    F: FnMut(Option<Elem<'a>>, Option<u32>) -> Result<bool>,
{
    work::check_stack()?;
    let wanted = path.index_at(at);
    for (position, item) in array.as_doc().unwrap_or(Doc::EMPTY).ticked().enumerate() {
        let (position, item) = (position as u32, item?);
        if item.ty() == Type::Document {
            // The closure's type would grow with each level if it weren't behind a reference.
            let inner: &mut dyn FnMut(Option<Elem<'a>>, Option<u32>) -> Result<bool> =
                &mut |elem, _| visit(elem, Some(position));
            let doc = item.as_doc().unwrap_or(Doc::EMPTY);
            if walk_doc(doc, path, at, expand, &mut { inner })? {
                return Ok(true);
            }
        }
        if wanted != Some(position) {
            continue;
        }
        let found = if at + 1 == path.len() {
            // A position that the path names is none that was found.
            visit(Some(item), None)?
        } else {
            match item.ty() {
                Type::Document => {
                    walk_doc(item.as_doc().unwrap_or(Doc::EMPTY), path, at + 1, expand, visit)?
                }
                Type::Array => walk_array(item, path, at + 1, expand, visit)?,
                _ => false,
            }
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}
