//! A frame's units as operations.
//!
//! The time of an entry: a frame of `n` units gives them the `n` times up to its own, the last one its own. A frame that
//! is an entry by itself (a new term, a configuration) has its own time, and its units the times before.

use crate::entry_log::{self, Known};
use crate::unit_notes::Notes;
pub use crate::unit_notes::OpKind;
use kauri_base::CollectionId;
use kauri_bson::{Doc, DocBuf};
use kauri_replication::Payload;
use kauri_storage::{Frame, FrameRecord, Label, StorageError};
use std::sync::Arc;

/// An operation on a document or, in collection [`CollectionId::CATALOG`], on a definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// The collection as it was called then; `None` for a definition.
    pub label: Option<Arc<Label>>,
    /// The new document; empty if it was deleted.
    pub document: Vec<u8>,
    /// `{_id}` of a deleted document; the old one of a definition that was changed or deleted.
    pub note: Vec<u8>,
}

/// What an entry is.
#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// A unit: its operations happen together.
    Unit(Vec<Op>),
    /// A unit, not all of which had room in its frame.
    Incomplete,
    /// A leader's first entry.
    NewTerm,
    /// Nothing but a time.
    Idle,
    /// The voting members change.
    Membership,
    /// Another configuration of the set.
    Config(DocBuf),
}

/// An entry of the log.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its time: seconds, and a number in its lower half.
    pub time: u64,
    /// The term of its leader.
    pub term: u64,
    /// When the leader wrote its frame, in milliseconds since 1970.
    pub wall_ms: i64,
    /// What it is.
    pub what: What,
}

/// The entries of a frame, in the order of their times. `begins_term`: the frame before is of another term.
pub fn entries_of(
    frame: &Frame,
    records: Vec<FrameRecord>,
    begins_term: bool,
) -> Result<Vec<Entry>, StorageError> {
    let damaged = || StorageError::Corruption {
        collection: None,
        record: None,
        message: format!("the notes of frame {} are damaged", frame.position.index),
    };
    let known = entry_log::known_of(frame).ok_or_else(damaged)?;
    let mut notes = Notes::decode(entry_log::notes_of(frame), frame.records).ok_or_else(damaged)?;
    let Known { entry, wall_ms, time: last, .. } = known;
    let term = entry.term;
    let what = match entry.payload {
        Payload::Frame(_) => None,
        Payload::Blank if begins_term => Some(What::NewTerm),
        Payload::Blank => Some(What::Idle),
        Payload::Membership(_) => Some(What::Membership),
        Payload::Config(bytes) => {
            Some(What::Config(Doc::from_bytes(&bytes).map_err(|_| damaged())?.to_buf()))
        }
    };
    let before = u64::from(what.is_none());
    let mut entries = Vec::new();
    let mut records = records.into_iter().peekable();
    while let Some(seq) = records.peek().map(|record| record.seq) {
        let mut items = notes.take_unit(seq.0).map(Vec::into_iter);
        let (mut ops, mut is_whole) = (Vec::new(), true);
        while let Some(record) = records.next_if(|record| record.seq == seq) {
            // Others create and drop stores, or end the unit.
            if record.record == 0 {
                continue;
            }
            let (kind, note) = match &mut items {
                Some(items) => items.next().ok_or_else(damaged)?,
                None => (OpKind::Insert, Some(Vec::new())),
            };
            is_whole &= note.is_some();
            let note = note.unwrap_or_default();
            let collection = CollectionId(record.collection);
            let label = notes.label(collection, seq.0).cloned();
            if label.is_some() || collection == CollectionId::CATALOG {
                ops.push(Op { kind, label, document: record.payload, note });
            }
        }
        let time = frame.time + (seq.0 - frame.first.0) + before;
        let what = if is_whole { What::Unit(ops) } else { What::Incomplete };
        entries.push(Entry { time, term, wall_ms, what });
    }
    if let Some(what) = what {
        entries.push(Entry { time: last, term, wall_ms, what });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry_log::{DATA_BLANK, DATA_CONFIG, DATA_UNITS, data_of_frame};
    use crate::unit_notes::{UnitItems, UnitNotes, of_unit};
    use kauri_base::{CommitSeq, RecordId};
    use kauri_bson::doc;
    use kauri_storage::{LogPosition, WriteUnit};

    /// A frame of units of these commits and records. Time 100 is that of commit 7.
    fn frame(
        tag: u8,
        content: &[u8],
        units: &[(u64, u64)],
        notes: &[u8],
    ) -> (Frame, Vec<FrameRecord>) {
        let record = |&(seq, record): &(u64, u64)| FrameRecord {
            kind: 1,
            alone: true,
            collection: 3,
            record,
            seq: CommitSeq(seq),
            payload: vec![record as u8],
        };
        let first = 7;
        let last = units.last().map_or(first, |(seq, _)| seq + 1);
        let frame = Frame {
            position: LogPosition { term: 2, index: 5 },
            first: CommitSeq(first),
            seq: CommitSeq(last),
            time: 100,
            records: units.len() as u32,
            bytes: 64,
            data: data_of_frame(tag, 9_000, [content, notes, b""]),
        };
        (frame, units.iter().map(record).collect())
    }

    fn label() -> Arc<Label> {
        Arc::new(Label { collection: CollectionId(3), uuid: [1; 16], name: "d.c".to_owned() })
    }

    fn times(entries: &[Entry]) -> Vec<u64> {
        entries.iter().map(|entry| entry.time).collect()
    }

    #[test]
    fn the_last_entry_of_a_frame_has_its_time() {
        let mut notes = UnitNotes::default();
        notes.add(7, &[label()], &UnitItems::default());
        let units = [(7, 1), (8, 2), (8, 3), (8, 0), (9, 4)];
        let (of, records) = frame(DATA_UNITS, b"", &units, &notes.encode());
        let entries = entries_of(&of, records.clone(), false).unwrap();
        assert_eq!(times(&entries), [101, 102, 103]);
        assert_eq!(entry_log::known_of(&of).unwrap().time, 103);
        let What::Unit(ops) = &entries[1].what else { panic!("{entries:?}") };
        let documents: Vec<_> = ops.iter().map(|op| op.document.clone()).collect();
        assert_eq!(documents, [[2], [3]], "the record of the unit's end is none");
        assert!(ops.iter().all(|op| op.kind == OpKind::Insert && op.label == Some(label())));
        // A frame that is an entry itself comes behind its units.
        let (of, records) = frame(DATA_BLANK, b"", &units, &notes.encode());
        let entries = entries_of(&of, records, true).unwrap();
        assert_eq!(times(&entries), [100, 101, 102, 103]);
        assert_eq!(entries[3].what, What::NewTerm);
        let (of, records) = frame(DATA_BLANK, b"", &[], b"");
        let entries = entries_of(&of, records, false).unwrap();
        assert_eq!((times(&entries), &entries[0].what), (vec![100], &What::Idle));
        let config = doc! { "version" => 3 };
        let (of, records) = frame(DATA_CONFIG, config.as_doc().as_bytes(), &[], b"");
        let entries = entries_of(&of, records, false).unwrap();
        assert_eq!(entries[0].what, What::Config(config));
    }

    #[test]
    fn operations_are_what_the_notes_say() {
        let mut unit = WriteUnit::new();
        unit.insert(CollectionId(3), vec![1]);
        unit.update(CollectionId(3), RecordId(2), CommitSeq(1), vec![2]);
        unit.delete(CollectionId(3), RecordId(3), CommitSeq(1));
        unit.note(b"id");
        let mut notes = UnitNotes::default();
        notes.add(7, &[label()], &of_unit(&unit, 100));
        let units = [(7, 1), (7, 2), (7, 3), (8, 4)];
        let (of, records) = frame(DATA_UNITS, b"", &units, &notes.encode());
        let entries = entries_of(&of, records.clone(), false).unwrap();
        let What::Unit(ops) = &entries[0].what else { panic!("{entries:?}") };
        let kinds: Vec<_> = ops.iter().map(|op| op.kind).collect();
        assert_eq!(kinds, [OpKind::Insert, OpKind::Update, OpKind::Delete]);
        assert_eq!(ops[2].note, b"id");
        let mut less = UnitNotes::default();
        less.add(7, &[label()], &of_unit(&unit, 1));
        let (of, records_of_less) = frame(DATA_UNITS, b"", &units, &less.encode());
        let entries = entries_of(&of, records_of_less, false).unwrap();
        assert_eq!(entries[0].what, What::Incomplete);
        assert!(matches!(entries[1].what, What::Unit(_)));
        // Fewer than there are records: damage.
        let (of, mut records) = frame(DATA_UNITS, b"", &units, &notes.encode());
        records.insert(3, records[2].clone());
        assert!(matches!(entries_of(&of, records, false), Err(StorageError::Corruption { .. })));
    }
}
