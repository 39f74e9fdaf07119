//! String options that are not valid UTF-8. The error says so or names an unknown value. It does not report a
//! wrong type.

use crate::common::{Client, TestServer, refusal, show};
use kauri_bson::{Doc, DocBuf, Value, array, doc};

/// The value that replaces a string.
#[derive(Clone, Copy)]
enum Instead {
    NotUtf8,
    Number,
    OtherText,
}

impl Instead {
    fn of(self, text: &str) -> Value<'static> {
        match self {
            Instead::NotUtf8 => {
                Value::string_of_bytes([text.as_bytes(), b"\xFF"].concat()).into_owned()
            }
            Instead::Number => Value::Int32(5),
            Instead::OtherText => Value::from(format!("{text}?")),
        }
    }
}

/// The document with another value in place of its string number `at`. Decrements `at` once per string; it is
/// below zero if the string was found.
fn with_other(doc: Doc<'_>, is_array: bool, instead: Instead, at: &mut i32) -> Value<'static> {
    let mut change = |value: Value<'_>| match value {
        Value::String(text) => {
            *at -= 1;
            if *at == -1 { instead.of(&text) } else { Value::from(text.into_owned()) }
        }
        Value::Document(inner) => with_other(inner.as_doc(), false, instead, at),
        Value::Array(inner) => with_other(inner.as_doc(), true, instead, at),
        other => other.into_owned(),
    };
    if is_array {
        return Value::array(doc.iter().map(|elem| change(elem.value())).collect::<Vec<_>>());
    }
    let fields: Vec<_> = doc.iter().map(|elem| (elem.key(), change(elem.value()))).collect();
    DocBuf::build(|out| fields.iter().for_each(|(key, value)| out.put_value(key, value))).into()
}

fn stages_with_strings() -> Vec<DocBuf> {
    let date = |of: DocBuf| doc! { "$project" => doc! { "v" => of } };
    let now = || "$$NOW";
    let window = |function: DocBuf| {
        let output = doc! { "v" => function };
        doc! { "$setWindowFields" => doc! { "sortBy" => doc! { "d" => 1 }, "output" => output } }
    };
    let range = || array!["unbounded", "current"];
    vec![
        doc! { "$bucketAuto" => doc! { "groupBy" => "$n", "buckets" => 2, "granularity" => "R5" } },
        doc! { "$count" => "n" },
        doc! { "$unwind" => "$a" },
        doc! { "$unwind" => doc! { "path" => "$a", "includeArrayIndex" => "i" } },
        doc! { "$unset" => "a" },
        doc! { "$unset" => array!["a", "b"] },
        doc! { "$sortByCount" => "$a" },
        doc! { "$replaceWith" => "$o" },
        doc! { "$merge" => doc! { "into" => "m", "on" => "_id", "whenMatched" => "merge", "whenNotMatched" => "insert" } },
        doc! { "$merge" => doc! { "into" => "m", "on" => array!["_id"] } },
        doc! { "$out" => doc! { "db" => "test", "coll" => "o" } },
        doc! { "$lookup" => doc! { "from" => "c", "localField" => "a", "foreignField" => "b", "as" => "x" } },
        doc! { "$graphLookup" => doc! {
            "from" => "c", "startWith" => "$a", "connectFromField" => "a", "connectToField" => "b",
            "as" => "x", "depthField" => "y",
        } },
        doc! { "$unionWith" => doc! { "coll" => "c", "pipeline" => array![] } },
        doc! { "$densify" => doc! {
            "field" => "d", "partitionByFields" => array!["p"],
            "range" => doc! { "step" => 1, "unit" => "day", "bounds" => "full" },
        } },
        doc! { "$fill" => doc! {
            "partitionByFields" => array!["p"], "sortBy" => doc! { "d" => 1 },
            "output" => doc! { "n" => doc! { "method" => "locf" } },
        } },
        window(doc! { "$sum" => "$n", "window" => doc! { "documents" => range() } }),
        window(
            doc! { "$sum" => "$n", "window" => doc! { "range" => array![-1, 0], "unit" => "day" } },
        ),
        window(
            doc! { "$derivative" => doc! { "input" => "$n", "unit" => "day" }, "window" => doc! { "documents" => array![-1, 0] } },
        ),
        doc! { "$match" => doc! { "a" => doc! { "$type" => "string" } } },
        doc! { "$match" => doc! { "a" => doc! { "$type" => array!["string", "int"] } } },
        doc! { "$match" => doc! { "a" => doc! { "$regex" => "a", "$options" => "i" } } },
        doc! { "$match" => doc! { "$jsonSchema" => doc! {
            "title" => "t", "description" => "d", "required" => array!["a"], "bsonType" => "object",
            "dependencies" => doc! { "a" => array!["b"] },
            "properties" => doc! { "a" => doc! { "type" => "string", "pattern" => "a", "bsonType" => array!["string"] } },
        } } },
        doc! { "$group" => doc! { "_id" => 1, "v" => doc! { "$median" => doc! { "input" => "$n", "method" => "approximate" } } } },
        date(
            doc! { "$dateTrunc" => doc! { "date" => now(), "unit" => "week", "startOfWeek" => "monday", "timezone" => "UTC" } },
        ),
        date(
            doc! { "$dateAdd" => doc! { "startDate" => now(), "unit" => "day", "amount" => 1, "timezone" => "UTC" } },
        ),
        date(
            doc! { "$dateDiff" => doc! { "startDate" => now(), "endDate" => now(), "unit" => "day" } },
        ),
        date(doc! { "$dateToString" => doc! { "date" => now(), "timezone" => "UTC" } }),
        date(
            doc! { "$dateFromString" => doc! { "dateString" => "2020-01-01", "timezone" => "UTC" } },
        ),
        date(
            doc! { "$convert" => doc! { "input" => "$s", "to" => "binData", "format" => "utf8" } },
        ),
        date(
            doc! { "$convert" => doc! { "input" => "$n", "to" => "binData", "byteOrder" => "little" } },
        ),
        date(doc! { "$meta" => "indexKey" }),
        date(doc! { "$getField" => doc! { "field" => "a", "input" => "$o" } }),
        date(doc! { "$setField" => doc! { "field" => "a", "input" => "$o", "value" => 1 } }),
        date(doc! { "$map" => doc! { "input" => "$a", "in" => "$$this" } }),
        date(doc! { "$regexFind" => doc! { "input" => "$s", "regex" => "a" } }),
        date(doc! { "$trim" => doc! { "input" => "$s", "chars" => "a" } }),
        date(doc! { "$arrayToObject" => doc! { "$literal" => array![array!["a", 1]] } }),
        date(
            doc! { "$replaceAll" => doc! { "input" => "$s", "find" => "a", "replacement" => "b" } },
        ),
    ]
}

fn commands_with_strings() -> Vec<DocBuf> {
    let find = |name: &str, value: Value<'static>| {
        DocBuf::build(|out| {
            out.put("find", "c");
            out.put_value(name, &value);
        })
    };
    let update = |change: DocBuf| {
        let statement = doc! { "q" => doc! {}, "u" => change };
        doc! { "update" => "c", "updates" => array![statement] }
    };
    let index = |extra: DocBuf| {
        let spec = DocBuf::build(|out| {
            out.put("key", doc! { "a" => 1 });
            out.put("name", "new");
            out.put_all(extra.as_doc());
        });
        doc! { "createIndexes" => "c", "indexes" => array![spec] }
    };
    let of_stage = |stage: DocBuf| {
        doc! { "aggregate" => "c", "pipeline" => array![stage], "cursor" => doc! {} }
    };
    let collation = || doc! { "locale" => "simple", "caseFirst" => "off", "version" => "57.1" };
    let text = doc! { "$text" => doc! { "$search" => "a", "$language" => "none" } };
    let mut all = vec![
        find("readConcern", doc! { "level" => "local", "provenance" => "clientSupplied" }.into()),
        find("$readPreference", doc! { "mode" => "primary" }.into()),
        find("apiVersion", "1".into()),
        find("hint", "_id_".into()),
        find("filter", text.into()),
        find("collation", collation().into()),
        find("sort", doc! { "a" => doc! { "$meta" => "textScore" } }.into()),
        find("projection", doc! { "a" => doc! { "$meta" => "textScore" } }.into()),
        doc! { "insert" => "c", "documents" => array![doc! { "_id" => 99 }], "writeConcern" => doc! { "w" => "majority", "provenance" => "clientSupplied" } },
        update(doc! { "$rename" => doc! { "a" => "b" } }),
        update(doc! { "$currentDate" => doc! { "a" => doc! { "$type" => "date" } } }),
        doc! { "findAndModify" => "c", "query" => doc! {}, "remove" => true, "hint" => "_id_" },
        doc! { "distinct" => "c", "key" => "a" },
        doc! { "create" => "new", "validator" => doc! {}, "validationLevel" => "strict", "validationAction" => "error" },
        doc! { "create" => "new", "storageEngine" => doc! { "wiredTiger" => doc! { "configString" => "" } } },
        doc! { "create" => "new", "idIndex" => doc! { "key" => doc! { "_id" => 1 }, "name" => "_id_" } },
        doc! { "create" => "new", "timeseries" => doc! { "timeField" => "t", "metaField" => "m", "granularity" => "seconds" } },
        doc! { "create" => "new", "collation" => collation() },
        doc! { "collMod" => "c", "validationLevel" => "off", "validationAction" => "warn" },
        doc! { "collMod" => "c", "index" => doc! { "name" => "b_1", "hidden" => true } },
        doc! { "collMod" => "v", "viewOn" => "c", "pipeline" => array![] },
        doc! { "collMod" => "c", "clusteredIndex" => doc! { "expireAfterSeconds" => "off" } },
        index(doc! { "collation" => collation() }),
        index(doc! { "default_language" => "none", "language_override" => "l" }),
        index(doc! { "storageEngine" => doc! { "wiredTiger" => doc! { "configString" => "" } } }),
        doc! { "createIndexes" => "c", "indexes" => array![doc! { "key" => doc! { "x" => "hashed" }, "name" => "h" }], "commitQuorum" => "majority" },
        doc! { "dropIndexes" => "c", "index" => "b_1" },
        doc! { "dropIndexes" => "c", "index" => array!["b_1"] },
        doc! { "planCacheSetFilter" => "c", "query" => doc! { "a" => 1 }, "indexes" => array!["b_1"] },
        doc! { "explain" => doc! { "find" => "c" }, "verbosity" => "queryPlanner" },
        doc! { "dbHash" => 1, "collections" => array!["c"] },
        doc! { "validate" => "c", "comment" => "x" },
        doc! { "profile" => 0, "filter" => "unset" },
        doc! { "getMore" => 1i64, "collection" => "c" },
    ];
    all.extend(stages_with_strings().into_iter().map(of_stage));
    all
}

fn commands_with_strings_of_admin() -> Vec<DocBuf> {
    let entry = |object: DocBuf| doc! { "op" => "c", "ns" => "test.$cmd", "o" => object };
    vec![
        doc! { "setParameter" => 1, "internalQueryFrameworkControl" => "trySbeRestricted" },
        doc! { "setParameter" => 1, "ShardingTaskExecutorPoolReplicaSetMatching" => "automatic" },
        doc! { "setParameter" => 1, "notablescan" => "false" },
        doc! { "getParameter" => doc! { "allParameters" => true, "setAt" => "startup" } },
        doc! { "configureFailPoint" => "failCommand", "mode" => "off", "data" => doc! { "failCommands" => array!["x"], "appName" => "x" } },
        doc! { "logRotate" => "server" },
        doc! { "getLog" => "global" },
        doc! { "renameCollection" => "test.none", "to" => "test.x" },
        doc! { "applyOps" => array![entry(doc! { "create" => "new" })], "oplogApplicationMode" => "ApplyOps" },
        doc! { "applyOps" => array![entry(doc! { "renameCollection" => "test.none", "to" => "test.x" })] },
        doc! { "setFeatureCompatibilityVersion" => "8.0", "confirm" => true },
        doc! { "setDefaultRWConcern" => 1, "defaultReadConcern" => doc! { "level" => "local" } },
        doc! { "killAllSessionsByPattern" => array![doc! { "users" => array![doc! { "user" => "x", "db" => "y" }] }] },
        doc! { "bulkWrite" => 1, "ops" => array![doc! { "delete" => 0, "filter" => doc! { "_id" => 77 }, "hint" => "_id_" }], "nsInfo" => array![doc! { "ns" => "test.c" }] },
        doc! { "compact" => "c", "comment" => "x" },
        doc! { "hello" => 1, "saslSupportedMechs" => "test.u", "compression" => array!["snappy"] },
    ]
}

fn prepare(client: &Client) {
    for name in ["c", "v", "new", "m", "o", "x"] {
        client.run(&doc! { "drop" => name });
    }
    client.insert("c", [doc! {
        "_id" => 1, "a" => array!["x"], "n" => 1.0, "s" => "abc", "p" => 1, "o" => doc! { "a" => 1 },
        "d" => Value::DateTime(0),
    }]);
    let index = doc! { "key" => doc! { "b" => 1 }, "name" => "b_1" };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
    client.ok(doc! { "create" => "v", "viewOn" => "c", "pipeline" => array![] });
}

/// The result of the command with another value in place of a string; `None` if there are fewer strings.
fn outcome(client: &Client, command: &DocBuf, instead: Instead, at: i32) -> Option<(i64, String)> {
    let mut left = at;
    let Value::Document(changed) = with_other(command.as_doc(), false, instead, &mut left) else {
        panic!("no document");
    };
    if left >= 0 {
        return None;
    }
    prepare(&client.on("test"));
    Some(refusal(client, changed.into_buf()))
}

#[test]
fn a_string_that_is_not_utf8_is_not_called_a_value_of_another_type() {
    let test = TestServer::start();
    let client = test.client();
    let (mut blamed, mut strings) = (Vec::new(), 0);
    let all = commands_with_strings().into_iter().map(|command| (client.on("test"), command));
    let of_admin = commands_with_strings_of_admin().into_iter();
    for (client, command) in all.chain(of_admin.map(|command| (client.admin(), command))) {
        for at in 0.. {
            let of = |instead: Instead| outcome(&client, &command, instead, at);
            let Some((code, message)) = of(Instead::NotUtf8) else { break };
            strings += 1;
            let (Some(number), Some(other)) = (of(Instead::Number), of(Instead::OtherText)) else {
                panic!("there are as many strings");
            };
            let of_type = number.1.replace("int", "string");
            let is_as_number = code == number.0 && (message == number.1 || message == of_type);
            // An invalid name has the code of an invalid namespace.
            let is_told = message.contains("is not valid UTF-8");
            let by_code = code != 0 && code == number.0 && code != other.0 && !is_told;
            if by_code || is_as_number && message != other.1 {
                blamed.push(format!("string {at} of {}: {code} {message}", show(&command)));
            }
        }
    }
    assert!(strings > 200, "{strings} strings");
    assert!(blamed.is_empty(), "{} of {strings}:\n{}", blamed.len(), blamed.join("\n"));
}
