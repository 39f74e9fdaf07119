//! Values in error messages: MongoDB's form, truncated if long.

use kauri_bson::{Doc, Elem, Value, shell};

/// Bytes after which a value in a message is cut.
const TEXT_BYTES_MAX: usize = 2048;

/// `name: value`.
pub(crate) fn elem(elem: Elem<'_>) -> String {
    cut(shell::elem_to_string(elem))
}

/// The value alone.
pub(crate) fn value(value: &Value<'_>) -> String {
    cut(shell::value_to_string(value))
}

/// `{ a: 1, b: "x" }`.
pub(crate) fn doc(doc: Doc<'_>) -> String {
    cut(shell::doc_to_string(doc))
}

/// The document's `_id` as messages name a document: `{_id: 1}`.
pub(crate) fn id_of(doc: Doc<'_>) -> String {
    match doc.get("_id") {
        Some(id) => format!("{{{}}}", elem(id)),
        None => "{no id}".to_owned(),
    }
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::doc;

    #[test]
    fn long_values_are_cut() {
        let many = Value::array((0..5000).map(Value::Int32));
        assert!(value(&many).len() < TEXT_BYTES_MAX + 10);
        assert_eq!(id_of(doc! { "x" => 1, "_id" => "k" }.as_doc()), r#"{_id: "k"}"#);
    }
}
