//! A find by `_id` on the express path returns the same bytes as the ordinary path.

use crate::common::{Client, TestServer, at, code_of, first_batch, lsid, show};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{DocBuf, Value, array, doc};

/// While any failpoint is set, every request takes the ordinary path.
fn ordinary_only(client: &Client, on: bool) {
    let mode = if on { "alwaysOn" } else { "off" };
    client.admin().ok(doc! {
        "configureFailPoint" => "failCommand", "mode" => mode,
        "data" => doc! { "failCommands" => array!["nothing"] },
    });
}

/// Runs the command, and returns whether it took the ordinary path, where operations have numbers.
fn run(test: &TestServer, client: &Client, command: &DocBuf) -> (Vec<u8>, bool) {
    let before = test.server.operations.next_id();
    client.send(command);
    let reply = client.receive_bytes().unwrap();
    let ordinary = test.server.operations.next_id() != before + 1;
    // Behind the header, which contains the reply's id.
    (without_cursor_id(&reply[16..]), ordinary)
}

/// The reply without the ids of open cursors, which are random.
fn without_cursor_id(reply: &[u8]) -> Vec<u8> {
    let mut bytes = reply.to_vec();
    let name = b"\x12id\0";
    if let Some(at) = bytes.windows(name.len()).position(|w| w == name) {
        let id = &mut bytes[at + name.len()..][..8];
        if id != [0; 8] {
            id.fill(1);
        }
    }
    bytes
}

struct Both<'t> {
    test: &'t TestServer,
    client: Client,
    express: usize,
    ordinary: usize,
}

impl Both<'_> {
    /// Runs each command on both paths.
    #[track_caller]
    fn same(&mut self, commands: &[DocBuf]) {
        let first: Vec<_> = commands.iter().map(|c| run(self.test, &self.client, c)).collect();
        ordinary_only(&self.client, true);
        let second: Vec<_> = commands.iter().map(|c| run(self.test, &self.client, c)).collect();
        ordinary_only(&self.client, false);
        for ((command, first), second) in commands.iter().zip(&first).zip(&second) {
            assert!(second.1, "not the ordinary way: {}", show(command));
            let texts = || format!("{:?}\n{:?}", lossy(&first.0), lossy(&second.0));
            assert!(first.0 == second.0, "{}\n{}", show(command), texts());
            *(if first.1 { &mut self.ordinary } else { &mut self.express }) += 1;
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned()
}

fn both(test: &TestServer) -> Both<'_> {
    Both { test, client: test.client(), express: 0, ordinary: 0 }
}

fn find(extra: DocBuf) -> DocBuf {
    DocBuf::build(|w| {
        w.put("find", "c");
        w.put_all(extra.as_doc());
    })
}

fn ids() -> Vec<Value<'static>> {
    let long = "k".repeat(2000);
    vec![
        Value::from(1),
        Value::from(2i64),
        Value::from(2.5),
        Value::from(-0.0),
        Value::from(f64::NAN),
        Value::from("text"),
        Value::from(""),
        Value::from(long.as_str()).into_owned(),
        Value::Bool(true),
        Value::DateTime(17),
        Value::ObjectId([7; 12]),
        Value::Binary { subtype: 4, bytes: vec![3; 16].into() },
        Value::MinKey,
        Value::MaxKey,
        Value::from(doc! {}),
        Value::from(doc! { "a" => 1, "b" => doc! { "c" => "d" } }),
        Value::Timestamp(kauri_base::Timestamp { seconds: 5, increment: 6 }),
    ]
}

#[test]
fn every_kind_of_id_is_found_by_either_path() {
    let test = TestServer::start();
    let mut both = both(&test);
    let sizes = [0, 100, 5_000, 70_000, 1_000_000];
    let docs = ids().into_iter().enumerate().map(|(n, id)| {
        doc! { "_id" => id, "n" => n as i32, "pad" => "p".repeat(sizes[n % sizes.len()]).as_str() }
    });
    both.client.insert("c", docs);
    let commands: Vec<DocBuf> = ids()
        .into_iter()
        .chain([Value::from(3), Value::from("absent"), Value::from(doc! { "b" => 1 })])
        .map(|id| find(doc! { "filter" => doc! { "_id" => id } }))
        .collect();
    both.same(&commands);
    assert_eq!(both.express, ids().len());
    for command in &commands[..ids().len()] {
        assert_eq!(first_batch(&both.client.run(command)).len(), 1, "{}", show(command));
    }
    // Equal numbers of other types find the same document.
    both.same(&[
        find(doc! { "filter" => doc! { "_id" => 1.0 } }),
        find(doc! { "filter" => doc! { "_id" => 2 } }),
        find(doc! { "filter" => doc! { "_id" => 0 } }),
    ]);
    assert_eq!(both.express, ids().len() + 3);
}

/// Fields of a find, with values that the express path accepts or not.
fn options() -> Vec<(&'static str, Vec<Value<'static>>)> {
    let numbers =
        || vec![0.into(), 1.into(), 2i64.into(), (-1).into(), 1.0.into(), 0.5.into(), "1".into()];
    let docs =
        || vec![doc! {}.into(), doc! { "a" => 1 }.into(), doc! { "_id" => 0 }.into(), 1.into()];
    let bools = || vec![true.into(), false.into(), 1.into(), Value::Null];
    let session = doc! { "id" => "no uuid" };
    let preference = |mode: &str| Value::from(doc! { "mode" => mode });
    vec![
        ("limit", numbers()),
        ("batchSize", numbers()),
        ("skip", numbers()),
        ("maxTimeMS", vec![1_000.into(), 0.into(), (-1).into(), "1".into()]),
        ("singleBatch", bools()),
        ("projection", docs()),
        ("sort", docs()),
        ("hint", vec!["_id_".into(), "none".into(), doc! { "_id" => 1 }.into(), 1.into()]),
        ("lsid", vec![lsid(1).into(), session.into(), 1.into(), doc! {}.into()]),
        ("$readPreference", vec![preference("primary"), preference("nonsense"), 1.into()]),
        ("$clusterTime", vec![doc! {}.into(), 1.into()]),
        ("readConcern", vec![doc! {}.into(), doc! { "level" => "local" }.into(), 1.into()]),
        ("comment", vec!["x".into()]),
        ("collation", vec![doc! {}.into(), doc! { "locale" => "simple" }.into()]),
        ("allowDiskUse", bools()),
        ("showRecordId", bools()),
        ("returnKey", bools()),
        ("tailable", bools()),
        ("awaitData", bools()),
        ("noCursorTimeout", bools()),
        ("allowPartialResults", bools()),
        ("let", vec![doc! { "x" => 1 }.into(), 1.into()]),
        ("min", vec![doc! { "_id" => 0 }.into()]),
        ("apiVersion", vec!["1".into(), "2".into()]),
        ("txnNumber", vec![1i64.into()]),
        ("writeConcern", vec![doc! { "w" => 1 }.into(), doc! { "w" => 2 }.into(), Value::Null]),
        ("autocommit", vec![false.into()]),
        ("unknown", vec![1.into()]),
        ("filter", vec![doc! { "_id" => 2 }.into(), doc! {}.into(), 1.into()]),
    ]
}

fn filters() -> Vec<Value<'static>> {
    let absent: Value<'static> = doc! { "_id" => 77 }.into();
    vec![
        doc! { "_id" => 1 }.into(),
        doc! { "_id" => 1 }.into(),
        doc! { "_id" => 1 }.into(),
        absent,
        doc! { "_id" => doc! { "$gt" => 1 } }.into(),
        doc! { "_id" => doc! { "$eq" => 1 } }.into(),
        doc! { "_id" => doc! { "$nonsense" => 1 } }.into(),
        doc! { "_id" => doc! { "a" => 1, "$b" => 1 } }.into(),
        doc! { "_id" => Value::Null }.into(),
        doc! { "_id" => array![1, 2] }.into(),
        doc! { "_id" => 1, "a" => 1 }.into(),
        doc! { "_id" => 1, "_id" => 2 }.into(),
        doc! { "a" => 1 }.into(),
        doc! {}.into(),
        1.into(),
    ]
}

#[test]
fn both_paths_agree_on_all_combinations_of_options() {
    let test = TestServer::start();
    let mut both = both(&test);
    both.client.insert("c", (0..5).map(|n| doc! { "_id" => n, "a" => n % 2, "b" => "text" }));
    let random = SeededRandom::new(20_261);
    let pick = |bound: usize| (random.next_u64() % bound as u64) as usize;
    let (options, filters) = (options(), filters());
    for _ in 0..40 {
        let commands: Vec<DocBuf> = (0..100)
            .map(|_| {
                let mut fields = vec![("filter", filters[pick(filters.len())].clone())];
                for _ in 0..pick(4) {
                    let (name, values) = &options[pick(options.len())];
                    let value = values[pick(values.len())].clone();
                    if !fields.iter().any(|(n, _)| n == name) || pick(4) == 0 {
                        fields.insert(pick(fields.len() + 1), (*name, value));
                    }
                }
                find(DocBuf::build(|w| fields.iter().for_each(|(n, v)| w.put_value(n, v))))
            })
            .collect();
        both.same(&commands);
        // Sessions and cursors left by these commands must not affect the next ones.
        both.client.admin().ok(doc! { "killAllSessions" => Value::array([]) });
    }
    assert!(both.express > 200, "{} took the express path", both.express);
    assert!(both.ordinary > 1_000, "{} took the ordinary path", both.ordinary);
}

#[test]
fn both_paths_agree_on_all_names_and_kinds_of_collections() {
    let test = TestServer::start();
    let mut both = both(&test);
    let client = &both.client;
    client.insert("c", [doc! { "_id" => 1 }]);
    client.ok(doc! { "create" => "view", "viewOn" => "c", "pipeline" => Value::array([]) });
    client.ok(doc! { "create" => "capped", "capped" => true, "size" => 4096 });
    client.insert("capped", [doc! { "_id" => 1 }]);
    let named = |name: Value<'static>| doc! { "find" => name, "filter" => doc! { "_id" => 1 } };
    let names = ["c", "view", "capped", "absent", "", "a\0b", "system.views", "$cmd", "$x", ".c"];
    let mut commands: Vec<DocBuf> = names.iter().map(|n| named((*n).into())).collect();
    commands.extend([named(1.into()), named(Value::Null)]);
    both.same(&commands);
    assert!(both.express >= 2, "{} took the express path", both.express);
    // Invalid or absent databases.
    for database in ["", "a.b", "a b", "admin", "absent"] {
        both.client.database = database.to_owned();
        both.same(&[named("c".into())]);
    }
}

#[test]
fn a_dropped_collection_is_not_found_by_the_express_path() {
    let test = TestServer::start();
    let client = test.client();
    let command = find(doc! { "filter" => doc! { "_id" => 1 } });
    for _ in 0..3 {
        client.insert("c", [doc! { "_id" => 1 }]);
        assert_eq!(first_batch(&client.run(&command)).len(), 1);
        client.ok(
            doc! { "delete" => "c", "deletes" => array![doc! { "q" => doc! {}, "limit" => 0 }] },
        );
        assert_eq!(first_batch(&client.run(&command)).len(), 0);
        client.insert("c", [doc! { "_id" => 1 }]);
        client
            .admin()
            .ok(doc! { "renameCollection" => "test.c", "to" => "test.d", "dropTarget" => true });
        assert_eq!(first_batch(&client.run(&command)).len(), 0);
    }
    client.ok(doc! { "drop" => "d" });
    let reply = client.run(&doc! { "find" => "d", "filter" => doc! { "_id" => 1 } });
    assert_eq!(code_of(&reply), 0);
    assert_eq!(first_batch(&reply).len(), 0, "{}", show(&at(&reply, "cursor")));
}
