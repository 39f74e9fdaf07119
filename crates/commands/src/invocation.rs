//! One command being run: the request's parts, who asks, and the reply in the making.

use crate::client::Client;
use crate::server::Server;
use kauri_base::{Error, ErrorCode, OperationContext, Result, bail};
use kauri_bson::{Doc, DocWriter, Elem, Value};
use kauri_catalog::Namespace;
use kauri_query::exec::QueryEnv;
use kauri_query::pipeline::views::Found;
use kauri_query::write::WriteOutcome;
use kauri_storage::{CommitTicket, Durability};
use kauri_transport::{SessionInfo, WorkerHandle};
use std::sync::Arc;

/// A named list of documents that came beside the body (OP_MSG kind 1).
pub struct Sequence<'a> {
    /// The field that it stands for.
    pub field: &'a str,
    /// The documents.
    pub docs: Vec<Doc<'a>>,
}

/// What a write waits for before it's acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteConcernW {
    /// No acknowledgement at all (`w: 0`).
    None,
    /// This many members; 1 is this one.
    Members(i64),
    /// `majority`.
    Majority,
}

/// A parsed write concern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteConcern {
    /// How many members.
    pub w: WriteConcernW,
    /// Whether the journal (here: the log) must be durable.
    pub journal: bool,
}

impl Default for WriteConcern {
    fn default() -> Self {
        WriteConcern { w: WriteConcernW::Members(1), journal: false }
    }
}

impl WriteConcern {
    /// What this member's log owes before the acknowledgement.
    pub fn durability(self) -> Durability {
        if self.journal || self.w == WriteConcernW::Majority {
            Durability::Durable
        } else {
            Durability::Written
        }
    }
}

/// See the module's head.
pub struct Invocation<'a> {
    /// The server.
    pub server: &'a Arc<Server>,
    /// What is kept of the connection.
    pub client: &'a mut Client,
    /// The connection.
    pub session: &'a Arc<SessionInfo>,
    /// The worker that the command runs on.
    pub worker: &'a WorkerHandle,
    /// Transport counters and histograms, for `serverStatus`.
    pub transport: &'a Arc<kauri_transport::ServiceStats>,
    /// Time limit, kill flag, yielding.
    pub op: OperationContext,
    /// The command's name as registered.
    pub name: &'static str,
    /// The command document.
    pub body: Doc<'a>,
    /// Document sequences.
    pub sequences: Vec<Sequence<'a>>,
    /// The database.
    pub db: &'a str,
    /// The write concern.
    pub write_concern: WriteConcern,
    /// Whether the client asked for the exhaust protocol.
    pub exhaust_allowed: bool,
    /// Whether this is a further reply of an exhaust: the request has been answered before.
    pub in_exhaust: bool,
    /// Set by a command that has changed something, and so is not to be run anew.
    pub has_effect: bool,
    /// Set by a command whose reply is followed by another to the same request.
    pub more_to_come: bool,
    /// Set by a command after whose reply the connection ends.
    pub close_after: bool,
    /// Set by a command that ends the connection without a reply.
    pub hang_up: bool,
    /// Where the reply's fields go.
    pub reply: DocWriter<'a>,
}

impl<'a> Invocation<'a> {
    /// The first element: the command's name and main argument.
    pub fn target(&self) -> Result<Elem<'a>> {
        self.body.first().ok_or_else(|| Error::failed_to_parse("no command name"))
    }

    /// The collection that the main argument names.
    pub fn namespace(&self) -> Result<Namespace> {
        let elem = self.target()?;
        match elem.value() {
            Value::String(name) => Namespace::new(self.db, &name),
            _ => bail!(InvalidNamespace, "collection name has invalid type {}", elem.ty().alias()),
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

    /// Fails if the main argument is a UUID, and its collection has lost the name that it had when that was
    /// looked up: the command is to begin anew.
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

    /// What a write command gathers its outcome in; it waits for the log where it runs too far ahead.
    pub fn write_outcome(&self) -> WriteOutcome {
        let worker = self.worker.clone();
        WriteOutcome::waiting(Arc::new(move || worker.want_tick_end()))
    }

    /// Waits for what the write concern asks of the local log. The command is done with data: it gives
    /// up the lock that it runs under, if any.
    pub async fn wait_for_commit(&mut self, ticket: Option<CommitTicket>) -> Result<()> {
        self.op.release_lock();
        let durability = self.write_concern.durability();
        if let Some(ticket) = ticket.as_ref().and_then(|t| t.ticket(durability)) {
            self.worker.want_tick_end();
            ticket.clone().await?;
        }
        Ok(())
    }
}
