//! The files of diagnostic data: `metrics.<time>-<number>`, each filled up to its limit, and `metrics.interim`,
//! which has the unfinished chunk.
//!
//! A file begins with a document about the server, or with the chunk that a killed process left in the interim
//! file. The interim file is replaced as a whole. Nothing is synced: a power loss may tear the last file. A later
//! process never appends to it.
//!
//! Invariant: before bytes are written, the oldest files are deleted until the directory has space for the bytes. A
//! file takes at most half of the directory's limit, so there is always one to delete.

use super::chunk;
use kauri_base::{limits, log};
use kauri_bson::{Doc, DocBuf, validate};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

const PREFIX: &str = "metrics.";
const INTERIM: &str = "metrics.interim";
const INTERIM_NEW: &str = "metrics.interim.temp";
/// Files that begin in the same second have different numbers.
const NUMBERS: u32 = 100_000;

/// The most bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Of one file.
    pub file_bytes: u64,
    /// Of all files together.
    pub all_bytes: u64,
}

/// See the module's head.
pub struct Files {
    place: PathBuf,
    current: Option<Current>,
}

/// The file that chunks are appended to.
struct Current {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Current {
    /// Appends these bytes. After an error the file is restored if possible.
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match self.file.write_all(bytes) {
            Ok(()) => self.bytes += bytes.len() as u64,
            Err(error) => {
                let _ = self.file.set_len(self.bytes);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether it still has its name, and nothing but whole documents: behind a torn one readers see nothing.
    fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|file| file.len() == self.bytes)
    }
}

impl Files {
    /// The files in this directory, which need not exist.
    pub fn new(place: PathBuf) -> Files {
        Files { place, current: None }
    }

    /// The directory.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Begins a file if none is open. The contents of the interim file go into it first.
    pub fn open(&mut self, about: &dyn Fn() -> DocBuf, now_ms: i64, limits: Limits) -> Result<()> {
        if self.current.is_some() {
            return Ok(());
        }
        self.make_directory()?;
        let mut bytes = self.left_over()?.map(DocBuf::into_vec).unwrap_or_default();
        bytes.extend_from_slice(chunk::head(&about(), now_ms).as_bytes());
        self.begin(&bytes, now_ms, limits)?;
        remove_if_there(&self.place.join(INTERIM))
    }

    /// Appends a chunk to the open file, or to a new one where that would become too long or is gone. The interim
    /// file goes.
    pub fn append(
        &mut self,
        chunk: &DocBuf,
        about: &dyn Fn() -> DocBuf,
        now_ms: i64,
        limits: Limits,
    ) -> Result<()> {
        let bytes = chunk.as_bytes();
        let file_max = limits.file_bytes.min(limits.all_bytes / 2);
        let room = file_max.saturating_sub(bytes.len() as u64);
        match self.current.take().filter(|current| current.bytes <= room && current.is_there()) {
            Some(mut current) => {
                self.make_room(bytes.len(), Some(&current.path), limits)?;
                let written = current.append(bytes);
                self.current = Some(current);
                written?;
            }
            None => {
                let mut all = chunk::head(&about(), now_ms).into_vec();
                all.extend_from_slice(bytes);
                self.begin(&all, now_ms, limits)?;
            }
        }
        remove_if_there(&self.place.join(INTERIM))
    }

    /// Replaces the chunk in the making.
    pub fn write_interim(&self, chunk: &DocBuf, limits: Limits) -> Result<()> {
        let current = self.current.as_ref().map(|current| current.path.as_path());
        self.make_room(chunk.as_bytes().len(), current, limits)?;
        let new = self.place.join(INTERIM_NEW);
        fs::write(&new, chunk.as_bytes())?;
        fs::rename(new, self.place.join(INTERIM))
    }

    /// Later writes go into another file.
    pub fn close(&mut self) {
        self.current = None;
    }

    fn make_directory(&self) -> Result<()> {
        if self.place.is_dir() { Ok(()) } else { fs::create_dir(&self.place) }
    }

    /// Begins a file with these bytes.
    fn begin(&mut self, bytes: &[u8], now_ms: i64, limits: Limits) -> Result<()> {
        self.make_room(bytes.len(), None, limits)?;
        let time = file_time(now_ms);
        for number in 0..NUMBERS {
            let path = self.place.join(format!("{PREFIX}{time}-{number:05}"));
            let mut file = match OpenOptions::new().append(true).create_new(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            if let Err(error) = file.write_all(bytes) {
                drop(file);
                let _ = fs::remove_file(path);
                return Err(error);
            }
            self.current = Some(Current { path, file, bytes: bytes.len() as u64 });
            return Ok(());
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Deletes the oldest files, but not the current one, until `bytes` more are within the limit.
    fn make_room(&self, bytes: usize, current: Option<&Path>, limits: Limits) -> Result<()> {
        self.make_directory()?;
        let all = list(&self.place)?;
        let mut after = all.iter().map(|file| file.bytes).sum::<u64>() + bytes as u64;
        for file in all.iter().filter(|file| !file.is_interim()) {
            if after <= limits.all_bytes {
                break;
            }
            if current != Some(&file.path) {
                fs::remove_file(&file.path)?;
                after -= file.bytes;
            }
        }
        Ok(())
    }

    /// The chunk in the interim file, unless it is damaged or in the last file as well: then the process was killed
    /// between the two writes.
    fn left_over(&self) -> Result<Option<DocBuf>> {
        let Some(bytes) = read(&self.place.join(INTERIM))? else { return Ok(None) };
        let is_valid = |doc: &Doc<'_>| chunk::is_chunk(*doc);
        let Some(left) = validate(&bytes, limits::DOCUMENT_DEPTH_MAX).ok().filter(is_valid) else {
            return Ok(None);
        };
        let last = list(&self.place)?.into_iter().rfind(|file| !file.is_interim());
        if let Some(last) = last
            && let Some(bytes) = read(&last.path)?
            && chunks(&bytes).any(|chunk| chunk.value("_id") == left.value("_id"))
        {
            return Ok(None);
        }
        Ok(Some(left.to_buf()))
    }
}

/// A file in the directory.
struct Found {
    path: PathBuf,
    bytes: u64,
}

impl Found {
    fn is_interim(&self) -> bool {
        self.path.ends_with(INTERIM) || self.path.ends_with(INTERIM_NEW)
    }
}

/// The files, oldest first. Files with other names are ignored.
fn list(place: &Path) -> Result<Vec<Found>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let metadata = entry.metadata()?;
        if is_ours && metadata.is_file() {
            all.push(Found { path: entry.path(), bytes: metadata.len() });
        }
    }
    all.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(all)
}

/// The chunks in a file, up to where it is torn.
fn chunks(mut bytes: &[u8]) -> impl Iterator<Item = Doc<'_>> {
    let docs = std::iter::from_fn(move || {
        let (doc, rest) = Doc::split_prefix(bytes).ok()?;
        bytes = rest;
        Some(doc)
    });
    docs.filter(|doc| chunk::is_chunk(*doc))
}

/// The contents of a file; nothing if it is missing or longer than this module writes.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Ok(file) if file.is_file() && file.len() <= limits::DIAGNOSTIC_READ_BYTES_MAX => {
            fs::read(path).map(Some)
        }
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(None),
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// `2026-01-31T12-00-00Z`
fn file_time(unix_ms: i64) -> String {
    let mut text = String::new();
    log::write_iso_date(&mut text, unix_ms);
    text.truncate("2026-01-31T12:00:00".len());
    text.replace(':', "-") + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::doc;

    #[test]
    fn a_full_disk_leaves_whole_documents() {
        let place = std::env::temp_dir().join(format!("kauri-ftdc-full-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let limits = Limits { file_bytes: 1 << 20, all_bytes: 10 << 20 };
        let about = || doc! {};
        let chunk = doc! { "_id" => 1, "type" => 1, "data" => "x" };
        let mut files = Files::new(place.clone());
        files.append(&chunk, &about, 0, limits).unwrap();
        let path = files.current.as_ref().unwrap().path.clone();
        let before = fs::read(&path).unwrap();
        // A file that takes nothing.
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let good = std::mem::replace(&mut files.current.as_mut().unwrap().file, full());
        let error = files.append(&chunk, &about, 0, limits).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), before);
        // It goes on in the same file once there is room.
        files.current.as_mut().unwrap().file = good;
        files.append(&chunk, &about, 0, limits).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [&before, chunk.as_bytes()].concat());
        // A part of a chunk that cannot be cut off ends the file.
        let mut current = files.current.take().unwrap();
        current.file.write_all(b"torn").unwrap();
        current.file = full();
        files.current = Some(current);
        files.append(&chunk, &about, 0, limits).unwrap();
        assert_ne!(files.current.as_ref().unwrap().path, path);
        fs::remove_dir_all(place).unwrap();
    }
}
