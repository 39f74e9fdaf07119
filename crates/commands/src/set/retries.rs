//! Writes that clients may send again (`txnNumber`): a statement that was executed answers what it has come to.
//!
//! The member keeps what was executed ([`kauri_member::statements`]) and refuses a unit that executes a statement a
//! second time. Here the statements of a command have their numbers, and results are answered.

use crate::args::Args;
use crate::fail_command;
use crate::invocation::Invocation;
use crate::server::Server;
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocWriter, Elem, Value, shell_value};
use kauri_member::statements::table::Done;
use kauri_member::statements::{Known, NotBegun};
use kauri_query::write::numbered::{Numbered, Stored};
use kauri_storage::CommitTicket;
use std::sync::atomic::Ordering;

/// The statements of a command, and which of them were executed before.
#[derive(Default)]
pub struct Retries {
    write: Option<Write>,
    retried: Vec<i32>,
    /// Those of them that have inserted a document for an update.
    upserts: usize,
}

struct Write {
    session: [u8; 16],
    number: i64,
    /// The first statement's number.
    first: i32,
    /// All of them, if they are given one by one.
    list: Option<Vec<i32>>,
}

impl Write {
    fn statement(&self, at: usize) -> i32 {
        match &self.list {
            Some(list) => list.get(at).copied().unwrap_or(-1),
            None => self.first.saturating_add(i32::try_from(at).unwrap_or(i32::MAX)),
        }
    }
}

/// The time of the member's records of statements.
pub fn now_ms(server: &Server) -> u64 {
    server.clock.monotonic().as_millis() as u64
}

/// The error for a number that is older than the session's newest one.
fn too_old(number: i64, session: &[u8; 16], newer: i64) -> Error {
    let id = Value::Binary { subtype: 4, bytes: session.as_slice().into() };
    let message = format!(
        "Retryable write with txnNumber {number} is prohibited on session {} because a newer retryable write with \
         txnNumber {newer} has already started on this session.",
        shell_value(&id)
    );
    Error::new(ErrorCode::TransactionTooOld, message)
}

impl Retries {
    /// Of a command of this many statements.
    pub fn begin(invocation: &Invocation<'_>, count: usize) -> Result<Retries> {
        let (Some(member), Some(number), Some(session)) =
            (&invocation.server.member, invocation.op.txn_number, invocation.op.lsid)
        else {
            return Ok(Retries::default());
        };
        let (first, list) = read_numbers(invocation.body, invocation.name, count)?;
        let begun = member.statements().begin(session, number, now_ms(invocation.server));
        begun.map_err(|why| match why {
            NotBegun::Older(newer) => too_old(number, &session, newer),
            NotBegun::NoRoom => Error::new(
                ErrorCode::TooManyLogicalSessions,
                "Unable to begin a retryable write: too many sessions have written in the last 30 minutes",
            ),
        })?;
        let write = Some(Write { session, number, first, list });
        Ok(Retries { write, ..Retries::default() })
    }

    /// What the statement at this place has come to, if it was executed; then it counts as retried. Waits for another
    /// attempt that is about to execute it. To be asked before it runs, and again if it has changed nothing or failed.
    pub async fn executed(
        &mut self,
        invocation: &mut Invocation<'_>,
        at: usize,
    ) -> Result<Option<Stored>> {
        let found = self.find(invocation, at).await?;
        if let (Some(stored), Some(write)) = (&found, &self.write) {
            self.retried.push(write.statement(at));
            self.upserts += usize::from(stored.upserted.is_some());
        }
        Ok(found)
    }

    /// As [`Retries::executed`], and counts nothing.
    pub async fn find(&self, invocation: &mut Invocation<'_>, at: usize) -> Result<Option<Stored>> {
        let (Some(write), Some(member)) = (&self.write, &invocation.server.member) else {
            return Ok(None);
        };
        let statement = write.statement(at);
        let done = loop {
            let now_ms = now_ms(invocation.server);
            let known = member.statements().look(&write.session, write.number, statement, now_ms);
            match known.map_err(|newer| too_old(write.number, &write.session, newer))? {
                Known::New => return Ok(None),
                Known::Busy => invocation.op.yield_now().await?,
                Known::Done(done) => break done,
            }
        };
        let stored = match done {
            Done::Plain => Some(Stored::default()),
            Done::Result(bytes) => Stored::read(&bytes),
            Done::Lost => None,
        };
        stored.map(Some).ok_or_else(lost)
    }

    /// The statement at this place has turned out to be executed when it was to be committed.
    pub fn note(&mut self, statements: &[i32]) {
        self.retried.extend_from_slice(statements);
    }

    /// The statements from this place on, which are about to run. Fails if a test wants them not to run.
    pub fn numbered(
        &self,
        invocation: &mut Invocation<'_>,
        at: usize,
        count: usize,
    ) -> Result<Option<Numbered>> {
        let Some(write) = &self.write else { return Ok(None) };
        fail_command::before_numbered(invocation, count)?;
        let statements = (at..at + count).map(|at| write.statement(at)).collect();
        Ok(Some(Numbered { session: write.session, number: write.number, statements }))
    }

    /// How many statements were executed before.
    pub fn count(&self) -> u64 {
        self.retried.len() as u64
    }

    /// Documents that these have updated.
    pub fn updates(&self) -> u64 {
        (self.retried.len() - self.upserts) as u64
    }

    /// What to wait for: a statement's own commit is not known any more, the newest one is behind it.
    pub fn ticket(&self, server: &Server, ticket: Option<CommitTicket>) -> Option<CommitTicket> {
        match self.retried.is_empty() {
            true => ticket,
            false => Some(CommitTicket::new(server.backend.engine().visible(), None, None)),
        }
    }

    /// Writes which statements were executed before, and counts them.
    pub fn write(&self, server: &Server, out: &mut DocWriter<'_>) {
        if self.count_in(server) {
            let mut list = out.array("retriedStmtIds");
            self.retried.iter().for_each(|statement| list.push(*statement));
        }
    }

    /// The same for a command of one statement.
    pub fn write_one(&self, server: &Server, out: &mut DocWriter<'_>) {
        if self.count_in(server)
            && let Some(statement) = self.retried.first()
        {
            out.put("retriedStmtId", *statement);
        }
    }

    fn count_in(&self, server: &Server) -> bool {
        if self.retried.is_empty() {
            return false;
        }
        server.counters.retried_commands.fetch_add(1, Ordering::Relaxed);
        server.counters.retried_statements.fetch_add(self.count(), Ordering::Relaxed);
        true
    }
}

/// The error for a statement that was executed, of which more than that is not known.
pub fn lost() -> Error {
    Error::new(
        ErrorCode::IncompleteTransactionHistory,
        "the statement was executed before, and what it has come to is not kept: it was large, or is no longer among \
         the newest ones",
    )
}

/// `stmtId` and `stmtIds`.
fn read_numbers(body: Doc<'_>, name: &str, count: usize) -> Result<(i32, Option<Vec<i32>>)> {
    let args = Args::new(name);
    let int = |elem: Elem<'_>| match elem.value() {
        Value::Int32(number) => Ok(number),
        _ => Err(args.wrong_type(elem, &["int"])),
    };
    let given = |field| body.get(field).filter(|elem| !elem.value().is_nullish());
    match (given("stmtId"), given("stmtIds")) {
        (None, None) => Ok((0, None)),
        (Some(first), None) => Ok((int(first)?, None)),
        (None, Some(list)) => {
            let list = args.array(list)?.iter().map(int).collect::<Result<Vec<_>>>()?;
            if list.len() != count {
                bail!(
                    InvalidOptions,
                    "Number of statement ids must match the number of batch entries. Got {} statement ids but {count} \
                     batch entries.",
                    list.len()
                );
            }
            Ok((0, Some(list)))
        }
        (Some(_), Some(_)) => {
            bail!(InvalidOptions, "May not specify both stmtId and stmtIds in write command")
        }
    }
}
