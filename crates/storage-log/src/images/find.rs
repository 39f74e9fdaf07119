//! Finds images by the summaries of their segments.

use super::{Image, RecordAt};
use crate::format::record::Kind;
use crate::format::segment::SegmentHeader;
use crate::format::summary::Entry;
use crate::on_medium::Log;
use crate::reader::{read_summary, read_trailer};
use kauri_base::IndexId;
use kauri_base::sync::Arc;
use kauri_storage::StorageError;
use std::collections::HashMap;

/// The newest image of each index.
#[derive(Default)]
pub struct FoundImages {
    /// By the index.
    pub by_index: HashMap<IndexId, Arc<Image>>,
    /// The segments that they are in.
    pub segments: Vec<ImageSegment>,
    /// Cuts, by their first epochs, that hide images.
    pub cuts_used: Vec<u64>,
}

/// A segment of the image stream.
#[derive(Clone, Copy, Debug)]
pub struct ImageSegment {
    /// Its number.
    pub segment: u32,
    /// Its epoch.
    pub epoch: u64,
    /// Where its records end.
    pub end: u32,
}

impl FoundImages {
    /// For each collection with images the commit of the oldest.
    pub fn since(&self) -> HashMap<u32, u64> {
        let mut since = HashMap::new();
        for image in self.by_index.values() {
            let seq: &mut u64 = since.entry(image.collection).or_insert(image.seq);
            *seq = image.seq.min(*seq);
        }
        since
    }
}

/// An image as far as it has been read.
struct Partial {
    index: u32,
    collection: u32,
    seq: u64,
    chunks: Vec<RecordAt>,
}

/// Finds the images in these segments that are valid for a log whose last commit is `last_seq`. Changes of commit
/// `first_seq` are not visible in records' own commits, so older images are invalid.
pub fn find(
    log: Log<'_>,
    mut headers: Vec<SegmentHeader>,
    (first_seq, last_seq): (u64, u64),
) -> Result<FoundImages, StorageError> {
    headers.sort_unstable_by_key(|header| header.epoch);
    let mut found = FoundImages::default();
    let mut segments = Vec::new();
    let mut partial: Option<Partial> = None;
    for header in headers {
        let cut = log.meta.cut_after(header.epoch);
        let last_seq = cut.map_or(last_seq, |cut| cut.seq.min(last_seq));
        let Some((end, entries)) = entries(log, &header)? else {
            partial = None;
            continue;
        };
        let mut hidden = false;
        for entry in entries {
            let at =
                RecordAt { segment: header.segment, epoch: header.epoch, offset: entry.offset };
            let Some(image) = go_on(&mut partial, &entry, at) else { continue };
            if image.1.seq < first_seq {
                continue;
            }
            if image.1.seq > last_seq {
                hidden = true;
                continue;
            }
            // Later ones are newer, or equal.
            found.by_index.insert(image.0, Arc::new(image.1));
        }
        if let Some(cut) = cut.filter(|_| hidden) {
            found.cuts_used.push(cut.epoch_next);
        }
        segments.push(ImageSegment { segment: header.segment, epoch: header.epoch, end });
    }
    segments.retain(|segment| {
        let mut images = found.by_index.values();
        images.any(|image| image.places().any(|at| at.epoch == segment.epoch))
    });
    found.segments = segments;
    Ok(found)
}

/// The contents of a segment; `None` if it has no summary, because it was not filled.
fn entries(
    log: Log<'_>,
    header: &SegmentHeader,
) -> Result<Option<(u32, Vec<Entry>)>, StorageError> {
    let Log { medium, faults, segments, .. } = log;
    let trailer = read_trailer(medium, faults, segments, header.segment, Some(header.epoch));
    let Some(trailer) = trailer.map_err(crate::io_error)? else { return Ok(None) };
    let summary = read_summary(medium, faults, segments, &trailer).map_err(crate::io_error)?;
    Ok(summary.map(|contents| {
        let mut entries = Vec::new();
        contents.for_each(|entry| entries.push(entry));
        (trailer.records_end, entries)
    }))
}

/// Adds a record to the image that is being read. Answers the image when it is whole.
fn go_on(partial: &mut Option<Partial>, entry: &Entry, at: RecordAt) -> Option<(IndexId, Image)> {
    let (index, number) = ((entry.record >> 32) as u32, entry.record as u32);
    match entry.kind {
        Kind::Image | Kind::ImageEnd => {}
        // The end of a segment may lie within an image.
        Kind::End => return None,
        _ => {
            *partial = None;
            return None;
        }
    }
    let fits = |partial: &Partial| {
        (partial.index, partial.collection, partial.seq) == (index, entry.collection, entry.seq)
            && partial.chunks.len() == number as usize
    };
    let mut current = partial.take().filter(fits);
    if current.is_none() && number == 0 {
        let (collection, seq) = (entry.collection, entry.seq);
        current = Some(Partial { index, collection, seq, chunks: Vec::new() });
    }
    let mut current = current?;
    if entry.kind == Kind::ImageEnd {
        let Partial { collection, seq, chunks, .. } = current;
        return Some((IndexId(index), Image { seq, collection, chunks, end: at }));
    }
    current.chunks.push(at);
    *partial = Some(current);
    None
}

impl Image {
    /// Where all its records are.
    fn places(&self) -> impl Iterator<Item = &RecordAt> {
        self.chunks.iter().chain([&self.end])
    }
}
