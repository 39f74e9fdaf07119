//! A running command: the parts of the request, the client, and the reply.

use crate::client::Client;
use crate::read_concern::ReadConcern;
use crate::registry::{Asked, Command};
use crate::report::Figures;
use crate::server::Server;
use crate::set::write_wait;
use crate::write_concern::WriteConcern;
use kauri_base::{Error, ErrorCode, OperationContext, Result, bail};
use kauri_bson::{Doc, DocWriter, Elem, Value};
use kauri_catalog::Namespace;
use kauri_query::exec::QueryEnv;
use kauri_query::pipeline::views::Found;
use kauri_query::write::WriteOutcome;
use kauri_storage::{CommitTicket, Operation};
use kauri_transport::{SessionInfo, WorkerHandle};
use std::sync::Arc;

/// A named list of documents that came beside the body (OP_MSG kind 1).
pub struct Sequence<'a> {
    /// The field that it stands for.
    pub field: &'a str,
    /// The documents.
    pub docs: Vec<Doc<'a>>,
}

/// See the module's head.
pub struct Invocation<'a> {
    /// The server.
    pub server: &'a Arc<Server>,
    /// The state of the connection.
    pub client: &'a mut Client,
    /// The connection.
    pub session: &'a Arc<SessionInfo>,
    /// The worker that the command runs on.
    pub worker: &'a WorkerHandle,
    /// Transport counters and histograms, for `serverStatus`.
    pub transport: &'a Arc<kauri_transport::ServiceStats>,
    /// Time limit, kill flag, yielding.
    pub op: Operation,
    /// The command's name as registered.
    pub name: &'static str,
    /// The command, once it is known.
    pub command: Option<&'static Command>,
    /// The command document.
    pub body: Doc<'a>,
    /// Document sequences.
    pub sequences: Vec<Sequence<'a>>,
    /// The database.
    pub db: &'a str,
    /// The write concern.
    pub write_concern: WriteConcern,
    /// Why what the write concern asks for was not waited for.
    pub write_concern_error: Option<Error>,
    /// The read concern.
    pub read_concern: ReadConcern,
    /// Whether a secondary may answer.
    pub secondary_ok: bool,
    /// Whether a failpoint has given the labels of the error.
    pub labels_are_given: bool,
    /// Whether the client asked for the exhaust protocol.
    pub exhaust_allowed: bool,
    /// Whether this is a further reply of an exhaust: the request has been answered before.
    pub in_exhaust: bool,
    /// The figures of the command, for the log and the profiler.
    pub figures: Figures,
    /// The command, once it has run.
    pub ran: Option<&'static Command>,
    /// Set by a command that has changed something, and so must not run again.
    pub has_effect: bool,
    /// Whether the request was understood and documents may have been looked at to be changed.
    pub has_reached_documents: bool,
    /// Whether `ok` is an int in the reply, as in MongoDB where an aggregation answers for another command.
    pub int_ok: bool,
    /// Set by a command whose reply is followed by another to the same request.
    pub more_to_come: bool,
    /// Set by a command after whose reply the connection ends.
    pub close_after: bool,
    /// Set by a command that ends the connection without a reply.
    pub hang_up: bool,
    /// Set where the command is a part of another one.
    pub part: Option<Part>,
    /// The reply's fields.
    pub reply: DocWriter<'a>,
}

/// The data that a command exchanges with its part.
#[derive(Default)]
pub struct Part {
    /// The UUID that a collection gets which the part creates.
    pub uuid: Option<[u8; 16]>,
    /// The part's last commit, which the whole waits for.
    pub commit: Option<CommitTicket>,
}

impl<'a> Invocation<'a> {
    /// The request, as policy sees it.
    pub fn asked(&self) -> Asked<'a> {
        Asked { db: self.db, body: self.body }
    }

    /// The first element: the command's name and main argument.
    pub fn target(&self) -> Result<Elem<'a>> {
        self.body.first().ok_or_else(|| Error::failed_to_parse("no command name"))
    }

    /// The collection that the main argument names.
    pub fn namespace(&self) -> Result<Namespace> {
        let elem = self.target()?;
        match elem.value() {
            Value::String(name) => Namespace::new(self.db, &name),
            other => {
                kauri_bson::not_utf8::refuse_as_namespace(&other)?;
                bail!(InvalidNamespace, "collection name has invalid type {}", elem.ty().alias())
            }
        }
    }

    /// As `namespace`; a UUID is looked up.
    pub fn namespace_or_uuid(&self) -> Result<Namespace> {
        if let Value::Binary { subtype: 4, bytes } = self.target()?.value() {
            return match self.server.catalog.collection_by_uuid(self.db, &bytes) {
                Some(collection) => Ok(collection.ns.clone()),
                None => Err(Error::new(
                    ErrorCode::NamespaceNotFound,
                    format!(
                        "Unable to resolve uuid {}",
                        kauri_bson::shell_value(&self.target()?.value())
                    ),
                )),
            };
        }
        self.namespace()
    }

    /// Fails if the main argument is a UUID, and its collection has been renamed since it was resolved: the command
    /// must start again.
    pub fn check_meant(&self, ns: &Namespace, found: &Found) -> Result<()> {
        let Value::Binary { subtype: 4, bytes } = self.target()?.value() else { return Ok(()) };
        match &found.collection {
            Some(collection) if collection.uuid == *bytes => Ok(()),
            _ => bail!(QueryPlanKilled, "collection dropped or renamed: {ns}"),
        }
    }

    /// The surroundings of expressions and filters in this command.
    pub fn query_env(&self) -> QueryEnv {
        let mut env = QueryEnv::new(self.server.clock.unix_ms(), self.server.random.clone());
        env.plans = Some(self.server.plans.clone());
        env.spilling = self.server.spilling.of_operation(self.op.state());
        env
    }

    /// The collector of a write command's outcome; it waits for the log where the command runs too far ahead.
    pub fn write_outcome(&mut self) -> WriteOutcome {
        self.has_reached_documents = true;
        let worker = self.worker.clone();
        WriteOutcome::waiting(Arc::new(move || worker.want_tick_end()))
    }

    /// Runs a command as a part of this one, which takes its locks and waits for its commit. The part's reply is
    /// dropped.
    pub async fn run_part(
        &mut self,
        command: &'static Command,
        db: &str,
        body: Doc<'_>,
        part: Part,
    ) -> Result<Option<CommitTicket>> {
        let mut reply = Vec::new();
        let context = OperationContext::new(self.op.state().clone(), self.server.clock.clone());
        let between = Operation::new(context, &self.server.backend);
        let op = std::mem::replace(&mut self.op, between);
        let mut inner = Invocation {
            server: self.server,
            client: &mut *self.client,
            session: self.session,
            worker: self.worker,
            transport: self.transport,
            op,
            name: command.name,
            command: Some(command),
            body,
            sequences: Vec::new(),
            db,
            write_concern: self.write_concern.clone(),
            write_concern_error: None,
            read_concern: self.read_concern,
            secondary_ok: self.secondary_ok,
            labels_are_given: false,
            exhaust_allowed: false,
            in_exhaust: false,
            figures: Figures::default(),
            int_ok: false,
            ran: None,
            has_effect: false,
            has_reached_documents: false,
            more_to_come: false,
            close_after: false,
            hang_up: false,
            part: Some(part),
            reply: DocWriter::new(&mut reply),
        };
        let result = match crate::dispatch::prepare_part(&mut inner, command).await {
            Ok(()) => (command.run)(&mut inner).await,
            Err(error) => Err(error),
        };
        let commit = inner.part.take().and_then(|part| part.commit);
        self.op = inner.op;
        result.map(|()| commit)
    }

    /// Waits for what the write concern asks of the local log, or of the set. The command is done with data. One that
    /// is to end waits no longer, and its reply says so (`writeConcernError`).
    pub async fn wait_for_commit(&mut self, ticket: Option<CommitTicket>) -> Result<()> {
        if let Some(part) = &mut self.part {
            part.commit = ticket.or(part.commit.take());
            return Ok(());
        }
        #[cfg(feature = "lock-experiment")]
        self.op.release_lock();
        let server = self.server;
        if let Some(member) = &server.member {
            let commit = ticket.map(|ticket| ticket.seq);
            self.write_concern_error = write_wait::wait_for_set(self, member, commit).await.err();
            return Ok(());
        }
        let Some(ticket) = write_wait::awaited(server, &self.write_concern, ticket) else {
            return Ok(());
        };
        self.worker.want_tick_end();
        match self.op.wait_for(ticket).await {
            Ok(waited) => waited,
            Err(interrupted) => {
                self.write_concern_error = Some(interrupted);
                Ok(())
            }
        }
    }
}
