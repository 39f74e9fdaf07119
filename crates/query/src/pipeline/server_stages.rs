//! Stages about the server: operations, sessions, settings, the catalog.

use super::source::Source;
use super::spec::Spec;
use super::{BuildCx, Constraints, ParseCx, server_info::CurrentOpOptions};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value};
use std::collections::BTreeMap;

fn object<'d>(elem: Elem<'d>, refuse: impl FnOnce() -> Error) -> Result<Doc<'d>> {
    elem.as_doc().filter(|_| elem.ty() == Type::Document).ok_or_else(refuse)
}

/// A `true` or `false` that may be left out; null is a wrong type.
fn flag(fields: &Spec<'_, '_>, name: &str) -> Result<bool> {
    Ok(fields.flag(name)?.unwrap_or(false))
}

/// `$currentOp`: the operations that run.
pub fn current_op(elem: Elem<'_>, cx: &ParseCx) -> Result<Source> {
    let doc = object(elem, || {
        Error::type_mismatch(format!(
            "$currentOp options must be specified in an object, but found: {}",
            elem.ty().alias()
        ))
    })?;
    if cx.db != "admin" || cx.collection.is_some() {
        bail!(
            InvalidNamespace,
            "$currentOp must be run against the 'admin' database with {{aggregate: 1}}"
        );
    }
    let known = [
        "allUsers",
        "idleConnections",
        "idleCursors",
        "idleSessions",
        "localOps",
        "targetAllNodes",
        "truncateOps",
    ];
    let fields = Spec::new("$currentOp", doc, &known)?;
    known.iter().try_for_each(|name| flag(&fields, name).map(drop))?;
    if flag(&fields, "targetAllNodes")? {
        bail!(
            FailedToParse,
            "$currentOp supports targetAllNodes parameter only for sharded clusters"
        );
    }
    let options = CurrentOpOptions {
        idle_connections: flag(&fields, "idleConnections")?,
        idle_cursors: flag(&fields, "idleCursors")?,
        truncate_ops: flag(&fields, "truncateOps")?,
    };
    let produce = Box::new(move |cx: &BuildCx| {
        Ok(cx.server.as_ref().map(|server| server.operations(options)).unwrap_or_default())
    });
    Ok(Source::of_server("$currentOp", elem.value(), produce))
}

/// What `$listLocalSessions` and `$listSessions` are asked for: the users whose sessions are shown,
/// none for all.
fn session_users(name: &str, elem: Elem<'_>) -> Result<Vec<(String, String)>> {
    let doc = object(elem, || {
        Error::type_mismatch(format!(
            "{name} options must be specified in an object, but found: {}",
            elem.ty().alias()
        ))
    })?;
    let fields = Spec::new(name, doc, &["users", "allUsers", "$_internalPredicate"])?;
    let all = fields.bool("allUsers")?.unwrap_or(false);
    let mut users = Vec::new();
    let path = format!("{name}.users");
    for item in fields.array("users")?.unwrap_or(Doc::EMPTY) {
        if item.ty() == Type::Null {
            continue;
        }
        let Some(user) = item.as_doc().filter(|_| item.ty() == Type::Document) else {
            return Err(fields.wrong_type(item, &["object"]));
        };
        let user = Spec::new(&path, user, &["user", "db"])?;
        let Some(name) = user.string("user")? else { return Err(user.missing("user")) };
        let Some(db) = user.string("db")? else { return Err(user.missing("db")) };
        users.push((name, db));
    }
    if all && !users.is_empty() {
        return Err(Error::new(
            ErrorCode::UnsupportedFormat,
            format!(
                "{name} may not specify {{allUsers:true}} and {{users:[...]}} at the same time"
            ),
        ));
    }
    Ok(users)
}

/// `$listLocalSessions`: the logical sessions of this server.
pub fn list_local_sessions(elem: Elem<'_>, cx: &ParseCx) -> Result<Source> {
    let users = session_users("$listLocalSessions", elem)?;
    cx.expect_no_collection(|| {
        "$listLocalSessions must be run against the database with {aggregate: 1}, not a collection"
            .to_owned()
    })?;
    let produce = Box::new(move |cx: &BuildCx| {
        // Sessions belong to nobody while there is no authentication.
        if users.iter().any(|(user, db)| !user.is_empty() || !db.is_empty()) {
            return Ok(Vec::new());
        }
        Ok(cx.server.as_ref().map(|server| server.sessions()).unwrap_or_default())
    });
    Ok(Source::of_server("$listLocalSessions", elem.value(), produce))
}

/// `$listSessions`: the sessions that were written to `config.system.sessions`.
pub fn list_sessions(elem: Elem<'_>, cx: &ParseCx) -> Result<Source> {
    if cx.db != "config" || cx.collection.as_deref() != Some("system.sessions") {
        bail!(InvalidNamespace, "$listSessions may only be run against config.system.sessions");
    }
    session_users("$listSessions", elem)?;
    Ok(Source::new("$listSessions", elem.value(), Box::new(|_| Ok(Vec::new()))))
}

/// `$querySettings`: settings of query shapes; there are none.
pub fn query_settings(elem: Elem<'_>) -> Result<Source> {
    let doc = object(elem, || {
        Error::location(
            7746800,
            format!(
                "$querySettings stage expects a document as argument, but got {}",
                elem.ty().alias()
            ),
        )
    })?;
    Spec::new("$querySettings", doc, &["showDebugQueryShape"])?.flag("showDebugQueryShape")?;
    Ok(Source::of_server("$querySettings", elem.value(), Box::new(|_| Ok(Vec::new()))))
}

/// `$queryStats`: statistics of query shapes, which are not gathered.
pub fn query_stats(elem: Elem<'_>, cx: &ParseCx) -> Result<Source> {
    let doc = object(elem, || {
        Error::failed_to_parse(format!(
            "$queryStats value must be an object. Found: {}",
            elem.ty().alias()
        ))
    })?;
    if cx.db != "admin" || cx.collection.is_some() {
        bail!(
            InvalidNamespace,
            "$queryStats must be run against the 'admin' database with {{aggregate: 1}}"
        );
    }
    Spec::new("$queryStats", doc, &["transformIdentifiers"])?.object("transformIdentifiers")?;
    Ok(Source::of_server("$queryStats", elem.value(), Box::new(|_| Ok(Vec::new()))))
}

/// `$listSampledQueries`, which only a sharded cluster's servers have.
pub fn list_sampled_queries() -> Result<Source> {
    bail!(IllegalOperation, "$listSampledQueries is not supported on a standalone mongod");
}

/// `$listClusterCatalog`: the collections and views of a database, or of all.
pub fn list_cluster_catalog(elem: Elem<'_>, cx: &ParseCx) -> Result<Source> {
    if cx.collection.is_some() {
        bail!(
            9621301,
            "The $listClusterCatalog stage must be run on a database with {{aggregate: 1}}"
        );
    }
    let doc = object(elem, || {
        Error::location(
            9621302,
            format!(
                "The $listClusterCatalog stage specification must be an object. Found {}",
                elem.ty().alias()
            ),
        )
    })?;
    let known = ["shards", "tracked", "balancingConfiguration"];
    let fields = Spec::new("$listClusterCatalog", doc, &known)?;
    known.iter().try_for_each(|name| flag(&fields, name).map(drop))?;
    let with_shards = flag(&fields, "shards")?;
    let db = (cx.db != "admin").then(|| cx.db.clone());
    let produce = Box::new(move |cx: &BuildCx| {
        let rows = catalog_rows(cx, db.as_deref());
        let all = |row: DocBuf| {
            DocBuf::build(|out| {
                out.put_all(row.as_doc());
                // On no shard: this server is none, and knows of none.
                out.array("shards");
            })
        };
        Ok(if with_shards { rows.into_iter().map(all).collect() } else { rows })
    });
    Ok(Source::of_server("$listClusterCatalog", elem.value(), produce))
}

fn catalog_rows(cx: &BuildCx, db: Option<&str>) -> Vec<DocBuf> {
    let databases: Vec<String> = match db {
        Some(db) => vec![db.to_owned()],
        None => cx.namespaces.databases(),
    };
    let mut rows = BTreeMap::new();
    for db in databases {
        for collection in cx.namespaces.collections_of(&db) {
            let row = DocBuf::build(|out| {
                out.put("ns", collection.ns.as_str());
                out.put("db", &db);
                out.put("type", "collection");
                {
                    let mut info = out.document("info");
                    info.put("readOnly", false);
                    let uuid = collection.uuid.as_slice().into();
                    info.put_value("uuid", &Value::Binary { subtype: 4, bytes: uuid });
                }
                out.put("options", collection.options.to_doc());
                if let Some(index) = collection.id_index() {
                    out.put("idIndex", &index.definition().spec);
                }
                out.put("sharded", false);
            });
            rows.insert(collection.ns.as_str().to_owned(), row);
        }
        for view in cx.namespaces.views_of(&db) {
            let row = DocBuf::build(|out| {
                out.put("ns", view.ns.as_str());
                out.put("db", &db);
                out.put("type", "view");
                out.document("info").put("readOnly", true);
                out.put("options", &view.options);
                out.put("sharded", false);
            });
            rows.insert(view.ns.as_str().to_owned(), row);
        }
    }
    rows.into_values().collect()
}

/// `$listCatalog`: the catalog's entries of a collection, or of all.
pub fn list_catalog(elem: Elem<'_>, cx: &ParseCx) -> Result<Source> {
    if elem.ty() != Type::Document || !elem.as_doc().is_some_and(Doc::is_empty) {
        bail!(6200600, "The $listCatalog stage specification must be an empty object");
    }
    let Some(collection) = cx.collection.clone() else {
        let produce = Box::new(|cx: &BuildCx| Ok(catalog_rows(cx, None)));
        return Ok(Source::of_server("$listCatalog", elem.value(), produce));
    };
    let (db, ns) = (cx.db.clone(), format!("{}.{collection}", cx.db));
    let produce = Box::new(move |cx: &BuildCx| {
        let is_this = |row: &DocBuf| row.as_doc().value("ns").as_str() == Some(&ns);
        Ok(catalog_rows(cx, Some(&db)).into_iter().filter(is_this).collect())
    });
    let source = Source::new("$listCatalog", elem.value(), produce);
    Ok(Source { constraints: Constraints { own_views: true, ..source.constraints }, ..source })
}
