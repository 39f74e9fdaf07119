//! `bulkWrite`: inserts, updates and deletes on several collections in one command.
//!
//! Each operation runs as the statement of its own command would. A row per operation reports its result.

mod parse;

use super::insert::insert_once;
use super::{delete, list_rows, update};
use crate::invocation::Invocation;
use crate::registry::{Command, Run, Target};
use crate::set::retries::Retries;
use kauri_base::{Error, Result};
use kauri_bson::{Doc, DocBuf};
use kauri_catalog::Namespace;
use kauri_query::write::insert::InsertOptions;
use kauri_query::write::{CutShort, WriteOutcome, ends_command};
use parse::{Kind, Operation, Request};
use std::sync::atomic::Ordering;

/// See the module's head.
pub const COMMAND: Command = Command {
    admin_only: true,
    api_v1: true,
    target: Target::Statements(".bulkWrite"),
    in_transaction: true,
    numbered: true,
    adds_memory: true,
    ..Command::write("bulkWrite", "inserts, updates and deletes on several collections", run)
};

/// The operations done so far.
#[derive(Default)]
struct Done {
    rows: Vec<DocBuf>,
    errors: i32,
    inserted: i32,
    matched: i32,
    modified: i32,
    upserted: i32,
    deleted: i32,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let request = Request::parse(invocation)?;
        let mut outcome = invocation.write_outcome();
        let mut done = Done::default();
        let mut retries = Retries::begin(invocation, request.operations.len())?;
        let mut at = 0;
        while at < request.operations.len() {
            outcome.pause(&mut invocation.op).await?;
            let operation = &request.operations[at];
            let ns = request.namespace(&invocation.server.catalog, operation).cloned();
            let run = inserts_from(&request.operations, at);
            let first = at;
            let failed = match ns {
                Err(error) => {
                    done.error(&request, first, &error);
                    at += 1;
                    true
                }
                Ok(ns) if run > 0 => {
                    at += run;
                    let options = InsertOptions {
                        ordered: request.ordered,
                        bypass: request.bypass,
                        into: None,
                    };
                    let docs = documents(&request.operations[first..at]);
                    let (once, outcome_) = ((&mut retries, first), &mut outcome);
                    let n = insert_once(invocation, &ns, &docs, &options, once, outcome_).await?;
                    done.inserts(&request, first, docs.len(), n, &outcome);
                    !outcome.errors.is_empty()
                }
                Ok(ns) => {
                    at += 1;
                    let (once, outcome) = ((&mut retries, first), &mut outcome);
                    run_statement(invocation, &request, &ns, once, outcome, &mut done).await?
                }
            };
            outcome.errors.clear();
            if failed && request.ordered {
                break;
            }
        }
        let server = invocation.server;
        count(invocation, &done);
        invocation.wait_for_commit(retries.ticket(server, outcome.ticket.take())).await?;
        let ns = Namespace::new("admin", "$cmd.bulkWrite")?;
        let rows = std::mem::take(&mut done.rows);
        list_rows::reply(invocation, ns, rows, request.batch_size).await?;
        let out = &mut invocation.reply;
        out.put("nErrors", done.errors);
        out.put("nInserted", done.inserted);
        out.put("nMatched", done.matched);
        out.put("nModified", done.modified);
        out.put("nUpserted", done.upserted);
        out.put("nDeleted", done.deleted);
        retries.write(server, out);
        Ok(())
    })
}

fn count(invocation: &Invocation<'_>, done: &Done) {
    let counters = &invocation.server.counters;
    let add = |counter: &std::sync::atomic::AtomicU64, n: i32| {
        counter.fetch_add(n as u64, Ordering::Relaxed);
    };
    add(&counters.docs_inserted, done.inserted);
    add(&counters.docs_updated, done.modified);
    add(&counters.docs_deleted, done.deleted);
}

/// Number of consecutive inserts into one collection from this operation on.
fn inserts_from(operations: &[Operation<'_>], at: usize) -> usize {
    let rest = operations.get(at..).unwrap_or_default();
    let Some(first) = rest.first() else { return 0 };
    let same =
        |o: &&Operation<'_>| matches!(o.kind, Kind::Insert(_)) && o.namespace == first.namespace;
    rest.iter().take_while(same).count()
}

impl Done {
    /// The rows of this many inserts from this operation on.
    fn inserts(
        &mut self,
        request: &Request<'_>,
        at: usize,
        count: usize,
        inserted: u64,
        outcome: &WriteOutcome,
    ) {
        self.inserted += inserted as i32;
        let first_error = outcome.errors.first().map_or(count, |(place, _)| *place);
        let tried = if request.ordered { (first_error + 1).min(count) } else { count };
        let mut errors = outcome.errors.iter().peekable();
        for place in 0..tried {
            match errors.next_if(|(failed, _)| *failed == place) {
                Some((_, error)) => self.error(request, at + place, error),
                None if request.errors_only => {}
                None => self.rows.push(row(at + place, 1)),
            }
        }
    }

    /// Counts what a statement had done whose collection was dropped.
    fn cut_short(&mut self, kind: &Kind<'_>, done: CutShort) {
        match kind {
            Kind::Insert(_) => {}
            Kind::Update(_) => {
                self.matched += done.matched as i32;
                self.modified += done.changed as i32;
            }
            Kind::Delete(_) => self.deleted += done.changed as i32,
        }
    }

    fn error(&mut self, request: &Request<'_>, at: usize, error: &Error) {
        self.errors += 1;
        let kind = request.operations.get(at).map(|o| &o.kind);
        self.rows.push(DocBuf::build(|w| {
            w.put("ok", 0.0);
            w.put("idx", at as i32);
            w.put("code", error.code().number());
            if let Some(extra) = error.extra().and_then(|e| Doc::from_bytes(e).ok()) {
                w.put_all(extra);
            }
            w.put("errmsg", error.message());
            w.put("n", 0);
            if let Some(Kind::Update(_)) = kind {
                w.put("nModified", 0);
            }
        }));
    }
}

/// The documents of operations that are all inserts.
fn documents<'a>(operations: &[Operation<'a>]) -> Vec<Doc<'a>> {
    let document = |o: &Operation<'a>| match &o.kind {
        Kind::Insert(doc) => Some(*doc),
        _ => None,
    };
    operations.iter().filter_map(document).collect()
}

fn row(at: usize, n: i32) -> DocBuf {
    DocBuf::build(|w| {
        w.put("ok", 1.0);
        w.put("idx", at as i32);
        w.put("n", n);
    })
}

/// An update or delete. True if it failed.
async fn run_statement(
    invocation: &mut Invocation<'_>,
    request: &Request<'_>,
    ns: &Namespace,
    (retries, at): (&mut Retries, usize),
    outcome: &mut WriteOutcome,
    done: &mut Done,
) -> Result<bool> {
    let Some(operation) = request.operations.get(at) else { return Ok(false) };
    let variables = update::Variables { own: request.variables, now_ms: None };
    let result = match &operation.kind {
        Kind::Insert(_) => return Ok(false),
        Kind::Delete(statement) => {
            let (statement, once) = (statement.as_doc(), (retries, at));
            delete::run_statement(invocation, ns, variables, statement, once, outcome).await.map(
                |deleted| {
                    done.deleted += deleted as i32;
                    row(at, deleted as i32)
                },
            )
        }
        Kind::Update(statement) => {
            let bypass = request.bypass;
            let (statement, once) = (statement.as_doc(), (retries, at));
            update::run_statement(invocation, ns, variables, bypass, statement, once, outcome)
                .await
                .map(|updated| {
                    done.matched += updated.matched as i32;
                    done.modified += updated.modified as i32;
                    done.upserted += i32::from(updated.upserted.is_some());
                    DocBuf::build(|w| {
                        w.put("ok", 1.0);
                        w.put("idx", at as i32);
                        w.put("n", updated.matched as i32 + i32::from(updated.upserted.is_some()));
                        w.put("nModified", updated.modified as i32);
                        if let Some(id) = &updated.upserted {
                            w.document("upserted").put_value("_id", id);
                        }
                    })
                })
        }
    };
    match result {
        Ok(row) => {
            if !request.errors_only {
                done.rows.push(row);
            }
            Ok(false)
        }
        Err(error) => {
            invocation.op.check_for_interrupt()?;
            if ends_command(&invocation.op, &error) {
                return Err(error);
            }
            done.cut_short(&operation.kind, std::mem::take(&mut outcome.cut_short));
            done.error(request, at, &error);
            Ok(true)
        }
    }
}
