//! The fields that an expression reads, so that unused fields are not read and stages can be reordered.

use crate::node::{Node, Prepared, VarRef};
use kauri_base::work;
use std::collections::BTreeSet;

/// The fields and variables that evaluation reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Dotted paths of the document.
    pub fields: BTreeSet<String>,
    /// Whether the document is needed as a whole.
    pub whole_document: bool,
    /// Names of `$meta` values.
    pub meta: BTreeSet<String>,
    /// Positions of variables that are bound outside.
    pub variables: BTreeSet<usize>,
    /// Whether the same document may give another value next time (`$rand`).
    pub random: bool,
}

impl Dependencies {
    /// Adds the dependencies of another expression.
    pub fn extend(&mut self, other: Dependencies) {
        self.fields.extend(other.fields);
        self.whole_document |= other.whole_document;
        self.meta.extend(other.meta);
        self.variables.extend(other.variables);
        self.random |= other.random;
    }
}

/// Adds the dependencies of a node.
pub(crate) fn collect(node: &Node, found: &mut Dependencies) {
    work::tick_infallible(1);
    match node {
        Node::Literal(_) | Node::Absent => {}
        Node::Field(path) => {
            found.fields.insert(path.dotted());
        }
        Node::Root => found.whole_document = true,
        Node::Variable(VarRef::Outer(position), _) => {
            found.variables.insert(*position);
        }
        // What a local variable is bound to is found where it is bound.
        Node::Variable(..) => {}
        Node::Object(fields) => fields.iter().for_each(|(_, node)| collect(node, found)),
        Node::Array(items) => items.iter().for_each(|node| collect(node, found)),
        Node::Call(call) => {
            match (call.op.name, &call.prepared) {
                ("$meta", Prepared::Name(name)) => {
                    found.meta.insert(name.clone());
                }
                ("$rand", _) => found.random = true,
                _ => {}
            }
            call.args.iter().for_each(|node| collect(node, found));
        }
        Node::Let(inner) => inner.children().for_each(|node| collect(node, found)),
        Node::Map(inner) => inner.children().for_each(|node| collect(node, found)),
        Node::Filter(inner) => inner.children().for_each(|node| collect(node, found)),
        Node::Reduce(inner) => inner.children().for_each(|node| collect(node, found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expression, ParseCx, VariableScope};
    use kauri_bson::{Value, array, doc};

    #[test]
    fn what_expressions_look_at() {
        let mut vars = VariableScope::new();
        vars.define("unused");
        vars.define("outer");
        let cx = ParseCx { vars, ..ParseCx::default() };
        let found = |spec: Value<'_>| Expression::parse(&spec, &cx).unwrap().dependencies();
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();

        let sum = found(doc! { "$add" => array!["$a.b", "$c", 1] }.into());
        assert_eq!(sum.fields, names(&["a.b", "c"]));
        assert!(!sum.whole_document && !sum.random);

        let bound = doc! { "$let" => doc! { "vars" => doc! { "x" => "$a" }, "in" => "$$x.b" } };
        assert_eq!(found(bound.into()).fields, names(&["a"]));
        let mapped = doc! { "$map" => doc! { "input" => "$list", "in" => array!["$$this", "$k"] } };
        assert_eq!(found(mapped.into()).fields, names(&["list", "k"]));

        assert!(found("$$ROOT".into()).whole_document);
        assert_eq!(found("$$ROOT.a".into()).fields, names(&["a"]));
        assert_eq!(found("$$outer.z".into()).variables, BTreeSet::from([1]));
        assert_eq!(found(doc! { "$meta" => "textScore" }.into()).meta, names(&["textScore"]));
        assert!(found(doc! { "$add" => array![doc! { "$rand" => doc! {} }, 1] }.into()).random);
        assert_eq!(found(doc! { "$add" => array![1, 2] }.into()), Dependencies::default());
    }
}
