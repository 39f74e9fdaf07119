//! Replies that depend on a server version: `setFeatureCompatibilityVersion`, and commands that clients of
//! other servers send.

use crate::common::{TestServer, cursor_id, refusal};
use kauri_bson::{DocBuf, array, doc};

#[test]
fn the_compatibility_version_can_only_keep_its_value() {
    let test = TestServer::start();
    let admin = test.client().admin();
    let set = |version: &str, more: DocBuf| {
        DocBuf::build(|out| {
            out.put("setFeatureCompatibilityVersion", version);
            out.put_all(more.as_doc());
        })
    };
    admin.ok(set("8.0", doc! { "confirm" => true, "writeConcern" => doc! { "w" => 1 } }));
    for unconfirmed in [doc! {}, doc! { "confirm" => false }] {
        let (code, why) = refusal(&admin, set("8.0", unconfirmed));
        assert_eq!(code, 7369100);
        assert!(why.contains("'confirm: true'"), "{why}");
    }
    for other in ["7.0", "8.2", "x", ""] {
        let (code, why) = refusal(&admin, set(other, doc! { "confirm" => true }));
        assert_eq!(code, 4926900);
        let words =
            format!("Invalid feature compatibility version value '{other}'; expected '8.0'.");
        assert!(why.starts_with(&words), "{why}");
    }
    assert_eq!(
        admin.fails(doc! { "setFeatureCompatibilityVersion" => 8.0, "confirm" => true }),
        14
    );
    assert_eq!(admin.fails(set("8.0", doc! { "confirm" => true, "x" => 1 })), 40415);
    assert_eq!(test.client().fails(set("8.0", doc! { "confirm" => true })), 13);
}

#[test]
fn get_more_ignores_the_term() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..3).map(|id| doc! { "_id" => id }));
    let first = client.ok(doc! { "find" => "c", "batchSize" => 1 });
    let more = doc! { "getMore" => cursor_id(&first), "collection" => "c", "term" => 1i64 };
    client.ok(more);
}

#[test]
fn a_clone_may_target_a_system_collection() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    client.ok(doc! {
        "cloneCollectionAsCapped" => "c", "toCollection" => "system.profile", "size" => 4096,
    });
    assert_eq!(client.all_ids("system.profile"), [1]);
}

#[test]
fn a_reply_may_slightly_exceed_the_document_limit() {
    let test = TestServer::start();
    let client = test.client();
    let half = "x".repeat(8 * 1024 * 1024);
    client.insert("c", [doc! { "_id" => 1, "a" => half.as_str() }]);
    let twice = |more: usize| {
        let rest = "y".repeat(8 * 1024 * 1024 + more);
        let set = doc! { "$set" => doc! { "b" => doc! { "$literal" => rest } } };
        doc! { "aggregate" => "c", "pipeline" => array![set], "cursor" => doc! {} }
    };
    client.ok(twice(1024));
    assert_eq!(client.fails(twice(20 * 1024)), 10_334);
}
