//! `listCollections`.

use super::list_rows;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::oplog;
use crate::registry::{Command, Run};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_catalog::{Collection, Namespace, View};

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    ..Command::read("listCollections", "lists the collections and views of a database", run)
};

struct Request<'a> {
    filter: Doc<'a>,
    name_only: bool,
    batch_size: Option<u64>,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let request = parse(invocation)?;
        let env = invocation.query_env();
        let filter = list_rows::filter(request.filter, &env)?;
        let catalog = &invocation.server.catalog;
        let views = catalog.views_of(invocation.db);
        let mut rows = Vec::new();
        for collection in catalog.collections_of(invocation.db) {
            rows.push(describe(&collection, request.name_only));
        }
        for view in &views {
            rows.push(describe_view(view, request.name_only));
        }
        if invocation.db == oplog::DATABASE {
            rows.extend(invocation.server.own_collections().list(request.name_only));
        }
        if !views.is_empty() {
            rows.push(describe_system_views(invocation.db, request.name_only));
        }
        if let Some(filter) = filter {
            let cx = kauri_matcher::MatchCx::with_eval(env.eval_cx());
            let mut kept = Vec::new();
            for row in rows {
                if filter.matches(row.as_doc(), &cx)? {
                    kept.push(row);
                }
            }
            rows = kept;
        }
        let ns = Namespace::new(invocation.db, "$cmd.listCollections")?;
        list_rows::reply(invocation, ns, rows, request.batch_size).await
    })
}

fn parse<'a>(invocation: &Invocation<'a>) -> Result<Request<'a>> {
    let args = Args::new("listCollections");
    let mut request = Request { filter: Doc::EMPTY, name_only: false, batch_size: None };
    for elem in invocation.body.iter().skip(1) {
        match elem.key() {
            "filter" => {
                request.filter = args.given(elem, Args::object)?.unwrap_or(Doc::EMPTY);
            }
            "nameOnly" => {
                request.name_only = args.given(elem, Args::bool)?.unwrap_or(false);
            }
            "cursor" => request.batch_size = list_rows::batch_size("listCollections", elem)?,
            _ => args.other(elem)?,
        }
    }
    if invocation.db.is_empty() {
        bail!(InvalidNamespace, "no database");
    }
    Ok(request)
}

/// A collection as `listCollections` shows it.
fn describe(collection: &Collection, name_only: bool) -> DocBuf {
    DocBuf::build(|out| {
        out.put("name", collection.ns.collection());
        out.put("type", "collection");
        if name_only {
            return;
        }
        out.put("options", collection.options.to_doc());
        {
            let mut info = out.document("info");
            info.put("readOnly", false);
            info.put("uuid", uuid_value(&collection.uuid));
        }
        if let Some(index) = collection.id_index() {
            out.put("idIndex", &index.definition().spec);
        }
    })
}

fn describe_view(view: &View, name_only: bool) -> DocBuf {
    DocBuf::build(|out| {
        out.put("name", view.ns.collection());
        out.put("type", "view");
        if name_only {
            return;
        }
        out.put("options", &view.options);
        out.document("info").put("readOnly", true);
    })
}

/// Views are kept in the catalog, not in a collection; clients expect to see one all the same.
fn describe_system_views(database: &str, name_only: bool) -> DocBuf {
    DocBuf::build(|out| {
        out.put("name", "system.views");
        out.put("type", "collection");
        if name_only {
            return;
        }
        out.put("options", Doc::EMPTY);
        {
            let mut info = out.document("info");
            info.put("readOnly", false);
            info.put("uuid", uuid_value(&kauri_catalog::system_views_uuid(database)));
        }
        out.put("idIndex", kauri_catalog::IndexDefinition::id_index_spec());
    })
}

fn uuid_value(uuid: &[u8; 16]) -> Value<'_> {
    Value::Binary { subtype: 4, bytes: uuid.as_slice().into() }
}
