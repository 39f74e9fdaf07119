//! The sink of log lines: standard output or a file, which is rotated on request (`logRotate`, SIGUSR1).

use crate::options::Options;
use kauri_base::log::{self, Attr};
use kauri_base::{Clock, Error, ErrorCode, Result};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const CTX: &str = "logrotate";

/// The treatment of the old file at a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// Moves it aside, by the time.
    Rename,
    /// No action: the operator has moved the file. The path is opened again.
    Reopen,
}

/// The log of the process.
#[derive(Clone)]
pub struct Log(Arc<Output>);

struct Output {
    /// None for standard output.
    file: Option<LogFile>,
    clock: Arc<dyn Clock>,
}

struct LogFile {
    path: PathBuf,
    rotation: Rotation,
    open: Mutex<File>,
}

/// Sends log lines where the options say.
pub fn install(options: &Options, clock: &Arc<dyn Clock>) -> Result<Log> {
    log::set_verbosity(options.number("systemLog.verbosity", 0).min(5) as u8);
    let append = options.flag("systemLog.logAppend", false);
    let rotation = match options.text("systemLog.logRotate", "rename").as_str() {
        "reopen" => Rotation::Reopen,
        _ => Rotation::Rename,
    };
    install_to(options.given("systemLog.path"), append, rotation, clock)
}

/// Sends log lines to this file, or to standard output.
pub fn install_to(
    path: Option<&str>,
    append: bool,
    rotation: Rotation,
    clock: &Arc<dyn Clock>,
) -> Result<Log> {
    let file = match path {
        None => None,
        Some(path) => {
            let path = PathBuf::from(path);
            if !append {
                move_aside(&path, clock.unix_ms())?;
            }
            Some(LogFile { open: Mutex::new(open(&path)?), path, rotation })
        }
    };
    let output = Arc::new(Output { file, clock: clock.clone() });
    let (lines, clock) = (output.clone(), clock.clone());
    log::install(Box::new(move |_, line| lines.write(line)), Box::new(move || clock.unix_ms()));
    Ok(Log(output))
}

impl Output {
    fn write(&self, line: &str) {
        let line = format!("{line}\n");
        // A log that can't be written must not stop the server.
        let _ = match &self.file {
            Some(file) => {
                file.open.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
            }
            None => std::io::stdout().write_all(line.as_bytes()),
        };
    }
}

impl Log {
    /// Goes on in a new file; the line about it has the operator's comment, which is JSON. Standard output stays
    /// as it is.
    pub fn rotate(&self, comment: Option<&str>) -> Result<()> {
        let suffix = time_suffix(self.0.clock.unix_ms());
        let mut attr = Attr::new().str("suffix", &suffix);
        if let Some(comment) = comment {
            attr = attr.json("comment", comment);
        }
        log::info("CONTROL", 23166, CTX, "Log rotation initiated", attr);
        let Some(file) = &self.0.file else { return Ok(()) };
        let rotated = self.replace(file);
        if let Err(error) = &rotated {
            let attr = Attr::new().str("error", error.message());
            log::error("CONTROL", 23168, CTX, "Log rotation failed", attr);
            return rotated;
        }
        // A new file says whose it is.
        let attr = Attr::new()
            .num("pid", std::process::id())
            .str("version", kauri_commands::server::VERSION);
        log::info("CONTROL", 20721, CTX, "Process Details", attr);
        rotated
    }

    fn replace(&self, file: &LogFile) -> Result<()> {
        // Lines wait meanwhile. None goes to the file that has been moved.
        let mut now = file.open.lock().unwrap_or_else(PoisonError::into_inner);
        if file.rotation == Rotation::Rename {
            move_aside(&file.path, self.0.clock.unix_ms())?;
        }
        *now = open(&file.path)?;
        Ok(())
    }
}

/// Renames the file, if it exists. An existing target is not overwritten.
fn move_aside(path: &Path, unix_ms: i64) -> Result<()> {
    let mut target = path.as_os_str().to_owned();
    target.push(format!(".{}", time_suffix(unix_ms)));
    let fail = |why: String| {
        let message = format!(
            "Renaming file {} to {} failed; {why}",
            path.display(),
            Path::new(&target).display()
        );
        Error::new(ErrorCode::FileRenameFailed, message)
    };
    if Path::new(&target).exists() && path.exists() {
        return Err(fail("destination already exists".to_owned()));
    }
    match std::fs::rename(path, &target) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(fail(error.to_string())),
        _ => Ok(()),
    }
}

/// `2026-01-31T12-00-00`, in UTC.
fn time_suffix(unix_ms: i64) -> String {
    let mut text = String::new();
    log::write_iso_date(&mut text, unix_ms);
    text.truncate("2026-01-31T12:00:00".len());
    text.replace(':', "-")
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).map_err(|error| {
        let message = format!("cannot open the log file {}: {error}", path.display());
        Error::new(ErrorCode::FileOpenFailed, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::clock::SystemClock;

    /// A log of its own, which is not the process's.
    fn log_to(path: &Path, rotation: Rotation) -> Log {
        let file =
            LogFile { open: Mutex::new(open(path).unwrap()), path: path.to_owned(), rotation };
        Log(Arc::new(Output { file: Some(file), clock: Arc::new(SystemClock::new()) }))
    }

    fn place(name: &str) -> PathBuf {
        let place = std::env::temp_dir().join(format!("kauri-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).unwrap();
        place
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn a_rotation_by_name_moves_the_file_aside_and_overwrites_none() {
        let place = place("rename");
        let path = place.join("log");
        let log = log_to(&path, Rotation::Rename);
        log.0.write("one");
        log.rotate(None).unwrap();
        log.0.write("two");
        let aside: Vec<_> = std::fs::read_dir(&place).unwrap().flatten().collect();
        let aside = aside.iter().find(|entry| entry.path() != path).unwrap().path();
        assert_eq!((read(&path), read(&aside)), ("two\n".to_owned(), "one\n".to_owned()));
        let name = aside.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(
            name.starts_with("log.20") && name.len() == "log.2026-01-31T12-00-00".len(),
            "{name}"
        );
        // The operator has deleted it: there is nothing to move.
        std::fs::remove_file(&path).unwrap();
        log.rotate(None).unwrap();
        log.0.write("three");
        assert_eq!(read(&path), "three\n");
        std::fs::write(&path, "new").unwrap();
        let target = place.join(format!("log.{}", time_suffix(0)));
        std::fs::write(target, "old").unwrap();
        let error = move_aside(&path, 0).unwrap_err();
        assert_eq!(error.code(), ErrorCode::FileRenameFailed);
        assert!(error.message().ends_with("destination already exists"), "{error}");
        assert_eq!(read(&path), "new");
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_rotation_by_reopening_follows_the_operators_rename() {
        let place = place("reopen");
        let (path, moved) = (place.join("log"), place.join("moved"));
        let log = log_to(&path, Rotation::Reopen);
        log.0.write("one");
        std::fs::rename(&path, &moved).unwrap();
        log.0.write("two");
        log.rotate(None).unwrap();
        log.0.write("three");
        assert_eq!((read(&path), read(&moved)), ("three\n".to_owned(), "one\ntwo\n".to_owned()));
        std::fs::remove_dir_all(&place).unwrap();
    }
}
