//! The shape of a query: the query without its values. Queries of one shape share a plan, and an index filter
//! belongs to a shape.

use super::query::Query;
use kauri_base::work;
use kauri_bson::{Doc, shell_text};
use kauri_matcher::{MatchExpr, Predicate};
use std::fmt::Write as _;

/// The shape of a query, as it decides over plans: the order of conditions does not matter.
pub fn of_query(query: &Query) -> String {
    let sort = query.sort.as_ref().map_or(Doc::EMPTY, |sort| sort.spec());
    let projection = query.projection.as_ref().map_or(Doc::EMPTY, |(_, spec)| spec.as_doc());
    of_parts(query.filter.as_ref().map(|f| f.expr()), sort, projection)
}

/// The shape of a query of these parts.
pub fn of_parts(filter: Option<&MatchExpr>, sort: Doc<'_>, projection: Doc<'_>) -> String {
    let mut out = String::new();
    if let Some(filter) = filter {
        write_filter(filter, false, &mut out);
    }
    let mut fields: Vec<String> =
        projection.iter().map(|field| format!("{}: {}", field.key(), field.value())).collect();
    fields.sort();
    let _ = write!(out, "|{}|{}", shell_text(sort), fields.join(","));
    out
}

/// The shape of a query in its original form, for statistics.
pub fn as_written(query: &Query) -> String {
    let mut out = String::new();
    if let Some(filter) = &query.filter {
        write_filter(filter.expr(), true, &mut out);
    }
    let sort = query.sort.as_ref().map_or(Doc::EMPTY, |sort| sort.spec());
    let projection = query.projection.as_ref().map_or(Doc::EMPTY, |(_, spec)| spec.as_doc());
    let _ = write!(out, "|{}|{}", shell_text(sort), shell_text(projection));
    out
}

fn write_filter(filter: &MatchExpr, as_written: bool, out: &mut String) {
    work::tick_infallible(4);
    let name = match filter {
        MatchExpr::And(_) => "and",
        MatchExpr::Or(_) => "or",
        MatchExpr::Nor(_) => "nor",
        MatchExpr::Not(_) => "not",
        MatchExpr::Leaf(leaf) => {
            let _ = write!(out, "{:?}", leaf.path.as_str());
            write_predicate(&leaf.pred, as_written, out);
            return;
        }
        MatchExpr::AlwaysTrue => "true",
        MatchExpr::AlwaysFalse => "false",
        MatchExpr::Expr(_) if as_written => {
            write_without_literals(filter.to_bson().as_doc(), out);
            return;
        }
        MatchExpr::Expr(_) => "expr",
        MatchExpr::Schema(_) => "schema",
        MatchExpr::SampleRate(_) => "sample",
    };
    let mut children: Vec<String> = Vec::new();
    for child in filter.children() {
        let mut text = String::new();
        write_filter(child, as_written, &mut text);
        children.push(text);
    }
    if !as_written {
        children.sort_by(|a, b| {
            work::tick_infallible(1);
            a.cmp(b)
        });
    }
    let _ = write!(out, "{name}[{}]", children.join(","));
}

fn write_predicate(pred: &Predicate, as_written: bool, out: &mut String) {
    let name = match pred {
        Predicate::Compare(op, _) => op.name(),
        // One value's list is planned as an equality.
        Predicate::In(list)
            if !as_written && list.values().len() == 1 && list.regexes().is_empty() =>
        {
            "$eq"
        }
        Predicate::In(_) => "$in",
        Predicate::Regex(_) => "$regex",
        Predicate::Exists => "$exists",
        Predicate::Type(types, _) if as_written => {
            let _ = write!(out, "$type{types:?}");
            return;
        }
        Predicate::Type(..) => "$type",
        Predicate::Mod(_) => "$mod",
        Predicate::Size(_) => "$size",
        Predicate::Bits(_) => "$bits",
        Predicate::ElemMatchObject(child) | Predicate::ElemMatchValue(child) => {
            out.push_str("$elemMatch(");
            write_filter(child, as_written, out);
            out.push(')');
            return;
        }
    };
    out.push_str(name);
}

/// An expression's operators and fields.
fn write_without_literals(doc: Doc<'_>, out: &mut String) {
    if kauri_base::work::check_stack().is_err() {
        return;
    }
    for elem in doc {
        let _ = write!(out, "{}:", elem.key());
        match elem.as_doc() {
            Some(inner) => {
                out.push('{');
                write_without_literals(inner, out);
                out.push('}');
            }
            None => match elem.value().as_str().filter(|text| text.starts_with('$')) {
                Some(field) => out.push_str(field),
                None => out.push('?'),
            },
        }
        out.push(',');
    }
}

/// A short name of a shape: eight hexadecimal digits (`queryHash`).
pub fn hash(shape: &str) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in shape.bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    format!("{hash:08X}")
}
