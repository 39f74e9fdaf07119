//! Parts of `explain`'s output that several stages share.

use kauri_bson::DocWriter;
use kauri_catalog::Index;
use kauri_matcher::Matcher;
use kauri_storage::Direction;

/// `forward` or `backward`.
pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Backward => "backward",
    }
}

/// `filter: {…}`, if there is one.
pub fn write_filter(out: &mut DocWriter<'_>, filter: Option<&Matcher>) {
    if let Some(filter) = filter {
        out.put("filter", filter.expr().to_bson());
    }
}

/// Writes an index scan's description of its index.
pub fn write_index(out: &mut DocWriter<'_>, index: &Index) {
    let definition = index.definition();
    out.put("keyPattern", &definition.key);
    out.put("indexName", definition.name.as_str());
    out.put("isMultiKey", index.keys.multikey.is_multikey());
    {
        let mut paths = out.document("multiKeyPaths");
        for (field, elem) in definition.key.as_doc().iter().enumerate() {
            let bits = index.keys.multikey.of_field(field);
            let mut list = paths.array(elem.key());
            let mut path = String::new();
            for (position, part) in elem.key().split('.').enumerate() {
                if position > 0 {
                    path.push('.');
                }
                path.push_str(part);
                if bits >> position & 1 == 1 {
                    list.push(&path);
                }
            }
        }
    }
    out.put("isUnique", definition.unique);
    out.put("isSparse", definition.sparse);
    out.put("isPartial", definition.partial.is_some());
    out.put("indexVersion", 2);
}
