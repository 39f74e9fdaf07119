//! `$densify` in a complete server: its parameters and its interruption.

use crate::common::{TestServer, code_of, first_batch, number, show, until};
use kauri_bson::{DocBuf, array, doc};
use std::time::Duration;

/// An aggregation, on a collection without values, that makes this many documents.
fn made(count: i32) -> DocBuf {
    let range = doc! { "step" => 1, "bounds" => array![0, count] };
    let densify = doc! { "$densify" => doc! { "field" => "v", "range" => range } };
    let pipeline = array![densify, doc! { "$count" => "n" }];
    doc! { "aggregate" => "c", "pipeline" => pipeline, "cursor" => doc! {}, "maxTimeMS" => 1000 }
}

#[test]
fn limits_of_densify_are_parameters() {
    let test = TestServer::start();
    let (client, admin) = (test.client(), test.client().admin());
    let set =
        |name: &str, value: i32| code_of(&admin.run(&doc! { "setParameter" => 1, name => value }));
    assert_eq!(number(&first_batch(&client.ok(made(5000)))[0], "n"), 5000);
    assert_eq!(set("internalQueryMaxAllowedDensifyDocs", 4999), 0);
    assert_eq!(client.fails(made(5000)), 5897900);
    client.ok(made(4999));
    assert_eq!(set("internalQueryMaxAllowedDensifyDocs", -1), 2);
    assert_eq!(set("internalDocumentSourceDensifyMaxMemoryBytes", 0), 2);
    client.insert(
        "c",
        (0..10).map(|n| doc! { "_id" => n, "v" => n, "p" => format!("{n}{}", "x".repeat(200)) }),
    );
    let range = doc! { "step" => 1, "bounds" => "partition" };
    let densify = doc! { "$densify" => doc! { "field" => "v", "partitionByFields" => array!["p"], "range" => range } };
    let partitions =
        || doc! { "aggregate" => "c", "pipeline" => array![densify.clone()], "cursor" => doc! {} };
    client.ok(partitions());
    assert_eq!(set("internalDocumentSourceDensifyMaxMemoryBytes", 1000), 0);
    assert_eq!(client.fails(partitions()), 6007200);
}

#[test]
fn densify_ends_by_its_time_limit() {
    let test = TestServer::start();
    let client = test.client();
    client
        .admin()
        .ok(doc! { "setParameter" => 1, "internalQueryMaxAllowedDensifyDocs" => i32::MAX });
    client.send(&made(i32::MAX));
    let mut running = 0;
    until("the operation runs", || {
        running = 0;
        test.server.operations.for_each(|_| running += 1);
        running > 0
    });
    test.clock.advance(Duration::from_secs(2));
    let reply = client.receive().unwrap();
    assert_eq!(code_of(&reply), 50, "{}", show(&reply));
}
