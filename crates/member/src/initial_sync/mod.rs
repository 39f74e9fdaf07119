//! Initial sync: a member without data copies the engine's files of the leader, and begins again with them.
//!
//! | module | holds |
//! |---|---|
//! | [`message`] | what receiver and source say |
//! | [`source`] | the copies that a leader gives |
//! | [`receiver`] | the copy that a member takes |
//!
//! The receiver asks for pieces, several at a time, and asks again for what does not come. It writes them to files of
//! its data directory whose names begin with [`PREFIX`]; its engine is open, and empty. Once all is durable it writes
//! its state file, with the prefix too, and its process begins again: [`finish`] gives the files their places before the
//! engine is opened. A source that does not lead any more forgets its copies, and so does the receiver: it is invited
//! again, and begins anew.

pub mod message;
pub mod receiver;
pub mod source;

use crate::{checkpoint, stored};
use kauri_medium::{Directory, Error, Result};

/// What the names of copied files begin with.
pub const PREFIX: &str = "initial-sync.";
const SITE: kauri_medium::Site = "member.initial_sync";

fn prefixed(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Whether an initial sync is complete, and [`finish`] has something to do.
pub fn is_complete(directory: &dyn Directory) -> Result<bool> {
    Ok(directory.read_file(&prefixed(stored::FILE))?.is_some())
}

/// Ends an initial sync whose files are complete, and answers whether there was one. `install` gives the engine's files
/// their places: it is told what their names begin with, and may be called again after a crash. The engine is not open.
pub fn finish(directory: &dyn Directory, install: impl FnOnce(&str) -> Result<()>) -> Result<bool> {
    if !is_complete(directory)? {
        return Ok(false);
    }
    install(PREFIX)?;
    match directory.rename_file(&prefixed(checkpoint::FILE), checkpoint::FILE, SITE) {
        Err(Error::NotFound) => {}
        renamed => renamed?,
    }
    directory.rename_file(&prefixed(stored::FILE), stored::FILE, SITE)?;
    Ok(true)
}

/// Removes the files of an initial sync that is not complete. What would say that it is goes first.
pub fn discard(directory: &dyn Directory) -> Result<()> {
    let complete = prefixed(stored::FILE);
    let names = directory.list()?;
    let (first, others): (Vec<_>, Vec<_>) =
        names.iter().filter(|name| name.starts_with(PREFIX)).partition(|name| **name == complete);
    first.into_iter().chain(others).try_for_each(|name| directory.remove_file(name, SITE))
}
