//! The document that an upsert inserts: the filter's equalities, then the update.

use crate::cx::UpdateCx;
use crate::raw;
use crate::update::{Form, Update, check, condition};
use kauri_base::limits::DOCUMENT_DEPTH_STORED_MAX;
use kauri_base::{Result, bail, sort};
use kauri_bson::{Doc, DocBuf, Type, Value, writer::put_value_bytes};
use kauri_matcher::MatchExpr;

pub(crate) fn new_document(
    update: &Update,
    filter: &MatchExpr,
    object_id: [u8; 12],
    cx: &UpdateCx<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let replacement = matches!(update.form, Form::Replacement(_) | Form::Stored(_));
    let seed = from_filter(filter, replacement)?;
    let cx = UpdateCx { is_insert: true, ..*cx };
    let mut bytes = Vec::with_capacity(seed.as_bytes().len() + 64);
    let applied = update.apply_unchecked(seed.as_doc(), &cx, &mut bytes)?;
    let updated = if applied.modified { DocBuf::from_vec(bytes)? } else { seed };
    put_with_id_first(updated.as_doc(), object_id, out)
}

/// Appends the document with its `_id`, which may be new, moved to the front.
fn put_with_id_first(doc: Doc<'_>, object_id: [u8; 12], out: &mut Vec<u8>) -> Result<()> {
    let base = out.len();
    let start = raw::begin(out);
    match doc.get("_id") {
        Some(id) => {
            check::storable_id(id)?;
            raw::put_elem(out, id);
        }
        None => raw::put_raw(out, Type::ObjectId, b"_id", &object_id),
    }
    for elem in doc.ticked() {
        let elem = elem?;
        if elem.key_bytes() != b"_id" {
            raw::put_elem(out, elem);
        }
    }
    raw::end(out, start);
    let checked = check::upserted_size(out.len() - base, doc);
    if checked.is_err() {
        out.truncate(base);
    }
    checked
}

/// The document of the filter's equalities; a replacement takes `_id` only.
fn from_filter(filter: &MatchExpr, id_only: bool) -> Result<DocBuf> {
    let mut found = Vec::new();
    condition::equalities(filter, &mut found);
    if id_only {
        if let Some((path, _)) = found.iter().find(|(path, _)| path.starts_with("_id.")) {
            bail!(
                NotExactValueField,
                "field at '_id' must be exactly specified, field at sub-path '{path}'found"
            );
        }
        found.retain(|(path, _)| *path == "_id");
    }
    if found.iter().any(|(path, _)| path.split('.').count() > DOCUMENT_DEPTH_STORED_MAX) {
        bail!(Overflow, "Document exceeds maximum nesting depth of {DOCUMENT_DEPTH_STORED_MAX}");
    }
    // The sort is stable, so of paths matched twice the first stands first.
    sort::sort_by(&mut found, |(a, _), (b, _)| a.split('.').cmp(b.split('.')))?;
    for pair in found.windows(2) {
        let [(a, _), (b, _)] = pair else { continue };
        if a == b {
            bail!(
                NotSingleValueField,
                "cannot infer query fields to set, path '{a}' is matched twice"
            );
        }
        if b.strip_prefix(a).is_some_and(|rest| rest.starts_with('.')) {
            bail!(
                NotSingleValueField,
                "cannot infer query fields to set, both paths '{a}' and '{b}' are matched"
            );
        }
    }
    let mut bytes = Vec::with_capacity(64);
    put_fields(&found, 0, &mut bytes);
    DocBuf::from_vec(bytes)
}

/// Appends the document of these paths, which are sorted and agree in their first `depth`
/// components.
fn put_fields(found: &[(&str, Value<'_>)], depth: usize, out: &mut Vec<u8>) {
    let start = raw::begin(out);
    let step = |path: &str| path.split('.').nth(depth).map(str::to_owned);
    for group in found.chunk_by(|(a, _), (b, _)| step(a) == step(b)) {
        let Some((path, value)) = group.first() else { continue };
        let Some(name) = step(path) else { continue };
        if path.split('.').count() == depth + 1 {
            if let Some(ty) = value.ty() {
                raw::put_header(out, ty, name.as_bytes());
                put_value_bytes(out, value);
            }
        } else {
            raw::put_header(out, Type::Document, name.as_bytes());
            put_fields(group, depth + 1, out);
        }
    }
    raw::end(out, start);
}
