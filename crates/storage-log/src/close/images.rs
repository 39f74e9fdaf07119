//! Writes index images at a clean shutdown.

use crate::core::Core;
use crate::format::Stream;
use crate::format::image::{CHUNK_BYTES, ChunkWriter, ImageEnd, image_record};
use crate::format::record::{FLAG_ALONE, Kind, RecordHeader};
use crate::index::Index;
use crate::open_segment::{OpenSegment, payload_bytes_max};
use crate::segments::Purpose;
use kauri_base::log::{self, Attr};
use kauri_base::sync::Arc;
use kauri_storage::StorageError;

struct Writer<'c> {
    core: &'c Core,
    seq: u64,
    open: Option<OpenSegment>,
    bytes: u64,
}

impl Core {
    /// Writes images of all indexes in their current state, which is that of the last commit, which is durable. No
    /// thread commits during that. Lack of disk space only ends it: indexes without images are rebuilt.
    pub fn write_images(&self) -> Result<(), StorageError> {
        // What a pending unit changes shows later, under a number from before.
        if self.pending.count() > 0 {
            return Ok(());
        }
        let seq = self.visible().0;
        let mut indexes: Vec<Arc<Index>> = self.registry.read().indexes.values().cloned().collect();
        indexes.sort_unstable_by_key(|index| index.spec.id);
        let ids = indexes.iter().map(|index| index.spec.id);
        if self.start.images().are_current(seq, ids) {
            return Ok(());
        }
        let started = self.options.clock.monotonic();
        let mut writer = Writer { core: self, seq, open: None, bytes: 0 };
        let mut written = 0;
        for index in &indexes {
            match writer.index(index) {
                Ok(true) => written += 1,
                Ok(false) => {}
                Err(StorageError::OutOfDiskSpace) => break,
                Err(error) => return Err(error),
            }
        }
        writer.close()?;
        self.start.images().note_written(written);
        let elapsed = self.options.clock.monotonic().saturating_sub(started);
        let attr = Attr::new()
            .num("images", written)
            .num("indexes", indexes.len())
            .num("bytes", writer.bytes)
            .num("durationMicros", elapsed.as_micros());
        log::info("INDEX", 6_200_012, "shutdown", "Wrote index images", attr);
        Ok(())
    }
}

impl Writer<'_> {
    /// Writes one index's image. `false` if it can't have one.
    fn index(&mut self, index: &Index) -> Result<bool, StorageError> {
        let Some(tag) = index.generator.image_tag().filter(|_| !index.is_dropped()) else {
            return Ok(false);
        };
        let payload_max = payload_bytes_max(self.core.segments.segment_bytes()) as usize;
        let chunk_bytes = CHUNK_BYTES.min(payload_max / 4);
        let mut chunk = ChunkWriter::default();
        let (mut chunks, mut entries) = (0, 0);
        let (mut result, mut fits) = (Ok(()), true);
        index.keys.visit(|key, record, bits| {
            chunk.push(key, record.0, bits);
            entries += 1;
            if chunk.bytes().len() >= chunk_bytes {
                fits = chunk.bytes().len() <= payload_max;
                if fits {
                    result = self.append(index, Kind::Image, chunks, chunk.bytes());
                }
                chunks += 1;
                chunk.clear();
            }
            fits && result.is_ok()
        });
        // A key nearly as long as a segment: the next start generates them all.
        if !fits {
            return Ok(false);
        }
        if result.is_ok() && !chunk.bytes().is_empty() {
            result = self.append(index, Kind::Image, chunks, chunk.bytes());
            chunks += 1;
        }
        result?;
        let (unique, learned) = (index.spec.unique, index.generator.learned());
        let end = ImageEnd { tag, entries, unique, learned }.encode();
        self.append(index, Kind::ImageEnd, chunks, &end)?;
        Ok(true)
    }

    fn append(
        &mut self,
        index: &Index,
        kind: Kind,
        number: u32,
        payload: &[u8],
    ) -> Result<(), StorageError> {
        let header = RecordHeader {
            kind,
            flags: FLAG_ALONE,
            payload_len: payload.len() as u32,
            payload_crc: crc32c::crc32c(payload),
            collection: index.collection.0,
            record: image_record(index.spec.id.0, number),
            seq: self.seq,
        };
        let bytes = u64::from(header.record_bytes());
        if self.open.as_ref().is_none_or(|open| !open.fits(bytes, 1)) {
            self.close()?;
            let opening = self.core.segments.begin_opening();
            let taken = self.core.segments.take(Purpose::Image)?;
            self.open = Some(self.core.open_segment(&opening, taken, Stream::Image)?);
        }
        let failed = |error| self.core.fail("writing an image", error);
        let Some(open) = &mut self.open else { return Ok(()) };
        open.append(&header, payload).map_err(failed)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Seals the open segment.
    fn close(&mut self) -> Result<(), StorageError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        open.append_end(self.seq)?;
        let failed = |error| self.core.fail("writing an image", error);
        open.publish(std::iter::empty(), "commit.fence").map_err(failed)?;
        self.core.seal(open)
    }
}
