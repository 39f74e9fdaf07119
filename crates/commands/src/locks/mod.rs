//! Operation locks for the experiment with lock granularities (`lockGranularity`, `lockYielding`): only with the
//! feature `lock-experiment`, which `scripts/writelock` builds with.
//!
//! By default (`document`) there are no locks: a write names the versions that it has read, and the commit checks
//! them. With `global`, `database` or `collection`, each command that reads or writes data takes a reader-writer
//! lock of that scope, as MongoDB did up to 2.0, up to 2.6, and in 3.0's first engine. Readers share the lock; a
//! writer holds it alone and goes first. `lockYielding` decides whether an operation releases the lock while it
//! waits for data that is not in memory (MongoDB 2.0) or keeps it (1.8).
//!
//! Correctness does not depend on these locks. So a command's namespace is found in the simple way: by its first
//! field. A command with a scope wider than the granularity locks everything exclusively. The wait for an
//! acknowledgement is outside of the lock. Background work takes the locks, too.

mod of_command;
mod report;

use crate::parameters::Parameters;
use crate::registry::{Asked, Command};
use kauri_base::rw_lock::{LockMode, LockStats, OperationLock, RwLock};
use kauri_base::{OperationContext, Result, bail};
use kauri_catalog::Namespace;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The granularity of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Granularity {
    /// Everything.
    Global,
    /// A database.
    Database,
    /// A collection.
    Collection,
}

/// The scope of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope<'n> {
    /// Several databases.
    All,
    /// A database.
    Database(&'n str),
    /// A collection: its database and name.
    Collection(&'n str, &'n str),
}

/// The name of the lock above the others.
pub const GLOBAL: &str = "Global";

/// Names that are kept although their locks are unused.
const NAMES_KEPT: usize = 1024;

struct Scheme {
    granularity: Granularity,
    yields: bool,
    /// With `global` the lock; otherwise a command that locks a name holds this shared, and a command that needs
    /// more than one name holds it exclusively.
    global: Arc<RwLock>,
    names: Mutex<HashMap<String, Arc<RwLock>>>,
}

/// See the module's head.
#[derive(Default)]
pub struct Locks(OnceLock<Scheme>);

impl Locks {
    /// Reads the parameters of a server that is starting. Without this, and by default, there are no
    /// locks.
    pub fn set_up(&self, parameters: &Parameters) -> Result<()> {
        let text = |name: &str| {
            let value = parameters.get(name).map(|parameter| parameter.value);
            value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        };
        let yields = text("lockYielding") != "off";
        let granularity = match text("lockGranularity").as_str() {
            "global" => Granularity::Global,
            "database" => Granularity::Database,
            "collection" => Granularity::Collection,
            _ if yields => return Ok(()),
            _ => bail!(
                BadValue,
                "lockYielding=off needs a lockGranularity of global, database or collection: with \
                 document nothing is locked that could be kept"
            ),
        };
        let scheme =
            Scheme { granularity, yields, global: Arc::default(), names: Mutex::default() };
        let _ = self.0.set(scheme);
        Ok(())
    }

    /// Whether there are locks.
    pub fn are_on(&self) -> bool {
        self.0.get().is_some()
    }

    /// Takes the lock that a command runs under, if any.
    pub async fn lock_command(
        &self,
        op: &mut OperationContext,
        command: &Command,
        asked: Asked<'_>,
    ) -> Result<()> {
        if self.0.get().is_some()
            && let Some((scope, mode)) = of_command::lock(command, asked)
        {
            self.lock(op, scope, mode).await;
            op.check_for_interrupt()?;
        }
        Ok(())
    }

    /// Takes the lock for an operation on `scope`, if there are locks.
    async fn lock(&self, op: &mut OperationContext, scope: Scope<'_>, mode: LockMode) {
        if let Some(scheme) = self.0.get() {
            op.take_lock(scheme.lock(scope, mode)).await;
        }
    }

    /// Takes the lock for background work that writes to this collection, if there are locks.
    pub async fn lock_to_write(&self, op: &mut OperationContext, ns: &Namespace) {
        self.lock(op, Scope::Collection(ns.database(), ns.collection()), LockMode::Exclusive).await;
    }

    /// The lock for an operation on this collection, if it can be had at once: `Ok(None)` if there are
    /// no locks, `Err` if it has to be waited for.
    #[inline]
    pub fn try_lock(
        &self,
        db: &str,
        collection: &str,
        mode: LockMode,
    ) -> Result<Option<OperationLock>, Busy> {
        match self.0.get() {
            None => Ok(None),
            Some(scheme) => {
                let mut lock = scheme.lock(Scope::Collection(db, collection), mode);
                if lock.try_take() { Ok(Some(lock)) } else { Err(Busy) }
            }
        }
    }

    /// All locks there are, by name ([`GLOBAL`] for the one above the others).
    pub fn list(&self) -> Vec<(String, LockStats)> {
        let Some(scheme) = self.0.get() else { return Vec::new() };
        let mut all = vec![(GLOBAL.to_owned(), scheme.global.stats())];
        let names = scheme.names.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(names.iter().map(|(name, lock)| (name.clone(), lock.stats())));
        all[1..].sort_unstable_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// The granularity of the locks below the global one.
    pub fn granularity(&self) -> Option<Granularity> {
        self.0.get().map(|scheme| scheme.granularity)
    }
}

/// A lock is not to be had at once.
#[derive(Debug)]
pub struct Busy;

impl Scheme {
    fn lock(&self, scope: Scope<'_>, mode: LockMode) -> OperationLock {
        let name = match (self.granularity, scope) {
            (Granularity::Global, _) => None,
            (Granularity::Database, Scope::Database(db) | Scope::Collection(db, _)) => {
                Some(db.to_owned())
            }
            (Granularity::Collection, Scope::Collection(db, name)) => Some(format!("{db}.{name}")),
            _ => return OperationLock::new(self.alone(), self.yields),
        };
        let wanted = match name {
            None => vec![(self.global.clone(), mode)],
            Some(name) => vec![(self.global.clone(), LockMode::Shared), (self.named(name), mode)],
        };
        OperationLock::new(wanted, self.yields)
    }

    fn alone(&self) -> Vec<(Arc<RwLock>, LockMode)> {
        vec![(self.global.clone(), LockMode::Exclusive)]
    }

    fn named(&self, name: String) -> Arc<RwLock> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_KEPT && !names.contains_key(&name) {
            names.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        names.entry(name).or_default().clone()
    }
}
