//! Takes samples, packs them into chunks, and writes these to files. A full chunk, or one before a change of
//! fields, goes into the ring of files. The unfinished chunk goes into the interim file from time to time.
//!
//! An error loses the chunk, except for its part in the interim file. The next sample tries again.

use super::chunk::Chunk;
use super::files::{Files, Limits};
use kauri_bson::{DocBuf, Value};
use std::io::Result;
use std::path::{Path, PathBuf};

/// When chunks are written, and how much there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Samples of a chunk.
    pub samples_per_chunk: usize,
    /// Samples after which the interim file is replaced.
    pub samples_per_interim: usize,
    /// Of the files.
    pub limits: Limits,
}

/// See the module's head.
pub struct Recorder {
    files: Files,
    chunk: Option<Chunk>,
    /// When the newest sample was taken.
    newest_ms: i64,
}

impl Recorder {
    /// Records into this directory.
    pub fn new(place: PathBuf) -> Recorder {
        Recorder { files: Files::new(place), chunk: None, newest_ms: 0 }
    }

    /// The directory.
    pub fn place(&self) -> &Path {
        self.files.place()
    }

    /// When the newest sample was taken, in milliseconds since 1970.
    pub fn newest_ms(&self) -> i64 {
        self.newest_ms
    }

    /// Adds a sample, and returns whether any samples were written. `about` describes the server.
    pub fn add(
        &mut self,
        sample: DocBuf,
        about: &dyn Fn() -> DocBuf,
        rules: &Rules,
    ) -> Result<bool> {
        if let Value::DateTime(ms) = sample.as_doc().value("start") {
            self.newest_ms = ms;
        }
        self.files.open(about, self.newest_ms, rules.limits)?;
        let fits = self.chunk.as_mut().is_some_and(|chunk| chunk.add(sample.as_doc()));
        let before = if fits { Ok(false) } else { self.write_chunk(about, rules) };
        let chunk = self.chunk.get_or_insert_with(|| Chunk::new(sample));
        if chunk.is_full(rules.samples_per_chunk) {
            return before.and(self.write_chunk(about, rules));
        }
        if chunk.samples().is_multiple_of(rules.samples_per_interim) {
            let interim = chunk.to_doc()?;
            self.files.write_interim(&interim, rules.limits)?;
            return before.and(Ok(true));
        }
        before
    }

    /// Writes what there is. A later sample begins another file.
    pub fn finish(&mut self, about: &dyn Fn() -> DocBuf, rules: &Rules) -> Result<bool> {
        let written = self.write_chunk(about, rules);
        self.files.close();
        written
    }

    fn write_chunk(&mut self, about: &dyn Fn() -> DocBuf, rules: &Rules) -> Result<bool> {
        let Some(chunk) = self.chunk.take() else { return Ok(false) };
        self.files.append(&chunk.to_doc()?, about, self.newest_ms, rules.limits)?;
        Ok(true)
    }
}
