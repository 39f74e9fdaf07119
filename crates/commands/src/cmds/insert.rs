//! `insert`.

use crate::args::{Args, fields};
use crate::invocation::Invocation;
use crate::registry::{Command, OpCounter, Run};
use crate::reply::write_errors;
use kauri_base::{Error, ErrorCode, Result, limits};
use kauri_bson::{Doc, Elem};
use kauri_catalog::OperationKind;
use kauri_query::write::Bypass;
use kauri_query::write::insert::{InsertOptions, insert};
use std::sync::atomic::Ordering;

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    in_transaction: true,
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
        let catalog = &invocation.server.catalog;
        let inserted =
            insert(&mut invocation.op, catalog, &ns, &docs, &options, &mut outcome).await?;
        let counters = &invocation.server.counters;
        counters.insert.fetch_add(docs.len() as u64, Ordering::Relaxed);
        counters.docs_inserted.fetch_add(inserted, Ordering::Relaxed);
        invocation.figures.inserted = Some(inserted);
        invocation.wait_for_commit(outcome.ticket).await?;
        invocation.reply.put("n", inserted as i32);
        write_errors(&mut invocation.reply, &outcome.errors);
        Ok(())
    })
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
