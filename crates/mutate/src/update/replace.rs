//! Replacements and pipeline updates: both produce a whole new document with the same `_id`.

use crate::cx::{ParseCx, ProjectCx, UpdateCx};
use crate::raw;
use crate::transform::DocTransform;
use crate::update::{Applied, check};
use kauri_base::limits::DOCUMENT_DEPTH_STORED_MAX;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, Elem, Type};

/// Parses a pipeline update.
pub(crate) fn parse_pipeline(stages: Doc<'_>, cx: &ParseCx<'_>) -> Result<Vec<DocTransform>> {
    let mut parsed = Vec::new();
    for stage in stages {
        let spec = match (stage.ty(), stage.as_doc()) {
            (Type::Document, Some(spec)) => spec,
            _ => bail!(TypeMismatch, "Each element of the 'pipeline' array must be an object"),
        };
        let mut fields = spec.iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            bail!(40323, "A pipeline stage specification object must contain exactly one field.");
        };
        if !DocTransform::is_stage(field.key()) {
            bail!(InvalidOptions, "{} is not allowed to be used within an update", field.key());
        }
        if parsed.len() >= kauri_base::limits::PIPELINE_STAGES_MAX {
            bail!(
                7749501,
                "Pipeline length must be no longer than {} stages",
                kauri_base::limits::PIPELINE_STAGES_MAX
            );
        }
        parsed.push(DocTransform::parse(field.key(), &field.value(), cx)?);
    }
    Ok(parsed)
}

/// Runs a pipeline update and appends its result.
pub(crate) fn run_pipeline(
    stages: &[DocTransform],
    doc: Doc<'_>,
    cx: &UpdateCx<'_>,
    out: &mut Vec<u8>,
) -> Result<Applied> {
    let project = ProjectCx::new(cx.eval);
    let mut current: Option<DocBuf> = None;
    for stage in stages {
        let input = current.as_ref().map_or(doc, DocBuf::as_doc);
        let mut bytes = Vec::with_capacity(input.as_bytes().len() + 64);
        stage.apply(input, &project, &mut bytes)?;
        check::internal_size(bytes.len(), doc)?;
        current = Some(DocBuf::from_vec(bytes)?);
    }
    match &current {
        Some(result) => put_replacement(doc, result.as_doc(), out, |_| None),
        None => Ok(Applied::NOTHING),
    }
}

/// Appends a replacement.
pub(crate) fn replace(
    doc: Doc<'_>,
    replacement: Doc<'_>,
    cx: &UpdateCx<'_>,
    out: &mut Vec<u8>,
) -> Result<Applied> {
    if !cx.is_insert
        && let Some(field) = replacement.iter().find(|e| e.key().starts_with('$'))
    {
        bail!(
            DollarPrefixedFieldName,
            "The dollar ($) prefixed field '{0}' in '{0}' is not allowed in the context of an \
             update's replacement document. Consider using an aggregation pipeline with \
             $replaceWith.",
            field.key()
        );
    }
    // An empty timestamp at the top level asks for the server's time.
    let stamp = |elem: Elem<'_>| {
        let empty = !cx.keeps_empty_timestamps
            && elem.ty() == Type::Timestamp
            && elem.value_bytes() == [0; 8];
        empty.then(|| {
            let now = cx.timestamp();
            (u64::from(now.seconds) << 32 | u64::from(now.increment)).to_le_bytes()
        })
    };
    put_replacement(doc, replacement, out, stamp)
}

/// Appends a replacement as it is.
pub(crate) fn put_stored(doc: Doc<'_>, stored: Doc<'_>, out: &mut Vec<u8>) -> Result<Applied> {
    put_replacement(doc, stored, out, |_| None)
}

/// Appends the new document, `_id` first; `stamp` gives other bytes for an element.
fn put_replacement(
    old: Doc<'_>,
    new: Doc<'_>,
    out: &mut Vec<u8>,
    stamp: impl Fn(Elem<'_>) -> Option<[u8; 8]>,
) -> Result<Applied> {
    // A replacement that leaves `_id` out counts as a change even if nothing else differs.
    if new == old {
        return Ok(Applied::NOTHING);
    }
    let old_id = old.get("_id");
    let new_id = new.get("_id");
    if let Some(id) = new_id {
        if let Some(old_id) = old_id {
            check::replaced_id(old_id, id)?;
        }
        check::storable_id(id)?;
    }
    if raw::depth_of(Type::Document, new.as_bytes()) > DOCUMENT_DEPTH_STORED_MAX {
        bail!(Overflow, "Document exceeds maximum nesting depth of {DOCUMENT_DEPTH_STORED_MAX}");
    }
    let start = raw::begin(out);
    if let Some(id) = new_id.or(old_id) {
        raw::put_elem(out, id);
    }
    for elem in new.ticked() {
        let elem = elem?;
        if elem.key_bytes() == b"_id" {
            continue;
        }
        match stamp(elem) {
            Some(bytes) => raw::put_raw(out, elem.ty(), elem.key_bytes(), &bytes),
            None => raw::put_elem(out, elem),
        }
    }
    raw::end(out, start);
    Ok(Applied { modified: true })
}
