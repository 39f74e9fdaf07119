//! The Rust `mongodb` driver against a running server (`KAURI_URI`). Each test has its own database, dropped at
//! its end.

use mongodb::IndexModel;
use mongodb::bson::{Bson, DateTime, Decimal128, Document, Regex, Timestamp, doc, oid::ObjectId};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{
    Acknowledgment, ClientOptions, Compressor, CursorType, IndexOptions, ReturnDocument,
    WriteConcern,
};
use mongodb::sync::{Client, Collection, Database};
use std::time::Duration;

type Result<T = ()> = std::result::Result<T, Error>;

/// A database that is dropped when the test ends.
struct Scratch(Client, Database);

impl Scratch {
    fn new(name: &str) -> Result<Scratch> {
        let client = Client::with_uri_str(uri())?;
        let db = client.database(&format!("rust_{name}"));
        db.drop().run()?;
        Ok(Scratch(client, db))
    }

    fn c(&self) -> Collection<Document> {
        self.1.collection("c")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.1.drop().run();
    }
}

fn uri() -> String {
    std::env::var("KAURI_URI").expect("KAURI_URI is set by the script that runs this")
}

/// The server's error code, of a command or of a write.
fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(e) => Some(e.code),
        ErrorKind::Write(WriteFailure::WriteError(e)) => Some(e.code),
        ErrorKind::InsertMany(e) => e.write_errors.as_ref()?.first().map(|e| e.code),
        _ => None,
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T>, expected: i32) {
    let error = result.expect_err("the server should refuse this");
    assert_eq!(code(&error), Some(expected), "{error}");
}

fn all(docs: impl Iterator<Item = Result<Document>>) -> Result<Vec<Document>> {
    docs.collect()
}

#[test]
fn hello_reports_the_wire_versions() -> Result {
    let s = Scratch::new("hello")?;
    let hello = s.1.run_command(doc! { "hello": 1 }).run()?;
    assert_eq!(hello.get_i32("maxWireVersion").ok(), Some(25));
    assert_eq!(hello.get_bool("isWritablePrimary").ok(), Some(true));
    refused(s.1.run_command(doc! { "noSuchCommand": 1 }).run(), 59);
    Ok(())
}

#[test]
fn every_compressor_carries_the_same_documents() -> Result {
    let s = Scratch::new("compressors")?;
    for (name, compressor) in [
        ("snappy", Compressor::Snappy),
        ("zlib", Compressor::Zlib { level: None }),
        ("zstd", Compressor::Zstd { level: None }),
    ] {
        let mut options = ClientOptions::parse(uri()).run()?;
        options.compressors = Some(vec![compressor]);
        let client = Client::with_options(options)?;
        let c = client.database(s.1.name()).collection::<Document>("c");
        let text = "abc".repeat(100_000);
        c.insert_one(doc! { "_id": name, "text": &text }).run()?;
        let found = c.find_one(doc! { "_id": name }).run()?.expect("what was inserted");
        assert_eq!(found.get_str("text").ok(), Some(text.as_str()));
    }
    Ok(())
}

#[test]
fn every_type_comes_back() -> Result {
    let s = Scratch::new("types")?;
    let wanted = doc! {
        "_id": ObjectId::new(),
        "double": 1.5,
        "string": "ž\0z",
        "object": { "a": {} },
        "array": [1, [2_i64], Bson::Null],
        "binary": Bson::Binary(mongodb::bson::Binary {
            subtype: mongodb::bson::spec::BinarySubtype::Generic,
            bytes: vec![0, 1, 2],
        }),
        "bool": false,
        "date": DateTime::from_millis(-1),
        "regex": Regex { pattern: "^a".try_into()?, options: "im".try_into()? },
        "code": Bson::JavaScriptCode("f()".into()),
        "int": i32::MIN,
        "long": i64::MAX,
        "timestamp": Timestamp { time: 1, increment: 2 },
        "decimal": Decimal128::from_bytes([7; 16]),
        "min": Bson::MinKey,
        "max": Bson::MaxKey,
    };
    s.c().insert_one(&wanted).run()?;
    assert_eq!(s.c().find_one(doc! {}).run()?, Some(wanted));
    Ok(())
}

#[test]
fn inserts_count_and_refuse_duplicates() -> Result {
    let s = Scratch::new("inserts")?;
    let docs: Vec<_> = (0..2000).map(|n| doc! { "_id": n }).collect();
    assert_eq!(s.c().insert_many(&docs).run()?.inserted_ids.len(), 2000);
    assert_eq!(s.c().count_documents(doc! {}).run()?, 2000);
    refused(s.c().insert_one(doc! { "_id": 5 }).run(), 11000);
    let more = [doc! { "_id": 5 }, doc! { "_id": 2001 }];
    refused(s.c().insert_many(&more).ordered(false).run(), 11000);
    assert_eq!(s.c().count_documents(doc! { "_id": 2001 }).run()?, 1);
    Ok(())
}

#[test]
fn updates() -> Result {
    let s = Scratch::new("updates")?;
    s.c().insert_one(doc! { "_id": 1, "n": 1, "list": [1, 5, 9] }).run()?;
    let update = doc! { "$inc": { "n": 2 }, "$push": { "list": 12 }, "$set": { "a.b": true } };
    let result = s.c().update_one(doc! { "_id": 1 }, update).run()?;
    assert_eq!((result.matched_count, result.modified_count), (1, 1));
    s.c()
        .update_many(doc! {}, doc! { "$set": { "list.$[x]": 0 } })
        .array_filters([doc! { "x": { "$gt": 5 } }])
        .run()?;
    s.c().update_one(doc! {}, vec![doc! { "$set": { "m": { "$add": ["$n", 1] } } }]).run()?;
    let wanted = doc! { "_id": 1, "n": 3, "list": [1, 5, 0, 0], "a": { "b": true }, "m": 4 };
    assert_eq!(s.c().find_one(doc! {}).run()?, Some(wanted));
    refused(s.c().update_one(doc! {}, doc! { "$none": { "a": 1 } }).run(), 9);
    Ok(())
}

#[test]
fn an_upsert_returns_the_id() -> Result {
    let s = Scratch::new("upsert")?;
    let update = doc! { "$setOnInsert": { "v": 1 } };
    let result = s.c().update_one(doc! { "_id": "k" }, update).upsert(true).run()?;
    assert_eq!(result.upserted_id, Some(Bson::String("k".into())));
    Ok(())
}

#[test]
fn replacing_keeps_the_id() -> Result {
    let s = Scratch::new("replace")?;
    s.c().insert_one(doc! { "_id": 1, "a": 1 }).run()?;
    s.c().replace_one(doc! { "a": 1 }, doc! { "b": 1 }).run()?;
    assert_eq!(s.c().find_one(doc! {}).run()?, Some(doc! { "_id": 1, "b": 1 }));
    refused(s.c().replace_one(doc! {}, doc! { "_id": 2 }).run(), 66);
    Ok(())
}

#[test]
fn deletes_count() -> Result {
    let s = Scratch::new("deletes")?;
    s.c().insert_many((0..10).map(|n| doc! { "n": n })).run()?;
    assert_eq!(s.c().delete_one(doc! {}).run()?.deleted_count, 1);
    assert_eq!(s.c().delete_many(doc! { "n": { "$gte": 5 } }).run()?.deleted_count, 5);
    assert_eq!(s.c().estimated_document_count().run()?, 4);
    Ok(())
}

#[test]
fn find_one_and() -> Result {
    let s = Scratch::new("find_one_and")?;
    s.c().insert_many((0..3).map(|n| doc! { "_id": n, "n": n })).run()?;
    let before = s.c().find_one_and_update(doc! { "_id": 1 }, doc! { "$inc": { "n": 5 } }).run()?;
    assert_eq!(before, Some(doc! { "_id": 1, "n": 1 }));
    let after = s
        .c()
        .find_one_and_replace(doc! { "_id": 1 }, doc! { "r": 1 })
        .return_document(ReturnDocument::After)
        .run()?;
    assert_eq!(after, Some(doc! { "_id": 1, "r": 1 }));
    let gone = s.c().find_one_and_delete(doc! {}).sort(doc! { "_id": -1 }).run()?;
    assert_eq!(gone, Some(doc! { "_id": 2, "n": 2 }));
    Ok(())
}

#[test]
fn write_concerns() -> Result {
    let s = Scratch::new("write_concerns")?;
    for acknowledgment in [Acknowledgment::Nodes(1), Acknowledgment::Majority] {
        let concern = WriteConcern::builder().w(acknowledgment).journal(true).build();
        s.c().insert_one(doc! {}).write_concern(concern).run()?;
    }
    assert_eq!(s.c().count_documents(doc! {}).run()?, 2);
    Ok(())
}

#[test]
fn a_cursor_of_many_batches_in_order() -> Result {
    let s = Scratch::new("batches")?;
    s.c().insert_many((0..1000).map(|n| doc! { "_id": n })).run()?;
    let found = all(s.c().find(doc! {}).sort(doc! { "_id": -1 }).batch_size(7).run()?)?;
    let ids: Vec<_> = found.iter().flat_map(|d| d.get_i32("_id")).collect();
    assert_eq!(ids, (0..1000).rev().collect::<Vec<_>>());
    Ok(())
}

#[test]
fn sessions_and_killed_cursors() -> Result {
    let s = Scratch::new("sessions")?;
    s.c().insert_many((0..100).map(|n| doc! { "_id": n })).run()?;
    let mut session = s.0.start_session().run()?;
    let mut cursor = s.c().find(doc! {}).batch_size(2).session(&mut session).run()?;
    let first = cursor.next(&mut session).expect("a first document")?;
    assert_eq!(first, doc! { "_id": 0 });
    let reply = s.1.run_command(doc! { "find": "c", "batchSize": 1 }).run()?;
    let id = reply.get_document("cursor").and_then(|c| c.get_i64("id")).expect("a cursor");
    s.1.run_command(doc! { "killCursors": "c", "cursors": [id] }).run()?;
    refused(s.1.run_command(doc! { "getMore": id, "collection": "c" }).run(), 43);
    Ok(())
}

#[test]
fn a_tailable_cursor_returns_later_inserts() -> Result {
    let s = Scratch::new("tailable")?;
    s.1.create_collection("c").capped(true).size(100_000).run()?;
    s.c().insert_one(doc! { "_id": 1 }).run()?;
    let mut cursor = s
        .c()
        .find(doc! {})
        .cursor_type(CursorType::TailableAwait)
        .max_await_time(Duration::from_secs(20))
        .run()?;
    assert_eq!(cursor.next().transpose()?, Some(doc! { "_id": 1 }));
    s.c().insert_one(doc! { "_id": 2 }).run()?;
    assert_eq!(cursor.next().transpose()?, Some(doc! { "_id": 2 }));
    Ok(())
}

#[test]
fn query_operators() -> Result {
    let s = Scratch::new("query")?;
    let docs = (0..10).map(|n| doc! { "n": n, "s": format!("s{n}"), "t": [n, n % 2] });
    s.c().insert_many(docs).run()?;
    for (filter, count) in [
        (doc! { "n": { "$gt": 3, "$lte": 7 } }, 4),
        (doc! { "n": { "$nin": [1, 2] } }, 8),
        (doc! { "s": { "$regex": "^S[12]$", "$options": "i" } }, 2),
        (doc! { "t": { "$all": [4, 0] } }, 1),
        (doc! { "t": { "$elemMatch": { "$gt": 7 } } }, 2),
        (doc! { "$or": [{ "n": 1 }, { "s": "s2" }] }, 2),
        (doc! { "n": { "$bitsAllSet": 5 } }, 2),
        (doc! { "$expr": { "$eq": [{ "$mod": ["$n", 5] }, 0] } }, 2),
        (doc! { "none": Bson::Null }, 10),
    ] {
        assert_eq!(s.c().count_documents(filter.clone()).run()?, count, "{filter}");
    }
    refused(s.c().find_one(doc! { "a": { "$none": 1 } }).run(), 2);
    Ok(())
}

#[test]
fn projection_sort_skip_limit() -> Result {
    let s = Scratch::new("projection")?;
    s.c().insert_many((0..5).map(|n| doc! { "n": n, "x": 1 })).run()?;
    let cursor = s
        .c()
        .find(doc! {})
        .projection(doc! { "_id": 0, "n": 1 })
        .sort(doc! { "n": -1 })
        .skip(1)
        .limit(2)
        .run()?;
    assert_eq!(all(cursor)?, [doc! { "n": 3 }, doc! { "n": 2 }]);
    Ok(())
}

#[test]
fn distinct() -> Result {
    let s = Scratch::new("distinct")?;
    s.c().insert_many([doc! { "v": [1, 2] }, doc! { "v": 2 }, doc! { "v": "x" }]).run()?;
    let values = s.c().distinct("v", doc! {}).run()?;
    assert_eq!(values, [Bson::Int32(1), Bson::Int32(2), Bson::String("x".into())]);
    Ok(())
}

#[test]
fn indexes() -> Result {
    let s = Scratch::new("indexes")?;
    s.c().insert_many((0..100).map(|n| doc! { "a": n % 10, "u": n })).run()?;
    let unique = IndexOptions::builder().unique(true).build();
    s.c()
        .create_indexes([
            IndexModel::builder().keys(doc! { "a": 1 }).build(),
            IndexModel::builder().keys(doc! { "u": 1 }).options(unique).build(),
        ])
        .run()?;
    assert_eq!(s.c().list_index_names().run()?, ["_id_", "a_1", "u_1"]);
    refused(s.c().insert_one(doc! { "u": 5 }).run(), 11000);
    let explain = doc! { "explain": { "find": "c", "filter": { "a": 3 } } };
    let plan = s.1.run_command(explain).run()?;
    assert!(plan.get_document("queryPlanner").is_ok_and(|p| p.to_string().contains("IXSCAN")));
    s.c().drop_index("a_1").run()?;
    refused(s.c().drop_index("a_1").run(), 27);
    Ok(())
}

#[test]
fn aggregation() -> Result {
    let s = Scratch::new("aggregation")?;
    s.c().insert_many((0..6).map(|n| doc! { "k": n % 2, "n": n, "t": [n, n + 1] })).run()?;
    let pipeline = [
        doc! { "$unwind": "$t" },
        doc! { "$match": { "t": { "$gt": 1 } } },
        doc! { "$group": { "_id": "$k", "sum": { "$sum": "$t" }, "avg": { "$avg": "$n" } } },
        doc! { "$sort": { "_id": 1 } },
    ];
    let got = all(s.c().aggregate(pipeline).run()?)?;
    let wanted =
        [doc! { "_id": 0, "sum": 14, "avg": 3.0 }, doc! { "_id": 1, "sum": 20, "avg": 3.4 }];
    assert_eq!(got, wanted);
    refused(s.c().aggregate([doc! { "$none": {} }]).run(), 40324);
    Ok(())
}

#[test]
fn collections_and_databases() -> Result {
    let s = Scratch::new("collections")?;
    s.1.create_collection("x").run()?;
    refused(s.1.create_collection("x").capped(true).size(4096).run(), 48);
    assert_eq!(s.1.list_collection_names().run()?, ["x"]);
    assert!(s.0.list_database_names().run()?.iter().any(|n| n == s.1.name()));
    s.1.collection::<Document>("x").drop().run()?;
    assert!(s.1.list_collection_names().run()?.is_empty());
    Ok(())
}

#[test]
fn a_validator_refuses() -> Result {
    let s = Scratch::new("validator")?;
    s.1.create_collection("c").validator(doc! { "n": { "$gt": 0 } }).run()?;
    s.c().insert_one(doc! { "n": 1 }).run()?;
    refused(s.c().insert_one(doc! { "n": 0 }).run(), 121);
    Ok(())
}

#[test]
fn threads_share_a_client() -> Result {
    let s = Scratch::new("threads")?;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|t| {
                let c = s.c();
                scope.spawn(move || -> Result {
                    (0..50)
                        .try_for_each(|i| c.insert_one(doc! { "t": t, "i": i }).run().map(|_| ()))
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| w.join().expect("no panic"))
    })?;
    assert_eq!(s.c().count_documents(doc! {}).run()?, 400);
    Ok(())
}

#[test]
fn gridfs_stores_and_gives_back() -> Result {
    use std::io::{Read, Write};
    let s = Scratch::new("gridfs")?;
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let bucket = s.1.gridfs_bucket(None);
    let mut upload = bucket.open_upload_stream("model").run()?;
    upload.write_all(&bytes)?;
    upload.close()?;
    let mut got = Vec::new();
    bucket.open_download_stream_by_name("model").run()?.read_to_end(&mut got)?;
    assert!(got == bytes);
    Ok(())
}
