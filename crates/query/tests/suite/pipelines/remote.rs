//! Pipelines over remote collections, as in a router.

use super::runner::{parsed, raw, show};
use bson::{Document, doc};
use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::operation::block_on;
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{DocBuf, Value};
use kauri_catalog::{Collection, Namespace, View};
use kauri_query::exec::rows::Rows;
use kauri_query::exec::{Flow, PlanExecutor, QueryEnv, Stage};
use kauri_query::namespaces::{Definer, Named, Namespaces, RemoteRows};
use kauri_query::pipeline::{BuildCx, build_by_trial, views};
use kauri_query::write::insert::{InsertOptions, insert};
use kauri_query::write::{Bypass, WriteOutcome};
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{Backend, Operation};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Documents by the name of their collection.
#[derive(Default)]
pub struct Elsewhere {
    collections: BTreeMap<String, Arc<Remote>>,
    views: Vec<Arc<View>>,
}

#[derive(Default)]
struct Remote {
    docs: Vec<DocBuf>,
    /// Number of reads.
    reads: AtomicUsize,
}

impl RemoteRows for Remote {
    fn open(&self, _env: &QueryEnv) -> Result<Box<dyn Stage>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Rows::new(self.docs.iter().cloned())))
    }
}

impl Elsewhere {
    /// The collections `db.c` and `db.f`.
    pub fn new(c: &[Document], f: &[Document]) -> Elsewhere {
        let mut collections = BTreeMap::new();
        for (name, docs) in [("db.c", c), ("db.f", f)] {
            let remote = Remote { docs: docs.iter().map(raw).collect(), ..Remote::default() };
            collections.insert(name.to_owned(), Arc::new(remote));
        }
        Elsewhere { collections, views: Vec::new() }
    }

    fn reads(&self, name: &str) -> usize {
        self.collections[name].reads.load(Ordering::Relaxed)
    }
}

impl Namespaces for Elsewhere {
    fn resolve(&self, full_name: &str) -> Named {
        if let Some(remote) = self.collections.get(full_name) {
            return Named::Remote(remote.clone());
        }
        match self.views.iter().find(|view| view.ns.as_str() == full_name) {
            Some(view) => Named::View(view.clone()),
            None => Named::Nothing,
        }
    }

    fn catch_up(&self) {}

    fn databases(&self) -> Vec<String> {
        vec!["db".to_owned()]
    }

    fn collections_of(&self, _database: &str) -> Vec<Arc<Collection>> {
        Vec::new()
    }

    fn views_of(&self, _database: &str) -> Vec<Arc<View>> {
        self.views.clone()
    }

    fn gone_error(&self, collection: &Collection) -> Error {
        collection.dropped_error()
    }

    fn definer(&self) -> Option<&dyn Definer> {
        None
    }
}

struct World {
    backend: Arc<Backend>,
    elsewhere: Arc<Elsewhere>,
}

impl World {
    fn new() -> World {
        let random = Arc::new(SeededRandom::new(7));
        let engine = Arc::new(EphemeralEngine::new());
        let backend = Backend::local(engine, Arc::new(SystemClock::new()), random);
        let orders: Vec<_> = (0..6).map(|n| doc! { "_id": n, "by": n % 3, "sum": n }).collect();
        let people = [doc! { "_id": 0, "name": "Ada" }, doc! { "_id": 2, "name": "Bo" }];
        let mut elsewhere = Elsewhere::new(&orders, &people);
        let stages = Value::array([Value::from(raw(&doc! { "$match": { "sum": { "$gte": 2 } } }))]);
        elsewhere.views.push(Arc::new(View {
            ns: Namespace::new("db", "large").unwrap(),
            view_on: "c".to_owned(),
            pipeline: stages.as_array().unwrap().to_buf(),
            options: DocBuf::new(),
            usage: Arc::default(),
        }));
        World { backend, elsewhere: Arc::new(elsewhere) }
    }

    fn op(&self) -> Operation {
        Operation::detached(&self.backend)
    }

    fn run(&self, collection: &str, stages: &[Document]) -> Result<Vec<DocBuf>> {
        let ns = Namespace::new("db", collection)?;
        let mut pipeline = parsed(&ns, stages)?;
        let found = views::resolve(&self.elsewhere, &ns)?;
        assert!(found.collection.is_none());
        pipeline.stages.splice(0..0, found.pipeline.stages);
        pipeline.optimize()?;
        let env = QueryEnv::new(0, self.backend.random().clone());
        let cx = BuildCx::new(self.elsewhere.clone(), "db", None, env);
        let mut op = self.op();
        if let Some(sink) = pipeline.stages.last().and_then(|stage| stage.sink()) {
            sink.check(&cx)?;
        }
        let root = block_on(build_by_trial(&mut op, &pipeline, None, &cx))?;
        let mut rows = Vec::new();
        block_on(PlanExecutor::new(root, cx.env.clone()).for_each(&mut op, &mut |row| {
            rows.push(row.doc().to_buf());
            Ok(Flow::Continue)
        }))?;
        Ok(rows)
    }

    #[track_caller]
    fn gives(&self, collection: &str, stages: &[Document], expected: &[Document]) {
        let expected: Vec<_> = expected.iter().map(raw).collect();
        let found = self.run(collection, stages).unwrap();
        assert!(found == expected, "{}\nnot\n{}", show(&found), show(&expected));
    }
}

#[test]
fn remote_rows_are_matched_grouped_and_joined() {
    let world = World::new();
    let joined = [
        doc! { "$match": { "sum": { "$gt": 0 } } },
        doc! { "$group": { "_id": "$by", "all": { "$sum": "$sum" } } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$lookup": { "from": "f", "localField": "_id", "foreignField": "_id", "as": "who" } },
    ];
    let expected = [
        doc! { "_id": 0, "all": 3, "who": [{ "_id": 0, "name": "Ada" }] },
        doc! { "_id": 1, "all": 5, "who": [] },
        doc! { "_id": 2, "all": 7, "who": [{ "_id": 2, "name": "Bo" }] },
    ];
    world.gives("c", &joined, &expected);
    assert_eq!((world.elsewhere.reads("db.c"), world.elsewhere.reads("db.f")), (1, 1));
    let pipeline = doc! { "from": "f", "let": { "id": "$by" }, "as": "who", "pipeline": [
        { "$match": { "$expr": { "$eq": ["$_id", "$$id"] } } }, { "$project": { "_id": 0 } },
    ] };
    let first = [doc! { "$limit": 1 }, doc! { "$lookup": pipeline }];
    world.gives("c", &first, &[doc! { "_id": 0, "by": 0, "sum": 0, "who": [{ "name": "Ada" }] }]);
    let union = [
        doc! { "$match": { "_id": 5 } },
        doc! { "$unionWith": { "coll": "f", "pipeline": [{ "$match": { "name": "Bo" } }] } },
    ];
    world.gives(
        "c",
        &union,
        &[doc! { "_id": 5, "by": 2, "sum": 5 }, doc! { "_id": 2, "name": "Bo" }],
    );
    world.gives("absent", &[doc! { "$match": {} }], &[]);
}

#[test]
fn views_read_remote_rows() {
    let world = World::new();
    world.gives("large", &[doc! { "$count": "n" }], &[doc! { "n": 4 }]);
    let from_view = doc! { "from": "large", "localField": "_id", "foreignField": "by", "as": "o" };
    let stages = [doc! { "$lookup": from_view }, doc! { "$project": { "n": { "$size": "$o" } } }];
    world.gives("f", &stages, &[doc! { "_id": 0, "n": 1 }, doc! { "_id": 2, "n": 2 }]);
}

#[test]
fn writes_to_remote_collections_are_refused() {
    let world = World::new();
    let refused = |result: Result<()>| {
        assert_eq!(result.map_err(|error| error.code()), Err(ErrorCode::IllegalOperation));
    };
    refused(world.run("c", &[doc! { "$out": "f" }]).map(drop));
    refused(world.run("c", &[doc! { "$merge": "f" }]).map(drop));
    for name in ["f", "new"] {
        let ns = Namespace::new("db", name).unwrap();
        let (row, mut outcome) = (raw(&doc! { "_id": 1 }), WriteOutcome::default());
        let options = InsertOptions::ordered(Bypass::default());
        let (op, docs) = (&mut world.op(), [row.as_doc()]);
        let inserted = insert(op, &world.elsewhere, &ns, &docs, &options, &mut outcome);
        assert_eq!(block_on(inserted), Ok(0));
        refused(outcome.errors.pop().map_or(Ok(()), |(_, error)| Err(error)));
    }
}
