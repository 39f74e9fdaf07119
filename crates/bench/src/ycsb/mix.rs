//! YCSB's core workloads in this experiment: operations and documents.
//!
//! Documents have a text `_id` of fixed length, made of the hash of their number (so consecutively inserted
//! documents are not neighbours), and ten fields of 100 letters.

use crate::workload::record::{InsertOrder, KeyNames};
use crate::workload::{self, CoreWorkload, Fields, Preset, Seeded, Stream};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_base::{Error, Result};
use kauri_bson::DocBuf;
use std::sync::Arc;

/// Fields of a document.
pub const FIELDS: usize = 10;
/// Letters of a field.
pub const FIELD_BYTES: usize = 100;
/// Most documents of a scan.
pub const SCAN_MAX: u64 = 100;
/// Letters of an `_id`.
pub const ID_BYTES: usize = 24;

/// One of the six.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Half reads, half updates of one field.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// 95 % reads of those inserted last, 5 % inserts.
    D,
    /// 95 % scans of up to 100 documents, 5 % inserts.
    E,
    /// Half reads, half reads followed by an update of what was read.
    F,
}

impl Workload {
    /// All, those that insert last.
    pub const ALL: [Workload; 6] =
        [Workload::A, Workload::B, Workload::C, Workload::F, Workload::D, Workload::E];

    /// Its letter.
    pub fn letter(self) -> char {
        match self {
            Workload::A => 'A',
            Workload::B => 'B',
            Workload::C => 'C',
            Workload::D => 'D',
            Workload::E => 'E',
            Workload::F => 'F',
        }
    }

    /// What it does, briefly.
    pub fn about(self) -> &'static str {
        Preset::of(&self.letter().to_string()).map_or("", |preset| preset.about)
    }

    /// The workloads of these letters, in the order in which they run.
    pub fn parse(letters: &str) -> Result<Vec<Workload>> {
        let is_known = |letter: char| Workload::ALL.iter().any(|w| w.letter() == letter);
        let letters = letters.to_ascii_uppercase();
        match letters.chars().find(|letter| !is_known(*letter)) {
            Some(other) => {
                Err(Error::bad_value(format!("--workloads takes letters A to F, not '{other}'")))
            }
            None => {
                Ok(Workload::ALL.into_iter().filter(|w| letters.contains(w.letter())).collect())
            }
        }
    }
}

/// One operation on a document's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads all fields.
    Read(u64),
    /// Overwrites this field.
    Update(u64, usize),
    /// Adds the document.
    Insert(u64),
    /// Reads so many from it on, in the order of `_id`.
    Scan(u64, u64),
    /// Reads it, then overwrites this field.
    ReadModifyWrite(u64, usize),
}

/// A run of operations. Two with the same seed and the same documents are equal.
pub struct Mix {
    core: Arc<CoreWorkload>,
    stream: Stream<Seeded>,
}

impl Mix {
    /// Over `documents` that are there.
    pub fn new(workload: Workload, documents: u64, seed: u64) -> Result<Mix> {
        let preset = Preset::of(&workload.letter().to_string());
        let mut properties = preset.map(Preset::properties).unwrap_or_default();
        properties.set("recordcount", documents.to_string());
        // How many operations there will be is not known: it depends on the time they take.
        properties.set("operationcount", "0");
        let core = Arc::new(CoreWorkload::of(&properties)?);
        let (stream, _) = core.thread(seed, 0);
        Ok(Mix { core, stream })
    }

    /// How many documents there are after what was asked so far.
    pub fn documents(&self) -> u64 {
        (self.core.newest() + 1).unsigned_abs()
    }

    /// The next one. An insert counts as done: there is one thread, and it does what it is told.
    pub fn next(&mut self) -> Result<Operation> {
        let number = i64::unsigned_abs;
        let field = |fields| match fields {
            Fields::One(field) => field,
            Fields::Whole | Fields::All => 0,
        };
        Ok(match self.stream.next_operation() {
            workload::Operation::Insert { record } => {
                self.core.acknowledge(record)?;
                Operation::Insert(number(record))
            }
            workload::Operation::Read { record, .. } => Operation::Read(number(record)),
            workload::Operation::Update { record, fields } => {
                Operation::Update(number(record), field(fields))
            }
            workload::Operation::Scan { record, length, .. } => {
                Operation::Scan(number(record), number(length))
            }
            workload::Operation::ReadModifyWrite { record, written, .. } => {
                Operation::ReadModifyWrite(number(record), field(written))
            }
        })
    }
}

/// The `_id` of a document.
pub fn id(number: u64) -> String {
    const NAMES: KeyNames = KeyNames { order: InsertOrder::Hashed, digits_min: 20 };
    NAMES.name(number.cast_signed())
}

/// A field's name.
pub fn field_name(field: usize) -> String {
    format!("field{field}")
}

/// Makes documents and values of fields.
pub struct Values(SeededRandom);

impl Values {
    /// From this seed.
    pub fn new(seed: u64) -> Values {
        Values(SeededRandom::new(seed))
    }

    /// 100 letters that don't compress.
    pub fn field(&mut self) -> [u8; FIELD_BYTES] {
        const LETTERS: &[u8; 64] =
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/";
        let mut field = [0; FIELD_BYTES];
        for chunk in field.chunks_mut(10) {
            let mut bits = self.0.next_u64();
            for letter in chunk {
                *letter = LETTERS[(bits & 63) as usize];
                bits >>= 6;
            }
        }
        field
    }

    /// The document of this number.
    pub fn document(&mut self, number: u64) -> DocBuf {
        DocBuf::build(|out| {
            out.put("_id", id(number).as_str());
            for field in 0..FIELDS {
                let value = self.field();
                out.put(&field_name(field), String::from_utf8_lossy(&value).as_ref());
            }
        })
    }
}

/// Where a field's letters begin in a document of [`Values::document`].
pub fn field_at(field: usize) -> usize {
    // The length; type, `_id`, length, letters, 0; then for each field type, name, length, letters, 0.
    const FIRST: usize = 4 + 1 + 4 + 4 + ID_BYTES + 1;
    const HEAD: usize = 1 + 7 + 4;
    FIRST + field * (HEAD + FIELD_BYTES + 1) + HEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::Value;

    #[test]
    fn fields_are_where_they_are_said_to_be() {
        let mut values = Values::new(1);
        let mut doc = values.document(5).into_vec();
        for field in 0..FIELDS {
            let at = field_at(field);
            doc[at..at + FIELD_BYTES].copy_from_slice(&[b'0' + field as u8; FIELD_BYTES]);
        }
        let doc = kauri_bson::Doc::from_bytes(&doc).expect("a document");
        assert_eq!(doc.value("_id"), Value::from(id(5).as_str()));
        assert_eq!(id(5).len(), ID_BYTES);
        for field in 0..FIELDS {
            let expected = field.to_string().repeat(FIELD_BYTES);
            assert_eq!(doc.value(&field_name(field)), Value::from(expected.as_str()));
        }
    }

    #[test]
    fn workloads_have_their_proportions() {
        let shares = |workload| {
            let mut mix = Mix::new(workload, 1000, 7).expect("a mix");
            let mut counts = [0u32; 5];
            for _ in 0..10_000 {
                let before = mix.documents();
                match mix.next().expect("an operation") {
                    Operation::Read(number) => {
                        assert!(number < before);
                        counts[0] += 1;
                    }
                    Operation::Update(number, field) => {
                        assert!(number < before && field < FIELDS);
                        counts[1] += 1;
                    }
                    Operation::Insert(number) => {
                        assert_eq!(number, before);
                        counts[2] += 1;
                    }
                    Operation::Scan(number, length) => {
                        assert!(number < before && (1..=SCAN_MAX).contains(&length));
                        counts[3] += 1;
                    }
                    Operation::ReadModifyWrite(..) => counts[4] += 1,
                }
            }
            counts.map(|count| (f64::from(count) / 100.0).round() as u32)
        };
        let near = |workload, expected: [u32; 5]| {
            let found = shares(workload);
            let off = |(a, b): (&u32, &u32)| a.abs_diff(*b) > 2;
            assert!(!found.iter().zip(&expected).any(off), "{workload:?}: {found:?}");
        };
        near(Workload::A, [50, 50, 0, 0, 0]);
        near(Workload::B, [95, 5, 0, 0, 0]);
        near(Workload::C, [100, 0, 0, 0, 0]);
        near(Workload::D, [95, 0, 5, 0, 0]);
        near(Workload::E, [0, 0, 5, 95, 0]);
        near(Workload::F, [50, 0, 0, 0, 50]);
        assert!(Workload::parse("abx").is_err());
        assert_eq!(Workload::parse("EA").expect("letters"), [Workload::A, Workload::E]);
    }
}
