//! `explain`: how a command would be executed, and its execution statistics.

use super::aggregate::{AggregateRequest, prepare, resolve_views};
use super::count::CountRequest;
use super::distinct::DistinctRequest;
use super::explain_stages;
use super::find::{FindRequest, hint, matcher_on, sort, update_matcher};
use crate::args::{Args, fields};
use crate::invocation::Invocation;
use crate::oplog;
use crate::registry::{Command, ReadLevels, Run, Target};
use crate::server::VERSION;
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocWriter, Type, Value};
use kauri_catalog::{Collection, Namespace};
use kauri_matcher::{MatchExpr, Matcher};
use kauri_query::exec::shared::Shared;
use kauri_query::exec::{Flow, PlanExecutor, QueryEnv, Stage, Totals, Verbosity};
use kauri_query::pipeline::views::Found;
use kauri_query::pipeline::{self, BuildCx, Input, Pipeline};
use kauri_query::plan::{self, Planned, Query, Trial, shape};
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    read_levels: ReadLevels::All,
    api_v1: true,
    target: Target::Inner,
    ..Command::read("explain", "explains how a command is executed", run)
};

/// The subject of the explanation: the query of a command and the stages after it.
struct Subject {
    ns: Namespace,
    collection: Option<Arc<Collection>>,
    query: Query,
    filter: Option<Arc<Matcher>>,
    pipeline: Option<Pipeline>,
    env: QueryEnv,
    /// The field whose distinct values are asked for.
    distinct: Option<String>,
    /// The context of the pipeline's stages after the plan, if they can be executed.
    behind: Option<BuildCx>,
    /// The stage that a statement that writes adds on top (`UPDATE`, `DELETE`).
    write: Option<&'static str>,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let (command, verbosity) = parse(invocation)?;
        explain(invocation, command, verbosity).await
    })
}

fn parse<'a>(invocation: &Invocation<'a>) -> Result<(Doc<'a>, Verbosity)> {
    let args = Args::new("explain");
    let target = invocation.target()?;
    if target.ty() == Type::Null {
        return Err(args.missing("explain"));
    }
    let command = args.object(target)?;
    let mut verbosity = Verbosity::AllPlansExecution;
    for elem in fields(invocation.body) {
        match elem.key() {
            "verbosity" => {
                let name = args.string(elem)?;
                verbosity = match name.as_str() {
                    "queryPlanner" => Verbosity::QueryPlanner,
                    "executionStats" => Verbosity::ExecutionStats,
                    "allPlansExecution" => Verbosity::AllPlansExecution,
                    other => bail!(
                        BadValue,
                        "Enumeration value '{other}' for field 'explain.verbosity' is not a valid \
                         value."
                    ),
                };
            }
            _ => args.other(elem)?,
        }
    }
    Ok((command, verbosity))
}

/// Writes the explanation of a command.
pub async fn explain(
    invocation: &mut Invocation<'_>,
    command: Doc<'_>,
    verbosity: Verbosity,
) -> Result<()> {
    let (mut subject, rows) = subject(invocation, command)?;
    subject.query.sort_bytes_max = Some(subject.env.spilling.sort_bytes_max);
    let (root, rest) = match rows {
        Some(rows) => (
            plan::over_rows(rows, &subject.query),
            Rest { rejected: Vec::new(), trials: Vec::new(), is_filtered: false },
        ),
        None => planned(invocation, &subject).await?,
    };
    let root = Shared::new(root);
    let stages = subject.pipeline.as_ref().map(|p| p.stages.as_slice()).unwrap_or(&[]);
    let whole = match &subject.behind {
        Some(cx) if verbosity > Verbosity::QueryPlanner => {
            let written = stages.iter().filter(|stage| stage.sink().is_none()).cloned();
            pipeline::build_stages(&written.collect::<Vec<_>>(), Box::new(root.clone()), cx)?
        }
        _ => Box::new(root.clone()),
    };
    let mut executor = PlanExecutor::new(whole, subject.env.clone());
    let started = kauri_transport::monotonic_ns();
    if verbosity > Verbosity::QueryPlanner {
        let one_is_enough = subject.write.is_some() && subject.query.limit == 1;
        executor
            .for_each(&mut invocation.op, &mut |_| {
                Ok(if one_is_enough { Flow::Stop } else { Flow::Continue })
            })
            .await?;
    }
    let returned = if subject.query.count { 0 } else { root.rows() };
    let ms = (kauri_transport::monotonic_ns() - started) / 1_000_000;
    let plan = Plan { subject: &subject, planned: &rest, verbosity, stages: stage_names(command) };
    let told = match &subject.behind {
        Some(_) if verbosity > Verbosity::QueryPlanner => {
            explain_stages::executed(executor.root(), stages)
        }
        _ => Vec::new(),
    };
    let out = &mut invocation.reply;
    out.put("explainVersion", "1");
    let write_plan = |out: &mut DocWriter<'_>| {
        plan.write_planner(&mut out.document("queryPlanner"), &root);
        if verbosity > Verbosity::QueryPlanner {
            let mut stats = out.document("executionStats");
            plan.write_stats(&mut stats, &root, returned, ms);
        }
    };
    if stages.is_empty() {
        write_plan(out);
    } else {
        let mut list = out.array("stages");
        {
            let mut first = list.document();
            let mut cursor = first.document("$cursor");
            write_plan(&mut cursor);
        }
        for (at, stage) in stages.iter().enumerate() {
            explain_stages::write(&mut list.document(), &**stage, told.get(at));
        }
    }
    write_around(invocation, &subject, command);
    Ok(())
}

/// The tree to execute, and the further results of planning.
async fn planned(
    invocation: &mut Invocation<'_>,
    subject: &Subject,
) -> Result<(Box<dyn Stage>, Rest)> {
    let (collection, query) = (subject.collection.as_ref(), &subject.query);
    let distinct = match &subject.distinct {
        Some(key) => plan::plan_distinct(collection, query, key, &subject.env)?,
        None => None,
    };
    let planned = match distinct {
        Some(planned) => planned,
        None => plan::plan_for_explain(&mut invocation.op, collection, query, &subject.env).await?,
    };
    let Planned { root, rejected, trials, is_filtered, .. } = planned;
    Ok((root, Rest { rejected, trials, is_filtered }))
}

/// The results besides the plan.
struct Rest {
    rejected: Vec<Box<dyn Stage>>,
    trials: Vec<Trial>,
    is_filtered: bool,
}

/// Writes the part of a reply after the plan.
fn write_around(invocation: &mut Invocation<'_>, subject: &Subject, command: Doc<'_>) {
    let out = &mut invocation.reply;
    out.put("queryShapeHash", shape_hash(subject, command).as_str());
    {
        let mut written = out.document("command");
        written.put_all(command);
        if command.get("$db").is_none() {
            written.put("$db", subject.ns.database());
        }
    }
    {
        let mut info = out.document("serverInfo");
        let host = &invocation.server.start.host;
        info.put("host", host.split(':').next().unwrap_or_default());
        info.put("port", i32::from(invocation.server.start.port));
        info.put("version", VERSION);
        info.put("gitVersion", invocation.server.start.revision);
    }
    let mut parameters = out.document("serverParameters");
    for (name, value) in SERVER_PARAMETERS {
        match invocation.server.parameters.get(name) {
            Some(parameter) => parameters.put_value(name, &parameter.value),
            None => parameters.put(name, *value),
        }
    }
}

/// The limits that decide over plans, as MongoDB names them.
const SERVER_PARAMETERS: &[(&str, i32)] = &[
    ("internalQueryFacetBufferSizeBytes", 104_857_600),
    ("internalQueryFacetMaxOutputDocSizeBytes", 104_857_600),
    ("internalLookupStageIntermediateDocumentMaxSizeBytes", 104_857_600),
    ("internalDocumentSourceGroupMaxMemoryBytes", 104_857_600),
    ("internalQueryMaxBlockingSortMemoryUsageBytes", 104_857_600),
    ("internalQueryProhibitBlockingMergeOnMongoS", 0),
    ("internalQueryMaxAddToSetBytes", 104_857_600),
    ("internalDocumentSourceSetWindowFieldsMaxMemoryBytes", 104_857_600),
];

/// Identifies the shape of this query: 64 hexadecimal digits.
fn shape_hash(subject: &Subject, command: Doc<'_>) -> String {
    let stages = stage_names(command).join(",");
    let shape = format!("{}|{}|{stages}", subject.ns.as_str(), shape::as_written(&subject.query));
    (0..8).map(|part| shape::hash(&format!("{part}{shape}"))).collect()
}

/// The names of an aggregation's stages.
fn stage_names(command: Doc<'_>) -> Vec<String> {
    let pipeline = command.value("pipeline");
    let stages = pipeline.as_array().unwrap_or(Doc::EMPTY);
    stages.iter().filter_map(|e| e.as_doc()?.first()).map(|e| e.key().to_owned()).collect()
}

/// Stages that MongoDB takes into the plan of the query before them.
const PLANNED_STAGES: [&str; 7] =
    ["$group", "$lookup", "$bucket", "$replaceRoot", "$project", "$count", "$sortByCount"];

/// A plan to be written.
struct Plan<'p> {
    subject: &'p Subject,
    planned: &'p Rest,
    verbosity: Verbosity,
    /// Names of an aggregation's stages.
    stages: Vec<String>,
}

impl Plan<'_> {
    fn write_planner(&self, out: &mut DocWriter<'_>, root: &dyn Stage) {
        out.put("namespace", self.subject.ns.as_str());
        match &self.subject.filter {
            Some(filter) => out.put("parsedQuery", filter.expr().to_bson()),
            None => out.put("parsedQuery", Doc::EMPTY),
        }
        out.put("indexFilterSet", self.planned.is_filtered);
        let mut shape = shape::of_query(&self.subject.query);
        let in_plan = |name: &&String| PLANNED_STAGES.contains(&name.as_str());
        self.stages.iter().filter(in_plan).for_each(|name| shape += name);
        out.put("queryHash", shape::hash(&shape).as_str());
        out.put("planCacheShapeHash", shape::hash(&shape).as_str());
        let indexes = self.subject.collection.iter().flat_map(|c| &c.indexes);
        let ids = indexes.map(|index| format!("|{}", index.id.0)).collect::<String>();
        out.put("planCacheKey", shape::hash(&(shape + &ids)).as_str());
        out.put("optimizationTimeMillis", 0);
        out.put("maxIndexedOrSolutionsReached", false);
        out.put("maxIndexedAndSolutionsReached", false);
        out.put("maxScansToExplodeReached", false);
        out.put("prunedSimilarIndexes", false);
        self.write_stage(&mut out.document("winningPlan"), root, Verbosity::QueryPlanner, 0);
        let mut list = out.array("rejectedPlans");
        for plan in &self.planned.rejected {
            self.write_stage(&mut list.document(), &**plan, Verbosity::QueryPlanner, 0);
        }
    }

    fn write_stats(&self, out: &mut DocWriter<'_>, root: &dyn Stage, returned: u64, ms: u64) {
        let mut totals = Totals::default();
        root.add_totals(&mut totals);
        out.put("executionSuccess", true);
        out.put("nReturned", if self.subject.write.is_some() { 0 } else { returned as i32 });
        out.put("executionTimeMillis", ms as i32);
        out.put("totalKeysExamined", totals.keys_examined as i32);
        out.put("totalDocsExamined", totals.docs_examined as i32);
        if totals.are_cut {
            out.put("warning", "the plan is too deep to be counted whole");
        }
        let mut stages = out.document("executionStages");
        self.write_stage(&mut stages, root, self.verbosity, returned);
        drop(stages);
        if self.verbosity == Verbosity::AllPlansExecution {
            self.write_trials(out, root);
        }
    }

    /// A plan from the top, with the stage of a statement that writes.
    fn write_stage(
        &self,
        out: &mut DocWriter<'_>,
        root: &dyn Stage,
        verbosity: Verbosity,
        reached: u64,
    ) {
        out.put("isCached", false);
        let Some(name) = self.subject.write else {
            self.write_plan(out, root, verbosity, reached);
            return;
        };
        out.put("stage", name);
        if verbosity > Verbosity::QueryPlanner {
            out.put("nReturned", 0);
            out.put("executionTimeMillisEstimate", 0);
            let counts: &[&str] = match name {
                "DELETE" => &["nWouldDelete"],
                _ => &["nMatched", "nWouldModify"],
            };
            for count in counts {
                out.put(count, reached as i32);
            }
            if name == "UPDATE" {
                out.put("nWouldUpsert", 0);
            }
        }
        self.write_plan(&mut out.document("inputStage"), root, verbosity, reached);
    }

    /// The plan of the query. MongoDB plans the branches of a disjunction one by one, and names the stage
    /// that does so.
    fn write_plan(
        &self,
        out: &mut DocWriter<'_>,
        root: &dyn Stage,
        verbosity: Verbosity,
        reached: u64,
    ) {
        if !self.subject.is_planned_by_branches() {
            root.explain(out, verbosity);
            return;
        }
        out.put("stage", "SUBPLAN");
        if verbosity > Verbosity::QueryPlanner {
            out.put("nReturned", reached as i32);
            out.put("executionTimeMillisEstimate", 0);
        }
        root.explain(&mut out.document("inputStage"), verbosity);
    }

    /// `allPlansExecution`: the trial statistics of each candidate, the winner's first.
    fn write_trials(&self, out: &mut DocWriter<'_>, root: &dyn Stage) {
        let mut list = out.array("allPlansExecution");
        let losers = self.planned.rejected.iter().map(|plan| &**plan);
        for (trial, plan) in self.planned.trials.iter().zip(std::iter::once(root).chain(losers)) {
            let mut entry = list.document();
            entry.put("nReturned", trial.rows as i32);
            entry.put("executionTimeMillisEstimate", 0);
            entry.put("totalKeysExamined", trial.totals.keys_examined as i32);
            entry.put("totalDocsExamined", trial.totals.docs_examined as i32);
            entry.put("score", trial.score);
            plan.explain(&mut entry.document("executionStages"), Verbosity::ExecutionStats);
        }
    }
}

impl Subject {
    /// Whether the filter is a disjunction at its top, and nothing says which index is to be used.
    fn is_planned_by_branches(&self) -> bool {
        let query = &self.query;
        let free = query.hint.is_none() && query.min.is_none() && query.max.is_none();
        let filter = query.filter.as_ref().map(|filter| filter.expr());
        free && self.collection.is_some()
            && self.distinct.is_none()
            && !query.count
            && matches!(filter, Some(MatchExpr::Or(_)))
    }
}

/// Besides: the rows of a collection that the server makes itself, to be filtered and ordered.
fn subject(
    invocation: &Invocation<'_>,
    command: Doc<'_>,
) -> Result<(Subject, Option<Box<dyn Stage>>)> {
    let Some(first) = command.first() else {
        bail!(CommandNotFound, "no such command: ''");
    };
    let mut env = invocation.query_env();
    if first.key() == "aggregate" {
        return Ok((of_aggregate(invocation, command, env)?, None));
    }
    kauri_bson::not_utf8::refuse_as_namespace(&first.value())?;
    let Value::String(name) = first.value() else {
        bail!(InvalidNamespace, "collection name has invalid type {}", first.ty().alias());
    };
    let ns = Namespace::new(invocation.db, &name)?;
    let (mut distinct, mut write) = (None, None);
    let mut query = match first.key() {
        "find" => FindRequest::parse(command, "find", &mut env)?.query,
        "count" => {
            let request = CountRequest::parse(command)?;
            let filter = matcher_on(false, request.filter, &env)?;
            request.query(filter)
        }
        "distinct" => {
            let request = DistinctRequest::parse(command)?;
            distinct = Some(request.key);
            let filter = matcher_on(false, request.filter, &env)?;
            Query { filter, hint: request.hint, ..Query::default() }
        }
        "update" | "delete" => {
            write = Some(if first.key() == "update" { "UPDATE" } else { "DELETE" });
            of_write(command, first.key(), &env)?
        }
        "findAndModify" | "findandmodify" => {
            let removes = command.get("remove").is_some_and(|e| e.value().truthy());
            write = Some(if removes { "DELETE" } else { "UPDATE" });
            of_find_and_modify(command, &env)?
        }
        other if crate::registry::by_name().contains_key(other) => {
            bail!(IllegalOperation, "Cannot explain cmd: {other}");
        }
        other => bail!(CommandNotFound, "Explain failed due to unknown command: {other}"),
    };
    let Found { collection, pipeline: view, .. } = resolve_views(invocation, &ns)?;
    let rows = oplog::rows(&view, &mut query);
    let mut subject = Subject {
        ns,
        collection,
        filter: query.filter.clone(),
        query,
        pipeline: None,
        env,
        distinct,
        behind: None,
        write,
    };
    if rows.is_none() && !view.stages.is_empty() {
        let (front, taken) = pipeline::build::front(&view.stages);
        subject.filter = front.filter.clone();
        subject.query = front;
        subject.pipeline = Some(Pipeline { stages: view.stages[taken..].to_vec() });
    }
    Ok((subject, rows))
}

/// Fails if an aggregate that is to be explained has a write concern.
fn refuse_write_concern(aggregate: Doc<'_>) -> Result<()> {
    if aggregate.get("writeConcern").is_some() {
        bail!(FailedToParse, "Aggregation explain does not support the'writeConcern' option");
    }
    Ok(())
}

fn of_aggregate(
    invocation: &Invocation<'_>,
    command: Doc<'_>,
    mut env: QueryEnv,
) -> Result<Subject> {
    refuse_write_concern(command)?;
    let request = AggregateRequest::parse_command(command, invocation.db, &mut env)?;
    let (pipeline, cx) = prepare(invocation, &request, env.clone())?;
    if pipeline.has_own_source() {
        // Checked as it would be for execution; there is no plan to tell of.
        pipeline::build(&pipeline, Input::Collection(None), &cx)?;
        let query = Query::default();
        return Ok(Subject {
            ns: request.ns,
            collection: None,
            query,
            filter: None,
            pipeline: Some(pipeline),
            env,
            distinct: None,
            behind: None,
            write: None,
        });
    }
    let (mut query, taken) = pipeline::build::front(&pipeline.stages);
    query.hint = request.hint;
    let rest = Pipeline { stages: pipeline.stages[taken..].to_vec() };
    let filter = query.filter.clone();
    Ok(Subject {
        ns: request.ns,
        collection: cx.collection.clone(),
        query,
        filter,
        pipeline: Some(rest),
        env,
        distinct: None,
        behind: Some(cx),
        write: None,
    })
}

/// The query of the one statement of an update or delete.
fn of_write(command: Doc<'_>, name: &str, env: &QueryEnv) -> Result<Query> {
    let field = if name == "update" { "updates" } else { "deletes" };
    let statements = command.value(field);
    let statements = statements.as_array().unwrap_or(Doc::EMPTY);
    let mut all = statements.iter();
    let (Some(statement), None) = (all.next().and_then(|e| e.as_doc()), all.next()) else {
        return Err(Error::new(
            ErrorCode::InvalidLength,
            "explained write batches must be of size 1",
        ));
    };
    match name {
        "update" => super::update::check_statement(statement)?,
        _ => super::delete::check_statement(statement)?,
    }
    let mut query = Query::default();
    for elem in statement {
        match elem.key() {
            "q" => {
                let filter = elem.as_doc().unwrap_or(Doc::EMPTY);
                query.filter = update_matcher(filter, upserts(statement), env)?;
            }
            "hint" => query.hint = hint(elem)?,
            _ => {}
        }
    }
    Ok(query)
}

/// Whether an update statement or a `findAndModify` may insert.
fn upserts(statement: Doc<'_>) -> bool {
    statement.get("upsert").is_some_and(|e| e.value().truthy())
}

fn of_find_and_modify(command: Doc<'_>, env: &QueryEnv) -> Result<Query> {
    let mut query = Query { limit: 1, ..Query::default() };
    for elem in command {
        match elem.key() {
            "query" => {
                let filter = elem.as_doc().unwrap_or(Doc::EMPTY);
                query.filter = update_matcher(filter, upserts(command), env)?;
            }
            "sort" => query.sort = sort(elem.as_doc().unwrap_or(Doc::EMPTY))?,
            "hint" => query.hint = hint(elem)?,
            _ => {}
        }
    }
    Ok(query)
}
