//! The collection of diagnostic data: a thread takes a sample of the server every second and keeps the samples of
//! the last days or weeks in the directory `diagnostic.data`, as mongod does and for the same tools.
//!
//! Workers take no part in it. An error costs samples and a log line.

mod chunk;
#[cfg(test)]
#[path = "../../tests/rig/diagnostic_data.rs"]
mod decode;
mod files;
mod recorder;
mod settings;
#[cfg(test)]
mod tests;

pub use settings::Settings;

use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, Result, work};
use kauri_bson::Doc;
use kauri_commands::Server;
use kauri_commands::cmds::diagnostic_data::{self, Source};
use kauri_transport::SessionManager;
use kauri_transport::upgrade::RdmaService;
use recorder::Recorder;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The directory, in the data directory.
pub const DIRECTORY: &str = "diagnostic.data";
const CTX: &str = "ftdc";

/// A running collection. Dropping it writes the pending samples and ends the thread.
pub struct Collection {
    settings: Arc<Settings>,
    thread: Option<JoinHandle<()>>,
}

impl Collection {
    /// Begins to collect into this directory.
    pub fn start(
        place: PathBuf,
        settings: Arc<Settings>,
        server: Arc<Server>,
        manager: &SessionManager,
    ) -> Result<Collection> {
        let collector = Collector {
            settings: settings.clone(),
            server,
            transport: manager.stats().clone(),
            rdma: manager.rdma(),
            recorder: Recorder::new(place),
            episode: Episode::default(),
        };
        let thread = work::thread("ftdc", move || collector.run()).map_err(|error| {
            Error::new(ErrorCode::InternalError, format!("cannot start a thread: {error}"))
        })?;
        Ok(Collection { settings, thread: Some(thread) })
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        self.settings.stop();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

struct Collector {
    settings: Arc<Settings>,
    server: Arc<Server>,
    transport: Arc<kauri_transport::ServiceStats>,
    rdma: Arc<RdmaService>,
    recorder: Recorder,
    episode: Episode,
}

impl Collector {
    fn run(mut self) {
        // The period of the newest sample, counted from 1970, so that several servers take theirs together.
        let mut newest = None;
        loop {
            let now = self.settings.now();
            if now.stopping || !now.enabled {
                let server = self.server.clone();
                let outcome = self.recorder.finish(&|| diagnostic_data::about(&server), &now.rules);
                self.tell(outcome);
                self.episode = Episode::default();
                newest = None;
                if now.stopping {
                    return;
                }
                self.settings.wait_for_change(now.version, None);
                continue;
            }
            let period = |ms: i64| Some((ms.div_euclid(now.period_ms), now.period_ms));
            if newest != period(self.server.clock.unix_ms()) {
                newest = period(self.take(&now.rules));
            }
            let passed = self.server.clock.unix_ms().rem_euclid(now.period_ms);
            let left = Duration::from_millis((now.period_ms - passed).unsigned_abs());
            self.settings.wait_for_change(now.version, Some(left));
        }
    }

    /// Takes a sample, and answers when.
    fn take(&mut self, rules: &recorder::Rules) -> i64 {
        let server = self.server.clone();
        let sample = diagnostic_data::sample(&Source {
            server: &server,
            transport: &self.transport,
            rdma: &self.rdma,
            body: Doc::EMPTY,
        });
        let about = || diagnostic_data::about(&server);
        let outcome = self.recorder.add(sample, &about, rules);
        self.tell(outcome);
        self.recorder.newest_ms()
    }

    fn tell(&mut self, outcome: std::io::Result<bool>) {
        let place = self.recorder.place().display().to_string();
        match self.episode.note(outcome) {
            Some(Notice::Fails(error)) => {
                let attr = Attr::new().str("path", place).str("error", error.to_string());
                let msg = "Cannot write diagnostic data; samples are lost until a write succeeds";
                log::warning("FTDC", 6_200_141, CTX, msg, attr);
            }
            Some(Notice::GoesOn) => {
                let attr = Attr::new().str("path", place);
                log::info("FTDC", 6_200_142, CTX, "Diagnostic data collection resumed", attr);
            }
            None => {}
        }
    }
}

/// A series of errors. The first one and the end of the series are logged.
#[derive(Default)]
struct Episode {
    is_on: bool,
}

enum Notice {
    Fails(std::io::Error),
    GoesOn,
}

impl Episode {
    /// Notes whether samples were written.
    fn note(&mut self, outcome: std::io::Result<bool>) -> Option<Notice> {
        let was_on = self.is_on;
        self.is_on = outcome.as_ref().map_or(true, |written| was_on && !written);
        match outcome {
            Err(error) => (!was_on).then_some(Notice::Fails(error)),
            Ok(_) => (was_on && !self.is_on).then_some(Notice::GoesOn),
        }
    }
}
