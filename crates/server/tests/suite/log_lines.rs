//! Log lines have a length limit, in the log and in `getLog`.

use crate::check::{Place, Server, number};
use kauri_bson::{DocBuf, doc};
use serde_yaml_ng::Value as Json;

const SLOW: &[&str] = &["--slowms", "0"];

/// The lines that `getLog` returns.
fn kept(server: &mut Server) -> Vec<String> {
    let log = server.ask(doc! { "getLog" => "global", "$db" => "admin" });
    let lines = log.as_doc().value("log").into_owned();
    let lines = lines.as_array().unwrap().iter();
    lines.map(|line| line.value().as_str().unwrap_or_default().to_owned()).collect()
}

/// The newest line about an operation on this namespace. It is JSON.
fn slow_line(server: &mut Server, ns: &str) -> (String, Json) {
    let ns = format!("\"ns\":\"{ns}\"");
    let line = kept(server).into_iter().rfind(|line| line.contains(&ns)).unwrap();
    let json = serde_yaml_ng::from_str(&line).unwrap();
    (line, json)
}

fn at<'j>(json: &'j Json, path: &str) -> &'j Json {
    path.split('.').fold(json, |json, name| {
        json.get(name).unwrap_or_else(|| panic!("no {name} of {path} in {json:?}"))
    })
}

/// A message of many megabytes.
fn insert(collection: &str, bytes: usize) -> DocBuf {
    let documents = DocBuf::build(|out| {
        for n in 0..bytes / 1_000_000 {
            out.document(&n.to_string()).put("text", "\u{1}".repeat(1_000_000));
        }
    });
    DocBuf::build(|out| {
        out.put("insert", collection);
        let mut array = out.array("documents");
        documents.as_doc().iter().filter_map(|e| e.as_doc()).for_each(|doc| array.push_doc(doc));
        drop(array);
        out.put("ordered", true);
        out.put("$db", "test");
    })
}

#[test]
fn a_slow_command_of_many_megabytes_makes_a_line_of_kilobytes() {
    let place = Place::new("log-lines");
    let mut server = Server::start(&place.0, SLOW);
    let reply = server.ask(insert("c", 4_000_000));
    assert_eq!(number(&reply, "n"), 4.0);
    let (line, json) = slow_line(&mut server, "test.c");
    assert!(line.len() < 1000, "{}", line.len());
    assert_eq!(at(&json, "attr.command.insert").as_str(), Some("c"));
    let missing = at(&json, "truncated.command.documents.0.text");
    assert_eq!(at(missing, "type").as_str(), Some("string"));
    assert_eq!(at(missing, "size").as_u64(), Some(1_000_005));
    assert!(at(&json, "size.command").as_u64().unwrap() > 4_000_000);

    let ids = kauri_bson::Value::array((0..100_000).map(kauri_bson::Value::Int32));
    let filter = doc! { "_id" => doc! { "$in" => ids } };
    let find = doc! { "find" => "d", "filter" => filter, "$db" => "test" };
    let limit = |server: &mut Server, kb: i32| {
        let set = doc! { "setParameter" => 1, "maxLogSizeKB" => kb, "$db" => "admin" };
        number(&server.ask(set), "was")
    };
    server.ask(find.clone());
    let (line, json) = slow_line(&mut server, "test.d");
    assert!((10_000..11_000).contains(&line.len()), "{}", line.len());
    let cut = at(&json, "truncated.command.filter._id.$in").as_mapping().unwrap();
    assert_eq!(cut.len(), 1, "{cut:?}");
    assert_eq!(limit(&mut server, 1), 10.0);
    server.ask(find.clone());
    let (line, _) = slow_line(&mut server, "test.d");
    assert!((1_000..2_000).contains(&line.len()), "{}", line.len());
    // Without a limit the line is complete, and getLog keeps no line that exceeds its reply.
    assert_eq!(limit(&mut server, 0), 1.0);
    server.ask(find);
    let (line, json) = slow_line(&mut server, "test.d");
    assert!(line.len() > 500_000 && json.get("truncated").is_none(), "{}", line.len());
    server.ask(insert("e", 2_000_000));
    assert!(kept(&mut server).iter().all(|line| !line.contains("test.e")));
    server.stop();
}

#[test]
fn stored_commands_are_truncated() {
    let place = Place::new("kept-commands");
    let mut server = Server::start(&place.0, &["--setParameter", "maxLogSizeKB=2"]);
    server.insert(0..5);
    let comment = "x".repeat(1_000_000);
    let find =
        doc! { "find" => "c", "batchSize" => 2, "comment" => comment.as_str(), "$db" => "test" };
    assert!(number(&server.ask(find), "cursor.id") != 0.0);
    let stage = doc! { "$currentOp" => doc! { "idleCursors" => true } };
    let ask = doc! {
        "aggregate" => 1, "pipeline" => kauri_bson::array![stage], "cursor" => doc! {}, "$db" => "admin",
        "comment" => comment.as_str(),
    };
    let reply = server.ask(ask);
    assert!(reply.as_bytes().len() < 10_000, "{}", reply.as_bytes().len());
    let text = kauri_bson::shell_text(reply.as_doc());
    assert_eq!(text.matches("$truncated: true").count(), 2, "{text}");
    // The profiler's filters have a common limit in bytes.
    let profile = |server: &mut Server, db: &str| {
        let filter = doc! { "a" => "x".repeat(7_000_000) };
        let reply = server.ask(doc! { "profile" => 0, "filter" => filter, "$db" => db });
        reply.as_doc().value("code").to_i64_saturating()
    };
    assert_eq!((profile(&mut server, "a"), profile(&mut server, "b")), (None, None));
    assert_eq!(profile(&mut server, "c"), Some(146), "ExceededMemoryLimit");
    assert_eq!(profile(&mut server, "a"), None, "it replaces the existing one");
    server.stop();
}

/// The slow-query lines with this text, oldest first.
fn slow_lines(server: &mut Server, text: &str) -> Vec<Json> {
    let lines = kept(server).into_iter();
    let lines = lines.filter(|line| line.contains("\"Slow query\"") && line.contains(text));
    lines.map(|line| serde_yaml_ng::from_str(&line).unwrap()).collect()
}

/// The names of a line's attributes, in order.
fn names(line: &Json) -> Vec<&str> {
    let attr = at(line, "attr").as_mapping().unwrap();
    attr.keys().map(|name| name.as_str().unwrap()).collect()
}

fn number_at(line: &Json, name: &str) -> i64 {
    let value = at(line, &format!("attr.{name}"));
    value.as_i64().unwrap_or_else(|| panic!("no number {name}: {line:?}"))
}

fn text_at<'j>(line: &'j Json, path: &str) -> &'j str {
    at(line, path).as_str().unwrap_or_else(|| panic!("no text {path}: {line:?}"))
}

#[test]
fn a_slow_query_line_describes_a_read() {
    let place = Place::new("slow-reads");
    let mut server = Server::start(&place.0, SLOW);
    server.insert(0..5);
    let filter = doc! { "_id" => doc! { "$gte" => 1 } };
    let find = doc! {
        "find" => "c", "filter" => filter, "sort" => doc! { "x" => 1 }, "batchSize" => 3, "$db" => "test",
    };
    let reply = server.ask(find);
    let line = slow_lines(&mut server, "{\"find\":\"c\"").remove(0);
    let wanted = [
        "type",
        "isFromUserConnection",
        "ns",
        "collectionType",
        "command",
        "planSummary",
        "cursorid",
        "keysExamined",
        "docsExamined",
        "hasSortStage",
        "numYields",
        "nreturned",
        "queryFramework",
        "reslen",
        "locks",
        "storage",
        "remote",
        "protocol",
        "durationMillis",
    ];
    assert_eq!(names(&line), wanted);
    for (path, text) in [
        ("c", "COMMAND"),
        ("attr.type", "command"),
        ("attr.ns", "test.c"),
        ("attr.collectionType", "normal"),
        ("attr.planSummary", "IXSCAN { _id: 1 }"),
        ("attr.queryFramework", "classic"),
        ("attr.protocol", "op_msg"),
    ] {
        assert_eq!(text_at(&line, path), text);
    }
    assert!(text_at(&line, "attr.remote").starts_with("127.0.0.1:"));
    for (name, n) in [("keysExamined", 4), ("docsExamined", 4), ("nreturned", 3)] {
        assert_eq!(number_at(&line, name), n, "{name}");
    }
    assert_eq!(number_at(&line, "reslen"), 21 + reply.as_bytes().len() as i64);

    // A getMore belongs to its collection, and shows the command that opened the cursor.
    let cursor = reply.as_doc().value("cursor").into_owned();
    let id = cursor.as_document().unwrap().value("id").as_i64_exact().unwrap();
    server.ask(doc! { "getMore" => id, "collection" => "c", "$db" => "test" });
    let line = slow_lines(&mut server, "{\"getMore\":").remove(0);
    assert_eq!(text_at(&line, "attr.ns"), "test.c");
    assert_eq!(text_at(&line, "attr.originatingCommand.find"), "c");
    assert_eq!(text_at(&line, "attr.planSummary"), "IXSCAN { _id: 1 }");
    assert_eq!((number_at(&line, "cursorid"), number_at(&line, "nreturned")), (id, 1));
    assert_eq!(at(&line, "attr.cursorExhausted").as_bool(), Some(true));

    // A failed command has its error, and no figures of a plan that never ran.
    server.ask(doc! { "find" => "d", "filter" => doc! { "$no" => 1 }, "$db" => "test" });
    let line = slow_lines(&mut server, "{\"find\":\"d\"").remove(0);
    assert_eq!((number_at(&line, "ok"), number_at(&line, "errCode")), (0, 2));
    assert_eq!(text_at(&line, "attr.errName"), "BadValue");
    assert!(!names(&line).contains(&"keysExamined"), "{line:?}");
    server.stop();
}

#[test]
fn each_statement_of_an_update_or_delete_has_a_line() {
    let place = Place::new("slow-writes");
    let mut server = Server::start(&place.0, SLOW);
    server.insert(0..3);
    let set = doc! { "$set" => doc! { "a" => 1 } };
    let statement = |id: i32| doc! { "q" => doc! { "_id" => id }, "u" => set.clone() };
    // One document takes the express path, two do not.
    for ids in [vec![0], vec![1, 7]] {
        let statements = kauri_bson::Value::array(ids.iter().map(|id| statement(*id).into()));
        server.ask(doc! { "update" => "c", "updates" => statements, "$db" => "test" });
    }
    let lines = slow_lines(&mut server, "\"type\":\"update\"");
    let wanted = [
        "type",
        "isFromUserConnection",
        "ns",
        "collectionType",
        "command",
        "planSummary",
        "keysExamined",
        "docsExamined",
        "nMatched",
        "nModified",
        "nUpserted",
        "numYields",
        "locks",
        "storage",
        "remote",
        "durationMillis",
    ];
    assert_eq!(lines.len(), 3);
    for (line, (id, n)) in lines.iter().zip([(0, 1), (1, 1), (7, 0)]) {
        assert_eq!(names(line), wanted);
        assert_eq!((text_at(line, "c"), text_at(line, "attr.ns")), ("WRITE", "test.c"));
        assert_eq!(at(line, "attr.command.q._id").as_i64(), Some(id));
        assert_eq!(at(line, "attr.command.u.$set.a").as_i64(), Some(1));
        assert_eq!(at(line, "attr.command.multi").as_bool(), Some(false));
        assert_eq!(at(line, "attr.command.upsert").as_bool(), Some(false));
        assert_eq!((number_at(line, "nMatched"), number_at(line, "nModified")), (n, n));
        assert_eq!(text_at(line, "attr.planSummary"), "IDHACK");
    }
    // The surrounding commands have lines, too.
    let around = slow_lines(&mut server, "{\"update\":\"c\"");
    let ns: Vec<&str> = around.iter().map(|line| text_at(line, "attr.ns")).collect();
    assert_eq!(ns, ["test.$cmd"; 2]);
    let delete = doc! { "q" => doc! {}, "limit" => 0 };
    let deletes = kauri_bson::array![delete];
    server.ask(doc! { "delete" => "c", "deletes" => deletes, "$db" => "test" });
    let line = slow_lines(&mut server, "\"type\":\"remove\"").remove(0);
    assert_eq!((number_at(&line, "ndeleted"), number_at(&line, "docsExamined")), (3, 3));
    assert_eq!(text_at(&line, "attr.planSummary"), "COLLSCAN");
    server.stop();
}

#[test]
fn startup_options_select_profiled_operations() {
    let place = Place::new("profile-options");
    let args = ["--profile", "2", "--slowOpSampleRate", "0", "--slowms", "0"];
    let mut server = Server::start(&place.0, &args);
    server.insert(0..2);
    let asked = server.ask(doc! { "profile" => -1, "$db" => "test" });
    let told = ["was", "slowms", "sampleRate"].map(|name| number(&asked, name));
    assert_eq!(told, [2.0, 0.0, 0.0]);
    let count = |server: &mut Server| {
        // Reads of `system.profile` have documents, too.
        let inserts = doc! { "op" => "insert" };
        number(
            &server.ask(doc! { "count" => "system.profile", "query" => inserts, "$db" => "test" }),
            "n",
        )
    };
    assert_eq!(count(&mut server), 2.0);
    assert!(slow_lines(&mut server, "").is_empty(), "none is sampled");
    server.ask(doc! { "profile" => 0, "$db" => "test" });
    server.insert(2..3);
    assert_eq!(count(&mut server), 2.0);
    server.stop();
    // The level is not persistent, the documents are.
    let mut server = Server::start(&place.0, &[]);
    assert_eq!(number(&server.ask(doc! { "profile" => -1, "$db" => "test" }), "was"), 0.0);
    assert_eq!(count(&mut server), 2.0);
    server.stop();
}
