//! The workloads through the storage interface, as a server's command would use it.

use super::driver::Driver;
use super::mix::{self, FIELD_BYTES, Values};
use crate::engine::Kind;
use crate::engine::subject::{Opening, Subject};
use crate::engine::workload::{COLLECTION, Collection, INDEX, Reader};
use kauri_base::{Access, Error, ErrorCode, RecordId, Result, Ticket};
use kauri_bson::{Doc, Value};
use kauri_storage::{Direction, Durability, IndexScan, KeyGenerator, WriteUnit};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

/// Documents of one unit while loading.
const LOAD_BATCH: u64 = 100;

/// The key of a text `_id`: a type byte, the text, a zero.
fn key_of(id: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(id.len() + 2);
    key.push(0x3C);
    key.extend_from_slice(id.as_bytes());
    key.push(0);
    key
}

struct TextKeys;

impl KeyGenerator for TextKeys {
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        if let Value::String(id) = doc.value("_id") {
            emit(&key_of(&id), &[]);
        }
        Ok(())
    }

    fn image_tag(&self) -> Option<u64> {
        Some(1)
    }
}

/// An engine in a directory that was loaded before.
pub struct Stored {
    collection: Collection,
    reader: Reader,
    values: Values,
    buffer: Vec<u8>,
    found: Vec<RecordId>,
    subject: Subject,
}

fn missing() -> Error {
    Error::new(ErrorCode::OperationFailed, "a document is missing")
}

/// Fills a directory.
pub fn load(kind: Kind, path: &Path, opening: &Opening, documents: u64) -> Result<()> {
    let subject = Subject::open(kind, path, opening)?;
    let collection = Collection::create_with(&subject, Arc::new(TextKeys))?;
    let mut values = Values::new(documents);
    let mut unit = WriteUnit::new();
    let mut next = 0;
    while next < documents {
        unit.clear();
        let end = (next + LOAD_BATCH).min(documents);
        for number in next..end {
            unit.insert(COLLECTION, values.document(number).into_vec());
            unit.key(INDEX, true, true, &key_of(&mix::id(number)), &[]);
        }
        collection.commit(&mut unit)?.wait(Durability::Written)?;
        next = end;
    }
    subject.checkpoint()?;
    drop(collection);
    subject.close()
}

impl Stored {
    /// Opens it.
    pub fn open(kind: Kind, path: &Path, opening: &Opening) -> Result<Stored> {
        let subject = Subject::open(kind, path, opening)?;
        let collection = Collection::attach_with(&subject, Arc::new(TextKeys))?;
        Ok(Stored {
            reader: Reader::new(&*subject.engine),
            collection,
            values: Values::new(1),
            buffer: Vec::new(),
            found: Vec::new(),
            subject,
        })
    }

    /// Copies a document into the buffer; its record and version.
    fn find(&mut self, number: u64) -> Result<(RecordId, kauri_base::CommitSeq)> {
        let key = key_of(&mix::id(number));
        let buffer = &mut self.buffer;
        let found = self.reader.by_key(&self.collection, &key, |record, found| {
            buffer.clear();
            buffer.extend_from_slice(found.doc.as_bytes());
            (record, found.version)
        })?;
        black_box(&self.buffer);
        found.ok_or_else(missing)
    }
}

impl Driver for Stored {
    fn read(&mut self, number: u64) -> Result<()> {
        self.find(number).map(drop)
    }

    fn update(&mut self, number: u64, field: usize) -> Result<()> {
        let (record, seen) = self.find(number)?;
        let at = mix::field_at(field);
        let place = self.buffer.get_mut(at..at + FIELD_BYTES).ok_or_else(missing)?;
        place.copy_from_slice(&self.values.field());
        let mut unit = WriteUnit::new();
        unit.update(COLLECTION, record, seen, self.buffer.as_slice());
        self.collection.commit(&mut unit)?.wait(Durability::Written)
    }

    fn insert(&mut self, number: u64) -> Result<()> {
        let mut unit = WriteUnit::new();
        unit.insert(COLLECTION, self.values.document(number).into_vec());
        unit.key(INDEX, true, true, &key_of(&mix::id(number)), &[]);
        self.collection.commit(&mut unit)?.wait(Durability::Written)
    }

    /// Walks the index, then looks the records up; what is not at hand is asked for at once, so that
    /// a device that can reads several at a time.
    fn scan(&mut self, number: u64, length: u64) -> Result<()> {
        let low = key_of(&mix::id(number));
        let mut scan = IndexScan::new(Direction::Forward, low, Vec::new());
        self.found.clear();
        self.buffer.clear();
        let (mut at, mut asked) = (0, false);
        loop {
            let unit = self.reader.unit();
            unit.enter();
            let mut waiting: Option<Ticket> = None;
            while (self.found.len() as u64) < length {
                if let Some(entry) = scan.next_buffered() {
                    self.found.push(entry.record);
                } else if scan.ended() {
                    break;
                } else if let Access::WouldBlock(ticket) =
                    self.collection.index().fill(unit, &mut scan)?
                {
                    waiting = Some(ticket);
                    break;
                }
            }
            for record in self.found.get(at..).unwrap_or_default() {
                match self.collection.store().get(unit, *record)? {
                    Access::Ready(found) if waiting.is_none() => {
                        at += 1;
                        if let Some(found) = found {
                            self.buffer.extend_from_slice(found.doc.as_bytes());
                        }
                    }
                    Access::Ready(_) => {}
                    Access::WouldBlock(ticket) => {
                        waiting.get_or_insert(ticket);
                        if asked {
                            break;
                        }
                    }
                }
            }
            asked = true;
            unit.leave();
            match waiting {
                Some(ticket) => ticket.wait()?,
                None => break,
            }
        }
        black_box(&self.buffer);
        if self.found.is_empty() { Err(missing()) } else { Ok(()) }
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop((self.collection, self.reader));
        self.subject.close()
    }
}
