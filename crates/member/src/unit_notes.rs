//! What a frame tells of its units besides their records: names of collections, which records replace or delete a
//! document, and what is deleted.
//!
//! ```text
//! notes     count . label*  unit*
//! label     collection . commit . UUID (16) . length . name   from this commit on, as far as the frame goes
//! unit      commit . items . item*                            none if the unit only inserts
//! item      tag . count                                       so many operations of this kind, without a note
//!           tag + 4 . length . bytes                          one, with its note
//! ```
//! Tags: 0 insert, 1 update, 2 delete. Operations are those on documents, in the unit's order, as the frame has their
//! records. Numbers are of variable length.

use crate::numbers::{put, take};
use kauri_base::CollectionId;
use kauri_storage::{Label, OpKind as UnitOp, WriteUnit};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an operation does to a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum OpKind {
    Insert,
    Update,
    Delete,
}

const NOTED: u8 = 4;
/// A longer note of an operation is left out.
const NOTE_BYTES_MAX: usize = 1 << 20;
/// Operations of a unit in a frame, at most: more are damage.
const OPS_MAX: u64 = 1 << 24;

fn tag_of(kind: OpKind) -> u8 {
    match kind {
        OpKind::Insert => 0,
        OpKind::Update => 1,
        OpKind::Delete => 2,
    }
}

fn kind_of(tag: u8) -> Option<OpKind> {
    match tag {
        0 => Some(OpKind::Insert),
        1 => Some(OpKind::Update),
        2 => Some(OpKind::Delete),
        _ => None,
    }
}

/// The items of a unit; empty if it only inserts. Notes that would be longer than `room` together are left out.
pub fn of_unit(unit: &WriteUnit<'_>, room: usize) -> Vec<u8> {
    let all: usize = unit.ops.iter().map(|op| unit.note_of(op).len()).sum();
    let mut items: Vec<(u8, u64, &[u8])> = Vec::new();
    for op in &unit.ops {
        let kind = match op.kind {
            UnitOp::Insert { .. } => OpKind::Insert,
            UnitOp::Update { .. } => OpKind::Update,
            UnitOp::Delete { .. } => OpKind::Delete,
            _ => continue,
        };
        let (tag, note) = (tag_of(kind), unit.note_of(op));
        let fits = all < room && note.len() <= NOTE_BYTES_MAX;
        match items.last_mut() {
            _ if !note.is_empty() && fits => items.push((tag | NOTED, 1, note)),
            Some((last, count, _)) if *last == tag => *count += 1,
            _ => items.push((tag, 1, &[])),
        }
    }
    let mut bytes = Vec::new();
    if items.iter().all(|(tag, ..)| *tag == tag_of(OpKind::Insert)) {
        return bytes;
    }
    put(&mut bytes, items.len() as u64);
    for (tag, count, note) in items {
        bytes.push(tag);
        if tag & NOTED == 0 {
            put(&mut bytes, count);
        } else {
            put(&mut bytes, note.len() as u64);
            bytes.extend_from_slice(note);
        }
    }
    bytes
}

/// The notes of the units that have no frame yet.
#[derive(Default)]
pub struct UnitNotes {
    labels: Vec<(u64, Arc<Label>)>,
    units: Vec<u8>,
}

impl UnitNotes {
    /// A unit was committed; its items.
    pub fn add(&mut self, seq: u64, labels: &[Arc<Label>], items: &[u8]) {
        for label in labels {
            match self.labels.iter_mut().find(|(_, known)| known == label) {
                Some((from, _)) => *from = seq.min(*from),
                None => self.labels.push((seq, label.clone())),
            }
        }
        if !items.is_empty() {
            put(&mut self.units, seq);
            self.units.extend_from_slice(items);
        }
    }

    /// Bytes that they take in the frame, or more.
    pub fn bytes(&self) -> usize {
        let labels = self.labels.iter().map(|(_, label)| label.name.len() + 48);
        self.units.len() + labels.sum::<usize>()
    }

    /// The bytes; empty if there is nothing to tell.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.labels.is_empty() && self.units.is_empty() {
            return bytes;
        }
        put(&mut bytes, self.labels.len() as u64);
        for (from, label) in &self.labels {
            put(&mut bytes, u64::from(label.collection.0));
            put(&mut bytes, *from);
            bytes.extend_from_slice(&label.uuid);
            put(&mut bytes, label.name.len() as u64);
            bytes.extend_from_slice(label.name.as_bytes());
        }
        bytes.extend_from_slice(&self.units);
        bytes
    }

    /// None are left.
    pub fn clear(&mut self) {
        *self = UnitNotes::default();
    }
}

/// Operations of a unit: their kinds and notes.
pub type Items = Vec<(OpKind, Vec<u8>)>;

/// A frame's notes, read.
#[derive(Default, PartialEq, Debug)]
pub struct Notes {
    labels: Vec<(u64, Arc<Label>)>,
    units: BTreeMap<u64, Items>,
}

impl Notes {
    /// From the bytes; `None` if they are damaged.
    pub fn decode(mut from: &[u8]) -> Option<Notes> {
        let mut notes = Notes::default();
        if from.is_empty() {
            return Some(notes);
        }
        let from = &mut from;
        for _ in 0..take(from)? {
            let collection = CollectionId(u32::try_from(take(from)?).ok()?);
            let seq = take(from)?;
            let uuid = from.split_off(..16)?.try_into().ok()?;
            let len = usize::try_from(take(from)?).ok()?;
            let name = String::from_utf8(from.split_off(..len)?.to_vec()).ok()?;
            notes.labels.push((seq, Arc::new(Label { collection, uuid, name })));
        }
        while !from.is_empty() {
            let seq = take(from)?;
            let mut items = Items::new();
            for _ in 0..take(from)? {
                let tag = *from.split_off_first()?;
                let (kind, number) = (kind_of(tag & !NOTED)?, take(from)?);
                if tag & NOTED != 0 {
                    let len = usize::try_from(number).ok()?;
                    items.push((kind, from.split_off(..len)?.to_vec()));
                } else if number <= OPS_MAX {
                    items.extend((0..number).map(|_| (kind, Vec::new())));
                } else {
                    return None;
                }
            }
            notes.units.insert(seq, items);
        }
        Some(notes)
    }

    /// The collection as it was called at this commit.
    pub fn label(&self, collection: CollectionId, seq: u64) -> Option<&Arc<Label>> {
        let known = || self.labels.iter().filter(|(_, label)| label.collection == collection);
        let last = known().filter(|(from, _)| *from <= seq).max_by_key(|(from, _)| *from);
        last.or_else(|| known().min_by_key(|(from, _)| *from)).map(|(_, label)| label)
    }

    /// The operations of this commit; `None`: it only inserts.
    pub fn take_unit(&mut self, seq: u64) -> Option<Items> {
        self.units.remove(&seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::{CommitSeq, RecordId};

    fn label(collection: u32, name: &str) -> Arc<Label> {
        let collection = CollectionId(collection);
        Arc::new(Label { collection, uuid: [7; 16], name: name.to_owned() })
    }

    fn mixed() -> WriteUnit<'static> {
        let mut unit = WriteUnit::new();
        let of = CollectionId(3);
        unit.insert(of, vec![1]);
        unit.update(of, RecordId(1), CommitSeq(1), vec![2]);
        unit.update(of, RecordId(2), CommitSeq(1), vec![2]);
        unit.push(of, RecordId(0), UnitOp::ChangeDefinition);
        unit.delete(of, RecordId(3), CommitSeq(1));
        unit.note(b"gone");
        unit.delete(of, RecordId(4), CommitSeq(1));
        unit
    }

    #[test]
    fn notes_are_read_back_and_damaged_ones_are_refused() {
        let mut notes = UnitNotes::default();
        notes.add(8, &[label(3, "d.a")], &of_unit(&mixed(), 100));
        let bytes = notes.encode();
        assert!(bytes.len() <= notes.bytes(), "{} {}", bytes.len(), notes.bytes());
        let mut read = Notes::decode(&bytes).unwrap();
        let none = Vec::new;
        let expected = vec![
            (OpKind::Insert, none()),
            (OpKind::Update, none()),
            (OpKind::Update, none()),
            (OpKind::Delete, b"gone".to_vec()),
            (OpKind::Delete, none()),
        ];
        assert_eq!(read.take_unit(8), Some(expected));
        assert_eq!(read.take_unit(9), None);
        // What begins as a label and ends before the units is whole.
        let labels = UnitNotes { units: Vec::new(), ..notes }.encode().len();
        for len in (1..bytes.len()).filter(|len| *len != labels) {
            assert_eq!(Notes::decode(&bytes[..len]), None, "{len}");
        }
        let without = of_unit(&mixed(), 3);
        assert!(without.len() < of_unit(&mixed(), 100).len(), "no room for the note");
    }

    #[test]
    fn a_unit_that_only_inserts_takes_its_label_and_nothing_more() {
        let mut unit = WriteUnit::new();
        for _ in 0..1000 {
            unit.insert(CollectionId(3), vec![1]);
        }
        assert!(of_unit(&unit, 100).is_empty());
        let mut notes = UnitNotes::default();
        (1..1000).for_each(|seq| notes.add(seq, &[label(3, "d.a")], &[]));
        assert!(notes.encode().len() < 30, "{}", notes.encode().len());
        assert!(UnitNotes::default().encode().is_empty());
        let mut updates = WriteUnit::new();
        for n in 1..1000 {
            updates.update(CollectionId(3), RecordId(n), CommitSeq(1), vec![1]);
        }
        assert!(of_unit(&updates, 100).len() < 6);
    }

    #[test]
    fn a_renamed_collection_has_its_name_of_each_commit() {
        let mut notes = UnitNotes::default();
        // As they are noted, which need not be the order of the commits.
        for (seq, name) in [(4, "d.old"), (7, "d.new"), (5, "d.old"), (6, "d.new"), (3, "d.old")] {
            notes.add(seq, &[label(3, name)], &[]);
        }
        notes.add(1, &[label(9, "d.other")], &[]);
        let notes = Notes::decode(&notes.encode()).unwrap();
        let name = |of, seq| notes.label(CollectionId(of), seq).map(|label| &label.name[..]);
        for (seq, expected) in
            [(3, "d.old"), (4, "d.old"), (5, "d.old"), (6, "d.new"), (7, "d.new")]
        {
            assert_eq!(name(3, seq), Some(expected), "{seq}");
        }
        assert_eq!((name(9, 7), name(4, 4)), (Some("d.other"), None));
    }
}
