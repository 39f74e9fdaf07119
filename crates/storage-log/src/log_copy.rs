//! Copies the log while writes go on.
//!
//! What is durable up to a position never changes as long as no segment is used again. So a copy keeps the cleaner from
//! giving segments back, and its metadata file ends the log at that position, by a cut.

use crate::core::Core;
use crate::format::meta::{Cut, Meta};
use crate::format::segment::Horizon;
use crate::format::{LOG_FILE, META_FILE, Stream};
use crate::segments::State;
use kauri_base::CommitSeq;
use kauri_base::sync::Arc;
use kauri_storage::{CopyPart, LogCopy, StorageError};
use std::cmp::Ordering;

/// See the module's head.
struct Copy {
    _kept: Kept,
    core: Arc<Core>,
    seq: u64,
    files: [(&'static str, Vec<u8>); 1],
    log_bytes: u64,
    parts: Vec<CopyPart>,
}

/// Keeps segments as they are, until it is dropped.
struct Kept(Arc<Core>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.cleaner.end_copy();
    }
}

impl Core {
    /// See [`kauri_storage::StorageEngine::copy_log`].
    pub fn copy_log(self: &Arc<Self>) -> Result<Box<dyn LogCopy>, StorageError> {
        self.check_alive()?;
        // No segment is given back from here on.
        let mut cleaner = self.cleaner.lock();
        self.cleaner.begin_copy();
        let kept = Kept(self.clone());
        self.store_moved(&mut cleaner)?;
        self.sync_all("sync.drain")?;
        let horizon = self.horizon();
        let epoch_next = self.segments.epoch_next();
        let waiting = |number: u32| cleaner.emptied.iter().any(|(_, victim)| *victim == number);
        let parts = self.parts(&horizon, waiting);
        drop(cleaner);
        // Segments that are not copied have no header there.
        let horizon = Horizon { segments: 0, ..horizon };
        let cut = Cut { epoch_next, seq: horizon.seq, streams: horizon.streams };
        let meta = self.directory.meta_cut(cut, horizon, epoch_next);
        let meta = Meta { marks: false, ..meta };
        Ok(Box::new(Copy {
            _kept: kept,
            core: self.clone(),
            seq: horizon.seq,
            files: [(META_FILE, meta.encode())],
            log_bytes: self.directory.medium().len(),
            parts,
        }))
    }

    /// What the streams have up to this horizon.
    fn parts(&self, horizon: &Horizon, waiting: impl Fn(u32) -> bool) -> Vec<CopyPart> {
        let segment_bytes = u64::from(self.segments.segment_bytes());
        let part = |number: u32| {
            let segment = self.segments.get(number);
            let (state, stream) = (segment.state(), segment.stream());
            let is_gone = state == State::Free || state == State::Emptying && !waiting(number);
            if is_gone || stream == Stream::Image {
                return None;
            }
            let end = horizon.stream(stream);
            let bytes = match segment.epoch().cmp(&end.epoch) {
                Ordering::Less => segment_bytes,
                Ordering::Equal => u64::from(end.offset),
                Ordering::Greater => return None,
            };
            Some(CopyPart { offset: self.segments.file_offset(number), bytes })
        };
        (0..self.segments.usage().count).filter_map(part).collect()
    }
}

impl LogCopy for Copy {
    fn seq(&self) -> CommitSeq {
        CommitSeq(self.seq)
    }

    fn files(&self) -> &[(&'static str, Vec<u8>)] {
        &self.files
    }

    fn log_file(&self) -> (&'static str, u64) {
        (LOG_FILE, self.log_bytes)
    }

    fn parts(&self) -> &[CopyPart] {
        &self.parts
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StorageError> {
        self.core.directory.medium().read(offset, into).map_err(crate::io_error)
    }
}
