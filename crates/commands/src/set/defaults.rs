//! The read and write concerns of requests to a member that name none.
//!
//! `setDefaultRWConcern` stores them in `config.settings`. Without that document a write has `majority`, or `w: 1` where
//! arbiters leave too few members with data, and a read has `local`.

use crate::config_store;
use crate::invocation::Invocation;
use crate::read_concern::{self, Level};
use crate::registry::{Command, ReadLevels};
use crate::server::Server;
use crate::write_concern::{self, WriteConcern};
use kauri_base::{Access, Result};
use kauri_bson::DocBuf;
use kauri_catalog::Catalog;
use kauri_member::Member;
use kauri_storage::{CommitTicket, Operation, Scope};

/// The collection of the document.
const COLLECTION: &str = "config.settings";
/// Its `_id`.
pub const ID: &str = "ReadWriteConcernDefaults";
/// The fields of the document and of the commands.
pub const READ: &str = "defaultReadConcern";
/// See above.
pub const WRITE: &str = "defaultWriteConcern";

/// What the document says. `None`: nothing.
#[derive(Clone, Default, Debug)]
pub struct Defaults {
    /// The read concern's level.
    pub read: Option<Level>,
    /// The write concern.
    pub write: Option<WriteConcern>,
}

impl Defaults {
    /// What a stored document says. A client may have written anything there.
    pub fn of(document: Option<DocBuf>) -> Defaults {
        let Some(document) = document else { return Defaults::default() };
        let document = document.as_doc();
        let part = |field: &str| document.get(field).and_then(|elem| elem.as_doc());
        let write = part(WRITE).filter(|doc| !doc.is_empty());
        let read = part(READ).and_then(|doc| doc.get("level"));
        Defaults {
            read: read.and_then(|level| read_concern::level_of(level.value().as_str()?)),
            write: write.and_then(|doc| write_concern::parse(doc, true).ok()),
        }
    }

    /// The write concern of a write that names none.
    pub fn write_concern(&self, member: &Member) -> WriteConcern {
        match &self.write {
            Some(write) => write.clone(),
            None if member.default_is_majority() => WriteConcern::majority(),
            None => WriteConcern::default(),
        }
    }
}

/// The stored document.
pub async fn stored(op: &mut Operation, catalog: &Catalog) -> Result<Option<DocBuf>> {
    config_store::stored(op, catalog, COLLECTION, ID).await
}

/// Replaces the stored document.
pub async fn store(
    op: &mut Operation,
    catalog: &Catalog,
    document: &DocBuf,
) -> Result<CommitTicket> {
    config_store::store(op, catalog, COLLECTION, (ID, document)).await
}

/// The defaults, unless that means to wait.
pub fn peek(server: &Server, scope: &mut Scope) -> Option<Defaults> {
    match config_store::peek(scope, &server.catalog, COLLECTION, ID) {
        Ok(Access::Ready(document)) => Some(Defaults::of(document)),
        _ => None,
    }
}

/// Gives a request the concerns that it does not name.
pub async fn apply(invocation: &mut Invocation<'_>, command: &Command) -> Result<()> {
    let server = invocation.server;
    let Some(member) = &server.member else { return Ok(()) };
    let writes = command.write_concern && !invocation.write_concern.has_w;
    let reads = command.read_levels != ReadLevels::Local && !invocation.read_concern.has_level;
    if !writes && !reads {
        return Ok(());
    }
    let defaults = Defaults::of(stored(&mut invocation.op, &server.catalog).await?);
    if writes {
        invocation.write_concern.complete(&defaults.write_concern(member));
    }
    // A write that also reads, such as an aggregation with $out, is a write.
    if reads && let Some(level) = defaults.read {
        invocation.read_concern.level = level;
    }
    Ok(())
}
