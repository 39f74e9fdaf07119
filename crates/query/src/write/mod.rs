//! Statements that write: insert, update, delete, find-and-modify.
//!
//! A statement computes a write unit from the data that it read and commits the unit. After a conflict it is
//! computed again, until the operation's time limit. A statement's unit is atomic. A command of several statements
//! has one unit per statement (or fewer: inserts are grouped).

pub mod capped;
pub mod delete;
pub mod find_and_modify;
pub mod insert;
pub mod numbered;
pub mod retry;
pub mod single;
pub mod targets;
pub mod update;

use crate::exec::{PlanExecutor, Totals};
use crate::namespaces::{Named, Namespaces, definer};
use kauri_base::{Error, ErrorCode, Result};
use kauri_catalog::{Collection, Namespace};
use kauri_storage::{CommitTicket, Durability, Operation};
use numbered::Numbered;
use std::sync::Arc;

/// What a write leaves out that it else does with a document before it is stored.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// The validator (`bypassDocumentValidation`).
    pub validation: bool,
    /// The server's time in place of empty timestamps (`bypassEmptyTsReplacement`).
    pub empty_timestamps: bool,
}

impl Bypass {
    /// Stores documents as they are, as a copy has to.
    pub const ALL: Bypass = Bypass { validation: true, empty_timestamps: true };
}

/// What a write command has come to.
#[derive(Default)]
pub struct WriteOutcome {
    /// Statements that failed: position and error.
    pub errors: Vec<(usize, Error)>,
    /// The last commit, to be waited for before the acknowledgement.
    pub ticket: Option<CommitTicket>,
    /// What statements had done before their collection was dropped.
    pub cut_short: CutShort,
    /// The statements that run now, if their session numbers them.
    pub numbered: Option<Numbered>,
    /// Statements that were to be inserts, and were executed before.
    pub retried: Vec<i32>,
    /// Whether the last statement has a plan that runs: an error is one of its execution.
    pub is_running: bool,
    /// What the plans have looked at; the ways are those of the last plan.
    pub totals: Totals,
    /// Called before a wait for the log in the middle of a command, so that what is to be written gets
    /// under way; without it there is no such wait.
    before_wait: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Commits since the last wait, and their bytes.
    unwritten: (u32, usize),
}

/// What statements on many documents had done when their collection was dropped: they fail, and what they
/// did counts.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct CutShort {
    /// Documents that matched.
    pub matched: u64,
    /// Documents that were changed or deleted.
    pub changed: u64,
}

/// Whether an error of a statement fails its whole command: the operation is interrupted, or this member is no longer
/// the primary. Drivers send such a command again; an error among those of statements they do not.
pub fn ends_command(op: &Operation, error: &Error) -> bool {
    matches!(error.code(), ErrorCode::NotWritablePrimary | ErrorCode::PrimarySteppedDown)
        || op.check_for_interrupt().is_err()
}

/// Commits of one command that the log may be behind.
const UNWRITTEN_COMMITS_MAX: u32 = 256;
/// And their bytes.
const UNWRITTEN_BYTES_MAX: usize = 16 * 1024 * 1024;

impl WriteOutcome {
    /// For a command that waits for the log where it runs too far ahead of it.
    pub fn waiting(before_wait: Arc<dyn Fn() + Send + Sync>) -> Self {
        WriteOutcome { before_wait: Some(before_wait), ..WriteOutcome::default() }
    }

    /// Notes a commit of so many bytes.
    pub fn committed(&mut self, ticket: CommitTicket, bytes: usize) {
        self.ticket = Some(ticket);
        self.unwritten.0 += 1;
        self.unwritten.1 += bytes;
    }

    /// Adds what a plan has looked at.
    pub(crate) fn looked(&mut self, executor: &PlanExecutor) {
        self.totals.leaves.clear();
        executor.root().add_totals(&mut self.totals);
    }

    /// Between units: a command of many lets others run, and does not run ahead of the log without
    /// bound.
    pub async fn pause(&mut self, op: &mut Operation) -> Result<()> {
        let (commits, bytes) = self.unwritten;
        if commits >= UNWRITTEN_COMMITS_MAX || bytes >= UNWRITTEN_BYTES_MAX {
            self.unwritten = (0, 0);
            let written = self.ticket.as_ref().and_then(|t| t.ticket(Durability::Written));
            if let (Some(written), Some(before_wait)) = (written.cloned(), &self.before_wait) {
                before_wait();
                op.wait(written).await?;
            }
        }
        if op.slice_is_over() {
            op.yield_now().await?;
        }
        Ok(())
    }
}

/// The collection of this name; it's created if there is none.
pub async fn collection_for_write(
    op: &mut Operation,
    namespaces: &dyn Namespaces,
    ns: &Namespace,
) -> Result<Arc<Collection>> {
    loop {
        if let Some(collection) = existing_for_write(namespaces, ns)? {
            return Ok(collection);
        }
        if let Some(collection) = create_for_write(op, namespaces, ns).await? {
            return Ok(collection);
        }
    }
}

/// A new collection of this name; `None` if there is one by now.
async fn create_for_write(
    op: &mut Operation,
    namespaces: &dyn Namespaces,
    ns: &Namespace,
) -> Result<Option<Arc<Collection>>> {
    ns.check_creatable()?;
    match definer(namespaces)?.create(op, ns).await {
        Ok(collection) => Ok(Some(collection)),
        Err(error) if error.code() == ErrorCode::NamespaceExists => Ok(None),
        Err(error) => Err(error),
    }
}

/// The collection of this name, to be read for a write; a view is refused, and what the server alone writes.
pub fn existing_for_write(
    namespaces: &dyn Namespaces,
    ns: &Namespace,
) -> Result<Option<Arc<Collection>>> {
    if !ns.has_id_index() {
        return Err(Error::new(ErrorCode::InvalidNamespace, format!("cannot write to {ns}")));
    }
    match namespaces.resolve(ns.as_str()) {
        Named::Collection(collection) => Ok(Some(collection)),
        Named::Remote(_) => Err(not_written_here(ns)),
        Named::Nothing if ns.collection() == "system.views" => Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("cannot write to {ns}: views change by create, collMod and drop"),
        )),
        Named::Nothing => Ok(None),
        Named::View(_) => Err(Error::new(
            ErrorCode::CommandNotSupportedOnView,
            format!("Namespace {ns} is a view, not a collection"),
        )),
    }
}

/// The error of a write to a collection that is stored elsewhere.
pub(crate) fn not_written_here(ns: &Namespace) -> Error {
    Error::new(ErrorCode::IllegalOperation, format!("{ns} is not written here"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::clock::SeededRandom;
    use kauri_base::operation::OperationState;
    use kauri_base::ticket::TicketSource;
    use kauri_base::{Clock, CommitSeq, OperationContext, Ticket};
    use kauri_storage::{Backend, EphemeralEngine};
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    /// Stands still, so that no slice is ever over.
    struct NoTime;

    impl kauri_base::Clock for NoTime {
        fn unix_ms(&self) -> i64 {
            0
        }

        fn monotonic(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
    }

    /// A log that is written as far as the test says.
    #[derive(Default)]
    struct Log(AtomicU64);

    impl TicketSource for Log {
        fn poll_ticket(&self, number: u64, _waker: &Waker) -> Poll<Result<()>> {
            match number <= self.0.load(Ordering::Relaxed) {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            }
        }
    }

    struct Command {
        log: Arc<Log>,
        op: Operation,
        outcome: WriteOutcome,
        commits: u64,
        asked: Arc<AtomicUsize>,
    }

    impl Command {
        fn new() -> Command {
            let state = Arc::new(OperationState::new(1));
            let asked = Arc::new(AtomicUsize::new(0));
            let counter = asked.clone();
            let before_wait = Arc::new(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            });
            let clock: Arc<dyn Clock> = Arc::new(NoTime);
            let engine = Arc::new(EphemeralEngine::new());
            let backend = Backend::local(engine, clock.clone(), Arc::new(SeededRandom::new(1)));
            Command {
                log: Arc::default(),
                op: Operation::new(OperationContext::new(state, clock.clone()), &backend),
                outcome: WriteOutcome::waiting(before_wait),
                commits: 0,
                asked,
            }
        }

        fn commit(&mut self, bytes: usize) {
            self.commits += 1;
            let written = Ticket::new(self.log.clone(), self.commits);
            let ticket = CommitTicket::new(CommitSeq(self.commits), Some(written), None);
            self.outcome.committed(ticket, bytes);
        }

        /// Whether the command goes on at once.
        fn goes_on(&mut self) -> bool {
            let mut pause = pin!(self.outcome.pause(&mut self.op));
            let mut cx = Context::from_waker(Waker::noop());
            let first = pause.as_mut().poll(&mut cx).is_ready();
            if !first {
                // It goes on once the log has caught up.
                self.log.0.store(self.commits, Ordering::Relaxed);
                assert!(pause.as_mut().poll(&mut cx).is_ready());
            }
            first
        }

        fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_command_does_not_run_ahead_of_the_log_without_bound() {
        let mut command = Command::new();
        for _ in 0..3 {
            for _ in 1..UNWRITTEN_COMMITS_MAX {
                command.commit(1);
                assert!(command.goes_on());
            }
            let before = command.asked();
            command.commit(1);
            assert!(!command.goes_on());
            assert_eq!(command.asked(), before + 1, "nobody was asked to write");
        }
        let mut command = Command::new();
        command.commit(UNWRITTEN_BYTES_MAX - 1);
        assert!(command.goes_on());
        command.commit(1);
        assert!(!command.goes_on());
        // What is written already is not waited for.
        command.commit(UNWRITTEN_BYTES_MAX);
        command.log.0.store(u64::MAX, Ordering::Relaxed);
        assert!(command.goes_on());
    }
}
