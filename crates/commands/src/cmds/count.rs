//! `count`.

use super::aggregate::resolve_views;
use super::find::{hint, matcher, refuse_collation};
use crate::args::{Args, fields};
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, Type, Value, shell_value};
use kauri_matcher::Matcher;
use kauri_query::exec::{Flow, PlanExecutor};
use kauri_query::pipeline::views::Found;
use kauri_query::pipeline::{self, BuildCx, Input};
use kauri_query::plan::{self, Query};
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    access: Access::Read,
    read_concern: true,
    api_v1: true,
    ..Command::new("count", "counts documents", run)
};

/// The arguments of `count`.
pub struct CountRequest<'a> {
    /// Which documents.
    pub filter: Doc<'a>,
    /// How many to leave out.
    pub skip: u64,
    /// How many at most; 0 for all.
    pub limit: u64,
    /// What to use.
    pub hint: Option<plan::Hint>,
}

impl<'a> CountRequest<'a> {
    /// Reads them from the command document.
    pub fn parse(body: Doc<'a>) -> Result<CountRequest<'a>> {
        let args = Args::new("count");
        let mut request = CountRequest { filter: Doc::EMPTY, skip: 0, limit: 0, hint: None };
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
                "fields" | "queryOptions" | "collectionUUID" | "mirrored" => {}
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
        let filter = matcher(request.filter, &env)?;
        let Found { collection, pipeline: view, .. } = resolve_views(invocation, &ns)?;
        let catalog = &invocation.server.catalog;
        let query = request.query(filter);
        let root = if view.stages.is_empty() {
            plan::plan(&mut invocation.op, catalog, collection.as_ref(), &query, &env).await?.root
        } else {
            let cx = BuildCx::new(catalog.clone(), invocation.db, collection, env.clone());
            let rows = pipeline::build(&view, Input::Collection(None), &cx)?;
            plan::over_rows(rows, &query)
        };
        let mut executor = PlanExecutor::new(root, catalog.engine().recovery_unit(), env);
        let mut n = 0;
        executor
            .for_each(&mut invocation.op, &mut |row| {
                n = row.doc().value("n").as_i64_exact().unwrap_or(0);
                Ok(Flow::Continue)
            })
            .await?;
        let n = match i32::try_from(n) {
            Ok(n) => Value::Int32(n),
            Err(_) => Value::Int64(n),
        };
        invocation.reply.put_value("n", &n);
        Ok(())
    })
}
