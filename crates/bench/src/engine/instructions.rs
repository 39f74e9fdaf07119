//! Repeats one kind of operation, for a tool that counts instructions between entering and leaving [`measured`]
//! (`scripts/instructions`).

use super::subject::{Opening, Scratch, Subject};
use super::workload::{Choice, Collection, Documents, Reader};
use super::{Kind, Settings};
use kauri_base::{Error, Result};
use std::hint::black_box;

/// Operations that are counted.
const COUNT: u64 = 2_000;

/// What is counted. Named in `scripts/instructions`.
#[inline(never)]
pub fn measured(operations: u64, operation: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..operations {
        operation()?;
    }
    Ok(())
}

/// Loads, warms up, and performs [`COUNT`] operations; says how many.
pub fn repeat(kind: Kind, operation: &str, settings: &Settings) -> Result<()> {
    let scratch = Scratch::new(&settings.directory)?;
    let opening = Opening { cache_bytes: 256 << 20, segment_bytes: 4 << 20, ..Opening::default() };
    let subject = Subject::open(kind, scratch.path(), &opening)?;
    let collection = Collection::create(&subject)?;
    let mut docs = Documents::new(settings.document_bytes, settings.seed);
    collection.load(&mut docs, 0, settings.documents as i64, 100)?;
    subject.checkpoint()?;
    let mut choice = Choice::uniform(settings.documents, settings.seed);
    let mut reader = Reader::new(&*subject.engine);
    let mut buffer = Vec::new();
    // Made before: only the engine's instructions are counted.
    let made: Vec<(i64, Vec<u8>)> = (0..2 * COUNT as i64)
        .map(|number| match operation {
            "insert" => settings.documents as i64 + number,
            _ => choice.next(),
        })
        .map(|id| (id, docs.make(id).to_vec()))
        .collect();
    let mut made = made.iter();
    let mut perform = || -> Result<()> {
        let Some((id, doc)) = made.next() else {
            return Err(Error::bad_value("there are no documents left"));
        };
        match operation {
            "get" => {
                reader.by_id(&collection, *id, |_, found| {
                    buffer.clear();
                    buffer.extend_from_slice(found.doc.as_bytes());
                })?;
                black_box(&buffer);
                Ok(())
            }
            "insert" => collection.insert_doc(*id, doc),
            "update" => collection.update_doc(&mut reader, *id, doc),
            other => Err(Error::bad_value(format!("there are get, insert, update, not '{other}'"))),
        }
    };
    for _ in 0..COUNT {
        perform()?;
    }
    measured(COUNT, &mut perform)?;
    println!("{COUNT}");
    drop((collection, reader));
    subject.close()
}
