//! Groups beyond the memory limit, split into partitions by the hash of their `_id`.
//!
//! When memory is used up, the state of each group goes into its partition, and from then on each row goes
//! unchanged into the partition of its group. Later the partitions are grouped in memory one after the other:
//! states first, then rows in order, so every accumulator sees the same sequence. A partition that is too large is
//! split again by other bits of the hash. Only the order of groups differs from grouping in memory.
//!
//! This module must only know ids and bytes; `group` defines states and rows.

use super::hash::HashKey;
use crate::exec::ExecCx;
use crate::spill::{
    Run, RunReader, RunWriter, SpillFile, SpillKind, SpillPlace, SpillStats, chunk_bytes, damaged,
};
use kauri_base::{Access, Result, limits};
use kauri_bson::{Doc, DocBuf, Value};
use std::sync::Arc;

/// See the module's head.
pub(super) struct Partitions {
    place: Arc<SpillPlace>,
    key: HashKey,
    /// A partition's number has so many bits.
    bits: u32,
    chunk_bytes: usize,
    division: Option<Division>,
    pending: Vec<Partition>,
    reading: Option<Reading>,
    pub stats: SpillStats,
}

/// Groups being divided.
struct Division {
    file: SpillFile,
    writers: Vec<RunWriter>,
    depth: u32,
    /// Writers that have a chunk to hand over.
    full: Vec<usize>,
    /// Memory that was given back.
    bytes: usize,
}

/// What was divided; its groups are in no other partition.
struct Partition {
    run: Run,
    /// How often it was divided.
    depth: u32,
}

struct Reading {
    reader: RunReader,
    depth: u32,
}

/// An `_id` as the key of a record.
fn key_of(id: &Value<'_>) -> DocBuf {
    DocBuf::build(|out| out.put_value("", id))
}

/// The `_id` of a record's key.
pub(super) fn id_of(key: &[u8]) -> Result<Value<'_>> {
    Doc::from_bytes(key)?.first().map(|elem| elem.value()).ok_or_else(damaged)
}

impl Partitions {
    /// None yet.
    pub fn new(cx: &ExecCx<'_>, place: &Arc<SpillPlace>) -> Partitions {
        let bytes_max = cx.env.spilling.group_bytes_max;
        // A quarter of the memory for two chunks of each partition.
        let most = (bytes_max / (8 * limits::SPILL_PIECE_BYTES_MIN)).max(4);
        let bits = most.min(limits::SPILL_PARTS_MAX).ilog2();
        Partitions {
            place: place.clone(),
            key: HashKey::new(&*cx.env.random),
            bits,
            chunk_bytes: chunk_bytes(bytes_max, 8 << bits),
            division: None,
            pending: Vec::new(),
            reading: None,
            stats: SpillStats::default(),
        }
    }

    /// How often what is being grouped was divided.
    fn depth(&self) -> u32 {
        self.reading.as_ref().map_or(0, |reading| reading.depth)
    }

    /// Starts to split groups that take `bytes` of memory. False: the hash has no more bits to distinguish groups.
    pub fn divide(&mut self, bytes: usize) -> bool {
        let depth = self.depth() + 1;
        if depth * self.bits > u64::BITS {
            return false;
        }
        let file = SpillFile::new(&*self.place.store);
        let writers = (0..1 << self.bits).map(|_| RunWriter::new(&file, self.chunk_bytes));
        let writers = writers.collect();
        self.division = Some(Division { file, writers, depth, full: Vec::new(), bytes });
        true
    }

    /// Whether groups are being divided.
    pub fn is_dividing(&self) -> bool {
        self.division.is_some()
    }

    /// Adds to the partition of this `_id`. True: `flush` has to follow before more.
    pub fn push(&mut self, id: &Value<'_>, rest: &[&[u8]]) -> bool {
        let hash = self.key.hash_of(id);
        let bits = self.bits;
        self.division
            .as_mut()
            .is_some_and(|division| division.push(hash, bits, key_of(id).as_doc().as_bytes(), rest))
    }

    /// Hands full chunks over.
    pub fn flush(&mut self) -> Result<Access<()>> {
        let Some(division) = &mut self.division else { return Ok(Access::Ready(())) };
        let Division { file, writers, full, .. } = division;
        while let Some(partition) = full.last() {
            if let Access::WouldBlock(ticket) = writers[*partition].flush(file)? {
                return Ok(Access::WouldBlock(ticket));
            }
            full.pop();
        }
        Ok(Access::Ready(()))
    }

    /// Ends the split: its partitions wait to be grouped.
    pub fn end_division(&mut self, cx: &ExecCx<'_>) -> Result<Access<()>> {
        let Some(division) = &mut self.division else { return Ok(Access::Ready(())) };
        for writer in &mut division.writers {
            if let Access::WouldBlock(ticket) = writer.finish(&mut division.file)? {
                return Ok(Access::WouldBlock(ticket));
            }
        }
        if let Some(division) = self.division.take() {
            let bytes = division.bytes as u64;
            let mut spilled = SpillStats { spills: 1, bytes, ..SpillStats::default() };
            for run in division.writers.into_iter().rev().map(RunWriter::into_run) {
                if run.records > 0 {
                    spilled.records += run.records;
                    spilled.storage_bytes += run.bytes;
                    self.pending.push(Partition { run, depth: division.depth });
                }
            }
            self.stats.add(spilled);
            cx.env.spilling.note(SpillKind::Group, spilled);
        }
        self.reading = None;
        Ok(Access::Ready(()))
    }

    /// Starts to read the next partition. False: there is none.
    pub fn begin_next(&mut self) -> bool {
        self.reading = self.pending.pop().map(|Partition { run, depth }| Reading {
            reader: RunReader::new(run, self.chunk_bytes),
            depth,
        });
        self.reading.is_some()
    }

    /// Whether a partition is being read.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Advances to the partition's next record. False: there is none.
    pub fn next(&mut self) -> Result<Access<bool>> {
        self.reading.as_mut().map_or(Ok(Access::Ready(false)), |reading| reading.reader.next())
    }

    /// The record's key and what follows it.
    pub fn record(&self) -> (&[u8], &[u8]) {
        self.reading.as_ref().map_or((&[], &[]), |r| (r.reader.key(), r.reader.rest()))
    }

    /// Adds the record that was read to the division of its partition. True: `flush` has to follow.
    pub fn pass_on(&mut self) -> Result<bool> {
        let (Some(reading), Some(division)) = (&self.reading, &mut self.division) else {
            return Ok(false);
        };
        let key = reading.reader.key();
        let hash = self.key.hash_of(&id_of(key)?);
        Ok(division.push(hash, self.bits, key, &[reading.reader.rest()]))
    }
}

impl Division {
    fn push(&mut self, hash: u64, bits: u32, key: &[u8], rest: &[&[u8]]) -> bool {
        let partition = hash >> (bits * (self.depth - 1)) & ((1 << bits) - 1);
        let writer = &mut self.writers[partition as usize];
        writer.push(key, rest);
        let is_full = writer.is_full();
        if is_full {
            self.full.push(partition as usize);
        }
        is_full
    }
}
