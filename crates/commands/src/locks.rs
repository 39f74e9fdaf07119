//! Locks around operations, for the experiment of how coarse a lock may be (`lockGranularity`,
//! `lockYielding`).
//!
//! By default (`document`) there is none: who writes names the versions it saw, and the commit checks
//! them. With `global`, `database` or `collection` each command that reads or writes data runs under
//! a reader-writer lock of that width, as MongoDB did up to 2.0, up to 2.6, and in 3.0's first engine:
//! readers share it, a writer has it alone and comes first. `lockYielding` says whether an operation
//! gives it up while it waits for data that is not in memory (MongoDB 2.0) or keeps it (1.8).
//!
//! Nothing that is correct rests on these locks, so a command's names are found the simple way: its
//! first field, and what is wider than the granularity has all of it alone. An acknowledgement is
//! waited for without the lock. Background work takes them too.

use crate::parameters::Parameters;
use crate::registry::{Access, Command};
use kauri_base::rw_lock::{LockMode, LockStats, OperationLock, RwLock};
use kauri_base::{OperationContext, Result, bail};
use kauri_bson::{Doc, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What a lock covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Granularity {
    /// Everything.
    Global,
    /// A database.
    Database,
    /// A collection.
    Collection,
}

/// What an operation is about.
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

/// Names that are kept although nobody uses their locks.
const NAMES_KEPT: usize = 1024;

struct Scheme {
    granularity: Granularity,
    yields: bool,
    /// With `global` the lock; else who locks a name holds this shared, and who needs more than one
    /// name has it alone.
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

    /// Takes the lock that a command runs under, if any.
    pub async fn lock_command(
        &self,
        op: &mut OperationContext,
        command: &Command,
        db: &str,
        body: Doc<'_>,
    ) -> Result<()> {
        if self.0.get().is_some()
            && let Some((scope, mode)) = need_of(command, db, body)
        {
            self.lock(op, scope, mode).await;
            op.check_for_interrupt()?;
        }
        Ok(())
    }

    /// Takes the lock for an operation on `scope`, if there are locks.
    pub async fn lock(&self, op: &mut OperationContext, scope: Scope<'_>, mode: LockMode) {
        if let Some(scheme) = self.0.get() {
            op.take_lock(scheme.lock(scope, mode)).await;
        }
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

    /// What the locks below the global one cover.
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

/// What a command needs; `None` if it runs without a lock.
fn need_of<'a>(command: &Command, db: &'a str, body: Doc<'a>) -> Option<(Scope<'a>, LockMode)> {
    let mode = match (command.name, command.access) {
        // What tells how things are, or ends them, doesn't wait for them.
        ("currentOp" | "killCursors" | "top" | "usersInfo" | "rolesInfo", _) => return None,
        ("validate", _) => LockMode::Shared,
        ("aggregate", _) if writes(body) => LockMode::Exclusive,
        (_, Access::None) => return None,
        (_, Access::Read) => LockMode::Shared,
        (_, Access::Write) => LockMode::Exclusive,
    };
    let scope = match command.name {
        "renameCollection" | "listDatabases" | "bulkWrite" | "setDefaultRWConcern" => Scope::All,
        "aggregate" if writes(body) || reads_others(body) => Scope::All,
        "getMore" => collection(db, body.get("collection").map(|e| e.value())),
        "explain" => {
            let inner = body.first().and_then(|e| e.as_doc()).and_then(Doc::first);
            collection(db, inner.map(|e| e.value()))
        }
        _ => collection(db, body.first().map(|e| e.value())),
    };
    Some((scope, mode))
}

fn collection<'a>(db: &'a str, name: Option<Value<'a>>) -> Scope<'a> {
    match name {
        Some(Value::String(std::borrow::Cow::Borrowed(name))) => Scope::Collection(db, name),
        _ => Scope::Database(db),
    }
}

/// Whether a pipeline may write. Looks for the stage's name anywhere: one too many only locks more.
fn writes(body: Doc<'_>) -> bool {
    mentions(body, &["$out", "$merge"])
}

/// Whether a pipeline may read other collections.
fn reads_others(body: Doc<'_>) -> bool {
    mentions(body, &["$lookup", "$graphLookup", "$unionWith"])
}

fn mentions(body: Doc<'_>, names: &[&str]) -> bool {
    let bytes = body.as_bytes();
    names.iter().any(|name| bytes.windows(name.len()).any(|window| window == name.as_bytes()))
}
