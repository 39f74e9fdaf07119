//! Memory of an engine outside of its cache, measured in a separate process, so that nothing else grows or shrinks.

use super::subject::{Opening, Scratch, Subject};
use super::table::{Goal, Line};
use super::workload::{Collection, Documents};
use super::{Kind, Settings};
use kauri_base::{Error, ErrorCode, Result};
use std::process::{Command, Stdio};

/// Small, so that the cache's own bookkeeping is.
const CACHE_BYTES: u64 = 64 << 20;

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::OperationFailed, message)
}

/// Starts this program once for each engine: `bench engine --memory-of ENGINE`.
pub fn measure(settings: &Settings) -> Result<Vec<Line>> {
    let name = "memory beside the cache, a document with an int64 _id";
    let mut line = Line::new(name, "B", Goal::AtMost(40.0));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    for kind in &settings.kinds {
        let output = Command::new(&program)
            .args(["bench", "engine", "--memory-of", kind.name()])
            .args(["--documents", &settings.documents.to_string()])
            .args(["--bytes", &settings.document_bytes.to_string()])
            .arg("--dir")
            .arg(&settings.directory)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figure = text.lines().last().and_then(|line| line.trim().parse().ok());
        let figure = figure.ok_or_else(|| failed("the process that measures memory failed"))?;
        line.set(*kind, figure);
    }
    line.remark("growth of the resident memory without what the cache says that it holds");
    Ok(vec![line])
}

/// Bytes a document beside the cache, of this process.
pub fn of(kind: Kind, settings: &Settings) -> Result<f64> {
    let scratch = Scratch::new(&settings.directory)?;
    let opening =
        Opening { cache_bytes: CACHE_BYTES, segment_bytes: 4 << 20, ..Opening::default() };
    let subject = Subject::open(kind, scratch.path(), &opening)?;
    let collection = Collection::create(&subject)?;
    let mut docs = Documents::new(settings.document_bytes, settings.seed);
    let resident =
        || crate::cpu::resident_bytes(std::process::id()).ok_or_else(|| failed("no resident size"));
    let cached = || match kind {
        Kind::PmLog => subject.figure("cache", "residentBytes"),
        Kind::WiredTiger => subject.figure("cache", "bytes currently in the cache"),
    };
    let before = resident()? as f64 - cached() as f64;
    collection.load(&mut docs, 0, settings.documents as i64, 100)?;
    subject.checkpoint()?;
    let after = resident()? as f64 - cached() as f64;
    drop(collection);
    subject.close()?;
    Ok((after - before) / settings.documents as f64)
}
