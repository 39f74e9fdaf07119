//! `findAndModify`.

use super::ddl;
use super::find::{
    define_let, hint, natural_order, order_by_record, refuse_collation, sort, update_matcher,
};
use super::internal_fields::runtime_now;
use crate::args::{Args, fields};
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::reply::executor_error;
use crate::report::Figures;
use crate::set::retries::{self, Retries};
use kauri_base::{CollectionId, Result, bail};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_catalog::{Namespace, Resolved};
use kauri_mutate::{ParseCx, ProjectCx, Projection, Update};
use kauri_query::exec::{QueryEnv, Totals};
use kauri_query::plan::Query;
use kauri_query::write::Bypass;
use kauri_query::write::find_and_modify::{Modified, find_and_remove, find_and_update};
use kauri_query::write::numbered::Stored;
use kauri_query::write::targets::Targets;
use kauri_query::write::update::UpdateStatement;
use std::sync::atomic::Ordering;

/// See the module's head.
pub const COMMAND: Command = Command {
    aliases: &["findandmodify"],
    api_v1: true,
    in_transaction: true,
    numbered: true,
    adds_memory: true,
    has_plan: true,
    ..Command::write("findAndModify", "changes or removes one document and returns it", run)
};

struct Request {
    query: Query,
    update: Option<Update>,
    projection: Option<Projection>,
    remove: bool,
    upsert: bool,
    want_new: bool,
    bypass: Bypass,
    env: QueryEnv,
    /// The UUID that the collection has to have.
    uuid: Option<[u8; 16]>,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let request = parse(invocation)?;
        let mut outcome = invocation.write_outcome();
        let only = meant(invocation, &ns, &request)?;
        let targets = Targets {
            catalog: &invocation.server.catalog,
            ns: &ns,
            query: &request.query,
            env: &request.env,
            multi: false,
            only,
        };
        let mut retries = Retries::begin(invocation, 1)?;
        if let Some(stored) = retries.executed(invocation, 0).await? {
            return answer_again(invocation, &ns, &request, &retries, stored).await;
        }
        outcome.numbered = retries.numbered(invocation, 0, 1)?;
        let done = match &request.update {
            None => find_and_remove(&mut invocation.op, &targets, &mut outcome).await,
            Some(update) => {
                let statement = UpdateStatement {
                    targets,
                    update,
                    upsert: request.upsert,
                    bypass: request.bypass,
                };
                find_and_update(&mut invocation.op, &statement, request.want_new, &mut outcome)
                    .await
            }
        };
        if !done.as_ref().is_ok_and(Modified::has_changed)
            && let Some(stored) = retries.executed(invocation, 0).await?
        {
            return answer_again(invocation, &ns, &request, &retries, stored).await;
        }
        let plan = std::mem::take(&mut outcome.totals);
        invocation.figures = figures(plan, done.as_ref().ok(), request.remove);
        let done = done.map_err(|error| match outcome.is_running {
            true => executor_error("findAndModify", &ns, error),
            false => error,
        })?;
        let counters = &invocation.server.counters;
        if request.remove {
            counters.docs_deleted.fetch_add(u64::from(done.existing), Ordering::Relaxed);
        } else {
            counters.docs_updated.fetch_add(u64::from(done.existing), Ordering::Relaxed);
        }
        invocation.wait_for_commit(outcome.ticket).await?;
        write_reply(invocation, &request, done)
            .map_err(|error| executor_error("findAndModify", &ns, error))
    })
}

/// Answers what an earlier attempt has come to.
async fn answer_again(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    request: &Request,
    retries: &Retries,
    stored: Stored,
) -> Result<()> {
    if stored.upserted.is_none() && stored.shown.is_none() {
        return Err(retries::lost());
    }
    let server = invocation.server;
    invocation.wait_for_commit(retries.ticket(server, None)).await?;
    let Stored { upserted, shown } = stored;
    let done = Modified { existing: upserted.is_none(), value: shown, upserted, modified: 0 };
    write_reply(invocation, request, done)
        .map_err(|error| executor_error("findAndModify", ns, error))?;
    retries.write_one(server, &mut invocation.reply);
    Ok(())
}

/// The collection that has the UUID which the request names; fails if the name is another one's.
fn meant(
    invocation: &Invocation<'_>,
    ns: &Namespace,
    request: &Request,
) -> Result<Option<CollectionId>> {
    let Some(uuid) = &request.uuid else { return Ok(None) };
    let catalog = &invocation.server.catalog;
    let resolved = catalog.resolve(ns.as_str());
    ddl::check_uuid(catalog, ns, &resolved, Some(uuid))?;
    match resolved {
        Resolved::Collection(collection) => Ok(Some(collection.id)),
        _ => Ok(None),
    }
}

fn figures(plan: Totals, done: Option<&Modified>, remove: bool) -> Figures {
    let existing = done.map(|done| u64::from(done.existing));
    if remove {
        return Figures::of_delete(plan, existing);
    }
    Figures {
        plan: Some(plan),
        matched: existing,
        modified: done.map(|done| done.modified),
        upserted: done.map(|done| u64::from(done.upserted.is_some())),
        ..Figures::default()
    }
}

fn write_reply(invocation: &mut Invocation<'_>, request: &Request, done: Modified) -> Result<()> {
    let value = match (done.value, &request.projection) {
        (Some(doc), Some(projection)) => Some(project(projection, doc.as_doc(), request)?),
        (value, _) => value,
    };
    let out = &mut invocation.reply;
    {
        let mut last = out.document("lastErrorObject");
        last.put("n", i32::from(done.existing || done.upserted.is_some()));
        if !request.remove {
            last.put("updatedExisting", done.existing);
            if let Some(id) = &done.upserted {
                last.put_value("upserted", id);
            }
        }
    }
    match value {
        Some(doc) => out.put("value", doc),
        None => out.put("value", Value::Null),
    }
    Ok(())
}

fn project(projection: &Projection, doc: Doc<'_>, request: &Request) -> Result<DocBuf> {
    let mut cx = ProjectCx::new(request.env.eval_cx());
    if let Some(filter) = &request.query.filter {
        cx = cx.with_filter(filter.expr());
    }
    let mut bytes = Vec::with_capacity(doc.as_bytes().len());
    projection.apply(doc, &cx, &mut bytes)?;
    DocBuf::from_vec(bytes)
}

/// The command's fields as they are given.
struct Fields<'d> {
    filter: Doc<'d>,
    projection: Doc<'d>,
    order: Doc<'d>,
    update: Option<Value<'d>>,
    array_filters: Vec<Doc<'d>>,
    remove: bool,
    upsert: bool,
    want_new: bool,
    bypass: Bypass,
    uuid: Option<[u8; 16]>,
}

fn parse(invocation: &Invocation<'_>) -> Result<Request> {
    let mut env = invocation.query_env();
    let mut query = Query::default();
    let fields = read_fields(invocation.body, &mut query, &mut env)?;
    refuse_contradictions(&fields)?;
    query.sort = sort(fields.order)?;
    if let Some(direction) = natural_order(fields.order)? {
        order_by_record(&mut query, direction)?;
    }
    query.filter = update_matcher(fields.filter, fields.upsert, &env)?;
    let expressions = kauri_expr::ParseCx { vars: env.scope.clone(), ..Default::default() };
    let cx = ParseCx::new().with_expressions(&expressions);
    let update = match &fields.update {
        Some(spec) => Some(Update::parse(spec, &fields.array_filters, &cx)?),
        None => None,
    };
    let projection = match fields.projection.is_empty() {
        true => None,
        false => {
            let filter = query.filter.as_ref().map(|f| f.expr());
            Some(Projection::parse(fields.projection, filter, &cx)?)
        }
    };
    Ok(Request {
        query,
        update,
        projection,
        remove: fields.remove,
        upsert: fields.upsert,
        want_new: fields.want_new,
        bypass: fields.bypass,
        env,
        uuid: fields.uuid,
    })
}

/// Reads the fields; the hint and the variables go where they are wanted.
fn read_fields<'d>(body: Doc<'d>, query: &mut Query, env: &mut QueryEnv) -> Result<Fields<'d>> {
    let args = Args::new("findAndModify");
    let mut given = Fields {
        filter: Doc::EMPTY,
        projection: Doc::EMPTY,
        order: Doc::EMPTY,
        update: None,
        array_filters: Vec::new(),
        remove: false,
        upsert: false,
        want_new: false,
        bypass: Bypass::default(),
        uuid: None,
    };
    for elem in fields(body) {
        match elem.key() {
            "query" => given.filter = args.object(elem)?,
            "fields" => given.projection = args.object(elem)?,
            "sort" => given.order = args.object(elem)?,
            "update" => given.update = Some(elem.value()),
            "remove" => given.remove = args.safe_bool(elem)?,
            "upsert" => given.upsert = args.safe_bool(elem)?,
            "new" => given.want_new = args.safe_bool(elem)?,
            "hint" => query.hint = hint(elem)?,
            "arrayFilters" => {
                for entry in args.array(elem)? {
                    let filter = Args::new("findAndModify.arrayFilters").object(entry)?;
                    given.array_filters.push(filter);
                }
            }
            "bypassDocumentValidation" => given.bypass.validation = args.safe_bool(elem)?,
            "bypassEmptyTsReplacement" => given.bypass.empty_timestamps = args.bool(elem)?,
            "let" => define_let(args.object(elem)?, env)?,
            "collation" => refuse_collation(args.object(elem)?)?,
            "runtimeConstants" | "legacyRuntimeConstants" => {
                env.now_ms = runtime_now(&args, elem)?;
            }
            "collectionUUID" => given.uuid = Some(ddl::uuid(&args, elem)?),
            _ => args.other(elem)?,
        }
    }
    Ok(given)
}

fn refuse_contradictions(fields: &Fields<'_>) -> Result<()> {
    match (&fields.update, fields.remove) {
        (None, false) => {
            bail!(FailedToParse, "Either an update or remove=true must be specified");
        }
        (Some(_), true) => {
            bail!(FailedToParse, "Cannot specify both an update and remove=true");
        }
        _ => {}
    }
    if fields.remove && fields.upsert {
        bail!(FailedToParse, "Cannot specify both upsert=true and remove=true");
    }
    if fields.remove && fields.want_new {
        bail!(
            FailedToParse,
            "Cannot specify both new=true and remove=true; 'remove' always returns the deleted \
             document"
        );
    }
    if fields.remove && !fields.array_filters.is_empty() {
        bail!(FailedToParse, "Cannot specify arrayFilters and remove=true");
    }
    Ok(())
}
