//! Appends frames of the replicated log: of what was committed here, or as another member has them.
//!
//! A frame of another member comes unit by unit. If something is in the way, the units that came are cut off again.

use crate::core::Core;
use crate::format::frame::{FRAME_DATA_BYTES_MAX, FramePayload};
use crate::format::record::{
    COMMIT_PAYLOAD_BYTES, CommitPayload, FLAG_ALONE, Kind, RecordHeader, record_bytes, unit_crc,
};
use crate::frame_reader::frame_of;
use crate::frames::FrameAt;
use crate::head::{Append, Appended, NotAppended};
use crate::open_segment::payload_bytes_max;
use crate::segments::Purpose;
use crate::slots::RECORDS_MAX;
use kauri_storage::{CommitTicket, Frame, FrameRecord, LogPosition, StorageError};

/// Most terms: a record header has 32 bits for one.
const TERM_MAX: u64 = u32::MAX as u64;

/// What a frame record says besides what the head knows.
#[derive(Clone, Copy)]
struct NewFrame<'f> {
    what: Append,
    position: LogPosition,
    time: u64,
    data: &'f [u8],
}

impl Core {
    /// See [`kauri_storage::ReplicatedLog::close_frame`].
    pub fn append_own_frame(
        &self,
        position: LogPosition,
        time: u64,
        data: &[u8],
    ) -> Result<(Frame, CommitTicket), StorageError> {
        self.check_alive()?;
        let _order = self.frames.lock_order();
        self.check_next(position, data.len())?;
        let (frame, appended) =
            self.add_frame(NewFrame { what: Append::Frame, position, time, data })?;
        let seq = if appended.follows {
            self.head.keep_unapplied(appended)
        } else {
            let seq = self.head.publish(appended)?;
            self.frames.set_applied(position);
            seq
        };
        Ok((frame, self.acks.tickets(seq)))
    }

    /// See [`kauri_storage::ReplicatedLog::append_frame`].
    pub fn append_copied_frame(
        &self,
        frame: &Frame,
        records: &[FrameRecord],
    ) -> Result<CommitTicket, StorageError> {
        self.check_alive()?;
        let _order = self.frames.lock_order();
        self.check_next(frame.position, frame.data.len())?;
        if self.head.next_copy() != Some(frame.first.0) {
            return Err(StorageError::OutOfOrder);
        }
        let payload_max = payload_bytes_max(self.segments.segment_bytes()) as usize;
        let units = units_of(frame, records, payload_max)?;
        let result = self.append_copies(frame, &units);
        if result.is_err() && self.check_alive().is_ok() && self.head.next_copy().is_none() {
            self.cut_off(self.frames.range().last.index)?;
        }
        result.map(|seq| self.acks.tickets(seq))
    }

    /// Whether a frame may have this position and so many bytes of the caller's.
    fn check_next(&self, position: LogPosition, data_len: usize) -> Result<(), StorageError> {
        let last = self.frames.range().last;
        let is_next = last.index > 0 && position.index == last.index + 1;
        if !is_next || position.term < last.term || position.term > TERM_MAX {
            return Err(StorageError::OutOfOrder);
        }
        let max = self.data_bytes_max();
        if data_len > max {
            return Err(StorageError::DocumentTooLarge { bytes: data_len, max });
        }
        Ok(())
    }

    /// See [`kauri_storage::ReplicatedLog::frame_data_bytes_max`].
    pub fn data_bytes_max(&self) -> usize {
        let max = payload_bytes_max(self.segments.segment_bytes()) as usize;
        max.saturating_sub(FramePayload::len(&[]) as usize).min(FRAME_DATA_BYTES_MAX)
    }

    fn append_copies(&self, frame: &Frame, units: &[&[FrameRecord]]) -> Result<u64, StorageError> {
        for unit in units {
            let is_put = |record: &FrameRecord| record.kind == Kind::Put as u8;
            let purpose = if unit.iter().any(is_put) { Purpose::Write } else { Purpose::Delete };
            let appended = self.append_in_room(purpose, || self.append_copied_unit(unit))?;
            self.head.keep_unapplied(appended);
        }
        let Frame { position, time, data, .. } = frame;
        let (position, time) = (*position, *time);
        let (_, appended) =
            self.add_frame(NewFrame { what: Append::Copy, position, time, data })?;
        Ok(self.head.keep_unapplied(appended))
    }

    /// Appends, and makes room as often as that is in the way.
    fn append_in_room<T>(
        &self,
        purpose: Purpose,
        append: impl Fn() -> Result<T, NotAppended>,
    ) -> Result<T, StorageError> {
        loop {
            match append() {
                Ok(appended) => return Ok(appended),
                Err(NotAppended::Room(prepared_ever)) => self.make_room(purpose, prepared_ever)?,
                Err(NotAppended::Held) => return Err(StorageError::FilesHeld),
                Err(NotAppended::Failed(error)) => return Err(error),
            }
        }
    }

    fn append_copied_unit(&self, unit: &[FrameRecord]) -> Result<Appended<'_>, NotAppended> {
        let lens = unit.iter().map(|record| record.payload.len() as u32);
        let mut head = self.begin(Append::Copy, lens)?;
        let seq = head.seq();
        let (mut crcs, mut count) = (0, 0);
        for record in unit {
            let kind = Kind::from_number(record.kind).unwrap_or(Kind::Commit);
            let commit;
            let payload = match kind {
                Kind::Commit => {
                    commit = CommitPayload { count, crc: crcs, term: 0, index: 0 }.encode();
                    &commit[..]
                }
                _ => &record.payload[..],
            };
            let header = RecordHeader {
                kind,
                flags: if record.alone { FLAG_ALONE } else { 0 },
                payload_len: payload.len() as u32,
                payload_crc: crc32c::crc32c(payload),
                collection: record.collection,
                record: record.record,
                seq,
            };
            let (_, crc) = head.append(&header, payload)?;
            crcs = unit_crc(crcs, crc);
            count += 1;
        }
        head.finish()
    }

    /// Appends a frame record and adds the frame to the others.
    fn add_frame(&self, new: NewFrame<'_>) -> Result<(Frame, Appended<'_>), StorageError> {
        let (frame, at, appended) =
            self.append_in_room(Purpose::Delete, || self.append_frame_record(new))?;
        self.frames.push(at);
        Ok((frame, appended))
    }

    fn append_frame_record(
        &self,
        new: NewFrame<'_>,
    ) -> Result<(Frame, FrameAt, Appended<'_>), NotAppended> {
        let NewFrame { what, position, time, data } = new;
        let payload_len = FramePayload::len(data);
        let mut head = self.begin(what, [payload_len].into_iter())?;
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
        Ok((frame_of(&header, payload), frame_at, head.finish()?))
    }
}

/// The units of a frame. `Corruption` if they are not what the frame says, or not whole.
fn units_of<'r>(
    frame: &Frame,
    records: &'r [FrameRecord],
    payload_max: usize,
) -> Result<Vec<&'r [FrameRecord]>, StorageError> {
    let wrong = |what: &str| StorageError::Corruption {
        collection: None,
        record: None,
        message: format!("frame {} of another member {what}", frame.position.index),
    };
    if let Some(large) = records.iter().find(|record| record.payload.len() > payload_max) {
        let (bytes, max) = (large.payload.len(), payload_max);
        return Err(StorageError::DocumentTooLarge { bytes, max });
    }
    let bytes = |record: &FrameRecord| u64::from(record_bytes(record.payload.len() as u32));
    let all_bytes: u64 = records.iter().map(bytes).sum();
    if records.len() != frame.records as usize || all_bytes != frame.bytes {
        return Err(wrong("has other records than it says"));
    }
    let units: Vec<_> = records.chunk_by(|a, b| a.seq == b.seq).collect();
    let seqs = units.iter().filter_map(|unit| unit.first()).map(|record| record.seq.0);
    if !seqs.eq(frame.first.0..frame.seq.0) {
        return Err(wrong("lacks units"));
    }
    match units.iter().all(|unit| is_whole(unit)) {
        true => Ok(units),
        false => Err(wrong("has a unit that is not whole")),
    }
}

fn is_whole(unit: &[FrameRecord]) -> bool {
    let is_member = |record: &FrameRecord| match Kind::from_number(record.kind) {
        Some(Kind::Put) => (1..RECORDS_MAX).contains(&record.record),
        Some(Kind::Tombstone) => {
            (1..RECORDS_MAX).contains(&record.record) && record.payload.is_empty()
        }
        Some(Kind::CreateStore | Kind::DropStore) => record.payload.is_empty(),
        _ => false,
    };
    let members = match unit {
        [alone] if alone.alone => return is_member(alone),
        [members @ .., commit] if commit.kind == Kind::Commit as u8 => {
            let count = CommitPayload::decode(&commit.payload).map(|commit| commit.count as usize);
            let right = count == Some(members.len()) && !commit.alone;
            members.get(..if right { members.len() } else { 0 })
        }
        _ => None,
    };
    let members = members.unwrap_or_default();
    let len = COMMIT_PAYLOAD_BYTES as usize;
    let commit_fits = unit.last().is_some_and(|commit| commit.payload.len() == len);
    !members.is_empty() && commit_fits && members.iter().all(|r| !r.alone && is_member(r))
}
