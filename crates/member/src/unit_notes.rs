//! What a frame tells of its units besides their records: names of collections, which records replace or delete a
//! document, and what is deleted.
//!
//! ```text
//! notes     count . label*  unit*
//! label     collection . commit . UUID (16) . length . name   from this commit on, as far as the frame goes
//! unit      commit . items . item*                            none if the unit only inserts
//! item      tag . count                                       so many operations of this kind, without a note
//!           tag + 4 . length . bytes                          one, with its note
//!           tag + 8 . count                                   so many, whose notes had no room
//! ```
//! Tags: 0 insert, 1 update, 2 delete. Operations are those on documents, in the unit's order, as the frame has their
//! records. Numbers are of variable length.

use crate::numbers::{put, take};
use kauri_base::CollectionId;
use kauri_storage::{Label, OpKind as UnitOp, WriteUnit};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest bytes of a number.
const NUMBER_BYTES_MAX: usize = 10;
/// What a label takes besides its name, at most.
const LABEL_BYTES: usize = 16 + 3 * NUMBER_BYTES_MAX;

/// What an operation does to a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum OpKind {
    Insert,
    Update,
    Delete,
}

const NOTED: u8 = 4;
const LEFT_OUT: u8 = 8;

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

/// What a frame tells of a unit.
#[derive(Default)]
pub struct UnitItems {
    /// Empty if the unit only inserts.
    bytes: Vec<u8>,
    /// How many notes were left out.
    pub left_out: usize,
}

/// What is told of a unit. Notes that do not fit into so many bytes with those before them are left out.
pub fn of_unit(unit: &WriteUnit<'_>, mut room: usize) -> UnitItems {
    let mut left_out = 0;
    let mut items: Vec<(u8, u64, &[u8])> = Vec::new();
    for op in &unit.ops {
        let kind = match op.kind {
            UnitOp::Insert { .. } => OpKind::Insert,
            UnitOp::Update { .. } => OpKind::Update,
            UnitOp::Delete { .. } => OpKind::Delete,
            _ => continue,
        };
        let (mut tag, note) = (tag_of(kind), unit.note_of(op));
        if !note.is_empty() {
            if let Some(rest) = room.checked_sub(note.len()) {
                room = rest;
                items.push((tag | NOTED, 1, note));
                continue;
            }
            tag |= LEFT_OUT;
            left_out += 1;
        }
        match items.last_mut() {
            Some((last, count, _)) if *last == tag => *count += 1,
            _ => items.push((tag, 1, &[])),
        }
    }
    let mut bytes = Vec::new();
    if items.iter().all(|(tag, ..)| *tag == tag_of(OpKind::Insert)) {
        return UnitItems::default();
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
    UnitItems { bytes, left_out }
}

/// The notes of the units that have no frame yet.
#[derive(Default)]
pub struct UnitNotes {
    /// The names that a collection has had, each from a commit on.
    labels: BTreeMap<CollectionId, Vec<(u64, Arc<Label>)>>,
    units: Vec<u8>,
    bytes: usize,
}

fn bytes_of(label: &Label) -> usize {
    label.name.len() + LABEL_BYTES
}

impl UnitNotes {
    /// By how much a unit makes them longer, at most.
    pub fn growth(&self, labels: &[Arc<Label>], items: &UnitItems) -> usize {
        let is_new = |label: &&Arc<Label>| {
            let known = self.labels.get(&label.collection);
            known.is_none_or(|known| known.iter().all(|(_, known)| known != *label))
        };
        let labels = labels.iter().filter(is_new).map(|label| bytes_of(label));
        labels.sum::<usize>() + NUMBER_BYTES_MAX + items.bytes.len()
    }

    /// A unit was committed.
    pub fn add(&mut self, seq: u64, labels: &[Arc<Label>], items: &UnitItems) {
        for label in labels {
            let names = self.labels.entry(label.collection).or_default();
            match names.iter_mut().find(|(_, known)| known == label) {
                Some((from, _)) => *from = seq.min(*from),
                None => {
                    self.bytes += bytes_of(label);
                    names.push((seq, label.clone()));
                }
            }
        }
        if !items.bytes.is_empty() {
            let before = self.units.len();
            put(&mut self.units, seq);
            self.units.extend_from_slice(&items.bytes);
            self.bytes += self.units.len() - before;
        }
    }

    /// Bytes that they take in the frame, or somewhat more.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes; empty if there is nothing to tell.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let labels = || self.labels.values().flatten();
        let count = labels().count() as u64;
        if count == 0 && self.units.is_empty() {
            return bytes;
        }
        put(&mut bytes, count);
        for (from, label) in labels() {
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

/// Operations of a unit: their kinds and notes. A note that had no room is `None`, one that is not needed empty.
pub type Items = Vec<(OpKind, Option<Vec<u8>>)>;

/// A frame's notes, read.
#[derive(Default, PartialEq, Debug)]
pub struct Notes {
    labels: Vec<(u64, Arc<Label>)>,
    units: BTreeMap<u64, Items>,
}

impl Notes {
    /// From the bytes of a frame with so many records; `None` if they are damaged.
    pub fn decode(mut from: &[u8], records: u32) -> Option<Notes> {
        let mut notes = Notes::default();
        if from.is_empty() {
            return Some(notes);
        }
        let from = &mut from;
        let mut left = u64::from(records);
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
                let (kind, number) = (kind_of(tag & !(NOTED | LEFT_OUT))?, take(from)?);
                let ops = if tag & NOTED != 0 { 1 } else { number };
                left = left.checked_sub(ops)?;
                if tag & NOTED != 0 {
                    let len = usize::try_from(number).ok()?;
                    items.push((kind, Some(from.split_off(..len)?.to_vec())));
                } else {
                    let note = (tag & LEFT_OUT == 0).then(Vec::new);
                    items.extend((0..number).map(|_| (kind, note.clone())));
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
        let items = of_unit(&mixed(), 100);
        let growth = notes.growth(&[label(3, "d.a")], &items);
        notes.add(8, &[label(3, "d.a")], &items);
        let bytes = notes.encode();
        assert!(bytes.len() <= notes.bytes() + 1 && notes.bytes() <= growth, "{growth}");
        let mut read = Notes::decode(&bytes, 9).unwrap();
        let none = || Some(Vec::new());
        let expected = vec![
            (OpKind::Insert, none()),
            (OpKind::Update, none()),
            (OpKind::Update, none()),
            (OpKind::Delete, Some(b"gone".to_vec())),
            (OpKind::Delete, none()),
        ];
        assert_eq!(read.take_unit(8), Some(expected));
        assert_eq!(read.take_unit(9), None);
        // What begins as a label and ends before the units is whole.
        let without_units = UnitNotes { units: Vec::new(), ..notes }.encode().len();
        for len in (1..bytes.len()).filter(|len| *len != without_units) {
            assert_eq!(Notes::decode(&bytes[..len], 9), None, "{len}");
        }
        assert!(Notes::decode(&bytes, 5).is_some());
        assert_eq!(Notes::decode(&bytes, 4), None, "more operations than records");
    }

    #[test]
    fn a_note_without_room_is_said_to_be_left_out() {
        let mut unit = WriteUnit::new();
        for note in [&b"one"[..], b"far too long", b"two", b"more"] {
            unit.delete(CollectionId(3), RecordId(3), CommitSeq(1));
            unit.note(note);
        }
        let items = of_unit(&unit, 6);
        assert_eq!(items.left_out, 2);
        let mut notes = UnitNotes::default();
        notes.add(8, &[], &items);
        let read = Notes::decode(&notes.encode(), 4).unwrap().take_unit(8).unwrap();
        let read: Vec<_> = read.into_iter().map(|(_, note)| note).collect();
        assert_eq!(read, [Some(b"one".to_vec()), None, Some(b"two".to_vec()), None]);
    }

    #[test]
    fn a_unit_that_only_inserts_takes_its_label_and_nothing_more() {
        let mut unit = WriteUnit::new();
        for _ in 0..1000 {
            unit.insert(CollectionId(3), vec![1]);
        }
        assert!(of_unit(&unit, 100).bytes.is_empty());
        let mut notes = UnitNotes::default();
        (1..1000).for_each(|seq| notes.add(seq, &[label(3, "d.a")], &UnitItems::default()));
        assert!(notes.encode().len() < 30, "{}", notes.encode().len());
        assert!(UnitNotes::default().encode().is_empty());
        let mut updates = WriteUnit::new();
        for n in 1..1000 {
            updates.update(CollectionId(3), RecordId(n), CommitSeq(1), vec![1]);
        }
        assert!(of_unit(&updates, 100).bytes.len() < 6);
    }

    #[test]
    fn a_renamed_collection_has_its_name_of_each_commit() {
        let mut notes = UnitNotes::default();
        // As they are noted, which need not be the order of the commits.
        for (seq, name) in [(4, "d.old"), (7, "d.new"), (5, "d.old"), (6, "d.new"), (3, "d.old")] {
            notes.add(seq, &[label(3, name)], &UnitItems::default());
        }
        notes.add(1, &[label(9, "d.other")], &UnitItems::default());
        let notes = Notes::decode(&notes.encode(), 0).unwrap();
        let name = |of, seq| notes.label(CollectionId(of), seq).map(|label| &label.name[..]);
        for (seq, expected) in
            [(3, "d.old"), (4, "d.old"), (5, "d.old"), (6, "d.new"), (7, "d.new")]
        {
            assert_eq!(name(3, seq), Some(expected), "{seq}");
        }
        assert_eq!((name(9, 7), name(4, 4)), (Some("d.other"), None));
    }
}
