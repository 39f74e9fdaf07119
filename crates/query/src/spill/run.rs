//! Runs: a sequence of records in a temporary file, written and read in chunks.
//!
//! A record has the lengths of its key and of its rest (two little-endian numbers of four bytes), the key, the
//! rest. Chunks do not respect the borders of records.

use super::{damaged, lengths};
use kauri_base::temporary::{TemporaryFile, TemporaryStore, Transfer};
use kauri_base::{Access, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a record's header.
const HEADER_BYTES: usize = 8;

/// A file that runs are written to, possibly several at a time.
pub(crate) struct SpillFile {
    file: Arc<dyn TemporaryFile>,
    end: u64,
}

impl SpillFile {
    pub fn new(store: &dyn TemporaryStore) -> SpillFile {
        SpillFile { file: store.file(), end: 0 }
    }
}

/// A run that is complete. Its file lives as long as one of its runs.
pub(crate) struct Run {
    file: Arc<dyn TemporaryFile>,
    /// Where it lies, in order.
    chunks: VecDeque<Range<u64>>,
    pub records: u64,
    pub bytes: u64,
    /// Bytes of its largest record.
    pub largest: usize,
}

impl Run {
    /// Memory for reading it: the current chunk, one in transfer, and a record that crosses chunks.
    pub fn reading_bytes(&self, chunk_bytes: usize) -> usize {
        let largest = self.largest.saturating_add(2 * chunk_bytes);
        largest.min(usize::try_from(self.bytes).unwrap_or(usize::MAX))
    }
}

/// Writes a run.
pub(crate) struct RunWriter {
    run: Run,
    chunk: Vec<u8>,
    chunk_bytes: usize,
    under_way: Option<Transfer>,
}

impl RunWriter {
    /// For a run in this file, in chunks of about this size.
    pub fn new(file: &SpillFile, chunk_bytes: usize) -> RunWriter {
        let run = Run {
            file: file.file.clone(),
            chunks: VecDeque::new(),
            records: 0,
            bytes: 0,
            largest: 0,
        };
        RunWriter { run, chunk: Vec::new(), chunk_bytes, under_way: None }
    }

    /// Adds a record whose rest is these parts. When `is_full` says so, `flush` has to follow.
    pub fn push(&mut self, key: &[u8], rest: &[&[u8]]) {
        let start = self.chunk.len();
        let rest_bytes: usize = rest.iter().map(|part| part.len()).sum();
        self.make_room(HEADER_BYTES + key.len() + rest_bytes);
        self.chunk.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(&(rest_bytes as u32).to_le_bytes());
        self.chunk.extend_from_slice(key);
        rest.iter().for_each(|part| self.chunk.extend_from_slice(part));
        let bytes = self.chunk.len() - start;
        self.run.records += 1;
        self.run.bytes += bytes as u64;
        self.run.largest = self.run.largest.max(bytes);
    }

    /// Grows as a vector would, but not far beyond a chunk.
    fn make_room(&mut self, bytes: usize) {
        let (length, capacity) = (self.chunk.len(), self.chunk.capacity());
        if capacity - length < bytes {
            let most = self.chunk_bytes.max(length) + bytes;
            self.chunk.reserve_exact((2 * capacity).clamp(length + bytes, most) - length);
        }
    }

    /// Whether a buffer of a chunk is much larger than chunks are, as large records make it.
    fn is_large(&self, chunk: &Vec<u8>) -> bool {
        chunk.capacity() > 2 * self.chunk_bytes
    }

    /// Whether there is a chunk to hand over.
    pub fn is_full(&self) -> bool {
        self.chunk.len() >= self.chunk_bytes
    }

    /// Hands the chunk over, full or not; only one is under way at a time. A large one has to be written
    /// before this is ready, so that of many writers no more than one holds such a buffer.
    pub fn flush(&mut self, file: &mut SpillFile) -> Result<Access<()>> {
        loop {
            let mut buffer = Vec::new();
            if let Some(transfer) = &self.under_way {
                match transfer.take()? {
                    Access::Ready(bytes) if self.is_large(&bytes) => {}
                    Access::Ready(bytes) => buffer = bytes,
                    Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
                }
                self.under_way = None;
            }
            if self.chunk.is_empty() {
                return Ok(Access::Ready(()));
            }
            buffer.clear();
            let chunk = std::mem::replace(&mut self.chunk, buffer);
            let is_large = self.is_large(&chunk);
            let place = file.end..file.end + chunk.len() as u64;
            file.end = place.end;
            match self.run.chunks.back_mut().filter(|last| last.end == place.start) {
                Some(last) => last.end = place.end,
                None => self.run.chunks.push_back(place.clone()),
            }
            self.under_way = Some(self.run.file.write(place.start, chunk));
            if !is_large {
                return Ok(Access::Ready(()));
            }
        }
    }

    /// Writes the rest. Ready: everything is written.
    pub fn finish(&mut self, file: &mut SpillFile) -> Result<Access<()>> {
        while !self.chunk.is_empty() || self.under_way.is_some() {
            if let Access::WouldBlock(ticket) = self.flush(file)? {
                return Ok(Access::WouldBlock(ticket));
            }
        }
        Ok(Access::Ready(()))
    }

    /// The run, which must be finished.
    pub fn into_run(self) -> Run {
        self.run
    }
}

/// Reads a run, record by record, a chunk ahead.
pub(crate) struct RunReader {
    run: Run,
    chunk_bytes: usize,
    buffer: Vec<u8>,
    /// Where in it the record's key and its rest lie.
    key: Range<usize>,
    rest: Range<usize>,
    ahead: Option<Transfer>,
}

impl RunReader {
    /// Before its first record, which is under way already.
    pub fn new(run: Run, chunk_bytes: usize) -> RunReader {
        let mut reader =
            RunReader { run, chunk_bytes, buffer: Vec::new(), key: 0..0, rest: 0..0, ahead: None };
        reader.begin(Vec::new());
        reader
    }

    /// Asks for the next chunk, if there is one.
    fn begin(&mut self, mut buffer: Vec<u8>) {
        let Some(place) = self.run.chunks.front_mut() else { return };
        let bytes = (place.end - place.start).min(self.chunk_bytes as u64);
        buffer.resize(bytes as usize, 0);
        self.ahead = Some(self.run.file.read(place.start, buffer));
        place.start += bytes;
        if place.start == place.end {
            self.run.chunks.pop_front();
        }
    }

    /// Advances to the next record. False: there is none.
    pub fn next(&mut self) -> Result<Access<bool>> {
        loop {
            let left = self.buffer.get(self.rest.end..).unwrap_or_default();
            if let Some(header) = left.get(..HEADER_BYTES) {
                let (key, rest) = lengths(header)?;
                if left.len() - HEADER_BYTES >= key.saturating_add(rest) {
                    let start = self.rest.end + HEADER_BYTES;
                    self.key = start..start + key;
                    self.rest = start + key..start + key + rest;
                    return Ok(Access::Ready(true));
                }
            }
            let Some(transfer) = &self.ahead else {
                return if left.is_empty() { Ok(Access::Ready(false)) } else { Err(damaged()) };
            };
            let chunk = match transfer.take()? {
                Access::Ready(chunk) => chunk,
                Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
            };
            self.ahead = None;
            self.append(chunk);
        }
    }

    /// Takes a chunk in, and asks for the one after it.
    fn append(&mut self, chunk: Vec<u8>) {
        self.buffer.drain(..self.rest.end);
        (self.key, self.rest) = (0..0, 0..0);
        let spare = match self.buffer.is_empty() {
            true => std::mem::replace(&mut self.buffer, chunk),
            false => {
                self.buffer.extend_from_slice(&chunk);
                chunk
            }
        };
        self.begin(spare);
    }

    /// The record's key.
    pub fn key(&self) -> &[u8] {
        self.buffer.get(self.key.clone()).unwrap_or_default()
    }

    /// The record's rest.
    pub fn rest(&self) -> &[u8] {
        self.buffer.get(self.rest.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::temporary::MemoryStore;

    fn ready<T>(access: Result<Access<T>>) -> T {
        match access.unwrap() {
            Access::Ready(value) => value,
            Access::WouldBlock(_) => panic!("a store in memory makes nobody wait"),
        }
    }

    #[test]
    fn runs_are_read_as_they_were_written() {
        let store = MemoryStore::new();
        let mut file = SpillFile::new(&store);
        let sizes = [0usize, 1, 7, 8, 100, 5000, 3];
        let mut writers: Vec<RunWriter> = (0..3).map(|_| RunWriter::new(&file, 64)).collect();
        let rest = |n: usize| vec![n as u8; sizes[n % sizes.len()]];
        for n in 0..300 {
            let writer = &mut writers[n % 3];
            writer.push(&(n as u32).to_be_bytes(), &[&rest(n), b"."]);
            if writer.is_full() {
                ready(writer.flush(&mut file));
            }
        }
        for (number, mut writer) in writers.into_iter().enumerate() {
            ready(writer.finish(&mut file));
            let run = writer.into_run();
            assert_eq!((run.records, run.largest), (100, 8 + 4 + 5001));
            let mut reader = RunReader::new(run, 50);
            for n in (number..300).step_by(3) {
                assert!(ready(reader.next()));
                assert_eq!(reader.key(), (n as u32).to_be_bytes());
                assert_eq!(reader.rest(), [rest(n).as_slice(), b"."].concat());
            }
            assert!(!ready(reader.next()));
            assert!(!ready(reader.next()));
        }
        drop(file);
        assert_eq!((store.files(), store.bytes_used()), (0, 0));
    }

    #[test]
    fn buffers_of_large_records_are_given_back() {
        let store = MemoryStore::new();
        let mut file = SpillFile::new(&store);
        let mut writer = RunWriter::new(&file, 64);
        for bytes in [1, 30, 100_000, 0, 50, 60, 90_000, 10] {
            writer.push(b"k", &[&vec![7; bytes]]);
            if writer.is_full() {
                ready(writer.flush(&mut file));
            }
            let under_way = writer.under_way.take().map(|transfer| ready(transfer.take()));
            let held = writer.chunk.capacity() + under_way.map_or(0, |bytes| bytes.capacity());
            assert!(held <= 4 * 64, "{held} bytes are held");
        }
    }
}
