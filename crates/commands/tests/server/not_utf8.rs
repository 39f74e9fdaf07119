//! Strings that are not UTF-8 are stored and returned unchanged. They compare by their bytes.

use crate::cold_disk::ColdEngine;
use crate::common::{
    Client, TestServer, at, first_batch, number, refusal, show, text, write_errors,
};
use kauri_bson::{DocBuf, Type, Value, array, doc};
use kauri_storage::StorageEngine;

/// 0xFF, a lone continuation byte, half a surrogate pair, an overlong form, a cut character, zeros inside.
const BAD: [&[u8]; 7] =
    [b"\xFF", b"a\x80b", b"\xED\xA0\x80", b"\xC0\x80", b"x\xE2\x82", b"\xFF\0\xFE", b"\0\xFF"];
/// Those strings and valid neighbours of them; a replacement would turn them into U+FFFD.
const TEXTS: [&[u8]; 12] = [
    BAD[0],
    BAD[1],
    BAD[2],
    BAD[3],
    BAD[4],
    BAD[5],
    BAD[6],
    b"",
    b"a",
    b"x",
    b"\xEF\xBF\xBD",
    b"\0",
];

fn string(bytes: &[u8]) -> Value<'_> {
    Value::string_of_bytes(bytes)
}

fn framed(text: &[u8]) -> Vec<u8> {
    [&(text.len() as i32 + 1).to_le_bytes(), text, &[0]].concat()
}

/// A document with a value of each type that contains text.
fn of_all_types(id: i32, text: &[u8]) -> DocBuf {
    let (code, scope) = (framed(text), doc! { "x" => string(text) });
    let length = (4 + code.len() + scope.as_bytes().len()) as i32;
    DocBuf::build(|out| {
        out.put("_id", id);
        out.put_raw(b"string", Type::String, &framed(text));
        out.put_raw(b"symbol", Type::Symbol, &framed(text));
        out.put_raw(b"code", Type::Code, &framed(text));
        out.put_raw(b"pointer", Type::DbPointer, &[framed(text), vec![7; 12]].concat());
        let scoped = [&length.to_le_bytes(), &*code, scope.as_bytes()].concat();
        out.put_raw(b"scoped", Type::CodeWithScope, &scoped);
        if !text.contains(&0) {
            out.put_raw(b"regex", Type::Regex, &[text, b"\0i\0"].concat());
        }
        out.put("array", array![string(text), doc! { "inner" => string(text) }]);
    })
}

fn docs_of(texts: &[&[u8]]) -> Vec<DocBuf> {
    let numbered = texts.iter().enumerate();
    numbered.map(|(id, text)| doc! { "_id" => id as i32, "s" => string(text) }).collect()
}

/// The documents that a find returns.
#[track_caller]
fn found(client: &Client, filter: DocBuf) -> Vec<DocBuf> {
    first_batch(&client.ok(doc! { "find" => "c", "filter" => filter, "batchSize" => 1000 }))
}

#[track_caller]
fn piped(client: &Client, stages: Value<'_>) -> Vec<DocBuf> {
    let cursor = doc! { "batchSize" => 1000 };
    first_batch(&client.ok(doc! { "aggregate" => "c", "pipeline" => stages, "cursor" => cursor }))
}

/// The numbers of the texts that this predicate accepts, in order.
fn which(accepts: impl Fn(&[u8]) -> bool) -> Vec<i64> {
    let numbered = TEXTS.iter().enumerate().filter(|(_, text)| accepts(text));
    numbered.map(|(id, _)| id as i64).collect()
}

fn index(key: DocBuf, name: &str, extra: DocBuf) -> DocBuf {
    let spec = DocBuf::build(|out| {
        out.put("key", key);
        out.put("name", name);
        out.put_all(extra.as_doc());
    });
    doc! { "createIndexes" => "c", "indexes" => array![spec] }
}

#[test]
fn every_write_stores_the_bytes_and_every_read_gives_them_back() {
    let test = TestServer::start();
    let client = test.client();
    for text in BAD {
        let whole = of_all_types(1, text);
        let by_id = || doc! { "_id" => 1 };
        let same = |what: &str| {
            assert_eq!(found(&client, by_id()), std::slice::from_ref(&whole), "{what} {text:?}");
            assert_eq!(found(&client, doc! {}), std::slice::from_ref(&whole), "{what} {text:?}");
            let grouped = array![
                doc! { "$match" => doc! {} },
                doc! { "$addFields" => doc! { "t" => 1 } },
                doc! { "$sort" => doc! { "string" => -1 } },
                doc! { "$unset" => "t" },
            ];
            assert_eq!(piped(&client, grouped), std::slice::from_ref(&whole), "{what} {text:?}");
            client.ok(doc! { "delete" => "c", "deletes" => array![doc! { "q" => doc! {}, "limit" => 0 }] });
        };
        client.insert("c", [whole.clone()]);
        same("insert");
        let update = doc! { "q" => by_id(), "u" => whole.clone(), "upsert" => true };
        client.ok(doc! { "update" => "c", "updates" => array![update] });
        same("replacement");
        let set = DocBuf::build(|out| {
            whole.as_doc().iter().skip(1).for_each(|elem| out.put_elem(elem));
        });
        let update =
            doc! { "q" => by_id(), "u" => doc! { "$set" => set.clone() }, "upsert" => true };
        client.ok(doc! { "update" => "c", "updates" => array![update] });
        let by_name = |doc: &DocBuf| {
            let mut elems: Vec<_> = doc.as_doc().iter().collect();
            elems.sort_by_key(|elem| elem.key());
            DocBuf::build(|out| elems.iter().for_each(|elem| out.put_elem(*elem)))
        };
        let read = found(&client, doc! {});
        assert_eq!(
            read.iter().map(by_name).collect::<Vec<_>>(),
            [by_name(&whole)],
            "$set {text:?}"
        );
        let reply = client.ok(doc! {
            "findAndModify" => "c", "query" => by_id(), "update" => whole.clone(), "new" => true,
        });
        assert_eq!(at(&reply, "value"), whole);
        same("findAndModify");
        let op = doc! { "insert" => 0, "document" => whole.clone() };
        let bulk = doc! {
            "bulkWrite" => 1, "ops" => array![op], "nsInfo" => array![doc! { "ns" => "test.c" }],
        };
        assert_eq!(number(&client.admin().ok(bulk), "nInserted"), 1);
        same("bulkWrite");
    }
}

/// The results of finds, sorts and counts, for any indexes.
#[track_caller]
fn goes_by_bytes(client: &Client) {
    for text in TEXTS {
        let ids = |filter: DocBuf| client.ids("c", doc! { "s" => filter });
        let of = |op: &str| doc! { op => string(text) };
        assert_eq!(ids(of("$eq")), which(|t| t == text), "$eq {text:?}");
        assert_eq!(ids(of("$gt")), which(|t| t > text), "$gt {text:?}");
        assert_eq!(ids(of("$gte")), which(|t| t >= text), "$gte {text:?}");
        assert_eq!(ids(of("$lt")), which(|t| t < text), "$lt {text:?}");
        assert_eq!(ids(of("$lte")), which(|t| t <= text), "$lte {text:?}");
        let list = doc! { "$in" => array![string(text), string(b"a"), 5] };
        let mut some = which(|t| t == text || t == b"a");
        some.push(100);
        assert_eq!(ids(list), some, "$in {text:?}");
        let exclusive = doc! { "$nin" => array![string(text)] };
        assert_eq!(ids(exclusive).len(), TEXTS.len() - 1 + OTHERS, "$nin {text:?}");
    }
    let strings = doc! { "s" => doc! { "$type" => "string" } };
    assert_eq!(client.ids("c", strings.clone()), which(|_| true));
    for direction in [1, -1] {
        let sort = doc! { "s" => direction };
        let find = doc! { "find" => "c", "filter" => strings.clone(), "sort" => sort };
        let docs = first_batch(&client.ok(find));
        let mut texts: Vec<_> = docs
            .iter()
            .map(|doc| doc.as_doc().value("s").into_owned().into_string_bytes().unwrap())
            .collect();
        if direction < 0 {
            texts.reverse();
        }
        let mut expected = TEXTS.to_vec();
        expected.sort();
        assert_eq!(texts, expected, "direction {direction}");
    }
    // From the index alone, where there is one.
    let covered = doc! {
        "find" => "c", "filter" => doc! { "s" => doc! { "$gte" => string(b"\xC0") } },
        "projection" => doc! { "_id" => 0, "s" => 1 },
    };
    let mut covered: Vec<_> = first_batch(&client.ok(covered));
    covered.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    let mut expected: Vec<_> =
        TEXTS.iter().filter(|t| **t >= &b"\xC0"[..]).map(|t| doc! { "s" => string(t) }).collect();
    expected.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    assert_eq!(covered, expected);
    client.validate("c");
}

/// Documents of other types, whose ids begin at 100.
const OTHERS: usize = 4;

fn fill(client: &Client) {
    client.insert("c", docs_of(&TEXTS));
    let regex = Value::Regex { pattern: "\u{ff}".into(), options: "".into() };
    client.insert(
        "c",
        [
            doc! { "_id" => 100, "s" => 5 },
            doc! { "_id" => 101, "s" => doc! { "a" => string(b"\xFF") } },
            doc! { "_id" => 102, "s" => regex },
            doc! { "_id" => 103, "s" => Value::Code("x".into()) },
        ],
    );
}

#[test]
fn filters_and_sorts_compare_bytes_with_and_without_an_index() {
    let test = TestServer::start();
    let client = test.client();
    fill(&client);
    goes_by_bytes(&client);
    client.ok(index(doc! { "s" => 1 }, "up", doc! {}));
    goes_by_bytes(&client);
    client.ok(doc! { "dropIndexes" => "c", "index" => "up" });
    client.ok(index(doc! { "s" => -1, "_id" => 1 }, "down", doc! {}));
    goes_by_bytes(&client);
}

#[test]
fn unique_indexes_and_ids_compare_bytes() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(index(doc! { "s" => 1 }, "s", doc! { "unique" => true }));
    client.insert("c", docs_of(&TEXTS));
    for text in TEXTS {
        let again = doc! { "insert" => "c", "documents" => array![doc! { "s" => string(text) }] };
        assert_eq!(write_errors(&client.ok(again)), [(0, 11000)], "{text:?}");
    }
    for text in TEXTS {
        let by_id = || doc! { "_id" => string(text) };
        let new = doc! { "_id" => string(text), "s" => doc! { "of" => string(text) } };
        client.insert("c", [new.clone()]);
        assert_eq!(found(&client, by_id()), [new], "{text:?}");
        let insert = doc! { "insert" => "c", "documents" => array![by_id()] };
        assert_eq!(write_errors(&client.ok(insert)), [(0, 11000)], "{text:?}");
        let set = doc! { "q" => by_id(), "u" => doc! { "$set" => doc! { "n" => string(text) } } };
        assert_eq!(
            number(&client.ok(doc! { "update" => "c", "updates" => array![set] }), "nModified"),
            1
        );
        let read = found(&client, by_id());
        assert_eq!(read[0].as_doc().value("n"), string(text));
    }
    for text in TEXTS {
        let delete = doc! { "q" => doc! { "_id" => string(text) }, "limit" => 1 };
        assert_eq!(
            number(&client.ok(doc! { "delete" => "c", "deletes" => array![delete] }), "n"),
            1
        );
    }
    assert_eq!(client.all_ids("c"), which(|_| true));
    client.validate("c");
}

#[test]
fn array_operators_distinct_and_groups_compare_bytes() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", docs_of(&TEXTS));
    client.insert("c", TEXTS.iter().map(|text| doc! { "s" => string(text) }));
    let reply = client.ok(doc! { "distinct" => "c", "key" => "s" });
    let mut expected = TEXTS.to_vec();
    expected.sort();
    let values = reply.as_doc().value("values");
    let mut distinct: Vec<Vec<u8>> = values
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e.value().string_bytes().unwrap().to_vec())
        .collect();
    distinct.sort();
    assert_eq!(distinct, expected);
    let group =
        doc! { "_id" => "$s", "n" => doc! { "$sum" => 1 }, "max" => doc! { "$max" => "$s" } };
    let groups =
        piped(&client, array![doc! { "$group" => group }, doc! { "$sort" => doc! { "_id" => 1 } }]);
    let whole: Vec<_> = expected
        .iter()
        .map(|text| doc! { "_id" => string(text), "n" => 2, "max" => string(text) })
        .collect();
    assert_eq!(groups, whole);
    let joined = piped(
        &client,
        array![
            doc! { "$match" => doc! { "_id" => doc! { "$type" => "int" } } },
            doc! { "$lookup" => doc! { "from" => "c", "localField" => "s", "foreignField" => "s", "as" => "m" } },
            doc! { "$project" => doc! { "n" => doc! { "$size" => "$m" } } },
        ],
    );
    assert!(
        joined.len() == TEXTS.len() && joined.iter().all(|d| number(d, "n") == 2),
        "{joined:?}"
    );

    let list = |texts: &[&[u8]]| Value::array(texts.iter().map(|t| string(t)));
    client.insert("d", [doc! { "_id" => 1, "a" => list(&[b"\xFF", b"\xFE"]) }]);
    let update = |u: DocBuf| {
        let update = doc! { "q" => doc! { "a" => string(b"\xFF") }, "u" => u };
        client.ok(doc! { "update" => "d", "updates" => array![update] });
        let read = first_batch(&client.ok(doc! { "find" => "d" }));
        read[0].as_doc().value("a").into_owned()
    };
    let add = |text: &[u8]| update(doc! { "$addToSet" => doc! { "a" => string(text) } });
    assert_eq!(add(b"\xFE"), list(&[b"\xFF", b"\xFE"]));
    assert_eq!(add(b"\xEF\xBF\xBD"), list(&[b"\xFF", b"\xFE", b"\xEF\xBF\xBD"]));
    assert_eq!(
        update(doc! { "$pull" => doc! { "a" => string(b"\xFE") } }),
        list(&[b"\xFF", b"\xEF\xBF\xBD"])
    );
    let sorted = doc! { "$each" => array![string(b"\x80")], "$sort" => 1 };
    assert_eq!(
        update(doc! { "$push" => doc! { "a" => sorted } }),
        list(&[b"\x80", b"\xEF\xBF\xBD", b"\xFF"])
    );
}

#[test]
fn invalid_strings_survive_a_restart_that_rebuilds_the_indexes() {
    let disk = ColdEngine::open();
    let whole: Vec<_> = BAD.iter().zip(200..).map(|(text, id)| of_all_types(id, text)).collect();
    {
        let test = TestServer::start_on(disk.engine.clone(), 1, &[]);
        let client = test.client();
        fill(&client);
        client.insert("c", whole.iter().cloned());
        client.ok(index(doc! { "s" => 1 }, "s", doc! {}));
        let partial = doc! { "partialFilterExpression" => doc! { "s" => doc! { "$gte" => string(b"\xFF") } } };
        client.ok(index(doc! { "string" => 1, "array" => 1 }, "partial", partial));
        let rule = doc! { "validator" => doc! { "s" => doc! { "$ne" => string(b"\xFF\xFF") } } };
        let change = DocBuf::build(|out| {
            out.put("collMod", "c");
            out.put_all(rule.as_doc());
        });
        client.ok(change);
    }
    disk.engine.flush();
    disk.engine.sync().unwrap();
    let copy = disk.copy();
    let test = TestServer::start_on(copy.engine.clone(), 1, &[]);
    let client = test.client();
    let read = found(&client, doc! { "_id" => doc! { "$gte" => 200 } });
    assert_eq!(read, whole);
    client.ok(doc! { "delete" => "c", "deletes" => array![
        doc! { "q" => doc! { "_id" => doc! { "$gte" => 200 } }, "limit" => 0 }
    ] });
    goes_by_bytes(&client);
    let refused =
        doc! { "insert" => "c", "documents" => array![doc! { "s" => string(b"\xFF\xFF") }] };
    assert_eq!(write_errors(&client.ok(refused)), [(0, 121)]);
    drop(test);
}

#[test]
fn string_operators_accept_bytes_or_fail() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "s" => string(b"a\xFFb"), "t" => string(b"\xFF") }]);
    let value = |expression: DocBuf| {
        let project = doc! { "$project" => doc! { "_id" => 0, "v" => expression } };
        piped(&client, array![project])[0].as_doc().value("v").into_owned()
    };
    let bytes = |text: &[u8]| string(text).into_owned();
    assert_eq!(value(doc! { "$type" => "$s" }), Value::from("string"));
    assert_eq!(value(doc! { "$concat" => array!["$s", "$t", "é"] }), bytes(b"a\xFFb\xFF\xC3\xA9"));
    assert_eq!(value(doc! { "$toUpper" => "$s" }), bytes(b"A\xFFB"));
    assert_eq!(value(doc! { "$toString" => "$s" }), bytes(b"a\xFFb"));
    assert_eq!(value(doc! { "$strLenBytes" => "$s" }), Value::Int32(3));
    assert_eq!(value(doc! { "$indexOfBytes" => array!["$s", "$t"] }), Value::Int32(1));
    assert_eq!(value(doc! { "$split" => array!["$s", "$t"] }), array!["a", "b"]);
    assert_eq!(
        value(doc! { "$cond" => array![doc! { "$eq" => array!["$s", "$t"] }, 1, 2] }),
        Value::Int32(2)
    );
    assert_eq!(
        value(doc! { "$in" => array!["$t", array!["\u{FFFD}", string(b"\xFF")]] }),
        Value::Bool(true)
    );
    let code = |expression: DocBuf| {
        let project = doc! { "$project" => doc! { "v" => expression } };
        let aggregate =
            doc! { "aggregate" => "c", "pipeline" => array![project], "cursor" => doc! {} };
        refusal(&client, aggregate).0
    };
    assert_eq!(code(doc! { "$indexOfCP" => array!["$s", "b"] }), 40095);
    assert_eq!(code(doc! { "$substrCP" => array!["$s", 0, 3] }), 34459);
    assert_eq!(code(doc! { "$regexMatch" => doc! { "input" => "$s", "regex" => "a" } }), 51156);
    assert_eq!(code(doc! { "$toInt" => "$s" }), 241);
    assert_eq!(code(doc! { "$dateFromString" => doc! { "dateString" => "$s" } }), 241);
    assert_eq!(
        code(
            doc! { "$arrayToObject" => doc! { "$literal" => array![array![string(b"\xFF"), 1]] } }
        ),
        22
    );
    assert_eq!(code(doc! { "$trim" => doc! { "input" => "$s", "chars" => "$t" } }), 5156305);
    // No regular expression matches.
    for regex in ["a", "^", ".*", "\u{FFFD}"] {
        assert_eq!(client.all_ids("c"), [1]);
        assert_eq!(
            client.ids("c", doc! { "s" => doc! { "$regex" => regex } }),
            [0i64; 0],
            "{regex}"
        );
    }
    client.ok(index(doc! { "s" => 1 }, "s", doc! {}));
    assert_eq!(client.ids("c", doc! { "s" => doc! { "$regex" => "^a" } }), [0i64; 0]);
    let bad =
        doc! { "find" => "c", "filter" => doc! { "s" => doc! { "$regex" => string(b"\xFF") } } };
    assert_eq!(refusal(&client, bad).0, 51091);
}

#[test]
fn names_have_to_be_utf8() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let bad = || string(b"x\xFF");
    let namespaces = [
        doc! { "find" => bad() },
        doc! { "count" => bad() },
        doc! { "insert" => bad(), "documents" => array![doc! {}] },
        doc! { "update" => bad(), "updates" => array![doc! { "q" => doc! {}, "u" => doc! {} }] },
        doc! { "aggregate" => bad(), "pipeline" => array![], "cursor" => doc! {} },
        doc! { "create" => bad() },
        doc! { "create" => "v", "viewOn" => bad(), "pipeline" => array![] },
        doc! { "drop" => bad() },
        doc! { "getMore" => 1i64, "collection" => bad() },
        doc! { "explain" => doc! { "find" => bad() } },
        doc! { "aggregate" => "c", "pipeline" => array![doc! { "$out" => bad() }], "cursor" => doc! {} },
        doc! { "aggregate" => "c", "pipeline" => array![doc! { "$merge" => bad() }], "cursor" => doc! {} },
        doc! {
            "aggregate" => "c", "cursor" => doc! {},
            "pipeline" => array![doc! { "$merge" => doc! { "into" => doc! { "db" => "d", "coll" => bad() } } }],
        },
        doc! { "aggregate" => "c", "pipeline" => array![doc! { "$unionWith" => bad() }], "cursor" => doc! {} },
        doc! {
            "aggregate" => "c", "cursor" => doc! {},
            "pipeline" => array![doc! { "$lookup" => doc! { "from" => bad(), "as" => "m", "pipeline" => array![] } }],
        },
    ];
    for command in namespaces {
        let (code, message) = refusal(&client, command.clone());
        assert_eq!(code, 73, "{} {message}", show(&command));
        assert!(message.contains("x\u{FFFD}"), "{message}");
    }
    let admin = [
        doc! { "renameCollection" => "test.c", "to" => bad() },
        doc! {
            "bulkWrite" => 1, "ops" => array![doc! { "insert" => 0, "document" => doc! {} }],
            "nsInfo" => array![doc! { "ns" => bad() }],
        },
    ];
    for command in admin {
        assert_eq!(refusal(&client.admin(), command.clone()).0, 73, "{}", show(&command));
    }
    let of_database = doc! { "ping" => 1, "$db" => bad() };
    let mut message = Vec::new();
    let writer = kauri_wire::MsgWriter::begin(&mut message, 1, 0, 0);
    message.extend_from_slice(of_database.as_bytes());
    writer.finish(&mut message).unwrap();
    client.send_bytes(&message);
    assert_eq!(number(&client.receive().unwrap(), "code"), 73);

    let named = DocBuf::build(|out| out.put_raw(b"x\xFF", Type::Int32, &[1, 0, 0, 0]));
    let spec = doc! { "key" => doc! { "a" => 1 }, "name" => bad() };
    let project = doc! { "$project" => doc! { "v" => string(b"$x\xFF") } };
    let others = [
        (doc! { "insert" => "c", "documents" => array![named] }, 22),
        (doc! { "createIndexes" => "c", "indexes" => array![spec] }, 22),
        (doc! { "dropIndexes" => "c", "index" => bad() }, 22),
        (doc! { "find" => "c", "hint" => bad() }, 22),
        (doc! { "aggregate" => "c", "pipeline" => array![project], "cursor" => doc! {} }, 22),
        (doc! { "distinct" => "c", "key" => bad() }, 22),
        (doc! { "hello" => 1, "client" => doc! { "application" => doc! { "name" => bad() } } }, 22),
    ];
    for (command, code) in others {
        assert_eq!(refusal(&client, command.clone()).0, code, "{}", show(&command));
    }
    assert_eq!(client.all_ids("c"), [1]);
    assert_eq!(client.index_names("c"), ["_id_"]);
}

#[test]
fn printed_messages_replace_invalid_characters() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "profile" => 2 });
    let doc = doc! { "_id" => string(b"a\xFF") };
    client.insert("c", [doc.clone()]);
    let reply = client.ok(doc! { "insert" => "c", "documents" => array![doc.clone()] });
    let errors = reply.as_doc().value("writeErrors");
    let error = errors.as_array().unwrap().first().unwrap().as_doc().unwrap().to_buf();
    // The bytes of the key are shown, so that keys can be distinguished.
    assert!(text(&error, "errmsg").ends_with("dup key: { _id: \"0x61ff\" }"), "{}", show(&error));
    client.ok(doc! { "find" => "c", "filter" => doc! { "s" => string(b"\xFF") }, "comment" => string(b"\xFE") });
    let find = doc! { "find" => "system.profile", "filter" => doc! { "op" => "query" } };
    let profiled = first_batch(&client.ok(find));
    assert_eq!(at(&profiled[0], "command").as_doc().value("comment"), string(b"\xFE"));
    let explained = client.ok(doc! {
        "explain" => doc! { "find" => "c", "filter" => doc! { "s" => string(b"\xFF") } },
    });
    let filter = at(&at(&explained, "queryPlanner"), "parsedQuery");
    assert_eq!(at(&filter, "s").as_doc().value("$eq"), string(b"\xFF"));
    let log = client.admin().ok(doc! { "getLog" => "global" });
    assert!(log.as_doc().value("log").as_array().is_some());
}
