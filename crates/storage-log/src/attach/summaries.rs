//! A collection's records in the order in which they lie in the log, as the summaries tell that
//! recovery has read.

use super::{Part, Pass, Result, corrupt};
use crate::address::Address;
use crate::format::id::Id;
use crate::format::record::{Kind, record_bytes};
use crate::format::summary::Entry;
use crate::reader::{Next, RecordReader};
use crate::recovery::Kept;
use kauri_base::RecordId;
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_medium::{Guard, parallel};
use kauri_storage::{KeyGenerator, StorageError};

/// What recovery has read of the segments that count.
#[derive(Default)]
pub struct Recovered {
    segments: Vec<Segment>,
}

struct Segment {
    kept: Kept,
    /// The collections with records in it, in order.
    collections: Vec<u32>,
}

/// A collection's records are looked for in what its segments hold if they are at least one in so
/// many.
const ENTRIES_A_RECORD_MAX: u64 = 8;
/// Records with gaps up to this are read in one go.
const GAP_BYTES: u32 = 64 << 10;

impl Recovered {
    /// These segments, and for each the collections with records in it.
    pub fn new(kept: Vec<Kept>, collections: Vec<Vec<u32>>) -> Self {
        let segments = kept.into_iter().zip(collections);
        let segments = segments.map(|(kept, mut collections)| {
            collections.sort_unstable();
            collections.dedup();
            Segment { kept, collections }
        });
        let mut segments: Vec<Segment> = segments.collect();
        segments.sort_unstable_by_key(|segment| segment.kept.segment);
        Recovered { segments }
    }

    /// The segments with records of a collection that has so many, in the order in which they lie in
    /// the file. `None` if looking through them isn't worth its while.
    fn of(&self, collection: u32, records: u64) -> Option<Vec<&Kept>> {
        let holds = |segment: &&Segment| segment.collections.binary_search(&collection).is_ok();
        let kept: Vec<&Kept> = self.segments.iter().filter(holds).map(|s| &s.kept).collect();
        let entries: u64 = kept.iter().map(|kept| kept.contents.len()).sum();
        (entries <= records.saturating_mul(ENTRIES_A_RECORD_MAX)).then_some(kept)
    }
}

/// A document that has to be read.
struct Place {
    offset: u32,
    end: u32,
    record: RecordId,
    /// Whether its `_id` is known, so that indexes made of it alone have its keys.
    has_id: bool,
}

impl Pass<'_> {
    /// The keys of all records, or `None` if the collection is not one that summaries are of use for.
    pub(super) fn by_summaries(&self) -> Result<Option<Vec<Part>>> {
        let recovered: Arc<Recovered> = crate::lock(&self.core.recovered).clone();
        let records = self.store.records.load(Ordering::Relaxed);
        let Some(kept) = recovered.of(self.store.id.0, records) else { return Ok(None) };
        let threads = self.core.options.open_threads.max(1);
        let shares: Vec<&[&Kept]> = kept.chunks(kept.len().div_ceil(threads).max(1)).collect();
        let parts = parallel::try_map(threads, shares.len(), |n| {
            let mut part = self.part();
            let mut guard = self.core.domain.register();
            for kept in shares.get(n).copied().unwrap_or_default() {
                self.segment(&mut guard, kept, &mut part)?;
            }
            part.sort();
            Ok::<_, StorageError>(part)
        })?;
        // Each record is found where its slot says, or it has been written since.
        let found: u64 = parts.iter().map(|part| part.records).sum();
        Ok((found == records).then_some(parts))
    }

    /// Adds the keys of the records that are in a segment.
    fn segment(&self, guard: &mut Guard, kept: &Kept, part: &mut Part) -> Result<()> {
        let segment = kept.segment;
        if self.core.segments.get(segment).epoch() != kept.epoch {
            return Ok(());
        }
        let of_ids = self.generators.iter().any(|generator| generator.is_of_id());
        let of_documents = self.generators.iter().any(|generator| !generator.is_of_id());
        let mut places = Vec::new();
        let mut failed = Ok(());
        let before = part.records;
        guard.enter();
        kept.contents.for_each(|entry| {
            let Entry { offset, record, .. } = entry;
            let of_collection = entry.collection == self.store.id.0;
            if !of_collection || !matches!(entry.kind, Kind::Put | Kind::PendingPut) {
                return;
            }
            let slot = self.store.slots.load(guard, record);
            if !slot.is_live() || slot.address() != (Address { segment, offset }) {
                return;
            }
            part.records += 1;
            let record = RecordId(record);
            let id = if of_ids { entry.id.document() } else { None };
            if let Some(document) = &id {
                let bytes = document.bytes();
                let generated = self.generate(part, record, bytes, |g| g.is_of_id());
                failed = std::mem::replace(&mut failed, Ok(())).and(generated);
            }
            if of_documents || id.is_none() {
                let end = offset + record_bytes(entry.payload_len);
                let has_id = entry.id != Id::Unknown;
                places.push(Place { offset, end, record, has_id });
            }
        });
        guard.leave();
        failed?;
        self.take_memory(part)?;
        self.read(kept, &places, part)?;
        let records = part.records - before;
        self.progress.add(records, records, |attr| attr.num("collection", self.store.id.0));
        Ok(())
    }

    /// Adds what is told by documents, which lie in this order in a segment.
    fn read(&self, kept: &Kept, places: &[Place], part: &mut Part) -> Result<()> {
        let Kept { segment, epoch, end, .. } = *kept;
        let core = self.core;
        let mut reader =
            RecordReader::new(&*core.medium, &core.faults, &core.segments, segment, epoch, end);
        let runs = places.chunk_by(|a, b| b.offset <= a.end.saturating_add(GAP_BYTES));
        for run in runs {
            let run_end = run.last().map_or(0, |place| place.end);
            for place in run {
                reader.seek_run(place.offset, run_end);
                let whole = match reader.next().map_err(crate::io_error)? {
                    Next::Record(record) if record.payload_whole => Some(record),
                    _ => None,
                };
                let damaged = || {
                    let offset = place.offset;
                    let message =
                        format!("the record in segment {segment} at offset {offset} is damaged");
                    corrupt(self.store, place.record, &message)
                };
                let record = whole.ok_or_else(damaged)?;
                let wanted = |g: &dyn KeyGenerator| !(place.has_id && g.is_of_id());
                self.generate(part, place.record, record.payload, wanted)?;
                if part.is_due() {
                    self.take_memory(part)?;
                }
            }
        }
        Ok(())
    }
}
