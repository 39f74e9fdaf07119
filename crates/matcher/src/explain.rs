//! Explains why a document does not match: the `details` of a validation failure (`errInfo.details`).
//!
//! The format follows MongoDB's chapter "document validation": the operators that did not hold, as in the
//! validator, with the values that were considered.

use crate::cx::MatchCx;
use crate::eval;
use crate::schema::{DETAILS_BYTES_MAX, VALUE_BYTES_MAX};
use crate::tree::{Leaf, MatchExpr, Predicate};
use kauri_base::{Result, work};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem};

/// Values that one operator shows.
const VALUES_MAX: usize = 10;

/// The subject of an explanation: that an expression does not hold, or that it does (below a negation).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Match,
    NoMatch,
}

impl Wanted {
    fn inverted(self) -> Wanted {
        if self == Wanted::Match { Wanted::NoMatch } else { Wanted::Match }
    }
}

fn doc_of(name: &str, value: &kauri_bson::Value<'_>) -> DocBuf {
    DocBuf::build(|w| w.put_value(name, value))
}

impl MatchExpr {
    /// The details of why this document, which does not match, does not.
    pub fn explain_mismatch(&self, doc: Doc<'_>, cx: &MatchCx<'_>) -> Result<DocBuf> {
        let mut bytes = Vec::new();
        let mut writer = DocWriter::new(&mut bytes);
        self.explain(doc, cx, Wanted::Match, &mut writer)?;
        drop(writer);
        if bytes.len() > DETAILS_BYTES_MAX {
            return Ok(DocBuf::build(|w| w.put("reason", "the details are too large to be shown")));
        }
        DocBuf::from_vec(bytes)
    }

    fn explain(
        &self,
        doc: Doc<'_>,
        cx: &MatchCx<'_>,
        wanted: Wanted,
        out: &mut DocWriter<'_>,
    ) -> Result<()> {
        work::check_stack()?;
        match self {
            MatchExpr::And(children) => explain_branches("$and", children, doc, cx, wanted, out),
            MatchExpr::Or(children) => explain_branches("$or", children, doc, cx, wanted, out),
            MatchExpr::Nor(children) => {
                out.put("operatorName", "$nor");
                let mut clauses = out.array("clausesSatisfied");
                for (index, child) in children.iter().enumerate() {
                    if clauses.len() > DETAILS_BYTES_MAX {
                        break;
                    }
                    if child.matches(doc, cx)? == (wanted == Wanted::Match) {
                        let mut clause = clauses.document();
                        clause.put("index", index as i32);
                        let mut details = clause.document("details");
                        child.explain(doc, cx, wanted.inverted(), &mut details)?;
                    }
                }
                Ok(())
            }
            MatchExpr::Not(child) => match &**child {
                MatchExpr::Leaf(leaf) if leaf.negated_name().is_some() => {
                    leaf.explain_negated(doc, wanted, out)
                }
                child => {
                    out.put("operatorName", "$not");
                    child.explain(doc, cx, wanted.inverted(), &mut out.document("details"))
                }
            },
            MatchExpr::Leaf(leaf) => leaf.explain(doc, wanted, out),
            MatchExpr::Expr(expr) => {
                out.put("operatorName", "$expr");
                out.document("specifiedAs").put_value("$expr", expr.source());
                let matched = wanted == Wanted::NoMatch;
                out.put(
                    "reason",
                    if matched { "expression did match" } else { "expression did not match" },
                );
                let result = doc_of("expressionResult", &expr.expression().eval(&cx.eval, doc)?);
                if result.as_bytes().len() <= VALUE_BYTES_MAX {
                    out.put_all(result.as_doc());
                }
                Ok(())
            }
            MatchExpr::Schema(schema) if wanted == Wanted::Match => schema.explain(doc, out),
            MatchExpr::Schema(schema) => {
                out.put("operatorName", "$jsonSchema");
                out.document("specifiedAs").put("$jsonSchema", schema.source());
                out.put("reason", "schema matched");
                Ok(())
            }
            MatchExpr::AlwaysTrue | MatchExpr::AlwaysFalse | MatchExpr::SampleRate(_) => {
                out.put("specifiedAs", self.to_bson());
                out.put("reason", "expression always evaluates to the same");
                Ok(())
            }
        }
    }
}

fn explain_branches(
    name: &str,
    children: &[MatchExpr],
    doc: Doc<'_>,
    cx: &MatchCx<'_>,
    wanted: Wanted,
    out: &mut DocWriter<'_>,
) -> Result<()> {
    out.put("operatorName", name);
    let satisfied = wanted == Wanted::NoMatch;
    let title = if satisfied { "clausesSatisfied" } else { "clausesNotSatisfied" };
    let mut clauses = out.array(title);
    for (index, child) in children.iter().enumerate() {
        if clauses.len() > DETAILS_BYTES_MAX {
            break;
        }
        if child.matches(doc, cx)? == satisfied {
            let mut clause = clauses.document();
            clause.put("index", index as i32);
            child.explain(doc, cx, wanted, &mut clause.document("details"))?;
        }
    }
    Ok(())
}

impl Leaf {
    /// The name of the operator that stands for the negation, if there is one.
    fn negated_name(&self) -> Option<&'static str> {
        match &self.pred {
            Predicate::Compare(crate::CompareOp::Eq, _) => Some("$ne"),
            Predicate::In(_) => Some("$nin"),
            Predicate::Exists => Some("$exists"),
            _ => None,
        }
    }

    /// The operator and its operand, as the user wrote them.
    fn operand(&self) -> DocBuf {
        match &self.pred {
            Predicate::Type(_, source) => DocBuf::build(|w| w.put_value("$type", source)),
            pred => DocBuf::build(|w| pred.write(w)),
        }
    }

    fn explain_negated(&self, doc: Doc<'_>, wanted: Wanted, out: &mut DocWriter<'_>) -> Result<()> {
        let name = self.negated_name().unwrap_or("$not");
        out.put("operatorName", name);
        let operand = self.operand();
        {
            let mut specified = out.document("specifiedAs");
            let mut under = specified.document(self.path.as_str());
            match (&self.pred, operand.as_doc().first()) {
                (Predicate::Exists, _) => under.put("$exists", false),
                (_, Some(operand)) => under.put_elem_as(name, operand),
                _ => {}
            }
        }
        self.explain_values(doc, wanted.inverted(), out)
    }

    fn explain(&self, doc: Doc<'_>, wanted: Wanted, out: &mut DocWriter<'_>) -> Result<()> {
        let operand = self.operand();
        out.put("operatorName", operand.as_doc().first().map_or("", Elem::key));
        out.document("specifiedAs").put(self.path.as_str(), &operand);
        self.explain_values(doc, wanted, out)
    }

    /// The reason, and the values that the path reaches.
    fn explain_values(&self, doc: Doc<'_>, wanted: Wanted, out: &mut DocWriter<'_>) -> Result<()> {
        let mut values: Vec<Elem<'_>> = Vec::new();
        eval::from_doc(doc, &self.path, 0, self.pred.expand(), |elem, _| {
            values.extend(elem);
            Ok(values.len() >= VALUES_MAX)
        })?;
        if values.is_empty() && !matches!(self.pred, Predicate::Exists) {
            out.put("reason", "field was missing");
            return Ok(());
        }
        let (matched, unmatched) = self.pred.reasons();
        out.put("reason", if wanted == Wanted::NoMatch { matched } else { unmatched });
        if values.iter().map(|v| v.value_bytes().len()).sum::<usize>() > VALUE_BYTES_MAX {
            return Ok(());
        }
        let with_type = matches!(self.pred, Predicate::Type(..));
        match values.as_slice() {
            [] => {}
            [value] => {
                out.put_elem_as("consideredValue", *value);
                if with_type {
                    out.put("consideredType", value.ty().alias());
                }
            }
            values => {
                let mut list = out.array("consideredValues");
                values.iter().for_each(|v| list.push_elem(*v));
                drop(list);
                if with_type {
                    let mut list = out.array("consideredTypes");
                    values.iter().for_each(|v| list.push(v.ty().alias()));
                }
            }
        }
        Ok(())
    }
}

impl Predicate {
    /// The reasons if it holds, and if it does not.
    fn reasons(&self) -> (&'static str, &'static str) {
        match self {
            Predicate::Compare(..) => ("comparison succeeded", "comparison failed"),
            Predicate::In(_) => {
                ("matching value found in array", "no matching value found in array")
            }
            Predicate::Regex(_) => {
                ("regular expression did match", "regular expression did not match")
            }
            Predicate::Exists => ("path does exist", "path does not exist"),
            Predicate::Type(..) => ("type did match", "type did not match"),
            Predicate::Mod(_) => (
                "$mod did evaluate to expected remainder",
                "$mod did not evaluate to expected remainder",
            ),
            Predicate::Size(_) => {
                ("array length was equal to given size", "array length was not equal to given size")
            }
            Predicate::Bits(_) => {
                ("bitwise operator matched successfully", "bitwise operator failed to match")
            }
            Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => (
                "array did satisfy the child predicate",
                "array did not satisfy the child predicate",
            ),
        }
    }
}
