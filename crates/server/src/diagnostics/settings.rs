//! The collection's server parameters. A change wakes the collecting thread.

use super::files::Limits;
use super::recorder::Rules;
use kauri_base::{Result, bail};
use kauri_bson::Value;
use kauri_commands::cmds::diagnostic_data::ENABLED;
use kauri_commands::parameters::{Kind, Parameter, Parameters};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const MB: u64 = 1 << 20;

/// The settings at one moment.
#[derive(Clone, Copy)]
pub struct Now {
    /// Whether samples are taken.
    pub enabled: bool,
    /// Time from one to the next.
    pub period_ms: i64,
    /// What becomes of them.
    pub rules: Rules,
    /// Whether the collection is to end.
    pub stopping: bool,
    /// Counts the changes.
    pub version: u64,
}

/// See the module's head.
pub struct Settings {
    now: Mutex<Now>,
    changed: Condvar,
}

impl Default for Settings {
    fn default() -> Self {
        let limits = Limits { file_bytes: 10 * MB, all_bytes: 200 * MB };
        let rules = Rules { samples_per_chunk: 300, samples_per_interim: 10, limits };
        let now = Now { enabled: true, period_ms: 1000, rules, stopping: false, version: 0 };
        Settings { now: Mutex::new(now), changed: Condvar::new() }
    }
}

type Set = fn(&mut Now, u64) -> Result<()>;

/// Names, least values, how they are read and set.
const PARAMETERS: [(&str, i32, fn(&Now) -> u64, Set); 5] = [
    (
        "diagnosticDataCollectionPeriodMillis",
        100,
        |now| now.period_ms.unsigned_abs(),
        |now, millis| {
            now.period_ms = millis as i64;
            Ok(())
        },
    ),
    (
        "diagnosticDataCollectionSamplesPerChunk",
        2,
        |now| now.rules.samples_per_chunk as u64,
        |now, samples| {
            now.rules.samples_per_chunk = samples as usize;
            Ok(())
        },
    ),
    (
        "diagnosticDataCollectionSamplesPerInterimUpdate",
        2,
        |now| now.rules.samples_per_interim as u64,
        |now, samples| {
            now.rules.samples_per_interim = samples as usize;
            Ok(())
        },
    ),
    (DIRECTORY_SIZE, 10, |now| now.rules.limits.all_bytes / MB, set_directory_size),
    (FILE_SIZE, 1, |now| now.rules.limits.file_bytes / MB, set_file_size),
];

const DIRECTORY_SIZE: &str = "diagnosticDataCollectionDirectorySizeMB";
const FILE_SIZE: &str = "diagnosticDataCollectionFileSizeMB";

fn set_directory_size(now: &mut Now, mb: u64) -> Result<()> {
    let file_mb = now.rules.limits.file_bytes / MB;
    if mb < file_mb {
        bail!(
            BadValue,
            "{DIRECTORY_SIZE} must be greater than or equal to '{file_mb}' which is the current value of {FILE_SIZE}."
        );
    }
    now.rules.limits.all_bytes = mb * MB;
    Ok(())
}

fn set_file_size(now: &mut Now, mb: u64) -> Result<()> {
    let all_mb = now.rules.limits.all_bytes / MB;
    if mb > all_mb {
        bail!(
            BadValue,
            "{FILE_SIZE} must be less than or equal to '{all_mb}' which is the current value of {DIRECTORY_SIZE}."
        );
    }
    now.rules.limits.file_bytes = mb * MB;
    Ok(())
}

impl Settings {
    /// Defines the parameters, and follows them from now on.
    pub fn define_parameters(self: &Arc<Self>, parameters: &Parameters) {
        for (name, min, get, set) in PARAMETERS {
            let value = Value::Int32(get(&self.now()) as i32);
            let settings = Arc::clone(self);
            let hook = move |value: &Value<'_>| {
                let value = value.to_i64_saturating().unwrap_or(0).unsigned_abs();
                settings.change(|now| set(now, value))
            };
            let parameter = Parameter::new(value, Kind::Int(min, i32::MAX));
            parameters.define(name, parameter.with_hook(Arc::new(hook)));
        }
        let settings = Arc::clone(self);
        let hook = move |value: &Value<'_>| {
            settings.change(|now| {
                now.enabled = value.truthy();
                Ok(())
            })
        };
        parameters.on_change(ENABLED, Arc::new(hook));
    }

    /// The settings as they are.
    pub fn now(&self) -> Now {
        *self.lock()
    }

    /// Has the collection end.
    pub fn stop(&self) {
        let stopped = self.change(|now| {
            now.stopping = true;
            Ok(())
        });
        debug_assert!(stopped.is_ok());
    }

    /// Waits until the settings are others than those of this version; no longer than `most`, if that is given.
    pub fn wait_for_change(&self, version: u64, most: Option<Duration>) {
        let is_old = |now: &mut Now| now.version == version;
        let now = self.lock();
        match most {
            Some(most) => drop(self.changed.wait_timeout_while(now, most, is_old)),
            None => drop(self.changed.wait_while(now, is_old)),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Now) -> Result<()>) -> Result<()> {
        let mut now = self.lock();
        change(&mut now)?;
        now.version += 1;
        self.changed.notify_all();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
