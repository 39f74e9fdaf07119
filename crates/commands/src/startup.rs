//! The server's own collections that clients expect: `admin.system.version`, `config.system.sessions`, and
//! `local.startup_log` with a document for each start.
//!
//! A member of a replica set creates nothing when it starts, because all members store the same. It does so when it
//! begins to lead; that is also when it ends what the earlier leader began. Members have no `local.startup_log`.

use crate::server::{FEATURE_COMPATIBILITY, Server, VERSION};
use kauri_base::log::{self, Attr};
use kauri_base::operation::block_on;
use kauri_base::{ErrorCode, Result};
use kauri_bson::{DocBuf, Value, doc};
use kauri_catalog::{Capped, CollectionOptions, InterruptedBuild, Namespace, Resolved, spec};
use kauri_matcher::{Matcher, ParseCx, Place};
use kauri_query::exec::QueryEnv;
use kauri_query::plan::Query;
use kauri_query::write::delete::delete;
use kauri_query::write::insert::{InsertOptions, insert};
use kauri_query::write::targets::Targets;
use kauri_query::write::{Bypass, WriteOutcome};
use kauri_storage::Operation;
use std::sync::Arc;

/// Most bytes of `local.startup_log`.
const STARTUP_LOG_BYTES: u64 = 10 * 1024 * 1024;

/// Creates what is missing; nothing on a member of a replica set. Blocks; for the start of the server.
pub fn prepare(server: &Server) -> Result<()> {
    if server.member.is_some() {
        return Ok(());
    }
    make_shared(server)?;
    let capped = Some(Capped { bytes_max: STARTUP_LOG_BYTES, records_max: 0 });
    let options = CollectionOptions { capped, ..CollectionOptions::default() };
    make(server, "local.startup_log", options, None)?;
    // Its `_id` is the time: another start may have had the same, where the clock was set back.
    ignore_duplicate(add(server, "local.startup_log", startup_line(server)))
}

/// What a member does when it begins to lead: when its engine accepts units, and before its clients may write. Answers
/// the index builds to be resumed. Blocks.
pub fn lead(server: &Server) -> Result<Vec<InterruptedBuild>> {
    let interrupted = server.catalog.lead()?;
    match make_shared(server) {
        // Something can be deleted.
        Err(error) if error.code() == ErrorCode::OutOfDiskSpace => {
            let attr = Attr::new().str("error", error.to_string());
            let message = "Disk is full: the server's own collections were not created. Delete documents or free \
                           disk space";
            log::warning("STORAGE", 6_200_104, "-", message, attr);
        }
        made => made?,
    }
    Ok(interrupted)
}

/// Resumes the index builds that [`lead`] answered, one after the other, while clients write. Blocks. Ends early if the
/// member leads no longer, or with the process.
pub fn resume_builds(server: &Server, interrupted: &[InterruptedBuild]) {
    for build in interrupted {
        if let Err(error) = server.catalog.resume_build(*build) {
            let attr = Attr::new()
                .num("collection", build.collection.0)
                .num("index", build.index.0)
                .str("error", error.message());
            let message =
                "Index build of an earlier primary was not resumed; the next primary resumes it";
            log::warning("INDEX", 6_200_042, "-", message, attr);
        }
    }
}

/// The collections that all members have.
fn make_shared(server: &Server) -> Result<()> {
    make(server, "admin.system.version", CollectionOptions::default(), None)?;
    write_compatibility(server)?;
    let expiry = doc! {
        "key" => doc! { "lastUse" => 1 }, "name" => "lsidTTLIndex", "expireAfterSeconds" => 1800,
    };
    make(server, "config.system.sessions", CollectionOptions::default(), Some(expiry))?;
    Ok(())
}

fn ignore_duplicate(added: Result<()>) -> Result<()> {
    added.or_else(|error| if error.code() == ErrorCode::DuplicateKey { Ok(()) } else { Err(error) })
}

/// Notes the version whose features the data may use. A directory that an older build made says an older one.
fn write_compatibility(server: &Server) -> Result<()> {
    let ns = Namespace::parse("admin.system.version")?;
    let older = doc! {
        "_id" => "featureCompatibilityVersion", "version" => doc! { "$ne" => FEATURE_COMPATIBILITY },
    };
    let matcher = Matcher::parse(older.as_doc(), &ParseCx::new(Place::Find))?;
    let query = Query { filter: Some(Arc::new(matcher)), ..Query::default() };
    let env = QueryEnv::new(server.clock.unix_ms(), server.random.clone());
    let catalog = &server.catalog;
    let targets = Targets { catalog, ns: &ns, query: &query, env: &env, multi: true, only: None };
    let mut op = Operation::detached(&server.backend);
    block_on(delete(&mut op, &targets, &mut WriteOutcome::default()))?;
    let now = doc! { "_id" => "featureCompatibilityVersion", "version" => FEATURE_COMPATIBILITY };
    ignore_duplicate(add(server, "admin.system.version", now))
}

fn startup_line(server: &Server) -> DocBuf {
    let start = &server.start;
    DocBuf::build(|out| {
        out.put("_id", format!("{}-{}", start.machine.hostname, start.started_ms));
        out.put("hostname", &start.machine.hostname);
        out.put("startTime", Value::DateTime(start.started_ms));
        out.put("cmdLine", &start.parsed);
        out.put("pid", i64::from(start.pid));
        out.document("buildinfo").put("version", VERSION);
    })
}

/// Creates a collection if it does not exist; whether it was created.
fn make(
    server: &Server,
    name: &str,
    options: CollectionOptions,
    index: Option<DocBuf>,
) -> Result<bool> {
    let (catalog, mut scope) = (&server.catalog, server.backend.scope());
    if !matches!(catalog.resolve(name), Resolved::Nothing) {
        return Ok(false);
    }
    let (collection, _) =
        match catalog.create_collection(&mut scope, &Namespace::parse(name)?, options, None) {
            Err(error) if error.code() == ErrorCode::NamespaceExists => return Ok(false),
            other => other?,
        };
    if let Some(index) = index {
        let spec = spec::normalise(index.as_doc(), false)?;
        let (ids, _) = catalog.add_indexes(&mut scope, &collection, &[spec])?;
        // There is nothing to index yet.
        if let Resolved::Collection(collection) = catalog.resolve(name) {
            catalog.indexes_ready(&mut scope, &collection, &ids, &[])?;
        }
    }
    Ok(true)
}

fn add(server: &Server, name: &str, document: DocBuf) -> Result<()> {
    let mut op = Operation::detached(&server.backend);
    let options = InsertOptions::ordered(Bypass::ALL);
    let mut outcome = WriteOutcome::default();
    let (ns, docs) = (Namespace::parse(name)?, [document.as_doc()]);
    let insert = insert(&mut op, &server.catalog, &ns, &docs, &options, &mut outcome);
    block_on(insert)?;
    match outcome.errors.pop() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}
