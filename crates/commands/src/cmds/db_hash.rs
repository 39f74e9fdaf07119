//! `dbHash`: an MD5 sum of each collection of a database, and one of all collections, to compare databases.
//!
//! The sum of a collection is that of its documents' BSON in `_id` order. The sum of all is that of the
//! collections' sums, as text, in the order of their names. The documents are read in one snapshot; if a definition
//! changes during the read, all are read again. Data that belongs to this server alone is excluded: the database
//! `local`, `system.profile`.

use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::log::{self, Attr};
use kauri_base::{ErrorCode, Result, bail, work};
use kauri_bson::{Value, doc, not_utf8};
use kauri_catalog::dropped::REPLANS_MAX;
use kauri_catalog::{Collection, system_views_uuid};
use kauri_query::exec::{Flow, PlanExecutor};
use kauri_query::pipeline::views;
use kauri_query::plan::{self, Hint, Query};
use md5::{Digest, Md5};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    has_default_limit: true,
    aliases: &["dbhash"],
    reads_anywhere: true,
    ..Command::read("dbHash", "returns hashes of collections", run)
};

/// Bytes hashed between two checks of the time.
const STEP_BYTES: usize = 64 * 1024;

#[derive(Default)]
struct Request {
    /// Empty for all.
    collections: BTreeSet<String>,
    skips_temporary: bool,
}

struct Hashed {
    uuid: [u8; 16],
    sum: String,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let started = invocation.server.clock.monotonic();
        let request = parse(invocation)?;
        if request.skips_temporary {
            let message = "Skipping hash computation for temporary collections";
            log::info("COMMAND", 6_859_700, "-", message, Attr::new());
        }
        let (collections, hashed) = hash_all(invocation, &request).await?;
        let capped = collections.iter().filter(|c| c.options.capped.is_some());
        let capped: BTreeSet<&str> = capped.map(|c| c.ns.collection()).collect();
        let took = invocation.server.clock.monotonic().saturating_sub(started);
        let mut all = Md5::new();
        let out = &mut invocation.reply;
        out.put("host", &invocation.server.start.host);
        {
            let mut sums = out.document("collections");
            for (name, entry) in &hashed {
                sums.put(name, &entry.sum);
                all.update(&entry.sum);
            }
        }
        out.put_value("capped", &Value::array(capped.into_iter().map(Value::from)));
        {
            let mut uuids = out.document("uuids");
            for (name, entry) in &hashed {
                let bytes = entry.uuid.as_slice().into();
                uuids.put_value(name, &Value::Binary { subtype: 4, bytes });
            }
        }
        out.put("md5", text(all));
        out.put("timeMillis", took.as_millis() as i64);
        Ok(())
    })
}

type Sums = (Vec<Arc<Collection>>, BTreeMap<String, Hashed>);

/// The collections and all sums by name.
async fn hash_all(invocation: &mut Invocation<'_>, request: &Request) -> Result<Sums> {
    let mut replans = 0;
    loop {
        let found = hash_snapshot(invocation, request).await;
        invocation.op.scope().reader().release_snapshot();
        match found {
            Err(error)
                if error.code() == ErrorCode::SnapshotUnavailable && replans < REPLANS_MAX =>
            {
                replans += 1;
                invocation.op.yield_now().await?;
            }
            found => return found,
        }
    }
}

/// The same of one snapshot; `SnapshotUnavailable` if a definition has changed since that was taken.
async fn hash_snapshot(invocation: &mut Invocation<'_>, request: &Request) -> Result<Sums> {
    let collections = snapshot(invocation, request)?;
    let mut hashed = BTreeMap::new();
    if let Some(sum) = hash_views(invocation, request)? {
        let uuid = system_views_uuid(invocation.db);
        hashed.insert("system.views".to_owned(), Hashed { uuid, sum });
    }
    for collection in &collections {
        let sum = hash(invocation, collection).await?;
        let entry = Hashed { uuid: collection.uuid, sum };
        hashed.insert(collection.ns.collection().to_owned(), entry);
    }
    Ok((collections, hashed))
}

fn parse(invocation: &Invocation<'_>) -> Result<Request> {
    let mut request = Request::default();
    // What is no field of this command and names that are no array are passed over, as MongoDB does.
    for elem in invocation.body.iter().skip(1) {
        match (elem.key(), elem.value()) {
            ("collections", Value::Array(names)) => {
                for name in names.as_doc().iter() {
                    not_utf8::refuse(&name.value(), "a collection's name")?;
                    let Value::String(name) = name.value() else {
                        bail!(BadValue, "collections entries have to be strings");
                    };
                    request.collections.insert(name.into_owned());
                }
            }
            ("skipTempCollections", value) => request.skips_temporary = value.truthy(),
            _ => {}
        }
    }
    Ok(request)
}

fn is_wanted(request: &Request, database: &str, name: &str) -> bool {
    // These are not replicated, and differ between copies of a database.
    let is_own = database == "local" || name == "system.profile" || name.starts_with("tmp.mr.");
    !is_own && (request.collections.is_empty() || request.collections.contains(name))
}

/// Has the operation hold a snapshot. Answers the collections, which are all there is in it.
fn snapshot(invocation: &mut Invocation<'_>, request: &Request) -> Result<Vec<Arc<Collection>>> {
    let (catalog, db) = (&invocation.server.catalog, invocation.db);
    let list = || {
        let mut all = catalog.collections_of(db);
        all.retain(|collection| {
            let is_skipped = request.skips_temporary && collection.options.temp;
            !is_skipped && is_wanted(request, db, collection.ns.collection())
        });
        all.sort_by_key(|collection| collection.id);
        all
    };
    let ids = |all: &[Arc<Collection>]| all.iter().map(|c| c.id).collect::<Vec<_>>();
    let reader = invocation.op.scope().reader();
    let mut before = list();
    loop {
        reader.hold_snapshot()?;
        let now = list();
        if ids(&now) == ids(&before) {
            return Ok(now);
        }
        // A collection was made or dropped between the list and the snapshot.
        reader.release_snapshot();
        before = now;
    }
}

/// The sum of a collection, read through the operation's snapshot.
async fn hash(invocation: &mut Invocation<'_>, collection: &Arc<Collection>) -> Result<String> {
    let mut query = Query::default();
    if collection.id_index().is_some() {
        query.hint = Some(Hint::Pattern(doc! { "_id" => 1 }));
    } else if collection.options.capped.is_none() {
        let attr = Attr::new().str("namespace", collection.ns.as_str());
        log::info("COMMAND", 20455, "-", "Can't find _id index for namespace", attr);
        return Ok("no _id _index".to_owned());
    }
    let env = invocation.query_env();
    let planned = plan::plan(&mut invocation.op, Some(collection), &query, &env).await?;
    let mut executor = PlanExecutor::new(planned.root, env);
    let mut sum = Md5::new();
    executor
        .for_each(&mut invocation.op, &mut |row| {
            update(&mut sum, row.doc().as_bytes())?;
            Ok(Flow::Continue)
        })
        .await?;
    Ok(text(sum))
}

/// The sum of `system.views`, which the catalog keeps; none where there are no views.
fn hash_views(invocation: &Invocation<'_>, request: &Request) -> Result<Option<String>> {
    if !is_wanted(request, invocation.db, "system.views") {
        return Ok(None);
    }
    let mut views = views::definitions(&invocation.server.catalog, invocation.db);
    views.sort_by(|a, b| a.as_doc().value("_id").as_str().cmp(&b.as_doc().value("_id").as_str()));
    let mut sum = Md5::new();
    for view in &views {
        update(&mut sum, view.as_doc().as_bytes())?;
    }
    Ok((!views.is_empty()).then(|| text(sum)))
}

fn update(sum: &mut Md5, bytes: &[u8]) -> Result<()> {
    for step in bytes.chunks(STEP_BYTES) {
        work::tick_bytes(step.len())?;
        sum.update(step);
    }
    Ok(())
}

fn text(sum: Md5) -> String {
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
