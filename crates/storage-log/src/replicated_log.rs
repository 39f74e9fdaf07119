//! Closes frames of the replicated log, finds and reads them.

use crate::address::Address;
use crate::core::Core;
use crate::format::frame::{FRAME_DATA_BYTES_MAX, FramePayload};
use crate::format::record::{FLAG_ALONE, Kind, RecordHeader, record_bytes};
use crate::format::segment::Purged;
use crate::format::{SEGMENT_HEADER_BYTES, Stream};
use crate::frames::FrameAt;
use crate::head::{Appended, NotAppended};
use crate::open_segment::payload_bytes_max;
use crate::reader::{Next, RawRecord, RecordReader};
use crate::segments::{Purpose, State};
use kauri_base::CommitSeq;
use kauri_storage::{
    CommitTicket, Frame, FrameRange, FrameRecord, LogPosition, ReplicatedLog, StorageError,
};

/// Most terms: a record header has 32 bits for one.
const TERM_MAX: u64 = u32::MAX as u64;

impl ReplicatedLog for Core {
    fn begin_frames(&self, base: LogPosition) -> Result<(), StorageError> {
        self.check_alive()?;
        let _order = self.frames.lock_order();
        if self.frames.range() != FrameRange::default() || base.index == 0 {
            return Err(StorageError::OutOfOrder);
        }
        let next = loop {
            match self.head.begin_frames(&self.surroundings(false), base) {
                Ok(next) => break next,
                Err(NotAppended::Room(prepared_ever)) => {
                    self.make_room(Purpose::Delete, prepared_ever)?;
                }
                Err(NotAppended::Held) => return Err(StorageError::FilesHeld),
                Err(NotAppended::Failed(error)) => return Err(error),
            }
        };
        self.frames.begin(base, next);
        self.sync_all("commit.drain")
    }

    fn close_frame(
        &self,
        position: LogPosition,
        time: u64,
        data: &[u8],
    ) -> Result<(Frame, CommitTicket), StorageError> {
        self.check_alive()?;
        let _order = self.frames.lock_order();
        let last = self.frames.range().last;
        let is_next = last.index > 0 && position.index == last.index + 1;
        if !is_next || position.term < last.term || position.term > TERM_MAX {
            return Err(StorageError::OutOfOrder);
        }
        let max = payload_bytes_max(self.segments.segment_bytes()) as usize;
        let max = max.saturating_sub(FramePayload::len(&[]) as usize).min(FRAME_DATA_BYTES_MAX);
        if data.len() > max {
            return Err(StorageError::DocumentTooLarge { bytes: data.len(), max });
        }
        loop {
            match self.append_frame(position, time, data) {
                Ok((appended, at, frame)) => {
                    self.frames.push(at);
                    let seq = self.head.publish(appended)?;
                    return Ok((frame, self.acks.tickets(seq)));
                }
                Err(NotAppended::Room(prepared_ever)) => {
                    self.make_room(Purpose::Delete, prepared_ever)?;
                }
                Err(NotAppended::Held) => return Err(StorageError::FilesHeld),
                Err(NotAppended::Failed(error)) => return Err(error),
            }
        }
    }

    fn frames(&self) -> FrameRange {
        self.frames.range()
    }

    fn term_of(&self, index: u64) -> Option<u64> {
        let purged = self.frames.range().purged;
        if index == purged.index {
            return Some(purged.term);
        }
        self.frames.get(index).map(|frame| frame.position.term)
    }

    fn read_frame(&self, index: u64) -> Result<Option<(Frame, Vec<FrameRecord>)>, StorageError> {
        let Some(at) = self.frames.get(index) else { return Ok(None) };
        let read = self.read_frame_at(&at);
        // While it was read it may have been purged, and its space used again.
        if self.frames.get(index).is_none() {
            return Ok(None);
        }
        read.map(Some)
    }

    fn purge_frames(&self, index: u64) -> Result<(), StorageError> {
        self.check_alive()?;
        let _order = self.frames.lock_order();
        let Some(frame) = self.frames.get(index) else { return Ok(()) };
        // The log has to end behind what is purged, whatever happens.
        if frame.seq > self.acks.durable() {
            self.sync_all("commit.drain")?;
        }
        self.durability.note_purged(Purged { position: frame.position, seq: frame.seq });
        self.frames.purge(frame.position);
        self.cleaner.wake();
        Ok(())
    }
}

impl Core {
    fn append_frame(
        &self,
        position: LogPosition,
        time: u64,
        data: &[u8],
    ) -> Result<(Appended<'_>, FrameAt, Frame), NotAppended> {
        let payload_len = FramePayload::len(data);
        let mut head = self.begin([payload_len].into_iter())?;
        let unframed = head.unframed();
        let payload = FramePayload {
            first: unframed.first,
            time,
            bytes: unframed.bytes,
            records: unframed.records,
            data: data.to_vec(),
        };
        let bytes = payload.encode();
        let header = RecordHeader {
            kind: Kind::Frame,
            flags: FLAG_ALONE,
            payload_len,
            payload_crc: crc32c::crc32c(&bytes),
            collection: position.term as u32,
            record: position.index,
            seq: head.seq(),
        };
        let (at, _) = head.append(&header, &bytes)?;
        let end = head.end_frame();
        let frame_at = FrameAt {
            position,
            first: unframed.first,
            seq: header.seq,
            start: unframed.start,
            epoch: end.epoch,
            at,
            end: at.offset + record_bytes(payload_len),
        };
        Ok((head.finish()?, frame_at, frame(&header, payload)))
    }

    fn read_frame_at(&self, frame: &FrameAt) -> Result<(Frame, Vec<FrameRecord>), StorageError> {
        if self.acks.stored() < frame.seq {
            self.flush_now()?;
        }
        let mut records = Vec::new();
        let mut bytes = 0;
        for (segment, epoch) in self.user_segments(frame.start.epoch, frame.epoch) {
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
            if epoch == frame.start.epoch {
                reader.seek(frame.start.offset.max(SEGMENT_HEADER_BYTES));
            }
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
                        Some(payload) => Ok((self::frame(&record.header, payload), records)),
                        None => Err(damaged(frame.at)),
                    };
                }
                bytes += u64::from(record.header.record_bytes());
                records.push(frame_record(&record));
            }
        }
        Err(damaged(frame.at))
    }

    /// The segments of the user stream from one epoch to another one, in order.
    fn user_segments(&self, first: u64, last: u64) -> Vec<(u32, u64)> {
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

fn frame(header: &RecordHeader, payload: FramePayload) -> Frame {
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

fn frame_record(record: &RawRecord<'_>) -> FrameRecord {
    FrameRecord {
        kind: record.header.kind as u8,
        alone: record.header.flags & FLAG_ALONE != 0,
        collection: record.header.collection,
        record: record.header.record,
        seq: CommitSeq(record.header.seq),
        payload: record.payload.to_vec(),
    }
}
