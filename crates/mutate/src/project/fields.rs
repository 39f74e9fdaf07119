//! Which fields a projection reads, for plans that have only an index's keys at hand.
//!
//! Never too few: what an expression reads is told from its source, where each text that begins with
//! `$` counts as a path.

use crate::project::RequiredFields;
use crate::project::tree::{Child, Mode, Node};
use kauri_bson::Value;
use std::collections::BTreeSet;

/// Levels of an expression that are looked into.
const DEPTH_MAX: usize = 200;

/// What the tree reads, given what its expressions do.
pub(crate) fn required(root: &Node, mode: Mode, computed: &RequiredFields) -> RequiredFields {
    let (Mode::Inclusion, RequiredFields::Only(computed)) = (mode, computed) else {
        return RequiredFields::All;
    };
    let mut paths = computed.clone();
    collect(root, "", &mut paths);
    RequiredFields::Only(paths)
}

fn collect(node: &Node, prefix: &str, paths: &mut BTreeSet<String>) {
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
                collect(inner, &path, paths);
            }
            Child::Drop | Child::Computed(_) => {}
        }
    }
}

/// Adds what an expression reads, as its source tells.
pub(crate) fn add_source(required: &mut RequiredFields, source: &Value<'_>) {
    if let RequiredFields::Only(paths) = required
        && !read_by(source, paths, 0)
    {
        *required = RequiredFields::All;
    }
}

/// Adds the paths that a source reads; false if they cannot be told.
fn read_by(source: &Value<'_>, paths: &mut BTreeSet<String>, depth: usize) -> bool {
    if depth > DEPTH_MAX {
        return false;
    }
    match source {
        Value::String(text) => match text.strip_prefix('$') {
            None => true,
            Some(rest) => match rest.strip_prefix('$') {
                None => {
                    paths.insert(rest.to_owned());
                    true
                }
                // A variable holds what its own definition reads, but these are the document.
                Some(variable) => {
                    let (name, path) = variable.split_once('.').unwrap_or((variable, ""));
                    if !matches!(name, "ROOT" | "CURRENT") {
                        return true;
                    }
                    paths.insert(path.to_owned());
                    !path.is_empty()
                }
            },
        },
        Value::Document(doc) => doc.iter().all(|e| {
            // These read fields whose names are no paths in the source, or rebind the document.
            let opaque = matches!(e.key(), "$getField" | "CURRENT" | "$function" | "$accumulator");
            !opaque && read_by(&e.value(), paths, depth + 1)
        }),
        Value::Array(items) => items.iter().all(|e| read_by(&e.value(), paths, depth + 1)),
        _ => true,
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
        let get = doc! { "$getField" => "k" };
        assert_eq!(fields(doc! { "_id" => 0, "x" => get }), None);
        let within = doc! { "$literal" => 1 };
        assert_eq!(fields(doc! { "_id" => 0, "a.b" => within }), only(&["a"]));
    }
}
