//! Dotted paths of index keys and sort keys: through documents, up to the first array.
//!
//! Filters walk through arrays and expressions collect from them; both have paths with other rules and errors.

use crate::doc::{Doc, Elem};
use crate::types::Type;

/// A path in components. Any text is one: `a..b` has an empty component in the middle.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FieldPath {
    text: Box<str>,
    /// Where each component ends in the text.
    ends: Box<[u32]>,
}

impl FieldPath {
    /// The path of this text.
    pub fn new(text: &str) -> FieldPath {
        let mut ends: Vec<u32> = text.match_indices('.').map(|(at, _)| at as u32).collect();
        ends.push(text.len() as u32);
        FieldPath { text: text.into(), ends: ends.into() }
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

    /// Follows the path from its component `index` on through documents, up to its end or to the
    /// first array. Answers what it found there, and the component that comes next.
    #[inline]
    pub fn walk_to_array<'a>(
        &self,
        mut doc: Doc<'a>,
        mut index: usize,
    ) -> Option<(Elem<'a>, usize)> {
        loop {
            let elem = doc.get(self.component(index))?;
            index += 1;
            if index == self.len() || elem.ty() == Type::Array {
                return Some((elem, index));
            }
            if elem.ty() != Type::Document {
                return None;
            }
            doc = elem.as_doc()?;
        }
    }
}

impl std::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The position in an array that a component names: decimal digits without leading zeros.
#[inline]
pub fn array_position(component: &str) -> Option<usize> {
    let canonical = match component.as_bytes() {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.len() < 9 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if canonical { component.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{array, doc};

    #[test]
    fn paths_have_components() {
        let path = FieldPath::new("a..b.");
        assert_eq!(path.components().collect::<Vec<_>>(), ["a", "", "b", ""]);
        assert_eq!(path.component(9), "");
        for (text, position) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("01", None),
            ("", None),
            ("-1", None),
            ("1a", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(array_position(text), position, "{text}");
        }
    }

    #[test]
    fn path_walks_end_at_arrays() {
        let doc =
            doc! { "a" => doc! { "b" => doc! { "c" => 1 }, "l" => array![doc! { "c" => 2 }] } };
        let walk = |text: &str| {
            let path = FieldPath::new(text);
            let found = path.walk_to_array(doc.as_doc(), 0);
            found.map(|(elem, next)| (format!("{:?}", elem.value()), next))
        };
        assert_eq!(walk("a.b.c"), Some(("1i32".to_owned(), 3)));
        assert_eq!(walk("a.l.c"), Some(("[{\"c\": 2i32}]".to_owned(), 2)));
        assert_eq!(walk("a.b.c.d"), None);
        assert_eq!(walk("a.x"), None);
    }
}
