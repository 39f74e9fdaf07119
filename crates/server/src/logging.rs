//! Where log lines go: standard output or a file.

use crate::options::Options;
use kauri_base::log;
use kauri_base::{Clock, Error, ErrorCode, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Sends log lines where the options say.
pub fn install(options: &Options, clock: &Arc<dyn Clock>) -> Result<()> {
    log::set_verbosity(options.number("systemLog.verbosity", 0).min(5) as u8);
    let append = options.flag("systemLog.logAppend", false);
    install_to(options.given("systemLog.path"), append, clock)
}

/// Sends log lines to this file, or to standard output.
pub fn install_to(path: Option<&str>, append: bool, clock: &Arc<dyn Clock>) -> Result<()> {
    let file = match path {
        None => None,
        Some(path) => Some(Mutex::new(open(path, append)?)),
    };
    let clock = clock.clone();
    log::install(
        Box::new(move |_, line| {
            // A log that can't be written must not stop the server.
            let _ = match &file {
                Some(file) => {
                    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                    file.write_all(format!("{line}\n").as_bytes())
                }
                None => std::io::stdout().write_all(format!("{line}\n").as_bytes()),
            };
        }),
        Box::new(move || clock.unix_ms()),
    );
    Ok(())
}

fn open(path: &str, append: bool) -> Result<File> {
    let fail = |error: std::io::Error| {
        Error::new(ErrorCode::FileOpenFailed, format!("cannot open the log file {path}: {error}"))
    };
    if !append && std::path::Path::new(path).exists() {
        let seconds = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        std::fs::rename(path, format!("{path}.{seconds}")).map_err(fail)?;
    }
    OpenOptions::new().create(true).append(true).open(path).map_err(fail)
}
