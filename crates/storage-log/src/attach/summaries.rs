//! Records of a collection in log order, from the summaries that recovery has read.

use super::{MadeKeys, Pass, Result, corrupt};
use crate::address::Address;
use crate::format::id::Id;
use crate::format::record::{Kind, record_bytes};
use crate::format::summary::Entry;
use crate::on_medium::Kept;
use crate::reader::{Next, RecordReader};
use crate::recovered::Recovered;
use kauri_base::RecordId;
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_medium::{Guard, parallel};
use kauri_storage::{KeyGenerator, StorageError};

/// Records with gaps up to this are read in one go.
const GAP_BYTES: u32 = 64 << 10;

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
    pub(super) fn by_summaries(&self) -> Result<Option<Vec<MadeKeys>>> {
        let recovered: Arc<Recovered> = self.core.start.recovered();
        let records = self.store.records.load(Ordering::Relaxed);
        let Some(kept) = recovered.of(self.store.id.0, records) else { return Ok(None) };
        let threads = self.core.options.open_threads.max(1);
        let shares: Vec<&[&Kept]> = kept.chunks(kept.len().div_ceil(threads).max(1)).collect();
        let all_made = parallel::try_map(threads, shares.len(), |n| {
            let mut made = self.no_keys();
            let mut guard = self.core.domain.register();
            for kept in shares.get(n).copied().unwrap_or_default() {
                self.segment(&mut guard, kept, &mut made)?;
            }
            made.sort();
            Ok::<_, StorageError>(made)
        })?;
        // Each record is found where its slot says, or it has been written since.
        let found: u64 = all_made.iter().map(|made| made.records).sum();
        Ok((found == records).then_some(all_made))
    }

    /// Adds the keys of the records that are in a segment.
    fn segment(&self, guard: &mut Guard, kept: &Kept, made: &mut MadeKeys) -> Result<()> {
        let segment = kept.segment;
        if self.core.segments.get(segment).epoch() != kept.epoch {
            return Ok(());
        }
        let of_ids = self.generators.iter().any(|generator| generator.is_of_id());
        let of_documents = self.generators.iter().any(|generator| !generator.is_of_id());
        let mut places = Vec::new();
        let mut failed = Ok(());
        let before = made.records;
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
            made.records += 1;
            let record = RecordId(record);
            let id = if of_ids { entry.id.document() } else { None };
            if let Some(document) = &id {
                let bytes = document.bytes();
                let generated = self.generate(made, record, bytes, |g| g.is_of_id());
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
        self.take_memory(made)?;
        self.read(kept, &places, made)?;
        let records = made.records - before;
        self.progress.add(records, records, |attr| attr.num("collection", self.store.id.0));
        Ok(())
    }

    /// Adds the keys of documents, which are in this order in a segment.
    fn read(&self, kept: &Kept, places: &[Place], made: &mut MadeKeys) -> Result<()> {
        let Kept { segment, epoch, end, .. } = *kept;
        let core = self.core;
        let (medium, faults) = (core.directory.medium(), core.directory.faults());
        let mut reader = RecordReader::new(medium, faults, &core.segments, segment, epoch, end);
        let ranges = places.chunk_by(|a, b| b.offset <= a.end.saturating_add(GAP_BYTES));
        for range in ranges {
            let range_end = range.last().map_or(0, |place| place.end);
            for place in range {
                reader.seek_range(place.offset, range_end);
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
                self.generate(made, place.record, record.payload, wanted)?;
                if made.is_due() {
                    self.take_memory(made)?;
                }
            }
        }
        Ok(())
    }
}
