//! What index keys alone determine: filters that need no document, and rows that need no document.
//!
//! A key determines a field's value only if its path has no array. A null in it may stand for a missing field. A
//! filter that distinguishes these needs the document, and so does a row with a null.

use super::index_access::is_by_position;
use super::query::Query;
use crate::exec::Fields;
use kauri_bson::{Doc, DocBuf, Type, Value};
use kauri_catalog::Index;
use kauri_matcher::{Leaf, MatchCx, MatchExpr};

/// Whether the filter can be decided by an entry's key.
pub fn key_decides(index: &Index, filter: &MatchExpr) -> bool {
    match filter {
        MatchExpr::And(_) | MatchExpr::Or(_) | MatchExpr::Nor(_) | MatchExpr::Not(_) => {
            filter.children().iter().all(|child| key_decides(index, child))
        }
        MatchExpr::Leaf(leaf) => {
            field_of(index, leaf.path.as_str()).is_some() && takes_null_for_missing(leaf)
        }
        MatchExpr::AlwaysTrue | MatchExpr::AlwaysFalse => true,
        _ => false,
    }
}

/// The index's field of this path, if its keys are the values at the path.
pub fn field_of(index: &Index, path: &str) -> Option<usize> {
    let key = index.definition().key.as_doc();
    let field = key.iter().position(|elem| elem.key() == path)?;
    (index.keys.multikey.of_field(field) == 0 && !is_by_position(path)).then_some(field)
}

fn takes_null_for_missing(leaf: &Leaf) -> bool {
    let mut parts = leaf.path.as_str().rsplit('.');
    let last = parts.next().unwrap_or_default();
    let mut null = DocBuf::build(|w| w.put(last, Value::Null));
    for part in parts {
        null = DocBuf::build(|w| w.put(part, null.as_doc()));
    }
    let alone = MatchExpr::Leaf(leaf.clone());
    let matches = |doc: Doc<'_>| alone.matches(doc, &MatchCx::new()).ok();
    matches(null.as_doc()) == matches(Doc::EMPTY)
}

/// The index's fields that a row of this query is made of, if a key is enough for it.
pub fn covering_fields(index: &Index, query: &Query) -> Option<Vec<usize>> {
    if query.return_key || query.show_record_id {
        return None;
    }
    if query.count {
        return Some(Vec::new());
    }
    let Some((_, spec)) = &query.projection else {
        return (query.fields == Fields::none()).then(Vec::new);
    };
    let mut fields = Vec::new();
    let mut with_id = true;
    for elem in spec.as_doc() {
        let plain = elem.value().is_number() || elem.ty() == Type::Bool;
        match (plain, elem.value().truthy(), elem.key()) {
            (true, false, "_id") => with_id = false,
            (true, true, "_id") => {}
            (true, true, path) => fields.push(field_of(index, path)?),
            _ => return None,
        }
    }
    if with_id {
        fields.push(field_of(index, "_id")?);
    }
    Some(fields)
}
