//! A copy of another engine's files takes the place of this directory's.

use crate::format::{LOG_FILE, MARK_FILE, META_FILE, STAGING_FILE};
use kauri_medium::{Directory, Error, Result};

/// Files of a [`kauri_storage::LogCopy`] were written with this before their names, and are durable: they become the
/// engine's own, which are gone. The engine is not open. What a crash has interrupted is to be called again; so the
/// caller keeps a sign that it is not done.
pub fn install_copy(directory: &dyn Directory, prefix: &str) -> Result<()> {
    for name in [LOG_FILE, META_FILE] {
        let copied = format!("{prefix}{name}");
        let found = directory.rename_file(&copied, name, "install.copy");
        // It was renamed before.
        found.or_else(ignore_missing)?;
    }
    for name in [STAGING_FILE, MARK_FILE] {
        directory.remove_file(name, "install.copy").or_else(ignore_missing)?;
    }
    Ok(())
}

fn ignore_missing(error: Error) -> Result<()> {
    if error == Error::NotFound { Ok(()) } else { Err(error) }
}
