//! The collections of the server's own that clients expect to find: `admin.system.version`,
//! `config.system.sessions`, and `local.startup_log` with a line about each start.

use crate::server::{Server, VERSION};
use kauri_base::operation::block_on;
use kauri_base::{ErrorCode, OperationContext, Result};
use kauri_bson::{DocBuf, Value, doc};
use kauri_catalog::{Capped, CollectionOptions, Namespace, Resolved, spec};
use kauri_query::write::insert::{InsertOptions, insert};
use kauri_query::write::{Bypass, WriteOutcome};

/// Most bytes of `local.startup_log`.
const STARTUP_LOG_BYTES: u64 = 10 * 1024 * 1024;

/// Makes what is missing. Blocks; for the start of the server.
pub fn prepare(server: &Server) -> Result<()> {
    if make(server, "admin.system.version", CollectionOptions::default(), None)? {
        let version = doc! { "_id" => "featureCompatibilityVersion", "version" => "7.0" };
        add(server, "admin.system.version", version)?;
    }
    let expiry = doc! {
        "key" => doc! { "lastUse" => 1 }, "name" => "lsidTTLIndex", "expireAfterSeconds" => 1800,
    };
    make(server, "config.system.sessions", CollectionOptions::default(), Some(expiry))?;
    let capped = Some(Capped { bytes_max: STARTUP_LOG_BYTES, records_max: 0 });
    let options = CollectionOptions { capped, ..CollectionOptions::default() };
    make(server, "local.startup_log", options, None)?;
    add(server, "local.startup_log", startup_line(server))
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

/// Makes a collection if there is none; whether it was made.
fn make(
    server: &Server,
    name: &str,
    options: CollectionOptions,
    index: Option<DocBuf>,
) -> Result<bool> {
    let catalog = &server.catalog;
    if !matches!(catalog.resolve(name), Resolved::Nothing) {
        return Ok(false);
    }
    let (collection, _) = match catalog.create_collection(&Namespace::parse(name)?, options, None) {
        Err(error) if error.code() == ErrorCode::NamespaceExists => return Ok(false),
        other => other?,
    };
    if let Some(index) = index {
        let spec = spec::normalise(index.as_doc(), false)?;
        let (ids, _) = catalog.add_indexes(&collection, &[spec])?;
        // There is nothing to index yet.
        if let Resolved::Collection(collection) = catalog.resolve(name) {
            catalog.indexes_ready(&collection, &ids, &[])?;
        }
    }
    Ok(true)
}

fn add(server: &Server, name: &str, document: DocBuf) -> Result<()> {
    let mut op = OperationContext::detached(server.clock.clone());
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
