//! Which fields a projection reads, for plans that have only an index's keys at hand.

use crate::project::RequiredFields;
use crate::project::tree::{Child, Mode, Node};
use kauri_expr::Dependencies;
use std::collections::BTreeSet;

/// What the tree reads.
pub(crate) fn required(root: &Node, mode: Mode) -> RequiredFields {
    let mut paths = BTreeSet::new();
    let mut computed = Dependencies::default();
    collect(root, "", &mut paths, &mut computed);
    if mode != Mode::Inclusion || computed.whole_document {
        return RequiredFields::All;
    }
    paths.extend(computed.fields);
    RequiredFields::Only(paths)
}

fn collect(node: &Node, prefix: &str, paths: &mut BTreeSet<String>, computed: &mut Dependencies) {
    for (name, child) in node.iter() {
        let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        match child {
            Child::Keep | Child::Slice(_) | Child::Positional | Child::ElemMatch(_) => {
                paths.insert(path);
            }
            Child::Nested(inner) => {
                // What is computed within a field keeps the field's other parts in its place.
                if inner.computes {
                    paths.insert(path.clone());
                }
                collect(inner, &path, paths, computed);
            }
            Child::Computed(expression) => expression.add_dependencies(computed),
            Child::Drop => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParseCx, Projection};
    use kauri_bson::{DocBuf, array, doc};

    fn fields(spec: DocBuf) -> Option<Vec<String>> {
        match Projection::parse(spec.as_doc(), None, &ParseCx::new()).map(|p| p.required) {
            Ok(RequiredFields::Only(paths)) => Some(paths.into_iter().collect()),
            _ => None,
        }
    }

    #[test]
    fn what_projections_read() {
        let only = |paths: &[&str]| Some(paths.iter().map(|p| (*p).to_owned()).collect());
        assert_eq!(fields(doc! { "a" => 1, "b.c" => 1 }), only(&["_id", "a", "b.c"]));
        assert_eq!(fields(doc! { "a" => 1, "_id" => 0 }), only(&["a"]));
        assert_eq!(fields(doc! { "a" => 0 }), None);
        assert_eq!(fields(doc! { "_id" => 0, "x" => "$y.z" }), only(&["y.z"]));
        assert_eq!(fields(doc! { "_id" => 0, "x" => "$$ROOT" }), None);
        assert_eq!(fields(doc! { "_id" => 0, "x" => "$$ROOT.k" }), only(&["k"]));
        let sum = doc! { "$concat" => array!["$a", "$b.c", "text"] };
        assert_eq!(fields(doc! { "_id" => 0, "x" => sum }), only(&["a", "b.c"]));
        let within = doc! { "$literal" => 1 };
        assert_eq!(fields(doc! { "_id" => 0, "a.b" => within }), only(&["a"]));
    }
}
