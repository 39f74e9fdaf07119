//! Dotted paths: their form, and what they lead to in a document.
//!
//! Two ways of walking: [`FieldPath::for_each`] as `find` does, through arrays, and
//! [`walk_to_array`] as index keys do, up to the first array. In both a component that is a number
//! can be a position in an array or the name of a field.

use crate::doc::{Doc, Elem};
use crate::types::Type;
use crate::value::Value;
use kauri_base::{Error, Result};

/// Most components of a path (MongoDB's limit is the nesting of documents).
pub const COMPONENTS_MAX: usize = 200;

/// A path in components.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FieldPath {
    text: Box<str>,
    /// Where each component ends in the text.
    ends: Box<[u32]>,
}

impl FieldPath {
    /// A path of any form, `a..b` and `$a` included; nothing is refused.
    pub fn lenient(text: &str) -> FieldPath {
        let mut ends: Vec<u32> = text.match_indices('.').map(|(at, _)| at as u32).collect();
        ends.push(text.len() as u32);
        FieldPath { text: text.into(), ends: ends.into() }
    }

    /// A path as expressions and sort patterns take it.
    pub fn parse(text: &str) -> Result<FieldPath> {
        if text.is_empty() {
            return Err(Error::location(
                40352,
                "FieldPath cannot be constructed with empty string",
            ));
        }
        if text.ends_with('.') {
            return Err(Error::location(40353, "FieldPath must not end with a '.'."));
        }
        let path = FieldPath::lenient(text);
        if path.len() > COMPONENTS_MAX {
            return Err(Error::new(
                kauri_base::ErrorCode::Overflow,
                "FieldPath is too long".to_owned(),
            ));
        }
        for component in path.components() {
            check_component(component)?;
        }
        Ok(path)
    }

    /// The whole path.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The number of components, at least one.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never: a path has at least one component.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A component; empty beyond the last.
    #[inline]
    pub fn component(&self, index: usize) -> &str {
        let start = match index.checked_sub(1) {
            None => 0,
            Some(before) => match self.ends.get(before) {
                Some(end) => *end as usize + 1,
                None => return "",
            },
        };
        match self.ends.get(index) {
            Some(end) => &self.text[start..*end as usize],
            None => "",
        }
    }

    /// The components in order.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|index| self.component(index))
    }

    /// Calls `visit` with every value that the path leads to as `find` sees it, until it answers
    /// true; answers whether it did.
    ///
    /// Arrays on the way are entered one level for each component: into the element at a numeric
    /// component's position and into every element that is a document. An array at the path's end is
    /// visited element by element and then as a whole. Where the path ends in nothing, `Missing` is
    /// visited (an empty array on the way, or one of scalars, has nothing to visit).
    pub fn for_each(&self, doc: Doc<'_>, visit: &mut impl FnMut(&Value<'_>) -> bool) -> bool {
        self.visit_document(doc, 0, visit)
    }

    fn visit_document(
        &self,
        doc: Doc<'_>,
        index: usize,
        visit: &mut impl FnMut(&Value<'_>) -> bool,
    ) -> bool {
        match doc.get(self.component(index)) {
            Some(elem) => self.visit_elem(elem, index + 1, visit),
            None => visit(&Value::Missing),
        }
    }

    fn visit_elem(
        &self,
        elem: Elem<'_>,
        index: usize,
        visit: &mut impl FnMut(&Value<'_>) -> bool,
    ) -> bool {
        match (elem.ty(), elem.as_doc(), index == self.len()) {
            (Type::Array, Some(array), true) => {
                array.iter().any(|inner| visit(&inner.value())) || visit(&elem.value())
            }
            (_, _, true) => visit(&elem.value()),
            (Type::Array, Some(array), false) => self.visit_array(array, index, visit),
            (Type::Document, Some(doc), false) => self.visit_document(doc, index, visit),
            _ => visit(&Value::Missing),
        }
    }

    fn visit_array(
        &self,
        array: Doc<'_>,
        index: usize,
        visit: &mut impl FnMut(&Value<'_>) -> bool,
    ) -> bool {
        let position = array_position(self.component(index));
        if let Some(inner) = position.and_then(|p| array.iter().nth(p))
            && self.visit_positional(inner, index + 1, visit)
        {
            return true;
        }
        array.iter().any(|inner| match (inner.ty(), inner.as_doc()) {
            (Type::Document, Some(doc)) => self.visit_document(doc, index, visit),
            _ => false,
        })
    }

    /// An element named by its position: an array there is not entered implicitly.
    fn visit_positional(
        &self,
        elem: Elem<'_>,
        index: usize,
        visit: &mut impl FnMut(&Value<'_>) -> bool,
    ) -> bool {
        match (elem.ty(), elem.as_doc(), index == self.len()) {
            (Type::Array, Some(array), false) => {
                match array_position(self.component(index)).and_then(|p| array.iter().nth(p)) {
                    Some(inner) => self.visit_positional(inner, index + 1, visit),
                    None => array.iter().any(|inner| match (inner.ty(), inner.as_doc()) {
                        (Type::Document, Some(doc)) => self.visit_document(doc, index, visit),
                        _ => false,
                    }),
                }
            }
            _ => self.visit_elem(elem, index, visit),
        }
    }
}

impl std::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// What expressions and sort patterns refuse in a component.
fn check_component(component: &str) -> Result<()> {
    if component.is_empty() {
        return Err(Error::location(15998, "FieldPath field names may not be empty strings."));
    }
    if component.starts_with('$') {
        return Err(Error::location(
            16410,
            format!(
                "FieldPath field names may not start with '$', given '{component}'. Consider using \
                 $getField or $setField."
            ),
        ));
    }
    if component.contains('\0') {
        return Err(Error::location(16411, "FieldPath field names may not contain '\\0'."));
    }
    Ok(())
}

/// The position that a component names: decimal digits without leading zeros.
#[inline]
pub fn array_position(component: &str) -> Option<usize> {
    let canonical = match component.as_bytes() {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.len() < 9 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if canonical { component.parse().ok() } else { None }
}

/// Follows the path from its component `index` on through documents, up to its end or to the first
/// array, and answers what it found there and the component that comes next. In an array that it
/// starts from, the first component names a position.
#[inline]
pub fn walk_to_array<'a>(
    doc: Doc<'a>,
    path: &FieldPath,
    mut index: usize,
) -> Option<(Elem<'a>, usize)> {
    let mut doc = doc;
    loop {
        let elem = doc.get(path.component(index))?;
        index += 1;
        if index == path.len() || elem.ty() == Type::Array {
            return Some((elem, index));
        }
        if elem.ty() != Type::Document {
            return None;
        }
        doc = elem.as_doc()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{array, doc};

    fn visited(doc: Doc<'_>, path: &str) -> Vec<String> {
        let mut seen = Vec::new();
        FieldPath::parse(path).unwrap().for_each(doc, &mut |value| {
            seen.push(format!("{value:?}"));
            false
        });
        seen
    }

    #[test]
    fn paths_have_components() {
        let path = FieldPath::lenient("a..b.");
        assert_eq!(path.components().collect::<Vec<_>>(), ["a", "", "b", ""]);
        assert_eq!(path.component(9), "");
        for (bad, code) in [("", 40352), ("a.", 40353), ("a..b", 15998), ("a.$b", 16410)] {
            assert_eq!(FieldPath::parse(bad).unwrap_err().code().number(), code, "{bad}");
        }
        assert!(FieldPath::parse(&"a.".repeat(300)[..599]).is_err());
        for (text, position) in
            [("0", Some(0)), ("10", Some(10)), ("01", None), ("", None), ("-1", None), ("1a", None)]
        {
            assert_eq!(array_position(text), position, "{text}");
        }
    }

    #[test]
    fn walks_as_find_does() {
        let doc = doc! {
            "a" => array![doc! { "b" => 1 }, 7, doc! { "b" => array![2, 3] }, array![doc! { "b" => 9 }]],
            "s" => 5,
            "e" => array![],
            "n" => array![array![1, 2], array![3]],
            "p" => array![doc! { "0" => "name" }, "x"],
        };
        let doc = doc.as_doc();
        assert_eq!(visited(doc, "s"), ["5i32"]);
        assert_eq!(visited(doc, "s.x"), ["missing"]);
        assert_eq!(visited(doc, "zz"), ["missing"]);
        assert_eq!(visited(doc, "a.b"), ["1i32", "2i32", "3i32", "[2i32, 3i32]"]);
        assert_eq!(visited(doc, "a.0.b"), ["1i32", "missing", "missing"]);
        assert_eq!(visited(doc, "a.3.b"), ["9i32", "missing", "missing"]);
        assert_eq!(visited(doc, "e"), ["[]"]);
        assert_eq!(visited(doc, "e.x"), Vec::<String>::new());
        assert_eq!(visited(doc, "n"), ["[1i32, 2i32]", "[3i32]", "[[1i32, 2i32], [3i32]]"]);
        assert_eq!(visited(doc, "n.0"), ["1i32", "2i32", "[1i32, 2i32]"]);
        assert_eq!(visited(doc, "n.0.1"), ["2i32"]);
        assert_eq!(visited(doc, "p.0"), ["{\"0\": \"name\"}", "\"name\""]);
    }
}
