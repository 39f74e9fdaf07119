//! Log lines of the program have a length limit, in the log and in `getLog`.

use crate::check::{Place, Server, number};
use kauri_bson::{DocBuf, doc};
use serde_yaml_ng::Value as Json;

const SLOW: &[&str] = &["--slowms", "0"];

/// The lines that `getLog` gives.
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
    // Without a limit the line is whole, and getLog keeps no line that its reply can't take.
    assert_eq!(limit(&mut server, 0), 1.0);
    server.ask(find);
    let (line, json) = slow_line(&mut server, "test.d");
    assert!(line.len() > 500_000 && json.get("truncated").is_none(), "{}", line.len());
    server.ask(insert("e", 2_000_000));
    assert!(kept(&mut server).iter().all(|line| !line.contains("test.e")));
    server.stop();
}

#[test]
fn what_the_server_keeps_of_commands_is_short() {
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
    // The profiler's filters are bounded by the bytes of all.
    let profile = |server: &mut Server, db: &str| {
        let filter = doc! { "a" => "x".repeat(7_000_000) };
        let reply = server.ask(doc! { "profile" => 0, "filter" => filter, "$db" => db });
        reply.as_doc().value("code").to_i64_saturating()
    };
    assert_eq!((profile(&mut server, "a"), profile(&mut server, "b")), (None, None));
    assert_eq!(profile(&mut server, "c"), Some(146), "ExceededMemoryLimit");
    assert_eq!(profile(&mut server, "a"), None, "it replaces the one that is there");
    server.stop();
}
