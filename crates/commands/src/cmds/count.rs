//! `count`.

use super::aggregate::{check_uuid, resolve_views};
use super::ddl;
use super::find::{hint, matcher_on, refuse_collation};
use crate::args::{Args, fields};
use crate::invocation::Invocation;
use crate::oplog;
use crate::registry::{Command, ReadLevels, Run};
use crate::reply::executor_error;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Type, Value, shell_value};
use kauri_catalog::OperationKind;
use kauri_matcher::Matcher;
use kauri_query::exec::{Flow, PlanExecutor};
use kauri_query::pipeline::views::Found;
use kauri_query::pipeline::{self, BuildCx, Input};
use kauri_query::plan::{self, Query};
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    has_default_limit: true,
    read_levels: ReadLevels::AllButSnapshot,
    api_v1: true,
    kind: OperationKind::Read,
    has_plan: true,
    ..Command::read("count", "counts documents", run)
};

/// The arguments of `count`.
pub struct CountRequest<'a> {
    /// Which documents.
    pub filter: Doc<'a>,
    /// Number of documents to skip.
    pub skip: u64,
    /// Maximum number; 0 for all.
    pub limit: u64,
    /// The hint.
    pub hint: Option<plan::Hint>,
    /// The UUID that the collection has to have.
    pub uuid: Option<[u8; 16]>,
}

impl<'a> CountRequest<'a> {
    /// Reads them from the command document.
    pub fn parse(body: Doc<'a>) -> Result<CountRequest<'a>> {
        let args = Args::new("count");
        let mut request =
            CountRequest { filter: Doc::EMPTY, skip: 0, limit: 0, hint: None, uuid: None };
        if body.get("limit").is_some_and(|elem| elem.ty() == Type::Null) {
            limit(&Value::Null)?;
        }
        for elem in fields(body) {
            match elem.key() {
                "query" => request.filter = args.object(elem)?,
                "limit" => request.limit = limit(&elem.value())?,
                "skip" => request.skip = args.count(elem)?,
                "hint" => request.hint = hint(elem)?,
                "collation" => refuse_collation(args.object(elem)?)?,
                "collectionUUID" => request.uuid = Some(ddl::uuid(&args, elem)?),
                _ => args.other(elem)?,
            }
        }
        Ok(request)
    }

    /// The query that counts, with its filter parsed.
    pub fn query(self, filter: Option<Arc<Matcher>>) -> Query {
        Query {
            filter,
            skip: self.skip,
            limit: self.limit,
            hint: self.hint,
            count: true,
            ..Query::default()
        }
    }
}

/// A negative one is as one that is not. Null is none, and no number.
fn limit(value: &Value<'_>) -> Result<u64> {
    if !value.is_number() {
        bail!(BadValue, "limit value is not a valid number");
    }
    match value.as_i64_exact() {
        None => bail!(FailedToParse, "Expected an integer: limit: {}", shell_value(value)),
        Some(i64::MIN) => bail!(BadValue, "limit value for count cannot be min int"),
        Some(limit) => Ok(limit.unsigned_abs()),
    }
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        kauri_bson::not_utf8::refuse_as_namespace(&invocation.target()?.value())?;
        if !matches!(invocation.target()?.value(), Value::String(_) | Value::Binary { .. }) {
            bail!(
                InvalidNamespace,
                "collection name has invalid type {}",
                invocation.target()?.ty().alias()
            );
        }
        let ns = invocation.namespace_or_uuid()?;
        let request = CountRequest::parse(invocation.body)?;
        let env = invocation.query_env();
        let found = resolve_views(invocation, &ns)?;
        let filter = matcher_on(found.is_view, request.filter, &env)?;
        check_uuid(invocation, &ns, &found, request.uuid.as_ref())?;
        let Found { collection, pipeline: view, is_view } = found;
        let catalog = &invocation.server.catalog;
        let is_whole = request.filter.is_empty() && request.skip == 0 && request.limit == 0;
        if let Some(count) = invocation.server.own_collections().count(&ns).filter(|_| is_whole) {
            invocation.reply.put_value("n", &number(count as i64));
            return Ok(());
        }
        let mut query = request.query(filter);
        let root = if let Some(rows) = oplog::rows(&view, &mut query) {
            plan::over_rows(rows, &query)
        } else if view.stages.is_empty() {
            plan::plan(&mut invocation.op, collection.as_ref(), &query, &env).await?.root
        } else {
            let cx = BuildCx::new(catalog.clone(), invocation.db, collection, env.clone());
            let rows = pipeline::build(&view, Input::Collection(None), &cx)?;
            plan::over_rows(rows, &query)
        };
        let mut executor = PlanExecutor::new(root, env);
        let mut n = 0;
        let counted = executor
            .for_each(&mut invocation.op, &mut |row| {
                n = row.doc().value("n").as_i64_exact().unwrap_or(0);
                Ok(Flow::Continue)
            })
            .await;
        invocation.figures.plan = Some(executor.totals());
        if is_view {
            counted.map_err(|error| executor_error("aggregate", &ns, error))?;
        } else {
            counted?;
        }
        invocation.reply.put_value("n", &number(n));
        Ok(())
    })
}

fn number(n: i64) -> Value<'static> {
    i32::try_from(n).map_or(Value::Int64(n), Value::Int32)
}
