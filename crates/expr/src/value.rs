//! Builds values during evaluation, within limits.

use kauri_base::{Result, bail, limits, work};
use kauri_bson::{ArrayWriter, Doc, DocBuf, DocCow, DocWriter, Value};

/// Builds an array.
pub(crate) fn array(
    fill: impl FnOnce(&mut ArrayWriter<'_>) -> Result<()>,
) -> Result<Value<'static>> {
    let mut bytes = Vec::with_capacity(64);
    let mut out = ArrayWriter::new(&mut bytes);
    fill(&mut out)?;
    drop(out);
    Ok(Value::Array(DocBuf::from_vec(bytes)?.into()))
}

/// Builds a document.
pub(crate) fn document(
    fill: impl FnOnce(&mut DocWriter<'_>) -> Result<()>,
) -> Result<Value<'static>> {
    let mut bytes = Vec::with_capacity(64);
    let mut out = DocWriter::new(&mut bytes);
    fill(&mut out)?;
    drop(out);
    Ok(Value::Document(DocBuf::from_vec(bytes)?.into()))
}

/// Counts the work of a step in which a value grew. Fails where it has grown beyond the bound of intermediate
/// values.
#[inline]
pub(crate) fn check_size(bytes: usize) -> Result<()> {
    work::tick(1)?;
    if bytes > limits::EXPRESSION_VALUE_BYTES_MAX {
        bail!(
            ExceededMemoryLimit,
            "a value of {bytes} bytes exceeds the limit of {} bytes of an expression's value",
            limits::EXPRESSION_VALUE_BYTES_MAX
        );
    }
    Ok(())
}

/// A string value; fails at 16 MiB or more.
pub(crate) fn text(text: String) -> Result<Value<'static>> {
    check_text(text.len())?;
    work::tick_bytes(text.len())?;
    Ok(Value::String(text.into()))
}

/// A string value of bytes; fails at 16 MiB or more.
pub(crate) fn text_of_bytes(text: Vec<u8>) -> Result<Value<'static>> {
    check_text(text.len())?;
    work::tick_bytes(text.len())?;
    Ok(Value::string_of_bytes(text))
}

/// Fails where a string (or binary value) of this length cannot be.
pub(crate) fn check_text(length: usize) -> Result<()> {
    if length >= limits::DOCUMENT_BYTES_MAX {
        bail!(
            16493,
            "RCString too large. Requires size={length} < limit={}",
            limits::DOCUMENT_BYTES_MAX
        );
    }
    Ok(())
}

/// Fails where a value that is about to be bound to a variable nests too deeply. Only variables let
/// an expression build deeper than it is written.
pub(crate) fn check_nesting(value: &Value<'_>) -> Result<()> {
    let doc = match value {
        Value::Document(DocCow::Owned(doc)) | Value::Array(DocCow::Owned(doc)) => doc.as_doc(),
        _ => return Ok(()),
    };
    if nests_deeper(doc, limits::DOCUMENT_DEPTH_MAX)? {
        bail!(
            Overflow,
            "cannot convert document to BSON because it exceeds the limit of {} levels of nesting",
            limits::DOCUMENT_DEPTH_MAX
        );
    }
    Ok(())
}

fn nests_deeper(doc: Doc<'_>, levels: usize) -> Result<bool> {
    if levels == 0 {
        return Ok(true);
    }
    // A level takes five bytes at least.
    if doc.as_bytes().len() / 5 < levels {
        return Ok(false);
    }
    for elem in doc {
        work::tick(1)?;
        if let Some(inner) = elem.as_doc()
            && nests_deeper(inner, levels - 1)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An array of these values.
pub(crate) fn array_of<'v>(values: impl Iterator<Item = &'v Value<'v>>) -> Result<Value<'static>> {
    array(|out| {
        for value in values {
            out.push_value(value);
            check_size(out.len())?;
        }
        Ok(())
    })
}

/// Copies the elements into an array that is being built.
pub(crate) fn push_all(out: &mut ArrayWriter<'_>, items: Doc<'_>) -> Result<()> {
    for elem in items.ticked() {
        out.push_elem(elem?);
    }
    Ok(())
}
