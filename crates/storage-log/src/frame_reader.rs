//! Reads frames of the replicated log with their units' records.

use crate::address::Address;
use crate::core::Core;
use crate::format::frame::FramePayload;
use crate::format::record::{CommitPayload, FLAG_ALONE, Kind, RecordHeader};
use crate::format::{SEGMENT_HEADER_BYTES, Stream};
use crate::frames::FrameAt;
use crate::reader::{Next, RawRecord, RecordReader};
use crate::segments::State;
use kauri_base::CommitSeq;
use kauri_storage::{Frame, FrameRecord, LogPosition, StorageError};

impl Core {
    /// A frame, and its units' records with their places. Fails with `Corruption` if they are not what it says.
    pub fn read_placed(
        &self,
        frame: &FrameAt,
    ) -> Result<(Frame, Vec<(Address, FrameRecord)>), StorageError> {
        if self.acks.stored() < frame.seq {
            self.flush_now()?;
        }
        let mut records = Vec::new();
        let mut bytes = 0;
        let segments = match frame.start.epoch == frame.epoch {
            true => vec![(frame.at.segment, frame.epoch)],
            false => self.user_segments(frame.start.epoch, frame.epoch),
        };
        for (segment, epoch) in segments {
            // A segment that a recovery has cut has no end record.
            let end = match self.segments.get(segment).end() {
                _ if epoch == frame.epoch => frame.end,
                0 => u32::MAX,
                end => end,
            };
            let medium = self.directory.medium();
            let faults = self.directory.faults();
            let mut reader = RecordReader::new(medium, faults, &self.segments, segment, epoch, end);
            if !self.cache.is_direct() {
                reader = reader.with_memory(&self.cache, segment);
            }
            let start = if epoch == frame.start.epoch { frame.start.offset } else { 0 };
            reader.seek_range(start.max(SEGMENT_HEADER_BYTES), end);
            loop {
                let record = match reader.next().map_err(crate::io_error)? {
                    Next::Finished => break,
                    Next::Record(record) if record.payload_whole => record,
                    Next::Record(RawRecord { offset, .. }) | Next::Bad(offset) => {
                        return Err(damaged(Address { segment, offset }));
                    }
                };
                if record.header.seq < frame.first
                    || matches!(record.header.kind, Kind::Mark | Kind::End)
                {
                    continue;
                }
                if record.header.kind == Kind::Frame {
                    let payload = FramePayload::decode(record.payload)
                        .filter(|payload| payload.bytes == bytes)
                        .filter(|payload| payload.records as usize == records.len());
                    return match payload.filter(|_| record.header.seq == frame.seq) {
                        Some(payload) => Ok((frame_of(&record.header, payload), records)),
                        None => Err(damaged(frame.at)),
                    };
                }
                bytes += u64::from(record.header.record_bytes());
                let address = Address { segment, offset: record.offset };
                records.push((address, frame_record(&record)));
            }
        }
        Err(damaged(frame.at))
    }

    /// A frame without its units' records.
    pub fn read_placed_alone(&self, frame: &FrameAt) -> Result<Frame, StorageError> {
        if self.acks.stored() < frame.seq {
            self.flush_now()?;
        }
        let (medium, faults) = (self.directory.medium(), self.directory.faults());
        let Address { segment, offset } = frame.at;
        let mut reader =
            RecordReader::new(medium, faults, &self.segments, segment, frame.epoch, frame.end);
        if !self.cache.is_direct() {
            reader = reader.with_memory(&self.cache, segment);
        }
        reader.seek_range(offset, frame.end);
        let Next::Record(record) = reader.next().map_err(crate::io_error)? else {
            return Err(damaged(frame.at));
        };
        let is_it = record.payload_whole
            && record.header.kind == Kind::Frame
            && record.header.seq == frame.seq;
        let payload = FramePayload::decode(record.payload).filter(|_| is_it);
        payload.map(|payload| frame_of(&record.header, payload)).ok_or_else(|| damaged(frame.at))
    }

    /// The segments of the user stream from one epoch to another one, in order.
    pub fn user_segments(&self, first: u64, last: u64) -> Vec<(u32, u64)> {
        let of = |number: u32| {
            let segment = self.segments.get(number);
            let is_user = segment.stream() == Stream::User && segment.state() != State::Free;
            is_user.then_some((number, segment.epoch()))
        };
        let mut found: Vec<_> = (0..self.segments.usage().count)
            .filter_map(of)
            .filter(|(_, epoch)| (first..=last).contains(epoch))
            .collect();
        found.sort_unstable_by_key(|(_, epoch)| *epoch);
        found
    }
}

fn damaged(at: Address) -> StorageError {
    StorageError::Corruption {
        collection: None,
        record: None,
        message: format!(
            "a frame of the replicated log is damaged at offset {} of segment {}",
            at.offset, at.segment
        ),
    }
}

/// The frame of a frame record.
pub fn frame_of(header: &RecordHeader, payload: FramePayload) -> Frame {
    Frame {
        position: LogPosition { term: u64::from(header.collection), index: header.record },
        first: CommitSeq(payload.first),
        seq: CommitSeq(header.seq),
        time: payload.time,
        records: payload.records,
        bytes: payload.bytes,
        data: payload.data,
    }
}

/// A record as all members have it: what depends on its place is left out.
fn frame_record(record: &RawRecord<'_>) -> FrameRecord {
    let placed = (record.header.kind == Kind::Commit)
        .then(|| CommitPayload::decode(record.payload))
        .flatten();
    let payload = placed.map(|commit| CommitPayload { crc: 0, ..commit }.encode().to_vec());
    FrameRecord {
        kind: record.header.kind as u8,
        alone: record.header.flags & FLAG_ALONE != 0,
        collection: record.header.collection,
        record: record.header.record,
        seq: CommitSeq(record.header.seq),
        payload: payload.unwrap_or_else(|| record.payload.to_vec()),
    }
}
