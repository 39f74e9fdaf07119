//! The copy that a member takes.

use super::message::{Content, File, PIECE_BYTES, Piece};
use super::{PREFIX, discard, prefixed};
use crate::stored::{self, StateFile, Stored};
use kauri_base::{Error, ErrorCode, Result};
use kauri_medium::{Directory, Medium, Site};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

const SITE: Site = "member.initial_sync";
/// Pieces that are asked for at the same time.
const AHEAD: usize = 8;
/// Between two wishes for a copy.
const AGAIN_NS: u64 = 1_000_000_000;
/// Time without a piece after which those that have not come are asked for again: a slow link has them in its queue.
const PIECES_AGAIN_NS: u64 = 3_000_000_000;
/// Time without a word after which the source is given up.
const SILENT_NS: u64 = 30_000_000_000;
/// Bytes of the log between two syncs.
const SYNC_BYTES: u64 = 64 << 20;

/// How far a copy is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The source's address.
    pub source: String,
    /// When it began, in milliseconds since 1970.
    pub began_ms: i64,
    /// Bytes that are to be copied; 0 before the source has told.
    pub bytes: u64,
    /// Those that are here.
    pub copied: u64,
}

/// A copy whose source has described it.
struct Copying {
    number: u64,
    stored: Stored,
    files: Vec<File>,
    /// What is here of the files that are not logs.
    contents: Vec<Vec<u8>>,
    log: Option<Arc<dyn Medium>>,
    /// The next piece to be asked for: file, part, bytes of the part before it.
    next: (usize, usize, u64),
    asked: BTreeMap<Piece, u64>,
    unsynced: u64,
}

/// See the module's head.
pub struct Receiver {
    directory: Arc<dyn Directory>,
    /// The member that it copies.
    pub source: u64,
    copying: Option<Copying>,
    progress: Progress,
    heard_ns: u64,
    asked_ns: u64,
}

fn failed(error: kauri_medium::Error) -> Error {
    let text = format!("the files of the initial sync cannot be written: {error}");
    Error::new(ErrorCode::OperationFailed, text)
}

impl Receiver {
    /// Begins to copy member `source` at `host`. What an earlier one has left is removed.
    pub fn begin(
        directory: Arc<dyn Directory>,
        (source, host): (u64, &str),
        (now_ns, began_ms): (u64, i64),
    ) -> Result<Receiver> {
        discard(&*directory).map_err(failed)?;
        let progress = Progress { source: host.to_owned(), began_ms, ..Progress::default() };
        let (copying, heard_ns, asked_ns) = (None, now_ns, 0);
        Ok(Receiver { directory, source, copying, progress, heard_ns, asked_ns })
    }

    /// How far it is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Takes what the source says. Fails if the copy cannot go on.
    pub fn take(&mut self, content: Content, now_ns: u64) -> Result<()> {
        match (content, &mut self.copying) {
            (Content::Begun { copy, stored, files }, None) => {
                self.heard_ns = now_ns;
                self.describe(copy, *stored, files)
            }
            (Content::Data(piece, bytes), Some(copying)) if copying.number == piece.copy => {
                self.heard_ns = now_ns;
                if copying.asked.remove(&piece).is_some() {
                    copying.put(piece, &bytes)?;
                    self.progress.copied += piece.bytes;
                }
                Ok(())
            }
            (Content::Gone(number), copying)
                if copying.as_ref().is_none_or(|copying| copying.number == number) =>
            {
                let message = "the source gives no copy, or does not have it any more";
                Err(Error::new(ErrorCode::OperationFailed, message))
            }
            _ => Ok(()),
        }
    }

    fn describe(&mut self, number: u64, stored: Stored, files: Vec<File>) -> Result<()> {
        let logs = files.iter().filter(|file| file.is_log).count();
        if logs > 1 || files.iter().any(|file| file.name == stored::FILE) {
            let message = "the source describes its files wrongly";
            return Err(Error::new(ErrorCode::OperationFailed, message));
        }
        let mut log = None;
        for file in files.iter().filter(|file| file.is_log) {
            let medium = self.directory.create_log(&prefixed(&file.name), SITE).map_err(failed)?;
            medium.grow(file.bytes).map_err(failed)?;
            log = Some(medium);
        }
        let size = |file: &File| if file.is_log { 0 } else { file.bytes as usize };
        let contents = files.iter().map(|file| vec![0; size(file)]).collect();
        self.progress.bytes =
            files.iter().flat_map(|file| &file.parts).map(|part| part.bytes).sum();
        self.progress.copied = 0;
        let (next, asked, unsynced) = ((0, 0, 0), BTreeMap::new(), 0);
        self.copying =
            Some(Copying { number, stored, files, contents, log, next, asked, unsynced });
        Ok(())
    }

    /// What is to be asked now. Fails if the source has been silent for too long.
    pub fn ask(&mut self, now_ns: u64) -> Result<Vec<Content>> {
        if now_ns.saturating_sub(self.heard_ns) > SILENT_NS {
            let message = "nothing is heard of the source";
            return Err(Error::new(ErrorCode::OperationFailed, message));
        }
        let Some(copying) = &mut self.copying else {
            if now_ns.saturating_sub(self.asked_ns) < AGAIN_NS && self.asked_ns > 0 {
                return Ok(Vec::new());
            }
            self.asked_ns = now_ns;
            return Ok(vec![Content::Begin]);
        };
        let mut pieces = Vec::new();
        for (piece, asked_ns) in &mut copying.asked {
            if now_ns.saturating_sub(self.heard_ns.max(*asked_ns)) >= PIECES_AGAIN_NS {
                *asked_ns = now_ns;
                pieces.push(Content::Read(*piece));
            }
        }
        while copying.asked.len() < AHEAD
            && let Some(piece) = copying.next_piece()
        {
            copying.asked.insert(piece, now_ns);
            pieces.push(Content::Read(piece));
        }
        Ok(pieces)
    }

    /// The copy's number, once the source has told.
    pub fn number(&self) -> Option<u64> {
        self.copying.as_ref().map(|copying| copying.number)
    }

    /// Once everything is here: the copy's number, and the source's state before it.
    pub fn complete(&self) -> Option<(u64, &Stored)> {
        let copying = self.copying.as_ref()?;
        let is_complete = copying.asked.is_empty() && copying.next.0 == copying.files.len();
        is_complete.then_some((copying.number, &copying.stored))
    }

    /// Makes everything durable, with this state of the member: from now on [`super::finish`] has something to do.
    pub fn end(&mut self, state: &Stored) -> Result<()> {
        let Some(copying) = &mut self.copying else { return Ok(()) };
        copying.sync()?;
        for (file, bytes) in copying.files.iter().zip(&copying.contents) {
            if !file.is_log {
                let name = prefixed(&file.name);
                self.directory.replace_file(&name, bytes, SITE).map_err(failed)?;
            }
        }
        StateFile::with_prefix(self.directory.clone(), PREFIX).write(state)
    }

    /// Nothing is left of it.
    pub fn abandon(self) {
        // What is left of it is removed when the next one begins.
        let _ = discard(&*self.directory);
    }
}

impl Copying {
    /// The next piece that was not asked for.
    fn next_piece(&mut self) -> Option<Piece> {
        loop {
            let (file, part, done) = self.next;
            let of = self.files.get(file)?;
            let Some(at) = of.parts.get(part) else {
                self.next = (file + 1, 0, 0);
                continue;
            };
            if done == at.bytes {
                self.next = (file, part + 1, 0);
                continue;
            }
            let bytes = (at.bytes - done).min(PIECE_BYTES);
            self.next.2 += bytes;
            if self.next.2 == at.bytes {
                self.next = (file, part + 1, 0);
            }
            let last = self.next.1 == of.parts.len();
            if last {
                self.next = (file + 1, 0, 0);
            }
            return Some(Piece { copy: self.number, file, offset: at.offset + done, bytes });
        }
    }

    fn put(&mut self, piece: Piece, bytes: &[u8]) -> Result<()> {
        let is_log = self.files.get(piece.file).is_some_and(|file| file.is_log);
        match (&self.log, self.contents.get_mut(piece.file)) {
            (Some(log), _) if is_log => {
                log.store(piece.offset, &[IoSlice::new(bytes)]).map_err(failed)?;
                log.persist(piece.offset, piece.bytes, SITE).map_err(failed)?;
                self.unsynced += piece.bytes;
                if self.unsynced >= SYNC_BYTES {
                    self.sync()?;
                }
            }
            (_, Some(contents)) => {
                let at = piece.offset as usize;
                if let Some(place) = contents.get_mut(at..at + bytes.len()) {
                    place.copy_from_slice(bytes);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.unsynced = 0;
        self.log.as_ref().map_or(Ok(()), |log| log.drain(SITE).map_err(failed))
    }
}
