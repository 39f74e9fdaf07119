//! The write log of a block device, written by the kernel's `log-writes` target, and the device states that a
//! power cut may leave.
//!
//! All writes up to the last flush survive. Of the later writes, those written through (FUA) survive, and any
//! subset of the others. The format is that of the kernel's `dm-log-writes.c`.

use kauri_testkit::Dice;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;

const MAGIC: u64 = 0x6a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// One entry of the log.
struct Entry {
    flags: u64,
    /// The position on the device.
    at: u64,
    len: u64,
    /// The position of its data in the log.
    data: u64,
    /// The text of a mark.
    mark: String,
}

/// The log of a device.
pub struct WriteLog {
    file: File,
    entries: Vec<Entry>,
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("log of writes: {what}"))
}

fn word(bytes: &[u8], number: usize) -> u64 {
    let word = bytes.get(number * 8..number * 8 + 8).and_then(|bytes| bytes.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}

impl WriteLog {
    /// Reads the list of entries.
    pub fn open(path: &str) -> Result<WriteLog> {
        let file = File::open(path)?;
        let mut head = [0; 32];
        file.read_exact_at(&mut head, 0)?;
        if word(&head, 0) != MAGIC || word(&head, 1) != 1 {
            return Err(malformed("not one of version 1"));
        }
        let (count, sector) = (word(&head, 2), word(&head, 3) & 0xffff_ffff);
        if !matches!(sector, 512 | 4096) {
            return Err(malformed("its sectors"));
        }
        let mut entries = Vec::new();
        let mut next = sector;
        for _ in 0..count {
            let mut bytes = vec![0; sector as usize];
            file.read_exact_at(&mut bytes, next)?;
            let flags = word(&bytes, 2);
            let len = word(&bytes, 1) * sector;
            let text = &bytes[32..(32 + word(&bytes, 3) as usize).min(bytes.len())];
            let mark = if flags & MARK != 0 { text } else { &[] };
            next += sector;
            entries.push(Entry {
                flags,
                at: word(&bytes, 0) * sector,
                len,
                data: next,
                mark: String::from_utf8_lossy(mark).trim_end_matches('\0').to_owned(),
            });
            if flags & DISCARD == 0 {
                next += len;
            }
        }
        Ok(WriteLog { file, entries })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of flushes among the entries.
    pub fn flushes(&self) -> usize {
        self.entries.iter().filter(|entry| entry.flags & FLUSH != 0).count()
    }

    /// The marks, each with the number of entries up to it.
    pub fn marks(&self) -> impl Iterator<Item = (usize, &str)> {
        let marks = self.entries.iter().enumerate().filter(|(_, entry)| entry.flags & MARK != 0);
        marks.map(|(number, entry)| (number + 1, entry.mark.as_str()))
    }
}

/// A device on which the writes are replayed up to ascending points.
pub struct Replay<'l> {
    log: &'l WriteLog,
    /// The contents with all flushed writes.
    flushed: Vec<u8>,
    applied: usize,
}

impl<'l> Replay<'l> {
    /// Replays a device of this many bytes, initially zeros.
    pub fn new(log: &'l WriteLog, bytes: u64) -> Self {
        Replay { log, flushed: vec![0; bytes as usize], applied: 0 }
    }

    /// The device after a power cut at this entry. Also returns the number of missing writes.
    pub fn cut(&mut self, entries: usize, dice: &Dice) -> Result<(Vec<u8>, usize)> {
        let log = self.log;
        let known = &log.entries[..entries];
        let flush = known.iter().rposition(|entry| entry.flags & FLUSH != 0);
        let flushed = flush.map_or(0, |number| number + 1);
        for entry in &known[self.applied.min(flushed)..flushed] {
            apply(&log.file, entry, &mut self.flushed)?;
        }
        self.applied = flushed.max(self.applied);
        let mut device = self.flushed.clone();
        let chance = [0, 10, 50, 90, 100][dice.below(5) as usize];
        let mut missing = 0;
        for entry in &known[flushed..] {
            if entry.flags & FUA != 0 || dice.percent(chance) {
                apply(&log.file, entry, &mut device)?;
            } else if entry.flags & MARK == 0 {
                missing += 1;
            }
        }
        Ok((device, missing))
    }
}

fn apply(log: &File, entry: &Entry, device: &mut [u8]) -> Result<()> {
    let range = entry.at as usize..(entry.at + entry.len) as usize;
    let place = device.get_mut(range).ok_or_else(|| malformed("a write beyond the device"))?;
    match entry.flags & DISCARD {
        0 => log.read_exact_at(place, entry.data),
        _ => {
            place.fill(0);
            Ok(())
        }
    }
}
