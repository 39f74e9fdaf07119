//! The frames of the replicated log: those of the kept user stream behind the purged position.

use crate::address::Address;
use crate::format::Stream;
use crate::format::record::{Kind, record_bytes};
use crate::format::segment::{Horizon, Position};
use crate::frames::{FoundFrames, FrameAt};
use crate::head::Unframed;
use crate::on_medium::{Kept, corrupt};
use kauri_storage::{LogPosition, StorageError};

/// Looks through what counts.
pub fn find(kept: &[Kept], horizon: &Horizon) -> Result<FoundFrames, StorageError> {
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
