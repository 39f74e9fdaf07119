//! `--leaveReplSet`: a member's data directory becomes that of a server alone.
//!
//! Everything in the member's log counts, as with a forced reconfiguration, also what the set may not have kept. The
//! directory then has no trace of the set: it may be started alone, or begin another set.
//!
//! Invariant: a marker file is there from before the first change until after the last one. Meanwhile the directory
//! serves nothing; the command may be repeated.

use crate::engine::Engine;
use crate::options::Options;
use crate::set;
use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::log::{self, Attr};
use kauri_base::{CommitSeq, Error, ErrorCode, Result};
use kauri_catalog::Catalog;
use kauri_medium::Directory;
use kauri_member::stored::StateFile;
use kauri_member::{checkpoint, initial_sync};
use kauri_storage::{
    AppliedChange, AppliedUnits, Backend, LocalCommitter, StorageEngine, StorageError,
};
use std::sync::Arc;

const CTX: &str = "initandlisten";
const SITE: kauri_medium::Site = "server.leave";

/// See the module's head.
pub fn run(options: &Options) -> Result<()> {
    let path = options.text("storage.dbPath", "/data/db");
    let attr = || Attr::new().str("dbPath", &path);
    set::install_copied_files(options)?;
    let directory: Arc<dyn Directory> = Arc::new(set::directory(options)?);
    let file = StateFile::new(directory.clone());
    if !set::is_leaving(&*directory)? && file.read()?.is_none() {
        let message = "The data directory is not of a member of a replica set. Nothing was changed";
        log::info("REPL", 6_400_019, CTX, message, attr());
        return Ok(());
    }
    let mut engine = Engine::open(options)?;
    engine.start_maintenance()?;
    directory.replace_file(set::LEAVING_FILE, b"", SITE)?;
    apply_all(&engine.storage)?;
    engine.storage.replicated_log()?.end_frames()?;
    for name in [checkpoint::FILE, kauri_member::stored::FILE] {
        remove(&*directory, name)?;
    }
    initial_sync::discard(&*directory)?;
    remove(&*directory, set::LEAVING_FILE)?;
    engine.close()?;
    let message = "The data directory has left its replica set. Start it without --replSet, or begin another set with it";
    log::info("REPL", 6_400_020, CTX, message, attr());
    Ok(())
}

fn remove(directory: &dyn Directory, name: &str) -> Result<()> {
    match directory.remove_file(name, SITE) {
        Err(kauri_medium::Error::NotFound) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Applies the whole log, with the indexes that the catalog has.
fn apply_all(engine: &Arc<dyn StorageEngine>) -> Result<()> {
    let log = engine.replicated_log()?;
    let last = log.frames().last.index;
    if last == 0 {
        return Ok(());
    }
    let (clock, random) = (Arc::new(SystemClock::new()), Arc::new(SeededRandom::from_entropy()));
    let committer = Arc::new(LocalCommitter(engine.clone()));
    let backend = Backend::new(engine.clone(), committer, clock, random);
    let mut applier = Applier { catalog: Catalog::open_member(&backend)?, backend };
    log.commit_frames(last);
    while log.apply_frame(&mut applier)?.is_some() {}
    log.lead().map_err(|error| {
        let message = format!("the log of the replica set was not applied to its end: {error}");
        Error::new(ErrorCode::OperationFailed, message)
    })
}

struct Applier {
    catalog: Catalog,
    backend: Arc<Backend>,
}

impl AppliedUnits for Applier {
    fn applied(&mut self, _: CommitSeq, changes: &[AppliedChange]) -> Result<(), StorageError> {
        let applied = self.catalog.applied(&mut self.backend.scope(), changes);
        applied.map_err(|error| StorageError::Io(format!("the catalog: {error}")))
    }
}
