//! Reads of data in memory.

use super::subject::{Opening, Scratch, Subject};
use super::table::{Goal, Line};
use super::workload::{Choice, Collection, Documents, Reader};
use super::{Kind, Settings};
use crate::compare::median;
use kauri_base::{Access, RecordId, Result};
use kauri_storage::{Direction, RecordScan};
use std::hint::black_box;
use std::time::Instant;

/// Documents that a scan reads within one snapshot.
const SCAN_STEP: usize = 1024;
/// Looked up between two looks at the clock.
const BATCH: u64 = 256;

struct Side {
    kind: Kind,
    collection: Collection,
    reader: Reader,
    choice: Choice,
    buffer: Vec<u8>,
    figures: Vec<Vec<f64>>,
    subject: Subject,
    _scratch: Scratch,
}

fn open(settings: &Settings) -> Result<Vec<Side>> {
    settings.kinds.iter().map(|kind| Side::open(*kind, settings)).collect()
}

impl Side {
    fn open(kind: Kind, settings: &Settings) -> Result<Side> {
        let scratch = Scratch::new(&settings.directory)?;
        let opening = Opening { cache_bytes: settings.cache_bytes(), ..Opening::default() };
        let subject = Subject::open(kind, scratch.path(), &opening)?;
        let collection = Collection::create(&subject)?;
        let mut docs = Documents::new(settings.document_bytes, settings.seed);
        collection.load(&mut docs, 0, settings.documents as i64, 100)?;
        subject.checkpoint()?;
        Ok(Side {
            kind,
            reader: Reader::new(&*subject.engine),
            collection,
            choice: Choice::uniform(settings.documents, settings.seed),
            buffer: Vec::new(),
            figures: vec![Vec::new(); 2],
            subject,
            _scratch: scratch,
        })
    }

    /// Nanoseconds of one lookup.
    fn lookups(&mut self, settings: &Settings, by_id: bool) -> Result<f64> {
        let (began, mut count) = (Instant::now(), 0u64);
        while began.elapsed() < settings.slice {
            for _ in 0..BATCH {
                let id = self.choice.next();
                let buffer = &mut self.buffer;
                let copy = |bytes: &[u8], buffer: &mut Vec<u8>| {
                    buffer.clear();
                    buffer.extend_from_slice(bytes);
                };
                let found = if by_id {
                    self.reader
                        .by_id(&self.collection, id, |_, r| copy(r.doc.as_bytes(), buffer))?
                } else {
                    let id = RecordId(id as u64 + 1);
                    self.reader.record(&self.collection, id, |r| copy(r.doc.as_bytes(), buffer))?
                };
                assert!(found.is_some(), "a document is missing");
                black_box(&self.buffer);
            }
            count += BATCH;
        }
        Ok(began.elapsed().as_nanos() as f64 / count as f64)
    }

    /// Nanoseconds a document of a walk over all.
    fn walk(&mut self) -> Result<f64> {
        let began = Instant::now();
        let mut scan = RecordScan::new(Direction::Forward);
        let mut count = 0u64;
        let mut ended = false;
        while !ended {
            let unit = self.reader.unit();
            unit.enter();
            let mut blocked = None;
            for _ in 0..SCAN_STEP {
                let Some(id) = scan.next_buffered() else {
                    if scan.ended() {
                        ended = true;
                        break;
                    }
                    if let Access::WouldBlock(t) = self.collection.store().fill(unit, &mut scan)? {
                        blocked = Some(t);
                        break;
                    }
                    continue;
                };
                match self.collection.store().get(unit, id)? {
                    Access::Ready(Some(record)) => {
                        self.buffer.clear();
                        self.buffer.extend_from_slice(record.doc.as_bytes());
                        black_box(&self.buffer);
                        count += 1;
                    }
                    Access::Ready(None) => {}
                    Access::WouldBlock(ticket) => {
                        scan.put_back();
                        blocked = Some(ticket);
                        break;
                    }
                }
            }
            unit.leave();
            if let Some(ticket) = blocked {
                ticket.wait()?;
            }
        }
        Ok(began.elapsed().as_nanos() as f64 / count.max(1) as f64)
    }

    fn close(self) -> Result<()> {
        drop((self.collection, self.reader));
        self.subject.close()
    }
}

/// Gets of hot documents, by `_id` and by record.
pub fn get(settings: &Settings) -> Result<Vec<Line>> {
    let mut by_id = Line::new("hot get by _id, 1 KB copied", "ns", Goal::AtMost(500.0));
    let mut by_record =
        Line::new("hot get by record id, 1 KB copied", "ns", Goal::None).anchored(1500.0, 2000.0);
    let mut sides = open(settings)?;
    for side in &mut sides {
        // Once for the caches.
        side.lookups(settings, true)?;
    }
    for _ in 0..settings.rounds {
        for side in &mut sides {
            let figures = [side.lookups(settings, true)?, side.lookups(settings, false)?];
            side.figures.iter_mut().zip(figures).for_each(|(all, figure)| all.push(figure));
        }
    }
    for mut side in sides {
        let mut figures = std::mem::take(&mut side.figures).into_iter();
        for line in [&mut by_id, &mut by_record] {
            line.set(side.kind, median(figures.next().unwrap_or_default()));
        }
        side.close()?;
    }
    Ok(vec![by_id, by_record])
}

/// Walks over a collection in memory.
pub fn scan(settings: &Settings) -> Result<Vec<Line>> {
    let mut line = Line::new("scan in memory, 1 KB copied", "ns/document", Goal::None);
    let mut sides = open(settings)?;
    for _ in 0..settings.rounds {
        for side in &mut sides {
            let figure = side.walk()?;
            side.figures.iter_mut().take(1).for_each(|all| all.push(figure));
        }
    }
    for mut side in sides {
        line.set(side.kind, median(side.figures.swap_remove(0)));
        side.close()?;
    }
    let ratio = line.pmlog.zip(line.wiredtiger).map(|(one, two)| one / two);
    let mut against = Line::new("scan: pmlog's time / WiredTiger's", "x", Goal::AtMost(1.1));
    against.pmlog = ratio;
    Ok(if ratio.is_some() { vec![line, against] } else { vec![line] })
}
