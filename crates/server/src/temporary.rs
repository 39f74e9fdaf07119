//! The directory for spilled data: `_tmp` in the data directory, as in MongoDB.
//!
//! An engine without a data directory uses the system's directory for temporary files.

use crate::options::Options;
use kauri_base::log::{self, Attr};
use kauri_base::{Error, Result, limits};
use kauri_bson::Value;
use kauri_commands::parameters::{Kind, Parameter, Parameters};
use kauri_medium::temporary::{TEMPORARY_DIRECTORY, TemporaryDirectory, remove_files};
use std::path::PathBuf;
use std::sync::Arc;

/// Opens it; the data directory's lock must be held, since what a server that died has left is removed.
pub fn open(options: &Options) -> Result<TemporaryDirectory> {
    if options.text("storage.engine", "pmlog") == "ephemeralForTest" {
        return begin(std::env::temp_dir());
    }
    let path = PathBuf::from(options.text("storage.dbPath", "/data/db")).join(TEMPORARY_DIRECTORY);
    if let Err(error) = remove_files(&path) {
        // A server whose queries fit into memory does not need it.
        let attr = Attr::new().str("path", path.display().to_string());
        let attr = attr.str("error", error.to_string());
        log::warning(
            "STORAGE",
            6_200_213,
            "initandlisten",
            "Cannot delete old temporary files",
            attr,
        );
    }
    begin(path)
}

/// Begins its threads: before there are workers, whose cores they must not share.
fn begin(path: PathBuf) -> Result<TemporaryDirectory> {
    TemporaryDirectory::open(path)
        .map_err(|error| Error::from(error).context("Cannot start the threads that spill to disk"))
}

/// The parameter for the free space that temporary files leave on their file system.
pub fn define_parameters(parameters: &Parameters, directory: &Arc<TemporaryDirectory>) {
    let directory = Arc::downgrade(directory);
    let hook = move |value: &Value<'_>| {
        let bytes = value.to_i64_saturating().and_then(|bytes| u64::try_from(bytes).ok());
        if let Some(directory) = directory.upgrade() {
            directory.keep_free(bytes.unwrap_or(0));
        }
        Ok(())
    };
    let bytes = Value::Int64(limits::SPILL_FREE_BYTES_MIN as i64);
    let parameter = Parameter::new(bytes, Kind::Long(0, i64::MAX)).with_hook(Arc::new(hook));
    parameters.define("internalQuerySpillingMinAvailableDiskSpaceBytes", parameter);
}
