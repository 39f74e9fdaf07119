//! `explain`: how a command would be executed, and what it looked at when it was.

use super::aggregate::{AggregateRequest, prepare, resolve_views};
use super::count::CountRequest;
use super::distinct::DistinctRequest;
use super::find::{FindRequest, hint, matcher, sort};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use crate::server::VERSION;
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocWriter, Value};
use kauri_catalog::{Collection, Namespace};
use kauri_matcher::Matcher;
use kauri_query::exec::{Flow, PlanExecutor, QueryEnv, Totals, Verbosity};
use kauri_query::pipeline::{self, Input, Pipeline};
use kauri_query::plan::{self, Planned, Query};
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Read,
    read_concern: true,
    api_v1: true,
    ..Command::new("explain", "explains how a command is executed", run)
};

/// What is explained: the query of a command and what comes after it.
struct Subject {
    ns: Namespace,
    collection: Option<Arc<Collection>>,
    query: Query,
    filter: Option<Arc<Matcher>>,
    pipeline: Option<Pipeline>,
    env: QueryEnv,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let (command, verbosity) = parse(invocation)?;
        explain(invocation, command, verbosity).await
    })
}

fn parse<'a>(invocation: &Invocation<'a>) -> Result<(Doc<'a>, Verbosity)> {
    let args = Args::new("explain");
    let command = args.object(invocation.target()?)?;
    let mut verbosity = Verbosity::AllPlansExecution;
    for elem in invocation.body.iter().skip(1) {
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
    let subject = subject(invocation, command)?;
    let catalog = invocation.server.catalog.clone();
    let planned = plan::plan(
        &mut invocation.op,
        &catalog,
        subject.collection.as_ref(),
        &subject.query,
        &subject.env,
    )
    .await?;
    let Planned { root, rejected } = planned;
    let mut executor =
        PlanExecutor::new(root, catalog.engine().recovery_unit(), subject.env.clone());
    let mut returned = 0u64;
    let started = kauri_transport::monotonic_ns();
    if verbosity > Verbosity::QueryPlanner {
        executor
            .for_each(&mut invocation.op, &mut |_| {
                returned += 1;
                Ok(Flow::Continue)
            })
            .await?;
    }
    let ms = (kauri_transport::monotonic_ns() - started) / 1_000_000;
    let stages = subject.pipeline.as_ref().map(|p| p.stages.as_slice()).unwrap_or(&[]);
    let out = &mut invocation.reply;
    out.put("explainVersion", "1");
    let write_plan = |out: &mut DocWriter<'_>| {
        write_planner(&mut out.document("queryPlanner"), &subject, &executor, &rejected);
        if verbosity > Verbosity::QueryPlanner {
            let mut stats = out.document("executionStats");
            write_stats(&mut stats, &executor, verbosity, returned, ms);
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
        for stage in stages {
            stage.explain(&mut list.document());
        }
    }
    out.put("command", command);
    {
        let mut info = out.document("serverInfo");
        let host = &invocation.server.start.host;
        info.put("host", host.split(':').next().unwrap_or_default());
        info.put("port", i32::from(invocation.server.start.port));
        info.put("version", VERSION);
        info.put("gitVersion", invocation.server.start.revision);
    }
    Ok(())
}

fn write_planner(
    out: &mut DocWriter<'_>,
    subject: &Subject,
    executor: &PlanExecutor,
    rejected: &[Box<dyn kauri_query::exec::Stage>],
) {
    out.put("namespace", subject.ns.as_str());
    match &subject.filter {
        Some(filter) => out.put("parsedQuery", filter.expr().to_bson()),
        None => out.put("parsedQuery", Doc::EMPTY),
    }
    out.put("indexFilterSet", false);
    out.put("optimizationTimeMillis", 0);
    out.put("maxIndexedOrSolutionsReached", false);
    out.put("maxIndexedAndSolutionsReached", false);
    out.put("maxScansToExplodeReached", false);
    out.put("prunedSimilarIndexes", false);
    {
        let mut winning = out.document("winningPlan");
        winning.put("isCached", false);
        executor.root().explain(&mut winning, Verbosity::QueryPlanner);
    }
    let mut list = out.array("rejectedPlans");
    for plan in rejected {
        let mut entry = list.document();
        entry.put("isCached", false);
        plan.explain(&mut entry, Verbosity::QueryPlanner);
    }
}

fn write_stats(
    out: &mut DocWriter<'_>,
    executor: &PlanExecutor,
    verbosity: Verbosity,
    returned: u64,
    ms: u64,
) {
    let mut totals = Totals::default();
    executor.root().add_totals(&mut totals);
    out.put("executionSuccess", true);
    out.put("nReturned", returned as i32);
    out.put("executionTimeMillis", ms as i32);
    out.put("totalKeysExamined", totals.keys_examined as i32);
    out.put("totalDocsExamined", totals.docs_examined as i32);
    {
        let mut stages = out.document("executionStages");
        stages.put("isCached", false);
        executor.root().explain(&mut stages, verbosity);
    }
    if verbosity == Verbosity::AllPlansExecution {
        out.array("allPlansExecution");
    }
}

fn subject(invocation: &Invocation<'_>, command: Doc<'_>) -> Result<Subject> {
    let Some(first) = command.first() else {
        bail!(CommandNotFound, "no such command: ''");
    };
    let mut env = invocation.query_env();
    if first.key() == "aggregate" {
        return of_aggregate(invocation, command, env);
    }
    let Value::String(name) = first.value() else {
        bail!(InvalidNamespace, "collection name has invalid type {}", first.ty().alias());
    };
    let ns = Namespace::new(invocation.db, &name)?;
    let query = match first.key() {
        "find" => FindRequest::parse(command, "find", &mut env)?.query,
        "count" => {
            let request = CountRequest::parse(command)?;
            Query {
                filter: matcher(request.filter, &env)?,
                skip: request.skip,
                limit: request.limit,
                hint: request.hint,
                ..Query::default()
            }
        }
        "distinct" => {
            let request = DistinctRequest::parse(command)?;
            Query { filter: matcher(request.filter, &env)?, hint: request.hint, ..Query::default() }
        }
        "update" | "delete" => of_write(command, first.key(), &env)?,
        "findAndModify" | "findandmodify" => of_find_and_modify(command, &env)?,
        other if crate::registry::by_name().contains_key(other) => {
            bail!(CommandNotSupported, "Explain failed due to unknown command: {other}");
        }
        other => bail!(CommandNotFound, "Explain failed due to unknown command: {other}"),
    };
    let (collection, view) = resolve_views(invocation, &ns)?;
    if !view.stages.is_empty() {
        let (front, taken) = pipeline::build::front(&view.stages);
        let rest = Pipeline { stages: view.stages[taken..].to_vec() };
        let filter = front.filter.clone();
        return Ok(Subject { ns, collection, query: front, filter, pipeline: Some(rest), env });
    }
    let filter = query.filter.clone();
    Ok(Subject { ns, collection, query, filter, pipeline: None, env })
}

fn of_aggregate(
    invocation: &Invocation<'_>,
    command: Doc<'_>,
    mut env: QueryEnv,
) -> Result<Subject> {
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
        });
    }
    let (mut query, taken) = pipeline::build::front(&pipeline.stages);
    query.hint = request.hint;
    let rest = Pipeline { stages: pipeline.stages[taken..].to_vec() };
    let filter = query.filter.clone();
    Ok(Subject {
        ns: request.ns,
        collection: cx.collection,
        query,
        filter,
        pipeline: Some(rest),
        env,
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
    let mut query = Query::default();
    for elem in statement {
        match elem.key() {
            "q" => query.filter = matcher(elem.as_doc().unwrap_or(Doc::EMPTY), env)?,
            "hint" => query.hint = hint(Args::new(name), elem)?,
            _ => {}
        }
    }
    Ok(query)
}

fn of_find_and_modify(command: Doc<'_>, env: &QueryEnv) -> Result<Query> {
    let mut query = Query { limit: 1, ..Query::default() };
    for elem in command {
        match elem.key() {
            "query" => query.filter = matcher(elem.as_doc().unwrap_or(Doc::EMPTY), env)?,
            "sort" => query.sort = sort(elem.as_doc().unwrap_or(Doc::EMPTY))?,
            "hint" => query.hint = hint(Args::new("findAndModify"), elem)?,
            _ => {}
        }
    }
    Ok(query)
}
