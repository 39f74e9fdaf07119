//! A write on the express path has the same reply and effect as on the ordinary path.

use crate::common::{Client, TestServer, at, lsid, number, show};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{DocBuf, DocWriter, Value, array, doc};
use kauri_wire::MsgWriter;

/// Two servers with the same contents. The second has a failpoint without effect, so every request there takes
/// the ordinary path.
struct Pair {
    servers: [(TestServer, Client); 2],
    express: usize,
    ordinary: usize,
}

impl Pair {
    fn start() -> Pair {
        let servers = [(); 2].map(|()| {
            let test = TestServer::start();
            let client = test.client();
            (test, client)
        });
        servers[1].1.admin().ok(doc! {
            "configureFailPoint" => "failCommand", "mode" => "alwaysOn",
            "data" => doc! { "failCommands" => array!["nothing"] },
        });
        let pair = Pair { servers, express: 0, ordinary: 0 };
        for (_, client) in &pair.servers {
            set_up(client);
        }
        pair
    }

    /// Sends the message to both servers and expects the same reply. Returns whether it took the express path.
    #[track_caller]
    fn same(&mut self, message: &[u8], what: &DocBuf) -> bool {
        let [first, second] = [0, 1].map(|n| {
            let (test, client) = &self.servers[n];
            let before = test.server.operations.next_id();
            client.send_bytes(message);
            let reply = client.receive_bytes().unwrap();
            // Operations on the ordinary path have numbers.
            let ordinary = test.server.operations.next_id() != before + 1;
            (reply[16..].to_vec(), ordinary)
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(first.0 == second.0, "{}\n{:?}\n{:?}", show(what), text(&first.0), text(&second.0));
        // A message that can't be parsed gets no number on either path.
        let express = second.1 && !first.1;
        *(if express { &mut self.express } else { &mut self.ordinary }) += 1;
        express
    }

    /// Expects the same documents, counters and complete indexes on both servers.
    fn same_state(&self) {
        let states = self.servers.each_ref().map(|(_, client)| {
            let mut all = Vec::new();
            for collection in COLLECTIONS.iter().filter(|c| !["view", "absent"].contains(c)) {
                client.validate(collection);
                for sort in [doc! { "_id" => 1 }, doc! { "a" => 1 }, doc! { "u" => 1 }] {
                    let find =
                        doc! { "find" => *collection, "hint" => sort, "batchSize" => 10_000 };
                    all.push(without_increments(&show(&at(&client.run(&find), "cursor"))));
                }
            }
            let status = client.ok(doc! { "serverStatus" => 1 });
            let counters = at(&status, "opcounters");
            let documents = at(&at(&status, "metrics"), "document");
            let commands = at(&at(&status, "metrics"), "commands");
            for name in ["insert", "update", "delete"] {
                all.push(format!("{name} {}", number(&counters, name)));
                all.push(show(&at(&commands, name)));
            }
            for name in ["inserted", "updated", "deleted"] {
                all.push(format!("{name} {}", number(&documents, name)));
            }
            all
        });
        assert_eq!(states[0], states[1]);
    }
}

/// Removes increments: an express attempt that gave up may have used a timestamp.
fn without_increments(shown: &str) -> String {
    let mut parts = shown.split("Timestamp(");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (seconds, increment) = part.split_once(", ").unwrap();
        out.push_str(&format!("Timestamp({seconds})"));
        out.push_str(increment.split_once(')').unwrap().1);
    }
    out
}

const COLLECTIONS: [&str; 6] = ["c", "c", "capped", "checked", "view", "absent"];

fn set_up(client: &Client) {
    let keys = array![
        doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" },
        doc! { "key" => doc! { "u" => 1 }, "name" => "u_1", "unique" => true, "sparse" => true },
    ];
    client.ok(doc! { "create" => "capped", "capped" => true, "size" => 4096, "max" => 5 });
    let validator = doc! { "a" => doc! { "$type" => "int" } };
    client.ok(doc! { "create" => "checked", "validator" => validator });
    client.ok(doc! { "create" => "view", "viewOn" => "c", "pipeline" => Value::array([]) });
    for collection in ["c", "capped", "checked"] {
        client.ok(doc! { "createIndexes" => collection, "indexes" => keys.clone() });
        client.insert(collection, (0..5).map(|n| doc! { "_id" => n, "a" => n % 2, "u" => n }));
    }
}

struct Generator(SeededRandom);

impl Generator {
    fn below(&self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }

    fn of<'v, T>(&self, values: &'v [T]) -> &'v T {
        &values[self.below(values.len())]
    }

    fn id(&self) -> Value<'static> {
        match self.below(12) {
            0 => doc! { "x" => 1 }.into(),
            1 => (self.below(8) as f64).into(),
            2 => doc! { "$gt" => 1 }.into(),
            3 => array![1],
            4 => Value::Null,
            _ => (self.below(8) as i32).into(),
        }
    }

    fn document(&self) -> DocBuf {
        DocBuf::build(|w| {
            if self.below(8) == 0 {
                w.put("a", "before the _id");
            }
            w.put_value("_id", &self.id());
            w.put("a", self.below(3) as i32);
            if self.below(2) == 0 {
                w.put("u", self.below(10) as i32);
            }
            if self.below(4) == 0 {
                w.put_value("list", &array![1, 2, doc! { "b" => 3 }]);
            }
            match self.below(12) {
                0 => w.put("stamp", kauri_base::Timestamp { seconds: 0, increment: 0 }),
                1 => w.put("$dollar", 1),
                2 => w.put("x.y", 1),
                _ => {}
            }
        })
    }

    fn filter(&self) -> Value<'static> {
        match self.below(10) {
            0 => doc! { "a" => self.below(3) as i32 }.into(),
            1 => doc! { "_id" => self.id(), "a" => 1 }.into(),
            2 => doc! {}.into(),
            3 => 1.into(),
            4 => doc! { "_id" => self.id(), "list" => 2 }.into(),
            _ => doc! { "_id" => self.id() }.into(),
        }
    }

    fn change(&self) -> Value<'static> {
        let n = self.below(10) as i32;
        match self.below(14) {
            0 => doc! { "a" => n }.into(),
            1 => doc! { "_id" => n, "a" => n }.into(),
            2 => doc! { "$set" => doc! { "u" => n } }.into(),
            3 => doc! { "$inc" => doc! { "a" => 1 } }.into(),
            4 => doc! { "$unset" => doc! { "u" => 1, "a" => 1 } }.into(),
            5 => doc! { "$push" => doc! { "list" => n } }.into(),
            6 => doc! { "$set" => doc! { "list.$" => n } }.into(),
            7 => doc! { "$set" => doc! { "_id" => n } }.into(),
            8 => array![doc! { "$set" => doc! { "p" => n } }],
            9 => doc! { "$nonsense" => doc! { "a" => 1 } }.into(),
            10 => doc! {}.into(),
            11 => doc! { "$currentDate" => doc! { "d" => true } }.into(),
            12 => 1.into(),
            _ => doc! { "$set" => doc! { "a" => n, "s" => "text" } }.into(),
        }
    }

    fn flag(&self, w: &mut DocWriter<'_>, name: &str) {
        match self.below(6) {
            0 => w.put(name, true),
            1 | 2 => w.put(name, false),
            3 if self.below(4) == 0 => w.put(name, 1),
            _ => {}
        }
    }

    fn statement(&self, command: &str) -> DocBuf {
        match command {
            "insert" => self.document(),
            "update" => DocBuf::build(|w| {
                let filter = self.filter();
                w.put_value("q", &filter);
                w.put_value("u", &self.change());
                // Otherwise the new document's id is generated.
                if let Value::Document(filter) = &filter
                    && filter.as_doc().value("_id").is_number()
                {
                    self.flag(w, "upsert");
                }
                self.flag(w, "multi");
                match self.below(24) {
                    0 => w.put_value("arrayFilters", &Value::array([])),
                    1 => w.put("hint", "a_1"),
                    2 => w.put("collation", doc! { "locale" => "simple" }.as_doc()),
                    3 => w.put("unknown", 1),
                    _ => {}
                }
            }),
            _ => DocBuf::build(|w| {
                w.put_value("q", &self.filter());
                match self.below(10) {
                    0 => w.put("limit", 0),
                    1 => w.put("limit", 2),
                    2 => {}
                    3 => w.put("limit", 1.0),
                    _ => w.put("limit", 1),
                }
                if self.below(20) == 0 {
                    w.put("hint", "_id_");
                }
            }),
        }
    }

    fn option(&self, w: &mut DocWriter<'_>) {
        let time = doc! { "clusterTime" => kauri_base::Timestamp { seconds: 5, increment: 6 } };
        let concern = |doc: DocBuf| ("writeConcern", Value::from(doc));
        let options: [(&str, Value<'static>); 35] = [
            ("ordered", true.into()),
            ("ordered", false.into()),
            ("ordered", 1.into()),
            ("lsid", lsid(1).into()),
            ("lsid", lsid(2).into()),
            ("lsid", 1.into()),
            ("lsid", doc! { "id" => lsid(1).as_doc().value("id"), "txnNumber" => 1i64 }.into()),
            ("$clusterTime", doc! {}.into()),
            ("$clusterTime", time.into()),
            ("$clusterTime", 1.into()),
            ("$readPreference", doc! { "mode" => "primary" }.into()),
            concern(doc! {}),
            concern(doc! { "w" => 1 }),
            concern(doc! { "w" => 0 }),
            concern(doc! { "w" => 0, "j" => true }),
            concern(doc! { "w" => "majority" }),
            concern(doc! { "w" => "majority", "wtimeout" => 100, "j" => false }),
            concern(doc! { "w" => "others" }),
            concern(doc! { "w" => 2 }),
            concern(doc! { "w" => 51 }),
            concern(doc! { "j" => true }),
            concern(doc! { "j" => true, "fsync" => true }),
            concern(doc! { "unknown" => 1 }),
            ("writeConcern", 1.into()),
            ("writeConcern", Value::Null),
            ("maxTimeMS", 1000.into()),
            ("maxTimeMS", (-1).into()),
            ("readConcern", doc! { "level" => "local" }.into()),
            ("readConcern", doc! {}.into()),
            ("comment", "x".into()),
            ("bypassDocumentValidation", true.into()),
            ("txnNumber", 1i64.into()),
            ("txnNumber", (-1i64).into()),
            ("txnNumber", 1.into()),
            ("unknown", 1.into()),
        ];
        let (name, value) = self.of(&options);
        w.put_value(name, value);
    }

    /// A message and the document in it.
    fn message(&self) -> (Vec<u8>, DocBuf) {
        let command = *self.of(&["insert", "update", "update", "delete"]);
        let list = match command {
            "insert" => "documents",
            "update" => "updates",
            _ => "deletes",
        };
        let count = *self.of(&[0, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
        let statements: Vec<DocBuf> = (0..count).map(|_| self.statement(command)).collect();
        let array = || Value::array(statements.iter().map(|s| Value::from(s.clone())));
        let beside = self.below(2) == 0;
        let body = DocBuf::build(|w| {
            w.put(command, *self.of(&COLLECTIONS));
            if !beside || self.below(20) == 0 {
                w.put_value(list, &array());
            }
            for _ in 0..*self.of(&[0, 0, 1, 1, 2, 3, 4]) {
                self.option(w);
            }
            w.put("$db", "test");
        });
        let mut message = Vec::new();
        let writer = MsgWriter::begin(&mut message, 1, 0, 0);
        DocWriter::new(&mut message).put_all(body.as_doc());
        if beside {
            let name = if self.below(30) == 0 { "others" } else { list };
            let sequence = writer.begin_sequence(&mut message, name);
            statements.iter().for_each(|s| message.extend_from_slice(s.as_bytes()));
            sequence.finish(&mut message);
        }
        writer.finish(&mut message).unwrap();
        let what = doc! { "body" => body, "beside" => if beside { array() } else { Value::Null } };
        (message, what)
    }
}

#[test]
fn writes_are_the_same_by_either_path() {
    const SEED: u64 = 20_262;
    let mut pair = Pair::start();
    let generator = Generator(SeededRandom::new(SEED));
    let mut paths = std::collections::BTreeMap::<&str, usize>::new();
    for step in 0..4_000 {
        let (message, what) = generator.message();
        if pair.same(&message, &what) {
            let body = at(&what, "body");
            for name in ["insert", "update", "delete"] {
                if body.as_doc().get(name).is_some() {
                    *paths.entry(name).or_default() += 1;
                }
            }
        }
        if step % 200 == 199 {
            pair.same_state();
        }
    }
    pair.same_state();
    for name in ["insert", "update", "delete"] {
        let count = paths.get(name).copied().unwrap_or_default();
        assert!(count > 50, "{count} of {name} took the express path");
    }
    assert!(pair.ordinary > 1_000, "{} took the ordinary path", pair.ordinary);
}

/// Fields that drivers send with a write: the path that the write takes, and its error code.
#[test]
fn fields_that_drivers_send_stay_on_the_express_path() {
    let time = kauri_base::Timestamp { seconds: 5, increment: 6 };
    let signature = doc! { "hash" => Value::Binary { subtype: 0, bytes: vec![0; 20].into() } };
    let cluster = doc! { "clusterTime" => time, "signature" => signature };
    let cases = [
        (doc! { "writeConcern" => doc! { "w" => 1 } }, true, 0),
        (doc! { "writeConcern" => doc! { "w" => "majority", "wtimeout" => 100 } }, true, 0),
        (doc! { "writeConcern" => doc! { "w" => 1, "j" => true } }, true, 0),
        (doc! { "lsid" => lsid(1), "$clusterTime" => cluster.clone() }, true, 0),
        (doc! { "lsid" => lsid(1), "maxTimeMS" => 1000 }, true, 0),
        (doc! { "lsid" => lsid(1), "$clusterTime" => cluster, "txnNumber" => 1i64 }, false, 20),
        (doc! { "txnNumber" => 1i64 }, false, 72),
        (doc! { "writeConcern" => doc! { "w" => 2 } }, false, 2),
    ];
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 0 }]);
    for (number_, (fields, is_express, code)) in cases.into_iter().enumerate() {
        let command = DocBuf::build(|w| {
            w.put("insert", "c");
            w.put_value("documents", &array![doc! { "_id" => 10 + number_ as i32 }]);
            w.put_all(fields.as_doc());
        });
        let before = test.server.operations.next_id();
        let reply = client.run(&command);
        assert_eq!(
            test.server.operations.next_id() == before + 1,
            is_express,
            "{}",
            show(&command)
        );
        assert_eq!(crate::common::code_of(&reply), code, "{}", show(&reply));
    }
}

#[test]
fn an_insert_without_an_id_gets_one() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 0 }]);
    let before = test.server.operations.next_id();
    client.insert("c", [doc! { "a" => 1 }]);
    assert_eq!(test.server.operations.next_id(), before + 1, "took the ordinary path");
    let found = client.ok(doc! { "find" => "c", "filter" => doc! { "a" => 1 } });
    let found = crate::common::first_batch(&found);
    let id = found[0].as_doc().first().map(|e| (e.key().to_owned(), e.ty()));
    assert_eq!(id, Some(("_id".to_owned(), kauri_bson::Type::ObjectId)));
}

/// The update of a document, which must have taken the express path.
fn updated(test: &TestServer, client: &Client, update: DocBuf) -> DocBuf {
    client.insert("c", [doc! { "_id" => 1, "list" => array![1, 2] }]);
    let before = test.server.operations.next_id();
    let statement = doc! { "q" => doc! { "_id" => 1 }, "u" => update };
    client.ok(doc! { "update" => "c", "updates" => array![statement] });
    assert_eq!(test.server.operations.next_id(), before + 1, "took the ordinary path");
    let found = client.ok(doc! { "find" => "c" });
    client.ok(doc! { "delete" => "c", "deletes" => array![doc! { "q" => doc! {}, "limit" => 0 }] });
    crate::common::first_batch(&found).remove(0)
}

#[test]
fn current_date_sets_the_servers_time() {
    let test = TestServer::start();
    let client = test.client();
    test.clock.advance(std::time::Duration::from_millis(1234));
    let now = Value::DateTime(crate::common::START_MS + 1234);
    let date = doc! { "$set" => doc! { "a" => 1 }, "$currentDate" => doc! { "d" => true } };
    assert_eq!(updated(&test, &client, date).as_doc().value("d"), now);
    let after = doc! { "$currentDate" => doc! { "x.d" => doc! { "$type" => "date" } } };
    let found = updated(&test, &client, after);
    assert_eq!(at(&found, "x").as_doc().value("d"), now);
}

#[test]
fn a_slow_express_write_is_logged() {
    let slow = std::sync::Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let sink = slow.clone();
    let keep = move |_, line: &str| {
        if line.contains("Slow query") {
            sink.lock().unwrap().push(line.to_owned());
        }
    };
    kauri_base::log::install(Box::new(keep), Box::new(|| 0));
    let test = TestServer::start();
    let client = test.client();
    let insert = |slow_ms: i32| {
        client.admin().ok(doc! { "profile" => 0, "slowms" => slow_ms });
        let name = format!("slower_than_{}", slow_ms.unsigned_abs());
        let before = test.server.operations.next_id();
        client.insert(&name, [doc! { "_id" => 1 }]);
        client.insert(&name, [doc! { "_id" => 2 }]);
        assert_eq!(test.server.operations.next_id(), before + 2, "the second by the express path");
        slow.lock().unwrap().iter().filter(|line| line.contains(&name)).count()
    };
    // Each takes between zero and one hour.
    assert_eq!(insert(3_600_000), 0);
    assert_eq!(insert(0), 2);
    assert_eq!(insert(-1), 2);
    client.ok(doc! { "find" => "slower_than_0", "filter" => doc! { "_id" => 1 } });
    let lines = slow.lock().unwrap();
    assert!(
        lines.iter().any(|line| line.contains("\"command\":{\"find\":\"slower_than_0")),
        "{lines:?}"
    );
}
