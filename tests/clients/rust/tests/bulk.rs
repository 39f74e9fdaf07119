//! The Rust driver's `Client::bulk_write` against a running server (`KAURI_URI`): the command `bulkWrite`, whose
//! operations name their collections one by one. Each test has databases of its own, dropped at its end.

use mongodb::Namespace;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{BulkWriteError, Error, ErrorKind, PartialBulkWriteResult};
use mongodb::options::{
    DeleteManyModel, DeleteOneModel, InsertOneModel, ReplaceOneModel, UpdateManyModel,
    UpdateOneModel, WriteModel,
};
use mongodb::results::{SummaryBulkWriteResult, VerboseBulkWriteResult};
use mongodb::sync::Client;
use std::collections::BTreeMap;

type Result<T = ()> = std::result::Result<T, Error>;

/// Databases that are dropped when the test ends.
struct Scratch {
    client: Client,
    databases: [String; 2],
}

impl Scratch {
    fn new(name: &str) -> Result<Scratch> {
        let uri =
            std::env::var("KAURI_URI").expect("KAURI_URI is set by the script that runs this");
        let client = Client::with_uri_str(uri)?;
        let databases = ["one", "two"].map(|n| format!("rust_bulk_{name}_{n}"));
        let scratch = Scratch { client, databases };
        scratch.drop_all()?;
        Ok(scratch)
    }

    fn drop_all(&self) -> Result {
        self.databases.iter().try_for_each(|name| self.client.database(name).drop().run())
    }

    /// A collection of the first database.
    fn ns(&self, collection: &str) -> Namespace {
        Namespace::new(&self.databases[0], collection)
    }

    /// A collection of the second one.
    fn far(&self, collection: &str) -> Namespace {
        Namespace::new(&self.databases[1], collection)
    }

    /// The documents, by `_id`.
    fn docs(&self, ns: &Namespace) -> Result<Vec<Document>> {
        let collection = self.client.database(&ns.db).collection(&ns.coll);
        collection.find(doc! {}).sort(doc! { "_id": 1 }).run()?.collect()
    }

    fn count(&self, ns: &Namespace) -> Result<u64> {
        let collection = self.client.database(&ns.db).collection::<Document>(&ns.coll);
        collection.count_documents(doc! {}).run()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.drop_all();
    }
}

fn insert(ns: &Namespace, document: Document) -> WriteModel {
    InsertOneModel::builder().namespace(ns.clone()).document(document).build().into()
}

/// An update of the document with this `_id`.
fn set(ns: &Namespace, id: i32, update: Document) -> WriteModel {
    let filter = doc! { "_id": id };
    UpdateOneModel::builder().namespace(ns.clone()).filter(filter).update(update).build().into()
}

fn counts(result: &SummaryBulkWriteResult) -> [i64; 5] {
    [
        result.inserted_count,
        result.matched_count,
        result.modified_count,
        result.upserted_count,
        result.deleted_count,
    ]
}

/// The errors by their places, and what had succeeded.
fn failed<T: std::fmt::Debug>(result: Result<T>) -> (BTreeMap<usize, i32>, BulkWriteError) {
    let error = result.expect_err("an operation should fail");
    let ErrorKind::BulkWrite(bulk) = error.kind.as_ref() else { panic!("{error}") };
    (bulk.write_errors.iter().map(|(at, error)| (*at, error.code)).collect(), bulk.clone())
}

fn summary(bulk: &BulkWriteError) -> [i64; 5] {
    match &bulk.partial_result {
        Some(PartialBulkWriteResult::Summary(result)) => counts(result),
        other => panic!("{other:?}"),
    }
}

fn verbose(bulk: BulkWriteError) -> VerboseBulkWriteResult {
    match bulk.partial_result {
        Some(PartialBulkWriteResult::Verbose(result)) => result,
        other => panic!("{other:?}"),
    }
}

/// One operation of each kind, in two databases.
fn every_kind(s: &Scratch) -> Vec<WriteModel> {
    let (a, b) = (s.ns("a"), s.far("b"));
    let upsert = UpdateOneModel::builder()
        .namespace(b.clone())
        .filter(doc! { "_id": "new" })
        .update(doc! { "$set": { "n": 7 } })
        .upsert(true)
        .build();
    let many = UpdateManyModel::builder()
        .namespace(a.clone())
        .filter(doc! { "n": { "$gte": 1 } })
        .update(doc! { "$inc": { "n": 10 } })
        .build();
    let replace = ReplaceOneModel::builder()
        .namespace(a.clone())
        .filter(doc! { "_id": 9 })
        .replacement(doc! { "whole": true })
        .upsert(true)
        .build();
    let delete_one =
        DeleteOneModel::builder().namespace(b.clone()).filter(doc! { "_id": "new" }).build();
    let delete_many = DeleteManyModel::builder()
        .namespace(a.clone())
        .filter(doc! { "n": { "$gte": 11 } })
        .build();
    vec![
        insert(&a, doc! { "_id": 0, "n": 0 }),
        insert(&a, doc! { "_id": 1, "n": 1 }),
        insert(&a, doc! { "_id": 2, "n": 2 }),
        upsert.into(),
        many.into(),
        replace.into(),
        set(&a, 0, doc! { "$set": { "n": 0 } }),
        delete_one.into(),
        delete_many.into(),
    ]
}

#[test]
fn every_kind_of_operation_in_order_with_its_result() -> Result {
    for is_ordered in [true, false] {
        let s = Scratch::new(if is_ordered { "kinds" } else { "kinds_unordered" })?;
        let run = s.client.bulk_write(every_kind(&s)).ordered(is_ordered);
        let result = run.comment("all of them").verbose_results().run()?;
        assert_eq!(counts(&result.summary), [3, 3, 2, 2, 3]);
        let inserted: BTreeMap<_, _> =
            result.insert_results.iter().map(|(at, one)| (*at, one.inserted_id.clone())).collect();
        assert_eq!(inserted, (0..3).map(|id| (id as usize, Bson::Int32(id))).collect());
        let updated: BTreeMap<_, _> = result
            .update_results
            .iter()
            .map(|(at, one)| {
                (*at, (one.matched_count, one.modified_count, one.upserted_id.clone()))
            })
            .collect();
        let expected = [
            (3, (0, 0, Some(Bson::from("new")))),
            (4, (2, 2, None)),
            (5, (0, 0, Some(Bson::Int32(9)))),
            (6, (1, 0, None)),
        ];
        // How an upsert counts as matched is the driver's business.
        let updated: Vec<_> = updated
            .into_iter()
            .map(|(at, (m, n, id))| (at, (if id.is_some() { 0 } else { m }, n, id)))
            .collect();
        assert_eq!(updated, expected);
        let deleted: BTreeMap<_, _> =
            result.delete_results.iter().map(|(at, one)| (*at, one.deleted_count)).collect();
        assert_eq!(deleted, BTreeMap::from([(7, 1), (8, 2)]));
        let left = [doc! { "_id": 0, "n": 0 }, doc! { "_id": 9, "whole": true }];
        assert_eq!(s.docs(&s.ns("a"))?, left);
        assert_eq!(s.count(&s.far("b"))?, 0);
    }
    Ok(())
}

#[test]
fn without_verbose_results_there_are_only_counts() -> Result {
    let s = Scratch::new("counts")?;
    let result = s.client.bulk_write(every_kind(&s)).run()?;
    assert_eq!(counts(&result), [3, 3, 2, 2, 3]);
    Ok(())
}

#[test]
fn an_ordered_bulk_ends_at_its_first_error() -> Result {
    let s = Scratch::new("ordered")?;
    let (a, b) = (s.ns("a"), s.far("b"));
    let models = || {
        vec![
            insert(&a, doc! { "_id": 1, "n": "text" }),
            insert(&b, doc! { "_id": 1 }),
            insert(&b, doc! { "_id": 1 }),
            set(&a, 1, doc! { "$inc": { "n": 1 } }),
            insert(&a, doc! { "_id": 2 }),
        ]
    };
    let (errors, bulk) = failed(s.client.bulk_write(models()).verbose_results().run());
    assert_eq!(errors, BTreeMap::from([(2, 11000)]));
    let error = &bulk.write_errors[&2];
    assert!(error.message.starts_with("E11000 duplicate key error collection: "), "{error:?}");
    let done = verbose(bulk);
    assert_eq!(counts(&done.summary), [2, 0, 0, 0, 0]);
    assert_eq!(done.insert_results.len(), 2);
    assert_eq!((s.count(&a)?, s.count(&b)?), (1, 1));
    // Nothing succeeds: there is no partial result.
    let (errors, bulk) = failed(s.client.bulk_write(models()).run());
    assert_eq!((errors, bulk.partial_result.is_none()), (BTreeMap::from([(0, 11000)]), true));
    Ok(())
}

#[test]
fn an_unordered_bulk_tells_every_error_by_its_place() -> Result {
    let s = Scratch::new("unordered")?;
    let (a, b) = (s.ns("a"), s.far("b"));
    let models = vec![
        insert(&a, doc! { "_id": 1, "n": "text" }),
        insert(&a, doc! { "_id": 1 }),
        insert(&b, doc! { "_id": 1 }),
        set(&a, 1, doc! { "$inc": { "n": 1 } }),
        insert(&b, doc! { "_id": 1 }),
        set(&a, 1, doc! { "$set": { "_id": 2 } }),
        insert(&b, doc! { "_id": 2 }),
    ];
    let (errors, bulk) = failed(s.client.bulk_write(models).ordered(false).run());
    assert_eq!(errors, BTreeMap::from([(1, 11000), (3, 14), (4, 11000), (5, 66)]));
    assert_eq!(summary(&bulk), [3, 0, 0, 0, 0]);
    assert_eq!(s.docs(&a)?, [doc! { "_id": 1, "n": "text" }]);
    assert_eq!(s.docs(&b)?, [doc! { "_id": 1 }, doc! { "_id": 2 }]);
    Ok(())
}

#[test]
fn operations_take_their_options() -> Result {
    let s = Scratch::new("options")?;
    let a = s.ns("a");
    let filters = UpdateOneModel::builder()
        .namespace(a.clone())
        .filter(doc! { "_id": 1 })
        .update(doc! { "$set": { "list.$[big]": 0 } })
        .array_filters(vec![Bson::from(doc! { "big": { "$gt": 5 } })])
        .hint(Bson::from(doc! { "_id": 1 }))
        .build();
    let last = UpdateOneModel::builder()
        .namespace(a.clone())
        .filter(doc! {})
        .update(doc! { "$set": { "last": true } })
        .sort(doc! { "_id": -1 })
        .build();
    let with_let = UpdateManyModel::builder()
        .namespace(a.clone())
        .filter(doc! { "$expr": { "$eq": ["$_id", "$$wanted"] } })
        .update(vec![doc! { "$set": { "given": "$$wanted" } }])
        .build();
    let models: Vec<WriteModel> = vec![
        insert(&a, doc! { "_id": 1, "list": [1, 6, 9] }),
        insert(&a, doc! { "_id": 2 }),
        insert(&a, doc! { "_id": 3 }),
        filters.into(),
        last.into(),
        with_let.into(),
    ];
    let result = s.client.bulk_write(models).let_vars(doc! { "wanted": 2 }).run()?;
    assert_eq!(counts(&result), [3, 3, 3, 0, 0]);
    let expected = [
        doc! { "_id": 1, "list": [1, 0, 0] },
        doc! { "_id": 2, "given": 2 },
        doc! { "_id": 3, "last": true },
    ];
    assert_eq!(s.docs(&a)?, expected);
    let wrong =
        DeleteOneModel::builder().namespace(a.clone()).filter(doc! {}).hint(Bson::from("none"));
    let (errors, _) = failed(s.client.bulk_write([wrong.build()]).run());
    assert_eq!(errors, BTreeMap::from([(0, 2)]));
    Ok(())
}

#[test]
fn a_validator_refuses_unless_it_is_bypassed() -> Result {
    let s = Scratch::new("validator")?;
    let a = s.ns("a");
    let validator = doc! { "n": { "$gt": 0 } };
    s.client.database(&a.db).create_collection(&a.coll).validator(validator).run()?;
    let models = || vec![insert(&a, doc! { "_id": 1, "n": -1 })];
    let (errors, bulk) = failed(s.client.bulk_write(models()).run());
    assert_eq!(errors, BTreeMap::from([(0, 121)]));
    let details = bulk.write_errors[&0].details.as_ref().expect("details");
    assert!(details.get_document("details").is_ok(), "{details}");
    s.client.bulk_write(models()).bypass_document_validation(true).run()?;
    assert_eq!(s.count(&a)?, 1);
    Ok(())
}

#[test]
fn a_bulk_may_have_a_session_and_many_namespaces() -> Result {
    const NAMESPACES: i32 = 60;
    let s = Scratch::new("many")?;
    let at = |n: i32| if n % 2 == 0 { s.ns(&format!("c{n}")) } else { s.far(&format!("c{n}")) };
    let models = (0..3 * NAMESPACES).map(|n| insert(&at(n % NAMESPACES), doc! { "_id": n }));
    let mut session = s.client.start_session().run()?;
    let result = s.client.bulk_write(models).session(&mut session).run()?;
    assert_eq!(counts(&result), [i64::from(3 * NAMESPACES), 0, 0, 0, 0]);
    for n in 0..NAMESPACES {
        let ids = [n, n + NAMESPACES, n + 2 * NAMESPACES].map(|id| doc! { "_id": id });
        assert_eq!(s.docs(&at(n))?, ids, "{n}");
    }
    Ok(())
}

#[test]
fn more_operations_than_a_batch_holds_keep_their_places() -> Result {
    const BATCH: i32 = 100_000;
    let s = Scratch::new("batches")?;
    let a = s.ns("a");
    let mut models: Vec<_> = (0..BATCH + 10).map(|id| insert(&a, doc! { "_id": id })).collect();
    // The first batch's last operation, and one of the second batch.
    models[BATCH as usize - 1] = insert(&a, doc! { "_id": 0 });
    models[BATCH as usize + 5] = insert(&a, doc! { "_id": 0 });
    let (errors, bulk) = failed(s.client.bulk_write(models).ordered(false).run());
    let at = BATCH as usize;
    assert_eq!(errors, BTreeMap::from([(at - 1, 11000), (at + 5, 11000)]));
    assert_eq!(summary(&bulk), [i64::from(BATCH + 8), 0, 0, 0, 0]);
    assert_eq!(s.count(&a)?, BATCH as u64 + 8);
    Ok(())
}

#[test]
fn more_bytes_than_a_message_holds_are_several_messages() -> Result {
    let s = Scratch::new("bytes")?;
    let a = s.ns("a");
    let filler = "x".repeat(15 << 20);
    let models = (0..4).map(|id| insert(&a, doc! { "_id": id, "filler": &filler }));
    let result = s.client.bulk_write(models).verbose_results().run()?;
    assert_eq!((result.summary.inserted_count, result.insert_results.len()), (4, 4));
    assert_eq!(s.count(&a)?, 4);
    Ok(())
}

#[test]
fn results_that_fill_more_than_a_reply_are_all_there() -> Result {
    let s = Scratch::new("results")?;
    let a = s.ns("a");
    // The reply repeats the `_id` of a document that an upsert has made.
    let id_of = |n: i32| format!("{n:04}{}", "x".repeat(1 << 20));
    let models = (0..20).map(|n| {
        let upsert =
            UpdateOneModel::builder().namespace(a.clone()).filter(doc! { "_id": id_of(n) });
        upsert.update(doc! { "$set": { "n": n } }).upsert(true).build()
    });
    let result = s.client.bulk_write(models).verbose_results().run()?;
    assert_eq!(counts(&result.summary), [0, 0, 0, 20, 0]);
    for n in 0..20 {
        let upserted = result.update_results[&(n as usize)].upserted_id.clone();
        assert!(upserted == Some(Bson::String(id_of(n))), "the `_id` of {n}");
    }
    Ok(())
}
