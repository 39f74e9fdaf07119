//! The output of `$currentOp` and `currentOp`: operations, idle connections, idle cursors, complete and
//! truncated commands.

use crate::common::{Client, TestServer, at, first_batch, number, show, text, until};
use kauri_bson::{DocBuf, Value, array, doc};

fn rows(client: &Client, options: DocBuf) -> Vec<DocBuf> {
    let stages = array![doc! { "$currentOp" => options }];
    first_batch(&client.admin().ok(doc! {
        "aggregate" => 1, "pipeline" => stages, "cursor" => doc! {},
    }))
}

fn in_progress(reply: &DocBuf) -> Vec<DocBuf> {
    let rows = reply.as_doc().value("inprog").into_owned();
    rows.as_array().unwrap().iter().map(|row| row.as_doc().unwrap().to_buf()).collect()
}

fn fields(row: &DocBuf) -> Vec<String> {
    row.as_doc().iter().map(|elem| elem.key().to_owned()).collect()
}

fn is_idle(row: &DocBuf) -> bool {
    row.as_doc().value("active") == Value::Bool(false)
}

#[test]
fn idle_connections_are_shown_on_request() {
    let test = TestServer::start();
    let (client, other) = (test.client(), test.client_from("192.0.2.7:4711"));
    let metadata = doc! {
        "application" => doc! { "name" => "shop" },
        "driver" => doc! { "name" => "d", "version" => "1" },
        "os" => doc! { "type" => "Linux" },
    };
    other.ok(doc! { "hello" => 1, "client" => metadata.clone() });
    let from = |row: &DocBuf| text(row, "client") == "192.0.2.7:4711";
    let asked = doc! { "idleConnections" => true };
    until("the other is idle", || {
        rows(&client, asked.clone()).iter().any(|row| from(row) && is_idle(row))
    });
    let all = rows(&client, asked.clone());
    let idle: Vec<&DocBuf> = all.iter().filter(|row| is_idle(row)).collect();
    assert_eq!((all.len(), idle.len()), (2, 1), "the client itself is active");
    assert_eq!(
        fields(idle[0]),
        [
            "type",
            "host",
            "desc",
            "connectionId",
            "client",
            "appName",
            "clientMetadata",
            "active",
            "currentOpTime",
            "effectiveUsers",
            "threaded",
        ]
    );
    assert_eq!(text(idle[0], "type"), "op");
    assert_eq!(text(idle[0], "appName"), "shop");
    assert_eq!(at(idle[0], "clientMetadata"), metadata);
    assert_eq!(text(idle[0], "desc"), format!("conn{}", number(idle[0], "connectionId")));
    assert_eq!(rows(&client, doc! {}).len(), 1);
    assert_eq!(rows(&client, doc! { "idleConnections" => false }).len(), 1);
    // The command uses another field name for it.
    let listed = in_progress(&client.admin().ok(doc! { "currentOp" => 1, "$all" => true }));
    assert!(listed.iter().any(|row| from(row) && is_idle(row)), "{}", listed.len());
    for command in [doc! { "currentOp" => 1 }, doc! { "currentOp" => 1, "$all" => false }] {
        assert_eq!(in_progress(&client.admin().ok(command)).len(), 1);
    }
    // Without authentication all operations belong to one user.
    let own = in_progress(&client.admin().ok(doc! {
        "currentOp" => 1, "$ownOps" => true, "$all" => true, "client" => "192.0.2.7:4711",
    }));
    assert_eq!(own.len(), 1);
    drop(other);
    until("the operation has ended", || rows(&client, asked.clone()).len() == 1);
}

/// The entry of the command itself in its reply.
#[track_caller]
fn own(rows: &[DocBuf]) -> DocBuf {
    assert_eq!(rows.len(), 1);
    at(&rows[0], "command")
}

#[test]
fn long_commands_are_truncated_only_on_request() {
    let test = TestServer::start();
    let client = test.client();
    let long = "x".repeat(3000);
    let piped = |options: DocBuf| {
        let matched = doc! { "$match" => doc! { "nothing" => doc! { "$ne" => long.as_str() } } };
        let stages = array![doc! { "$currentOp" => options }, matched];
        own(&first_batch(&client.admin().ok(doc! {
            "aggregate" => 1, "pipeline" => stages, "cursor" => doc! {}, "comment" => "mine",
        })))
    };
    for whole in [doc! {}, doc! { "truncateOps" => false }] {
        let command = piped(whole);
        assert_eq!(number(&command, "aggregate"), 1, "{}", show(&command));
        assert!(command.as_doc().as_bytes().len() > 3000);
    }
    let is_cut = |command: &DocBuf| {
        let cut = text(command, "$truncated");
        assert!(cut.len() <= 1024 && cut.contains("xxx"), "{cut}");
        assert_eq!(fields(command), ["$truncated", "comment"]);
        assert_eq!(text(command, "comment"), "mine");
    };
    is_cut(&piped(doc! { "truncateOps" => true }));
    let command = |truncate: Option<bool>| {
        let command = DocBuf::build(|out| {
            out.put("currentOp", 1);
            out.put("nothing", doc! { "$ne" => long.as_str() });
            out.put("comment", "mine");
            if let Some(truncate) = truncate {
                out.put("$truncateOps", truncate);
            }
        });
        own(&in_progress(&client.admin().ok(command)))
    };
    is_cut(&command(None));
    is_cut(&command(Some(true)));
    assert_eq!(number(&command(Some(false)), "currentOp"), 1);
    let tests = |on: bool| {
        test.server.parameters.set_at_startup("enableTestCommands", Value::Bool(on)).unwrap();
    };
    tests(false);
    is_cut(&command(Some(false)));
    tests(true);
    // A very long command is truncated at once, because its memory is limited.
    let filter = doc! { "$ne" => "y".repeat(100_000).as_str() };
    let cut = own(&in_progress(&client.admin().ok(doc! {
        "currentOp" => 1, "nothing" => filter, "$truncateOps" => false,
    })));
    assert_eq!(fields(&cut), ["currentOp", "$truncateOps", "$db", "$truncated"]);
}

#[test]
fn each_option_has_its_effect_or_is_refused() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..5).map(|n| doc! { "_id" => n }));
    client.ok(doc! { "find" => "c", "batchSize" => 2 });
    let kinds = |options: DocBuf| {
        let rows = rows(&client, options);
        rows.iter().map(|row| text(row, "type")).collect::<Vec<_>>()
    };
    assert_eq!(kinds(doc! { "idleCursors" => true }), ["op", "idleCursor"]);
    assert_eq!(kinds(doc! { "idleCursors" => false }), ["op"]);
    // There are no users, transactions or other nodes for these options to show.
    for name in ["allUsers", "idleSessions", "localOps"] {
        for value in [true, false] {
            assert_eq!(kinds(doc! { name => value }), ["op"], "{name}");
        }
    }
    let asked = |options: DocBuf| {
        let stages = array![doc! { "$currentOp" => options }];
        client.admin().fails(doc! { "aggregate" => 1, "pipeline" => stages, "cursor" => doc! {} })
    };
    assert_eq!(asked(doc! { "targetAllNodes" => true }), 9);
    assert_eq!(kinds(doc! { "targetAllNodes" => false }), ["op"]);
    for name in
        ["allUsers", "idleConnections", "idleCursors", "idleSessions", "localOps", "truncateOps"]
    {
        assert_eq!(asked(doc! { name => 1 }), 14, "{name}");
    }
    assert_eq!(asked(doc! { "other" => true }), 40415);
}
