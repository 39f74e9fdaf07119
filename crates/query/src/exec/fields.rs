//! The top-level fields of a stage's rows that later stages read.
//!
//! Other fields need not be copied. The order of the copied fields is kept.

use kauri_base::work;
use kauri_bson::{Doc, DocWriter};
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Fields {
    /// All of them.
    #[default]
    All,
    /// Those of these names.
    Only(Arc<BTreeSet<String>>),
}

impl Fields {
    /// No field at all.
    pub fn none() -> Fields {
        Fields::Only(Arc::default())
    }

    /// The top-level fields of these dotted paths.
    pub fn of_paths<'p>(paths: impl IntoIterator<Item = &'p str>) -> Fields {
        let top = paths.into_iter().map(|path| top_level(path).to_owned());
        Fields::Only(Arc::new(top.collect()))
    }

    /// Both sets of fields.
    pub fn union(&self, other: &Fields) -> Fields {
        match (self, other) {
            (Fields::Only(a), Fields::Only(b)) if b.is_subset(a) => Fields::Only(a.clone()),
            (Fields::Only(a), Fields::Only(b)) => {
                work::tick_infallible((a.len() + b.len()) as u32);
                Fields::Only(Arc::new(a.union(b).cloned().collect()))
            }
            _ => Fields::All,
        }
    }

    /// All but this one, if that can be said.
    pub fn without(&self, name: &str) -> Fields {
        match self {
            Fields::Only(names) if names.contains(name) => {
                let mut names = BTreeSet::clone(names);
                names.remove(name);
                Fields::Only(Arc::new(names))
            }
            other => other.clone(),
        }
    }

    /// Whether the field of this name is read.
    #[inline]
    pub fn contains(&self, name: &[u8]) -> bool {
        match self {
            Fields::All => true,
            // Most sets are small; and names differ in length or early on.
            Fields::Only(names) if names.len() <= 8 => names.iter().any(|n| n.as_bytes() == name),
            Fields::Only(names) => std::str::from_utf8(name).is_ok_and(|name| names.contains(name)),
        }
    }

    /// Whether every field is read.
    pub fn is_all(&self) -> bool {
        *self == Fields::All
    }

    /// Puts the document with these fields at the end of `out`.
    pub fn copy(&self, doc: Doc<'_>, out: &mut Vec<u8>) {
        work::tick_infallible((doc.as_bytes().len() / 64) as u32);
        match self {
            Fields::All => out.extend_from_slice(doc.as_bytes()),
            Fields::Only(names) => {
                let mut out = DocWriter::new(out);
                let mut left = names.len();
                for elem in doc {
                    if left == 0 {
                        break;
                    }
                    if self.contains(elem.key_bytes()) {
                        out.put_elem(elem);
                        left -= 1;
                    }
                }
            }
        }
    }
}

/// The first name of a dotted path.
pub fn top_level(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, doc};

    #[test]
    fn copies_what_is_read_in_the_order_it_has() {
        let doc = doc! { "c" => 1, "a" => 2, "b" => 3 };
        let copy = |fields: &Fields| {
            let mut out = Vec::new();
            fields.copy(doc.as_doc(), &mut out);
            DocBuf::from_vec(out).unwrap()
        };
        let fields = Fields::of_paths(["a.x", "c", "z"]);
        assert_eq!(copy(&fields), doc! { "c" => 1, "a" => 2 });
        assert_eq!(copy(&Fields::All), doc);
        assert_eq!(copy(&Fields::none()), doc! {});
        assert_eq!(copy(&fields.without("c")), doc! { "a" => 2 });
        assert_eq!(fields.union(&Fields::All), Fields::All);
        assert_eq!(copy(&fields.union(&Fields::of_paths(["b"]))), doc);
    }
}
