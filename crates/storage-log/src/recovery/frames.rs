//! The frames of the replicated log: those of the kept user stream behind the purged position. Units behind the last
//! one are cut off, and units behind the mark of what is committed are not applied.

use crate::address::Address;
use crate::format::Stream;
use crate::format::record::{Kind, record_bytes};
use crate::format::segment::{Horizon, Position};
use crate::frames::{FoundFrames, FrameAt};
use crate::head::Unframed;
use crate::on_medium::{Kept, Log, corrupt};
use crate::reader::Contents;
use crate::recovery::Outcome;
use kauri_storage::{LogPosition, StorageError};

/// Finds the frames, and ends the log with the last one. What is committed is from now on what is applied: a mark may
/// tell of frames that a power loss has taken.
pub fn settle(log: Log<'_>, scan: &mut Outcome) -> Result<FoundFrames, StorageError> {
    // A power loss may have taken commits from a log that was about to begin.
    scan.horizon.purged.seq = scan.horizon.purged.seq.min(scan.cut.seq);
    let mut found = find(&scan.kept, &scan.horizon)?;
    if scan.horizon.purged.position.index == 0 {
        found.applied = scan.cut.seq;
        return Ok(found);
    }
    let (_, last) = found.last();
    if scan.cut.seq > last {
        scan.end_at(log, last, found.unframed.start);
        found.unframed = Unframed::from(last + 1, scan.horizon.stream(Stream::User));
    }
    let committed = scan.horizon.applied(last);
    let applied = found.frames.iter().rfind(|frame| frame.seq <= committed);
    found.applied = applied.map_or(scan.horizon.purged.seq, |frame| frame.seq);
    scan.horizon.committed = found.applied;
    // It is told to the medium before what it allows the cleaner to move.
    let moved = scan.moved_seq();
    if moved > found.applied {
        return Err(corrupt(format!(
            "commit {moved} was moved, but commits of the replicated log are known to be committed up to {} only",
            found.applied
        )));
    }
    Ok(found)
}

impl Outcome {
    /// Ends the user stream with this commit, at this place.
    fn end_at(&mut self, log: Log<'_>, seq: u64, at: Position) {
        let mut last = Position::default();
        let mut dropped = 0;
        self.kept.retain_mut(|kept| {
            if kept.stream != Stream::User {
                return true;
            }
            if kept.epoch < at.epoch {
                last = last.max(Position { epoch: kept.epoch, offset: kept.end });
                return true;
            }
            let mut entries = Vec::new();
            let is_kept = |offset| Position { epoch: kept.epoch, offset } < at;
            kept.contents.for_each(|entry| match is_kept(entry.offset) {
                true => entries.push(entry),
                false => dropped += 1,
            });
            let segment = log.segments.get(kept.segment);
            if entries.is_empty() {
                segment.sealed(0, 0);
                log.segments.free(kept.segment);
                return false;
            }
            last = last.max(at);
            (kept.end, kept.contents) = (at.offset, Contents::Records(entries));
            segment.sealed(at.offset, 0);
            true
        });
        self.dropped_records += dropped;
        (self.cut.seq, self.horizon.seq) = (seq, seq);
        for streams in [&mut self.cut.streams, &mut self.horizon.streams] {
            streams[Stream::User as usize] = last;
        }
    }
}

/// Looks through what counts.
fn find(kept: &[Kept], horizon: &Horizon) -> Result<FoundFrames, StorageError> {
    let purged = horizon.purged;
    let end = horizon.stream(Stream::User);
    let unframed = Unframed::from(purged.seq + 1, end);
    let mut found = FoundFrames { purged, unframed, ..FoundFrames::default() };
    if purged.position.index == 0 {
        return Ok(found);
    }
    let mut segments: Vec<&Kept> = kept.iter().filter(|kept| kept.stream == Stream::User).collect();
    segments.sort_unstable_by_key(|kept| kept.epoch);
    let mut missing = None;
    for kept in segments {
        kept.contents.for_each(|entry| {
            if entry.seq <= purged.seq || matches!(entry.kind, Kind::Mark | Kind::End) {
                return;
            }
            let bytes = record_bytes(entry.payload_len);
            let place = |offset| Position { epoch: kept.epoch, offset };
            if found.unframed.records == 0 {
                found.unframed.start = place(entry.offset);
            }
            if entry.kind != Kind::Frame {
                return found.unframed.add(u64::from(bytes));
            }
            let last = found.frames.back().map_or(purged.position, |frame| frame.position);
            let position = LogPosition { term: u64::from(entry.collection), index: entry.record };
            if position.index != last.index + 1 || position.term < last.term {
                missing.get_or_insert((last.index, position.index));
            }
            let end = entry.offset + bytes;
            found.frames.push_back(FrameAt {
                position,
                first: found.unframed.first,
                seq: entry.seq,
                start: found.unframed.start,
                epoch: kept.epoch,
                at: Address { segment: kept.segment, offset: entry.offset },
                end,
            });
            found.unframed = Unframed::from(entry.seq + 1, place(end));
        });
    }
    match missing {
        None => Ok(found),
        Some((last, next)) => Err(corrupt(format!(
            "the replicated log has index {next} behind {last}, though only entries up to {} were given up",
            purged.position.index
        ))),
    }
}
