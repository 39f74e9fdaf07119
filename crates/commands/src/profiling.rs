//! The settings of the profiler: which operations are logged as slow, and which are written to `system.profile`.
//!
//! `slowms` and `sampleRate` belong to the server; level and filter belong to a database. Settings do not outlive
//! the process: a server starts with its options.

use crate::server::Server;
use kauri_base::{OperationContext, Result, bail, limits, work};
use kauri_bson::{Doc, DocBuf};
use kauri_matcher::{MatchCx, Matcher};
use kauri_query::exec::QueryEnv;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The collection of a database that has the documents.
pub const PROFILE_COLLECTION: &str = "system.profile";

/// Maximum time of a filter per document. After that the document does not pass.
const FILTER_TIME: Duration = Duration::from_millis(2);

/// A filter on the documents of operations.
#[derive(Clone)]
pub struct Filter {
    /// As it is shown.
    pub spec: DocBuf,
    /// `None` if it lets everything through.
    pub matcher: Option<Arc<Matcher>>,
}

impl Filter {
    /// Whether an operation with this document is logged and profiled. If the filter fails, it is not.
    pub fn lets_through(&self, document: Doc<'_>, server: &Server) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        let env = QueryEnv::new(server.clock.unix_ms(), server.random.clone());
        // The operation has ended: nobody can end the filter but its own time.
        let op = OperationContext::detached(server.clock.clone());
        op.set_deadline(FILTER_TIME);
        let _staying = work::stay();
        let matches = || matcher.matches(document, &MatchCx::with_eval(env.eval_cx()));
        work::with_meter(&op.meter(), matches).unwrap_or(false)
    }
}

/// The settings of `profile`.
pub struct Settings {
    /// The level of databases that have none of their own.
    default_level: i32,
    levels: HashMap<String, i32>,
    /// The part of slow operations that is logged and profiled, 0 to 1.
    pub sample_rate: f64,
    filters: HashMap<String, Filter>,
}

/// The settings that an operation on one database is subject to.
pub struct Watch {
    /// 0: nothing is profiled; 1: slow operations are; 2: all are.
    pub level: i32,
    /// Selects the reported operations, instead of `slowms` and `sampleRate`.
    pub filter: Option<Filter>,
    /// The reported fraction of slow operations.
    pub sample_rate: f64,
}

impl Settings {
    /// A database's level.
    pub fn level(&self, database: &str) -> i32 {
        self.levels.get(database).copied().unwrap_or(self.default_level)
    }

    /// A database's filter.
    pub fn filter(&self, database: &str) -> Option<&Filter> {
        self.filters.get(database)
    }

    /// Sets a database's filter, or removes it.
    pub fn set_filter(&mut self, database: &str, filter: Option<Filter>) -> Result<()> {
        let Some(filter) = filter else {
            self.filters.remove(database);
            return Ok(());
        };
        let bytes_of = |filter: &Filter| filter.spec.as_doc().as_bytes().len();
        let others = self.filters.iter().filter(|(other, _)| *other != database);
        let bytes: usize = others.map(|(name, filter)| name.len() + bytes_of(filter)).sum();
        let max = limits::PROFILE_FILTERS_BYTES_MAX;
        if bytes + database.len() + bytes_of(&filter) > max {
            bail!(
                ExceededMemoryLimit,
                "The filters of the profiler exceed the limit of {max} bytes for all databases"
            );
        }
        self.filters.insert(database.to_owned(), filter);
        Ok(())
    }

    /// Sets a database's level.
    pub fn set_level(&mut self, database: &str, level: i32) -> Result<()> {
        if level == self.default_level {
            self.levels.remove(database);
            return Ok(());
        }
        let max = limits::PROFILE_LEVELS_MAX;
        if self.levels.len() >= max && !self.levels.contains_key(database) {
            bail!(ExceededMemoryLimit, "At most {max} databases may have a profiling level");
        }
        self.levels.insert(database.to_owned(), level);
        Ok(())
    }

    /// Whether operations of a database must be examined however fast they are.
    fn watches(&self) -> bool {
        let is_on = |level: &i32| *level > 0;
        is_on(&self.default_level) || self.levels.values().any(is_on) || !self.filters.is_empty()
    }
}

/// The settings of the server.
pub struct Profiling {
    settings: Mutex<Settings>,
    /// [`Settings::watches`], for a quick check that there is nothing to do.
    watches: AtomicBool,
}

impl Default for Profiling {
    fn default() -> Self {
        Profiling::new(0, 1.0)
    }
}

impl Profiling {
    /// With this level for all databases, and this sample rate.
    pub fn new(default_level: i32, sample_rate: f64) -> Self {
        Profiling {
            settings: Mutex::new(Settings {
                default_level,
                levels: HashMap::new(),
                sample_rate,
                filters: HashMap::new(),
            }),
            watches: AtomicBool::new(default_level > 0),
        }
    }

    /// Reads or changes the settings.
    pub fn with<R>(&self, f: impl FnOnce(&mut Settings) -> R) -> R {
        let _staying = work::stay();
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut settings);
        self.watches.store(settings.watches(), Ordering::Relaxed);
        result
    }

    /// The settings of a database.
    pub fn of(&self, database: &str) -> Watch {
        let _staying = work::stay();
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        Watch {
            level: settings.level(database),
            filter: settings.filter(database).cloned(),
            sample_rate: settings.sample_rate,
        }
    }

    /// Whether operations of a database must be examined however fast they are.
    #[inline]
    pub fn watches(&self) -> bool {
        self.watches.load(Ordering::Relaxed)
    }

    /// A database was dropped: it has the defaults again.
    pub fn forget(&self, database: &str) {
        self.with(|settings| {
            settings.levels.remove(database);
            settings.filters.remove(database);
        });
    }
}
