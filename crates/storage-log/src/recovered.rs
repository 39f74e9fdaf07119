//! What recovery has read of the segments, kept until the server is about to work: it tells where a collection's
//! documents lie.

use crate::on_medium::Kept;

/// Summaries that recovery has read of the segments that count.
#[derive(Default)]
pub struct Recovered {
    segments: Vec<Segment>,
}

struct Segment {
    kept: Kept,
    /// The collections with records in it, in order.
    collections: Vec<u32>,
}

/// A collection's records are searched in summaries only if they are at least one in this many entries.
const ENTRIES_A_RECORD_MAX: u64 = 8;

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

    /// The segments with records of a collection of `records` records, in file order. `None` if searching them does
    /// not pay.
    pub fn of(&self, collection: u32, records: u64) -> Option<Vec<&Kept>> {
        let holds = |segment: &&Segment| segment.collections.binary_search(&collection).is_ok();
        let kept: Vec<&Kept> = self.segments.iter().filter(holds).map(|s| &s.kept).collect();
        let entries: u64 = kept.iter().map(|kept| kept.contents.len()).sum();
        (entries <= records.saturating_mul(ENTRIES_A_RECORD_MAX)).then_some(kept)
    }
}
