//! `local.oplog.rs` and `local.system.replset`: entries of every kind, ranges of times, cursors that follow the log. The
//! test closes the frames.

use super::{Rig, config, view_of};
use crate::cold_disk::{ColdEngine, SEGMENT};
use crate::common::{
    Client, TestServer, at, code_of, cursor_id, first_batch, number, refusal, show, text, until,
};
use kauri_base::Timestamp;
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_member::MemberState;
use kauri_member::entry_log::{DATA_BLANK, DATA_CONFIG, DATA_UNITS, data_of_frame};
use kauri_storage::{LogPosition, ReplicatedLog, StorageEngine};
use std::time::Duration;

const SECOND: u64 = 1 << 32;
const WALL_MS: i64 = 1_700_000_000_123;

struct LogRig {
    rig: Rig,
    local: Client,
    index: u64,
    // Ended last: its maintenance serves the others.
    cold: ColdEngine,
}

impl LogRig {
    /// A primary with a log that has a first entry.
    fn start() -> LogRig {
        let cold = ColdEngine::open();
        let log = cold.engine.replicated_log().unwrap();
        log.begin_frames(LogPosition { term: 1, index: 1 }).unwrap();
        log.lead().unwrap();
        let rig = Rig::start_on(cold.engine.clone()).leading(1);
        rig.acknowledge_all();
        let local = rig.client.on("local");
        let mut rig = LogRig { rig, local, index: 1, cold };
        rig.close_as(2, DATA_BLANK, b"");
        rig
    }

    fn log(&self) -> &dyn ReplicatedLog {
        self.cold.engine.replicated_log().unwrap()
    }

    /// Closes a frame, whose first time is `index` seconds, that is not committed.
    fn append(&mut self, term: u64, tag: u8, content: &[u8]) {
        self.index += 1;
        let (position, time) = (LogPosition { term, index: self.index }, self.index * SECOND);
        let closed = self.rig.member.statements().close(|statements, notes| {
            let data = data_of_frame(tag, WALL_MS, [content, notes, statements]);
            self.log().close_frame(position, time, &data)
        });
        closed.unwrap();
    }

    fn commit(&self) {
        self.log().commit_frames(self.index);
        self.rig.member.log_place().note(self.index);
    }

    fn close_as(&mut self, term: u64, tag: u8, content: &[u8]) {
        self.append(term, tag, content);
        self.commit();
    }

    /// Closes a frame of what was written.
    fn close(&mut self) {
        self.close_as(2, DATA_UNITS, b"");
    }

    /// Inserts a document into `test.c`, and closes its frame.
    fn insert(&mut self, id: i32) {
        self.rig.client.insert("c", [doc! { "_id" => id }]);
        self.close();
    }

    /// The entries that match.
    fn find(&self, filter: DocBuf, more: DocBuf) -> Vec<DocBuf> {
        first_batch(&self.local.ok(find(filter, more)))
    }

    /// Entries behind this time, without what differs between runs, as text.
    fn told_since(&self, time: Timestamp) -> Vec<String> {
        const OTHERS: [&str; 5] = ["ts", "t", "v", "wall", "ui"];
        let filter = doc! { "ts" => doc! { "$gt" => Value::Timestamp(time) } };
        let shown = |entry: &DocBuf| {
            let fields = entry.as_doc().iter().filter(|elem| !OTHERS.contains(&elem.key()));
            show(&DocBuf::build(|out| fields.for_each(|elem| out.put_elem(elem))))
        };
        self.find(filter, doc! {}).iter().map(shown).collect()
    }

    fn last_time(&self) -> Timestamp {
        let last = self.find(doc! {}, doc! { "sort" => doc! { "$natural" => -1 }, "limit" => 1 });
        time(&last[0])
    }
}

fn find(filter: DocBuf, more: DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.put("find", "oplog.rs");
        out.put("filter", filter);
        out.put_all(more.as_doc());
    })
}

#[track_caller]
fn time(entry: &DocBuf) -> Timestamp {
    match entry.as_doc().value("ts") {
        Value::Timestamp(time) => time,
        _ => panic!("no time in {}", show(entry)),
    }
}

fn seconds(seconds: u32, increment: u32) -> Value<'static> {
    Value::Timestamp(Timestamp { seconds, increment })
}

#[test]
fn each_write_is_an_entry() {
    let mut rig = LogRig::start();
    let mut check = |command: DocBuf, expected: &[&str]| {
        let before = rig.last_time();
        let commits = rig.rig.visible();
        rig.rig.client.ok(command);
        // Without units there is no such frame.
        if rig.rig.visible() > commits {
            rig.close();
        }
        assert_eq!(rig.told_since(before), expected);
    };
    let insert = |ids: std::ops::Range<i32>| {
        let docs = Value::array(ids.map(|id| Value::from(doc! { "_id" => id, "a" => 1 })));
        doc! { "insert" => "c", "documents" => docs }
    };
    let id_index = r#"idIndex: { v: 2, key: { _id: 1 }, name: "_id_" }"#;
    let create = format!(r#"{{ op: "c", ns: "test.$cmd", o: {{ create: "c", {id_index} }} }}"#);
    let inserted =
        |id| format!(r#"op: "i", ns: "test.c", o: {{ _id: {id}, a: 1 }}, o2: {{ _id: {id} }}"#);
    check(insert(0..1), &[&create, &format!("{{ {} }}", inserted(0))]);
    // Told with the UUID, left out here.
    let both = "{ op: \"c\", ns: \"admin.$cmd\", o: { applyOps: [ ";
    let update = |q: DocBuf, u: DocBuf, multi: bool| {
        let update = doc! { "q" => q, "u" => u, "multi" => multi };
        doc! { "update" => "c", "updates" => array![update] }
    };
    let updated = r#"{ op: "u", ns: "test.c", o: { _id: 0, a: 2 }, o2: { _id: 0 } }"#;
    check(update(doc! { "_id" => 0 }, doc! { "$set" => doc! { "a" => 2 } }, false), &[updated]);
    check(update(doc! { "_id" => 0 }, doc! { "$set" => doc! { "a" => 2 } }, false), &[]);
    let replaced = r#"{ op: "u", ns: "test.c", o: { _id: 0, b: 1 }, o2: { _id: 0 } }"#;
    check(update(doc! { "_id" => 0 }, doc! { "b" => 1 }, false), &[replaced]);
    let delete = array![doc! { "q" => doc! { "_id" => 0 }, "limit" => 1 }];
    let deleted = r#"{ op: "d", ns: "test.c", o: { _id: 0 } }"#;
    check(doc! { "delete" => "c", "deletes" => delete }, &[deleted]);
    let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" };
    let created = r#"{ op: "c", ns: "test.$cmd", o: { createIndexes: "c", v: 2, key: { a: 1 }, name: "a_1" } }"#;
    check(doc! { "createIndexes" => "c", "indexes" => array![index] }, &[created]);
    let hide = doc! { "collMod" => "c", "index" => doc! { "name" => "a_1", "hidden" => true } };
    let hidden = "{ op: \"c\", ns: \"test.$cmd\", o: { collMod: \"c\", index: { name: \"a_1\", hidden: true } }, \
                  o2: { indexOptions_old: { v: 2, key: { a: 1 }, name: \"a_1\" } } }";
    check(hide, &[hidden]);
    let dropped = "{ op: \"c\", ns: \"test.$cmd\", o: { dropIndexes: \"c\", index: \"a_1\" }, \
                   o2: { v: 2, key: { a: 1 }, name: \"a_1\", hidden: true } }";
    check(doc! { "dropIndexes" => "c", "index" => "a_1" }, &[dropped]);
    let view = r#"{ op: "c", ns: "test.$cmd", o: { create: "v", viewOn: "c", pipeline: [] } }"#;
    check(doc! { "create" => "v", "viewOn" => "c", "pipeline" => array![] }, &[view]);
    check(doc! { "drop" => "c" }, &[r#"{ op: "c", ns: "test.$cmd", o: { drop: "c" } }"#]);
    let before = rig.last_time();
    rig.rig.client.ok(insert(0..3));
    rig.close();
    let told = rig.told_since(before);
    assert!(told[1].starts_with(both) && told[1].contains("o: { _id: 2, a: 1 }"), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
    let before = rig.last_time();
    rig.rig.client.ok(doc! { "dropDatabase" => 1 });
    rig.close();
    let told = rig.told_since(before);
    for part in
        [r#"{ drop: "c" }"#, r#"{ drop: "v" }"#, r#"ns: "test.$cmd", o: { dropDatabase: 1 }"#]
    {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
}

#[test]
fn an_entry_has_the_fields_of_an_oplog() {
    let mut rig = LogRig::start();
    rig.insert(1);
    let entries = rig.find(doc! {}, doc! {});
    let fields = |entry: &DocBuf| -> Vec<String> {
        entry.as_doc().iter().map(|elem| elem.key().to_owned()).collect()
    };
    let [first, .., insert] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(fields(first), ["op", "ns", "o", "ts", "t", "v", "wall"]);
    assert_eq!(text(&at(first, "o"), "msg"), "new primary");
    assert_eq!(fields(insert), ["op", "ns", "ui", "o", "o2", "ts", "t", "v", "wall"]);
    assert_eq!(insert.as_doc().value("t"), Value::Int64(2));
    assert_eq!(insert.as_doc().value("v"), Value::Int64(2));
    assert_eq!(insert.as_doc().value("wall"), Value::DateTime(WALL_MS));
    let collection = rig.rig.test.server.catalog.collection("test.c").unwrap();
    let uuid = Value::Binary { subtype: 4, bytes: collection.uuid.to_vec().into() };
    assert_eq!(insert.as_doc().value("ui"), uuid);
    rig.close_as(2, DATA_CONFIG, doc! { "version" => 4 }.as_doc().as_bytes());
    rig.close_as(2, DATA_BLANK, b"");
    rig.close_as(3, DATA_BLANK, b"");
    let told = rig.told_since(time(insert));
    let told: Vec<_> = told.iter().map(|entry| entry.split("o: ").last().unwrap()).collect();
    let expected = [
        r#"{ msg: "Reconfig set", version: 4 } }"#,
        r#"{ msg: "periodic noop" } }"#,
        r#"{ msg: "new primary" } }"#,
    ];
    assert_eq!(told, expected);
}

#[test]
fn an_entry_names_its_collection_as_it_was() {
    let mut rig = LogRig::start();
    rig.insert(1);
    let rename = |from: &str, to: &str, drop: bool| {
        doc! { "renameCollection" => from, "to" => to, "dropTarget" => drop }
    };
    // All in one frame.
    let before = rig.last_time();
    rig.rig.client.insert("c", [doc! { "_id" => 2 }]);
    rig.rig.client.admin().ok(rename("test.c", "test.d", false));
    rig.rig.client.insert("d", [doc! { "_id" => 3 }]);
    rig.rig.client.insert("e", [doc! { "_id" => 4 }]);
    rig.rig.client.admin().ok(rename("test.e", "test.d", true));
    rig.rig.client.ok(doc! { "drop" => "d" });
    rig.close();
    let filter = doc! { "ts" => doc! { "$gt" => Value::Timestamp(before) } };
    let entries = rig.find(filter, doc! {});
    let told: Vec<_> = entries
        .iter()
        .map(|entry| format!("{} {}", text(entry, "ns"), show(&at(entry, "o"))))
        .collect();
    let id_index = r#"idIndex: { v: 2, key: { _id: 1 }, name: "_id_" }"#;
    let create = format!(r#"test.$cmd {{ create: "e", {id_index} }}"#);
    let first = r#"test.$cmd { renameCollection: "test.c", to: "test.d", stayTemp: false }"#;
    let expected = ["test.c { _id: 2 }", first, "test.d { _id: 3 }", &create, "test.e { _id: 4 }"];
    assert_eq!(told[..5], expected);
    assert!(
        told[5].starts_with(r#"test.$cmd { renameCollection: "test.e", to: "test.d""#),
        "{told:?}"
    );
    assert_eq!(told[6], r#"test.$cmd { drop: "d" }"#);
    let target = at(&entries[5], "o").as_doc().value("dropTarget").into_owned();
    assert_eq!(target, entries[0].as_doc().value("ui"), "the collection that was dropped");
    assert_eq!(entries[0].as_doc().value("ui"), entries[2].as_doc().value("ui"));
}

#[test]
fn ranges_of_times_read_their_entries_only() {
    let mut rig = LogRig::start();
    let ids = 0..200;
    ids.clone().for_each(|id| rig.insert(id));
    let reads = || rig.rig.member.log_reader(rig.rig.test.server.backend.engine()).reads();
    let ids_of = |entries: &[DocBuf]| -> Vec<i64> {
        let inserts = entries.iter().filter(|entry| text(entry, "op") == "i");
        inserts.map(|entry| number(&at(entry, "o"), "_id")).collect()
    };
    // The frame of `_id` n has second n + 3, and its only entry the number 1. Before the first one: its collection.
    let of = |id: i64| seconds(id as u32 + 3, 1);
    let check = |filter: DocBuf, more: DocBuf, expected: Vec<i64>, most: u64| {
        let before = reads();
        assert_eq!(ids_of(&rig.find(filter.clone(), more)), expected, "{}", show(&filter));
        assert!(reads() - before <= most, "{} frames for {}", reads() - before, show(&filter));
    };
    let ts = |range: DocBuf| doc! { "ts" => range };
    check(ts(doc! { "$gt" => of(100), "$lt" => of(104) }), doc! {}, vec![101, 102, 103], 5);
    check(ts(doc! { "$gte" => of(100), "$lte" => of(102) }), doc! {}, vec![100, 101, 102], 4);
    check(doc! { "ts" => of(50) }, doc! {}, vec![50], 2);
    check(ts(doc! { "$gte" => of(198) }), doc! {}, vec![198, 199], 2);
    check(ts(doc! { "$gt" => of(199) }), doc! {}, vec![], 0);
    let last = doc! { "sort" => doc! { "$natural" => -1 }, "limit" => 1 };
    check(doc! {}, last, vec![199], 1);
    let last = doc! { "sort" => doc! { "ts" => -1 }, "limit" => 2 };
    check(ts(doc! { "$lt" => of(150) }), last, vec![149, 148], 3);
    let first = doc! { "sort" => doc! { "$natural" => 1 }, "limit" => 2 };
    check(doc! { "op" => "i" }, first, vec![0, 1], 6);
    let backward = doc! { "hint" => doc! { "$natural" => -1 } };
    check(ts(doc! { "$gte" => of(10), "$lt" => of(13) }), backward, vec![12, 11, 10], 5);
    let more = doc! { "projection" => doc! { "o" => 1, "op" => 1 }, "skip" => 1 };
    check(ts(doc! { "$gte" => of(20), "$lt" => of(23) }), more, vec![21, 22], 5);
    let before = reads();
    let stages = array![
        doc! { "$match" => ts(doc! { "$gt" => of(70), "$lt" => of(80) }) },
        doc! { "$count" => "n" }
    ];
    let counted =
        rig.local.ok(doc! { "aggregate" => "oplog.rs", "pipeline" => stages, "cursor" => doc! {} });
    assert_eq!(number(&first_batch(&counted)[0], "n"), 9);
    let query = ts(doc! { "$gt" => of(80), "$lt" => of(90) });
    assert_eq!(
        number(&rig.local.ok(doc! { "count" => "oplog.rs", "query" => query.clone() }), "n"),
        9
    );
    let distinct = doc! { "distinct" => "oplog.rs", "key" => "op", "query" => query.clone() };
    assert_eq!(rig.local.ok(distinct).as_doc().value("values"), array!["i"]);
    assert!(reads() - before < 30, "{} frames", reads() - before);
    let explain = doc! { "explain" => doc! { "find" => "oplog.rs", "filter" => query } };
    let told = rig.local.ok(explain);
    assert_eq!(number(&at(&told, "executionStats"), "totalDocsExamined"), 9, "{}", show(&told));
    let aggregate = doc! { "aggregate" => "oplog.rs", "pipeline" => array![], "cursor" => doc! {} };
    let told = rig.local.ok(doc! { "explain" => aggregate, "verbosity" => "queryPlanner" });
    assert!(show(&told).contains("COLLSCAN"), "{}", show(&told));
    // In several batches it is all the same.
    let reply = rig.local.ok(find(doc! { "op" => "i" }, doc! { "batchSize" => 7 }));
    let (mut found, id) = (ids_of(&first_batch(&reply)), cursor_id(&reply));
    while found.len() < 200 {
        let reply =
            rig.local.ok(doc! { "getMore" => id, "collection" => "oplog.rs", "batchSize" => 50 });
        let batch = at(&reply, "cursor").as_doc().value("nextBatch").into_owned();
        let batch = batch.as_array().unwrap().iter().map(|e| e.as_doc().unwrap().to_buf());
        found.extend(ids_of(&batch.collect::<Vec<_>>()));
    }
    assert_eq!(found, ids.map(i64::from).collect::<Vec<_>>());
}

#[test]
fn a_cursor_waits_for_entries_that_are_committed() {
    let mut rig = LogRig::start();
    rig.insert(1);
    let tail = doc! { "tailable" => true, "awaitData" => true, "oplogReplay" => true };
    let after = doc! { "ts" => doc! { "$gt" => Value::Timestamp(rig.last_time()) } };
    let reply = rig.local.ok(find(after, tail));
    assert!(first_batch(&reply).is_empty());
    let id = cursor_id(&reply);
    assert_ne!(id, 0, "it stays");
    let more = doc! { "getMore" => id, "collection" => "oplog.rs", "maxTimeMS" => 60_000 };
    let reader = rig.rig.test.client();
    reader.on("local").send(&more);
    let other = rig.rig.test.client().admin();
    until("a cursor that waits", || {
        let reply = other.ok(doc! { "currentOp" => 1, "ns" => "local.oplog.rs" });
        !reply.as_doc().value("inprog").as_array().unwrap().is_empty()
    });
    rig.rig.client.insert("c", [doc! { "_id" => 2 }]);
    rig.append(2, DATA_UNITS, b"");
    assert!(reader.receive_within(Duration::from_millis(50)).is_none(), "it is not committed");
    rig.commit();
    let reply = reader.receive().unwrap();
    assert_eq!(code_of(&reply), 0, "{}", show(&reply));
    let cursor = at(&reply, "cursor");
    let Value::Array(batch) = cursor.as_doc().value("nextBatch") else {
        panic!("{}", show(&reply))
    };
    let entry = batch.as_doc().first().unwrap().as_doc().unwrap().to_buf();
    assert_eq!(show(&at(&entry, "o")), "{ _id: 2 }");
    assert_eq!(cursor_id(&reply), id);
}

#[test]
fn a_cursor_whose_place_was_purged_ends() {
    let mut rig = LogRig::start();
    (0..20).for_each(|id| rig.insert(id));
    let tail = doc! { "tailable" => true, "batchSize" => 3 };
    let [lost, other, newest] =
        [doc! {}, doc! { "op" => "i" }, doc! { "ts" => doc! { "$gte" => seconds(18, 0) } }]
            .map(|filter| cursor_id(&rig.local.ok(find(filter, tail.clone()))));
    let waiting = doc! { "ts" => doc! { "$gt" => Value::Timestamp(rig.last_time()) } };
    let waiting = cursor_id(&rig.local.ok(find(waiting, tail.clone())));
    rig.log().purge_frames(15).unwrap();
    let more = |id| doc! { "getMore" => id, "collection" => "oplog.rs" };
    assert_eq!(rig.local.fails(more(lost)), 136);
    assert_eq!(rig.local.fails(more(other)), 136);
    rig.local.ok(more(newest));
    // What begins now begins with what is there.
    let first = rig.find(doc! {}, doc! { "limit" => 1 });
    assert_eq!(time(&first[0]).seconds, 16);
    let last = doc! { "sort" => doc! { "$natural" => -1 } };
    assert_eq!(rig.find(doc! {}, last).len(), 7);
    // One that has waited at the end has missed what was purged since.
    rig.insert(20);
    rig.insert(21);
    rig.log().purge_frames(rig.index - 1).unwrap();
    assert_eq!(rig.local.fails(more(waiting)), 136);
}

#[test]
fn an_entry_is_whole_or_an_error() {
    let mut rig = LogRig::start();
    let id = "x".repeat(SEGMENT as usize / 3);
    rig.rig.client.insert("c", [doc! { "_id" => 1 }, doc! { "_id" => id.as_str() }]);
    rig.close();
    let before = rig.last_time();
    let all = array![doc! { "q" => doc! {}, "limit" => 0 }];
    rig.rig.client.ok(doc! { "delete" => "c", "deletes" => all });
    rig.close();
    let lost = rig.index;
    rig.insert(2);
    let since = |time| find(doc! { "ts" => doc! { "$gt" => time } }, doc! {});
    let told = refusal(&rig.local, since(Value::Timestamp(before)));
    assert_eq!(told.0, 62, "{}", told.1);
    assert!(told.1.contains(&format!("Timestamp({lost}, ")), "it names the entry: {}", told.1);
    let behind = first_batch(&rig.local.ok(since(seconds(lost as u32, 9))));
    assert_eq!(behind.len(), 1, "{behind:?}");
}

#[test]
fn an_update_of_large_documents_is_several_entries() {
    let mut rig = LogRig::start();
    rig.rig.client.insert("c", (0..3).map(|id| doc! { "_id" => id }));
    rig.close();
    let before = rig.last_time();
    let long = "x".repeat(600 << 10);
    let set =
        doc! { "q" => doc! {}, "u" => doc! { "$set" => doc! { "a" => long } }, "multi" => true };
    let reply = rig.rig.client.ok(doc! { "update" => "c", "updates" => array![set] });
    assert_eq!(number(&reply, "nModified"), 3);
    rig.close();
    let filter = doc! { "ts" => doc! { "$gt" => Value::Timestamp(before) } };
    let kinds = rig.find(filter, doc! { "projection" => doc! { "op" => 1 } });
    let kinds: Vec<_> = kinds.iter().map(|entry| text(entry, "op")).collect();
    assert_eq!(kinds, ["u", "u", "u"]);
}

#[test]
fn stages_within_others_do_not_read_the_log() {
    let mut rig = LogRig::start();
    (0..3).for_each(|id| rig.insert(id));
    let lookup =
        doc! { "$lookup" => doc! { "from" => "oplog.rs", "pipeline" => array![], "as" => "a" } };
    let aggregate = |of: &str, stage: DocBuf, more: DocBuf| {
        DocBuf::build(|out| {
            out.put("aggregate", of);
            out.put_value("pipeline", &array![stage]);
            out.put("cursor", doc! {});
            out.put_all(more.as_doc());
        })
    };
    for stage in
        [lookup, doc! { "$unionWith" => "oplog.rs" }, doc! { "$unionWith" => "system.replset" }]
    {
        let shown = show(&stage);
        let (code, message) = refusal(&rig.local, aggregate("oplog.rs", stage, doc! {}));
        assert_eq!(code, 115, "{shown}: {message}");
    }
    let hint = doc! { "hint" => doc! { "$natural" => -1 } };
    let inserts = || doc! { "$match" => doc! { "op" => "i" } };
    let ids = |more| -> Vec<i64> {
        let batch = first_batch(&rig.local.ok(aggregate("oplog.rs", inserts(), more)));
        batch.iter().map(|entry| number(&at(entry, "o"), "_id")).collect()
    };
    assert_eq!((ids(doc! {}), ids(hint)), (vec![0, 1, 2], vec![2, 1, 0]));
}

#[test]
fn entries_that_are_applied_do_not_write_the_own_database() {
    let rig = LogRig::start();
    rig.rig.client.insert("c", [doc! { "_id" => 1 }]);
    let insert = |ns: &str| doc! { "op" => "i", "ns" => ns, "o" => doc! { "_id" => 2 } };
    let command = |ns: &str, o: DocBuf| doc! { "op" => "c", "ns" => ns, "o" => o };
    let nested = command("admin.$cmd", doc! { "applyOps" => array![insert("local.c")] });
    let create = command("local.$cmd", doc! { "create" => "c" });
    let renamed = doc! { "renameCollection" => "test.c", "to" => "local.c" };
    for entry in [insert("local.c"), nested, create, command("test.$cmd", renamed)] {
        let shown = show(&entry);
        let (code, message) = refusal(&rig.rig.client, doc! { "applyOps" => array![entry] });
        assert_eq!(code, 20, "{shown}: {message}");
    }
    rig.rig.client.ok(doc! { "applyOps" => array![insert("test.c")] });
}

#[test]
fn the_database_lists_and_measures_what_the_server_makes() {
    let mut rig = LogRig::start();
    rig.insert(1);
    rig.rig.member.set_log_bytes(990 << 20);
    let listed = first_batch(&rig.local.ok(doc! { "listCollections" => 1 }));
    let names: Vec<_> = listed.iter().map(|row| text(row, "name")).collect();
    assert_eq!(names, ["oplog.rs", "system.replset"]);
    assert_eq!(number(&at(&listed[0], "options"), "size"), 990 << 20);
    let databases = rig.rig.client.admin().ok(doc! { "listDatabases" => 1, "nameOnly" => true });
    let shown = show(&databases);
    assert!(shown.contains(r#"{ name: "local" }"#), "{shown}");
    let stats = rig.local.ok(doc! { "collStats" => "oplog.rs" });
    assert_eq!(stats.as_doc().value("capped"), Value::Bool(true));
    assert_eq!(number(&stats, "maxSize"), 990 << 20);
    assert!(number(&stats, "size") > 0 && number(&stats, "count") >= 3, "{}", show(&stats));
    let stage = doc! { "$collStats" => doc! { "storageStats" => doc! {}, "count" => doc! {} } };
    let aggregate =
        doc! { "aggregate" => "oplog.rs", "pipeline" => array![stage], "cursor" => doc! {} };
    let row = first_batch(&rig.local.ok(aggregate)).remove(0);
    assert_eq!(number(&at(&row, "storageStats"), "maxSize"), 990 << 20);
    assert!(number(&row, "count") >= 3, "{}", show(&row));
    assert!(number(&rig.local.ok(doc! { "count" => "oplog.rs" }), "n") >= 3);
    let found = first_batch(
        &rig.local.ok(doc! { "find" => "system.replset", "filter" => doc! { "_id" => "rs0" } }),
    );
    assert_eq!(found, [config(1).to_doc()]);
    assert_eq!(number(&rig.local.ok(doc! { "count" => "system.replset" }), "n"), 1);
    assert_eq!(rig.local.index_names("oplog.rs").len(), 0);
    for command in [
        doc! { "insert" => "oplog.rs", "documents" => array![doc! {}] },
        doc! { "delete" => "oplog.rs", "deletes" => array![doc! { "q" => doc! {}, "limit" => 0 }] },
        doc! { "drop" => "oplog.rs" },
        doc! { "create" => "oplog.rs" },
    ] {
        let (code, message) = refusal(&rig.local, command);
        assert_eq!(code, 20, "{message}");
    }
}

#[test]
fn an_arbiter_and_a_server_alone_have_no_entries() {
    let mut rig = LogRig::start();
    rig.insert(1);
    rig.rig.member.publish(view_of(MemberState::Arbiter, config(1)));
    assert!(rig.find(doc! {}, doc! {}).is_empty());
    let test = TestServer::start();
    let local = test.client().on("local");
    assert!(first_batch(&local.ok(find(doc! {}, doc! {}))).is_empty());
    assert!(first_batch(&local.ok(doc! { "listCollections" => 1 })).is_empty());
}
