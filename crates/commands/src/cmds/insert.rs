//! `insert`.

use crate::args::{Args, fields};
use crate::invocation::Invocation;
use crate::registry::{Command, OpCounter, Run};
use crate::reply::write_errors;
use crate::set::retries::Retries;
use kauri_base::{Error, ErrorCode, Result, limits};
use kauri_bson::{Doc, Elem};
use kauri_catalog::{Namespace, OperationKind};
use kauri_query::write::insert::{InsertOptions, insert};
use kauri_query::write::{Bypass, WriteOutcome};
use std::sync::atomic::Ordering;

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    in_transaction: true,
    numbered: true,
    adds_memory: true,
    unacknowledged: true,
    kind: OperationKind::Insert,
    op_counter: OpCounter::Statements,
    ..Command::write("insert", "inserts documents", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let (docs, options) = parse(invocation)?;
        let mut outcome = invocation.write_outcome();
        let mut retries = Retries::begin(invocation, docs.len())?;
        let inserted =
            insert_once(invocation, &ns, &docs, &options, (&mut retries, 0), &mut outcome).await?;
        let (server, retried) = (invocation.server, retries.count());
        server.counters.insert.fetch_add(docs.len() as u64 - retried, Ordering::Relaxed);
        server.counters.docs_inserted.fetch_add(inserted - retried, Ordering::Relaxed);
        invocation.figures.inserted = Some(inserted);
        invocation.wait_for_commit(retries.ticket(server, outcome.ticket)).await?;
        invocation.reply.put("n", inserted as i32);
        write_errors(&mut invocation.reply, &outcome.errors);
        retries.write(server, &mut invocation.reply);
        Ok(())
    })
}

/// Inserts the documents that no earlier attempt has inserted; counts all. `at`: the place of the first one among the
/// command's statements.
pub(super) async fn insert_once(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    docs: &[Doc<'_>],
    options: &InsertOptions,
    (retries, at): (&mut Retries, usize),
    outcome: &mut WriteOutcome,
) -> Result<u64> {
    let (mut inserted, mut next) = (0, 0);
    while next < docs.len() {
        let first = next;
        while next < docs.len() && retries.find(invocation, at + next).await?.is_none() {
            next += 1;
        }
        if next > first {
            outcome.numbered = retries.numbered(invocation, at + first, next - first)?;
            let errors = outcome.errors.len();
            let catalog = &invocation.server.catalog;
            let (op, part) = (&mut invocation.op, &docs[first..next]);
            inserted += insert(op, catalog, ns, part, options, outcome).await?;
            retries.note(&std::mem::take(&mut outcome.retried));
            outcome.errors.iter_mut().skip(errors).for_each(|(place, _)| *place += first);
            if options.ordered && outcome.errors.len() > errors {
                return Ok(inserted);
            }
        }
        if next < docs.len() {
            retries.executed(invocation, at + next).await?;
            inserted += 1;
            next += 1;
        }
    }
    Ok(inserted)
}

fn parse<'a>(invocation: &Invocation<'a>) -> Result<(Vec<Doc<'a>>, InsertOptions)> {
    let args = Args::new("insert");
    let mut options = InsertOptions::ordered(Bypass::default());
    let mut docs = None;
    for elem in fields(invocation.body) {
        match elem.key() {
            "documents" => {
                docs = Some(
                    statements(&args, elem)?
                        .iter()
                        .map(|doc| Args::new("insert.documents").object(doc))
                        .collect::<Result<Vec<_>>>()?,
                );
            }
            "ordered" => options.ordered = args.bool(elem)?,
            "bypassDocumentValidation" => options.bypass.validation = args.safe_bool(elem)?,
            "bypassEmptyTsReplacement" => options.bypass.empty_timestamps = args.bool(elem)?,
            _ => args.other(elem)?,
        }
    }
    for sequence in &invocation.sequences {
        match sequence.field {
            "documents" => docs = Some(sequence.docs.clone()),
            other => return Err(args.unknown(other)),
        }
    }
    let Some(docs) = docs else { return Err(args.missing("documents")) };
    check_batch(docs.len())?;
    Ok((docs, options))
}

/// Fails if there are no statements, or too many.
pub fn check_batch(statements: usize) -> Result<()> {
    match statements {
        1..=limits::WRITE_BATCH_MAX => Ok(()),
        _ => Err(wrong_batch(statements)),
    }
}

/// An array of write statements, whose number is checked before they are parsed.
pub fn statements<'d>(args: &Args<'_>, elem: Elem<'d>) -> Result<Doc<'d>> {
    let list = args.array(elem)?;
    match list.count() {
        count if count > limits::WRITE_BATCH_MAX => Err(wrong_batch(count)),
        _ => Ok(list),
    }
}

/// The error for this number of statements.
pub fn wrong_batch(statements: usize) -> Error {
    let max = limits::WRITE_BATCH_MAX;
    let message =
        format!("Write batch sizes must be between 1 and {max}. Got {statements} operations.");
    Error::new(ErrorCode::InvalidLength, message)
}
