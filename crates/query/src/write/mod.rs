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
pub mod targets;
pub mod update;

use kauri_base::{Error, Result};
use kauri_catalog::{Catalog, Collection, Namespace};
use kauri_storage::CommitTicket;
use std::sync::Arc;

/// What a write command has come to.
#[derive(Default)]
pub struct WriteOutcome {
    /// Statements that failed: position and error.
    pub errors: Vec<(usize, Error)>,
    /// The last commit, to be waited for before the acknowledgement.
    pub ticket: Option<CommitTicket>,
}

impl WriteOutcome {
    /// Notes a commit.
    pub fn committed(&mut self, ticket: CommitTicket) {
        self.ticket = Some(ticket);
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
