//! `aggregate`.

use super::aggregate_server::ServerFacts;
use super::ddl;
use super::find::{hint, refuse_collation};
use super::internal_fields::{query_settings, refuse_of_shards, runtime_now};
use crate::args::Args;
use crate::cursors::Tailing;
use crate::invocation::Invocation;
use crate::oplog;
use crate::registry::{Asked, Command, ReadLevels, Run, Target};
use crate::reply::{NewCursor, executor_error, open_cursor};
use kauri_base::{Result, bail, limits};
use kauri_bson::{Doc, Elem, Type, Value};
use kauri_catalog::{Collection, Namespace, OperationKind, Resolved};
use kauri_expr::Expression;
use kauri_query::exec::{PlanExecutor, QueryEnv, Verbosity};
use kauri_query::pipeline::views::Found;
use kauri_query::pipeline::{self, BuildCx, ParseCx, Pipeline, Place, StageSpec};
use kauri_query::plan::Hint;
use kauri_query::write::Bypass;
use kauri_storage::Operation;
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    has_default_limit: true,
    read_levels: ReadLevels::AllByRequest,
    api_v1: true,
    target: Target::CollectionOr(".aggregate"),
    writes,
    write_concern: true,
    in_transaction: true,
    kind: OperationKind::Read,
    has_plan: true,
    ..Command::read("aggregate", "runs an aggregation pipeline", run)
};

/// Whether a pipeline may write its rows. A false positive only waits longer.
fn writes(asked: Asked<'_>) -> bool {
    let is_sink = |stages: Doc<'_>| {
        let last = stages.iter().last().and_then(|stage| stage.as_doc()?.first());
        last.is_some_and(|stage| matches!(stage.key(), "$out" | "$merge"))
    };
    pipelines(asked).any(is_sink)
}

/// All fields of this name: the last one counts.
pub(crate) fn pipelines(asked: Asked<'_>) -> impl Iterator<Item = Doc<'_>> {
    let fields = asked.body.iter().filter(|field| field.key() == "pipeline");
    fields.filter_map(|field| field.as_doc())
}

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
    /// The planner's hint.
    pub hint: Option<Hint>,
    /// `explain: true`.
    pub explain: bool,
    /// The checks that writing stages skip.
    pub bypass: Bypass,
    /// Whether there was a `cursor` argument.
    pub has_cursor: bool,
    /// The level of the read concern, if one was given.
    pub read_concern: Option<String>,
    /// Whether only what API version 1 has may be used.
    pub api_strict: bool,
    /// The UUID that the collection has to have.
    pub uuid: Option<[u8; 16]>,
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
        let (mut pipeline, cx) = prepare(invocation, &request, env)?;
        if pipeline.writes()
            && let Some(last) = pipeline.stages.pop()
        {
            return write(invocation, &request, &pipeline, &*last, &cx).await;
        }
        let executor = executor(&mut invocation.op, &request, &pipeline, &cx).await?;
        let new = NewCursor {
            ns: request.ns.clone(),
            collection: cx.collection.clone(),
            tailing: Tailing::No,
            log: None,
            no_timeout: false,
            first_batch: request.batch_size.unwrap_or(limits::FIRST_BATCH_DOCS as u64),
            single_batch: false,
        };
        open_cursor(invocation, executor, new).await
    })
}

/// Runs a pipeline whose last stage writes its rows; the client gets none.
async fn write(
    invocation: &mut Invocation<'_>,
    request: &AggregateRequest<'_>,
    pipeline: &Pipeline,
    last: &dyn StageSpec,
    cx: &BuildCx,
) -> Result<()> {
    let mut executor = executor(&mut invocation.op, request, pipeline, cx).await?;
    if let Some(sink) = last.sink() {
        let written = sink.run(&mut invocation.op, &mut executor, cx).await;
        invocation.figures.plan = Some(executor.totals());
        invocation.has_effect = cx.has_written();
        written.map_err(|error| executor_error("aggregate", &request.ns, error))?;
    }
    {
        let mut cursor = invocation.reply.document("cursor");
        cursor.array("firstBatch");
        cursor.put("id", 0i64);
        cursor.put("ns", request.ns.as_str());
    }
    invocation.figures.returned = Some(0);
    invocation.figures.cursor_exhausted = true;
    let ticket = cx.take_written();
    invocation.wait_for_commit(ticket).await
}

/// The executor of a prepared pipeline.
pub async fn executor(
    op: &mut Operation,
    request: &AggregateRequest<'_>,
    pipeline: &Pipeline,
    cx: &BuildCx,
) -> Result<PlanExecutor> {
    let root = pipeline::build_by_trial(op, pipeline, request.hint.clone(), cx).await?;
    Ok(PlanExecutor::new(root, cx.env.clone()))
}

/// Parses the pipeline and resolves its namespaces.
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
    if request.api_strict {
        check_api(request.stages)?;
    }
    let mut pipeline = pipeline::parse::parse(request.stages, &parse_cx)?;
    request.check_stages(&pipeline, invocation.server.member.is_some())?;
    let mut collection: Option<Arc<Collection>> = None;
    let own_views = pipeline.stages.first().is_some_and(|stage| stage.constraints().own_views);
    if own_views {
        collection = catalog.collection(request.ns.as_str());
    } else if !request.collectionless {
        let found = resolve_views(invocation, &request.ns)?;
        check_uuid(invocation, &request.ns, &found, request.uuid.as_ref())?;
        let mut stages = found.pipeline;
        collection = found.collection;
        if !stages.stages.is_empty() {
            stages.stages.append(&mut pipeline.stages);
            pipeline = stages;
            pipeline::check_length(&pipeline.stages)?;
            pipeline::parse::check(&pipeline, Place::Command)?;
        }
    }
    pipeline.optimize()?;
    oplog::narrow(&mut pipeline, request.hint.as_ref());
    let mut cx = BuildCx::new(catalog.clone(), invocation.db, collection, env);
    cx.bypass = request.bypass;
    cx.server = Some(Arc::new(ServerFacts(invocation.server.clone())));
    if let Some(sink) = pipeline.stages.last().and_then(|stage| stage.sink()) {
        sink.check(&cx)?;
    }
    Ok((pipeline, cx))
}

/// The collection behind a name, and the stages of the views in between.
pub fn resolve_views(invocation: &Invocation<'_>, ns: &Namespace) -> Result<Found> {
    if let Some(own) = invocation.server.own_collections().resolve(ns) {
        return Ok(own);
    }
    let found = pipeline::views::resolve(&invocation.server.catalog, ns)?;
    invocation.check_meant(ns, &found)?;
    Ok(found)
}

/// Fails with `CollectionUUIDMismatch` unless the name stands for the collection of this UUID, if one is given.
pub fn check_uuid(
    invocation: &Invocation<'_>,
    ns: &Namespace,
    found: &Found,
    uuid: Option<&[u8; 16]>,
) -> Result<()> {
    let resolved = match &found.collection {
        Some(collection) if !found.is_view => Resolved::Collection(collection.clone()),
        _ => Resolved::Nothing,
    };
    ddl::check_uuid(&invocation.server.catalog, ns, &resolved, uuid)
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
        let (ns, collectionless) = target(body, db)?;
        let mut request = AggregateRequest {
            ns,
            collectionless,
            stages: Doc::EMPTY,
            batch_size: None,
            hint: None,
            explain: false,
            bypass: Bypass::default(),
            has_cursor: false,
            read_concern: None,
            api_strict: false,
            uuid: None,
        };
        let mut given = false;
        for elem in body.iter().skip(1) {
            match elem.key() {
                "pipeline" => {
                    let Some(stages) = elem.as_doc().filter(|_| elem.ty() == Type::Array) else {
                        bail!(TypeMismatch, "'pipeline' option must be specified as an array");
                    };
                    request.stages = stages;
                    given = true;
                }
                "cursor" => request.read_cursor(elem)?,
                "explain" => request.explain = args.bool(elem)?,
                "hint" => request.hint = aggregate_hint(elem)?,
                "let" => {
                    if let Some(variables) = args.given(elem, Args::object)? {
                        define_let(variables, env)?;
                    }
                }
                "collation" => {
                    args.given(elem, Args::object)?.map_or(Ok(()), refuse_collation)?;
                }
                "allowDiskUse" => env.spilling.allowed = args.bool(elem)?,
                "bypassDocumentValidation" => {
                    let flag = args.given(elem, Args::safe_bool)?;
                    request.bypass.validation = flag.unwrap_or(false);
                }
                "bypassEmptyTsReplacement" => {
                    let flag = args.given(elem, Args::bool)?;
                    request.bypass.empty_timestamps = flag.unwrap_or(false);
                }
                "readConcern" => {
                    let level = elem.as_doc().map(|concern| concern.value("level"));
                    request.read_concern =
                        level.and_then(|level| level.as_str().map(str::to_owned));
                }
                "apiStrict" => request.api_strict = elem.value().truthy(),
                "collectionUUID" => request.uuid = args.given(elem, ddl::uuid)?,
                "runtimeConstants" | "legacyRuntimeConstants" => {
                    env.now_ms = args.given(elem, runtime_now)?.unwrap_or(env.now_ms);
                }
                "needsMerge" => {
                    refuse_of_shards(elem, args.given(elem, Args::bool)?.unwrap_or(false))?
                }
                "exchange" => refuse_of_shards(elem, args.given(elem, Args::object)?.is_some())?,
                "querySettings" if elem.value().is_nullish() => {}
                "querySettings" => return Err(query_settings(7_708_001)),
                _ => args.other(elem)?,
            }
        }
        if !given {
            return Err(args.missing("pipeline"));
        }
        if request.explain && request.api_strict {
            bail!(
                APIStrictError,
                "Provided apiStrict:true, but the command aggregate with 'explain' is not in API \
                 Version 1"
            );
        }
        Ok(request)
    }

    fn read_cursor(&mut self, elem: Elem<'_>) -> Result<()> {
        let Value::Document(options) = elem.value() else {
            bail!(TypeMismatch, "cursor field must be missing or an object");
        };
        self.has_cursor = true;
        for option in options.iter() {
            match option.key() {
                "batchSize" => {
                    let args = Args::new("aggregate.cursor");
                    let size = args.given(option, Args::long)?;
                    if let Some(size) = size.filter(|size| *size < 0) {
                        bail!(
                            BadValue,
                            "BSON field 'batchSize' value must be >= 0, actual value '{size}'"
                        );
                    }
                    self.batch_size = size.map(|size| size as u64);
                }
                other => return Err(Args::new("cursor").unknown(other)),
            }
        }
        Ok(())
    }

    /// Checks that the stages go with the read concern and the API version, and that this server
    /// has the read concern.
    fn check_stages(&self, pipeline: &Pipeline, is_member: bool) -> Result<()> {
        let level = self.read_concern.as_deref().unwrap_or("local");
        let of_replica_sets = matches!(level, "linearizable" | "snapshot");
        for stage in &pipeline.stages {
            let (name, constraints) = (stage.name(), stage.constraints());
            if self.api_strict && constraints.not_in_api {
                bail!(
                    APIStrictError,
                    "stage {name} is not allowed with 'apiStrict: true' in API Version 1"
                );
            }
            let refused = match level {
                "local" => false,
                "linearizable" => constraints.local_reads || constraints.last,
                _ => constraints.local_reads,
            };
            if refused {
                bail!(
                    InvalidOptions,
                    "Aggregation stage {name} cannot run with a readConcern other than 'local'. \
                     Current readConcern: {level}"
                );
            }
        }
        if of_replica_sets {
            crate::read_concern::check_available(level, is_member)?;
        }
        Ok(())
    }
}

/// Stages about a server, or about features that only some servers have: not in API version 1, whatever their
/// arguments.
const NOT_IN_API: &[&str] = &[
    "$currentOp",
    "$indexStats",
    "$listCatalog",
    "$listClusterCatalog",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
    "$search",
    "$searchMeta",
    "$shardedDataDistribution",
    "$vectorSearch",
];

/// Refuses such stages before they are parsed.
fn check_api(stages: Doc<'_>) -> Result<()> {
    for stage in stages {
        let name = stage.as_doc().and_then(Doc::first).map_or("", |elem| elem.key());
        if NOT_IN_API.contains(&name) {
            bail!(
                APIStrictError,
                "stage {name} is not allowed with 'apiStrict: true' in API Version 1"
            );
        }
    }
    Ok(())
}

/// `hint`, read like `find`'s, except for values that are no hint.
fn aggregate_hint(elem: Elem<'_>) -> Result<Option<Hint>> {
    match elem.value() {
        Value::String(_) | Value::Document(_) | Value::NotUtf8 { .. } => hint(elem),
        _ => bail!(
            FailedToParse,
            "hint must be specified as a string representing an index name, or an object \
             representing an index's key pattern"
        ),
    }
}

/// The namespace, and whether no collection is named.
fn target(body: Doc<'_>, db: &str) -> Result<(Namespace, bool)> {
    let target = body.value("aggregate");
    if target.is_number() {
        if target.as_f64_lossy() != Some(1.0) {
            bail!(
                BadValue,
                "Invalid command format: the 'aggregate' field must specify a collection name or 1"
            );
        }
        return Ok((Namespace::new(db, "$cmd.aggregate")?, true));
    }
    match target {
        Value::String(name) => Ok((Namespace::new(db, &name)?, false)),
        other => {
            kauri_bson::not_utf8::refuse_as_namespace(&other)?;
            bail!(InvalidNamespace, "collection name has invalid type {}", other.type_name())
        }
    }
}

/// Reads `let`: constants, by which expressions are parsed and evaluated.
fn define_let(variables: Doc<'_>, env: &mut QueryEnv) -> Result<()> {
    for elem in variables {
        let name = elem.key();
        if matches!(name, "NOW" | "CLUSTER_TIME" | "USER_ROLES") {
            bail!(4738901, "Attempt to set internal constant: {name}");
        }
        kauri_expr::check_name_for_write(name)?;
        if let Some(clock) = clock_variable(&elem.value()) {
            bail!(51144, "Builtin variable '$${clock}' is not available");
        }
        let cx = kauri_expr::ParseCx { vars: env.scope.clone(), ..Default::default() };
        let expression = Expression::parse(&elem.value(), &cx)?;
        let found = expression.dependencies();
        if !found.fields.is_empty() || found.whole_document {
            bail!(
                4890500,
                "Command let Expression tried to access a field, but this is not allowed because \
                 Command let Expressions run before the query examines any documents."
            );
        }
        let value = expression.eval(&env.eval_cx(), Doc::EMPTY)?.into_owned();
        env.scope.define(name);
        env.values.push(value);
    }
    Ok(())
}

/// A variable of the clock in an expression: it has no value yet while `let` is read.
fn clock_variable(value: &Value<'_>) -> Option<&'static str> {
    match value {
        Value::String(text) => {
            let name = text.strip_prefix("$$")?.split('.').next()?;
            ["NOW", "CLUSTER_TIME"].into_iter().find(|clock| *clock == name)
        }
        Value::Document(doc) => {
            let mut parts = doc.iter().filter(|e| e.key() != "$literal");
            parts.find_map(|e| clock_variable(&e.value()))
        }
        Value::Array(items) => items.iter().find_map(|e| clock_variable(&e.value())),
        _ => None,
    }
}
