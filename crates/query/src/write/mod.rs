//! Statements that write: insert, update, delete, find-and-modify.
//!
//! Each computes a write unit from what it read and commits it; a commit that finds something
//! changed is computed anew, until the operation's time is up. A statement's unit is all or nothing;
//! a command of many statements is as many units (or fewer: inserts go together).

pub mod capped;
pub mod delete;
pub mod find_and_modify;
pub mod insert;
pub mod retry;
pub mod single;
pub mod targets;
pub mod update;

use kauri_base::{Error, OperationContext, Result};
use kauri_catalog::{Catalog, Collection, Namespace};
use kauri_storage::{CommitTicket, Durability};
use std::sync::Arc;

/// What a write command has come to.
#[derive(Default)]
pub struct WriteOutcome {
    /// Statements that failed: position and error.
    pub errors: Vec<(usize, Error)>,
    /// The last commit, to be waited for before the acknowledgement.
    pub ticket: Option<CommitTicket>,
    /// Called before a wait for the log in the middle of a command, so that what is to be written gets
    /// under way; without it there is no such wait.
    before_wait: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Commits since the last wait, and their bytes.
    unwritten: (u32, usize),
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

    /// Between units: a command of many lets others run, and does not run ahead of the log without
    /// bound.
    pub async fn pause(&mut self, op: &mut OperationContext) -> Result<()> {
        let (commits, bytes) = self.unwritten;
        if commits >= UNWRITTEN_COMMITS_MAX || bytes >= UNWRITTEN_BYTES_MAX {
            self.unwritten = (0, 0);
            let written = self.ticket.as_ref().and_then(|t| t.ticket(Durability::Written));
            if let (Some(written), Some(before_wait)) = (written.cloned(), &self.before_wait) {
                before_wait();
                written.await?;
                op.check_for_interrupt()?;
            }
        }
        if op.slice_is_over() {
            op.yield_now().await?;
        }
        Ok(())
    }
}

/// The collection of this name; it's created if there is none.
pub fn collection_for_write(catalog: &Catalog, ns: &Namespace) -> Result<Arc<Collection>> {
    use kauri_base::{ErrorCode, bail};
    use kauri_catalog::{CollectionOptions, Resolved};
    loop {
        match catalog.resolve(ns.as_str()) {
            Resolved::Collection(collection) => return Ok(collection),
            Resolved::View(_) => {
                bail!(CommandNotSupportedOnView, "Namespace {ns} is a view, not a collection");
            }
            Resolved::Nothing => {
                ns.check_creatable()?;
                match catalog.create_collection(ns, CollectionOptions::default(), None) {
                    Ok((collection, _)) => return Ok(collection),
                    Err(error) if error.code() == ErrorCode::NamespaceExists => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// The collection of this name, to be read for a write; a view is refused.
pub fn existing_for_write(catalog: &Catalog, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
    match catalog.resolve(ns.as_str()) {
        kauri_catalog::Resolved::Collection(collection) => Ok(Some(collection)),
        kauri_catalog::Resolved::Nothing => Ok(None),
        kauri_catalog::Resolved::View(_) => Err(Error::new(
            kauri_base::ErrorCode::CommandNotSupportedOnView,
            format!("Namespace {ns} is a view, not a collection"),
        )),
    }
}
