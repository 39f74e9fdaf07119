//! What a change of a stored definition means, as clients' commands say it: for the log of a replica set.

use crate::stored::OF_DATABASE;
use kauri_bson::{Doc, DocBuf, Elem, Value};

/// A command that changes a definition as this one did.
#[derive(Clone, PartialEq, Debug)]
pub struct DefinitionChange {
    /// The database.
    pub database: String,
    /// The UUID of the collection; `None` for a view.
    pub uuid: Option<[u8; 16]>,
    /// The command.
    pub command: DocBuf,
    /// What it changed, where a reader may want it.
    pub before: Option<DocBuf>,
    /// Whether it is a drop with all others of its database.
    pub of_database: bool,
}

/// The commands that amount to a change from one stored definition to another. None if clients see no difference.
pub fn definition_changes(old: Option<Doc<'_>>, new: Option<Doc<'_>>) -> Vec<DefinitionChange> {
    let is_of_client = |doc: &Doc<'_>| matches!(kind(*doc), "collection" | "view");
    let (old, new) = (old.filter(is_of_client), new.filter(is_of_client));
    let Some((database, name)) = new.or(old).and_then(names) else { return Vec::new() };
    let of = Of { database, name, uuid: new.or(old).and_then(uuid) };
    match (old, new) {
        (None, None) => Vec::new(),
        (None, Some(new)) => of.created(new),
        (Some(old), None) => vec![of.dropped(old)],
        (Some(old), Some(new)) => of.changed(old, new),
    }
}

fn kind(doc: Doc<'_>) -> &str {
    text(doc, "kind")
}

fn text<'d>(doc: Doc<'d>, field: &str) -> &'d str {
    match doc.get(field).map(|elem| elem.value()) {
        Some(Value::String(std::borrow::Cow::Borrowed(text))) => text,
        _ => "",
    }
}

fn names(doc: Doc<'_>) -> Option<(&str, &str)> {
    text(doc, "ns").split_once('.')
}

fn uuid(doc: Doc<'_>) -> Option<[u8; 16]> {
    match doc.value("uuid") {
        Value::Binary { bytes, .. } => bytes.as_ref().try_into().ok(),
        _ => None,
    }
}

fn options(doc: Doc<'_>) -> Doc<'_> {
    doc.get("options").and_then(|elem| elem.as_doc()).unwrap_or(Doc::EMPTY)
}

/// An index: its number, whether it serves, and its definition.
fn indexes(doc: Doc<'_>) -> Vec<(Value<'_>, bool, Doc<'_>)> {
    let list = doc.get("indexes").and_then(|elem| elem.as_doc()).unwrap_or(Doc::EMPTY);
    list.iter().filter_map(|elem| elem.as_doc()).filter_map(parts).collect()
}

fn parts(entry: Doc<'_>) -> Option<(Value<'_>, bool, Doc<'_>)> {
    let spec = entry.get("spec")?.as_doc()?;
    let ready = entry.value("ready") == Value::Bool(true);
    Some((entry.get("id")?.value(), ready, spec))
}

/// Whether a document does not have this field as it is here.
fn differs(old: Doc<'_>, elem: Elem<'_>) -> bool {
    old.get(elem.key()).is_none_or(|old| old.value() != elem.value())
}

struct Of<'d> {
    database: &'d str,
    name: &'d str,
    uuid: Option<[u8; 16]>,
}

impl Of<'_> {
    fn change(&self, command: DocBuf) -> DefinitionChange {
        let (database, uuid) = (self.database.to_owned(), self.uuid);
        DefinitionChange { database, uuid, command, before: None, of_database: false }
    }

    fn created(&self, new: Doc<'_>) -> Vec<DefinitionChange> {
        let (id, others): (Vec<_>, Vec<_>) =
            indexes(new).into_iter().partition(|(.., spec)| text(*spec, "name") == "_id_");
        let create = DocBuf::build(|out| {
            out.put("create", self.name);
            out.put_all(options(new));
            if let Some((.., spec)) = id.first() {
                out.put("idIndex", *spec);
            }
        });
        let mut changes = vec![self.change(create)];
        changes.extend(others.iter().filter(|of| of.1).map(|of| self.index_created(of.2)));
        changes
    }

    fn dropped(&self, old: Doc<'_>) -> DefinitionChange {
        let of_database = old.get(OF_DATABASE).is_some();
        let drop = self.change(kauri_bson::doc! { "drop" => self.name });
        DefinitionChange { of_database, ..drop }
    }

    fn index_created(&self, spec: Doc<'_>) -> DefinitionChange {
        self.change(DocBuf::build(|out| {
            out.put("createIndexes", self.name);
            out.put_all(spec);
        }))
    }

    fn index_dropped(&self, spec: Doc<'_>) -> DefinitionChange {
        let name = text(spec, "name");
        let drop = self.change(kauri_bson::doc! { "dropIndexes" => self.name, "index" => name });
        DefinitionChange { before: Some(spec.to_buf()), ..drop }
    }

    fn changed(&self, old: Doc<'_>, new: Doc<'_>) -> Vec<DefinitionChange> {
        let mut changes = Vec::new();
        let (before, after) = (text(old, "ns"), text(new, "ns"));
        if before != after {
            let mut rename = self.change(kauri_bson::doc! {
                "renameCollection" => before, "to" => after, "stayTemp" => false,
            });
            // It is a command of the database that the collection comes from.
            rename.database = before.split('.').next().unwrap_or_default().to_owned();
            changes.push(rename);
        } else if options(old) != options(new) {
            changes.push(self.options_changed(options(old), options(new)));
        }
        let (had, has) = (indexes(old), indexes(new));
        for (id, ready, spec) in &had {
            let kept = has.iter().any(|(other, ..)| other == id);
            // One that never served was told to nobody.
            if *ready && !kept {
                changes.push(self.index_dropped(*spec));
            }
        }
        for (id, _, spec) in has.iter().filter(|(_, ready, _)| *ready) {
            match had.iter().find(|(other, ready, _)| *ready && other == id) {
                None => changes.push(self.index_created(*spec)),
                Some((.., was)) if was != spec => changes.push(self.index_changed(*was, *spec)),
                Some(_) => {}
            }
        }
        changes
    }

    fn options_changed(&self, old: Doc<'_>, new: Doc<'_>) -> DefinitionChange {
        let change = self.change(DocBuf::build(|out| {
            out.put("collMod", self.name);
            new.iter().filter(|elem| differs(old, *elem)).for_each(|elem| out.put_elem(elem));
            // A validator that is gone.
            if old.get("validator").is_some() && new.get("validator").is_none() {
                out.put("validator", Doc::EMPTY);
            }
        }));
        DefinitionChange { before: Some(old.to_buf()), ..change }
    }

    fn index_changed(&self, old: Doc<'_>, new: Doc<'_>) -> DefinitionChange {
        let change = self.change(DocBuf::build(|out| {
            out.put("collMod", self.name);
            let mut index = out.document("index");
            index.put("name", text(new, "name"));
            new.iter().filter(|elem| differs(old, *elem)).for_each(|elem| index.put_elem(elem));
            for gone in old.iter().filter(|elem| new.get(elem.key()).is_none()) {
                index.put(gone.key(), false);
            }
        }));
        DefinitionChange { before: Some(old.to_buf()), ..change }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{array, doc};

    fn index(id: i64, name: &str, ready: bool, more: DocBuf) -> Value<'static> {
        let spec = DocBuf::build(|out| {
            out.put("v", 2);
            out.put("key", doc! { "a" => 1 });
            out.put("name", name);
            out.put_all(more.as_doc());
        });
        doc! { "id" => id, "ready" => ready, "spec" => spec }.into()
    }

    fn collection(ns: &str, options: DocBuf, indexes: Vec<Value<'static>>) -> DocBuf {
        let uuid = Value::Binary { subtype: 4, bytes: vec![5; 16].into() };
        doc! {
            "kind" => "collection", "id" => 7i64, "ns" => ns, "uuid" => uuid,
            "options" => options, "indexes" => Value::array(indexes),
        }
    }

    #[track_caller]
    fn check(old: Option<&DocBuf>, new: Option<&DocBuf>, expected: &[&str]) {
        let found = definition_changes(old.map(DocBuf::as_doc), new.map(DocBuf::as_doc));
        let found: Vec<_> = found
            .iter()
            .map(|of| format!("{}: {}", of.database, kauri_bson::shell_text(of.command.as_doc())))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn each_change_is_the_command_that_makes_it() {
        let id = || index(1, "_id_", true, doc! {});
        let plain = collection("d.c", doc! {}, vec![id()]);
        let idle = || index(2, "a_1", false, doc! {});
        let ready = || index(2, "a_1", true, doc! {});
        let building = collection("d.c", doc! {}, vec![id(), idle()]);
        let built = collection("d.c", doc! {}, vec![id(), ready()]);
        let create = r#"d: { create: "c", idIndex: { v: 2, key: { a: 1 }, name: "_id_" } }"#;
        check(None, Some(&plain), &[create]);
        check(Some(&plain), Some(&plain), &[]);
        check(Some(&plain), Some(&building), &[]);
        check(Some(&building), Some(&plain), &[]);
        let index_created = r#"d: { createIndexes: "c", v: 2, key: { a: 1 }, name: "a_1" }"#;
        check(Some(&building), Some(&built), &[index_created]);
        check(None, Some(&built), &[create, index_created]);
        check(Some(&built), Some(&plain), &[r#"d: { dropIndexes: "c", index: "a_1" }"#]);
        check(Some(&built), None, &[r#"d: { drop: "c" }"#]);
        let renamed = collection("e.x", doc! {}, vec![id(), ready()]);
        let rename = r#"d: { renameCollection: "d.c", to: "e.x", stayTemp: false }"#;
        check(Some(&built), Some(&renamed), &[rename]);
        let hidden = index(2, "a_1", true, doc! { "hidden" => true });
        let hidden = collection("d.c", doc! {}, vec![id(), hidden]);
        let hide = r#"d: { collMod: "c", index: { name: "a_1", hidden: true } }"#;
        check(Some(&built), Some(&hidden), &[hide]);
        let show = r#"d: { collMod: "c", index: { name: "a_1", hidden: false } }"#;
        check(Some(&hidden), Some(&built), &[show]);
        let strict = doc! { "validator" => doc! { "a" => 1 }, "validationLevel" => "strict" };
        let strict = collection("d.c", strict, vec![id()]);
        let modify = r#"d: { collMod: "c", validator: { a: 1 }, validationLevel: "strict" }"#;
        check(Some(&plain), Some(&strict), &[modify]);
        check(Some(&strict), Some(&plain), &[r#"d: { collMod: "c", validator: {} }"#]);
    }

    #[test]
    fn views_are_created_and_dropped_as_collections_and_counters_are_nothing() {
        let options = |on: &str| doc! { "viewOn" => on, "pipeline" => array![] };
        let view = |on: &str| doc! { "kind" => "view", "ns" => "d.v", "options" => options(on) };
        check(None, Some(&view("c")), &[r#"d: { create: "v", viewOn: "c", pipeline: [] }"#]);
        check(Some(&view("c")), Some(&view("e")), &[r#"d: { collMod: "v", viewOn: "e" }"#]);
        check(Some(&view("c")), None, &[r#"d: { drop: "v" }"#]);
        let counters = doc! { "kind" => "counters", "nextIndex" => 1i64 };
        check(None, Some(&counters), &[]);
        check(Some(&counters), Some(&counters), &[]);
        let gone = doc! { "kind" => "view", "ns" => "d.v", OF_DATABASE => true };
        assert!(definition_changes(Some(gone.as_doc()), None)[0].of_database);
    }
}
