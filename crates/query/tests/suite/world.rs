//! Fixture: a collection with indexes on the in-memory engine, and the documents that the tests expect in it.

use bson::{Bson, Document, doc};
use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::operation::block_on;
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Doc, DocBuf};
use kauri_catalog::build::BuildStep;
use kauri_catalog::{Catalog, Collection, IndexBuild, Namespace};
use kauri_query::exec::{Flow, PlanExecutor, QueryEnv, Stage, Verbosity};
use kauri_query::plan::{self, Query};
use kauri_query::write::insert::{InsertOptions, insert};
use kauri_query::write::{Bypass, WriteOutcome};
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{Backend, Operation, StorageEngine};
use std::sync::Arc;

pub fn raw(doc: &Document) -> DocBuf {
    let mut bytes = Vec::new();
    doc.to_writer(&mut bytes).expect("a document can be written");
    DocBuf::from_vec(bytes).expect("what was written is framed")
}

pub fn owned(doc: Doc<'_>) -> Document {
    Document::from_reader(doc.as_bytes()).expect("a stored document can be read")
}

/// See the module's head.
pub struct World {
    pub backend: Arc<Backend>,
    pub catalog: Catalog,
    pub ns: Namespace,
    pub env: QueryEnv,
    /// The documents in insertion order.
    pub docs: Vec<Document>,
    next_id: i32,
}

impl World {
    pub fn new(seed: u64) -> World {
        let engine: Arc<dyn StorageEngine> = Arc::new(EphemeralEngine::new());
        let random = Arc::new(SeededRandom::new(seed));
        let backend = Backend::local(engine, Arc::new(SystemClock::new()), random.clone());
        let catalog = Catalog::open(&backend).unwrap();
        let ns = Namespace::parse("db.plans").unwrap();
        catalog.create_collection(&mut backend.scope(), &ns, Default::default(), None).unwrap();
        let env = QueryEnv::new(0, random);
        World { backend, catalog, ns, env, docs: Vec::new(), next_id: 0 }
    }

    pub fn op(&self) -> Operation {
        Operation::detached(&self.backend)
    }

    pub fn collection(&self) -> Arc<Collection> {
        self.catalog.collection(self.ns.as_str()).unwrap()
    }

    /// Inserts a document unless an index rejects it.
    pub fn insert(&mut self, doc: Document) {
        let mut with_id = doc! { "_id": self.next_id };
        self.next_id += 1;
        with_id.extend(doc);
        let bytes = raw(&with_id);
        let options = InsertOptions::ordered(Bypass::default());
        let mut outcome = WriteOutcome::default();
        let (mut op, docs) = (self.op(), [bytes.as_doc()]);
        let inserted =
            block_on(insert(&mut op, &self.catalog, &self.ns, &docs, &options, &mut outcome));
        match outcome.errors.first() {
            None if inserted == Ok(1) => self.docs.push(with_id),
            Some((_, error)) if is_refusal(error) => {}
            other => panic!("{with_id}: {inserted:?}, {other:?}"),
        }
    }

    /// Creates an index if it is valid for the collection's documents.
    pub fn create_index(&mut self, spec: &Document) {
        let Ok(spec) = kauri_catalog::spec::normalise(raw(spec).as_doc(), false) else { return };
        let mut scope = self.backend.scope();
        let (ids, ticket) =
            self.catalog.add_indexes(&mut scope, &self.collection(), &[spec]).unwrap();
        let mut build = IndexBuild::new(ids.clone(), ticket.seq);
        loop {
            match build.step(&self.collection(), &mut scope) {
                Ok(BuildStep::Done) => break,
                Ok(_) => {}
                Err(error) => {
                    assert!(is_refusal(&error), "{error:?}");
                    self.catalog.drop_indexes(&mut scope, &self.collection(), &ids).unwrap();
                    return;
                }
            }
        }
        self.catalog.indexes_ready(&mut scope, &self.collection(), &ids, &[]).unwrap();
    }

    /// The rows of the plan that the planner chooses, and its explanation.
    pub fn run(&self, query: &Query) -> Result<(Vec<Document>, String)> {
        let collection = self.collection();
        let mut op = self.op();
        let planned = plan::plan(&mut op, Some(&collection), query, &self.env);
        self.rows(block_on(planned)?.root)
    }

    /// The rows of a plan.
    pub fn rows(&self, root: Box<dyn Stage>) -> Result<(Vec<Document>, String)> {
        let mut executor = PlanExecutor::new(root, self.env.clone());
        let mut rows = Vec::new();
        let walked = block_on(executor.for_each(&mut self.op(), &mut |row| {
            rows.push(owned(row.doc()));
            Ok(Flow::Continue)
        }));
        let text = DocBuf::build(|w| executor.root().explain(w, Verbosity::QueryPlanner));
        walked.map(|_| (rows, kauri_bson::shell_text(text.as_doc())))
    }

    /// The stored documents, in record order.
    pub fn stored(&self) -> Vec<Document> {
        let query = Query {
            hint: Some(plan::Hint::Natural(kauri_storage::Direction::Forward)),
            ..Query::default()
        };
        self.run(&query).unwrap().0
    }

    /// The first path of each index.
    pub fn leading_paths(&self) -> Vec<String> {
        let first = |index: &Arc<kauri_catalog::Index>| {
            index.definition().key.as_doc().first().map(|field| field.key().to_owned())
        };
        self.collection().indexes.iter().filter_map(first).collect()
    }

    /// The paths of each index.
    pub fn index_paths(&self) -> Vec<Vec<String>> {
        let all = |index: &Arc<kauri_catalog::Index>| {
            index.definition().key.as_doc().iter().map(|field| field.key().to_owned()).collect()
        };
        self.collection().indexes.iter().map(all).collect()
    }

    /// The indexes, for a failure's message.
    pub fn indexes(&self) -> String {
        let collection = self.collection();
        let one = |index: &Arc<kauri_catalog::Index>| {
            let fields = index.definition().pattern.len();
            let bits: Vec<u64> = (0..fields).map(|f| index.keys.multikey.of_field(f)).collect();
            let spec = kauri_bson::shell_text(index.definition().spec.as_doc());
            format!("  {spec} multikey {bits:?}\n")
        };
        collection.indexes.iter().map(one).collect()
    }
}

/// Whether an index rejects the document: a duplicate key, parallel arrays, or a field in an array's document
/// that may be an array position.
pub fn is_refusal(error: &Error) -> bool {
    const AMBIGUOUS: i32 = 16746;
    matches!(error.code(), ErrorCode::DuplicateKey | ErrorCode::CannotIndexParallelArrays)
        || error.code().number() == AMBIGUOUS
}

pub fn id_of(doc: &Document) -> i32 {
    match doc.get("_id") {
        Some(Bson::Int32(id)) => *id,
        other => panic!("{other:?} in {doc}"),
    }
}
