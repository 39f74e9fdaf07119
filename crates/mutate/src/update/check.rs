//! Checks of a document after an update: size, `_id`.

use crate::text;
use kauri_base::limits::{DOCUMENT_BYTES_MAX, DOCUMENT_INTERNAL_BYTES_MAX};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::compare::compare_elem_values;
use kauri_bson::{Doc, Elem, Type};

/// Checks the size that no document may pass, not even in between.
pub(crate) fn internal_size(size: usize, original: Doc<'_>) -> Result<()> {
    if size > DOCUMENT_INTERNAL_BYTES_MAX {
        let first = original.first().map(text::elem).unwrap_or_else(|| "EOO".to_owned());
        bail!(
            BSONObjectTooLarge,
            "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and \
             {DOCUMENT_INTERNAL_BYTES_MAX}(16MB) First element: {first}"
        );
    }
    Ok(())
}

/// Checks the size of an updated document.
pub(crate) fn updated_size(size: usize, original: Doc<'_>) -> Result<()> {
    internal_size(size, original)?;
    if size > DOCUMENT_BYTES_MAX {
        bail!(17419, "Resulting document after update is larger than {DOCUMENT_BYTES_MAX}");
    }
    Ok(())
}

/// Checks the size of a document that an upsert inserts.
pub(crate) fn upserted_size(size: usize, original: Doc<'_>) -> Result<()> {
    internal_size(size, original)?;
    if size > DOCUMENT_BYTES_MAX {
        bail!(17420, "Document to upsert is larger than {DOCUMENT_BYTES_MAX}");
    }
    Ok(())
}

/// Checks that operators left `_id` as it was (`1` and `1.0` are the same).
pub(crate) fn same_id(old: Doc<'_>, new: Doc<'_>) -> Result<()> {
    match (old.get("_id"), new.get("_id")) {
        (Some(old), Some(new)) if compare_elem_values(old, new).is_eq() => Ok(()),
        (None, _) => Ok(()),
        (Some(_), _) => Err(modified_id()),
    }
}

/// The error of operators that touch `_id`.
pub(crate) fn modified_id() -> Error {
    let message = "Performing an update on the path '_id' would modify the immutable field '_id'";
    Error::new(ErrorCode::ImmutableField, message)
}

/// Checks that a replacement's `_id` is the document's.
pub(crate) fn replaced_id(old: Elem<'_>, new: Elem<'_>) -> Result<()> {
    if compare_elem_values(old, new).is_ne() {
        bail!(
            ImmutableField,
            "After applying the update, the (immutable) field '_id' was found to have been \
             altered to {}",
            text::elem(new)
        );
    }
    Ok(())
}

/// Checks that an `_id` is of a type that can be one.
pub(crate) fn storable_id(id: Elem<'_>) -> Result<()> {
    match (id.ty(), id.as_doc()) {
        (Type::Array | Type::Regex | Type::Undefined, _) => {
            bail!(InvalidIdField, "The '_id' value cannot be of type {}", id.ty().alias())
        }
        (Type::Document, Some(doc)) => match doc.iter().find(|e| e.key().starts_with('$')) {
            Some(field) => bail!(
                DollarPrefixedFieldName,
                "_id fields may not contain '$'-prefixed fields: {} is not valid for storage.",
                field.key()
            ),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}
