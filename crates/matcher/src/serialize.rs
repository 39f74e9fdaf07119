//! Converts a tree back into a filter document, as in explain's `parsedQuery`.
//!
//! The result parses to a tree that matches the same documents.

use crate::tree::{BitTest, CompareOp, Leaf, MatchExpr, Predicate};
use crate::type_set::TypeSet;
use kauri_bson::{ArrayWriter, DocBuf, DocWriter, Type, Value};

impl MatchExpr {
    /// The tree as a filter.
    pub fn to_bson(&self) -> DocBuf {
        DocBuf::build(|w| self.write(w))
    }

    /// Adds the tree's fields to a document that is being written.
    pub fn write(&self, out: &mut DocWriter<'_>) {
        match self {
            MatchExpr::And(children) if children.is_empty() => {}
            MatchExpr::And(children) => write_branches("$and", children, out),
            MatchExpr::Or(children) => write_branches("$or", children, out),
            MatchExpr::Nor(children) => write_branches("$nor", children, out),
            // A DBRef's fields: under them no operator is looked for.
            MatchExpr::Leaf(Leaf { path, pred: Predicate::Compare(CompareOp::Eq, value) })
                if path.as_str().starts_with('$') =>
            {
                out.put_value(path.as_str(), value);
            }
            MatchExpr::Leaf(leaf) => {
                leaf.pred.write(&mut out.document(leaf.path.as_str()));
            }
            MatchExpr::Not(child) => match &**child {
                MatchExpr::Leaf(Leaf { path, pred }) if !path.as_str().starts_with('$') => {
                    let mut under = out.document(path.as_str());
                    pred.write(&mut under.document("$not"));
                }
                other => write_branches("$nor", std::slice::from_ref(other), out),
            },
            MatchExpr::Expr(expr) => out.put_value("$expr", expr.source()),
            MatchExpr::Schema(schema) => out.put("$jsonSchema", schema.source()),
            MatchExpr::SampleRate(rate) => out.put("$sampleRate", *rate),
            MatchExpr::AlwaysTrue => out.put("$alwaysTrue", 1.0),
            MatchExpr::AlwaysFalse => out.put("$alwaysFalse", 1.0),
        }
    }

    /// Writes predicates on a value itself as an operator object's fields.
    fn write_on_value(&self, out: &mut DocWriter<'_>) {
        match self {
            MatchExpr::And(children) => {
                for child in children {
                    child.write_on_value(out);
                }
            }
            MatchExpr::Leaf(leaf) => leaf.pred.write(out),
            MatchExpr::Not(child) => child.write_on_value(&mut out.document("$not")),
            // There is no operator for these under a field.
            MatchExpr::AlwaysFalse => drop(out.array("$in")),
            _ => drop(out.array("$nin")),
        }
    }
}

fn write_branches(name: &str, children: &[MatchExpr], out: &mut DocWriter<'_>) {
    let mut branches = out.array(name);
    for child in children {
        child.write(&mut branches.document());
    }
}

impl Predicate {
    /// Writes the predicate as fields of an operator object.
    pub(crate) fn write(&self, out: &mut DocWriter<'_>) {
        match self {
            Predicate::Compare(op, value) => out.put_value(op.name(), value),
            Predicate::In(list) => {
                let mut items = out.array("$in");
                for value in list.values() {
                    items.push_value(value);
                }
                for regex in list.regexes() {
                    items.push(Value::Regex {
                        pattern: regex.pattern().into(),
                        options: regex.options().into(),
                    });
                }
            }
            Predicate::Regex(regex) => {
                out.put("$regex", regex.pattern());
                if !regex.options().is_empty() {
                    out.put("$options", regex.options());
                }
            }
            Predicate::Exists => out.put("$exists", true),
            Predicate::Type(types, _) => types.write(out.array("$type")),
            Predicate::Mod(modulo) => {
                let mut operands = out.array("$mod");
                operands.push(modulo.divisor);
                operands.push(modulo.remainder);
            }
            Predicate::Size(size) => out.put("$size", i32::try_from(*size).unwrap_or(i32::MAX)),
            Predicate::Bits(test) => test.write(out),
            Predicate::ElemMatchObject(filter) => filter.write(&mut out.document("$elemMatch")),
            Predicate::ElemMatchValue(filter) => {
                filter.write_on_value(&mut out.document("$elemMatch"));
            }
        }
    }
}

impl TypeSet {
    fn write(self, mut out: ArrayWriter<'_>) {
        if self.all_numbers() {
            out.push("number");
        }
        for ty in self.iter() {
            if self.all_numbers() && ty.is_number() {
                continue;
            }
            out.push(match ty {
                Type::MinKey => -1,
                other => other as i32,
            });
        }
    }
}

impl BitTest {
    fn write(&self, out: &mut DocWriter<'_>) {
        let mut positions = out.array(self.op().name());
        for position in self.positions() {
            positions.push(i32::try_from(*position).unwrap_or(i32::MAX));
        }
    }
}
