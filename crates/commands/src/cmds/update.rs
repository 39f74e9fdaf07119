//! `update`.
//!
//! The types and names of all statements' fields are checked before the first statement runs; an error fails the
//! command. Their contents are parsed statement by statement; an error fails that statement.

use super::find::{define_let, hint, hint_type, refuse_collation, sort, update_matcher};
use super::insert::{check_batch, statements};
use super::internal_fields::{refuse_supplied, runtime_now};
use crate::args::{Args, fields, structure};
use crate::invocation::Invocation;
use crate::registry::{Command, OpCounter, Report, Run};
use crate::reply::write_errors;
use crate::report;
use crate::set::retries::Retries;
use kauri_base::{ErrorCode, Result, bail};
use kauri_bson::{Doc, DocWriter, Elem, Type, Value};
use kauri_catalog::{Namespace, OperationKind};
use kauri_expr::VariableScope;
use kauri_mutate::{DocTransform, ParseCx, Update, UpdateKind};
use kauri_query::exec::QueryEnv;
use kauri_query::pipeline::{self, Place};
use kauri_query::plan::Query;
use kauri_query::write::numbered::Stored;
use kauri_query::write::targets::Targets;
use kauri_query::write::update::{Shown, UpdateStatement, Updated, update};
use kauri_query::write::{Bypass, WriteOutcome, ends_command};
use std::sync::atomic::Ordering;

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    in_transaction: true,
    numbered: true,
    adds_memory: true,
    unacknowledged: true,
    kind: OperationKind::Update,
    op_counter: OpCounter::Statements,
    report: Report::Statements,
    ..Command::write("update", "updates documents", run)
};

struct Request<'a> {
    statements: Vec<Given<'a>>,
    ordered: bool,
    bypass: Bypass,
    variables: Variables<'a>,
}

/// The variables of a command's expressions.
#[derive(Clone, Copy)]
pub(super) struct Variables<'a> {
    /// `let`.
    pub own: Doc<'a>,
    /// `$$NOW`, if the command says it.
    pub now_ms: Option<i64>,
}

impl Variables<'_> {
    /// None.
    pub const NONE: Variables<'static> = Variables { own: Doc::EMPTY, now_ms: None };

    /// Defines them where expressions are evaluated.
    pub fn define(self, env: &mut QueryEnv) -> Result<()> {
        env.now_ms = self.now_ms.unwrap_or(env.now_ms);
        define_let(self.own, env)
    }
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let request = parse(invocation)?;
        let (variables, bypass) = (request.variables, request.bypass);
        let mut outcome = invocation.write_outcome();
        let mut retries = Retries::begin(invocation, request.statements.len())?;
        let (mut n, mut modified) = (0, 0);
        let mut upserted: Vec<(usize, Value<'static>)> = Vec::new();
        for (index, statement) in request.statements.iter().enumerate() {
            outcome.pause(&mut invocation.op).await?;
            let (once, outcome) = ((&mut retries, index), &mut outcome);
            match run_once(invocation, &ns, variables, bypass, statement, once, outcome).await {
                Ok(done) => {
                    n += done.matched + u64::from(done.upserted.is_some());
                    modified += done.modified;
                    upserted.extend(done.upserted.map(|id| (index, id)));
                }
                Err(error) if ends_command(&invocation.op, &error) => return Err(error),
                Err(error) => {
                    outcome.errors.push((index, error));
                    if request.ordered {
                        break;
                    }
                }
            }
        }
        n += outcome.cut_short.matched;
        modified += outcome.cut_short.changed;
        let (server, counters) = (invocation.server, &invocation.server.counters);
        let statements = request.statements.len() as u64 - retries.count();
        counters.update.fetch_add(statements, Ordering::Relaxed);
        counters.docs_updated.fetch_add(modified - retries.updates(), Ordering::Relaxed);
        invocation.wait_for_commit(retries.ticket(server, outcome.ticket)).await?;
        let out = &mut invocation.reply;
        out.put("n", n as i32);
        if !upserted.is_empty() {
            let mut list = out.array("upserted");
            for (index, id) in &upserted {
                let mut entry = list.document();
                entry.put("index", *index as i32);
                entry.put_value("_id", id);
            }
        }
        write_errors(out, &outcome.errors);
        out.put("nModified", modified as i32);
        retries.write(server, out);
        Ok(())
    })
}

fn parse<'a>(invocation: &Invocation<'a>) -> Result<Request<'a>> {
    let args = Args::new("update");
    let mut request = Request {
        statements: Vec::new(),
        ordered: true,
        bypass: Bypass::default(),
        variables: Variables::NONE,
    };
    let mut given = false;
    for elem in fields(invocation.body) {
        match elem.key() {
            "updates" => {
                given = true;
                let args_of = Args::new("update.updates");
                for statement in statements(&args, elem)? {
                    request.statements.push(Given::read(args_of.object(statement)?)?);
                }
            }
            "ordered" => request.ordered = args.bool(elem)?,
            "bypassDocumentValidation" => request.bypass.validation = args.safe_bool(elem)?,
            "bypassEmptyTsReplacement" => request.bypass.empty_timestamps = args.bool(elem)?,
            "let" => request.variables.own = args.object(elem)?,
            "runtimeConstants" | "legacyRuntimeConstants" => {
                request.variables.now_ms = Some(runtime_now(&args, elem)?);
            }
            _ => args.other(elem)?,
        }
    }
    for sequence in &invocation.sequences {
        match sequence.field {
            "updates" => {
                given = true;
                for statement in &sequence.docs {
                    request.statements.push(Given::read(*statement)?);
                }
            }
            other => return Err(args.unknown(other)),
        }
    }
    if !given {
        return Err(args.missing("updates"));
    }
    check_batch(request.statements.len())?;
    let ns = invocation.namespace()?;
    request.statements.iter().try_for_each(|given| check_pipeline(&ns, given.update))?;
    Ok(request)
}

/// One statement of `updates` with known fields of the right types.
struct Given<'a> {
    whole: Doc<'a>,
    filter: Doc<'a>,
    update: Elem<'a>,
    multi: bool,
    upsert: bool,
    array_filters: Doc<'a>,
    hint: Option<Elem<'a>>,
    collation: Doc<'a>,
    sort: Doc<'a>,
    constants: Option<Doc<'a>>,
}

impl<'a> Given<'a> {
    fn read(statement: Doc<'a>) -> Result<Self> {
        let args = Args::new("update.updates");
        let (mut filter, mut update, mut constants) = (None, None, None);
        let (mut multi, mut upsert, mut hint) = (false, false, None);
        let (mut array_filters, mut collation, mut sort) = (Doc::EMPTY, Doc::EMPTY, Doc::EMPTY);
        for elem in structure(statement) {
            match elem.key() {
                "q" => filter = Some(args.object(elem)?),
                "u" => update = Some(update_type(elem)?),
                "multi" => multi = args.safe_bool(elem)?,
                "upsert" => upsert = args.safe_bool(elem)?,
                "arrayFilters" => {
                    array_filters = args.array(elem)?;
                    for entry in array_filters {
                        Args::new("update.updates.arrayFilters").object(entry)?;
                    }
                }
                "hint" => hint = Some(hint_type(elem)?),
                "collation" => collation = args.object(elem)?,
                "sort" => sort = args.object(elem)?,
                "c" => constants = Some(args.object(elem)?),
                "upsertSupplied" => refuse_supplied(args.bool(elem)?)?,
                _ => args.accepted(elem)?,
            }
        }
        let Some(filter) = filter else { return Err(args.missing("q")) };
        let Some(update) = update else { return Err(args.missing("u")) };
        Ok(Given {
            whole: statement,
            filter,
            update,
            multi,
            upsert,
            array_filters,
            hint,
            collation,
            sort,
            constants,
        })
    }
}

/// Fails if a stage or an operator of a pipeline update is one that there is not. Whatever else is wrong
/// with it fails its statement alone.
pub(super) fn check_pipeline(ns: &Namespace, update: Elem<'_>) -> Result<()> {
    let Some(stages) = update.as_doc().filter(|_| update.ty() == Type::Array) else {
        return Ok(());
    };
    let is_of_update = |stage: Elem<'_>| {
        let name = stage.as_doc().and_then(Doc::first);
        name.is_none_or(|name| DocTransform::is_stage(name.key()))
    };
    if !stages.iter().all(is_of_update) {
        let cx = pipeline::ParseCx::new(ns, VariableScope::new(), Place::Command);
        match pipeline::parse::parse(stages, &cx) {
            Err(error) if error.code() == ErrorCode::from_number(40324) => return Err(error),
            _ => {}
        }
    }
    match Update::parse(&update.value(), &[], &ParseCx::new()) {
        Err(error) if error.code() == ErrorCode::InvalidPipelineOperator => Err(error),
        _ => Ok(()),
    }
}

/// Fails if this is no update by its type.
pub(super) fn update_type(elem: Elem<'_>) -> Result<Elem<'_>> {
    match elem.ty() {
        Type::Document | Type::Array => Ok(elem),
        _ => bail!(FailedToParse, "Update argument must be either an object or an array"),
    }
}

/// The statement, parsed.
struct Statement {
    query: Query,
    update: Update,
    multi: bool,
    upsert: bool,
    env: QueryEnv,
}

/// Fails if a field of a statement is unknown or of a wrong type.
pub(super) fn check_statement(statement: Doc<'_>) -> Result<()> {
    Given::read(statement).map(drop)
}

/// Runs one statement, given with the fields that it has in `updates`.
pub(super) async fn run_statement(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    variables: Variables<'_>,
    bypass: Bypass,
    statement: Doc<'_>,
    once: (&mut Retries, usize),
    outcome: &mut WriteOutcome,
) -> Result<Updated> {
    let given = Given::read(statement)?;
    run_once(invocation, ns, variables, bypass, &given, once, outcome).await
}

/// Runs one statement, unless an earlier attempt has. `at`: its place in the command.
async fn run_once(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    variables: Variables<'_>,
    bypass: Bypass,
    given: &Given<'_>,
    (retries, at): (&mut Retries, usize),
    outcome: &mut WriteOutcome,
) -> Result<Updated> {
    if let Some(stored) = retries.executed(invocation, at).await? {
        return Ok(updated(stored));
    }
    outcome.numbered = retries.numbered(invocation, at, 1)?;
    let result = run_given(invocation, ns, variables, bypass, given, outcome).await;
    match result {
        Ok(done) if done.modified > 0 || done.upserted.is_some() => Ok(done),
        result => match retries.executed(invocation, at).await? {
            Some(stored) => Ok(updated(stored)),
            None => result,
        },
    }
}

/// What an update has come to that was executed before.
fn updated(stored: Stored) -> Updated {
    let changed = u64::from(stored.upserted.is_none());
    let Stored { upserted, shown } = stored;
    Updated { matched: changed, modified: changed, upserted, shown }
}

/// Runs one statement and reports it.
async fn run_given(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    variables: Variables<'_>,
    bypass: Bypass,
    given: &Given<'_>,
    outcome: &mut WriteOutcome,
) -> Result<Updated> {
    let statement = report::Statement::begin(invocation);
    let result = run_parsed(invocation, ns, variables, bypass, given, outcome).await;
    let plan = std::mem::take(&mut outcome.totals);
    let figures = report::Figures::of_update(plan, result.as_ref().ok());
    let write = |out: &mut DocWriter<'_>| report::write_update(out, given.whole);
    let error = result.as_ref().err();
    statement.end(invocation, (OperationKind::Update, ns), write, &figures, error);
    result
}

async fn run_parsed(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    variables: Variables<'_>,
    bypass: Bypass,
    given: &Given<'_>,
    outcome: &mut WriteOutcome,
) -> Result<Updated> {
    if given.multi && outcome.numbered.is_some() {
        bail!(InvalidOptions, "Cannot use (or request) retryable writes with multi=true");
    }
    let mut env = invocation.query_env();
    variables.define(&mut env)?;
    let statement = parse_statement(given, env)?;
    let targets = Targets {
        catalog: &invocation.server.catalog,
        ns,
        query: &statement.query,
        env: &statement.env,
        multi: statement.multi,
        only: None,
    };
    let parsed =
        UpdateStatement { targets, update: &statement.update, upsert: statement.upsert, bypass };
    update(&mut invocation.op, &parsed, Shown::None, outcome).await
}

fn parse_statement(given: &Given<'_>, mut env: QueryEnv) -> Result<Statement> {
    refuse_collation(given.collation)?;
    let mut query = Query { sort: sort(given.sort)?, ..Query::default() };
    if let Some(elem) = given.hint {
        query.hint = hint(elem)?;
    }
    if let Some(constants) = given.constants {
        define_let(constants, &mut env)?;
    }
    let array_filters: Vec<_> = given.array_filters.iter().filter_map(|e| e.as_doc()).collect();
    let expressions = kauri_expr::ParseCx { vars: env.scope.clone(), ..Default::default() };
    let cx = ParseCx::new().with_expressions(&expressions);
    let update = Update::parse(&given.update.value(), &array_filters, &cx)?;
    if given.constants.is_some() && !matches!(update.kind(), UpdateKind::Pipeline) {
        bail!(51198, "Constant values may only be specified for pipeline updates");
    }
    if given.multi && matches!(update.kind(), UpdateKind::Replacement) {
        bail!(FailedToParse, "multi update is not supported for replacement-style update");
    }
    if given.multi && query.sort.is_some() {
        bail!(FailedToParse, "Cannot specify sort with multi=true");
    }
    query.filter = update_matcher(given.filter, given.upsert, &env)?;
    Ok(Statement { query, update, multi: given.multi, upsert: given.upsert, env })
}
