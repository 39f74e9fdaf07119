//! `delete`.
//!
//! The types and names of all statements' fields are checked before the first statement runs; an error fails the
//! command. Their contents are parsed statement by statement; an error fails that statement.

use super::find::{hint, hint_type, matcher, refuse_collation};
use super::insert::{check_batch, statements};
use super::internal_fields::runtime_now;
use super::update::Variables;
use crate::args::{Args, fields, structure};
use crate::invocation::Invocation;
use crate::registry::{Command, OpCounter, Report, Run};
use crate::reply::write_errors;
use crate::report;
use crate::set::retries::Retries;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocWriter, Elem};
use kauri_catalog::{Namespace, OperationKind};
use kauri_query::plan::Query;
use kauri_query::write::delete::delete;
use kauri_query::write::targets::Targets;
use kauri_query::write::{WriteOutcome, ends_command};
use std::sync::atomic::Ordering;

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    in_transaction: true,
    numbered: true,
    unacknowledged: true,
    kind: OperationKind::Remove,
    op_counter: OpCounter::Statements,
    report: Report::Statements,
    ..Command::write("delete", "deletes documents", run)
};

struct Request<'a> {
    statements: Vec<Given<'a>>,
    ordered: bool,
    variables: Variables<'a>,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let request = parse(invocation)?;
        let mut outcome = invocation.write_outcome();
        let mut retries = Retries::begin(invocation, request.statements.len())?;
        let mut deleted = 0;
        for (index, statement) in request.statements.iter().enumerate() {
            outcome.pause(&mut invocation.op).await?;
            let variables = request.variables;
            let (once, outcome) = ((&mut retries, index), &mut outcome);
            match run_once(invocation, &ns, variables, statement, once, outcome).await {
                Ok(count) => deleted += count,
                Err(error) if ends_command(&invocation.op, &error) => return Err(error),
                Err(error) => {
                    outcome.errors.push((index, error));
                    if request.ordered {
                        break;
                    }
                }
            }
        }
        deleted += outcome.cut_short.changed;
        let (server, retried) = (invocation.server, retries.count());
        let statements = request.statements.len() as u64 - retried;
        server.counters.delete.fetch_add(statements, Ordering::Relaxed);
        server.counters.docs_deleted.fetch_add(deleted - retried, Ordering::Relaxed);
        invocation.wait_for_commit(retries.ticket(server, outcome.ticket)).await?;
        invocation.reply.put("n", deleted as i32);
        write_errors(&mut invocation.reply, &outcome.errors);
        retries.write(server, &mut invocation.reply);
        Ok(())
    })
}

fn parse<'a>(invocation: &Invocation<'a>) -> Result<Request<'a>> {
    let args = Args::new("delete");
    let mut request = Request { statements: Vec::new(), ordered: true, variables: Variables::NONE };
    let mut given = false;
    for elem in fields(invocation.body) {
        match elem.key() {
            "deletes" => {
                given = true;
                for statement in statements(&args, elem)? {
                    let statement = Args::new("delete.deletes").object(statement)?;
                    request.statements.push(Given::read(statement)?);
                }
            }
            "ordered" => request.ordered = args.bool(elem)?,
            "let" => request.variables.own = args.object(elem)?,
            "runtimeConstants" | "legacyRuntimeConstants" => {
                request.variables.now_ms = Some(runtime_now(&args, elem)?);
            }
            _ => args.other(elem)?,
        }
    }
    for sequence in &invocation.sequences {
        match sequence.field {
            "deletes" => {
                given = true;
                for statement in &sequence.docs {
                    request.statements.push(Given::read(*statement)?);
                }
            }
            other => return Err(args.unknown(other)),
        }
    }
    if !given {
        return Err(args.missing("deletes"));
    }
    check_batch(request.statements.len())?;
    Ok(request)
}

/// One statement of `deletes` with known fields of the right types.
struct Given<'a> {
    whole: Doc<'a>,
    filter: Doc<'a>,
    multi: bool,
    hint: Option<Elem<'a>>,
    collation: Doc<'a>,
}

impl<'a> Given<'a> {
    fn read(statement: Doc<'a>) -> Result<Self> {
        let args = Args::new("delete.deletes");
        let (mut filter, mut limit, mut hint, mut collation) = (None, None, None, Doc::EMPTY);
        for elem in structure(statement) {
            match elem.key() {
                "q" => filter = Some(args.object(elem)?),
                "limit" => limit = Some(args.long(elem)?),
                "hint" => hint = Some(hint_type(elem)?),
                "collation" => collation = args.object(elem)?,
                _ => args.accepted(elem)?,
            }
        }
        let Some(filter) = filter else { return Err(args.missing("q")) };
        let multi = match limit {
            Some(0) => true,
            Some(1) => false,
            Some(other) => {
                bail!(
                    FailedToParse,
                    "The limit field in delete objects must be 0 or 1. Got {other}"
                )
            }
            None => return Err(args.missing("limit")),
        };
        Ok(Given { whole: statement, filter, multi, hint, collation })
    }
}

/// Fails if a field of a statement is unknown or of a wrong type.
pub(super) fn check_statement(statement: Doc<'_>) -> Result<()> {
    Given::read(statement).map(drop)
}

/// Runs one statement, given with the fields that it has in `deletes`.
pub(super) async fn run_statement(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    variables: Variables<'_>,
    statement: Doc<'_>,
    once: (&mut Retries, usize),
    outcome: &mut WriteOutcome,
) -> Result<u64> {
    run_once(invocation, ns, variables, &Given::read(statement)?, once, outcome).await
}

/// Runs one statement, unless an earlier attempt has. `at`: its place in the command.
async fn run_once(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    variables: Variables<'_>,
    given: &Given<'_>,
    (retries, at): (&mut Retries, usize),
    outcome: &mut WriteOutcome,
) -> Result<u64> {
    if retries.executed(invocation, at).await?.is_some() {
        return Ok(1);
    }
    outcome.numbered = retries.numbered(invocation, at, 1)?;
    match run_given(invocation, ns, variables, given, outcome).await {
        Ok(deleted @ 1..) => Ok(deleted),
        result => match retries.executed(invocation, at).await? {
            Some(_) => Ok(1),
            None => result,
        },
    }
}

/// Runs one statement and reports it.
async fn run_given(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    variables: Variables<'_>,
    given: &Given<'_>,
    outcome: &mut WriteOutcome,
) -> Result<u64> {
    let statement = report::Statement::begin(invocation);
    let result = run_parsed(invocation, ns, variables, given, outcome).await;
    let plan = std::mem::take(&mut outcome.totals);
    let figures = report::Figures::of_delete(plan, result.as_ref().ok().copied());
    let write = |out: &mut DocWriter<'_>| report::write_delete(out, given.whole);
    let error = result.as_ref().err();
    statement.end(invocation, (OperationKind::Remove, ns), write, &figures, error);
    result
}

async fn run_parsed(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    variables: Variables<'_>,
    given: &Given<'_>,
    outcome: &mut WriteOutcome,
) -> Result<u64> {
    if given.multi && outcome.numbered.is_some() {
        bail!(InvalidOptions, "Cannot use (or request) retryable writes with limit=0");
    }
    let mut env = invocation.query_env();
    variables.define(&mut env)?;
    refuse_collation(given.collation)?;
    let mut query = Query { filter: matcher(given.filter, &env)?, ..Query::default() };
    if let Some(elem) = given.hint {
        query.hint = hint(elem)?;
    }
    let catalog = &invocation.server.catalog;
    let targets = Targets { catalog, ns, query: &query, env: &env, multi: given.multi, only: None };
    delete(&mut invocation.op, &targets, outcome).await
}
