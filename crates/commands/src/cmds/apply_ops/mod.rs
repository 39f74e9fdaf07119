//! `applyOps`: applies oplog entries one after the other, as `mongorestore --oplogReplay` and `--preserveUUID` send
//! them.
//!
//! A command entry runs that command, so the command's own checks apply. An entry whose effect exists already is
//! not an error: entries may be applied again.
//!
//! Invariants: entries are not atomic together; entries before an error stay applied. The command yields between
//! entries and does not run ahead of the log without bound.

mod commands;
mod create;
mod documents;
mod entry;

use crate::args::{Args, is_generic};
use crate::invocation::Invocation;
use crate::registry::{Command, Run, Target};
use entry::{Entry, Operation};
use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, Result, bail, work};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, not_utf8, shell_text};
use kauri_query::write::WriteOutcome;
use std::future::Future;
use std::pin::Pin;

/// See the module's head.
pub const COMMAND: Command = Command {
    target: Target::Database,
    adds_memory: true,
    ..Command::define("applyOps", "applies oplog entries", run)
};

/// Maximum nesting of entries.
const NESTED_MAX: usize = 10;

/// The failure of an entry.
enum Failure {
    /// The entries behind it are applied all the same.
    Goes(Error),
    /// Nothing more is applied.
    Ends(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Ends(error)
    }
}

/// The result of an entry.
type Applied = std::result::Result<(), Failure>;

/// What all entries of a command share.
struct Whole {
    outcome: WriteOutcome,
    bypasses_validation: bool,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ops = check_entries(invocation.target()?)?;
        let bypasses_validation = parse(invocation)?;
        check_nesting(ops, 0)?;
        let mut whole = Whole { outcome: invocation.write_outcome(), bypasses_validation };
        let mut results = Vec::new();
        let applied = apply(invocation, ops, 0, &mut whole, &mut results).await;
        let commit = whole.outcome.ticket.take();
        match applied {
            Ok(()) => {
                invocation.wait_for_commit(commit).await?;
                write_results(&mut invocation.reply, &results);
                Ok(())
            }
            Err(Rejected::Untold(error)) => Err(error),
            Err(Rejected::Told(error)) => {
                invocation.wait_for_commit(commit).await?;
                Err(with_results(error, &results))
            }
        }
    })
}

/// Why entries were not applied.
enum Rejected {
    /// An entry failed; the reply identifies it.
    Told(Error),
    /// The reply does not mention entries.
    Untold(Error),
}

type Applying<'a> = Pin<Box<dyn Future<Output = std::result::Result<(), Rejected>> + Send + 'a>>;

/// Applies entries; `results` gets for each whether it was applied.
fn apply<'a>(
    invocation: &'a mut Invocation<'_>,
    ops: Doc<'a>,
    depth: usize,
    whole: &'a mut Whole,
    results: &'a mut Vec<bool>,
) -> Applying<'a> {
    Box::pin(async move {
        let mut failed = false;
        for op in ops {
            let Some(op) = op.as_doc() else { continue };
            let kind = op.value("op");
            let kind = kind.as_str().unwrap_or_default();
            if kind.starts_with('n') {
                continue;
            }
            whole.outcome.pause(&mut invocation.op).await.map_err(Rejected::Untold)?;
            if !kind.starts_with('c') {
                entry::namespace(invocation.server, op).map_err(Rejected::Untold)?;
            }
            match apply_one(invocation, op, depth, whole).await {
                Ok(()) => results.push(true),
                Err(Failure::Goes(error)) => {
                    results.push(false);
                    failed = true;
                    let attr = Attr::new().str("error", error.message());
                    log::info("COMMAND", 21064, "-", "applyOps error applying", attr);
                }
                Err(Failure::Ends(error)) => {
                    results.push(false);
                    return Err(Rejected::Told(error));
                }
            }
        }
        if failed {
            let message = "applyOps had one or more errors applying ops";
            return Err(Rejected::Told(Error::new(ErrorCode::UnknownError, message)));
        }
        Ok(())
    })
}

async fn apply_one(
    invocation: &mut Invocation<'_>,
    op: Doc<'_>,
    depth: usize,
    whole: &mut Whole,
) -> Applied {
    let entry = Entry::parse(op)?;
    match entry.operation {
        Operation::Nothing => Ok(()),
        Operation::Insert | Operation::Update | Operation::Delete => {
            documents::apply(invocation, &entry, whole).await
        }
        Operation::Command if entry.is_command("applyOps") => {
            if depth == NESTED_MAX {
                return Err(Error::failed_to_parse("Too many nested applyOps").into());
            }
            let ops = check_entries(entry.command_target()?)?;
            let mut results = Vec::new();
            match apply(invocation, ops, depth + 1, whole, &mut results).await {
                Ok(()) => Ok(()),
                Err(Rejected::Told(error) | Rejected::Untold(error)) => Err(Failure::Ends(error)),
            }
        }
        Operation::Command => commands::apply(invocation, &entry, whole).await,
    }
}

/// Reads the fields behind the entries. Answers whether documents are not validated.
fn parse(invocation: &Invocation<'_>) -> Result<bool> {
    let args = Args::new("applyOps");
    let mut bypasses_validation = false;
    let refused = |number, message: &str| {
        let told = format!("Failed to parse applyOps command: {}", shell_text(invocation.body));
        Error::location(number, message).context(told)
    };
    for elem in crate::args::fields(invocation.body) {
        match elem.key() {
            "bypassDocumentValidation" => bypasses_validation = args.safe_bool(elem)?,
            "oplogApplicationMode" => check_mode(&args, elem)?,
            // Since 6.1 entries are never applied as one unit.
            "allowAtomic" => drop(args.bool(elem)?),
            "preCondition" => {
                args.array(elem)?;
                let message = "applyOps command no longer supports the 'preCondition' option";
                return Err(refused(6711600, message));
            }
            "alwaysUpsert" => {
                if args.bool(elem)? {
                    let message = "applyOps command no longer supports the 'alwaysUpsert' option";
                    return Err(refused(6711601, message));
                }
            }
            "prepare" => bail!(BadValue, "applyOps command can't have 'prepare' field"),
            "partialTxn" => bail!(31056, "applyOps command can't have 'partialTxn' field."),
            "count" => bail!(31240, "applyOps command can't have 'count' field."),
            other if is_generic(other) => {}
            other => return Err(args.unknown(other)),
        }
    }
    Ok(bypasses_validation)
}

fn check_mode(args: &Args<'_>, elem: Elem<'_>) -> Result<()> {
    let mode = args.string(elem)?;
    match mode.as_str() {
        "ApplyOps" => Ok(()),
        "InitialSync" | "Recovering" | "Secondary" => {
            bail!(
                CommandNotSupported,
                "oplogApplicationMode {mode} is for members of a replica set"
            )
        }
        _ => {
            let error = format!("Invalid oplog application mode provided: {mode}");
            let error = Error::new(ErrorCode::FailedToParse, error);
            Err(error.context("Could not parse oplogApplicationMode"))
        }
    }
}

/// Fails if entries that hold entries nest too deeply, or a database is dropped beside or within others.
fn check_nesting(ops: Doc<'_>, depth: usize) -> Result<()> {
    for op in ops {
        let Some(op) = op.as_doc() else { continue };
        work::tick_bytes(op.as_bytes().len())?;
        let command = match (op.value("op").as_str(), op.get("o").and_then(|o| o.as_doc())) {
            (Some("c"), Some(command)) => command.first(),
            _ => None,
        };
        let Some(command) = command else { continue };
        match (command.key(), command.as_doc()) {
            ("dropDatabase", _) if depth > 0 => {
                bail!(9585500, "dropDatabase is not allowed inside nested applyOps")
            }
            ("dropDatabase", _) if ops.count() > 1 => {
                bail!(6275900, "dropDatabase in an applyOps must be the only entry")
            }
            ("applyOps", _) if depth == NESTED_MAX => {
                bail!(FailedToParse, "Too many nested applyOps")
            }
            ("applyOps", Some(nested)) => check_nesting(nested, depth + 1)?,
            _ => {}
        }
    }
    Ok(())
}

/// The entries, each of which names its operation and its namespace.
fn check_entries(elem: Elem<'_>) -> Result<Doc<'_>> {
    let Some(ops) = elem.as_doc().filter(|_| elem.ty() == Type::Array) else {
        bail!(FailedToParse, "ops has to be an array");
    };
    for elem in ops {
        let place = elem.key();
        let Some(op) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
            bail!(FailedToParse, "op not an object: {place}");
        };
        work::tick_bytes(op.as_bytes().len())?;
        let (kind, ns) = (op.get("op"), op.get("ns"));
        let Some(kind) = kind else {
            bail!(IllegalOperation, "op does not contain required \"op\" field: {place}");
        };
        if kind.ty() != Type::String {
            bail!(IllegalOperation, "\"op\" field is not a string: {place}");
        }
        let kind = kind.value();
        not_utf8::refuse(&kind, "\"op\" field")?;
        let kind = kind.as_str().unwrap_or_default();
        if kind.is_empty() {
            bail!(IllegalOperation, "\"op\" field value cannot be empty: {place}");
        }
        let Some(ns) = ns else {
            bail!(IllegalOperation, "op does not contain required \"ns\" field: {place}");
        };
        if ns.ty() != Type::String {
            bail!(IllegalOperation, "\"ns\" field is not a string: {place}");
        }
        let ns = ns.value();
        not_utf8::refuse_as_namespace(&ns)?;
        let ns = ns.as_str().unwrap_or_default();
        if ns.contains('\0') {
            bail!(IllegalOperation, "namespaces cannot have embedded null characters");
        }
        if ns.is_empty() && !kind.starts_with('n') {
            bail!(
                IllegalOperation,
                "\"ns\" field value cannot be empty when op type is not 'n': {place}"
            );
        }
    }
    Ok(ops)
}

fn write_results(out: &mut DocWriter<'_>, results: &[bool]) {
    out.put("applied", results.len() as i32);
    let mut list = out.array("results");
    results.iter().for_each(|applied| list.push(*applied));
}

/// The error, with the results of the entries.
fn with_results(error: Error, results: &[bool]) -> Error {
    let extra = DocBuf::build(|out| {
        if let Some(own) = error.extra().and_then(|extra| Doc::from_bytes(extra).ok()) {
            out.put_all(own);
        }
        write_results(out, results);
    });
    error.with_extra(extra.into_vec())
}
