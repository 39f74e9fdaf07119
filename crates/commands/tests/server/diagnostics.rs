//! `getDiagnosticData` and `dropConnections`, which administration tools send.

use crate::common::{TestServer, at, number, text};
use kauri_bson::{DocBuf, Value, array, doc};

#[test]
fn connections_to_others_are_dropped_by_address() {
    let test = TestServer::start();
    let admin = test.client().admin();
    let drop = |hosts: Value<'static>| doc! { "dropConnections" => 1, "hostAndPort" => hosts };
    admin.ok(drop(array!["a.example:27017", "b", "[::1]:1", "[::1]", Value::Null]));
    admin.ok(drop(array![]));
    for bad in ["", ":1", "a:", "a:0", "a:65536", "a:x", "[::1]x", "::1", "a:1:b"] {
        assert_eq!(admin.fails(drop(array![bad])), 9, "{bad}");
    }
    assert_eq!(admin.fails(doc! { "dropConnections" => 1 }), 40414);
    assert_eq!(admin.fails(drop(Value::Null)), 40414);
    assert_eq!(admin.fails(drop("a:1".into())), 14);
    assert_eq!(admin.fails(drop(array![1])), 14);
    assert_eq!(test.client().fails(drop(array![])), 13);
}

#[test]
fn diagnostic_data_is_a_sample_of_the_servers_status() {
    let test = TestServer::start();
    let (client, admin) = (test.client(), test.client().admin());
    let sample = || at(&admin.ok(doc! { "getDiagnosticData" => 1 }), "data");
    client.insert("c", [doc! { "_id" => 1 }]);
    let data = sample();
    let names = |doc: &DocBuf| doc.as_doc().iter().map(|e| e.key().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&data), ["start", "serverStatus", "systemMetrics", "end"]);
    for section in ["serverStatus", "systemMetrics"] {
        let names = names(&at(&data, section));
        assert_eq!((names[0].as_str(), names[names.len() - 1].as_str()), ("start", "end"));
    }
    let status = at(&data, "serverStatus");
    assert_eq!(number(&at(&status, "opcounters"), "insert"), 1);
    assert_eq!(text(&status, "host"), "test:1");
    assert_eq!(number(&at(&at(&data, "systemMetrics"), "cpu"), "user_ms"), 7);
    client.insert("c", [doc! { "_id" => 2 }]);
    assert_eq!(number(&at(&at(&sample(), "serverStatus"), "opcounters"), "insert"), 2);
    admin.ok(doc! { "setParameter" => 1, "diagnosticDataCollectionEnabled" => false });
    assert!(names(&sample()).is_empty());
}
