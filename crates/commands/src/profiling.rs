//! Levels of the profiler: which operations of a database are logged as slow.
//!
//! Nothing is written to `system.profile`; `slowms` and `sampleRate` decide what is logged.

use kauri_base::{Result, bail, limits, work};
use kauri_bson::DocBuf;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// What `profile` sets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Level by database; 0 for those that are not in it.
    levels: HashMap<String, i32>,
    /// The part of slow operations that is logged, 0 to 1.
    pub sample_rate: f64,
    /// Which operations the profiler looks at instead of the slow ones, by database.
    filters: HashMap<String, DocBuf>,
}

impl Settings {
    /// A database's level.
    pub fn level(&self, database: &str) -> i32 {
        self.levels.get(database).copied().unwrap_or(0)
    }

    /// A database's filter.
    pub fn filter(&self, database: &str) -> Option<&DocBuf> {
        self.filters.get(database)
    }

    /// Sets a database's filter, or removes it.
    pub fn set_filter(&mut self, database: &str, filter: Option<DocBuf>) -> Result<()> {
        let Some(filter) = filter else {
            self.filters.remove(database);
            return Ok(());
        };
        let others = self.filters.iter().filter(|(other, _)| *other != database);
        let bytes: usize =
            others.map(|(name, doc)| name.len() + doc.as_doc().as_bytes().len()).sum();
        let (new, max) = (filter.as_doc().as_bytes().len(), limits::PROFILE_FILTERS_BYTES_MAX);
        if bytes + database.len() + new > max {
            bail!(
                ExceededMemoryLimit,
                "The profiler's filters may take {max} bytes, of all databases"
            );
        }
        self.filters.insert(database.to_owned(), filter);
        Ok(())
    }

    /// Sets a database's level.
    pub fn set_level(&mut self, database: &str, level: i32) {
        if level == 0 {
            self.levels.remove(database);
        } else {
            self.levels.insert(database.to_owned(), level);
        }
    }
}

/// The settings of the server.
pub struct Profiling(Mutex<Settings>);

impl Default for Profiling {
    fn default() -> Self {
        Profiling(Mutex::new(Settings {
            levels: HashMap::new(),
            sample_rate: 1.0,
            filters: HashMap::new(),
        }))
    }
}

impl Profiling {
    /// Looks at the settings, or changes them.
    pub fn with<R>(&self, f: impl FnOnce(&mut Settings) -> R) -> R {
        let _staying = work::stay();
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
