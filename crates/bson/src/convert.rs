//! Converts to and from the `bson` crate's owned documents, for tests and tools. The server must not use it,
//! because it copies everything.

use crate::doc::{Doc, DocBuf};
use crate::value::Value;
use kauri_base::{Error, ErrorCode, Result};

/// The document as the `bson` crate has it.
pub fn to_document(doc: Doc<'_>) -> Result<bson::Document> {
    bson::Document::from_reader(doc.as_bytes()).map_err(invalid)
}

/// A document of the `bson` crate as raw bytes.
pub fn from_document(document: &bson::Document) -> Result<DocBuf> {
    let mut bytes = Vec::new();
    document.to_writer(&mut bytes).map_err(invalid)?;
    DocBuf::from_vec(bytes)
}

/// The value as the `bson` crate has it; `None` for a missing one.
pub fn to_bson(value: &Value<'_>) -> Result<Option<bson::Bson>> {
    let doc = DocBuf::build(|w| w.put_value("", value));
    Ok(to_document(doc.as_doc())?.remove(""))
}

/// A value of the `bson` crate.
pub fn from_bson(value: &bson::Bson) -> Result<Value<'static>> {
    let doc = from_document(&bson::doc! { "": value.clone() })?;
    Ok(doc.as_doc().value("").into_owned())
}

fn invalid(error: bson::error::Error) -> Error {
    Error::new(ErrorCode::InvalidBSON, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn conversion_round_trips_documents() {
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            // The crate keeps one element of each name.
            let value = random.value(3);
            let Ok(Some(theirs)) = to_bson(&value) else {
                // It wants a second length in binary data of the old subtype, and text to be UTF-8.
                let text = format!("{value:?}");
                assert!(
                    text.contains("BinData(2,") || text.contains("NotUtf8"),
                    "seed {seed}: {text}"
                );
                continue;
            };
            let ours = from_bson(&theirs).unwrap();
            let again = to_bson(&ours).unwrap().unwrap();
            assert_eq!(format!("{theirs:?}"), format!("{again:?}"), "seed {seed}: {value:?}");
            if !matches!(value, Value::Document(_) | Value::Array(_) | Value::CodeWithScope { .. })
            {
                assert_eq!(format!("{value:?}"), format!("{ours:?}"), "seed {seed}");
            }
        }
        assert!(to_bson(&Value::Missing).unwrap().is_none());
    }
}
