//! `aggregate`.

use super::find::{define_let, hint, refuse_collation};
use crate::args::Args;
use crate::cursors::Tailing;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use crate::reply::{NewCursor, open_cursor};
use kauri_base::{Error, ErrorCode, OperationContext, Result, bail, limits};
use kauri_bson::{Doc, Value};
use kauri_catalog::{Collection, Namespace};
use kauri_query::exec::{PlanExecutor, QueryEnv, Verbosity};
use kauri_query::pipeline::{self, BuildCx, ParseCx, Pipeline, Place};
use kauri_query::plan::Hint;
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Read,
    read_concern: true,
    api_v1: true,
    ..Command::new("aggregate", "runs an aggregation pipeline", run)
};

/// The arguments of `aggregate`.
pub struct AggregateRequest<'a> {
    /// The namespace, `db.$cmd.aggregate` where there's no collection.
    pub ns: Namespace,
    /// Whether the command names no collection (`aggregate: 1`).
    pub collectionless: bool,
    /// The stages.
    pub stages: Doc<'a>,
    /// Documents in the first batch.
    pub batch_size: Option<u64>,
    /// What the planner is to use.
    pub hint: Option<Hint>,
    /// `explain: true`.
    pub explain: bool,
    /// `bypassDocumentValidation`.
    pub bypass_validation: bool,
    /// Whether there was a `cursor` argument.
    pub has_cursor: bool,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let mut env = invocation.query_env();
        let request = AggregateRequest::parse(invocation, &mut env)?;
        if !request.has_cursor && !request.explain {
            bail!(
                FailedToParse,
                "The 'cursor' option is required, except for aggregate with the explain argument"
            );
        }
        if request.explain {
            let body = invocation.body;
            return super::explain::explain(invocation, body, Verbosity::QueryPlanner).await;
        }
        let (pipeline, cx) = prepare(invocation, &request, env)?;
        let written = cx.written.clone();
        let executor = executor(&mut invocation.op, &request, &pipeline, &cx).await?;
        let new = NewCursor {
            ns: request.ns.clone(),
            collection: cx.collection.clone(),
            tailing: Tailing::No,
            no_timeout: false,
            first_batch: request.batch_size.unwrap_or(limits::FIRST_BATCH_DOCS as u64),
            single_batch: false,
        };
        open_cursor(invocation, executor, new).await?;
        let ticket = written.lock().unwrap_or_else(|e| e.into_inner()).take();
        invocation.wait_for_commit(ticket).await
    })
}

/// The executor of a prepared pipeline.
pub async fn executor(
    op: &mut OperationContext,
    request: &AggregateRequest<'_>,
    pipeline: &Pipeline,
    cx: &BuildCx,
) -> Result<PlanExecutor> {
    let root = pipeline::build_by_trial(op, pipeline, request.hint.clone(), cx).await?;
    Ok(PlanExecutor::new(root, cx.catalog.engine().recovery_unit(), cx.env.clone()))
}

/// Parses the pipeline and resolves what it reads.
pub fn prepare(
    invocation: &Invocation<'_>,
    request: &AggregateRequest<'_>,
    env: QueryEnv,
) -> Result<(Pipeline, BuildCx)> {
    let catalog = &invocation.server.catalog;
    let mut parse_cx = ParseCx::new(&request.ns, env.scope.clone(), Place::Command);
    if request.collectionless {
        parse_cx.collection = None;
    }
    let mut pipeline = pipeline::parse::parse(request.stages, &parse_cx)?;
    let first = pipeline.stages.first().map(|s| (s.name(), s.constraints()));
    if request.collectionless && !first.is_some_and(|(_, c)| c.collectionless) {
        return Err(Error::new(
            ErrorCode::InvalidNamespace,
            "{aggregate: 1} is not valid for an empty pipeline or a pipeline that reads a collection",
        ));
    }
    let mut collection: Option<Arc<Collection>> = None;
    if !request.collectionless {
        let resolved = resolve_views(invocation, &request.ns)?;
        collection = resolved.0;
        if !resolved.1.stages.is_empty() {
            let mut stages = resolved.1.stages;
            stages.append(&mut pipeline.stages);
            pipeline.stages = stages;
        }
        pipeline.optimize();
    }
    let mut cx = BuildCx::new(catalog.clone(), invocation.db, collection, env);
    cx.bypass_validation = request.bypass_validation;
    Ok((pipeline, cx))
}

/// The collection behind a name, and the stages of the views in between.
pub fn resolve_views(
    invocation: &Invocation<'_>,
    ns: &Namespace,
) -> Result<(Option<Arc<Collection>>, Pipeline)> {
    pipeline::views::resolve(&invocation.server.catalog, ns)
}

impl<'a> AggregateRequest<'a> {
    /// Reads the arguments; `env` gets the variables of `let`.
    pub fn parse(invocation: &Invocation<'a>, env: &mut QueryEnv) -> Result<AggregateRequest<'a>> {
        Self::parse_command(invocation.body, invocation.db, env)
    }

    /// As `parse`, of a command that is an argument of another.
    pub fn parse_command(
        body: Doc<'a>,
        db: &str,
        env: &mut QueryEnv,
    ) -> Result<AggregateRequest<'a>> {
        let args = Args::new("aggregate");
        let target = body.value("aggregate");
        let collectionless = target.is_number();
        let ns = if collectionless {
            if target.as_i64_exact() != Some(1) {
                bail!(
                    FailedToParse,
                    "Invalid command format: the 'aggregate' field must specify a collection name or 1"
                );
            }
            Namespace::new(db, "$cmd.aggregate")?
        } else {
            match target {
                Value::String(name) => Namespace::new(db, &name)?,
                other => bail!(
                    InvalidNamespace,
                    "collection name has invalid type {}",
                    other.type_name()
                ),
            }
        };
        let mut request = AggregateRequest {
            ns,
            collectionless,
            stages: Doc::EMPTY,
            batch_size: None,
            hint: None,
            explain: false,
            bypass_validation: false,
            has_cursor: false,
        };
        let mut given = false;
        for elem in body.iter().skip(1) {
            match elem.key() {
                "pipeline" => {
                    if elem.ty() != kauri_bson::Type::Array {
                        bail!(TypeMismatch, "'pipeline' option must be specified as an array");
                    }
                    request.stages = elem.as_doc().unwrap_or(Doc::EMPTY);
                    given = true;
                }
                "cursor" => {
                    let Value::Document(options) = elem.value() else {
                        bail!(TypeMismatch, "cursor field must be missing or an object");
                    };
                    request.has_cursor = true;
                    for option in options.iter() {
                        match option.key() {
                            "batchSize" => {
                                request.batch_size =
                                    Some(Args::new("aggregate.cursor").count(option)?);
                            }
                            other => return Err(Args::new("cursor").unknown(other)),
                        }
                    }
                }
                "explain" => request.explain = args.safe_bool(elem)?,
                "hint" => request.hint = hint(args, elem)?,
                "let" => define_let(args.object(elem)?, env)?,
                "collation" => refuse_collation(args.object(elem)?)?,
                "allowDiskUse" => drop(args.bool(elem)?),
                "bypassDocumentValidation" => request.bypass_validation = args.safe_bool(elem)?,
                "fromMongos"
                | "needsMerge"
                | "runtimeConstants"
                | "legacyRuntimeConstants"
                | "isMapReduceCommand"
                | "collectionUUID"
                | "exchange"
                | "querySettings" => {}
                _ => args.other(elem)?,
            }
        }
        if !given {
            return Err(args.missing("pipeline"));
        }
        Ok(request)
    }
}
