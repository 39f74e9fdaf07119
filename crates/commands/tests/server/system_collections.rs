//! Collections whose names are the server's own: no command writes them, whichever way it reaches them.

use crate::common::{TestServer, code_of, first_batch, number, show, text, write_errors};
use kauri_bson::{DocBuf, array, doc};

/// Commands that would make or change a collection of this name, and the codes with which they are refused.
fn writers(name: &str) -> Vec<(DocBuf, i64)> {
    let full = format!("test.{name}");
    let one = doc! { "q" => doc! {}, "u" => doc! { "$set" => doc! { "a" => 1 } } };
    let upsert = doc! { "q" => doc! {}, "u" => doc! { "a" => 1 }, "upsert" => true };
    let delete = doc! { "q" => doc! {}, "limit" => 0 };
    let into = |stage: DocBuf| doc! { "aggregate" => "c", "pipeline" => array![stage], "cursor" => doc! {} };
    let far = |stage: DocBuf| {
        let stages = array![stage];
        doc! { "aggregate" => "c", "pipeline" => stages, "cursor" => doc! {} }
    };
    let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" };
    let target = doc! { "db" => "test", "coll" => name };
    let apply = |op: DocBuf| doc! { "applyOps" => array![op] };
    let entry = |kind: &str, extra: DocBuf| {
        DocBuf::build(|out| {
            out.put("op", kind);
            out.put("ns", full.as_str());
            out.put_all(extra.as_doc());
        })
    };
    let command = |o: DocBuf| doc! { "op" => "c", "ns" => "test.$cmd", "o" => o };
    vec![
        (doc! { "insert" => name, "documents" => array![doc! { "_id" => 1 }] }, 73),
        (doc! { "update" => name, "updates" => array![one] }, 73),
        (doc! { "update" => name, "updates" => array![upsert] }, 73),
        (doc! { "delete" => name, "deletes" => array![delete] }, 73),
        (doc! { "findAndModify" => name, "query" => doc! {}, "remove" => true }, 73),
        (
            doc! { "findAndModify" => name, "query" => doc! {}, "update" => doc! { "a" => 1 }, "upsert" => true },
            73,
        ),
        (doc! { "createIndexes" => name, "indexes" => array![index] }, 73),
        (doc! { "create" => name, "viewOn" => "c" }, 73),
        (doc! { "create" => name, "capped" => true, "size" => 4096 }, 72),
        (doc! { "convertToCapped" => name, "size" => 4096 }, 2),
        (doc! { "cloneCollectionAsCapped" => "c", "toCollection" => name, "size" => 4096 }, 73),
        (into(doc! { "$out" => name }), 17385),
        (far(doc! { "$out" => target.clone() }), 17385),
        (into(doc! { "$merge" => name }), 31319),
        (far(doc! { "$merge" => doc! { "into" => target } }), 31319),
        (doc! { "renameCollection" => "test.c", "to" => full.as_str() }, 20),
        (doc! { "renameCollection" => full.as_str(), "to" => "test.d" }, 20),
        (doc! { "renameCollection" => "other.c", "to" => full.as_str() }, 20),
        (apply(entry("i", doc! { "o" => doc! { "_id" => 1 } })), 73),
        (apply(command(doc! { "create" => name })), 73),
        (apply(command(doc! { "renameCollection" => "test.c", "to" => full.as_str() })), 73),
    ]
}

#[test]
fn no_command_writes_the_collection_of_views() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    client.on("other").insert("c", [doc! { "_id" => 1 }]);
    client.ok(doc! { "create" => "v", "viewOn" => "c" });
    let views = || first_batch(&client.ok(doc! { "find" => "system.views" }));
    let before = views();
    assert_eq!(before.len(), 1);
    let run = |command: &DocBuf, name: &str| {
        let body = command.as_doc();
        let on_admin =
            ["applyOps", "renameCollection", "bulkWrite"].iter().any(|n| body.get(n).is_some());
        let reply = if on_admin { client.admin().run(command) } else { client.run(command) };
        let errors = write_errors(&reply);
        let code = errors.first().map_or(code_of(&reply), |(_, code)| *code);
        (code, format!("{name}: {} -> {}", show(command), show(&reply)))
    };
    for (command, expected) in writers("system.views") {
        let (code, what) = run(&command, "system.views");
        assert_eq!(code, expected, "{what}");
    }
    // A name that only the server may use is refused at the same doors.
    for (command, expected) in writers("system.other") {
        let (code, what) = run(&command, "system.other");
        let is_change = ["update", "delete", "findAndModify", "convertToCapped"]
            .iter()
            .any(|name| command.as_doc().get(name).is_some());
        let is_create = command.as_doc().get("capped").is_some();
        // An entry inserts only into what is there.
        let expected = if what.contains(r#"op: "i""#) { 26 } else { expected };
        match (is_change, is_create) {
            (true, _) => assert!([0, 73, 20, 26].contains(&code), "{what}"),
            (false, true) => assert_eq!(code, 73, "{what}"),
            (false, false) => assert_eq!(code, expected, "{what}"),
        }
    }
    let operation = |name: &str| {
        let namespaces = array![doc! { "ns" => format!("test.{name}") }];
        let operations = array![doc! { "insert" => 0, "document" => doc! { "_id" => 1 } }];
        doc! { "bulkWrite" => 1, "ops" => operations, "nsInfo" => namespaces }
    };
    for name in ["system.views", "system.other"] {
        let reply = client.admin().ok(operation(name));
        assert_eq!(number(&reply, "nErrors"), 1, "{}", show(&reply));
    }
    client.ok(doc! { "create" => "system.views" });
    assert_eq!(views(), before);
    let listed = client.ok(doc! { "listCollections" => 1, "nameOnly" => true });
    let mut names: Vec<_> = first_batch(&listed).iter().map(|one| text(one, "name")).collect();
    names.sort();
    assert_eq!(names, ["c", "system.views", "v"]);
}
